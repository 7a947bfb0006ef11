"""Figures of a demo show the numbers of its tables."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from matplotlib.figure import Figure

from floatlens.claims.design import WORLD
from floatlens.claims.masking import masking_rows, masking_table
from floatlens.errors import Refusal
from floatlens.report.claims import draw_contexts, draw_masking, save_drawn
from floatlens.report.figures.contexts import context_curves
from made_up_evidence import as_published


def test_context_curves_go_through_the_means_of_each_model() -> None:
    answers = as_published().evidence().answers.with_columns(model=pl.col("role"))
    figure = context_curves(answers.filter(pl.col("experiment").is_in(["noise", "position", "layout"])))
    contexts = (("closed-book", "gold"), WORLD.noise, WORLD.positions, WORLD.layouts)
    assert len(figure.axes) == 2 * len(contexts), "accuracy above, likelihood below"
    for number, axes in enumerate(figure.axes):
        outcome, wanted = ("accuracy", "log_likelihood")[number // len(contexts)], contexts[number % len(contexts)]
        lines = {str(line.get_label()): np.asarray(line.get_ydata()) for line in axes.lines}
        for role in ("arm", "mdm", "causal-mdm"):
            rows = [row for row in answers.to_dicts() if (row["role"], row["intervention"]) == (role, "")]
            means = [np.mean([row[outcome] for row in rows if row["context"] == context]) for context in wanted]
            assert lines[role] == pytest.approx(np.array(means))
        if outcome == "accuracy":
            shortcuts = [float(height) for path in axes.collections[-1].get_paths() for height in np.asarray(path.vertices)[:, 1]]
            assert shortcuts == pytest.approx([0.1] * 2 * len(wanted))


def test_bars_of_context_curves_end_at_0_and_1() -> None:
    answers = (
        as_published().evidence().answers.with_columns(model=pl.col("role"), accuracy=(pl.col("sample") == "sample-00").cast(pl.Float64))
    )
    figure = context_curves(answers.filter(pl.col("experiment") == "noise"))
    ends = [
        y
        for axes in figure.axes
        if axes.get_ylim()[1] > 1  # accuracies
        for bars in axes.collections[:-1]
        for path in bars.get_paths()
        for y in np.asarray(path.vertices)[:, 1]
    ]
    assert ends
    assert min(ends) >= 0, "one right answer of twelve: the bootstrap reaches below none"
    assert max(ends) <= 1


def test_context_curves_leave_interventions_out_and_refuse_a_table_without_contexts() -> None:
    answers = as_published().evidence().answers.with_columns(model=pl.col("role"))
    with pytest.raises(Refusal, match="nothing to draw in the context curves"):
        context_curves(answers.filter((pl.col("experiment") == "masked answers") & (pl.col("intervention") != "")))


def test_masking_rows_are_damage_beside_what_was_removed() -> None:
    made_up = as_published()
    made_up.noise = 0.0
    rows = {(row.role, row.experiment, row.keys, row.what): row for row in masking_rows(made_up.evidence())}
    assert len(rows) == 3 * (3 * 1 + 3 * 3)
    found = rows["arm", "masked answers", 5, "anchors"]
    assert [found.outcome.value, found.removed.value, found.damage.value] == pytest.approx([-9.0, 0.2, 8.9])
    assert found.damage_per_removed.value == pytest.approx(8.9 / 0.2)
    assert rows["arm", "masked answers", 5, "mass"].damage.value == pytest.approx(0.0)


def test_the_masking_figure_is_of_the_twin_that_it_names(tmp_path: Path) -> None:
    evidence = as_published().evidence()
    table = masking_table(evidence, "masked descriptions", "mdm")
    assert table["outcome"].sel(kind="anchors", k=1).mean().item() == pytest.approx(0.9, abs=0.01)
    assert table.attrs["model"] == "twin-mdm"
    draw_masking("mdm", "masked descriptions", evidence, tmp_path)
    draw_contexts(evidence, tmp_path)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["contexts.svg", "masked_descriptions-mdm.svg"]


def test_a_figure_that_cannot_be_drawn_is_left_out_with_the_reason(tmp_path: Path) -> None:
    def refuse() -> Figure:
        raise Refusal("There are no anchors.")

    save_drawn({"empty": Figure, "geometry": refuse}, tmp_path, "mdm")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["empty.svg", "left_out-mdm.txt"]
    assert (tmp_path / "left_out-mdm.txt").read_text() == "geometry: There are no anchors.\n"
