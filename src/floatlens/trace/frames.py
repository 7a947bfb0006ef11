"""From what a tap saw in one forward to the arrays of one step of one sample.

A forward counts positions over its batch: caches come first, short texts are padded. A trace counts over each sample's own text. Everything is moved
from the one to the other here, and heads are averaged where only layers are kept.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import xarray as xr

from floatlens.errors import BrokenPromise
from floatlens.trace.schema import COUNTS, VARIABLES, Detail

Arrays = dict[str, tuple[tuple[str, ...], np.ndarray]]
"""Names of the axes and values, by variable."""


@dataclass(frozen=True)
class Place:
    """Where a sample's text lies in a forward: which of its rows in the batch, and how positions are counted."""

    row: int  # of the batch
    offset: int  # padding before the text
    past: int  # position, in the forward's count, of its first query
    width: int  # positions of the forward, cached ones included; keys behind them were appended by an edit
    length: int  # of the sample's text


def attention_arrays(seen: xr.Dataset, place: Place, detail: Detail, *, counts_per_layer: bool, counts_per_head: bool) -> Arrays:
    """The arrays of a step, for the groups in `seen`, on the sample's own axes."""
    arrays: Arrays = {}
    for kind, names in VARIABLES.items():
        if kind == "top_keys" or not detail.keeps(kind):
            continue
        for name in names:
            if name in seen:
                per_head = detail.per_head(kind) if name not in COUNTS else counts_per_head
                dims, array = _own_axes(_by_head(name, seen, place.row, per_head, counts_per_layer), place)
                arrays[name] = (dims, _out_of_sight(array, place) if name.startswith(("mass", "visible")) else array)
    if "pattern" in seen:
        arrays["pattern"] = _own_axes(seen["pattern"].variable.isel(sample=place.row), place)
    return arrays


def _by_head(name: str, seen: xr.Dataset, row: int, per_head: bool, per_layer: bool) -> xr.Variable:
    """One sample of a variable, per head or averaged; counts without a layer axis where all layers are alike."""
    values = seen[name].variable.isel(sample=row)
    if name in COUNTS and not per_layer:
        first, last = values.isel(layer=0), values.isel(layer=-1)
        if not np.array_equal(first.values, last.values, equal_nan=True):
            raise BrokenPromise(f"The layers of this model see different keys ({name} differs), though its config says they do not.")
        values = first
    if per_head and "head" not in values.dims:
        heads = seen.sizes["head"] if "head" in seen.sizes else int(seen["heads"].max())
        dims = ("layer", "head", *(dim for dim in values.dims if dim != "layer"))
        values = values.set_dims({"head": heads, **values.sizes}).transpose(*dims)
    elif not per_head and "head" in values.dims:
        axis = values.dims.index("head")
        values = xr.Variable([dim for dim in values.dims if dim != "head"], mean_over_heads(values.values, axis))
    return values


def _out_of_sight(array: np.ndarray, place: Place) -> np.ndarray:
    """Keys that a sliding-window cache has forgotten exist, and nobody sees them: 0, not NaN."""
    there = np.arange(array.shape[-1]) < place.width - place.offset
    row_exists = ~np.isnan(array).all(axis=-1, keepdims=True)
    return np.where(np.isnan(array) & there & row_exists, np.float32(0), array)


def mean_over_heads(array: np.ndarray, axis: int) -> np.ndarray:
    """The mean over the heads that exist; NaN where none does."""
    there = ~np.isnan(array)
    with np.errstate(invalid="ignore"):
        return np.where(there, array, 0).sum(axis) / there.sum(axis, dtype=array.dtype)


def _own_axes(values: xr.Variable, place: Place) -> tuple[tuple[str, ...], np.ndarray]:
    array = values.values
    for axis, name in enumerate(values.dims):
        if name == "key":
            array = shifted(array[..., : place.width], axis, place.offset, place.length)  # the key axis is always the last
        elif name == "query":
            array = shifted(array, axis, place.offset - place.past, place.length)
    return tuple(map(str, values.dims)), np.array(array)  # a copy: set_dims makes views that repeat one value


def shifted(array: np.ndarray, axis: int, first: int, length: int) -> np.ndarray:
    """Along an axis, the `length` entries from `first` on; what lies outside the array is NaN.

    Examples
    --------
    >>> shifted(np.array([1.0, 2.0, 3.0]), 0, -1, 3).tolist()
    [nan, 1.0, 2.0]
    """
    if first == 0 and array.shape[axis] == length:
        return array
    shape = list(array.shape)
    shape[axis] = length
    result = np.full(shape, np.nan, dtype=array.dtype)
    begin, stop = max(first, 0), min(first + length, array.shape[axis])
    if begin < stop:
        where: list[slice] = [slice(None)] * array.ndim
        there = list(where)
        where[axis], there[axis] = slice(begin, stop), slice(begin - first, stop - first)
        result[tuple(there)] = array[tuple(where)]
    return result


def join_groups(parts: list[tuple[tuple[str, ...], Arrays]], groups: tuple[str, ...]) -> Arrays:
    """Arrays of several sets of groups as one, the group axis in this order. What has no group axis comes from the first part that has it."""
    arrays: Arrays = {}
    names = list(dict.fromkeys(name for _, part in parts for name in part))
    for name in names:
        having = [(own, part[name]) for own, part in parts if name in part]
        dims, first = having[0][1]
        if "group" not in dims:
            arrays[name] = (dims, first)
            continue
        axis = dims.index("group")
        by_name: Mapping[str, np.ndarray] = {
            group: array.take(at, axis) for own, (_, array) in having for at, group in enumerate(own) if group in groups
        }
        arrays[name] = (dims, np.stack([by_name[group] for group in groups], axis=axis))
    return arrays
