"""One file, written under a hidden name and renamed when it is whole; and the wait until a file or a folder is on the disk itself."""

import errno
import os
from pathlib import Path

from floatlens.folders.places import hidden_sibling


def write_whole(file: Path, content: bytes, *, sync: bool = True) -> None:
    """Write a file under a hidden name and rename it: it is there whole, or not at all. `sync`: it also survives a power cut.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> write_whole(folder / "greeting.txt", b"hello")
    >>> [(file.name, file.read_bytes()) for file in folder.iterdir()]
    [('greeting.txt', b'hello')]
    """
    hidden = hidden_sibling(file)
    try:
        hidden.write_bytes(content)
        if sync:
            sync_to_disk(hidden)
        os.replace(hidden, file)
    except BaseException as error:
        hidden.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:  # only opening a file says which
            error.filename = os.fspath(file)
        raise
    if sync:
        sync_to_disk(file.parent)


def is_half_written(file: Path) -> bool:
    """Whether a file is what a process that was killed was just writing (`write_whole`).

    Examples
    --------
    >>> is_half_written(Path("notes.txt"))
    False
    """
    return file.name.startswith(".") and file.name.endswith(".unfinished") and file.is_file() and not file.is_symlink()


def sync_to_disk(path: Path) -> None:
    """Wait until a file, or the list of a folder's files, is on the disk, where the file system can tell."""
    try:
        opened = os.open(path, os.O_RDONLY)
    except PermissionError:  # a folder that may be written but not listed
        return
    try:
        os.fsync(opened)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EROFS):
            raise
    finally:
        os.close(opened)


def sync_all_to_disk(folder: Path) -> None:
    """The same for a folder and all that is in it."""
    for parent, _, files in os.walk(folder):
        for name in files:
            sync_to_disk(Path(parent, name))
        sync_to_disk(Path(parent))
