"""Where the arrays of a sample go during a run: memory, or a Zarr group on disk, shard by shard.

On disk a trace is written by `floatlens.folders`: beside its place, and renamed when it is whole, so that what bears the name is complete.

Shards are written by a thread of their own, so that the loop goes on meanwhile; it waits only while more than `WAITING_BYTES` are to be
written. What goes wrong there is raised where the next shard is handed over, or where the trace is finished, and nothing is written after
it.
"""

import os
import threading
import warnings
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import zarr
from zarr.codecs import BloscCodec, Crc32cCodec
from zarr.errors import ZarrUserWarning

from floatlens.errors import Refusal
from floatlens.folders import MANIFEST, UnfinishedFolder, disk_failures
from floatlens.trace.integrity import checksums_of
from floatlens.trace.schema import CHECKSUMS, MARK, STEPS_PER_SHARD, Arrays

WRITTEN_BY = "floatlens trace"
WAITING_BYTES = 256 << 20  # of shards that wait to be written; one that is larger waits by itself
LARGE_STEP = 1 << 20  # bytes: arrays without a layer axis whose steps are larger are chunked by step
_COMPRESSION = BloscCodec(cname="lz4", clevel=5, shuffle="shuffle")  # reads a layer three times as fast as zstd, for 5 % more bytes


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


