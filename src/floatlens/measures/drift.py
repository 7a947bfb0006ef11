"""Drift: whether the anchors of one step are those of the next, and those of one layer those of the next.

Two sets of anchors are compared on the keys that are measured in both. Where both are empty there is nothing to compare and the pair is left out (NaN); where one is empty they have
nothing in common (0); where no key is measured in both (no rows, no such step) nothing is known (NaN). Beside each number stands `no_memory`: what it would be on average if the same
numbers of anchors lay anywhere among the keys measured in both. It is computed exactly, not drawn.

Refused: anchors without the axis that is asked for, such as steps that were pooled.
"""

from dataclasses import dataclass

import numpy as np
import xarray as xr

from floatlens.errors import Refusal
from floatlens.measures.inputs import one_sample_at_a_time

NOT_MEASURED = "not measured at any step"
ONE_STEP = "one step"
NO_ANCHORS = "no anchors at any step"
NO_FIRST_ANCHORS = "no anchors at the first step"


@one_sample_at_a_time
def jaccard_along(anchors: xr.Dataset, axis: str = "step") -> xr.Dataset:
    """Jaccard of the anchors of neighbouring steps, or of neighbouring layers.

    Parameters
    ----------
    anchors
        What `find_anchors` returns.
    axis
        "step" or "layer".

    Returns
    -------
    xarray.Dataset
        `jaccard` and its null `no_memory`; the axis is one shorter and has the label of the first of each pair.

    Examples
    --------
    Key 1 is an anchor at all three steps, and key 2 at the last one.

    >>> anchor = xr.DataArray([[0, 1, 0], [0, 1, 0], [0, 1, 1]], dims=("step", "key")).astype(bool)
    >>> anchors = xr.Dataset({"anchor": anchor, "measured": xr.ones_like(anchor)})
    >>> jaccard_along(anchors)["jaccard"].values.tolist()
    [1.0, 0.5]
    >>> jaccard_along(anchors)["no_memory"].values.round(3).tolist()  # 1/3 of 1; 2/3 of 1/2
    [0.333, 0.333]
    """
    if axis not in ("step", "layer"):
        raise Refusal(f"Anchors do not drift along {axis!r}; choose 'step' or 'layer'.")
    refuse_without_axis(anchors, axis)
    compared = jaccard(*neighbours(anchors, axis))
    labels = {name: part.isel({axis: slice(None, -1)}) for name, part in anchors.coords.items() if axis in part.dims}
    return compared.assign_coords(labels)


@one_sample_at_a_time
def recall_of_first(anchors: xr.Dataset) -> xr.Dataset:
    """Share of the first step's anchors that are anchors at each step.

    The first step is the first at which the group is measured; anchors of it that are not measured at a later step do not count there.

    Returns
    -------
    xarray.Dataset
        `recall` by step; `no_memory`, the share if the step's anchors lay anywhere; `reason`, why there is none.

    Examples
    --------
    >>> anchor = xr.DataArray([[1, 1, 0, 0], [1, 0, 0, 0], [0, 0, 1, 0]], dims=("step", "key")).astype(bool)
    >>> recalled = recall_of_first(xr.Dataset({"anchor": anchor, "measured": xr.ones_like(anchor)}))
    >>> recalled["recall"].values.tolist(), recalled["no_memory"].values.tolist()
    ([1.0, 0.5, 0.0], [0.5, 0.25, 0.25])
    """
    refuse_without_axis(anchors, "step")
    at_all = anchors["measured"].any("key")
    first = anchors[["anchor", "measured"]].isel(step=at_all.argmax("step"))
    shared = overlap(first, anchors)
    start = shared.first.where(shared.first > 0)
    reason = xr.where(at_all.any("step"), xr.where(first["anchor"].any("key"), "", NO_FIRST_ANCHORS), NOT_MEASURED)
    recalled = xr.Dataset({"recall": shared.common / start, "no_memory": (shared.second / shared.keys).where(start > 0), "reason": reason})
    return recalled.transpose(*(axis for axis in anchors["anchor"].dims if axis != "key"))


