"""Drift and persistence: whether the anchors of one step (or layer) are those of the next, how long they last, and which of them stay.

Two sets of anchors are compared on the keys that are measured in both. Where both are empty there is nothing to compare and the pair is
left out (NaN); where one is empty they have nothing in common (0); where no key is measured in both (no rows, no such step) nothing is
known (NaN).

A lifetime is an unbroken run of steps at which a key is an anchor. A step at which the key is not measured ends a run, for nothing is
known of it; runs that touch such a step, or the first or the last one, may have been longer, and `cut_off` says how many of them there
are. A key that is ever an anchor is `static` (at nine tenths or more of the steps at which it was measured, and at more than one),
`transient` (at one step), or `moving` (neither). A key that was measured at one step only is `undecided` and counts for no kind.

Beside each number stands `no_memory`: what it would be on average if the same numbers of anchors lay anywhere among the keys measured
there. It is computed exactly, not drawn. With one step there is no drift: NaN, and `reason` says so. Refused: anchors without the axis
asked for.
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
    """The anchors without the last and without the first of an axis, so that neighbours lie at the same place.

    Labels of the axis are dropped: xarray would match the two by them again.
    """
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
    """Refuse what is not a dataset of anchors, and anchors that lack the axis."""
    if "anchor" not in anchors or "measured" not in anchors:
        raise Refusal("These are not anchors: pass the dataset that find_anchors(data) returns.")
    if axis not in anchors["anchor"].dims:
        raise Refusal(
            f"The anchors have no axis {axis!r}, so nothing can be said of drift along it; find them in data that keep every {axis}."
        )


def why_no_drift(anchors: xr.Dataset) -> xr.DataArray:
    """Why nothing can be said of drift along steps, by layer, head and group; "" where something can."""
    steps = anchors["measured"].any("key").sum("step")
    some = anchors["anchor"].any(("step", "key"))
    return xr.where(steps == 0, NOT_MEASURED, xr.where(steps == 1, ONE_STEP, xr.where(some, "", NO_ANCHORS))).transpose(*some.dims)


KINDS = ("static", "moving", "transient")


@one_sample_at_a_time
def lifetimes(anchors: xr.Dataset) -> xr.Dataset:
    """Lengths of the unbroken runs of steps at which keys are anchors.

    Returns
    -------
    xarray.Dataset
        By layer, head and group: `mean` and `longest` run in steps; `no_memory`, the mean (anchors over expected runs) if each step's
        anchors lay anywhere; `runs`, how many of each `length`; `cut_off`, the share of runs that may have been longer; `reason`, why
        there is none.

    Examples
    --------
    Key 0 is an anchor at steps 0 and 1, key 1 at steps 0 and 2.

    >>> anchor = xr.DataArray([[1, 1, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0]], dims=("step", "key")).astype(bool)
    >>> lasted = lifetimes(xr.Dataset({"anchor": anchor, "measured": xr.ones_like(anchor)}))
    >>> lasted["runs"].values.tolist()  # two runs of one step, one of two
    [2, 1, 0]
    >>> round(lasted["mean"].item(), 3), lasted["longest"].item(), lasted["cut_off"].item()
    (1.333, 2.0, 1.0)
    """
    refuse_without_axis(anchors, "step")
    anchor = anchors["anchor"].transpose("step", ..., "key")
    measured = anchors["measured"].broadcast_like(anchor).transpose(*anchor.dims)
    axes, shape = anchor.dims[1:-1], anchor.shape[1:-1]
    place, length, cut = _runs(anchor.values, measured.values)
    places, steps = int(np.prod(shape)), anchor.sizes["step"]
    runs = np.bincount(place * steps + length - 1, minlength=places * steps).reshape(*shape, steps)
    counted = xr.DataArray(runs, dims=(*axes, "length"), coords={"length": np.arange(1, steps + 1)})
    number = counted.sum("length").where(lambda total: total > 0)
    before, after = neighbours(anchors, "step")
    chance = overlap(before, after)
    anchored = (counted * counted["length"]).sum("length")
    continued = (chance.first * chance.second / chance.keys.where(chance.keys > 0)).sum("step")
    reason = why_no_drift(anchors)
    known = reason == ""
    return xr.Dataset(
        {
            "mean": (anchored / number).where(known),
            "no_memory": (anchored / (anchored - continued)).where(known & (anchored > continued)),
            "longest": counted["length"].where(counted > 0).max("length").where(known),
            "cut_off": (xr.DataArray(np.bincount(place, weights=cut, minlength=places).reshape(shape), dims=axes) / number).where(known),
            "runs": counted,
            "reason": reason,
        }
    )


def _runs(anchor: np.ndarray, measured: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Every unbroken run along the first of the axes (step, ..., key).

    Returned are its place among the axes between, its length, and whether a step that is not measured lies before or after it.
    """
    steps, *shape = anchor.shape
    running = np.zeros(shape, np.int32)
    places: list[np.ndarray] = []
    lengths: list[np.ndarray] = []
    cuts: list[np.ndarray] = []
    nothing = np.zeros(shape, bool)
    for step in range(steps + 1):
        now = anchor[step] if step < steps else nothing
        ended = np.flatnonzero((running > 0) & ~now)
        length = running.ravel()[ended]
        place_of_end, before = np.unravel_index(ended, shape), step - length - 1
        known_before = (before >= 0) & measured[(before, *place_of_end)]
        known_after = measured[(step, *place_of_end)] if step < steps else np.zeros(len(ended), bool)
        places.append(ended // shape[-1])
        lengths.append(length)
        cuts.append(~(known_before & known_after))
        running += 1
        running *= now
    return np.concatenate(places), np.concatenate(lengths), np.concatenate(cuts)


@one_sample_at_a_time
def anchor_kinds(anchors: xr.Dataset) -> xr.Dataset:
    """How many of the keys that are ever anchors stay, move or appear for one step.

    Returns
    -------
    xarray.Dataset
        By layer, head, group and `kind` ("static", "moving", "transient"): `count`; `share` of the keys that have a kind; `no_memory`,
        the expected share if each step's anchors lay anywhere. `undecided`, the anchors that were measured at one step only; `reason`,
        why there are no kinds.

    Examples
    --------
    Key 0 is an anchor at all three steps, key 1 at two, key 2 at one.

    >>> anchor = xr.DataArray([[1, 1, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0]], dims=("step", "key")).astype(bool)
    >>> kinds = anchor_kinds(xr.Dataset({"anchor": anchor, "measured": xr.ones_like(anchor)}))
    >>> dict(zip(kinds["kind"].values.tolist(), kinds["count"].values.tolist()))
    {'static': 1.0, 'moving': 1.0, 'transient': 1.0}
    """
    refuse_without_axis(anchors, "step")
    times, chances = anchors["anchor"].sum("step"), anchors["measured"].sum("step")
    count = xr.concat([of_kind.sum("key") for of_kind in _of_each_kind(times, chances)], "kind").assign_coords(kind=list(KINDS))
    expected = _expected_kinds(anchors).assign_coords(kind=list(KINDS))
    reason = why_no_drift(anchors)
    known = reason == ""
    kinds = {
        "count": count.where(known),
        "share": (count / count.sum("kind").where(lambda total: total > 0)).where(known),
        "no_memory": (expected / expected.sum("kind").where(lambda total: total > 0)).where(known),
        "undecided": ((times > 0) & (chances == 1)).sum("key").where(known),
        "reason": reason,
    }
    return xr.Dataset(kinds).transpose(*reason.dims, "kind")


def _of_each_kind(times: xr.DataArray, chances: xr.DataArray) -> tuple[xr.DataArray, xr.DataArray, xr.DataArray]:
    """Static, moving, transient: by the number of steps at which a key was an anchor, and could have been one."""
    decided = (times > 0) & (chances > 1)
    static = decided & (times > 1) & (10 * times >= 9 * chances)
    transient = decided & (times == 1)
    return static, decided & ~static & ~transient, transient


def _expected_kinds(anchors: xr.Dataset) -> xr.DataArray:
    """The expected number of keys of each kind if each step's anchors lay anywhere among its measured keys.

    A key is then an anchor at a step with the chance anchors / keys, independently of other steps. Keys that are measured at the same
    steps fare alike, so there are few to compute.
    """
    measured = anchors["measured"].transpose(..., "key")
    patterns, pattern_of = np.unique(measured.values.reshape(-1, measured.sizes["key"]), axis=1, return_inverse=True)
    alike = xr.DataArray(patterns.reshape(*measured.shape[:-1], -1).astype(float), dims=(*measured.dims[:-1], "pattern"))
    keys_of = xr.DataArray(np.bincount(pattern_of.ravel(), minlength=patterns.shape[1]), dims="pattern")
    keys = anchors["measured"].sum("key")
    chance = (anchors["anchor"].sum("key") / keys.where(keys > 0)).fillna(0).clip(max=1 - 1e-12)
    chances = alike.sum("step")
    never = np.exp(xr.dot(np.log1p(-chance), alike, dim="step"))
    once = never * xr.dot(chance / (1 - chance), alike, dim="step")
    static = _chance_of_staying(chance, alike, chances)
    kinds: list[xr.DataArray] = [static, (1 - never - once - static).clip(min=0), once]
    numbers: list[xr.DataArray] = [xr.dot(chance_of_kind.where(chances > 1, 0), keys_of, dim="pattern") for chance_of_kind in kinds]
    return xr.concat(numbers, "kind")


def _chance_of_staying(chance: xr.DataArray, alike: xr.DataArray, chances: xr.DataArray) -> xr.DataArray:
    """The chance of being an anchor at nine tenths of the steps at which a key is measured.

    It is computed step by step, by how many of them the key has missed so far.
    """
    missing = (alike * (1 - chance)).transpose("step", ...)  # 0 at steps that do not count
    likely = np.zeros((int(chances.max()) // 10 + 1, *missing.shape[1:]))  # (missed, ...)
    likely[0] = 1
    for miss in missing.values:
        likely[1:] = likely[1:] * (1 - miss) + likely[:-1] * miss
        likely[0] *= 1 - miss
    missed = xr.DataArray(np.arange(len(likely)), dims="missed")
    return xr.DataArray(likely, dims=("missed", *missing.dims[1:])).where(10 * missed <= chances, 0).sum("missed")
