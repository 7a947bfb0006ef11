"""Write a page group: Zarr v3, chunked by step, gzip, into a folder or into memory.

Zarr's own writer stamps the time into gzip and takes milliseconds per chunk; a page has thousands. The format is simple enough to write
directly: `zarr.json` for each group and array, and one file per chunk, little-endian in C order. Same data, same bytes; zarr reads it back
in the tests.

Decided here: a chunk holds as many steps as fit into 64 KiB, and at least one, so that small runs are not thousands of tiny files.
"""

import gzip
import itertools
import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from floatlens.report.page.schema import ARRAYS, Quantised

CHUNK = 1 << 16  # bytes before compression
LEVEL = 6


class Sink(Protocol):
    """Takes the files of a page group."""

    def put(self, key: str, content: bytes) -> None:
        """Store a file under its path in the group."""


class InMemory:
    """Files by path."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    def put(self, key: str, content: bytes) -> None:
        self.files[key] = content

    @property
    def bytes(self) -> int:
        return sum(map(len, self.files.values()))


class InFolder:
    """Files below a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, key: str, content: bytes) -> None:
        file = self.folder / key
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)


def write_group(sink: Sink, path: str, attributes: Mapping[str, Any]) -> None:
    """Write the metadata of a group.

    Examples
    --------
    >>> sink = InMemory()
    >>> write_group(sink, "", {"floatlens": {"format": "page"}})
    >>> json.loads(sink.files["zarr.json"])["node_type"]
    'group'
    """
    document = {"zarr_format": 3, "node_type": "group", "attributes": _without_nan(attributes)}
    sink.put(_below(path, "zarr.json"), _json(document))


def write_array(sink: Sink, path: str, name: str, values: np.ndarray, quantised: Quantised | None = None, *, packed: bool = True) -> None:
    """Write an array of a sample, with the axes that the format promises for its name. `packed`: with gzip.

    Examples
    --------
    >>> sink = InMemory()
    >>> write_array(sink, "runs/0/0", "commits", np.array([1, 0, 2]))
    >>> sorted(sink.files)
    ['runs/0/0/commits/c/0', 'runs/0/0/commits/zarr.json']
    """
    axes, dtype = ARRAYS[name]
    stored = np.ascontiguousarray(values, dtype="uint8" if quantised else dtype)
    if stored.ndim != len(axes):
        raise ValueError(f"{name} has {stored.ndim} axes and should have {', '.join(axes)}")
    chunk = chunk_shape(stored.shape, stored.itemsize)
    floating = stored.dtype.kind == "f"
    codecs: list[dict[str, Any]] = [{"name": "bytes"} if stored.itemsize == 1 else {"name": "bytes", "configuration": {"endian": "little"}}]
    if packed:
        codecs.append({"name": "gzip", "configuration": {"level": LEVEL}})
    document = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": list(stored.shape),
        "data_type": stored.dtype.name,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(chunk)}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": "NaN" if floating else 0,
        "codecs": codecs,
        "dimension_names": list(axes),
        "attributes": {"quantised": asdict(quantised)} if quantised else {},
    }
    sink.put(_below(path, name, "zarr.json"), _json(document))
    fill = np.nan if floating else 0
    for place in itertools.product(*(range(math.ceil(size / step)) for size, step in zip(stored.shape, chunk, strict=True))):
        piece = stored[tuple(slice(at * step, (at + 1) * step) for at, step in zip(place, chunk, strict=True))]
        if piece.shape != chunk:  # the last one: Zarr's chunks are all of one size
            padded = np.full(chunk, fill, dtype=stored.dtype)
            padded[tuple(map(slice, piece.shape))] = piece
            piece = padded
        raw = np.ascontiguousarray(piece, dtype=piece.dtype.newbyteorder("<")).tobytes()
        content = gzip.compress(raw, compresslevel=LEVEL, mtime=0) if packed else raw
        sink.put(_below(path, name, "c", *map(str, place)), content)


def chunk_shape(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """How many of the first axis go into a chunk; everything of the others.

    Examples
    --------
    >>> chunk_shape((32, 32, 3, 512), 4), chunk_shape((12, 6, 3, 33), 4)
    ((1, 32, 3, 512), (12, 6, 3, 33))
    """
    of_one = max(1, math.prod(shape[1:]) * itemsize)
    return (max(1, min(shape[0], CHUNK // of_one)), *(max(1, size) for size in shape[1:]))


def _below(*parts: str) -> str:
    return "/".join(part for part in parts if part)


def _json(document: Any) -> bytes:
    # ASCII only: halves of surrogate pairs, which some tokens are, have no other encoding
    return json.dumps(document, allow_nan=False, separators=(",", ":")).encode("ascii")


def _without_nan(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _without_nan(own) for name, own in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(own) for own in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
