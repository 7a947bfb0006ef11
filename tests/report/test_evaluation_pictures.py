"""Pictures of an evaluation show the numbers of its table, for every kind of context, and cut nothing off."""

import warnings
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from made_up_answers import EVERY_KIND, answers, made_up_outcomes
from made_up_trace import footer, heights, legend
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from floatlens.errors import Refusal
from floatlens.report.evaluation import write_pictures
from floatlens.report.figures.contexts import context_curves
from floatlens.report.figures.interventions import intervention_damage
from floatlens.study.outcomes import summarise

LONG = "some-lab/a-language-model-with-a-rather-long-name-and-a-revision-2025-11-30-finetuned-on-instructions-checkpoint-120000"
K = ("mask-anchors:1", "mask-anchors:5", "mask-anchors:10")
LABELS = {"": "anchors masked", "count": "control: as many random keys", "mass": "control: random keys of equal mass"}


def mean(table: pl.DataFrame, column: str, **condition: str) -> float:
    return float(np.mean([row[column] for row in table.to_dicts() if all(row[name] == value for name, value in condition.items())]))


def nothing_is_cut_off(figure: Figure) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure.draw_without_rendering()
    box, (width, height) = figure.get_tightbbox(), figure.get_size_inches()
    return min(box.x0, box.y0, width - box.x1, height - box.y1) > -0.02


def says(axes: Axes) -> str:
    return " ".join(axes.get_xlabel().split())


def test_every_kind_of_context_has_a_panel_for_each_outcome_with_the_means_of_each_model() -> None:
    table = answers(("mdm", "arm"), EVERY_KIND, ("mask-anchors:1",))
    figure = context_curves(table)
    wanted = {
        "brackets": ["closed-book", "gold"],
        "passages retrieved": ["retrieved:1", "retrieved:5"],
        "share of distractors": ["noise:0", "noise:0.4"],
        "slot of the evidence (of 10)": ["position:1/10", "position:10/10"],
        "slot of the evidence (of 20)": ["position:1/20"],
        "evidence in": ["layout:one", "layout:adjacent", "layout:far"],
        "beside a conflicting passage": ["conflict"],
        "masks to write (gold)": ["gold,masks=4", "gold,masks=64"],
    }
    by_outcome: dict[str, list[Axes]] = {"accuracy": [], "log_likelihood": []}
    for axes in figure.axes:
        by_outcome["accuracy" if axes.get_ylim()[1] > 0.9 else "log_likelihood"].append(axes)
    for outcome, panels in by_outcome.items():
        assert [says(axes) for axes in panels] == list(wanted)
        assert len({axes.get_ylim() for axes in panels}) == 1, "panels that are compared have the same bounds"
        for axes, contexts in zip(panels, wanted.values(), strict=True):
            for model in ("mdm", "arm"):
                means = [mean(table, outcome, model=model, context=context, intervention="") for context in contexts]
                np.testing.assert_allclose(heights(axes, model), means)
    assert nothing_is_cut_off(figure)


def test_curves_stand_between_the_brackets_of_the_same_questions() -> None:
    table = answers(("mdm",), ("closed-book", "gold", "noise:0", "noise:0.5", "layout:far"))
    others = pl.col("sample") + pl.when(pl.col("kind") == "layout").then(pl.lit("-two-hop")).otherwise(pl.lit(""))
    some = table.with_columns(sample=others).filter((pl.col("kind") != "noise") | (pl.col("sample") < "question-4"))
    _, noise, layout = context_curves(some).axes[:3]
    first = some.filter(pl.col("sample") < "question-4")
    for context in ("closed-book", "gold"):
        np.testing.assert_allclose(heights(noise, f"_{context}"), mean(first, "accuracy", context=context))
    assert [str(line.get_label()) for line in layout.lines if str(line.get_label()).startswith("_c")] == []
    assert "questions: brackets 8, noise 4, layout 8" in footer(context_curves(some))


def test_the_legend_names_what_is_drawn_and_nothing_else() -> None:
    contexts = ("closed-book", "gold", "noise:0")
    assert legend(context_curves(answers(("models/mdm",), contexts))) == [
        "mdm",
        "closed-book, of the same model",
        "gold, of the same model",
        "shortcut",
    ]
    without = context_curves(answers(("mdm",), contexts[1:], likelihood=False, shortcut=False))
    assert legend(without) == ["mdm", "gold, of the same model"]
    assert len(without.axes) == 2, "no likelihoods, no second row"
    assert legend(context_curves(answers(("mdm",), contexts[:2]))) == ["mdm", "shortcut"]


