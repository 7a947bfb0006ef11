"""Studies whose runner, or one of whose workers, is killed at any moment: nothing is lost, nothing is done twice.

The moments are drawn once (seeded): after so many units were stored, spread over the whole run, and a little later; a run that ends before
it is killed is tried again. Whatever was stored before the kill is whole and is not written again; the tables are, byte for byte, those of
an uninterrupted run.
"""

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from attack_size import tries
from small_studies import TWO_MODELS

from floatlens.study.sealed import unseal
from floatlens.study.store import open_store
from floatlens.study.verifying import verify_study

MORE = """
[traces]
samples = 1
contexts = ["closed-book"]
detail = "light"
measures = ["on the first token"]
"""
STUDY = TWO_MODELS.replace("samples = 3", "samples = 4").replace("shard = 2", "shard = 1").replace("[run]", f"{MORE}\n[run]")
UNITS = 2 * (2 * 4 * 4 + 1)
TABLES = ("results", "summary", "measurements", "measures", "traces")


class Zygote:
    """Runs studies in forks of a process that has imported everything."""

    def __init__(self) -> None:
        script = Path(__file__).with_name("study_zygote.py")
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "COLUMNS": "200"}
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen([sys.executable, script], env=environment, **pipes)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"

    def ask(self, **told: object) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(told) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def start(self, folder: Path) -> int:
        """Begin to run the study into a folder."""
        return self.ask(
            run=["study", "run", str(folder.parent / "study.toml"), "-o", str(folder), "--workers", "2"], said=str(said(folder))
        )

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


def said(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.said")


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    started = Zygote()
    yield started
    started.end()


@pytest.fixture(scope="module")
def whole(zygote: Zygote, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The tables of a study that nobody kills."""
    folder = tmp_path_factory.mktemp("whole") / "out"
    (folder.parent / "study.toml").write_text(STUDY)
    assert zygote.ask(wait=zygote.start(folder)) == 0, said(folder).read_text()
    assert f"{UNITS} of {UNITS} are finished" in said(folder).read_text()
    return tables(folder)


def tables(folder: Path) -> dict[str, bytes]:
    return {name: (folder / "tables" / f"{name}.parquet").read_bytes() for name in TABLES}


def stored(folder: Path) -> dict[str, tuple[int, int]]:
    """The units that are stored, each of them whole, with what tells whether it was written again."""
    units = sorted((folder / "units").glob("*.zip")) if folder.is_dir() else []
    for unit in units:
        unseal(unit.read_bytes())
    return {unit.name: (unit.stat().st_ino, unit.stat().st_mtime_ns) for unit in units}


def check_finished(folder: Path, expected: dict[str, bytes]) -> None:
    assert tables(folder) == expected
    assert verify_study(open_store(folder), progress=False).faults == ()
    assert len(stored(folder)) == UNITS
    assert list(folder.rglob(".*")) == [], "nothing half-written is left"
    assert not folder.with_name(f".{folder.name}.unfinished").exists()
    assert list((folder / "failures").glob("*")) == []


def wait_for(folder: Path, runner: int, units: int, moment: float) -> None:
    """Wait until so many units are stored, and a little longer; or until the runner has ended."""
    living = psutil.Process(runner)
    while living.status() != psutil.STATUS_ZOMBIE and len(list((folder / "units").glob("*.zip"))) < units:
        time.sleep(0.01)
    time.sleep(moment * 0.05)


def prepare(tmp_path: Path, number: int) -> Path:
    (tmp_path / "study.toml").write_text(STUDY)
    return tmp_path / str(number)


def test_a_study_whose_runner_is_killed_goes_on_and_gives_the_same_tables(zygote: Zygote, whole: dict[str, bytes], tmp_path: Path) -> None:
    moments, wanted, killed, tried, kept = random.Random(19), tries(2, 20), 0, 0, list[int]()
    while killed < wanted:
        folder, tried = prepare(tmp_path, tried), tried + 1
        runner = zygote.start(folder)
        wait_for(folder, runner, int((killed + moments.random()) / wanted * (UNITS + 1)), moments.random())
        living = zygote.ask(workers=True)
        workers = [worker for worker in psutil.process_iter() if worker.pid in living]
        os.kill(runner, signal.SIGKILL)
        if zygote.ask(wait=runner) == 0:  # it was quicker
            continue
        killed += 1
        _, alive = psutil.wait_procs(workers, timeout=120)
        assert alive == [], "workers end with their runner"
        before = stored(folder)
        kept.append(len(before))
        assert zygote.ask(wait=zygote.start(folder)) == 0, said(folder).read_text()
        ran, finished = map(int, re.findall(r"(\d+) units? ran in .* s, (\d+) were finished before", said(folder).read_text())[0])
        assert (ran, finished) == (UNITS - len(before), len(before)), "only what was cut or had not begun runs"
        assert stored(folder).items() >= before.items(), "what was stored is not written again"
        check_finished(folder, whole)
    print(f"killed {killed} runners; {kept} of {UNITS} units were stored")


def test_a_study_one_of_whose_workers_is_killed_gives_the_same_tables(zygote: Zygote, whole: dict[str, bytes], tmp_path: Path) -> None:
    moments, wanted, killed, tried = random.Random(20), tries(2, 20), 0, 0
    while killed < wanted:
        folder, tried = prepare(tmp_path, tried), tried + 1
        runner = zygote.start(folder)
        wait_for(folder, runner, int((killed + moments.random()) / wanted * UNITS), moments.random())
        if workers := zygote.ask(workers=True):
            with contextlib.suppress(ProcessLookupError):
                os.kill(moments.choice(workers), signal.SIGKILL)
                killed += 1
        assert zygote.ask(wait=runner) == 0, said(folder).read_text()
        assert f"{UNITS} units ran" in said(folder).read_text()
        check_finished(folder, whole)
