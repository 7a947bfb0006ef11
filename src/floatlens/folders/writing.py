"""Write beside, rename when whole: the one way by which floatlens puts a folder where the user wants it.

A folder is filled as `.NAME.unfinished/new`, gets its manifest and takes its name in one step. What it replaces is moved aside first and
removed afterwards, file by file as its manifest lists them, so that whatever else is in it stays. A run that is killed leaves the hidden
folder behind; the next one into the same place says so and clears it up, or goes on from what is kept in it. Decided here: nothing is
removed before what takes its place is on the disk itself (fsync), and so is every file that a run goes on from. A folder that replaces
nothing is not forced to the disk: its manifest tells whether it arrived. If the place was taken while a run went on, the result gets a
name beside it.
"""

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from floatlens import terminal
from floatlens.errors import Refusal
from floatlens.folders.files import sync_all_to_disk, sync_to_disk, write_whole
from floatlens.folders.manifest import MANIFEST, add_to_manifest, entries, not_ours, read_manifest, write_manifest
from floatlens.folders.owners import KEPT, NEW, OLD, USED, Claim, claim, refuse_busy
from floatlens.folders.places import disk_failures, hidden_sibling, place_for, place_to_add_to, refuse_foreign


def refuse_place(path: str | os.PathLike[str], *, replacing: str | None = None) -> None:
    """Refuse a place where a folder cannot be written, before anything heavy runs: see `floatlens.folders.places`.

    Examples
    --------
    >>> refuse_place("a-folder-that-is-not-there")
    """
    clear_up_dead(path)
    refuse_busy(place_for(path, replacing=replacing))


def refuse_folder_to_fill(path: str | os.PathLike[str], written_by: str, names: Sequence[str] = ()) -> None:
    """Refuse a folder that cannot be filled in place: one that another command wrote, to which another process writes now, or in which
    one of the names is a user's file. It may be there already.

    Examples
    --------
    >>> refuse_folder_to_fill("a-folder-that-is-not-there", "floatlens train")
    """
    place = place_to_add_to(path, [*names])
    _refuse_other_command(place, written_by)
    refuse_busy(place)


