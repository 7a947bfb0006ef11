"""Numbers over prompts with their intervals, from one value a prompt: the means, differences and ratios of `floatlens.statistics`, as one small value each.

Values are arrays over `sample`, labelled with the sample; two sides are paired by that label. What cannot be estimated is NaN, with the reason.

Decided here: outcomes that are right or wrong, and averages of such, carry the attributes `least` and `most`, what a question can score. They get the intervals of `floatlens.statistics.proportions`, which end there and
have width where no question differs from another; everything else gets a bootstrap over prompts (`floatlens.statistics.resampling`), ended at `most` where only that is known: no log-likelihood lies above 0.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import xarray as xr

from floatlens.statistics.proportions import Range, bounded_mean, bounded_ratio
from floatlens.statistics.resampling import bootstrap, bootstrap_ratio


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
    (0.905, 1.0)
    >>> mean_of(xr.DataArray([math.nan, math.nan], dims="sample", attrs={"reason": "no masked rows"}))
    Estimate(value=nan, low=nan, high=nan, prompts=0, reason='no masked rows')
    """
    if within := _range(values):
        return _estimate(bounded_mean(values, within=within), [values])
    found = _estimate(bootstrap(values), [values])
    most = values.attrs.get("most", math.inf)
    return found if math.isnan(found.high) else replace(found, low=min(found.low, most), high=min(found.high, most))


def difference_of(first: xr.DataArray, second: xr.DataArray) -> Estimate:
    """The mean of the first minus that of the second, of the same samples.

    Examples
    --------
    >>> with_context, without = (xr.DataArray(values, dims="sample") for values in ([1.0, 1.0, 0.0], [0.0, 1.0, 0.0]))
    >>> round(difference_of(with_context, without).value, 3)
    0.333
    """
    return mean_of(change(first, second))


def ratio_of(above: xr.DataArray, below: xr.DataArray) -> Estimate:
    """The mean of one over the mean of the other, of the same samples.

    Examples
    --------
    >>> damage, removed = xr.DataArray([1.0, 2.0, 3.0], dims="sample"), xr.DataArray([0.5, 1.0, 1.5], dims="sample")
    >>> ratio_of(damage, removed).value
    2.0
    """
    sides, within = _paired(above, below), _range(above)
    return _estimate(bounded_ratio(*sides, within=within) if within else bootstrap_ratio(*sides), [above, below])


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
    ranges = _range(after), _range(before)
    bounds = {"least": ranges[0][0] - ranges[1][1], "most": ranges[0][1] - ranges[1][0]} if ranges[0] and ranges[1] else {}
    changed = first - second
    changed.attrs = ({"reason": reason} if reason else {}) | bounds
    return changed


def _range(values: xr.DataArray) -> Range | None:
    """What a question can score; None where it has no ends, or only one."""
    return (values.attrs["least"], values.attrs["most"]) if {"least", "most"} <= values.attrs.keys() else None


def _paired(first: xr.DataArray, second: xr.DataArray) -> tuple[xr.DataArray, xr.DataArray]:
    """Both with all samples that either has; NaN where one has none, so that the pair is left out."""
    one, other = xr.align(first, second, join="outer")
    return one, other


def _estimate(found: xr.Dataset, sides: Sequence[xr.DataArray]) -> Estimate:
    """The numbers of an interval as a value; where a side has no value at all, the reason is the side's own."""
    value, low, high = (found[name].item() for name in ("estimate", "low", "high"))
    own = [str(side.attrs["reason"]) for side in sides if side.attrs.get("reason") and bool(side.isnull().all())]
    reason = own[0] if own and math.isnan(value) else str(found["reason"].item())
    return Estimate(value, low, high, int(found["prompts"].item()), reason)
