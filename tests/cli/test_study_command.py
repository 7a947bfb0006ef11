"""`floatlens study`: the examples pass its check; the quick one runs in worker processes, and everything can be read afterwards."""

import shutil
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from small_studies import InlineEngine, tables_of

from floatlens.study.planning import make_plan
from floatlens.study.running import run_study
from floatlens.study.store import open_store
from floatlens.study.study_file import read_study

Ran = tuple[int, str, str]
EXAMPLES = Path(__file__).parents[2] / "examples" / "studies"
REAL = ("adaptation", "thresholds-smollm2")


@pytest.fixture(scope="module")
def inline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The quick study, run in this process."""
    place, file = tmp_path_factory.mktemp("inline") / "quick", EXAMPLES / "quick.toml"
    plan = make_plan(read_study(file), file.read_text(), file.parent, progress=False)
    assert run_study(plan, open_store(place, new=True), InlineEngine(), progress=False).failed == []
    return place


@pytest.mark.parametrize(
    "name",
    [pytest.param(file.stem, marks=[pytest.mark.real] * (file.stem in REAL)) for file in sorted(EXAMPLES.glob("*.toml"))],
)
def test_every_example_passes_the_check_and_nothing_is_written(
    floatlens: Callable[..., Ran], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    code, said, errors = floatlens("study", "check", EXAMPLES / f"{name}.toml", "--no-warm-up")
    assert (code, errors) == (0, "")
    assert said.startswith(f"{name}: ")
    assert "token passes x 2 x " in said
    assert list(tmp_path.iterdir()) in ([], [tmp_path / "cache"])


def test_the_quick_study_runs_in_workers_and_gives_the_tables_of_one_process(
    floatlens: Callable[..., Ran], tmp_path: Path, inline: Path
) -> None:
    place = tmp_path / "quick"
    code, said, errors = floatlens("study", "run", EXAMPLES / "quick.toml", "-o", place, "--workers", 2)
    assert (code, errors) == (0, "")
    assert "34 of 34 are finished." in said
    assert tables_of(place) == tables_of(inline)
    workers = {(row["host"], row["device"]) for row in pl.read_parquet(place / "tables" / "units.parquet").iter_rows(named=True)}
    assert len(workers) == 1
    code, said, _ = floatlens("study", "run", EXAMPLES / "quick.toml", "-o", place)
    assert (code, "0 units ran in 0.0 s, 34 were finished before" in said) == (0, True)


def test_status_results_verify_and_export_read_a_study(floatlens: Callable[..., Ran], tmp_path: Path, inline: Path) -> None:
    place = Path(shutil.copytree(inline, tmp_path / "quick"))
    assert "quick: 34 of 34 units are finished" in floatlens("study", "status", place)[1]
    code, said, errors = floatlens("study", "results", place)
    assert (code, errors) == (0, "")
    assert "8 questions. Means with 95 % intervals over questions" in said
    assert "mask-anchors:1" in said
    assert "Measures of traced texts: world, noise:0.8" in said
    code, said, _ = floatlens("study", "verify", place)
    assert (code, said) == (0, f"{place}: 34 finished units, all intact.\n")
    code, said, _ = floatlens("study", "export", place, "-o", tmp_path / "tables")
    assert code == 0
    for name in ("results", "summary", "measurements", "measures", "units"):
        assert len(pl.read_parquet(tmp_path / "tables" / f"{name}.parquet")) > 0
    code, _, errors = floatlens("report", tmp_path / "tables", "-o", tmp_path / "page.html")
    assert (code, errors) == (0, ""), "the results open in the page"


def test_a_damaged_unit_is_named_with_exit_code_1(floatlens: Callable[..., Ran], tmp_path: Path, inline: Path) -> None:
    place = Path(shutil.copytree(inline, tmp_path / "quick"))
    damaged = sorted((place / "units").iterdir())[3]
    damaged.write_bytes(damaged.read_bytes()[:-20])
    code, said, _ = floatlens("study", "verify", place)
    assert code == 1
    assert f"units/{damaged.name} is damaged: it was cut or changed since it was written." in said


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["check", "nowhere.toml"], "There is no study nowhere.toml."),
        (["run", "bad.toml", "-o", "out"], "bad.toml, line 2: the study has no field 'model'. Did you mean 'models'?"),
        (["status", "nowhere"], "nowhere holds no study."),
        (["run", EXAMPLES / "quick.toml", "-o", "out", "--engine", "slurm"], "There is no engine 'slurm'. There are: local, ray."),
        (["run", EXAMPLES / "quick.toml", "-o", "out", "--address", "auto"], "--address names a Ray cluster; add --engine ray."),
        (["check", EXAMPLES / "quick.toml", "--devices", "8"], "--devices and --tflops belong together"),
    ],
)
def test_mistakes_are_sentences(
    floatlens: Callable[..., Ran], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[object], sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.toml").write_text('name = "bad"\nmodel = "twin-arm"\n')
    code, _, errors = floatlens("study", *words)
    assert code == 2
    assert sentence in errors
    assert not (tmp_path / "out").exists()


def test_a_plan_for_accelerators_shows_its_arithmetic(floatlens: Callable[..., Ran]) -> None:
    words = ("--no-warm-up", "--devices", 8, "--tflops", 100, "--utilisation", 0.5, "--price", 2)
    code, said, _ = floatlens("study", "check", EXAMPLES / "quick.toml", *words)
    assert code == 0
    lines = [line for line in said.splitlines() if "token passes" in line]
    operations = 0.0
    for line in lines:
        passes, parameters = (int(line.split(before)[1].split()[0].replace(",", "")) for before in ("texts, ", " x 2 x "))
        operations += 2 * passes * parameters
    hours = operations / (100e12 * 0.5) / 3600
    assert f"Time: {hours:.3g} hours / 8 devices = {hours / 8:.3g} hours" in said
    assert f"Price: {hours:.3g} hours x 2 = {hours * 2:.4g}" in said