class Writing:
    """Does one job after the other in a thread of its own: `submit` them, then `finish`; or `stop`, which drops those that wait.

    Examples
    --------
    >>> writing, done = Writing(), []
    >>> for number in range(3):
    ...     writing.submit(lambda number=number: done.append(number), 100)
    >>> writing.finish()
    >>> done
    [0, 1, 2]
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._jobs: deque[tuple[Callable[[], None], int]] = deque()  # the first one is being done
        self._failure: BaseException | None = None
        self._thread: threading.Thread | None = None

    def submit(self, job: Callable[[], None], size: int) -> None:
        """Have a job done that holds so many bytes, after those before it. Waits while too many bytes do."""
        with self._changed:
            self._changed.wait_for(lambda: self._failure or not self._jobs or size + sum(held for _, held in self._jobs) <= WAITING_BYTES)
            self._raise_failure()
            self._jobs.append((job, size))
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="floatlens trace", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def finish(self) -> None:
        """Wait until everything is done."""
        with self._changed:
            self._changed.wait_for(lambda: self._failure or not self._jobs)
            self._raise_failure()
        self.stop()

    def stop(self) -> None:
        """Wait for the job that is being done, and do no other."""
        with self._changed:
            while len(self._jobs) > 1:
                self._jobs.pop()
            thread, self._thread = self._thread, None
            self._changed.notify_all()
        if thread is not None:
            thread.join()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _work(self) -> None:
        own = threading.current_thread()
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._jobs or self._thread is not own)
                if not self._jobs:
                    return
                job, _ = self._jobs[0]
            try:
                job()
            except BaseException as failure:  # raised where the loop is
                with self._changed:
                    self._failure = failure
                    self._jobs.clear()
                    self._changed.notify_all()
                return
            del job
            with self._changed:
                self._jobs.popleft()
                self._changed.notify_all()


class SampleOnDisk:
    """Has a shard written whenever it is full."""

    def __init__(self, make_group: Callable[[], zarr.Group], write: Callable[[Callable[[], None], int], None]) -> None:
        self._write_later = write
        self._parts: list[Arrays] = []
        self._waiting = 0
        self._growing: dict[str, zarr.Array] = {}  # kept open: one that is opened again no longer writes empty chunks
        self._group: zarr.Group
        write(lambda: setattr(self, "_group", make_group()), 0)

    def append(self, steps: Arrays) -> None:
        self._parts.append(steps)
        self._waiting += _steps_of(steps)
        while self._waiting >= STEPS_PER_SHARD:
            self._hand_over(STEPS_PER_SHARD)

    def finish(self, arrays: Arrays, attributes: Mapping[str, Any]) -> None:
        if self._waiting:
            self._hand_over(self._waiting)

        def write() -> None:
            for name, (dims, array) in arrays.items():
                by_layer = tuple(1 if dim == "layer" else size for dim, size in zip(dims, array.shape, strict=True))
                self._create(name, dims, array, by_layer, array.shape)[...] = array
            self._group.attrs.update({**attributes, CHECKSUMS: checksums_of(self._group)})

        self._write_later(write, _bytes_of([arrays]))

    def _hand_over(self, count: int) -> None:
        """Have the first `count` steps written."""
        now, rest = _divided(self._parts, count)
        self._parts, self._waiting = rest, self._waiting - count
        self._write_later(lambda: self._write(now), _bytes_of(now))

    def _write(self, parts: list[Arrays]) -> None:
        """Write steps, one variable after the other, so that only one at a time is there twice."""
        for name, (dims, _) in parts[0].items():
            arrays = [part[name][1] for part in parts]
            array = np.concatenate(arrays) if len(arrays) > 1 else arrays[0]
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
        self._writing = Writing()
        self._opened = -1
        self.path = Path(path).expanduser()
        try:
            with disk_failures(self._unfinished.place):
                self._root = zarr.open_group(self._unfinished.folder, mode="w", zarr_format=3)
                if hasattr(os, "O_DIRECTORY"):  # while it is open, no other folder gets its number
                    self._opened = os.open(self._unfinished.folder, os.O_RDONLY | os.O_DIRECTORY)
        except BaseException:
            self.abandon()
            raise

    def sample(self, number: int) -> SampleOnDisk:
        return SampleOnDisk(lambda: self._root.create_group(f"samples/{number:05d}"), self._write)

    def _write(self, job: Callable[[], None], size: int) -> None:
        """Have something written; a disk that fails is one sentence."""

        def write() -> None:
            with disk_failures(self._unfinished.place):
                self._refuse_vanished()
                try:
                    job()
                except Exception:
                    self._refuse_vanished()  # whatever a job makes of that
                    raise

        self._writing.submit(write, size)

    def _refuse_vanished(self) -> None:
        folder = self._unfinished.folder  # a shard that is being written makes its folder again, but that is another one
        if not folder.is_dir() or (self._opened >= 0 and not os.path.samestat(os.fstat(self._opened), folder.stat())):
            raise Refusal(
                f"{folder} has vanished while a trace was being written there, and what was in it is gone. Run the same command again."
            )

    def finish(self, attributes: Mapping[str, Any]) -> None:
        self._writing.finish()
        with disk_failures(self._unfinished.place):
            self._refuse_vanished()
            self._root.attrs.update({"floatlens": dict(attributes), MARK: MANIFEST})
            with warnings.catch_warnings():  # readers that do not know consolidated metadata read the single files
                warnings.simplefilter("ignore", ZarrUserWarning)
                zarr.consolidate_metadata(self._unfinished.folder, zarr_format=3)
            self._unfinished.publish()
        self.abandon()

    def abandon(self) -> None:
        """Leave nothing half-written behind. Does nothing once the trace is finished."""
        self._writing.stop()
        if self._opened >= 0:
            os.close(self._opened)
            self._opened = -1
        self._unfinished.abandon()


def _steps_of(part: Arrays) -> int:
    return len(next(iter(part.values()))[1])


def _bytes_of(parts: list[Arrays]) -> int:
    return sum(array.nbytes for part in parts for _, array in part.values())


def _divided(parts: list[Arrays], count: int) -> tuple[list[Arrays], list[Arrays]]:
    """The first `count` steps, and the others."""
    first: list[Arrays] = []
    for place, part in enumerate(parts):
        steps = _steps_of(part)
        if steps > count:
            inside = {name: (dims, array[:count]) for name, (dims, array) in part.items()}
            beyond = {name: (dims, array[count:]) for name, (dims, array) in part.items()}
            return [*first, *([inside] if count else [])], [beyond, *parts[place + 1 :]]
        first.append(part)
        count -= steps
    return first, []


def _joined(parts: list[Arrays]) -> Arrays:
    if not parts:
        return {}
    return {
        name: (dims, np.concatenate([part[name][1] for part in parts]) if len(parts) > 1 else array)
        for name, (dims, array) in parts[0].items()
    }


def _fill(dtype: np.dtype) -> Any:
    return np.nan if dtype.kind == "f" else False if dtype.kind == "b" else -1
