"""A folder is replaced only if it is floatlens' own to the last file; nothing of the user's ever vanishes."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from folder_contents import DEMO, contents, message_of, write_demo

from floatlens.errors import Refusal
from floatlens.folders import (
    UnfinishedFolder,
    damage,
    files_added_to,
    refuse_place,
    unfinished_folder,
)

UNTOUCHED = "which floatlens did not write or somebody has edited since, and would be lost. Move it away, or choose another folder."


def test_a_folder_replaces_an_earlier_one_of_the_same_command(tmp_path: Path) -> None:
    write_demo(tmp_path / "out", first="1")
    write_demo(tmp_path / "out", second="2")
    assert sorted(contents(tmp_path)) == ["out/manifest.json", "out/second"]
    assert damage(tmp_path / "out") == []


def test_a_folder_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    write_demo(tmp_path / "out", first="1")
    before = contents(tmp_path)
    with pytest.raises(ZeroDivisionError), unfinished_folder(tmp_path / "out", DEMO, replacing=DEMO) as unfinished:
        (unfinished.folder / "half").write_text(f"{1 // 0}")
    assert contents(tmp_path) == before


def test_an_empty_folder_is_taken(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    write_demo(tmp_path / "out", first="1")
    assert sorted(contents(tmp_path)) == ["out/first", "out/manifest.json"]


def add(folder: Path) -> str:
    (folder / "mine.txt").write_text("mine")
    return f"mine.txt, {UNTOUCHED}"


def add_below(folder: Path) -> str:
    (folder / "figures").mkdir()
    (folder / "figures" / "mine.txt").write_text("mine")
    return f"figures/mine.txt, {UNTOUCHED}"


def add_many(folder: Path) -> str:
    for number in range(5):
        (folder / f"mine-{number}").write_text("mine")
    return f"mine-0, mine-1, mine-2 and 2 more, {UNTOUCHED}"


def edit(folder: Path) -> str:
    (folder / "first").write_text("2")
    return f"first, {UNTOUCHED}"


def add_link(folder: Path) -> str:
    (folder.parent / "elsewhere").mkdir()
    (folder / "linked").symlink_to(folder.parent / "elsewhere")
    return f"linked, {UNTOUCHED}"


@pytest.mark.parametrize("change", [add, add_below, add_many, edit, add_link])
def test_a_file_of_the_user_in_an_earlier_folder_is_named_before_anything_runs(tmp_path: Path, change: Callable[[Path], str]) -> None:
    write_demo(tmp_path / "out", first="1")
    named = change(tmp_path / "out")
    before = contents(tmp_path)
    assert message_of(lambda: refuse_place(tmp_path / "out", replacing=DEMO)) == f"'{tmp_path / 'out'}' holds {named}"
    assert message_of(lambda: write_demo(tmp_path / "out", second="2")) == f"'{tmp_path / 'out'}' holds {named}"
    assert contents(tmp_path) == before


def test_a_folder_of_an_earlier_version_has_no_manifest_and_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "claims.json").write_text(json.dumps({"written_by": DEMO}))
    before = contents(tmp_path)
    assert message_of(lambda: write_demo(tmp_path / "out", second="2")) == (
        f"'{tmp_path / 'out'}' exists already and has no manifest.json, so it cannot be told which of its files `floatlens demo` wrote. "
        "Choose another folder, or remove this one."
    )
    assert contents(tmp_path) == before


def test_a_folder_of_another_command_is_left_alone(tmp_path: Path) -> None:
    with unfinished_folder(tmp_path / "out", "floatlens eval") as unfinished:
        (unfinished.folder / "results").write_text("1")
    before = contents(tmp_path)
    assert "was written by `floatlens eval`, so `floatlens demo` does not replace it" in message_of(lambda: write_demo(tmp_path / "out"))
    assert "exists already, and nothing is overwritten" in message_of(lambda: UnfinishedFolder(tmp_path / "out", "floatlens eval"))
    assert contents(tmp_path) == before


def test_a_file_that_is_added_while_a_run_goes_on_stays_and_the_result_is_not_lost(tmp_path: Path) -> None:
    write_demo(tmp_path / "out", first="1")
    (tmp_path / "out-2").mkdir()  # taken, too
    unfinished = UnfinishedFolder(tmp_path / "out", DEMO, replacing=DEMO)
    (unfinished.folder / "second").write_text("2")
    (tmp_path / "out" / "mine.txt").write_text("mine")
    assert message_of(unfinished.publish).startswith(f"The result is whole, but it is in {tmp_path / 'out-3'}, because")
    unfinished.abandon()
    assert sorted(contents(tmp_path)) == ["out-3/manifest.json", "out-3/second", "out/first", "out/manifest.json", "out/mine.txt"]
    assert damage(tmp_path / "out-3") == []


def test_a_file_of_the_user_in_a_folder_that_a_killed_run_had_replaced_is_named_and_stays(tmp_path: Path) -> None:
    """The run was killed when its folder had its name, and what it replaced was still to be removed."""
    place, old = tmp_path / "out", tmp_path / ".out.unfinished" / "old"
    write_demo(place, second="2")
    write_demo(tmp_path / "replaced", first="1")
    old.parent.mkdir()
    (tmp_path / "replaced").rename(old)
    (old / "mine.txt").write_text("mine")
    said = message_of(lambda: write_demo(place, third="3"))
    assert said == f"{old / 'mine.txt'} was not written by floatlens. Move it away, and run the same command again."
    assert {name: content for name, content in contents(tmp_path).items() if not name.endswith(".json")} == {
        "out/second": b"2",
        ".out.unfinished/old/mine.txt": b"mine",
    }
    (old / "mine.txt").rename(tmp_path / "mine.txt")
    write_demo(place, third="3")
    assert {name for name in contents(tmp_path) if "manifest" not in name} == {"out/third", "mine.txt"}


def test_a_folder_of_files_that_nobody_edits_is_mended_but_not_if_files_were_added(tmp_path: Path) -> None:
    def build(text: str) -> None:
        with unfinished_folder(tmp_path / "index", "index", replacing="index", mending=True) as unfinished:
            (unfinished.folder / "scores").write_text(text)

    build("1")
    (tmp_path / "index" / "scores").write_text("damaged")
    build("2")
    assert (tmp_path / "index" / "scores").read_text() == "2"
    (tmp_path / "index" / "mine").write_text("mine")
    assert "holds mine, which" in message_of(lambda: build("3"))


def test_files_are_added_beside_those_of_the_user_and_only_ours_are_replaced(tmp_path: Path) -> None:
    place = tmp_path / "figures"
    place.mkdir()
    (place / "notes").write_text("mine")
    for text in ("1", "2"):
        with files_added_to(place, "floatlens figures", ["a", "b"]) as folder:
            (folder / "a").write_text(text)
    assert {name: content for name, content in contents(tmp_path).items() if "manifest" not in name} == {
        "figures/a": b"2",
        "figures/notes": b"mine",
    }
    (place / "b").write_text("mine")
    with pytest.raises(Refusal, match="holds b, which floatlens did not write"), files_added_to(place, "floatlens figures", ["a", "b"]):
        raise AssertionError("nothing may run")
    write_demo(tmp_path / "demo", a="1")
    with (
        pytest.raises(Refusal, match="`floatlens figures` adds nothing to it"),
        files_added_to(tmp_path / "demo", "floatlens figures", ["b"]),
    ):
        raise AssertionError("nothing may run")
