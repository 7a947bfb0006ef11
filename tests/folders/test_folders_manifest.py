"""The manifest of a folder names whatever is damaged in it, and never leads out of it."""

import hashlib
import json
from pathlib import Path

import pytest
from folder_contents import DEMO, contents, message_of, write_demo

from floatlens.folders import (
    MANIFEST,
    damage,
    read_manifest,
    write_manifest,
)


def test_the_manifest_lists_every_file_with_its_size_and_digest(tmp_path: Path) -> None:
    (tmp_path / "below" / "deeper").mkdir(parents=True)
    (tmp_path / "a.txt").write_bytes(b"one")
    (tmp_path / "below" / "deeper" / "ü b.bin").write_bytes(bytes(range(256)))
    write_manifest(tmp_path, "floatlens eval")
    said = json.loads((tmp_path / MANIFEST).read_text())
    assert said["written_by"] == "floatlens eval"
    assert said["files"] == {
        "a.txt": {"bytes": 3, "sha256": hashlib.sha256(b"one").hexdigest()},
        "below/deeper/ü b.bin": {"bytes": 256, "sha256": hashlib.sha256(bytes(range(256))).hexdigest()},
    }
    assert damage(tmp_path) == []


def test_damage_is_named_file_by_file(tmp_path: Path) -> None:
    for name in ("changed", "gone", "link", "longer", "shorter", "whole"):
        (tmp_path / name).write_bytes(b"12345")
    write_manifest(tmp_path, DEMO)
    (tmp_path / "changed").write_bytes(b"12344")
    (tmp_path / "gone").unlink()
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to("whole")
    (tmp_path / "longer").write_bytes(b"123456")
    (tmp_path / "shorter").write_bytes(b"")
    (tmp_path / "surplus").write_bytes(b"")
    assert damage(tmp_path) == [
        "gone is missing.",
        "changed was changed since it was written: it has another SHA-256.",
        "link is no longer the file that was written, but a link or a device.",
        "longer has 6 bytes instead of 5.",
        "shorter has 0 bytes instead of 5.",
        "surplus is not in the manifest: floatlens did not write it.",
    ]


def test_every_bit_of_a_file_is_covered(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    write_manifest(tmp_path, DEMO)
    for bit in range(24):
        flipped = bytearray(b"abc")
        flipped[bit // 8] ^= 1 << bit % 8
        (tmp_path / "a").write_bytes(flipped)
        assert damage(tmp_path) == ["a was changed since it was written: it has another SHA-256."]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '{"floatlens": "1", "written_by": "x"}',
        '{"floatlens": "1", "written_by": "x", "files": {"a": {"bytes": -1, "sha256": "%s"}}}' % ("0" * 64),
        '{"floatlens": "1", "written_by": "x", "files": {"a": {"bytes": 1, "sha256": "abc"}}}',
        '{"floatlens": "1", "written_by": 3, "files": {}}',
        *(json.dumps({"floatlens": "1", "written_by": "x", "files": {path: {"bytes": 1, "sha256": "0" * 64}}})
          for path in ("../a", "/etc/passwd", "b/../../a", "", "./a", "a\0b")),
        "[" * 100_000,
    ],
)  # fmt: skip
def test_a_manifest_that_is_damaged_or_leads_out_of_its_folder_is_refused_by_name(tmp_path: Path, text: str) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    (tmp_path / "a").write_text("x")
    (folder / MANIFEST).write_text(text)
    for action in (lambda: read_manifest(folder), lambda: damage(folder), lambda: write_demo(folder, new="1")):
        assert message_of(action) == (
            f"{folder / MANIFEST} is damaged, so it cannot be told which files of this folder floatlens wrote. "
            "Use another folder, or remove this one."
        )
    assert contents(tmp_path) == {"a": b"x", "out/manifest.json": text.encode()}
