"""What `floatlens eval` prints: the numbers of the table, with nothing cut at any width."""

import io
import math
import re
from functools import cache

import numpy as np
import polars as pl
import pytest
from made_up_answers import EVERY_KIND, answers, made_up_outcomes
from rich.console import Console

from floatlens.report.evaluation import print_evaluation
from floatlens.study.outcomes import Outcome, summarise

MASKED = answers(interventions=("mask-anchors:1", "mask-anchors:5"))


@cache
def masked_outcomes() -> list[Outcome]:
    return summarise(MASKED, draws=200)


def printed(table: pl.DataFrame, outcomes: list[Outcome], width: int = 100) -> str:
    into = io.StringIO()
    print_evaluation(Console(file=into, width=width), table, outcomes)
    return into.getvalue()


def section(text: str, title: str) -> list[str]:
    """The lines of one table, from below its headings."""
    lines = text.splitlines()
    (start,) = [number for number, line in enumerate(lines) if line == title]
    begin = next(number for number in range(start, len(lines)) if lines[number].startswith("─")) + 1
    return lines[begin : lines.index("", begin)]


def first_numbers(line: str) -> list[float]:
    """The number that each cell begins with; cells are two blanks apart."""
    cells = re.split(r"\s{2,}", line.strip())[1:]
    return [float(cell.split()[0].replace("%", "")) for cell in cells]


def values(table: pl.DataFrame, column: str, **condition: str) -> np.ndarray:
    rows = [row for row in table.to_dicts() if all(row[name] == value for name, value in condition.items())]
    return np.array([row[column] for row in sorted(rows, key=lambda row: row["sample"])], float)


def close(wanted: float) -> object:
    return pytest.approx(wanted, rel=6e-3, abs=6e-4)


def test_every_condition_has_its_means_and_the_brackets_stand_on_top() -> None:
    lines = section(printed(MASKED, masked_outcomes(), 80), "mdm")
    assert [line.split("  ")[0] for line in lines[:2]] == ["closed-book *", "gold *"]
    conditions = MASKED.filter(pl.col("model") == "mdm").select("context", "intervention", "control").unique(maintain_order=True).rows()
    assert len(lines) == len(conditions) == 4 + 2 * 2 * 3
    for line, (context, intervention, control) in zip(lines, conditions, strict=True):
        where = {"model": "mdm", "context": context, "intervention": intervention, "control": control}
        accuracy, shortcut, likelihood = first_numbers(line)
        assert accuracy == close(values(MASKED, "accuracy", **where).mean())
        assert shortcut == 0.25
        assert likelihood == close(values(MASKED, "log_likelihood", **where).mean())
        name = {"": intervention or context, "count": "as many keys", "mass": "as much attention"}[control]
        assert line.strip().startswith(name)


def test_gains_are_over_closed_book_and_models_are_compared_in_words() -> None:
    text = printed(MASKED, masked_outcomes())

    def gain(model: str, context: str, column: str) -> float:
        unedited = {"model": model, "intervention": ""}
        return float(
            values(MASKED, column, context=context, **unedited).mean() - values(MASKED, column, context="closed-book", **unedited).mean()
        )

    for model in ("mdm", "arm"):
        for line, context in zip(section(text, f"{model}: gain over closed-book"), ("gold", "noise:0", "noise:0.5"), strict=True):
            assert line.startswith(context)
            assert first_numbers(line) == [close(gain(model, context, column)) for column in ("accuracy", "log_likelihood")]
    lines = section(text, "How much more mdm gains over closed-book than arm (below 0: less; p of no difference)")
    for line, context in zip(lines, ("gold", "noise:0", "noise:0.5"), strict=True):
        accuracy, p, likelihood, other_p = first_numbers(line)
        assert accuracy == close(gain("mdm", context, "accuracy") - gain("arm", context, "accuracy"))
        assert likelihood == close(gain("mdm", context, "log_likelihood") - gain("arm", context, "log_likelihood"))
        assert 0 < p <= 1
        assert 0 < other_p <= 1


@pytest.mark.parametrize(
    ("outcome", "says", "share"), [("accuracy", "accuracy", "removed"), ("log_likelihood", "log likelihood", "likelihood_removed")]
)
def test_damage_stands_beside_what_was_removed_and_beyond_each_control(outcome: str, says: str, share: str) -> None:
    lines = section(printed(MASKED, masked_outcomes(), 150), f"arm: damage to {says}, unedited minus edited")
    assert len(lines) == 2 * (1 + 2 * 3)
    for block, context in enumerate(("noise:0", "noise:0.5")):
        own = lines[7 * block : 7 * block + 7]
        assert own[0].strip() == context
        unedited = values(MASKED, outcome, model="arm", context=context, intervention="")
        for number, intervention in enumerate(("mask-anchors:1", "mask-anchors:5")):
            edited: dict[str, np.ndarray] = {}
            for line, control in zip(own[1 + 3 * number : 4 + 3 * number], ("", "count", "mass"), strict=True):
                where = {"model": "arm", "context": context, "intervention": intervention, "control": control}
                edited[control] = values(MASKED, outcome, **where)
                removed = values(MASKED, share, **where).mean()
                damage = (unedited - edited[control]).mean()
                beyond = [close((edited[control] - edited[""]).mean())] if control else []
                assert first_numbers(line) == [close(100 * removed), close(damage), *beyond, close(damage / removed)]


