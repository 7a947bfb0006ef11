"""What measures of anchors share: layers a few at a time, and anchors that belong to the data."""

from collections.abc import Callable, Sequence

import numpy as np
import xarray as xr

from floatlens.errors import Refusal

BYTES_AT_ONCE = 2**25  # of the largest array: temporaries are a few times that, and all layers of a small trace are one piece


def by_layers(measure: Callable[..., xr.Dataset], *given: xr.Dataset) -> xr.Dataset:
    """What a measure gives for a few layers at a time, joined: temporaries, and what is read from disk at once, are of those layers.

    Examples
    --------
    >>> data = xr.Dataset({"mass": (("layer", "key"), [[1.0, 2.0], [3.0, 4.0]])})
    >>> by_layers(lambda some: some.sum("key"), data)["mass"].values.tolist()
    [3.0, 7.0]
    """
    if "layer" not in given[0].dims:
        return measure(*given)
    layers = given[0].sizes["layer"]
    largest = max(values.nbytes for one in given for values in one.data_vars.values())
    at_once = max(1, BYTES_AT_ONCE * layers // max(largest, 1))
    results = []
    for first in range(0, layers, at_once):
        some = slice(first, first + at_once)
        results.append(measure(*(one.isel(layer=some).load() if "layer" in one.dims else one for one in given)))
    joined = xr.concat(results, "layer", data_vars="minimal", coords="minimal", compat="override") if len(results) > 1 else results[0]
    return joined.transpose(*(axis for axis in ("step", "layer", "head", "group") if axis in joined.dims), ...)


def existing(values: xr.DataArray) -> xr.DataArray:
    """0 where there is no key to have a value, for sums; the same array, not a copy, where all exist.

    Examples
    --------
    >>> existing(xr.DataArray([2.0, np.nan])).values.tolist()
    [2.0, 0.0]
    """
    return values.fillna(0) if values.isnull().any() else values


def refuse_other_axes(values: xr.DataArray, anchors: xr.Dataset, *, own: Sequence[str] = ()) -> None:
    """Refuse anchors that were not found in the data of `values`.

    Anchors may lack `step` and `head`, and may have axes of their `own`.

    Examples
    --------
    >>> score = xr.DataArray(np.zeros((2, 3)), dims=("layer", "key"), name="score")
    >>> by_head = xr.DataArray(np.zeros((2, 4, 3), bool), dims=("layer", "head", "key"))
    >>> refuse_other_axes(score, xr.Dataset({"anchor": by_head, "measured": by_head.any("head")}))
    Traceback (most recent call last):
    floatlens.errors.Refusal: The anchors are per head and score is per layer; use those of head-averaged attention, find_anchors(data, per_head=False).
    """
    if not isinstance(anchors, xr.Dataset) or "anchor" not in anchors or "measured" not in anchors:
        raise Refusal("The second argument must be anchors: the dataset that find_anchors(data) returns.")
    anchor = anchors["anchor"]
    if "head" in anchor.dims and "head" not in values.dims:
        raise Refusal(
            f"The anchors are per head and {values.name} is per layer; use those of head-averaged attention, find_anchors(data, per_head=False)."
        )
    foreign = [axis for axis in anchor.dims if axis not in (*values.dims, *own)]
    missing = [axis for axis in values.dims if axis not in (*anchor.dims, "step", "head")]
    differing = [axis for axis in anchor.dims if axis in values.dims and anchor.sizes[axis] != values.sizes[axis]]
    labelled = [axis for axis in ("sample", "step", "layer", "head", "group", "key") if axis in anchor.coords and axis in values.coords]
    differing += [axis for axis in labelled if not np.array_equal(anchor[axis].values, values[axis].values)]
    if foreign or missing or differing:
        names = ", ".join(dict.fromkeys(map(str, foreign + missing + differing)))
        raise Refusal(f"The anchors and {values.name} differ in {names}; find the anchors in the same data, find_anchors(data).")