class UnfinishedFolder:
    """A folder being written: fill `folder`, then `publish`. `kept` outlives a run that is stopped, if it `keeps`.

    Examples
    --------
    >>> import tempfile
    >>> place = Path(tempfile.mkdtemp()) / "out"
    >>> unfinished = UnfinishedFolder(place, "floatlens trace")
    >>> _ = (unfinished.folder / "greeting.txt").write_text("hello")
    >>> place.exists()
    False
    >>> unfinished.publish()
    >>> sorted(file.name for file in place.iterdir()), [file.name for file in place.parent.iterdir()]
    (['greeting.txt', 'manifest.json'], ['out'])
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        written_by: str,
        *,
        replacing: str | None = None,
        keeps: bool = False,
        mending: bool = False,
        wait: bool = False,
    ) -> None:
        self.place = place_for(path, replacing=replacing, mending=mending)
        self._written_by, self._replacing, self._keeps, self._mending = written_by, replacing, keeps, mending
        self._claim = claim(self.place, written_by, wait=wait)
        self._open = True
        hidden = self._claim.hidden
        self.folder, self.kept = hidden / NEW, hidden / KEPT
        try:
            _clear_up(self._claim, self.place, mending)
            if not keeps and self.kept.is_dir() and any(self.kept.iterdir()):
                raise Refusal(
                    f"{self.kept} holds what {self._claim.before or 'an earlier run'} had finished when it was stopped. "
                    "Run that command again, remove the folder, or choose another place."
                )
            refuse_foreign(self.place, replacing, mending=mending)  # it may have been written since it was looked at
            with disk_failures(self.place, kept=keeps):
                self.folder.mkdir()
                if keeps:
                    self.kept.mkdir(exist_ok=True)
        except BaseException:
            self.abandon()
            raise

    def publish(self) -> None:
        """Give the folder its manifest and its name, and remove what it replaces and what was kept for it."""
        write_manifest(self.folder, self._written_by)
        hidden, replaces = self._claim.hidden, _is_filled(self.place)
        if replaces or self._keeps:
            sync_all_to_disk(self.folder)
        try:
            if self._keeps:
                self.kept.rename(hidden / USED)
            if replaces:
                refuse_foreign(self.place, self._replacing, mending=self._mending)
                self.place.rename(hidden / OLD)
            self.folder.rename(self.place)
        except (Refusal, OSError) as error:
            _put_back(hidden, self.place)
            other = _free_name(self.place)
            self.folder.rename(other)
            raise Refusal(f"The result is whole, but it is in {other}, because {self.place} could not be written: {error}") from None
        sync_to_disk(self.place.parent)
        self.abandon()

    def abandon(self) -> None:
        """Leave nothing half-written behind, but what is kept for the next run. Does nothing after `publish`."""
        if not self._open:
            return
        self._open = False
        try:
            _put_back(self._claim.hidden, self.place)
            _remove_half_written(self.folder)
            for left in _remove_replaced(self._claim.hidden, self._mending):
                say(f"{left} was not written by floatlens and is kept there.")
            with contextlib.suppress(OSError):  # not empty: kept for the next run
                self.kept.rmdir()
        finally:
            self._claim.release()


def clear_up_dead(path: str | os.PathLike[str]) -> None:
    """Remove what a run has left beside a folder if it was killed after the folder got its name, when nothing but that was left to do.

    Examples
    --------
    >>> clear_up_dead("a-folder-that-is-not-there")
    """
    place = Path(path).expanduser().absolute()
    with contextlib.suppress(OSError, Refusal):  # a strange place, or one to which a living process writes: refused where it is written
        if place.name not in ("", "..") and _is_filled(place) and hidden_sibling(place).is_dir():
            owned = claim(place, "floatlens")
            try:
                _clear_up(owned, place, mending=False)
            finally:
                owned.release()


def _clear_up(owned: Claim, place: Path, mending: bool) -> None:
    """Put in order what a run that was killed has left behind."""
    who = owned.before or "An earlier run"
    if _put_back(owned.hidden, place):
        say(f"{who} was killed while it replaced {place}; what was there before is back.")
    if left := _remove_replaced(owned.hidden, mending):
        raise Refusal(f"{left[0]} was not written by floatlens. Move it away, and run the same command again.")
    if (owned.hidden / NEW).exists():
        shutil.rmtree(owned.hidden / NEW)
        say(f"{who} was killed; what it left half-written beside {place} is removed.")


def _put_back(hidden: Path, place: Path) -> bool:
    """Give a folder its name back where the one that was to replace it never got it; whether there was one. What was kept stays."""
    if _is_filled(place):
        return False
    if (hidden / USED).is_dir():
        (hidden / USED).rename(hidden / KEPT)
    if not (hidden / OLD).is_dir():
        return False
    (hidden / OLD).rename(place)
    return True


def _remove_replaced(hidden: Path, mending: bool) -> list[Path]:
    """Remove what a folder that has its name has replaced or used up; the files that are not ours to remove."""
    shutil.rmtree(hidden / USED, ignore_errors=True)
    return [hidden / OLD / name for name in _remove_ours(hidden / OLD, mending=mending)]


def _is_filled(place: Path) -> bool:
    """Whether something is there that is not an empty folder."""
    return os.path.lexists(place) and (not place.is_dir() or any(place.iterdir()))


@contextmanager
def unfinished_folder(
    path: str | os.PathLike[str],
    written_by: str,
    *,
    replacing: str | None = None,
    keeps: bool = False,
    mending: bool = False,
    wait: bool = False,
) -> Iterator[UnfinishedFolder]:
    """A folder to fill, which gets its name when the context ends well and vanishes when it does not.

    Parameters
    ----------
    path
        Where the folder goes.
    written_by
        The command, for the manifest.
    replacing
        The command whose earlier folder may be replaced; none by default.
    keeps
        Whether what is in `kept` outlives a run that fails or is killed.
    mending
        Whether an earlier folder is also replaced if files were changed in it.
    wait
        Wait while another process writes to this place, instead of refusing.

    Examples
    --------
    >>> import tempfile
    >>> place = Path(tempfile.mkdtemp()) / "out"
    >>> with unfinished_folder(place, "floatlens demo") as unfinished:
    ...     write_whole(unfinished.folder / "greeting.txt", b"hello")
    >>> (place / "greeting.txt").read_text()
    'hello'
    """
    unfinished = UnfinishedFolder(path, written_by, replacing=replacing, keeps=keeps, mending=mending, wait=wait)
    try:
        with disk_failures(unfinished.place, kept=keeps):
            yield unfinished
            unfinished.publish()
    finally:
        unfinished.abandon()


def folder_once(place: Path, written_by: str, fill: Callable[[Path], object]) -> Path:
    """A folder that is filled at first use; a process that wants it meanwhile waits.

    Examples
    --------
    >>> import tempfile
    >>> place = Path(tempfile.mkdtemp()) / "greeting"
    >>> for text in ("hello", "good bye"):
    ...     _ = folder_once(place, "floatlens", lambda folder: (folder / "greeting.txt").write_text(text))
    >>> (place / "greeting.txt").read_text()
    'hello'
    """
    clear_up_dead(place)
    try:
        if not place.is_dir():
            with unfinished_folder(place, written_by, wait=True) as unfinished:
                fill(unfinished.folder)
    except Refusal:
        if not place.is_dir():  # else the process for which we waited has filled it
            raise
    return place


@contextmanager
def one_writer(path: str | os.PathLike[str], written_by: str) -> Iterator[Path]:
    """Keep other processes from writing to a folder that is filled in place, file by file, each of them whole (`write_whole`).

    Examples
    --------
    >>> import tempfile
    >>> with one_writer(Path(tempfile.mkdtemp()) / "run", "floatlens train") as place:
    ...     place.is_dir()
    True
    """
    place = Path(path).expanduser().absolute()
    with disk_failures(place):
        place.mkdir(parents=True, exist_ok=True)
    owned = claim(place, written_by)
    try:
        with disk_failures(place, kept=True):
            yield place
    finally:
        owned.release()


@contextmanager
def files_added_to(path: str | os.PathLike[str], written_by: str, names: list[str]) -> Iterator[Path]:
    """A folder to fill with some of the named files, which are then moved to `path`; refused if they would overwrite a user's file.

    Examples
    --------
    >>> import tempfile
    >>> place = Path(tempfile.mkdtemp()) / "figures"
    >>> with files_added_to(place, "floatlens figures", ["drift.pdf", "flow.pdf"]) as folder:
    ...     write_whole(folder / "drift.pdf", b"...")
    >>> sorted(file.name for file in place.iterdir())
    ['drift.pdf', 'manifest.json']
    """
    place = place_to_add_to(path, names)
    _refuse_other_command(place, written_by)
    owned = claim(place, written_by)
    folder = owned.hidden / NEW
    try:
        shutil.rmtree(folder, ignore_errors=True)
        with disk_failures(place):
            folder.mkdir()
            yield folder
            added = list(entries(folder))
            place_to_add_to(place, added)  # somebody may have put a file there since
            if added:
                place.mkdir(exist_ok=True)
            for name in added:
                (place / name).parent.mkdir(parents=True, exist_ok=True)
                os.replace(folder / name, place / name)
                write_whole(place / MANIFEST, add_to_manifest(place, written_by, name))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        owned.release()


def _remove_half_written(folder: Path) -> None:
    """Remove a folder that was being filled; threads of a library that failed in another of its threads may still be writing to it."""
    looks = 0
    while folder.exists() and looks < 100:
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(0.05)
        looks += 1


def _remove_ours(folder: Path, *, mending: bool) -> list[str]:
    """Remove what floatlens wrote below a folder, as its manifest lists it, and the folder once it is empty; what is left, by path."""
    if not folder.is_dir():
        return []
    left = not_ours(folder, mending=mending)
    for name in entries(folder):
        if name not in left:
            (folder / name).unlink()
    if not left:
        (folder / MANIFEST).unlink(missing_ok=True)
    for parent, _, _ in os.walk(folder, topdown=False):
        with contextlib.suppress(OSError):  # not empty
            os.rmdir(parent)
    return left


def _refuse_other_command(place: Path, written_by: str) -> None:
    manifest = read_manifest(place)
    if manifest is not None and manifest.written_by != written_by:
        raise Refusal(f"{place} was written by `{manifest.written_by}`, and `{written_by}` adds nothing to it. Choose another folder.")


def _free_name(place: Path) -> Path:
    number = 2
    while os.path.lexists(free := place.with_name(f"{place.name}-{number}")):
        number += 1
    return free


def say(sentence: str) -> None:
    """A sentence on stderr."""
    terminal.say(terminal.make_console(stderr=True), sentence)
