"""A disk that is full or becomes read-only under a study is one sentence, and nothing that was finished is lost."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from small_studies import UNITS, InlineEngine, plan_of, tables_of

from floatlens.errors import Refusal
from floatlens.study.jobs import ModelJob
from floatlens.study.running import run_study
from floatlens.study.store import open_store


def mount(*words: object) -> None:
    if subprocess.run(["mount", *map(str, words)], capture_output=True).returncode:
        pytest.skip("mounting is not allowed here")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """Where a study goes, below a folder on which disks can be mounted."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount")
    disk = tmp_path / "disk"
    disk.mkdir()
    yield disk / "out"
    for mounted in (disk / "out", disk):
        if mounted.is_mount() or subprocess.run(["mountpoint", "--quiet", mounted]).returncode == 0:
            subprocess.run(["umount", "--lazy", mounted], check=True)


@pytest.mark.parametrize("kind", ["full", "read-only"])
def test_a_disk_that_fails_stops_a_study_with_one_sentence_and_loses_nothing(place: Path, tmp_path: Path, kind: str) -> None:
    begun: list[str] = []
    if kind == "full":
        mount("-t", "tmpfs", "-o", "size=200k", "tmpfs", place.parent)

    def spoil(job: ModelJob) -> None:
        begun.append(job.unit.id)
        if kind == "read-only" and len(begun) == 9:
            mount("--bind", place, place)
            mount("-o", "remount,bind,ro", place)

    with pytest.raises(Refusal) as refused:
        run_study(plan_of(), open_store(place, new=True), InlineEngine(spoil), progress=False)
    sentence = "No space left on the disk of" if kind == "full" else "cannot be written: it is on a read-only file system."
    assert sentence in str(refused.value)
    assert "run the same command again: what is finished is kept." in str(refused.value)
    assert "\n" not in str(refused.value)
    stored = {file.stem for file in (place / "units").iterdir()}
    assert stored == set(begun[:-1]), "all but the unit that could not be written"
    if kind == "full":
        mount("-t", "tmpfs", "-o", "remount,size=9m", "tmpfs", place.parent)
    else:
        subprocess.run(["umount", place], check=True)
    again = InlineEngine()
    assert run_study(plan_of(), open_store(place, new=True), again, progress=False).ran == UNITS - len(stored)
    assert not set(again.ran) & stored
    run_study(plan_of(), open_store(tmp_path / "whole", new=True), InlineEngine(), progress=False)
    assert tables_of(place) == tables_of(tmp_path / "whole")