def test_damage_over_k_stands_beside_the_controls_and_against_what_was_removed() -> None:
    table = answers(("mdm", "arm"), ("closed-book", "gold", "noise:0"), K)
    figure = intervention_damage(table, summarise(table, outcomes=["accuracy", "log_likelihood"], draws=50))
    assert len(figure.axes) == 8
    for number, axes in enumerate(figure.axes):
        outcome, share = (("accuracy", "removed"), ("log_likelihood", "likelihood_removed"))[number // 4]
        model, against = ("mdm", "arm")[number % 2], number % 4 >= 2
        for control, label in LABELS.items():
            (line,) = [line for line in axes.lines if line.get_label() == label]
            edited = [{"model": model, "context": "noise:0", "intervention": one, "control": control} for one in K]
            unedited = mean(table, outcome, model=model, context="noise:0", intervention="")
            np.testing.assert_allclose(
                np.asarray(line.get_ydata(), float), [unedited - mean(table, outcome, **one) for one in edited], atol=1e-9
            )
            if against:
                np.testing.assert_allclose(np.asarray(line.get_xdata(), float), [100 * mean(table, share, **one) for one in edited])
            x, y = (np.asarray(one, float) for one in line.get_data())
            (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
            assert ((left <= x) & (x <= right) & (bottom <= y) & (y <= top)).all(), "within the bounds that panels share"
        assert says(axes) == ("removed attention (%)" if against else "K of mask-anchors")
        if not against:
            assert [label.get_text() for label in axes.get_xticklabels()] == ["1", "5", "10"]
    assert legend(figure)[0] == "mask-anchors"
    assert "in noise:0 · questions: 8" in footer(figure)


def test_one_intervention_in_several_contexts_has_the_contexts_along_the_axis() -> None:
    table = answers(("mdm",), ("closed-book", "noise:0", "noise:0.5"), K[:1])
    outcomes = made_up_outcomes(table, ["accuracy"])
    damage, against = intervention_damage(table, outcomes).axes
    assert (says(damage), says(against)) == ("share of distractors", "removed attention (%)")
    assert [label.get_text() for label in damage.get_xticklabels()] == ["0", "0.5"]
    wanted = {(one.context, one.control): one.estimate for one in outcomes if one.quantity == "damage"}
    for control, label in LABELS.items():
        np.testing.assert_allclose(heights(damage, label), [wanted[context, control] for context in ("noise:0", "noise:0.5")])


def test_interventions_of_different_kinds_are_named_and_not_joined() -> None:
    table = answers(("mdm",), ("gold,masks=4",), ("mask-heads:3:0,11:4", "mask-heads:2:1"), controls=("heads",))
    figure = intervention_damage(table, made_up_outcomes(table, ["accuracy"]))
    names = ["".join(label.get_text().split("\n")) for label in figure.axes[0].get_xticklabels()]
    assert names == ["mask-heads:3:0,11:4", "mask-heads:2:1"]
    assert {str(line.get_linestyle()) for line in figure.axes[0].lines if line.get_label() == LABELS[""]} == {"None"}
    assert legend(figure) == ["intervention", "control: as many random heads"]


def test_nothing_is_cut_off_with_long_names_and_many_places() -> None:
    many = ("closed-book", "gold", *(f"position:{slot}/20" for slot in range(1, 21)), "noise:0,passages=10,gold=1", "noise:0", "conflict")
    curves = context_curves(answers((LONG, f"{LONG}-b"), many, likelihood=False))
    assert nothing_is_cut_off(curves)
    slots = next(axes for axes in curves.axes if says(axes).startswith("slot"))
    boxes = [label.get_window_extent() for label in slots.get_xticklabels() if label.get_text()]
    assert all(one.x1 <= other.x0 for one, other in pairwise(boxes)), "labels do not touch"
    table = answers((LONG, f"{LONG}-b", "c", "d", "e"), ("noise:0",), (*K[:1], "keep-sinks:16,k=4"))
    damage = intervention_damage(table, made_up_outcomes(table, ["accuracy"]))
    assert nothing_is_cut_off(damage)


def test_pictures_that_cannot_be_drawn_are_refused_with_what_to_do() -> None:
    with pytest.raises(Refusal, match="There are 6 models, and the context curves tell 5 apart"):
        context_curves(answers(tuple("abcdef")))
    both = answers(("mdm",), interventions=K[:2])
    with pytest.raises(Refusal, match=r"2 contexts and 2 interventions, too many for one axis\. Draw one context at a time"):
        intervention_damage(both, made_up_outcomes(both, ["accuracy"]))
    with pytest.raises(Refusal, match="no intervention to draw"):
        intervention_damage(answers(), [])
    with pytest.raises(Refusal, match="There is no damage to draw"):
        intervention_damage(answers(interventions=K[:1], contexts=("noise:0",)), [])
    many = answers(tuple("abcdef"), ("noise:0",), K[:1])
    with pytest.raises(Refusal, match="There are 6 models, and 5 fit beside each other"):
        intervention_damage(many, made_up_outcomes(many, ["accuracy"]))


@pytest.mark.parametrize(
    ("contexts", "interventions", "files"),
    [
        (("gold", "noise:0"), (), ["contexts.svg"]),
        (("gold", "noise:0"), K[:2], ["contexts.svg", "interventions.svg"]),
        (("noise:0", "noise:0.5"), K[:1], ["contexts.svg", "interventions.svg"]),
        (("position:1/5", "noise:0.5"), K[:2], ["contexts.svg", "interventions-position-1-5.svg", "interventions-noise-0.5.svg"]),
    ],
)
def test_the_folder_gets_a_picture_of_contexts_and_of_interventions(
    tmp_path: Path, contexts: tuple[str, ...], interventions: tuple[str, ...], files: list[str]
) -> None:
    table = answers(("mdm",), contexts, interventions, likelihood=False)
    written, left_out = write_pictures(tmp_path, table, made_up_outcomes(table, ["accuracy"]))
    assert ([path.name for path in written], left_out) == (files, [])
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(files)


def test_six_models_lose_a_picture_and_are_told_why(tmp_path: Path) -> None:
    assert write_pictures(tmp_path, answers(tuple("abcdef")), []) == (
        [],
        ["contexts was not drawn: There are 6 models, and the context curves tell 5 apart. Draw fewer at a time."],
    )
