"""Where the results of a study are kept: a folder, or any address that fsspec knows, such as `s3://bucket/study`.

Both hold the same names (`units/ID.zip`, `failures/ID.1.json`, `plan.json`, ...). In a folder a file is written under a hidden name and
renamed (`floatlens.folders`), and one process at a time owns the folder: a second runner is refused. An object store cannot rename and has
no locks: each result is one PUT under its id, which fails where one is there already, so that of two runners each unit is stored once;
a second runner joins. The index comes last.

Refused, in one sentence: an address whose file system is not installed or cannot be reached, a folder that cannot be written, is full, or
has vanished. Nothing that was finished is lost by any of these.
"""

import contextlib
import os
import re
import socket
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from floatlens.errors import Refusal, reason
from floatlens.folders import disk_failures, is_half_written, one_writer, refuse_folder_to_fill, write_whole

WRITTEN_BY = "floatlens study"
MARK = "plan.json"
"""The file by which a folder is known as that of a study."""


class Store(Protocol):
    """What a study needs of the place of its results."""

    address: str
    shared: bool  # whether processes on other machines reach it under the same address
    owned: bool  # whether one runner at a time owns it

    def names(self, folder: str) -> list[str]:
        """The files of a folder, sorted."""
        ...

    def read(self, name: str) -> bytes | None:
        """The content of a file; None if there is none."""
        ...

    def create(self, name: str, content: bytes) -> bool:
        """Write a file whole; False if there is one of that name already, which then stays."""
        ...

    def replace(self, name: str, content: bytes) -> None:
        """Write a file whole, whatever is there."""
        ...

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        ...

    def running(self) -> contextlib.AbstractContextManager[str]:
        """While a runner works here; gives a sentence about another one, if there is one. A folder refuses the second runner."""
        ...


def open_store(address: str | os.PathLike[str], *, new: bool = False) -> Store:
    """The store at an address; refused if it holds something else than a study, or, unless it may be `new`, nothing.

    Examples
    --------
    >>> open_store("memory://nothing-here")
    Traceback (most recent call last):
    floatlens.errors.Refusal: memory://nothing-here holds no study. Start one there: floatlens study run STUDY -o memory://nothing-here
    >>> open_store("memory://new", new=True).address
    'memory://new'
    """
    text = os.fspath(address)
    store: Store = ObjectStore(text) if re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", text) else FolderStore(Path(text))
    there = store.read(MARK) is not None
    if not there and not new:
        raise Refusal(f"{text} holds no study. Start one there: floatlens study run STUDY -o {text}")
    if new and not there and isinstance(store, FolderStore):
        refuse_folder_to_fill(store.place, WRITTEN_BY)
        if store.place.is_dir() and (strange := sorted(file.name for file in store.place.iterdir() if not is_half_written(file))):
            raise Refusal(f"{text} holds {strange[0]} and no study, so it is somebody else's. Choose another folder.")
    return store


class FolderStore:
    """Results in a folder of this machine, or on a file system that several machines mount.

    Examples
    --------
    >>> import tempfile
    >>> store = FolderStore(Path(tempfile.mkdtemp()))
    >>> with store.running():
    ...     store.create("units/a.zip", b"first"), store.create("units/a.zip", b"second")
    (True, False)
    >>> store.read("units/a.zip"), store.names("units"), store.read("nothing")
    (b'first', ['a.zip'], None)
    """

    shared, owned = False, True

    def __init__(self, place: Path) -> None:
        self.place = place.expanduser().absolute()
        self.address = str(place)
        self._began = False

    def names(self, folder: str) -> list[str]:
        below = self.place / folder
        return sorted(name for name in os.listdir(below) if not name.startswith(".")) if below.is_dir() else []

    def read(self, name: str) -> bytes | None:
        try:
            return (self.place / name).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise Refusal(f"{self.place / name} cannot be read: {error.strerror or error}.") from None

    def create(self, name: str, content: bytes) -> bool:
        if (self.place / name).exists():  # only one process writes here
            return False
        self.replace(name, content)
        return True

    def replace(self, name: str, content: bytes) -> None:
        with self._failures():
            if self._began and not self.place.is_dir():
                raise FileNotFoundError(self.place)
            (self.place / name).parent.mkdir(exist_ok=True)
            write_whole(self.place / name, content)

    def remove(self, name: str) -> None:
        with self._failures():
            (self.place / name).unlink(missing_ok=True)

    @contextmanager
    def running(self) -> Iterator[str]:
        with one_writer(self.place, WRITTEN_BY) as place:
            self._began = True
            for left in filter(is_half_written, [*place.glob(".*"), *place.glob("*/.*")]):
                left.unlink()
            yield ""

    @contextmanager
    def _failures(self) -> Iterator[None]:
        """A disk that fails, and a folder that has vanished, in a sentence."""
        try:
            with disk_failures(self.place, kept=True):
                yield
        except FileNotFoundError:
            if self.place.is_dir():
                raise
            raise Refusal(
                f"{self.place} has vanished while the study was running. Bring it back, if it was moved or unmounted, and run the same "
                "command again: what is finished in it is kept."
            ) from None


class ObjectStore:
    """Results at an address of fsspec."""

    owned = False

    def __init__(self, address: str) -> None:
        self.address = address.rstrip("/")
        self.shared = not self.address.startswith("memory:")
        self._found: tuple[Any, str] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"address": self.address, "shared": self.shared, "_found": None}  # each process opens its own connection

    def names(self, folder: str) -> list[str]:
        with self._failures():
            files, root = self._files
            files.invalidate_cache()
            return sorted(path.rpartition("/")[2] for path in files.find(f"{root}/{folder}"))

    def read(self, name: str) -> bytes | None:
        with self._failures():
            files, root = self._files
            try:
                return files.cat_file(f"{root}/{name}")
            except FileNotFoundError:
                return None

    def create(self, name: str, content: bytes) -> bool:
        with self._failures():
            files, root = self._files
            try:
                files.pipe_file(f"{root}/{name}", content, mode="create")
            except FileExistsError:
                return False
            return True

    def replace(self, name: str, content: bytes) -> None:
        with self._failures():
            files, root = self._files
            files.pipe_file(f"{root}/{name}", content)

    def remove(self, name: str) -> None:
        with self._failures():
            files, root = self._files
            if files.exists(f"{root}/{name}"):
                files.rm_file(f"{root}/{name}")

    @contextmanager
    def running(self) -> Iterator[str]:
        others = self.names("runners")
        own = f"runners/{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self.create(own, b"{}")
        try:
            yield f"{others[0]} writes to {self.address} too, or was killed there: every unit is stored once." if others else ""
        finally:
            self.remove(own)

    @property
    def _files(self) -> tuple[Any, str]:
        """The file system and the path in it; opened at first use."""
        if self._found is None:
            import fsspec

            files, path = fsspec.url_to_fs(self.address)
            self._found = files, path.rstrip("/")
        return self._found

    @contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except Refusal:
            raise
        except ImportError as error:
            raise Refusal(f"{self.address} needs a package that is not installed: {reason(error)}.") from None
        except Exception as error:  # every kind of store has its own
            raise Refusal(
                f"{self.address} cannot be read or written ({reason(error)}). Check the address and who may write there, and run the same "
                "command again: what is finished is kept."
            ) from error
