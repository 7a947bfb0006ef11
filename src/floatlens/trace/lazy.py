"""Samples of different lengths as one array with a leading sample axis, read only where it is looked at.

Each sample has an array of its own size, in memory or on disk. Together they are as large as the largest; what does not exist is NaN (-1 in integers).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from xarray.backends import BackendArray
from xarray.core import indexing


class RaggedArray(BackendArray):
    """Arrays of several samples, padded on demand. An array is anything with `shape`, `dtype` and numpy or zarr indexing."""

    def __init__(self, arrays: Sequence[Any], fill: Any) -> None:
        self.arrays, self.fill = arrays, fill
        self.shape = (len(arrays), *np.max([array.shape for array in arrays], axis=0).astype(int).tolist())
        self.dtype = np.dtype(arrays[0].dtype)

    def __getitem__(self, key: Any) -> Any:
        return indexing.explicit_indexing_adapter(key, self.shape, indexing.IndexingSupport.OUTER, self._read)

    def _read(self, key: tuple[Any, ...]) -> np.ndarray:
        wanted = [np.atleast_1d(np.arange(size)[part]) for part, size in zip(key, self.shape, strict=True)]
        result = np.full([len(part) for part in wanted], self.fill, dtype=self.dtype)
        for at, sample in enumerate(wanted[0]):
            array = self.arrays[sample]
            there = [part < size for part, size in zip(wanted[1:], array.shape, strict=True)]
            if all(part.any() for part in there):
                source = tuple(_simplest(part[exists]) for part, exists in zip(wanted[1:], there, strict=True))
                values = (
                    array.oindex[source]
                    if hasattr(array, "oindex")
                    else array[np.ix_(*map(_as_indices(array), source, range(len(source))))]
                )
                places = [_simplest(np.flatnonzero(exists)) for exists in there]
                all_slices = all(isinstance(part, slice) for part in places)
                result[(at, *places) if all_slices else (at, *np.ix_(*(np.flatnonzero(exists) for exists in there)))] = values
        squeezed = tuple(axis for axis, part in enumerate(key) if isinstance(part, int | np.integer))
        return result.squeeze(axis=squeezed)


def _simplest(indices: np.ndarray) -> slice | np.ndarray:
    """A slice where the indices are one: stores read those best."""
    if len(indices) == 1 or bool((np.diff(indices) == 1).all()):
        return slice(int(indices[0]), int(indices[-1]) + 1)
    return indices


def _as_indices(array: Any) -> Any:
    return lambda part, axis: np.arange(array.shape[axis])[part]
