"""`floatlens demo` on the bundled twins, with few questions: what it prints, writes and refuses."""

import csv
import json
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from rich.console import Console

import floatlens as fl
from floatlens.claims.evidence import Evidence, read_evidence
from floatlens.claims.findings import CLAIMS, findings_of, judge_all
from floatlens.cli import run
from floatlens.lab.experiments import measurements_of
from floatlens.report.claims import print_accuracies, print_claims, print_splits
from floatlens.report.tables import number

Ran = tuple[int, str, str]


WIDTH = 80


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder that one demo wrote, and what it said into a pipe. Figures are drawn in tests/report/test_claim_pictures.py."""
    folder = tmp_path_factory.mktemp("demo") / "out"
    said = StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("COLUMNS", raising=False)
        patch.setattr(sys, "argv", ["floatlens", "demo", "--questions", "4", "--no-figures", "--into", str(folder)])
        with redirect_stdout(said), pytest.raises(SystemExit) as ended:
            run()
    assert not ended.value.code
    return folder, said.getvalue()


@pytest.fixture(scope="module", params=["pipe", "terminal"])
def printed(request: pytest.FixtureRequest, made: tuple[Path, str]) -> tuple[Path, list[str]]:
    """The same findings as they are printed into a pipe and on a terminal of 80 columns."""
    folder, said = made
    if request.param == "pipe":
        return folder, said.splitlines()
    findings, shown = findings_of(read_evidence(folder / "tables")), StringIO()
    terminal = Console(width=WIDTH, force_terminal=True, color_system=None, file=shown)
    for show in (print_accuracies, print_claims, print_splits):
        show(terminal, findings)
    return folder, shown.getvalue().splitlines()


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
    assert str(folder.parent) not in (folder / "claims.json").read_text(), "where models are stored is nobody's business"


def shown(value: float | None, unit: str = "") -> str:
    return "-" if value is None else f"{number(value)} {unit}".rstrip()


def interval_of(estimate: dict) -> str:
    """A number with its interval, as tables print it."""
    return shown(estimate["value"]) + ("" if estimate["low"] is None else f" [{shown(estimate['low'])}, {shown(estimate['high'])}]")


def number_in_pieces(part: dict) -> list[str]:
    """What a claim's line says of a number: "8.2 % [7.1, 9.0]", "MDM: 11.9 %", "n = 40". No piece may be broken."""
    estimate = part["estimate"]
    interval = "" if estimate["low"] is None else f" [{shown(estimate['low'])}, {shown(estimate['high'])}]"
    beside = [] if part["beside"] is None else [f"{part['beside_says']}: {shown(part['beside'], part['unit'])}"]
    return [f"{part['says']}: {shown(estimate['value'], part['unit'])}{interval}", *beside, f"n = {estimate['prompts']}"]


def claim_in_lines(claim: dict) -> list[str]:
    """All that is printed of a claim: verdict, statement and paper; a line per number; the reason where it neither holds nor fails."""
    with_reason = [f"{part['verdict_of_number']} ({part['reason']})".removesuffix(" ()") for part in claim["numbers"]]
    alike = len(set(with_reason)) == 1
    return [
        f"{claim['verdict']} {claim['statement']} ({claim['paper']})",
        *("; ".join(number_in_pieces(part) + ([] if alike else [own])) for part, own in zip(claim["numbers"], with_reason, strict=True)),
        *([f"{claim['verdict']}: {claim['reason']}"] if alike and claim["reason"] else []),
    ]


def test_every_claim_is_printed_whole_with_its_verdict_numbers_and_reason(printed: tuple[Path, list[str]]) -> None:
    folder, lines = printed
    claims = list(claims_of(folder).values())
    first = next(place for place, line in enumerate(lines) if claims[0]["statement"][:40] in line)
    last = next(place for place, line in enumerate(lines) if line.startswith("Mask or objective?"))
    read: list[str] = []
    for line in lines[first:last]:
        if line.startswith("    "):  # goes on from the line before
            read[-1] += f" {line.strip()}"
        elif line.strip():
            read.append(" ".join(line.split()))
    assert read == [line for claim in claims for line in claim_in_lines(claim)]
    assert {claim["verdict"] for claim in claims} <= {"holds", "fails", "inconclusive", "not asked"}
    for claim in claims:
        assert bool(claim["reason"]) == (claim["verdict"] in ("inconclusive", "not asked")), claim["name"]
        for piece in (piece for part in claim["numbers"] for piece in number_in_pieces(part)):
            assert any(piece in line for line in lines), f"{piece!r} is broken"


def cells_of(lines: list[str], headings: tuple[str, ...]) -> list[list[str]]:
    """The cells of a printed table, each as one text; a row begins where its last cell does."""
    top = next(place for place, line in enumerate(lines) if tuple(re.split(r"  +", line.strip())) == headings)
    rule = max(place for place in range(top, top + 3) if set(lines[place].strip()) == {"─"})
    edges = [lines[top].index(heading) for heading in headings]
    rows: list[list[str]] = []
    for line in lines[rule + 1 :]:
        if not line.strip():
            return rows
        cells = [line[start:stop].strip() for start, stop in zip(edges, [*edges[1:], None], strict=True)]
        if cells[-1]:
            rows.append(cells)
        else:
            rows[-1] = [f"{before} {cell}".strip() for before, cell in zip(rows[-1], cells, strict=True)]
    raise AssertionError("the table has no end")


