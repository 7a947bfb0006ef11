"""Numbers over prompts with their intervals, from one value a prompt: the means, differences and ratios of `floatlens.measures`, as one small value each.

Values are arrays over `sample`, labelled with the sample; two sides are paired by that label. What cannot be estimated is NaN, with the reason.

Decided here: outcomes that are right or wrong carry the attributes `least` and `most`, what a question can score, and intervals end there. Where no question differs from another, a bootstrap has no width, as if
thirty right answers proved that all answers are right: the interval then reaches as far as three of n further questions that come out otherwise would pull the mean, which is how many could do so and, one time in
twenty, remain unseen (the "rule of three").
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import xarray as xr

from floatlens.statistics.resampling import bootstrap, bootstrap_difference, bootstrap_ratio

UNSEEN = 3
"""Of n samples that all agree, so many of n others may disagree and, one time in twenty, remain unseen."""


@dataclass(frozen=True)
class Estimate:
    """A number over prompts, its 95 % interval, how many prompts it rests on, and why something is missing."""

    value: float
    low: float
    high: float
    prompts: int
    reason: str = ""


def mean_of(values: xr.DataArray) -> Estimate:
    """The mean over samples.

    Examples
    --------
    >>> mean_of(xr.DataArray([1.0, 2.0, 3.0], dims="sample")).value
    2.0
    >>> right = mean_of(xr.DataArray([1.0] * 30, dims="sample", attrs={"least": 0.0, "most": 1.0}))
    >>> round(right.low, 3), right.value
    (0.9, 1.0)
    >>> mean_of(xr.DataArray([math.nan, math.nan], dims="sample", attrs={"reason": "no masked rows"}))
    Estimate(value=nan, low=nan, high=nan, prompts=0, reason='no masked rows')
    """
    return _estimate(bootstrap(values), [values], _bounds(values))


def difference_of(first: xr.DataArray, second: xr.DataArray) -> Estimate:
    """The mean of the first minus that of the second, of the same samples.

    Examples
    --------
    >>> with_context, without = (xr.DataArray(values, dims="sample") for values in ([1.0, 1.0, 0.0], [0.0, 1.0, 0.0]))
    >>> round(difference_of(with_context, without).value, 3)
    0.333
    """
    return _estimate(bootstrap_difference(*_paired(first, second)), [first, second], _bounds(change(first, second)))


def ratio_of(above: xr.DataArray, below: xr.DataArray) -> Estimate:
    """The mean of one over the mean of the other, of the same samples.

    Examples
    --------
    >>> damage, removed = xr.DataArray([1.0, 2.0, 3.0], dims="sample"), xr.DataArray([0.5, 1.0, 1.5], dims="sample")
    >>> ratio_of(damage, removed).value
    2.0
    """
    bounds = {"least": 0.0, "most": math.inf} if _bounds(above) else {}
    return _estimate(bootstrap_ratio(*_paired(above, below)), [above, below], bounds, unit=float(below.mean()))


def change(after: xr.DataArray, before: xr.DataArray) -> xr.DataArray:
    """What each sample has more in the first than in the second; the reason why it has none stays with it.

    Examples
    --------
    >>> gained = change(xr.DataArray([1.0, 1.0], dims="sample"), xr.DataArray([0.0, 1.0], dims="sample"))
    >>> gained.values.tolist()
    [1.0, 0.0]
    """
    first, second = _paired(after, before)
    reason = next((side.attrs["reason"] for side in (after, before) if side.attrs.get("reason")), "")
    most, least = _bounds(after), _bounds(before)
    bounds = {"least": most["least"] - least["most"], "most": most["most"] - least["least"]} if most and least else {}
    changed = first - second
    changed.attrs = ({"reason": reason} if reason else {}) | bounds
    return changed


def _bounds(values: xr.DataArray) -> dict[str, float]:
    """What a question can score; nothing where there are no such bounds."""
    return {name: values.attrs[name] for name in ("least", "most") if name in values.attrs}


def _paired(first: xr.DataArray, second: xr.DataArray) -> tuple[xr.DataArray, xr.DataArray]:
    """Both with all samples that either has; NaN where one has none, so that the pair is left out."""
    one, other = xr.align(first, second, join="outer")
    return one, other


def _estimate(found: xr.Dataset, sides: Sequence[xr.DataArray], bounds: Mapping[str, float], unit: float = 1.0) -> Estimate:
    """The bootstrap's numbers as a value; `unit` is what the mean is divided by."""
    value, low, high = (found[name].item() for name in ("estimate", "low", "high"))
    prompts = int(found["prompts"].item())
    said = [str(side.attrs["reason"]) for side in sides if side.attrs.get("reason") and bool(side.isnull().all())]
    reason = said[0] if said and math.isnan(value) else str(found["reason"].item())
    if bounds and low == high:
        unseen = UNSEEN / max(prompts, UNSEEN) / unit
        low, high = low - unseen, high + unseen
    if bounds and not math.isnan(low):
        low, high = max(low, bounds["least"]), min(high, bounds["most"])
    return Estimate(value, low, high, prompts, reason)
