"""Where floatlens does not write: each place is refused in one sentence, before anything runs."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from folder_contents import DEMO, contents, message_of

from floatlens.errors import Refusal
from floatlens.folders import (
    UnfinishedFolder,
    refuse_folder_to_fill,
    refuse_place,
)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory, `work`, in which there are a file, a folder, and links to both and to nothing."""
    work = tmp_path / "work"
    (work / "folder").mkdir(parents=True)
    (work / "file").write_text("mine")
    (work / "link").symlink_to("folder")
    (work / "file-link").symlink_to("file")
    (work / "dangling").symlink_to("nowhere")
    (work / "loop").symlink_to("loop")
    monkeypatch.chdir(work)
    return work


ABOVE = "is the working directory or lies above it, so it cannot be replaced. Name a new folder, such as"
ADDRESS = "is an address, and floatlens writes to a local folder. Name a folder, and copy it there afterwards."
LINK = "is a link, and what it leads to is not replaced. Name the folder itself, or a new one."


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (".", f"'.' {ABOVE} results."),
        ("", f"'.' {ABOVE} results."),
        ("..", f"'..' {ABOVE} ../results."),
        ("/", f"'/' {ABOVE} /results."),
        ("folder/..", f"'folder/..' {ABOVE} folder/../results."),
        ("../work", f"'../work' {ABOVE} ../work/results."),
        ("link", f"'link' {LINK}"),
        ("link/", f"'link' {LINK}"),
        ("file-link", f"'file-link' {LINK}"),
        ("dangling", f"'dangling' {LINK}"),
        ("loop/out", "loop/out cannot be written: Symlink loop from 'WORK/loop'. Choose another place."),
        ("/proc", "'/proc' is a mount point, so it cannot be replaced. Name a folder inside it, such as /proc/results."),
        ("nowhere/out", "There is no folder 'nowhere' to write 'out' into. Make it first."),
        ("file/out", "There is no folder 'file' to write 'out' into. Make it first."),
        ("file", "'file' is a file, and nothing is overwritten. Name a folder that does not exist yet."),
        ("s3://bucket/out", f"s3://bucket/out {ADDRESS}"),
        ("https:/host", f"https:/host {ADDRESS}"),
        ("a\0b", "'a\\x00b' holds a NUL character, which no file system takes. Choose another name."),
        ("n" * 244, f"The name {'n' * 40}...{'n' * 10} has 244 bytes, and at most 243 fit here. Choose a shorter one."),
        ("é" * 122, f"The name {'é' * 40}...{'é' * 10} has 244 bytes, and at most 243 fit here. Choose a shorter one."),
        (
            "n" * 300 + "/out",
            f"{'n' * 40}...{'n' * 6}/out cannot be written: its name is too long for the file system. Choose another place.",
        ),
    ],
)  # fmt: skip
def test_a_place_that_cannot_be_written_is_refused_in_one_sentence(here: Path, path: str, message: str) -> None:
    before = contents(here)
    assert message_of(lambda: refuse_place(path)).replace(str(here), "WORK") == message
    assert message_of(lambda: UnfinishedFolder(path, DEMO, replacing=DEMO)).replace(str(here), "WORK") == message
    assert contents(here) == before
    assert [file.name for file in here.iterdir() if file.name.startswith(".")] == []


@pytest.mark.parametrize("path", [".", "..", "link", "dangling", "s3://bucket", "nowhere/figures", "file"])
def test_a_folder_that_is_filled_in_place_follows_the_same_rules(here: Path, path: str) -> None:
    with pytest.raises(Refusal):
        refuse_folder_to_fill(path, "floatlens train")
    refuse_folder_to_fill("folder", "floatlens train")


def test_the_working_directory_is_known_under_any_spelling(here: Path) -> None:
    (here.parent / "other").symlink_to("work")
    for path in (here, here.parent, here / "folder" / "..", f"{here.parent}/other/folder/.."):
        assert ABOVE in message_of(lambda path=path: refuse_place(path))
    refuse_place("folder")
    refuse_place("link/out")  # a link on the way is not the place


def test_a_path_that_leaves_no_room_below_it_is_refused(here: Path) -> None:
    deep = here
    while len(str(deep)) < 3_700:
        deep /= "d" * 100
    os.makedirs(deep)
    assert "Choose a shorter one." in message_of(lambda: refuse_place(deep / ("n" * 100)))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
@pytest.mark.parametrize("kind", ["tmpfs", "bind"])
def test_a_mount_point_is_refused_also_one_of_the_same_disk(tmp_path: Path, kind: str) -> None:
    place, other = tmp_path / "a place", tmp_path / "other"
    place.mkdir()
    other.mkdir()
    command = ["mount", "-t", "tmpfs", "tmpfs", place] if kind == "tmpfs" else ["mount", "--bind", other, place]
    if subprocess.run(command, capture_output=True).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        assert "is a mount point, so it cannot be replaced" in message_of(lambda: refuse_place(place))
    finally:
        subprocess.run(["umount", place], check=True)


def as_ordinary_user(action: Callable[[], Any]) -> str:
    """What is refused when an ordinary user does something, who unlike root may not write everywhere."""
    if os.geteuid() != 0:
        return message_of(action)
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            said = message_of(action)
        except BaseException as error:
            said = repr(error)
        os.write(writing, said.encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        return pipe.read()


def test_a_folder_that_this_user_may_not_write_to_is_refused(tmp_path: Path) -> None:
    for folder in (*reversed(tmp_path.relative_to("/tmp").parents), Path()) if tmp_path.is_relative_to("/tmp") else ():
        (Path("/tmp") / folder).chmod((Path("/tmp") / folder).stat().st_mode | 0o011)
    tmp_path.chmod(0o555)
    try:
        said = as_ordinary_user(lambda: refuse_place(tmp_path / "out"))
    finally:
        tmp_path.chmod(0o755)
    assert said == f"'{tmp_path / 'out'}' cannot be written: this user may not write there. Choose another place."


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
def test_a_read_only_disk_is_refused(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", disk], capture_output=True).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        said = message_of(lambda: refuse_place(disk / "out"))
    finally:
        subprocess.run(["umount", disk], check=True)
    assert said == f"'{disk / 'out'}' cannot be written: it is on a read-only file system. Choose another place."
