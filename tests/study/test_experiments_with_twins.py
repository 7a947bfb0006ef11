"""Every experiment on context, run from the command line on the bundled twins: each leaves its table, with brackets, pairs and controls."""

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

Ran = tuple[int, str, str]
COUNT = 4
UNEDITED = pl.col("intervention") == ""

EXPERIMENTS = {  # task, contexts and options, contexts in the table besides the brackets
    "noise": ("world", ["-c", "noise", "--levels", "0,.4,.8"], ["noise:0", "noise:0.4", "noise:0.8"]),
    "position": ("world", ["-c", "position", "--levels", "1/6,3/6,6/6"], ["position:1/6", "position:3/6", "position:6/6"]),
    "retrieved": ("world", ["-c", "retrieved:5"], ["retrieved:5"]),
    "layout": ("world-two-hop", ["-c", "layout", "--levels", "one,adjacent,far"], ["layout:one", "layout:adjacent", "layout:far"]),
    "conflict": ("world", ["-c", "conflict"], ["conflict"]),
    "masks": ("world", ["-c", "masks", "--levels", "3,8"], ["gold,masks=3", "gold,masks=8"]),
    "description": ("world-description", ["-c", "position:1/2"], ["position:1/2"]),
    "closed-book": ("world-closed", [], []),
}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_leaves_its_table(name: str, floatlens: Callable[..., Ran], tmp_path: Path) -> None:
    task, options, contexts = EXPERIMENTS[name]
    into = tmp_path / name
    models = ["-m", "twin-mdm", "-m", "twin-arm"]
    code, said, error = floatlens("eval", *models, "-t", task, *options, "-n", COUNT, "--into", into)
    assert code == 0, error
    table = pl.read_parquet(into / "results.parquet")
    brackets = ["closed-book"] if name == "closed-book" else ["closed-book", "gold"]
    assert table["context"].unique(maintain_order=True).to_list() == [*brackets, *contexts]
    asked = table.group_by("model", "context", "intervention", "control").agg(pl.col("sample").sort())
    assert len({tuple(samples) for samples in asked["sample"]}) == 1, "the same questions everywhere"
    assert len(asked["sample"][0]) == COUNT
    assert table["log_likelihood"].is_finite().all()
    summary = pl.read_csv(into / "summary.csv", infer_schema_length=None)
    gains = set(summary.filter(pl.col("quantity") == "gain")["context"])
    assert gains == {*brackets, *contexts} - {"closed-book"}
    compared = set(summary.filter(pl.col("quantity") == "interaction")["context"])
    assert compared == gains, "what one model gains more than the other, in every context"
    assert "cut" in said
    right = table.filter(UNEDITED).group_by("model", "context").agg(pl.col("accuracy").mean())
    for model, context, accuracy in right.rows():
        if context in ("gold", "noise:0.8", "position:3/6", "gold,masks=3") and task != "world-two-hop":
            assert accuracy >= 0.75, f"{model} reads its passages in {context}"
    exact = table.filter(UNEDITED & (pl.col("context") == "gold") & (pl.col("model") == "twin-arm"))["log_likelihood"]
    assert (exact > -1).all(), "a right answer, as it is worded, is what the twin expects"


def test_masking_reports_what_it_removed_beside_its_controls(floatlens: Callable[..., Ran], tmp_path: Path) -> None:
    masks = ["--intervention", "mask-anchors:1", "--intervention", "mask-anchors:5"]
    code, said, error = floatlens("eval", "-m", "twin-mdm", "-m", "twin-arm", "-c", "gold", *masks, "-n", 2, "-o", tmp_path / "masked")
    assert code == 0, error
    edited = pl.read_parquet(tmp_path / "masked" / "results.parquet").filter(~UNEDITED)
    assert edited.select("intervention", "control").unique().height == 2 * 3, "each with both controls"
    removed = {key: rows["removed"].mean() for key, rows in edited.group_by("model", "intervention", "control")}
    for model in ("twin-mdm", "twin-arm"):
        one, five, random = (
            float(str(removed[model, name, control]))
            for name, control in (("mask-anchors:1", ""), ("mask-anchors:5", ""), ("mask-anchors:5", "count"))
        )
        assert 0 < one < five, "five keys hold more than one"
        assert random < five, "random keys hold less than the strongest"
    summary = pl.read_csv(tmp_path / "masked" / "summary.csv", infer_schema_length=None)
    beyond = summary.filter(pl.col("quantity") == "damage beyond control")
    assert set(beyond.select("model", "intervention", "control").rows()) == {
        (model, name, control)
        for model in ("twin-mdm", "twin-arm")
        for name in ("mask-anchors:1", "mask-anchors:5")
        for control in ("count", "mass")
    }
    assert "mask-anchors:5" in said
