"""How values change along an axis: one slope or correlation per sample, to be handed to `bootstrap`.

Decides: least squares over the places that have a value; the slope of each sample first, then the mean over samples, so that the prompt
stays the unit. NaN where fewer than two different places have a value, and for a correlation also where the values are all equal;
`bootstrap` leaves such samples out.

Refuses: an axis that is not there, places that are not numbers or do not fit.
"""

from collections.abc import Sequence

import numpy as np
import xarray as xr

from floatlens.errors import Refusal
from floatlens.statistics.by_prompt import refuse_unlike

Places = str | Sequence[float] | np.ndarray | xr.DataArray
"""Where along an axis values stand: the name of a coordinate, or numbers."""


def slope_over(values: xr.DataArray, axis: str, at: Places | None = None) -> xr.DataArray:
    """The least-squares slope along an axis, for each of the other labels: sample, role, group.

    Parameters
    ----------
    values
        NaN: there is no value at this place.
    axis
        The axis to go along.
    at
        The places along it: the name of a coordinate, numbers, or an array with that axis (and others, such as one place per sample). By
        default the axis's own labels; `relative_depth` turns layers into places between 0 and 1.

    Returns
    -------
    xarray.DataArray
        Without the axis. NaN where fewer than two different places have a value.

    Examples
    --------
    >>> falling = xr.DataArray([[5.0, 3.0, 1.0], [2.0, float("nan"), 2.0]], dims=("sample", "layer"), coords={"layer": [0, 1, 2]})
    >>> slope_over(falling, "layer").values.tolist()
    [-2.0, 0.0]
    >>> slope_over(falling, "layer", at=[0.0, 0.5, 1.0]).values.tolist()
    [-4.0, 0.0]
    """
    spread, together, _ = _moments(values, axis, at)
    return (together / spread.where(spread > 0)).rename("slope")


def steepest_slope(places: Sequence[float]) -> float:
    """The steepest least-squares slope that outcomes from 0 to 1 can have over these places.

    It is that of outcomes that are 0 everywhere below the mean place and 1 everywhere above it.

    Examples
    --------
    >>> steepest_slope([0.0, 1.0]), steepest_slope([0.0, 0.5, 1.0])
    (1.0, 1.0)
    """
    away = np.asarray(places, float) - np.mean(places)
    return float(np.maximum(away, 0).sum() / (away**2).sum())


def correlation_over(values: xr.DataArray, axis: str, at: Places | None = None) -> xr.DataArray:
    """Pearson's correlation between values and places along an axis, for each of the other labels. Parameters as for `slope_over`.

    Returns
    -------
    xarray.DataArray
        Without the axis, from -1 to 1. NaN where fewer than two different places have a value, or where the values are all equal.

    Examples
    --------
    >>> rising = xr.DataArray([1.0, 3.0, 5.0], dims="step")
    >>> correlation_over(rising, "step", at=[0, 1, 2]).item()
    1.0
    """
    spread, together, own = _moments(values, axis, at)
    both = spread * own
    return (together / np.sqrt(both.where(both > 0))).clip(-1, 1).rename("correlation")


def _moments(values: xr.DataArray, axis: str, at: Places | None) -> tuple[xr.DataArray, xr.DataArray, xr.DataArray]:
    """Sums of squares of the places, of products, and of squares of the values, all around their means."""
    places = _places(values, axis, at)
    known = values.notnull() & places.notnull()
    deviations = []
    for each in (places, values.astype(float)):
        held = each.where(known)
        held = held - held.min(axis)  # equal numbers then leave exactly 0
        deviations.append(held - held.mean(axis))
    place, value = deviations
    return (place**2).sum(axis), (place * value).sum(axis), (value**2).sum(axis)


def _places(values: xr.DataArray, axis: str, at: Places | None) -> xr.DataArray:
    if axis not in values.dims:
        raise Refusal(f"There is no axis `{axis}` among {values.dims}. Name one of them.")
    name = axis if at is None else at
    if isinstance(name, str):
        if name not in values.coords or axis not in values.coords[name].dims:
            raise Refusal(f"`{name}` is not a coordinate along `{axis}`. Pass the places as numbers: at=[...].")
        places = values.coords[name]
    else:
        places = name if isinstance(name, xr.DataArray) else xr.DataArray(np.asarray(name), dims=[axis] * (np.ndim(name) > 0))
    if axis not in places.dims:
        raise Refusal(
            f"The places have the axes {places.dims}, not `{axis}`. Pass one place for each of the {values.sizes[axis]} along it."
        )
    for shared in (shared for shared in places.dims if shared in values.dims):
        refuse_unlike(values, places, str(shared), ("values", "at"), "Pass one place for each value.")
    if places.dtype.kind not in "iuf":
        raise Refusal(f"The places along `{axis}` are {places.dtype}, not numbers. Pass the places as numbers: at=[...].")
    return places.astype(float)
