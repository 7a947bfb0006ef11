"""Where results may be written, and what a disk that fails looks like to a user.

`place_for` is asked before anything heavy runs. Refused there: the working directory and whatever is above it, under any spelling; links,
mount points and addresses; a folder above that is missing or cannot be written; names too long for the file system; a file, or a folder
with something in it, unless an earlier run of the same command wrote that folder and every file in it is still as it was written. What
the user has added or edited is named and left alone. `disk_failures` makes a disk that is full, read-only or broken one sentence, also
where it was met by a library that is not written in Python.
"""

import errno
import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from floatlens.errors import Refusal
from floatlens.folders.manifest import MANIFEST, not_ours, read_manifest

HIDDEN = ".{}.unfinished"
"""What lies beside a folder, or a file, while it is written."""
ROOM_BELOW = 300  # bytes: the longest path that floatlens writes below a folder
LONGEST_NAME = 120  # bytes: of the names that we make out of what users give, before endings
NAMED = 3  # files that a refusal names; the rest is counted
_FAILURES = {
    errno.EROFS: "it is on a read-only file system",
    errno.EACCES: "this user may not write there",
    errno.EPERM: "this user may not write there",
    errno.EIO: "the disk reports an error",
    errno.EFBIG: "it would be larger than the file system or `ulimit -f` allows",
    errno.ENAMETOOLONG: "its name is too long for the file system",
}
_FULL = (errno.ENOSPC, errno.EDQUOT)
_ONLY_WRITING = (errno.EROFS, errno.EFBIG)  # whichever file it was; the other errors may be those of a file that is read


def hidden_sibling(place: Path) -> Path:
    """What lies beside a folder or a file while it is written.

    Examples
    --------
    >>> hidden_sibling(Path("runs/a.zarr")).as_posix()
    'runs/.a.zarr.unfinished'
    """
    return place.with_name(HIDDEN.format(place.name))


def short_name(name: str) -> str:
    """A name for a file of ours that any file system takes: one that is too long is cut, and ends in a digest of the whole.

    Examples
    --------
    >>> short_name("noise-0.4"), len(short_name("noise-" * 100))
    ('noise-0.4', 120)
    """
    if len(os.fsencode(name)) <= LONGEST_NAME:
        return name
    digest = hashlib.sha256(os.fsencode(name)).hexdigest()[:12]
    return os.fsencode(name)[: LONGEST_NAME - 13].decode(errors="ignore") + f"-{digest}"


def place_for(path: str | os.PathLike[str], *, replacing: str | None = None, mending: bool = False) -> Path:
    """The place of a folder that is to be written, as an absolute path; refused if it cannot be, or must not be, written.

    Parameters
    ----------
    path
        The folder, as the user spells it.
    replacing
        The command whose earlier folder may be replaced, e.g. "floatlens demo"; none by default.
    mending
        Replace it even if files were changed in it: nobody edits such a folder by hand. Files that were added to it are still the user's.

    Examples
    --------
    >>> place_for(".")
    Traceback (most recent call last):
    floatlens.errors.Refusal: '.' is the working directory or lies above it, so it cannot be replaced. Name a new folder, such as results.
    """
    given, place = _parent_checked(path)
    with disk_failures(place):
        if not os.path.lexists(place):
            return place
        if not place.is_dir():
            raise Refusal(f"'{given}' is a file, and nothing is overwritten. Name a folder that does not exist yet.")
        if any(place.iterdir()):
            _refuse_foreign(given, place, replacing, mending)
    return place


def place_to_add_to(path: str | os.PathLike[str], names: list[str]) -> Path:
    """The place of a folder to which files are added, which may hold others; refused if one of them is there and is not floatlens' own.

    Examples
    --------
    >>> place_to_add_to("figures-that-are-not-there", ["drift.pdf"]).name
    'figures-that-are-not-there'
    """
    given, place = _parent_checked(path)
    if not os.path.lexists(place):
        return place
    if not place.is_dir():
        raise Refusal(f"'{given}' is a file. Name a folder.")
    if not os.access(place, os.R_OK | os.W_OK | os.X_OK):
        raise Refusal(f"'{given}' cannot be written: {_why_not_writable(place)}. Choose another folder.")
    if names and (foreign := sorted({*names} & {*not_ours(place)})):
        raise Refusal(
            f"'{given}' holds {_listed(foreign)}, which floatlens did not write or somebody has edited since, and would be overwritten. "
            "Move it away, or choose another folder."
        )
    return place


def refuse_foreign(place: Path, replacing: str | None, *, mending: bool = False) -> None:
    """Refuse a folder with something in it, unless that command wrote it and every file is as it was written."""
    if os.path.lexists(place) and (not place.is_dir() or place.is_symlink() or any(place.iterdir())):
        _refuse_foreign(place, place, replacing, mending)


@contextmanager
def disk_failures(place: Path, *, kept: bool = False) -> Iterator[None]:
    """Say in one sentence that the disk is full, read-only or broken.

    `kept`: what was finished before is there when the command is run again.

    Examples
    --------
    >>> with disk_failures(Path("out")):
    ...     raise OSError(errno.ENOSPC, "No space left on device", "out/table.csv")
    Traceback (most recent call last):
    floatlens.errors.Refusal: No space left on the disk of out while writing out/table.csv. Free some room and run the same command again.
    """
    try:
        yield
    except Refusal:
        raise
    except Exception as error:
        failure = _disk_error(error, place)
        if failure is None:
            raise
        number, file = failure
        again = "run the same command again" + (": what is finished is kept." if kept else ".")
        if number in _FULL:
            raise Refusal(f"No space left on the disk of {place} while writing {file or place}. Free some room and {again}") from error
        raise Refusal(f"{file or place} cannot be written: {_FAILURES[number]}. Choose another place, or mend it and {again}") from error


