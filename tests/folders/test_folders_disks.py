"""A disk that is full or fails is one sentence, and what was there stays."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from folder_contents import contents, message_of

from floatlens.folders import (
    disk_failures,
    place_for,
    short_name,
    write_whole,
)

FREE = "Free some room and run the same command again."
MEND = "Choose another place, or mend it and run the same command again."


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), f"No space left on the disk of out while writing out. {FREE}"),
        (OSError(errno.EDQUOT, "Disk quota exceeded", "out/a"), f"No space left on the disk of out while writing out/a. {FREE}"),
        (
            RuntimeError("parquet: File out of specification: underlying IO error: No space left on device (os error 28)"),
            f"No space left on the disk of out while writing out. {FREE}",
        ),
        (OSError("100000 requested and 8176 written"), f"No space left on the disk of out while writing out. {FREE}"),
        (
            OSError(errno.EFBIG, "File too large"),
            f"out cannot be written: it would be larger than the file system or `ulimit -f` allows. {MEND}",
        ),
        (OSError(errno.EROFS, "Read-only file system"), f"out cannot be written: it is on a read-only file system. {MEND}"),
        (OSError(errno.EIO, "Input/output error", "out/a"), f"out/a cannot be written: the disk reports an error. {MEND}"),
    ],
)
def test_a_disk_that_fails_is_one_sentence(error: Exception, sentence: str) -> None:
    def fail() -> None:
        with disk_failures(Path("out")):
            try:
                raise error
            except type(error) as found:
                raise ValueError("what a library makes of it") from found

    assert message_of(fail) == sentence


@pytest.mark.parametrize(
    "error",
    [PermissionError(errno.EACCES, "Permission denied", "/models/weights"), OSError(errno.EIO, "Input/output error"), KeyError("a")],
)
def test_what_is_no_failure_of_this_disk_stays_what_it_is(error: Exception) -> None:
    with pytest.raises(type(error)), disk_failures(Path("out")):
        raise error


def test_a_file_is_written_whole_or_stays_as_it_was(tmp_path: Path) -> None:
    limited = (
        "import resource, sys; from pathlib import Path; from floatlens.folders import write_whole\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "write_whole(Path(sys.argv[1]), b'x' * 2000)"
    )
    write_whole(tmp_path / "file", b"before")
    ended = subprocess.run([sys.executable, "-c", limited, tmp_path / "file"], capture_output=True, text=True)
    assert ended.returncode == 1
    assert f"File too large: '{tmp_path / 'file'}'" in ended.stderr
    assert contents(tmp_path) == {"file": b"before"}


def test_long_names_of_ours_are_cut_and_stay_different() -> None:
    long = ["c" * 300 + "a", "c" * 300 + "b", "é" * 200]
    assert len({short_name(name) for name in long}) == 3
    assert all(len(os.fsencode(short_name(name))) <= 120 for name in long)
    assert short_name("gold") == "gold"


def test_the_place_is_absolute_and_the_home_folder_is_understood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert place_for("~/out") == tmp_path / "out"
