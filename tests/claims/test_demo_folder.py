"""The folder of a demo appears whole or not at all, and replaces only what a demo wrote."""

import json
from pathlib import Path

import pytest

from floatlens.claims.folder import MARK, demo_folder
from floatlens.errors import Refusal


def write_demo(folder: Path, note: str) -> None:
    (folder / "claims.json").write_text(json.dumps({"written_by": MARK}))
    (folder / note).write_text("")


def test_a_demo_replaces_an_earlier_one(tmp_path: Path) -> None:
    for note in ("first", "second"):
        with demo_folder(tmp_path / "out") as folder:
            write_demo(folder, note)
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == ["claims.json", "figures", "second", "tables", "traces"]
    assert [file.name for file in tmp_path.iterdir()] == ["out"]


def test_a_demo_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    with demo_folder(tmp_path / "out") as folder:
        write_demo(folder, "first")
    with pytest.raises(ZeroDivisionError), demo_folder(tmp_path / "out") as folder:
        write_demo(folder, f"{1 // 0}")
    assert (tmp_path / "out" / "first").exists()
    assert [file.name for file in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("content", [None, "no json", "[]", '{"written_by": "somebody else"}'])
def test_a_folder_of_somebody_else_is_refused(tmp_path: Path, content: str | None) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes.txt").write_text("")
    if content is not None:
        (tmp_path / "out" / "claims.json").write_text(content)
    with pytest.raises(Refusal, match="was not written by a demo"), demo_folder(tmp_path / "out"):
        raise AssertionError("nothing may run")


def test_a_file_is_refused_and_an_empty_folder_is_taken(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Refusal, match="was not written by a demo"), demo_folder(tmp_path / "file"):
        raise AssertionError("nothing may run")
    (tmp_path / "empty").mkdir()
    with demo_folder(tmp_path / "empty") as folder:
        write_demo(folder, "first")
    assert (tmp_path / "empty" / "first").exists()
