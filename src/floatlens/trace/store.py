"""Where the arrays of a sample go during a run: memory, or a Zarr group on disk, shard by shard.

On disk a trace is written by `floatlens.folders`: beside its place, and renamed when it is whole, so that what bears the name is complete.
"""

import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import zarr
from zarr.codecs import BloscCodec, Crc32cCodec
from zarr.errors import ZarrUserWarning

from floatlens.folders import MANIFEST, UnfinishedFolder, disk_failures
from floatlens.trace.integrity import checksums_of
from floatlens.trace.schema import CHECKSUMS, MARK, STEPS_PER_SHARD, Arrays

WRITTEN_BY = "floatlens trace"
LARGE_STEP = 1 << 20  # bytes: arrays without a layer axis whose steps are larger are chunked by step
_COMPRESSION = BloscCodec(cname="zstd", clevel=1, shuffle="shuffle")


class SampleStore(Protocol):
    """Takes the steps of one sample in order, then what has no step axis."""

    def append(self, steps: Arrays) -> None:
        """Arrays with a leading step axis."""

    def finish(self, arrays: Arrays, attributes: Mapping[str, Any]) -> None:
        """Arrays without a step axis; the sample is then complete."""


class SampleInMemory:
    """Keeps everything."""

    def __init__(self) -> None:
        self._parts: list[Arrays] = []
        self.arrays: Arrays = {}
        self.attributes: dict[str, Any] = {}

    def append(self, steps: Arrays) -> None:
        self._parts.append(steps)

    def finish(self, arrays: Arrays, attributes: Mapping[str, Any]) -> None:
        self.arrays = {**_joined(self._parts), **arrays}
        self.attributes = dict(attributes)
        self._parts = []


class SampleOnDisk:
    """Writes a shard whenever it is full."""

    def __init__(self, group: zarr.Group, place: Path) -> None:
        self._group = group
        self._place = place  # where the trace goes, for the message if the disk is full
        self._parts: list[Arrays] = []
        self._waiting = 0
        self._growing: dict[str, zarr.Array] = {}  # kept open: one that is opened again no longer writes empty chunks

    def append(self, steps: Arrays) -> None:
        self._parts.append(steps)
        self._waiting += len(next(iter(steps.values()))[1])
        while self._waiting >= STEPS_PER_SHARD:
            whole = _joined(self._parts)
            with disk_failures(self._place):
                self._write({name: (dims, array[:STEPS_PER_SHARD]) for name, (dims, array) in whole.items()})
            rest = {name: (dims, array[STEPS_PER_SHARD:]) for name, (dims, array) in whole.items()}
            self._waiting -= STEPS_PER_SHARD
            self._parts = [rest] if self._waiting else []

    def finish(self, arrays: Arrays, attributes: Mapping[str, Any]) -> None:
        with disk_failures(self._place):
            if self._waiting:
                self._write(_joined(self._parts))
            self._parts, self._waiting = [], 0
            for name, (dims, array) in arrays.items():
                by_layer = tuple(1 if dim == "layer" else size for dim, size in zip(dims, array.shape, strict=True))
                self._create(name, dims, array, by_layer, array.shape)[...] = array
            self._group.attrs.update({**attributes, CHECKSUMS: checksums_of(self._group)})

    def _write(self, steps: Arrays) -> None:
        for name, (dims, array) in steps.items():
            if name in self._growing:
                stored = self._growing[name]
                before = stored.shape[0]
                stored.resize((before + len(array), *stored.shape[1:]))
                stored[before:] = array
                continue
            cut = "layer" if "layer" in dims else "step" if array[0].nbytes > LARGE_STEP else None
            chunk = tuple(1 if dim == cut else size for dim, size in zip(dims, array.shape, strict=True))
            self._growing[name] = self._create(name, dims, array, chunk, array.shape)
            self._growing[name][...] = array

    def _create(self, name: str, dims: tuple[str, ...], array: np.ndarray, chunk: tuple[int, ...], shard: tuple[int, ...]) -> zarr.Array:
        size = [max(1, edge) for edge in chunk]
        return self._group.create_array(
            name,
            shape=array.shape,
            dtype=array.dtype,
            chunks=tuple(size),
            shards=tuple(max(1, edge) for edge in shard),
            compressors=[_COMPRESSION, Crc32cCodec()],
            config={"write_empty_chunks": True},  # so that a chunk that is not there is damage, and never means "nothing here"
            dimension_names=dims,
            fill_value=_fill(array.dtype),
        )


class TraceFolder:
    """A trace being written: samples beside its place, then the whole under its own name."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._unfinished = UnfinishedFolder(path, WRITTEN_BY)
        self.path = Path(path).expanduser()
        try:
            with disk_failures(self._unfinished.place):
                self._root = zarr.open_group(self._unfinished.folder, mode="w", zarr_format=3)
        except BaseException:
            self.abandon()
            raise

    def sample(self, number: int) -> SampleOnDisk:
        with disk_failures(self._unfinished.place):
            return SampleOnDisk(self._root.create_group(f"samples/{number:05d}"), self._unfinished.place)

    def finish(self, attributes: Mapping[str, Any]) -> None:
        with disk_failures(self._unfinished.place):
            self._root.attrs.update({"floatlens": dict(attributes), MARK: MANIFEST})
            with warnings.catch_warnings():  # readers that do not know consolidated metadata read the single files
                warnings.simplefilter("ignore", ZarrUserWarning)
                zarr.consolidate_metadata(self._unfinished.folder, zarr_format=3)
            self._unfinished.publish()

    def abandon(self) -> None:
        """Leave nothing half-written behind. Does nothing once the trace is finished."""
        self._unfinished.abandon()


def _joined(parts: list[Arrays]) -> Arrays:
    if not parts:
        return {}
    return {
        name: (dims, np.concatenate([part[name][1] for part in parts]) if len(parts) > 1 else array)
        for name, (dims, array) in parts[0].items()
    }


def _fill(dtype: np.dtype) -> Any:
    return np.nan if dtype.kind == "f" else False if dtype.kind == "b" else -1
