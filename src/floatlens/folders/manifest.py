"""The manifest of a finished folder: which files floatlens wrote into it, and what was in them.

`manifest.json` holds the version of floatlens, the command that wrote the folder, and the size and SHA-256 of every file below it but
itself. With it can be told what is damaged, and what may be removed: a file that is listed and unchanged is floatlens' own; one that is
not listed, or that somebody has edited since, is the user's. Decided here: links and devices are never floatlens' own, whatever they lead
to; empty folders do not count. Refused: a manifest that cannot be read, or that lists a path outside its folder.
"""

import hashlib
import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from floatlens._version import __version__
from floatlens.errors import Refusal

MANIFEST = "manifest.json"


@dataclass(frozen=True)
class FileRecord:
    """What a file held when it was written."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """What a finished folder says of itself: by which version and which command it was written, and which files, by their path in it."""

    floatlens: str
    written_by: str
    files: Mapping[str, FileRecord]


def write_manifest(folder: Path, written_by: str) -> None:
    """Write down the size and digest of every file below a folder, but the manifest itself.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "greeting.txt").write_text("hello")
    >>> write_manifest(folder, "floatlens demo")
    >>> read_manifest(folder).files["greeting.txt"].bytes
    5
    """
    files = {name: _record(folder / name) for name in entries(folder)}
    (folder / MANIFEST).write_bytes(_as_json(written_by, files))


def add_to_manifest(folder: Path, written_by: str, name: str) -> bytes:
    """The content of a folder's manifest with one more file, which is there already."""
    before = read_manifest(folder)
    return _as_json(written_by, {**(before.files if before else {}), name: _record(folder / name)})


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest of a folder; None if it has none.

    Examples
    --------
    >>> read_manifest(Path("nowhere")) is None
    True
    """
    file = folder / MANIFEST
    try:
        if not stat.S_ISREG(file.lstat().st_mode):
            raise ValueError("a link, a folder or a device")
        return parse_manifest(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise Refusal(f"{file} cannot be read: {error.strerror or error}.") from None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise Refusal(
            f"{file} is damaged, so it cannot be told which files of this folder floatlens wrote. Use another folder, or remove this one."
        ) from None


def parse_manifest(text: str) -> Manifest:
    """What a manifest says; any exception of a parser for what is not one."""
    content = json.loads(text)
    files = {_inside(name): FileRecord(_size(of["bytes"]), _hex(of["sha256"])) for name, of in content["files"].items()}
    return Manifest(_text(content["floatlens"]), _text(content["written_by"]), files)


def is_sealed(text: str) -> bool:
    """Whether a manifest is, letter for letter, what was written: it ends with the SHA-256 of the rest."""
    try:
        content = json.loads(text)
        del content["seal"]
        return text == _sealed(content)
    except (ValueError, TypeError, KeyError, RecursionError):
        return False


def damage(folder: Path) -> list[str]:
    """A sentence for each file that is missing, changed, truncated or surplus; nothing if the folder is as it was written.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "greeting.txt").write_text("hello")
    >>> write_manifest(folder, "floatlens demo")
    >>> damage(folder)
    []
    >>> _ = (folder / "greeting.txt").write_text("hell")
    >>> damage(folder)
    ['greeting.txt has 4 bytes instead of 5.']
    """
    manifest = read_manifest(folder)
    if manifest is None:
        return [f"{MANIFEST} is missing, so nothing in this folder can be checked."]
    there = set(entries(folder))
    sentences = [f"{name} is missing." for name in manifest.files if name not in there]
    sentences += [change for name in sorted(there) if (change := _change(folder / name, name, manifest))]
    return sentences


def not_ours(folder: Path, *, mending: bool = False) -> list[str]:
    """The files of a folder that floatlens did not write, or that were edited since, by their path in it.

    Without a manifest, all of them.

    `mending`: nobody edits such a folder by hand, so files that were changed are damaged and still floatlens' own.
    """
    manifest = read_manifest(folder)
    if manifest is None:
        return sorted(entries(folder))
    return sorted(name for name in entries(folder) if (name not in manifest.files if mending else _change(folder / name, name, manifest)))


def entries(folder: Path) -> Iterator[str]:
    """Everything below a folder that is not itself a folder, by its path in it, but the manifest. Links are not followed."""
    for parent, folders, files in os.walk(folder, onerror=_refuse_unreadable):
        below = Path(parent)
        links = [name for name in folders if (below / name).is_symlink()]
        for name in sorted([*files, *links]):
            path = (below / name).relative_to(folder).as_posix()
            if path != MANIFEST:
                yield path


def _change(file: Path, name: str, manifest: Manifest) -> str | None:
    """What is wrong with a file that is there, as a sentence."""
    written = manifest.files.get(name)
    if written is None:
        return f"{name} is not in the manifest: floatlens did not write it."
    there = file.lstat()
    if not stat.S_ISREG(there.st_mode):
        return f"{name} is no longer the file that was written, but a link or a device."
    if there.st_size != written.bytes:
        return f"{name} has {there.st_size:,} bytes instead of {written.bytes:,}."
    try:
        same = _digest(file) == written.sha256
    except OSError as error:
        return f"{name} cannot be read: {error.strerror or error}."
    return None if same else f"{name} was changed since it was written: it has another SHA-256."


def _record(file: Path) -> FileRecord:
    return FileRecord(file.stat().st_size, _digest(file))


def _as_json(written_by: str, files: Mapping[str, FileRecord]) -> bytes:
    content = {"floatlens": __version__, "written_by": written_by, "files": {name: asdict(files[name]) for name in sorted(files)}}
    return _sealed(content).encode()


def _sealed(content: dict[str, Any]) -> str:
    seal = hashlib.sha256(json.dumps(content, indent=1).encode()).hexdigest()
    return json.dumps({**content, "seal": seal}, indent=1) + "\n"


def _digest(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _refuse_unreadable(error: OSError) -> None:
    raise Refusal(f"{error.filename} cannot be read: {error.strerror}.") from None


def _inside(name: str) -> str:
    """A path that cannot lead out of the folder, as the manifest spells it."""
    parts = PurePosixPath(name).parts
    if not parts or name.startswith("/") or ".." in parts or "\0" in name or PurePosixPath(name).as_posix() != name:
        raise ValueError(name)
    return name


def _size(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(value)
    return value


def _hex(value: object) -> str:
    if not isinstance(value, str) or not re.fullmatch("[0-9a-f]{64}", value):
        raise ValueError(value)
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(value)
    return value
