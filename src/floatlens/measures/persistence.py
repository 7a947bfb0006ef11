"""Persistence: how long anchors last, and which of them stay.

A lifetime is an unbroken run of steps at which a key is an anchor. A step at which the key is not measured ends a run, for nothing is known of it; runs that touch such a step, or the
first or the last one, may have been longer, and `cut_off` says how many of them there are.

A key that is ever an anchor is `static` (at nine tenths or more of the steps at which it was measured, and at more than one), `transient` (at one step), or `moving` (neither). A key that
was measured at one step only could not have been anything else: it is `undecided` and counts for no kind.

Both stand beside `no_memory`: the same numbers of anchors at each step, anywhere among the keys measured there. With one step nothing can be said: NaN, and `reason` says so.
"""

import numpy as np
import xarray as xr

from floatlens.measures.drift import neighbours, overlap, refuse_without_axis, why_no_drift
from floatlens.measures.inputs import one_sample_at_a_time

KINDS = ("static", "moving", "transient")


@one_sample_at_a_time
def lifetimes(anchors: xr.Dataset) -> xr.Dataset:
    """Lengths of the unbroken runs of steps at which keys are anchors.

    Returns
    -------
    xarray.Dataset
        By layer, head and group: `mean` and `longest` run in steps; `no_memory`, the mean (anchors over expected runs) if each step's anchors lay anywhere; `runs`, how many of each
        `length`; `cut_off`, the share of runs that may have been longer; `reason`, why there is none.

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
    said = reason == ""
    return xr.Dataset(
        {
            "mean": (anchored / number).where(said),
            "no_memory": (anchored / (anchored - continued)).where(said & (anchored > continued)),
            "longest": counted["length"].where(counted > 0).max("length").where(said),
            "cut_off": (xr.DataArray(np.bincount(place, weights=cut, minlength=places).reshape(shape), dims=axes) / number).where(said),
            "runs": counted,
            "reason": reason,
        }
    )


def _runs(anchor: np.ndarray, measured: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Every unbroken run along the first of (step, ..., key): its place among the axes between, its length, and whether a step that is not measured lies before or after it."""
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
        at, before = np.unravel_index(ended, shape), step - length - 1
        known_before = (before >= 0) & measured[(before, *at)]
        known_after = measured[(step, *at)] if step < steps else np.zeros(len(ended), bool)
        places.append(ended // shape[-1])
        lengths.append(length)
        cuts.append(~(known_before & known_after))
        running += 1
        running *= now
    return np.concatenate(places), np.concatenate(lengths), np.concatenate(cuts)


@one_sample_at_a_time
def anchor_kinds(anchors: xr.Dataset) -> xr.Dataset:
    """How many of the keys that are ever anchors stay, move or flash up.

    Returns
    -------
    xarray.Dataset
        By layer, head, group and `kind` ("static", "moving", "transient"): `count`; `share` of the keys that have a kind; `no_memory`, the expected share if each step's anchors lay
        anywhere. `undecided`, the anchors that were measured at one step only; `reason`, why there are no kinds.

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
    count = xr.concat([one.sum("key") for one in _of_each_kind(times, chances)], "kind").assign_coords(kind=list(KINDS))
    expected = _expected_kinds(anchors).assign_coords(kind=list(KINDS))
    reason = why_no_drift(anchors)
    said = reason == ""
    kinds = {
        "count": count.where(said),
        "share": (count / count.sum("kind").where(lambda total: total > 0)).where(said),
        "no_memory": (expected / expected.sum("kind").where(lambda total: total > 0)).where(said),
        "undecided": ((times > 0) & (chances == 1)).sum("key").where(said),
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

    A key is then an anchor at a step with the chance anchors / keys, independently of other steps. Keys that are measured at the same steps fare alike, so there are few to compute.
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
    numbers: list[xr.DataArray] = [xr.dot(one.where(chances > 1, 0), keys_of, dim="pattern") for one in kinds]
    return xr.concat(numbers, "kind")


def _chance_of_staying(chance: xr.DataArray, alike: xr.DataArray, chances: xr.DataArray) -> xr.DataArray:
    """The chance of being an anchor at nine tenths of the steps at which a key is measured: step by step, by how many of them it has missed so far."""
    missing = (alike * (1 - chance)).transpose("step", ...)  # 0 at steps that do not count
    likely = np.zeros((int(chances.max()) // 10 + 1, *missing.shape[1:]))  # (missed, ...)
    likely[0] = 1
    for miss in missing.values:
        likely[1:] = likely[1:] * (1 - miss) + likely[:-1] * miss
        likely[0] *= 1 - miss
    missed = xr.DataArray(np.arange(len(likely)), dims="missed")
    return xr.DataArray(likely, dims=("missed", *missing.dims[1:])).where(10 * missed <= chances, 0).sum("missed")
