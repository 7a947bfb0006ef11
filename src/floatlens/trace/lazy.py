"""Samples of different lengths as one array with a leading sample axis, read only where it is looked at.

Each sample has an array of its own size, in memory or on disk. Together they are as large as the largest; what does not exist is NaN (-1 in integers).
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from xarray.backends import BackendArray
from xarray.core import indexing

from floatlens.trace.integrity import refuse_more_than_memory


class RaggedArray(BackendArray):
    """Arrays of several samples, padded on demand. An array is anything with `shape`, `dtype` and numpy or zarr indexing."""

    def __init__(self, arrays: Sequence[Any], fill: Any) -> None:
        self.arrays, self.fill = arrays, fill
        self.shape = (len(arrays), *np.max([array.shape for array in arrays], axis=0).astype(int).tolist())
        self.dtype = np.dtype(arrays[0].dtype)

    def __getitem__(self, key: Any) -> Any:
        return indexing.explicit_indexing_adapter(key, self.shape, indexing.IndexingSupport.OUTER, self._read)

    def _read(self, key: tuple[Any, ...]) -> np.ndarray:
        refuse_more_than_memory(self._count(key) * self.dtype.itemsize, "this part of the trace")
        wanted = [np.atleast_1d(np.arange(size)[part]) for part, size in zip(key, self.shape, strict=True)]
        exists = [[part < size for part, size in zip(wanted[1:], self.arrays[sample].shape, strict=True)] for sample in wanted[0]]
        if len(exists) == 1 and all(part.all() for part in exists[0]):  # nothing to pad
            result = self._part(wanted[0][0], wanted[1:])[None]
        else:
            result = np.full([len(part) for part in wanted], self.fill, dtype=self.dtype)
            for at, (sample, there) in enumerate(zip(wanted[0], exists, strict=True)):
                if all(part.any() for part in there):
                    inside = [part[is_there] for part, is_there in zip(wanted[1:], there, strict=True)]
                    result[(at, *np.ix_(*map(np.flatnonzero, there)))] = self._part(sample, inside)
        squeezed = tuple(axis for axis, part in enumerate(key) if isinstance(part, int | np.integer))
        return result.squeeze(axis=squeezed)

    def _count(self, key: tuple[Any, ...]) -> int:
        """How many numbers are asked for; at least as many as the longest axis has, which is counted through."""
        counts = [len(range(size)[part]) if isinstance(part, slice) else np.size(part) for part, size in zip(key, self.shape, strict=True)]
        return max(math.prod(counts), *self.shape)

    def _part(self, sample: int, wanted: Sequence[np.ndarray]) -> np.ndarray:
        """These indices of one sample's array."""
        array = self.arrays[sample]
        source = tuple(map(_simplest, wanted))
        return array.oindex[source] if hasattr(array, "oindex") else array[np.ix_(*map(_as_indices(array), source, range(len(source))))]


def _simplest(indices: np.ndarray) -> slice | np.ndarray:
    """A slice where the indices are one: stores read those best."""
    if len(indices) == 1 or bool((np.diff(indices) == 1).all()):
        return slice(int(indices[0]), int(indices[-1]) + 1)
    return indices


def _as_indices(array: Any) -> Any:
    return lambda part, axis: np.arange(array.shape[axis])[part]
