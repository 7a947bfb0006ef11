"""Where the arrays of a sample go while a run goes on: memory, or a Zarr group on disk, shard by shard.

On disk a trace is written under a temporary name beside its own and renamed when it is whole, so that what bears the name is complete.
"""

import contextlib
import os
import shutil
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import zarr
from zarr.codecs import BloscCodec, Crc32cCodec
from zarr.errors import ZarrUserWarning

from floatlens.errors import Refusal
from floatlens.folders import MANIFEST, write_manifest
from floatlens.trace.frames import Arrays
from floatlens.trace.integrity import checksums_of
from floatlens.trace.opening import CHECKSUMS, MARK
from floatlens.trace.schema import STEPS_PER_SHARD

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

    def __init__(self, group: zarr.Group) -> None:
        self._group = group
        self._parts: list[Arrays] = []
        self._waiting = 0
        self._growing: dict[str, zarr.Array] = {}  # kept open: one that is opened again no longer writes empty chunks

    def append(self, steps: Arrays) -> None:
        self._parts.append(steps)
        self._waiting += len(next(iter(steps.values()))[1])
        while self._waiting >= STEPS_PER_SHARD:
            whole = _joined(self._parts)
            self._write({name: (dims, array[:STEPS_PER_SHARD]) for name, (dims, array) in whole.items()})
            rest = {name: (dims, array[STEPS_PER_SHARD:]) for name, (dims, array) in whole.items()}
            self._waiting -= STEPS_PER_SHARD
            self._parts = [rest] if self._waiting else []

    def finish(self, arrays: Arrays, attributes: Mapping[str, Any]) -> None:
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
    """A trace being written: samples under a temporary name, then the whole under its own."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        refuse_taken(path)
        self.path = Path(path).expanduser()
        self._complete = False
        self._temporary = self.path.with_name(f".{self.path.name}.writing-{os.getpid()}")
        shutil.rmtree(self._temporary, ignore_errors=True)
        self._root = zarr.open_group(self._temporary, mode="w", zarr_format=3)

    def sample(self, number: int) -> SampleOnDisk:
        return SampleOnDisk(self._root.create_group(f"samples/{number:05d}"))

    def finish(self, attributes: Mapping[str, Any]) -> None:
        self._root.attrs.update({"floatlens": dict(attributes), MARK: MANIFEST})
        with warnings.catch_warnings():  # readers that do not know consolidated metadata read the single files
            warnings.simplefilter("ignore", ZarrUserWarning)
            zarr.consolidate_metadata(self._temporary, zarr_format=3)
        write_manifest(self._temporary, "floatlens trace")
        self._complete = True
        try:
            self._temporary.rename(self.path)
        except OSError as error:
            raise Refusal(f"The trace is complete in {self._temporary} but cannot be renamed to {self.path}: {error}.") from None

    def abandon(self) -> None:
        """Leave nothing half-written behind. (What is whole but could not be renamed stays.)"""
        if self._complete:
            return
        with contextlib.suppress(OSError):
            shutil.rmtree(self._temporary)


def refuse_taken(path: str | os.PathLike[str]) -> None:
    """Refuse a place where a trace cannot be written."""
    if "://" in os.fspath(path):
        raise Refusal(
            f"A trace is written to a local folder; copy it to {path} afterwards. (It is read from there directly: fl.open_trace.)"
        )
    path = Path(path).expanduser()
    if path.exists():
        raise Refusal(f"{path} exists already; choose another name or remove it. A trace is never overwritten.")
    if not path.absolute().parent.is_dir():
        raise Refusal(f"There is no folder {path.parent} to write {path.name} into.")


def _joined(parts: list[Arrays]) -> Arrays:
    if not parts:
        return {}
    return {
        name: (dims, np.concatenate([part[name][1] for part in parts]) if len(parts) > 1 else array)
        for name, (dims, array) in parts[0].items()
    }


def _fill(dtype: np.dtype) -> Any:
    return np.nan if dtype.kind == "f" else False if dtype.kind == "b" else -1
