"""A trace notices damage: checksums of everything that is written are stored, and whatever is read is compared with them.

On disk, every chunk and the index of every shard end with their CRC-32C, which Zarr itself compares with the bytes before it. The
sample's attribute `checksums` repeats these for each shard, piece by piece, so that a piece in the wrong place is noticed too: a whole
shard of another array, layer or trace has valid checksums, but not these. The manifest holds the SHA-256 of the metadata, and so guards
`checksums`.

Reading compares CRCs only: the piece is read anyway, so this costs next to nothing. The SHA-256 of a shard takes longer than reading one
layer of it, so `floatlens verify` computes it and reading does not.

Refused: a file that is missing, shorter, or holds anything else. A missing file is never read as fill values.
"""

import hashlib
import itertools
import math
import os
from collections.abc import AsyncGenerator, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

import fsspec
import numpy as np
import psutil
import zarr
from zarr.abc.store import ByteRequest, OffsetByteRequest, RangeByteRequest, Store, SuffixByteRequest
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.storage import FsspecStore, LocalStore, WrapperStore

from floatlens.errors import BrokenPromise, Refusal
from floatlens.folders import MANIFEST, FileRecord

_CRC_BYTES = 4
_INDEX_ENTRY_BYTES = 16  # offset and length of a chunk, uint64 each
_NO_CHUNK = 2**64 - 1
_WORTH_ASKING = 1 << 28  # bytes: below this nobody asks how much memory is free

Pieces = list[tuple[int, int]]
"""The pieces of a shard in the order of the file: where each ends, and the CRC-32C it ends with."""


class Damage(Refusal):
    """A trace is not what was written: where it lies, and what is broken in it."""

    def __init__(self, place: str, fault: str) -> None:
        super().__init__(place, fault)
        self.place, self.fault = place, fault

    def __str__(self) -> str:
        return (
            f"{self.place} is damaged: {self.fault}. Copy or record the trace again; "
            f"`floatlens verify {self.place}` lists everything that is broken in it."
        )


def pieces_of(file: Path, chunks: int) -> Pieces:
    """Read off a shard that was just written where its chunks and its index end, and their checksums."""
    index_bytes = _INDEX_ENTRY_BYTES * chunks + _CRC_BYTES
    size = file.stat().st_size
    with file.open("rb") as opened:
        opened.seek(size - index_bytes)
        entries = np.frombuffer(opened.read(index_bytes - _CRC_BYTES), dtype="<u8").reshape(chunks, 2)
        ends = sorted((int(offset), int(offset + length)) for offset, length in entries if offset != _NO_CHUNK)
        pieces: Pieces = []
        for start, stop in [*ends, (size - index_bytes, size)]:
            if start != (pieces[-1][0] if pieces else 0):
                raise BrokenPromise(f"The chunks of {file} do not lie side by side.")
            opened.seek(stop - _CRC_BYTES)
            pieces.append((stop, int.from_bytes(opened.read(_CRC_BYTES), "little")))
    return pieces