def test_the_last_table_is_printed_whole_and_says_what_each_difference_follows(printed: tuple[Path, list[str]]) -> None:
    folder, lines = printed
    splits = json.loads((folder / "claims.json").read_text())["mask_or_objective"]
    rows = cells_of(lines, ("quantity", "ARM - MDM", "objective", "mask", "follows"))
    assert [row[:4] for row in rows] == [
        [split["quantity"], *(interval_of(split[name]) for name in ("whole", "objective", "mask"))] for split in splits
    ]
    notes = dict(re.findall(r"^\((\d+)\) (.+)$", "\n".join(line.rstrip() for line in lines), re.MULTILINE))
    for row, split in zip(rows, splits, strict=True):
        word, _, mark = row[4].partition(" (")
        assert (word, notes[mark.rstrip(")")] if mark else "") == (split["follows"], split["reason"])
        assert bool(mark) == (split["follows"] in ("inconclusive", "not asked"))


def test_accuracies_are_printed_whole_with_the_shortcut_for_comparison(printed: tuple[Path, list[str]]) -> None:
    folder, lines = printed
    accuracies = json.loads((folder / "claims.json").read_text())["accuracies"]
    top = next(place for place, line in enumerate(lines) if line.split()[:1] == ["context"])
    assert lines[top].split() == ["context", "arm", "mdm", "causal-mdm", "shortcut", "n"]
    end = next(place for place in range(top, len(lines)) if not lines[place].strip())
    text = "\n".join(lines[top:end])
    for row in accuracies:
        for words in [*row["context"].split(", "), *(shown(row["by_role"][role]["value"]) for role in row["by_role"])]:
            assert all(word in text for word in words.replace(",", " ").split()), row["context"]
    assert len(re.findall(r"\s(\d+)$", text, re.MULTILINE)) == len(accuracies), "a row per context ends with its number of questions"


def test_no_line_is_wider_than_the_terminal(printed: tuple[Path, list[str]]) -> None:
    _, lines = printed
    sentences = [line for line in lines if line.startswith("Open ")]  # `say` leaves long paths whole
    assert [line for line in lines if len(line) > WIDTH and line not in sentences] == []
    assert not any("…" in line for line in lines)


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

    def mean(role: str, experiment: str, context: str, column: str, intervention: str = "", control: str = "") -> float:
        wanted = (role, experiment, context, intervention, control)
        columns = ("role", "experiment", "context", "intervention", "control")
        rows = [row for row in answers.to_dicts() if tuple(row[name] for name in columns) == wanted]
        assert rows
        return sum(row[column] for row in rows) / len(rows)

    found = claims_of(folder)
    gains = [mean(role, "noise", "noise:0.8", "accuracy") - mean(role, "noise", "closed-book", "accuracy") for role in ("mdm", "arm")]
    assert found["gains-more"]["numbers"][0]["estimate"]["value"] == pytest.approx(gains[0] - gains[1])
    context, masked = "position:2/3", "mask-anchors:1"
    nats = [
        mean(role, "masked answers", context, "log_likelihood") - mean(role, "masked answers", context, "log_likelihood", masked)
        for role in ("arm", "mdm")
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
    kept = evidence.measurements.filter(pl.col("role") != "arm")
    found, before = (
        {one.claim.name: one for one in judge_all(Evidence(measurements, evidence.heads, evidence.answers, evidence.about))}
        for measurements in (pl.concat([impostor, kept]), evidence.measurements)
    )
    share = evidence.measured("mdm", "on the first token").mean().item()
    assert found["fixed-sink"].parts[0].estimate.value == pytest.approx(share)
    assert before["fixed-sink"].parts[0].estimate.value != pytest.approx(share, rel=0.01)
    for name in ("absorbs-less", "floats-more"):
        assert (found[name].parts[0].estimate.value, found[name].outcome) == (pytest.approx(0), "inconclusive"), (
            "a model does not differ from itself"
        )
        assert before[name].parts[0].estimate.value != 0


def test_a_folder_that_no_demo_wrote_is_left_alone(floatlens: Callable[..., Ran], tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    code, _, errors = floatlens("demo", "--into", tmp_path / "mine", "--questions", 4)
    assert code == 2
    assert "mine' exists already and has no manifest.json, so it cannot be told which of its files `floatlens demo` wrote" in errors
    assert [file.name for file in tmp_path.iterdir() if file.name != "cache"] == ["mine"]
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "years of work"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--questions", "2"], "2 questions give no interval; ask at least 4."),
        (["--arm", "no-such-model"], "There is no model 'no-such-model'"),
        (["--into", "nowhere/out"], "There is no folder 'nowhere' to write 'out' into."),
        (["--task", "nq", "--arm", "smollm2-135m"], "--task nq asks models of your own, and --mdm is missing"),
        (["--order", "confidence"], "--order is about the questions of --task, and the world has none."),
        (["--data", "nq.jsonl"], "--data is about the questions of --task, and the world has none."),
        (["--task", "nq", "--arm", "twin-arm", "--mdm", "twin-mdm", "--data", "nowhere.jsonl"], "nowhere.jsonl"),
    ],
)
def test_a_mistake_is_one_sentence_and_leaves_nothing_behind(
    floatlens: Callable[..., Ran], tmp_path: Path, words: list[str], sentence: str
) -> None:
    code, _, errors = floatlens("demo", *words, *([] if "--into" in words else ["--into", tmp_path / "out"]))
    assert (code, sentence in errors) == (2, True), errors
    assert [file.name for file in tmp_path.iterdir() if file.name != "cache"] == []


def test_the_process_that_judges_never_imports_torch() -> None:
    judging = "import floatlens.cli.demo, floatlens.lab.demo, floatlens.lab.units, floatlens.claims.findings, floatlens.report.claims"
    program = f"import sys\n{judging}\nsys.exit('torch is imported' if 'torch' in sys.modules else 0)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
