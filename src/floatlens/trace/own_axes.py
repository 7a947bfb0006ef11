"""From the axes of a forward to those of a sample.

A forward counts positions over its batch: caches come first, short texts are padded. A trace counts over each sample's own text.
Everything is moved from the one to the other here, and heads are averaged where only layers are kept. Arrays may begin with a step axis:
steps whose texts lie alike are moved together (`together`), because each operator of numpy costs more than its numbers do.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from floatlens.capture.records import StepArrays
from floatlens.errors import BrokenPromise
from floatlens.trace.schema import APPENDED, COUNTS, VARIABLES, Arrays, Detail


@dataclass(frozen=True)
class Place:
    """Where a sample's text lies in a forward: which of its rows in the batch, and how positions are counted."""

    row: int  # of the batch
    offset: int  # padding before the text
    past: int  # position, in the forward's count, of its first query
    width: int  # positions of the forward, cached ones included; keys behind them were appended by an edit
    length: int  # of the sample's text


def attention_arrays(seen: StepArrays, place: Place, detail: Detail, *, counts_per_layer: bool, counts_per_head: bool) -> Arrays:
    """The arrays of a step, for the groups in `seen`, on the sample's own axes."""
    arrays: Arrays = {}
    for kind, names in VARIABLES.items():
        if kind == "top_keys" or not detail.keeps(kind):
            continue
        for name in names:
            if name in seen.arrays:
                per_head = detail.per_head(kind) if name not in COUNTS else counts_per_head
                per_layer = counts_per_layer or name not in COUNTS
                dims, array = _own_axes(*_by_head(name, seen, place.row, per_head, per_layer), place)
                if seen.has_forgotten and name.startswith(("mass", "visible")):
                    array = _out_of_sight(array, place)
                arrays[name] = (dims, array)
    if "pattern" in seen.arrays:
        arrays["pattern"] = _own_axes(*_of_sample(*seen.arrays["pattern"], place.row), place)
    return arrays


def together(steps: Sequence[StepArrays]) -> StepArrays:
    """Steps with arrays of the same shapes as one, whose arrays begin with a step axis. Favourite keys are left out."""
    arrays = {
        name: (("step", *axes), np.stack([step.arrays[name][1] for step in steps]))
        for name, (axes, _) in steps[0].arrays.items()
        if not name.startswith("top_")
    }
    return replace(steps[0], arrays=arrays)


def alike(one: StepArrays, other: StepArrays) -> bool:
    """Whether the arrays of two steps are `together` one array each."""
    shapes, others = (
        {name: array.shape for name, (_, array) in step.arrays.items() if not name.startswith("top_")} for step in (one, other)
    )
    return shapes == others


def _of_sample(axes: tuple[str, ...], array: np.ndarray, row: int) -> tuple[tuple[str, ...], np.ndarray]:
    at = axes.index("sample")
    return (*axes[:at], *axes[at + 1 :]), array[(slice(None),) * at + (row,)]


def _by_head(name: str, seen: StepArrays, row: int, per_head: bool, per_layer: bool) -> tuple[tuple[str, ...], np.ndarray]:
    """One sample of a variable, per head or averaged; counts without a layer axis where all layers are alike."""
    dims, array = _of_sample(*seen.arrays[name], row)
    if per_layer and "layer" not in dims:
        dims, array = _spelled_out(dims, array, "layer", int(dims[0] == "step"), len(seen.layers))
    elif not per_layer and "layer" in dims:
        axis = dims.index("layer")
        first, last = (array[(slice(None),) * axis + (layer,)] for layer in (0, -1))
        if not np.array_equal(first, last, equal_nan=True):
            raise BrokenPromise(f"The layers of this model see different keys ({name} differs), though its config says they do not.")
        dims, array = (*dims[:axis], *dims[axis + 1 :]), first
    if per_head and "head" not in dims:
        return _spelled_out(dims, array, "head", dims.index("layer") + 1, max(seen.heads))
    if not per_head and "head" in dims:
        axis = dims.index("head")
        return (*dims[:axis], *dims[axis + 1 :]), mean_over_heads(array, axis)
    return dims, array


def _spelled_out(dims: tuple[str, ...], array: np.ndarray, name: str, axis: int, size: int) -> tuple[tuple[str, ...], np.ndarray]:
    """An array with one more axis, along which it is the same."""
    shape = (*array.shape[:axis], size, *array.shape[axis:])
    return (*dims[:axis], name, *dims[axis:]), np.broadcast_to(np.expand_dims(array, axis), shape)


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


def _own_axes(dims: tuple[str, ...], array: np.ndarray, place: Place) -> tuple[tuple[str, ...], np.ndarray]:
    for axis, name in enumerate(dims):
        if name == "key":
            array = shifted(array[..., : place.width], axis, place.offset, place.length)  # the key axis is always the last
        elif name == "query":
            array = shifted(array, axis, place.offset - place.past, place.length)
    return dims, np.ascontiguousarray(array)


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
    """Arrays of several sets of groups as one, with the group axis in this order.

    What has no group axis comes from the first part that has it.
    """
    arrays: Arrays = {}
    names = list(dict.fromkeys(name for _, part in parts for name in part))
    for name in names:
        having = [(own, part[name]) for own, part in parts if name in part]
        dims, first = having[0][1]
        if "group" not in dims:
            arrays[name] = (dims, first)
            continue
        axis = dims.index("group")
        if tuple(group for own, _ in having for group in own) == groups:
            arrays[name] = (dims, np.concatenate([array for _, (_, array) in having], axis=axis) if len(having) > 1 else first)
            continue
        by_name: Mapping[str, np.ndarray] = {
            group: array.take(index, axis) for own, (_, array) in having for index, group in enumerate(own) if group in groups
        }
        arrays[name] = (dims, np.stack([by_name[group] for group in groups], axis=axis))
    return arrays


@dataclass(eq=False)
class Favourites:
    """Top keys of the rows that filled each position of a sample, by layer and head: the last commit of a position stands."""

    length: int
    ranks: int
    arrays: dict[str, np.ndarray] = field(default_factory=dict)

    def add(self, seen: StepArrays, row: int, positions: Sequence[int], offset: int, width: int) -> None:
        """Row `row` of the batch has filled these positions, in the order of the chosen rows; keys from `width` on are an edit's."""
        if not self.arrays:
            shape = (len(seen.layers), max(seen.heads), self.length, self.ranks)
            self.arrays = {
                "top_key": np.full(shape, -1, np.int32),
                "top_weight": np.full(shape, np.nan, np.float32),
                "top_retained": np.full(shape[:-1], np.nan, np.float32),
            }
        if not len(positions):
            return
        for name, array in self.arrays.items():
            of_rows = seen.arrays[name][1][:, row, :, : len(positions)]
            if name == "top_key":
                of_rows = np.where(of_rows >= width, APPENDED, np.where(of_rows >= 0, of_rows - offset, -1))
            array[:, :, list(positions)] = of_rows

    def labelled(self) -> Arrays:
        dims = ("layer", "head", "position", "rank")
        return {name: (dims[: array.ndim], array) for name, array in self.arrays.items()}