def _disk_error(error: BaseException, place: Path) -> tuple[int, Path | None] | None:
    """The error number, and the file if it is known, where a disk is behind an exception or behind one that led to it."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        number = cause.errno if isinstance(cause, OSError) else None
        if number is None and (match := re.search(r"os error (\d+)", str(cause))):  # as polars, safetensors and tokenizers say it
            number = int(match[1])
        if number is None and isinstance(cause, OSError) and re.fullmatch(r"\d+ requested and \d+ written", str(cause)):  # as numpy says it
            number = errno.ENOSPC
        file = getattr(cause, "filename", None)
        file = Path(os.fsdecode(file)) if isinstance(file, str | bytes | os.PathLike) else None
        here = file is not None and any(file.absolute().is_relative_to(own) for own in (place.absolute(), hidden_sibling(place.absolute())))
        if number in _FULL or (number in _FAILURES and (here or number in _ONLY_WRITING)):
            return number, file
        cause = cause.__cause__ or cause.__context__
    return None


def _parent_checked(path: str | os.PathLike[str]) -> tuple[Path, Path]:
    """The path as it was given, and as an absolute one that leads to it through no link, if something can be written beside it."""
    text = os.fspath(path)
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", text):
        raise Refusal(f"{text} is an address, and floatlens writes to a local folder. Name a folder, and copy it there afterwards.")
    if "\0" in text:
        raise Refusal(f"{text!r} holds a NUL character, which no file system takes. Choose another name.")
    try:
        given = Path(text).expanduser()
        place = given.parent.resolve() / given.name if given.name not in ("", "..") else given.resolve()
        if Path.cwd().resolve().is_relative_to(place.resolve()):
            raise Refusal(
                f"'{given}' is the working directory or lies above it, so it cannot be replaced. Name a new folder, such as "
                f"{given / 'results'}."
            )
        if place.is_symlink():
            raise Refusal(f"'{given}' is a link, and what it leads to is not replaced. Name the folder itself, or a new one.")
        if _is_mount(place):
            raise Refusal(f"'{given}' is a mount point, so it cannot be replaced. Name a folder inside it, such as {given / 'results'}.")
        if not place.parent.is_dir():
            raise Refusal(f"There is no folder '{given.parent}' to write '{given.name}' into. Make it first.")
        _refuse_long(place)
    except (OSError, RuntimeError) as error:  # a link to itself is a RuntimeError
        number = error.errno if isinstance(error, OSError) else None
        why = _FAILURES.get(number or 0) or (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise Refusal(f"{_short(text)} cannot be written: {why}. Choose another place.") from None
    if not os.access(place.parent, os.W_OK | os.X_OK):
        raise Refusal(f"'{given}' cannot be written: {_why_not_writable(place.parent)}. Choose another place.")
    return given, place


def _refuse_foreign(given: Path, place: Path, replacing: str | None, mending: bool) -> None:
    if replacing is None or not place.is_dir() or place.is_symlink():
        raise Refusal(f"'{given}' exists already, and nothing is overwritten. Choose another name, or remove it.")
    manifest = read_manifest(place)
    if manifest is None:
        raise Refusal(
            f"'{given}' exists already and has no {MANIFEST}, so it cannot be told which of its files `{replacing}` wrote. "
            "Choose another folder, or remove this one."
        )
    if manifest.written_by != replacing:
        raise Refusal(f"'{given}' was written by `{manifest.written_by}`, so `{replacing}` does not replace it. Choose another folder.")
    if foreign := not_ours(place, mending=mending):
        raise Refusal(
            f"'{given}' holds {_listed(foreign)}, which floatlens did not write or somebody has edited since, and would be lost. "
            "Move it away, or choose another folder."
        )
    if not os.access(place, os.W_OK | os.X_OK):
        raise Refusal(f"'{given}' cannot be replaced: {_why_not_writable(place)}. Choose another folder.")


def _refuse_long(place: Path) -> None:
    """Refuse a name, or a path, that leaves no room for what is written beside it and below it."""
    if not hasattr(os, "pathconf"):
        return
    most = os.pathconf(place.parent, "PC_NAME_MAX") - len(HIDDEN.format(""))
    if most > 0 and len(os.fsencode(place.name)) > most:
        raise Refusal(
            f"The name {_short(place.name)} has {len(os.fsencode(place.name))} bytes, and at most {most} fit here. Choose a shorter one."
        )
    most = os.pathconf(place.parent, "PC_PATH_MAX") - ROOM_BELOW - len(HIDDEN.format(""))
    if most > 0 and len(os.fsencode(place)) > most:
        raise Refusal(
            f"The path {_short(str(place))} has {len(os.fsencode(place))} bytes, and at most {most} fit here. Choose a shorter one."
        )


def _is_mount(place: Path) -> bool:
    """Whether something is mounted here; a folder of the same disk that is mounted twice is seen in the list of mounts only."""
    if place.is_mount():
        return True
    try:
        listed = Path("/proc/self/mounts").read_bytes().splitlines()
    except OSError:
        return False
    unescaped = (re.sub(rb"\\([0-7]{3})", lambda code: bytes([int(code.group(1), 8)]), line.split(b" ")[1]) for line in listed)
    return os.fsencode(place) in unescaped


def _why_not_writable(folder: Path) -> str:
    read_only = hasattr(os, "statvfs") and os.statvfs(folder).f_flag & os.ST_RDONLY
    return _FAILURES[errno.EROFS if read_only else errno.EACCES]


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:40]}...{text[-10:]}"
