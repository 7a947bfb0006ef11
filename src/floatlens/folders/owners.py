"""Who is writing to a place: one process at a time, and whether the one before is still alive.

Beside what is written lies a hidden folder, `.NAME.unfinished`, with `owner.json`: the command, the process with the time it began, the
host and the boot it runs on. The process holds a lock on that file for as long as it lives, so the kernel says whether it does. Where
files cannot be locked, the process number and the time it began say so. Decided here: a hidden folder is taken over only from an owner
that is provably dead: it held the lock on this very machine, or the machine was started anew since. Refused: a place to which a living
process writes, or one on another machine; a hidden folder that holds anything that floatlens does not put there.
"""

import contextlib
import errno
import json
import os
import socket
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from floatlens.errors import Refusal
from floatlens.folders.places import disk_failures, hidden_sibling

try:
    import fcntl
except ImportError:  # not on Windows: the process number and its start have to do
    fcntl = None

OWNER, NEW, OLD, KEPT, USED = "owner.json", "new", "old", "kept", "used"
"""All that a hidden folder holds.

Who owns it; the folder being written; the one it replaces; what an interrupted run had finished; and the same while the folder that uses
it gets its name.
"""
PAUSE = 0.1  # seconds between two looks at whether another process has ended
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)


@dataclass(frozen=True)
class Owner:
    """The process that writes, or wrote, to a place."""

    written_by: str
    process: int
    process_began: float  # seconds since 1970
    host: str
    boot: str  # "" where the system has no such thing

    def __str__(self) -> str:
        return f"Process {self.process} (`{self.written_by}`)"


@dataclass(frozen=True)
class Claim:
    """A hidden folder that this process owns, its lock, and the dead owner it was taken over from, if any."""

    hidden: Path
    lock: int
    before: Owner | None

    def release(self) -> None:
        """Give the place free; what was kept, or what is not floatlens' own, stays in the hidden folder."""
        if os.name == "nt":  # an open file cannot be removed there
            os.close(self.lock)
        if {file.name for file in self.hidden.iterdir()} == {OWNER}:
            (self.hidden / OWNER).unlink()
            with contextlib.suppress(OSError):  # somebody else has just claimed the place
                self.hidden.rmdir()
        if os.name != "nt":
            os.close(self.lock)


class Busy(Refusal):
    """Another process is writing to the place now."""


def claim(place: Path, written_by: str, *, wait: bool = False) -> Claim:
    """Become the owner of what is written beside a place; refused while another process is, unless we are to `wait` for it.

    Examples
    --------
    >>> import tempfile
    >>> place = Path(tempfile.mkdtemp()) / "out"
    >>> owned = claim(place, "floatlens trace")
    >>> [file.name for file in owned.hidden.iterdir()]
    ['owner.json']
    >>> owned.release()
    >>> owned.hidden.exists()
    False
    """
    while True:
        try:
            return _claim(place, written_by)
        except Busy:
            if not wait:
                raise
            time.sleep(PAUSE)


def _claim(place: Path, written_by: str) -> Claim:
    hidden = hidden_sibling(place)
    while True:
        with disk_failures(place):
            _make(hidden)
        try:
            lock = os.open(hidden / OWNER, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o644)
        except FileNotFoundError:  # its owner has just finished and removed the folder
            continue
        try:
            locked = _lock(lock)
            if locked is False:
                raise Busy(_busy(_read(hidden, lock), place))
            if not _is_still(lock, hidden / OWNER):
                os.close(lock)
                continue
            before = _read(hidden, lock)
            if before is not None:
                _refuse_living(before, place, hidden, locked=bool(locked))
            with disk_failures(place):
                os.ftruncate(lock, 0)
                os.lseek(lock, 0, os.SEEK_SET)
                os.write(lock, json.dumps(asdict(_this_process(written_by))).encode())
        except BaseException:
            os.close(lock)
            raise
        return Claim(hidden, lock, before)


def refuse_busy(place: Path) -> None:
    """Refuse a place to which another process writes now, before anything is claimed or made.

    Examples
    --------
    >>> refuse_busy(Path("a-place-where-nothing-is-written"))
    """
    hidden = hidden_sibling(place)
    try:
        lock = os.open(hidden / OWNER, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0))
    except OSError:
        return
    try:
        if (locked := _lock(lock)) is False:
            raise Busy(_busy(_read(hidden, lock), place))
        if _is_still(lock, hidden / OWNER) and (before := _read(hidden, lock)) is not None:
            _refuse_living(before, place, hidden, locked=bool(locked))
    finally:
        os.close(lock)


def _busy(owner: Owner | None, place: Path) -> str:
    return f"{owner or 'Another process'} is writing {place} now. Wait until it has ended, or choose another folder."


def _make(hidden: Path) -> None:
    """Make the hidden folder, or find that it is there and holds what such a folder may hold."""
    try:
        hidden.mkdir()
    except FileExistsError:
        if hidden.is_symlink() or not hidden.is_dir():
            raise Refusal(f"{hidden} is not a folder that floatlens made, but it needs one of this name. Move it away.") from None
        if foreign := sorted(file.name for file in hidden.iterdir() if file.name not in (OWNER, NEW, OLD, KEPT, USED)):
            raise Refusal(
                f"{hidden} holds {foreign[0]}, which this version of floatlens did not put there, and it needs a folder of this name. "
                "Move it away."
            ) from None


def _lock(file: int) -> bool | None:
    """Whether the file is locked by us now; None if files cannot be locked here."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno in _NO_LOCKS:
            return None
        raise
    return True


def _is_still(lock: int, file: Path) -> bool:
    """Whether a file that was opened is still the one of that name: its owner may have removed it before we had the lock."""
    try:
        return os.path.samestat(os.fstat(lock), file.lstat())
    except FileNotFoundError:
        return False


def _read(hidden: Path, lock: int) -> Owner | None:
    """Who wrote the record; None if it is empty, as between its making and its writing."""
    os.lseek(lock, 0, os.SEEK_SET)
    text = os.read(lock, 1 << 16)
    if not text.strip(b"\0"):
        return None
    try:
        owner = Owner(**json.loads(text))
        if [type(value) for value in asdict(owner).values()] == [str, int, float, str, str]:
            return owner
    except (ValueError, TypeError, RecursionError):
        pass
    raise Refusal(
        f"{hidden / OWNER} cannot be read as floatlens wrote it. If no floatlens is running there, remove that file and try again."
    )


def _refuse_living(owner: Owner, place: Path, hidden: Path, *, locked: bool) -> None:
    """Refuse unless the owner is provably dead."""
    here = _this_process("")
    if owner.boot == here.boot and (owner.boot or owner.host == here.host):
        if locked or not _runs(owner):
            return
        raise Busy(_busy(owner, place))
    if owner.host == here.host:  # the machine was started anew
        return
    raise Refusal(
        f"{owner} on the machine {owner.host} was writing {place}, and from here it cannot be told whether it still is. "
        f"If it has ended, remove {hidden / OWNER} and run the same command again: what is finished is kept."
    )


def _runs(owner: Owner) -> bool:
    try:
        return (
            abs(psutil.Process(owner.process).create_time() - owner.process_began) < 2
        )  # a clock that is set moves all such times a little
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True


def _this_process(written_by: str) -> Owner:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        boot = ""
    try:
        began = psutil.Process().create_time()
    except psutil.Error:
        began = time.time()
    return Owner(written_by, os.getpid(), began, socket.gethostname(), boot)
