"""`floatlens demo` on the bundled twins, with few questions: what it prints, writes and refuses."""

import base64
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
from floatlens.claims.design import WORLD
from floatlens.claims.evidence import Evidence, read_evidence
from floatlens.claims.findings import CLAIMS, findings_of, judge_all
from floatlens.cli import run
from floatlens.cli.demo import asked_in_words, has_a_screen
from floatlens.folders import damage
from floatlens.lab.experiments import measurements_of
from floatlens.lab.units import Sizes
from floatlens.report.recorded import read_recorded
from floatlens.report.tables import number
from floatlens.report.verdict_table import print_demo

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
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder.parent)
        print_demo(terminal, findings, read_recorded(), asked_in_words(Sizes(), 1), Path(folder.name), opened=True)
    return folder, shown.getvalue().splitlines()


def claims_of(folder: Path) -> dict[str, dict]:
    return {claim["name"]: claim for claim in json.loads((folder / "claims.json").read_text())["claims"]}


def test_the_folder_holds_claims_tables_traces_and_figures_and_says_what_they_are(made: tuple[Path, str]) -> None:
    folder, said = made
    listed = re.findall(r"`([\w/.*]+)`", (folder / "README.md").read_text())
    for pattern in listed:
        assert list(folder.glob(pattern.rstrip("/"))), pattern
    assert set(claims_of(folder)) == {claim.name for claim, _ in CLAIMS}
    assert f"{folder}/claims.md has all numbers" in said
    assert "intervals are over prompts, not over trainings" in " ".join(said.split())
    assert str(folder.parent) not in (folder / "claims.json").read_text(), "where models are stored is nobody's business"


def shown(value: float | None, unit: str = "") -> str:
    return "-" if value is None else f"{number(value)} {unit}".rstrip()


def test_every_claim_is_a_line_with_its_verdict_and_the_number_that_decided(printed: tuple[Path, list[str]]) -> None:
    folder, lines = printed
    for claim in claims_of(folder).values():
        (line,) = [line for line in lines if line.split()[:1] == [claim["name"]]]
        decided = next((part for part in claim["numbers"] if part["verdict_of_number"] == claim["verdict"]), claim["numbers"][0])
        cells = re.split(r"  +", line.strip())
        assert cells[1] == claim["verdict"]
        assert line.split()[-1] == claim["paper"].removeprefix("arXiv:")
        wanted = [shown(decided["estimate"]["value"], decided["unit"]), shown(decided["beside"], decided["unit"])]
        assert " ".join(wanted) in " ".join(line.split()), claim["name"]


def test_at_most_forty_lines_are_printed_and_none_is_cut(printed: tuple[Path, list[str]]) -> None:
    _, lines = printed
    assert len(lines) <= 40
    assert not any("…" in line for line in lines)
    table = lines[: next(place for place, line in enumerate(lines) if not line.strip())]
    assert max(map(len, table)) <= WIDTH


def test_the_page_of_what_was_found_is_written_and_covered_by_the_manifest(made: tuple[Path, str]) -> None:
    folder, said = made
    assert "index.html" in said.splitlines()[-1]
    assert "Open it in a browser" in said.splitlines()[-1], "no browser opens where nobody looks"
    assert damage(folder) == []
    assert "index.html" in json.loads((folder / "manifest.json").read_text())["files"]
    page = (folder / "index.html").read_text()
    embedded = base64.b64decode(page.partition('data-key="zarr.json">')[2].partition("</script>")[0])
    document = json.loads(embedded)["attributes"]["floatlens"]
    assert [run["name"] for run in document["runs"]][:3] == ["mdm", "arm", "causal-mdm"]
    assert document["claims"][0]["source"] == folder.name
    assert {claim["name"] for claim in document["claims"][0]["claims"]} == set(claims_of(folder))


def test_what_is_no_longer_printed_is_in_the_page_of_claims(made: tuple[Path, str]) -> None:
    folder, _ = made
    text = (folder / "claims.md").read_text()
    for claim in claims_of(folder).values():
        assert f"`{claim['name']}`: *{claim['statement']}* holds if {claim['rule']}." in text
    findings = json.loads((folder / "claims.json").read_text())
    for row in (*findings["accuracies"], *findings["mask_or_objective"]):
        assert f"| {row.get('context', row.get('quantity'))} |" in text


def test_a_browser_opens_only_at_a_terminal_with_a_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CI", "DISPLAY", "WAYLAND_DISPLAY", "SSH_CONNECTION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert not has_a_screen()
    monkeypatch.setenv("DISPLAY", ":0")
    assert has_a_screen()
    monkeypatch.setenv("CI", "true")
    assert not has_a_screen()
    monkeypatch.delenv("CI")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: False, raising=False)
    assert not has_a_screen(), "into a pipe or a file"


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
    gains = [mean(role, "noise", WORLD.noise[-1], "accuracy") - mean(role, "noise", "closed-book", "accuracy") for role in ("mdm", "arm")]
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
    about = evidence.about | {"design": evidence.about["design"] | {"fewest": 0}}  # two texts are traced here, and a verdict needs twelve
    found, before = (
        {one.claim.name: one for one in judge_all(Evidence(measurements, evidence.heads, evidence.answers, about))}
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
        (
            ["--real", "--mdm", "twin-mdm"],
            "--real asks the SmolLM2 triplet the questions that come with floatlens, and --mdm chooses others.",
        ),
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
    rooms = ("cli.demo", "lab.demo", "lab.units", "claims.findings", "report.claims", "report.verdict_table", "report.demo_page")
    judging = "import " + ", ".join(f"floatlens.{room}" for room in rooms)
    program = f"import sys\n{judging}\nsys.exit('torch is imported' if 'torch' in sys.modules else 0)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
