"""`fl.verify`: read all of a trace, or of a folder with traces in it, and say what is broken.

Every file is compared with the SHA-256 in the manifest, every array with what the format promises, and every chunk is decoded. A folder
that `floatlens eval` or `floatlens demo` has written is compared with its own manifest, and then the traces in it. Files that floatlens
did not write are not damage and are skipped.
"""

import hashlib
import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path

from floatlens.errors import Refusal
from floatlens.folders import MANIFEST, Manifest, damage
from floatlens.folders.manifest import entries, is_sealed, parse_manifest
from floatlens.terminal import progress_bar
from floatlens.trace.integrity import Damage, Place, StoredArray, in_short
from floatlens.trace.trace import Examined, examine

UNPROTECTED = "It was written before traces had checksums: all of it can be read, but a changed number would not be noticed."


def verify(path: str | os.PathLike[str], *, progress: bool = False) -> list[str]:
    """Check everything that floatlens wrote into a folder: a trace, or the results of `floatlens eval` or `floatlens demo`.

    `path` is a folder; for a trace also an fsspec URL. Returns a sentence for each thing that is broken, naming the file or the array: none
    if all is well.

    Examples
    --------
    >>> from floatlens.folders import write_manifest
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "results.csv").write_text("1,2")
    >>> write_manifest(folder, "floatlens eval")
    >>> verify(folder)
    []
    >>> _ = (folder / "results.csv").write_text("1,3")
    >>> verify(folder)
    ['results.csv was changed since it was written: it has another SHA-256.']
    """
    if not os.fspath(path):
        raise Refusal("The name of the folder to verify is empty. Name a folder that floatlens has written.")
    place = Place(path)
    if is_trace(place):
        return _trace_faults(place, progress)
    if place.folder is None or not place.folder.is_dir():
        raise Refusal(f"There is nothing to verify at {place.text}; name a folder that floatlens has written.")
    return _folder_faults(place.folder, progress)


def is_trace(place: Place) -> bool:
    """Whether it should be one: it has the metadata of a trace, or the manifest of a trace that has lost them."""
    return place.bytes_of("zarr.json") is not None or (b'"zarr.json"' in (place.bytes_of(MANIFEST) or b""))


def is_protected(path: str | os.PathLike[str]) -> bool:
    """Whether a trace has checksums, or a folder a manifest; a folder without one is as protected as all traces in it."""
    place = Place(path)
    if place.bytes_of(MANIFEST) is not None or place.folder is None or is_trace(place):
        return place.bytes_of(MANIFEST) is not None
    traces = list(_traces_below(place.folder))
    return bool(traces) and all(map(is_protected, traces))


def _folder_faults(folder: Path, progress: bool) -> list[str]:
    traces = list(_traces_below(folder))
    has_manifest = Place(folder).bytes_of(MANIFEST) is not None
    if not has_manifest and not traces:
        raise Refusal(f"{folder} holds neither a trace nor a {MANIFEST}, so there is nothing to compare its files with.")
    faults: list[str] = []
    if has_manifest:
        manifest, faults = _manifest(Place(folder))
        if manifest is not None:
            surplus = tuple(f"{name} is not in the manifest" for name in entries(folder) if name not in manifest.files)
            faults += [fault for fault in damage(folder) if not fault.startswith(surplus)]
    for trace in traces:
        within = f"{trace.relative_to(folder).as_posix()}/"
        if not any(fault.startswith(within) for fault in faults):
            faults += [within + fault for fault in _trace_faults(Place(trace), progress)]
    return faults


def _traces_below(folder: Path) -> Iterator[Path]:
    for parent, folders, _ in os.walk(folder):
        if is_trace(Place(parent)) and Path(parent) != folder:
            folders.clear()
            if not _is_page_group(Path(parent)):  # what a page reads: the manifest above it lists every file
                yield Path(parent)
        folders.sort()


def _is_page_group(folder: Path) -> bool:
    try:
        return json.loads((folder / "zarr.json").read_bytes())["attributes"]["floatlens"]["format"] == "page"
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _trace_faults(place: Place, progress: bool) -> list[str]:
    """A sentence for each file that was changed; if there is none, for what is wrong with the metadata or cannot be read."""
    manifest, faults = _manifest(place)
    if manifest is not None:
        faults += _changed_files(place, manifest, progress)
    if faults:
        return faults
    try:
        examined = examine(place.text, look_at_files=False)
    except Damage as damaged:
        return [f"{damaged.fault}."]
    except Refusal as refusal:
        return [str(refusal)]
    return [f"{fault}." for fault in examined.faults] or list(_unreadable_arrays(examined, progress))


def _manifest(place: Place) -> tuple[Manifest | None, list[str]]:
    """The manifest, if there is one that can be read, and what is wrong with it."""
    content = place.bytes_of(MANIFEST)
    if content is None:
        return None, []
    try:
        text = content.decode()
        return parse_manifest(text), [] if is_sealed(text) else [f"{MANIFEST} was changed since it was written."]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None, [f"{MANIFEST} cannot be read, so the other files cannot be compared with it."]


def _changed_files(place: Place, manifest: Manifest, progress: bool) -> Iterator[str]:
    with progress_bar(len(manifest.files), f"Comparing the files of {place.text}", show=progress) as advance:
        for name, written in sorted(manifest.files.items()):
            try:
                size, digest = _size_and_digest(place, name)
                if size != written.bytes:
                    yield f"{name} has {size:,} bytes instead of {written.bytes:,}."
                elif digest != written.sha256:
                    yield f"{name} was changed since it was written: it has another SHA-256."
            except (FileNotFoundError, NotADirectoryError):
                yield f"{name} is missing."
            except (OSError, Refusal) as error:
                yield f"{name} cannot be read: {in_short(error)}."
            advance(1)


def _size_and_digest(place: Place, name: str) -> tuple[int, str]:
    if place.folder is not None:
        with (place.folder / name).open("rb") as opened:
            return os.fstat(opened.fileno()).st_size, hashlib.file_digest(opened, "sha256").hexdigest()
    content = place.bytes_of(name)
    if content is None:
        raise FileNotFoundError(name)
    return len(content), hashlib.sha256(content).hexdigest()


def _unreadable_arrays(examined: Examined, progress: bool) -> Iterator[str]:
    """Arrays that cannot be decoded, read one chunk after the other."""
    arrays = [array for arrays, _ in examined.samples for _, array in arrays.values()]
    with progress_bar(len(arrays), f"Reading {examined.place.text}", show=progress) as advance:
        for array in arrays:
            try:
                for chunk in _chunks(array):
                    array[chunk]
            except Damage as damaged:
                yield f"{damaged.fault}."
            advance(1)


def _chunks(array: StoredArray) -> Iterator[tuple[slice, ...]]:
    parts = [
        [slice(start, min(start + edge, size)) for start in range(0, size, edge)]
        for size, edge in zip(array.shape, array.chunks, strict=True)
    ]
    return itertools.product(*parts)
