"""One process at a time writes to a place; what a killed one leaves is cleared up, and what it had finished is kept."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from folder_contents import DEMO, contents, message_of, write_demo

from floatlens.errors import Refusal
from floatlens.folders import (
    UnfinishedFolder,
    folder_once,
    one_writer,
    refuse_place,
    unfinished_folder,
)
from floatlens.folders.owners import claim

HOLD = """
import sys
from pathlib import Path
from floatlens.folders import UnfinishedFolder, one_writer
place, command, keeps = Path(sys.argv[1]), sys.argv[2], sys.argv[3] == "keeps"
unfinished = UnfinishedFolder(place, command, replacing=command, keeps=keeps)
(unfinished.folder / "half").write_text("half")
if keeps:
    (unfinished.kept / "finished").write_text("finished")
if sys.argv[3] == "replacing":
    place.rename(unfinished.folder.parent / "old")
print("ready", flush=True)
sys.stdin.readline()
(unfinished.folder / "half").rename(unfinished.folder / "whole")
unfinished.publish()
"""


@pytest.fixture
def other_process() -> Any:
    started: list[subprocess.Popen[str]] = []

    def start(place: Path, command: str, how: str = "") -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", HOLD, place, command, how], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            pipe.close()


def kill(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()


def test_the_second_of_two_writers_is_refused_at_once_and_the_first_is_unharmed(tmp_path: Path, other_process: Any) -> None:
    place = tmp_path / "out"
    first = other_process(place, "floatlens eval")
    for action in (
        lambda: refuse_place(place),
        lambda: UnfinishedFolder(place, DEMO),
        lambda: one_writer(place, DEMO).__enter__(),
    ):
        assert message_of(action) == (
            f"Process {first.pid} (`floatlens eval`) is writing {place} now. Wait until it has ended, or choose another folder."
        )
    first.communicate("\n", timeout=60)
    assert first.returncode == 0
    assert sorted(contents(tmp_path)) == ["out/manifest.json", "out/whole"]


def test_who_waits_gets_what_the_other_process_has_written(tmp_path: Path, other_process: Any) -> None:
    place = tmp_path / "out"
    first = other_process(place, "floatlens")
    first.stdin.write("\n")
    first.stdin.flush()
    assert folder_once(place, "floatlens", lambda folder: (folder / "mine").touch()) == place
    assert first.wait(60) == 0
    assert sorted(contents(tmp_path)) == ["out/manifest.json", "out/whole"]


def test_what_a_killed_run_left_is_removed_and_said(tmp_path: Path, other_process: Any, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "out"
    killed = other_process(place, "floatlens trace")
    kill(killed)
    assert (tmp_path / ".out.unfinished" / "new" / "half").exists()
    refuse_place(place)  # looking changes nothing
    assert (tmp_path / ".out.unfinished" / "new" / "half").exists()
    write_demo(place, first="1")
    assert capsys.readouterr().err == (
        f"Process {killed.pid} (`floatlens trace`) was killed; what it left half-written beside {place} is removed.\n"
    )
    assert sorted(contents(tmp_path)) == ["out/first", "out/manifest.json"]


def test_what_a_killed_run_had_finished_is_kept(tmp_path: Path, other_process: Any) -> None:
    place = tmp_path / "out"
    killed = other_process(place, "floatlens eval", "keeps")
    kill(killed)
    said = message_of(lambda: write_demo(place, first="1"))
    assert f"holds what Process {killed.pid} (`floatlens eval`) had finished when it was stopped." in said
    unfinished = UnfinishedFolder(place, "floatlens eval", keeps=True)
    assert contents(unfinished.kept) == {"finished": b"finished"}
    assert contents(unfinished.folder) == {}
    unfinished.abandon()
    with unfinished_folder(place, "floatlens eval", keeps=True) as unfinished:
        assert contents(unfinished.kept) == {"finished": b"finished"}
    assert sorted(contents(tmp_path)) == ["out/manifest.json"]


@pytest.mark.parametrize("added", [False, True])
def test_a_folder_that_was_being_replaced_when_a_run_was_killed_is_back(
    tmp_path: Path, other_process: Any, capsys: pytest.CaptureFixture[str], added: bool
) -> None:
    place = tmp_path / "out"
    write_demo(place, first="1")
    killed = other_process(place, DEMO, "replacing")
    kill(killed)
    assert not place.exists()
    if added:
        (tmp_path / ".out.unfinished" / "old" / "mine").write_text("mine")
        assert "holds mine, which" in message_of(lambda: write_demo(place, second="2"))
        assert sorted(contents(tmp_path)) == ["out/first", "out/manifest.json", "out/mine"]
    else:
        write_demo(place, second="2")
        assert sorted(contents(tmp_path)) == ["out/manifest.json", "out/second"]
    assert f"was killed while it replaced {place}; what was there before is back." in capsys.readouterr().err


def owner_record(tmp_path: Path, **changed: Any) -> Path:
    """The hidden folder of a process that is no more, as it would look with another record."""
    owned = claim(tmp_path / "out", "floatlens eval")
    file = owned.hidden / "owner.json"
    record = {**json.loads(file.read_text()), "process": 2**22 + 1, "process_began": 1.0, **changed}
    owned.release()
    file.parent.mkdir()
    file.write_text(json.dumps(record))
    (file.parent / "kept").mkdir()
    (file.parent / "kept" / "finished").write_text("finished")
    return file


def test_a_run_on_another_machine_may_be_alive(tmp_path: Path) -> None:
    file = owner_record(tmp_path, host="elsewhere", boot="another")
    before = contents(tmp_path)
    said = message_of(lambda: UnfinishedFolder(tmp_path / "out", "floatlens eval", keeps=True))
    assert said == (
        f"Process {2**22 + 1} (`floatlens eval`) on the machine elsewhere was writing {tmp_path / 'out'}, and from here it cannot be "
        "told whether it still is. "
        f"If it has ended, remove {file} and run the same command again: what is finished is kept."
    )
    assert contents(tmp_path) == before
    file.unlink()  # as it was told
    with unfinished_folder(tmp_path / "out", "floatlens eval", keeps=True) as unfinished:
        assert contents(unfinished.kept) == {"finished": b"finished"}


@pytest.mark.parametrize("changed", [{"boot": "before the machine was started anew"}, {"host": "the name this container had before"}])
def test_a_run_of_this_machine_that_is_dead_is_taken_over(tmp_path: Path, changed: dict[str, str]) -> None:
    if "host" in changed and not Path("/proc/sys/kernel/random/boot_id").exists():
        pytest.skip("the system does not tell one boot from another")
    owner_record(tmp_path, **changed)
    with unfinished_folder(tmp_path / "out", "floatlens eval", keeps=True) as unfinished:
        assert contents(unfinished.kept) == {"finished": b"finished"}


@pytest.mark.parametrize("alive", [True, False])
def test_without_locks_the_process_and_its_start_tell_the_living_from_the_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alive: bool
) -> None:
    monkeypatch.setattr("floatlens.folders.owners.fcntl", None)
    owned = claim(tmp_path / "out", "floatlens eval")
    if alive:
        assert message_of(lambda: UnfinishedFolder(tmp_path / "out", DEMO)).startswith(
            f"Process {os.getpid()} (`floatlens eval`) is writing"
        )
        owned.release()
        return
    file = owned.hidden / "owner.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "process_began": 1.0}))  # this number belongs to a younger process now
    write_demo(tmp_path / "out", first="1")
    os.close(owned.lock)


def test_a_hidden_folder_that_is_not_ours_is_named_and_left_alone(tmp_path: Path) -> None:
    hidden = tmp_path / ".out.unfinished"
    hidden.mkdir()
    (hidden / "0123.parquet").write_text("of an earlier version, or the user's")
    before = contents(tmp_path)
    assert message_of(lambda: write_demo(tmp_path / "out")) == (
        f"{hidden} holds 0123.parquet, which this version of floatlens did not put there, and it needs a folder of this name. Move it away."
    )
    assert contents(tmp_path) == before
    (hidden / "0123.parquet").unlink()
    hidden.rmdir()
    (tmp_path / "elsewhere").mkdir()
    hidden.symlink_to("elsewhere")
    assert "is not a folder that floatlens made" in message_of(lambda: write_demo(tmp_path / "out"))
    hidden.unlink()
    hidden.mkdir()
    (hidden / "owner.json").write_text("garbage")
    assert f"{hidden / 'owner.json'} cannot be read as floatlens wrote it" in message_of(lambda: write_demo(tmp_path / "out"))


def test_a_refusal_leaves_no_hidden_folder(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="no"), unfinished_folder(tmp_path / "out", DEMO):
        raise Refusal("no")
    assert list(tmp_path.iterdir()) == []