def checksums_of(group: zarr.Group) -> dict[str, str]:
    """For each shard of a sample that was just written, by its path in the sample's folder: its pieces as text, `end:crc end:crc`."""
    assert isinstance(group.store, LocalStore)
    folder = group.store.root / group.path
    written: dict[str, str] = {}
    for name, array in sorted(group.arrays()):
        assert array.shards is not None
        chunks = math.prod(shard // chunk for shard, chunk in zip(array.shards, array.chunks, strict=True))
        files = sorted(file for file in (folder / name / "c").rglob("*") if file.is_file())
        if len(files) != math.prod(-(-size // shard) for size, shard in zip(array.shape, array.shards, strict=True)):
            raise BrokenPromise(f"Not every shard of {name} was written.")
        for file in files:
            pieces = pieces_of(file, chunks)
            written[file.relative_to(folder).as_posix()] = " ".join(f"{stop}:{crc:08x}" for stop, crc in pieces)
    return written


def parse_pieces(text: Any) -> Pieces | None:
    """The pieces of a shard from their text; None if it is not one."""
    try:
        pieces = [(int(stop), int(crc, 16)) for stop, crc in (piece.split(":") for piece in text.split(" "))]
    except (ValueError, AttributeError):
        return None
    ends = [0, *(stop for stop, _ in pieces)]
    return pieces if all(before + _CRC_BYTES <= after for before, after in itertools.pairwise(ends)) else None


class CheckedStore(WrapperStore[Store]):
    """The files of a trace, read only: hands out what was written, and refuses everything else. Without a manifest nothing is compared."""

    def __init__(self, store: Store, place: str, files: Mapping[str, FileRecord] | None = None) -> None:
        super().__init__(store)
        self.place, self.files = place, files
        self.pieces: dict[str, Pieces] = {}

    def _with_store(self, store: Store) -> "CheckedStore":
        same = CheckedStore(store, self.place, self.files)
        same.pieces = self.pieces
        return same

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        buffer = await self._store.get(key, prototype, byte_range)
        if self.files is None or (buffer is None and key not in self.files and "/c/" not in key):  # Zarr looks for files of other versions
            return buffer
        if key not in self.files:
            raise Damage(self.place, f"{key} is not in its {MANIFEST}")
        if buffer is None:
            raise Damage(self.place, f"{key} is missing")
        start, stop = _span(byte_range, self.files[key].bytes)
        ends = [0, *(end for end, _ in self.pieces.get(key, []))]
        if start not in ends or stop not in ends:  # metadata, or half a piece of a shard, which has no checksum: compare all of the file
            whole = buffer if byte_range is None else await self._store.get(key, prototype)
            if whole is None or hashlib.sha256(whole.to_bytes()).hexdigest() != self.files[key].sha256:
                raise Damage(self.place, f"{key} was changed since it was written")
            return whole[start:stop]
        if len(buffer) != stop - start:
            raise Damage(self.place, f"{key} is truncated")
        content = buffer.as_numpy_array()
        for end, crc in self.pieces.get(key, []):
            if start < end <= stop and int.from_bytes(content[end - start - _CRC_BYTES : end - start].tobytes(), "little") != crc:
                raise Damage(self.place, f"{key} was changed since it was written: a checksum in it is not the one that was written down")
        return buffer

    async def get_partial_values(self, prototype: BufferPrototype, key_ranges: Any) -> list[Buffer | None]:
        return [await self.get(key, prototype, byte_range) for key, byte_range in key_ranges]

    async def _get_many(self, requests: Any) -> AsyncGenerator[tuple[str, Buffer | None], None]:
        for key, prototype, byte_range in requests:
            yield key, await self.get(key, prototype, byte_range)


def _span(byte_range: ByteRequest | None, size: int) -> tuple[int, int]:
    if isinstance(byte_range, RangeByteRequest):
        return byte_range.start, byte_range.end
    if isinstance(byte_range, OffsetByteRequest):
        return byte_range.offset, size
    if isinstance(byte_range, SuffixByteRequest):
        return size - byte_range.suffix, size
    return 0, size


class StoredArray:
    """One array of a sample on disk, like a numpy array that is read as it is indexed. What cannot be read is a Refusal that names it."""

    def __init__(self, array: zarr.Array, place: str, sample: int, name: str) -> None:
        self._array, self._place, self._sample, self._name = array, place, sample, name
        self.shape, self.dtype = array.shape, np.dtype(array.dtype)
        self.chunks, self.shards = array.chunks, array.shards

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def oindex(self) -> "_ByAxis":
        """Indexing by axis, as in `numpy.ix_`."""
        return _ByAxis(self)

    def __getitem__(self, key: Any) -> np.ndarray:
        if key is Ellipsis:
            refuse_more_than_memory(self.nbytes, f"array {self._name} of sample {self._sample}")
        return self.read(self._array, key)

    def read(self, indexed: Any, key: Any) -> np.ndarray:
        """Index the array (or its `oindex`); whatever goes wrong becomes a Refusal of one sentence."""
        try:
            return np.asarray(indexed[key])
        except (Refusal, IndexError, MemoryError):
            raise
        except Exception as error:  # a decoder may raise anything when it is given damaged bytes
            raise Damage(self._place, f"array {self._name} of sample {self._sample} cannot be read ({in_short(error)})") from None


class _ByAxis:
    def __init__(self, stored: StoredArray) -> None:
        self._stored = stored

    def __getitem__(self, key: Any) -> np.ndarray:
        return self._stored.read(self._stored._array.oindex, key)


def refuse_more_than_memory(count: int, what: str) -> None:
    """Refuse to read what this machine cannot hold, before memory is asked for."""
    if count > _WORTH_ASKING and count > (free := psutil.virtual_memory().available):
        raise Refusal(
            f"Reading {what} takes {count / 1e9:,.1f} GB of memory, and {free / 1e9:.1f} GB are free. Read a part of it, e.g. one layer: "
            "trace.dataset.mass.isel(layer=0)."
        )


def in_short(error: BaseException) -> str:
    """The first line of what an exception says, without a stop; its name where it says nothing."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__


class Place:
    """Where a trace lies: a local folder or an fsspec URL."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.text = os.path.expanduser(os.fspath(path))
        self.folder = None if "://" in self.text else Path(self.text)

    def store(self) -> Store:
        """For Zarr, to read from."""
        if self.folder is not None:
            return LocalStore(self.folder, read_only=True)
        try:
            return FsspecStore.from_url(self.text, read_only=True)
        except Exception as error:  # fsspec passes on whatever its backends raise
            self._refuse(error)

    def bytes_of(self, name: str) -> bytes | None:
        """A small file of it; None if there is none."""
        try:
            if self.folder is not None:
                return (self.folder / name).read_bytes()
            system, path = fsspec.core.url_to_fs(self.text)
            return system.cat_file(f"{path.rstrip('/')}/{name}")
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None
        except Exception as error:  # as above
            self._refuse(error, name)

    def file_faults(self, files: Mapping[str, FileRecord]) -> Iterator[str]:
        """What a look at the folder shows: files that are gone or of another size, metadata that were changed.

        Nothing for a URL, where every look is a request.
        """
        if self.folder is None:
            return
        for name, written in files.items():
            try:
                size = os.stat(self.folder / name).st_size
                if size != written.bytes:
                    yield f"{name} has {size:,} bytes instead of {written.bytes:,}"
                elif name.endswith("zarr.json") and hashlib.sha256((self.folder / name).read_bytes()).hexdigest() != written.sha256:
                    yield f"{name} was changed since it was written"
            except (FileNotFoundError, NotADirectoryError):
                yield f"{name} is missing"
            except OSError as error:
                yield f"{name} cannot be read ({in_short(error)})"

    def _refuse(self, error: Exception, name: str = "") -> NoReturn:
        if isinstance(error, ImportError):
            raise Refusal(
                f"{self.text} cannot be opened: {in_short(error)}. Install what is missing into the environment of floatlens, or copy "
                "the trace to a local folder."
            ) from None
        raise Refusal(f"{name and f'{name} of '}{self.text} cannot be read: {in_short(error)}.") from None
