"""`floatlens demo`, start to end, on the bundled twins with few questions: what it writes, that its numbers are those of what it stored, and what it refuses."""

import csv
import json
import re
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import floatlens as fl
from floatlens.claims.evidence import Evidence, read_evidence
from floatlens.claims.findings import CLAIMS, judge_all
from floatlens.cli import run
from floatlens.lab.experiments import measurements_of

Ran = tuple[int, str, str]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder that one demo wrote, and what it said. Figures are drawn in tests/report/test_claim_pictures.py."""
    folder = tmp_path_factory.mktemp("demo") / "out"
    said, before = StringIO(), sys.argv
    sys.argv = ["floatlens", "demo", "--questions", "4", "--no-figures", "--into", str(folder)]
    try:
        with redirect_stdout(said), pytest.raises(SystemExit) as ended:
            run()
    finally:
        sys.argv = before
    assert not ended.value.code
    return folder, said.getvalue()


def claims_of(folder: Path) -> dict[str, dict]:
    return {claim["name"]: claim for claim in json.loads((folder / "claims.json").read_text())["claims"]}


def test_the_folder_holds_claims_tables_traces_and_figures_and_says_what_they_are(made: tuple[Path, str]) -> None:
    folder, said = made
    listed = re.findall(r"`([\w/.*]+)`", (folder / "README.md").read_text())
    for pattern in listed:
        assert list(folder.glob(pattern.rstrip("/"))), pattern
    assert set(claims_of(folder)) == {claim.name for claim, _ in CLAIMS}
    assert "claims.md" in said.splitlines()[-1]
    assert "intervals are over prompts, not over trainings" in " ".join(said.split())
    assert str(folder.parent) not in (folder / "claims.json").read_text(), "where models lie is nobody's business"


def test_the_terminal_shows_every_claim_and_the_shortcut_beside_accuracies(made: tuple[Path, str]) -> None:
    folder, said = made
    flat = " ".join(said.split())
    assert "shortcut" in flat
    for claim in claims_of(folder).values():
        assert claim["statement"].split()[0] in flat
    assert sum(flat.count(outcome) for outcome in ("holds", "fails", "cannot be said")) >= len(CLAIMS)


def test_a_share_in_the_claims_is_that_of_the_stored_trace(made: tuple[Path, str]) -> None:
    folder, _ = made
    trace = fl.open_trace(folder / "traces" / "arm.zarr")
    shares, nulls = [], []
    for sample in range(len(trace)):
        own = trace.sample(sample).sel(group="predicting").load()
        mass = np.nan_to_num(own["mass"].transpose("step", "layer", "head", "key").values)
        fair = np.nan_to_num((own["visible"] * own["null"]).transpose("step", "key").values)
        shares.append(100 * (mass[..., 0].sum(0) / mass.sum((0, 3))).mean())
        nulls.append(100 * fair[:, 0].sum() / fair.sum())
    found = claims_of(folder)["fixed-sink"]["numbers"][0]
    assert found["estimate"]["value"] == pytest.approx(np.mean(shares), rel=1e-4)
    assert found["beside"] == pytest.approx(np.mean(nulls), rel=1e-4)
    assert found["line"] == pytest.approx(4 * np.mean(nulls), rel=1e-4)


def test_gains_and_losses_in_the_claims_are_those_of_the_stored_answers(made: tuple[Path, str]) -> None:
    folder, _ = made
    answers = pl.read_parquet(folder / "tables" / "answers.parquet")

    def mean(twin: str, experiment: str, context: str, column: str, intervention: str = "", control: str = "") -> float:
        wanted = (twin, experiment, context, intervention, control)
        columns = ("twin", "experiment", "context", "intervention", "control")
        rows = [row for row in answers.to_dicts() if tuple(row[name] for name in columns) == wanted]
        assert rows
        return sum(row[column] for row in rows) / len(rows)

    found = claims_of(folder)
    gains = [mean(twin, "noise", "noise:0.8", "accuracy") - mean(twin, "noise", "closed-book", "accuracy") for twin in ("mdm", "arm")]
    assert found["gains-more"]["numbers"][0]["estimate"]["value"] == pytest.approx(gains[0] - gains[1])
    context, masked = "position:2/3", "mask-anchors:1"
    nats = [
        mean(twin, "masked answers", context, "log_likelihood") - mean(twin, "masked answers", context, "log_likelihood", masked)
        for twin in ("arm", "mdm")
    ]
    assert nats[0] != 0, "masking reaches a short answer through its likelihood"
    assert found["masking-tells-apart"]["numbers"][1]["estimate"]["value"] == pytest.approx(nats[0] - nats[1])
    lost = mean("mdm", "masked descriptions", context, "accuracy") - mean("mdm", "masked descriptions", context, "accuracy", masked)
    assert found["masking-spares-mdm"]["numbers"][0]["estimate"]["value"] == pytest.approx(lost)


def test_the_csv_has_the_numbers_of_the_json(made: tuple[Path, str]) -> None:
    folder, _ = made
    rows = list(csv.DictReader((folder / "claims.csv").open()))
    numbers = [(claim["name"], one["says"], one["estimate"]["value"]) for claim in claims_of(folder).values() for one in claim["numbers"]]
    assert [(row["claim"], row["says"], float(row["value"]) if row["value"] else None) for row in rows] == numbers


def test_the_mdm_in_place_of_the_arm_changes_the_numbers_and_verdicts_of_the_arms_claims(made: tuple[Path, str]) -> None:
    folder, _ = made
    evidence = read_evidence(folder / "tables")
    samples = evidence.heads["sample"].unique(maintain_order=True).to_list()
    impostor = measurements_of("arm", fl.open_trace(folder / "traces" / "mdm.zarr"), samples)
    kept = evidence.measurements.filter(pl.col("twin") != "arm")
    found, before = (
        {one.claim.name: one for one in judge_all(Evidence(measurements, evidence.heads, evidence.answers, evidence.about))}
        for measurements in (pl.concat([impostor, kept]), evidence.measurements)
    )
    share = evidence.measured("mdm", "on the first token").mean().item()
    assert found["fixed-sink"].parts[0].estimate.value == pytest.approx(share)
    assert before["fixed-sink"].parts[0].estimate.value != pytest.approx(share, rel=0.01)
    for name in ("absorbs-less", "floats-more"):
        assert (found[name].parts[0].estimate.value, found[name].outcome) == (pytest.approx(0), "cannot be said"), (
            "a model differs not from itself"
        )
        assert before[name].parts[0].estimate.value != 0


def test_a_folder_that_no_demo_wrote_is_left_alone(floatlens: Callable[..., Ran], tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    code, _, errors = floatlens("demo", "--into", tmp_path / "mine", "--questions", 4)
    assert code == 2
    assert "mine exists already and has no manifest.json, so it cannot be told which of its files `floatlens demo` wrote" in errors
    assert [file.name for file in tmp_path.iterdir() if file.name != "cache"] == ["mine"]
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "years of work"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--questions", "2"], "2 questions give no interval; ask at least 4."),
        (["--arm", "no-such-model"], "There is no model 'no-such-model'"),
        (["--into", "nowhere/out"], "There is no folder nowhere to write out into."),
    ],
)
def test_a_mistake_is_one_sentence_and_leaves_nothing_behind(
    floatlens: Callable[..., Ran], tmp_path: Path, words: list[str], sentence: str
) -> None:
    code, _, errors = floatlens("demo", *words, *([] if "--into" in words else ["--into", tmp_path / "out"]))
    assert (code, sentence in errors) == (2, True), errors
    assert [file.name for file in tmp_path.iterdir() if file.name != "cache"] == []