def jaccard(first: xr.Dataset, second: xr.Dataset) -> xr.Dataset:
    """Jaccard of two sets of anchors on the keys measured in both (`jaccard`), and what it would be if as many lay anywhere (`no_memory`).

    Examples
    --------
    >>> everywhere = xr.DataArray([True, True, True], dims="key")
    >>> first = xr.Dataset({"anchor": xr.DataArray([True, True, False], dims="key"), "measured": everywhere})
    >>> second = xr.Dataset({"anchor": xr.DataArray([False, True, False], dims="key"), "measured": everywhere})
    >>> jaccard(first, second)["jaccard"].item()
    0.5
    """
    shared = overlap(first, second)
    expected = xr.apply_ufunc(expected_jaccard, shared.keys, shared.first, shared.second)
    return xr.Dataset({"jaccard": shared.jaccard, "no_memory": expected})


@dataclass(frozen=True)
class Overlap:
    """Two sets on the keys measured in both: how many keys there are, how many lie in the first, in the second, and in both."""

    keys: xr.DataArray
    first: xr.DataArray
    second: xr.DataArray
    common: xr.DataArray

    @property
    def jaccard(self) -> xr.DataArray:
        either = self.first + self.second - self.common
        return self.common / either.where(either > 0)


def overlap(first: xr.Dataset, second: xr.Dataset) -> Overlap:
    """Count two sets of anchors, and what they have in common, on the keys measured in both."""
    both = first["measured"] & second["measured"]
    here, there = first["anchor"] & both, second["anchor"] & both
    return Overlap(both.sum("key"), here.sum("key"), there.sum("key"), (here & there).sum("key"))


def neighbours(anchors: xr.Dataset, axis: str) -> tuple[xr.Dataset, xr.Dataset]:
    """The anchors without the last and without the first of an axis, so that neighbours lie at the same place; without its labels, by which they would be matched again."""
    bare = anchors[["anchor", "measured"]].drop_vars([name for name, part in anchors.coords.items() if axis in part.dims])
    return bare.isel({axis: slice(None, -1)}), bare.isel({axis: slice(1, None)})


def expected_jaccard(keys: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Mean Jaccard of two sets of these sizes that lie anywhere among the keys; NaN for two empty ones.

    What they have in common is hypergeometric. Few (keys, first, second) differ, and only those are computed.

    Examples
    --------
    One of two keys and one of two keys: the same (1) or not (0) with equal chance.

    >>> expected_jaccard(np.array([2]), np.array([1]), np.array([1])).round(6).tolist()
    [0.5]
    """
    keys, first, second = (np.asarray(part, dtype=np.int64) for part in np.broadcast_arrays(keys, first, second))
    size = int(keys.max(initial=0)) + 1
    codes, place = np.unique((keys * size + np.minimum(first, second)) * size + np.maximum(first, second), return_inverse=True)
    total, fewer, more = codes // size**2, codes // size % size, codes % size
    log_factorial = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, size + 1)))])

    def log_choices(of: np.ndarray, chosen: np.ndarray) -> np.ndarray:
        return log_factorial[of] - log_factorial[chosen] - log_factorial[of - chosen]

    mean = np.zeros(len(codes))
    for common in range(1, int(fewer.max(initial=0)) + 1):
        can = (common <= fewer) & (more - common <= total - fewer)
        n, a, b = total[can], fewer[can], more[can]
        chance = np.exp(log_choices(a, np.full_like(a, common)) + log_choices(n - a, b - common) - log_choices(n, b))
        mean[can] += chance * common / (a + b - common)
    mean[more == 0] = np.nan
    return mean[place].reshape(keys.shape)


def refuse_without_axis(anchors: xr.Dataset, axis: str) -> None:
    """Refuse what are no anchors, or anchors that have no such axis."""
    if "anchor" not in anchors or "measured" not in anchors:
        raise Refusal("These are no anchors: pass the dataset that find_anchors(data) returns.")
    if axis not in anchors["anchor"].dims:
        raise Refusal(
            f"The anchors have no axis {axis!r}, so nothing can be said of drift along it; find them in data that keep every {axis}."
        )


def why_no_drift(anchors: xr.Dataset) -> xr.DataArray:
    """Why nothing can be said of drift along steps, by layer, head and group; "" where something can."""
    steps = anchors["measured"].any("key").sum("step")
    some = anchors["anchor"].any(("step", "key"))
    return xr.where(steps == 0, NOT_MEASURED, xr.where(steps == 1, ONE_STEP, xr.where(some, "", NO_ANCHORS))).transpose(*some.dims)