def test_a_control_of_equal_mass_that_fell_short_has_a_note() -> None:
    short = (pl.col("control") == "mass") & (pl.col("model") == "arm") & (pl.col("intervention") == "mask-anchors:5")
    table = MASKED.with_columns(pl.when(short).then(pl.col("removed") * 0.9).otherwise(pl.col("removed")).alias("removed"))
    text = printed(table, masked_outcomes(), 150)
    (mark,) = re.findall(r"^(\(\d+\)) This control removed less", text, re.MULTILINE)
    for model in ("mdm", "arm"):
        for says in ("accuracy", "log likelihood"):
            lines = section(text, f"{model}: damage to {says}, unedited minus edited")
            noted = [number for number, line in enumerate(lines) if f"% {mark}" in line]
            assert noted == ([6, 13] if (model, says) == ("arm", "accuracy") else [])
    assert "This control" not in printed(MASKED, masked_outcomes(), 150)


def test_slopes_say_what_a_step_is_and_follow_the_levels() -> None:
    table = answers(
        ("mdm", "arm"), ("closed-book", "noise:0", "noise:0.5", "position:1/10", "position:10/10", "gold,masks=4", "gold,masks=64")
    )
    lines = section(printed(table, summarise(table, outcomes=["accuracy", "log_likelihood"], draws=200)), "Change with the level")
    heads = ("noise, from 0 to 1", "position/10, per slot", "gold,masks, per mask")
    assert [line.strip() for line in lines[::4]] == list(heads)
    for block, (first, last, apart) in enumerate(
        [("noise:0", "noise:0.5", 0.5), ("position:1/10", "position:10/10", 9), ("gold,masks=4", "gold,masks=64", 60)]
    ):
        slopes = {
            model: (
                values(table, "log_likelihood", model=model, context=last) - values(table, "log_likelihood", model=model, context=first)
            ).mean()
            / apart
            for model in ("mdm", "arm")
        }
        own = lines[4 * block + 1 : 4 * block + 4]
        assert [line.split("  ")[1] for line in own] == ["mdm", "arm", "mdm minus arm"]
        assert [first_numbers(line)[1] for line in own] == [
            close(slopes["mdm"]),
            close(slopes["arm"]),
            close(slopes["mdm"] - slopes["arm"]),
        ]


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
def test_nothing_is_cut_at_any_width(width: int) -> None:
    models = ("/home/me/models/mdm-with-a-long-name", "arm")
    table = answers(models, EVERY_KIND, ("mask-anchors:1,layers=0-7,steps=0-15",))
    outcomes = made_up_outcomes(table, ["accuracy", "log_likelihood", "exact_match", "f1"])
    text = printed(table, outcomes, width)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    if width >= 60:
        assert all(re.search(rf"^{re.escape(name)} ", text, re.MULTILINE) for name in ("closed-book *", *EVERY_KIND[2:])), (
            "names stay whole"
        )
    always = ("mean", "gain", "damage", "damage beyond control", "interaction", "slope", "slope difference")
    for one in outcomes if width >= 60 else []:
        if one.quantity in always and one.outcome in ("accuracy", "log_likelihood"):
            assert f"{one.estimate:.1f}" in text, one
            assert f"[{one.low:.1f}, {one.high:.1f}]" in text, one


def test_columns_without_room_are_named_and_shown_where_there_is_room() -> None:
    narrow, wide = (printed(MASKED, masked_outcomes(), width) for width in (80, 160))
    said = "Not shown here, but in summary.csv: exact match, F1, damage per removed attention."
    assert said in " ".join(narrow.split())
    assert "Not shown here" not in wide
    row = first_numbers(section(wide, "mdm")[1])
    where = {"model": "mdm", "context": "gold", "intervention": ""}
    assert row[-2:] == [close(values(MASKED, name, **where).mean()) for name in ("exact_match", "f1")]


def test_an_interval_without_width_is_a_note_and_a_missing_one_says_why() -> None:
    table = answers(("mdm",), ("closed-book", "gold"))
    agree = Outcome("mean", "accuracy", "mdm", 1.0, 1.0, 1.0, 8, "all agree", context="closed-book")
    alone = Outcome("mean", "accuracy", "mdm", 0.5, math.nan, math.nan, 1, "one prompt", context="gold")
    text = printed(table, [agree, alone])
    assert [re.split(r"\s{2,}", line.strip())[:2] for line in section(text, "mdm")] == [
        ["closed-book *", "1.00 (1)"],
        ["gold *", ".500 (2)"],
    ]
    assert "(1) all agree\n(2) one prompt\n" in text


def test_without_likelihoods_and_shortcuts_neither_is_spoken_of() -> None:
    table = answers(("mdm",), interventions=("mask-anchors:1",), likelihood=False, shortcut=False)
    text = printed(table, made_up_outcomes(table, ["accuracy"]))
    assert "damage to accuracy" in text
    assert not re.search("likelihood|nats|shortcut", text)


def test_what_was_cut_is_said_also_where_it_is_nothing() -> None:
    table = answers(("models/mdm",))
    assert printed(table, []).splitlines()[-1] == "No passage was cut."
    cut = (pl.col("context") == "noise:0.5") & pl.col("sample").is_in(["question-0", "question-1"])
    gold = (pl.col("context") == "noise:0.5") & (pl.col("sample") == "question-1")
    said = " ".join(printed(table.with_columns(passages_cut=cut.cast(pl.Int64), gold_cut=gold.cast(pl.Int64)), []).split())
    assert said.endswith("mdm, noise:0.5: passages were cut from 2 of 8 prompts, a gold one from 1 (12.5 %), to fit the model's context.")
    assert "No passage was cut" not in said


def test_models_that_share_the_last_part_of_their_names_are_told_apart() -> None:
    table = answers(("one/mdm", "two/mdm"))
    text = printed(table, made_up_outcomes(table, ["accuracy"]))
    assert section(text, "one/mdm: gain over closed-book") != section(text, "two/mdm: gain over closed-book")
