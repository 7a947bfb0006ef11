"""Numbers over prompts with their intervals, from one value a prompt: the means, differences and ratios of `floatlens.statistics`, as one small value each.

Values are arrays over `sample`, labelled with the sample; two sides are paired by that label. What cannot be estimated is NaN, with the reason.

Decided here: outcomes that are right or wrong, and averages of such, carry the attributes `least` and `most`, what a question can score. They get the intervals of `floatlens.statistics.proportions`, which end there and
have width where no question differs from another; everything else gets a bootstrap over prompts (`floatlens.statistics.resampling`), ended at `most` where only that is known: no log-likelihood lies above 0.

A claim, the rule by which it is judged, and the verdict.

A claim says what a paper says, in plain words, and by which rule it holds; the rule is written down with the claim, before any number is seen. What was measured comes as `Part`s: an
estimate with its interval over prompts, the null or control beside it, and a line. `judge` reads nothing else, so a verdict is computed and never written.

Decided here: a part holds if its whole interval lies on the claimed side of the line, fails if the whole interval lies on the other side, and cannot be said where the interval includes the line, where there is no
interval, or where something bars the question (a model at the shortcut, two models at the ceiling). A claim fails if one of its parts fails, holds if all hold, and cannot be said otherwise.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

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


Outcome = Literal["holds", "fails", "cannot be said"]
Side = Literal["above", "below", "within"]

INCLUDES = "the interval includes the line"


@dataclass(frozen=True)
class Claim:
    """What a paper claims, and by which rule it holds for the twins. The rule is fixed before anything is measured."""

    name: str
    paper: str
    statement: str
    rule: str


@dataclass(frozen=True)
class Part:
    """One number of a claim: what it is, its estimate, and on which side of a line it has to lie ("within": between minus and plus the line).

    `beside` is the null or the control, and `beside_says` which; `barred` says why the question cannot be asked of these models, or "".
    """

    says: str
    estimate: Estimate
    side: Side
    line: float
    beside: float = math.nan
    beside_says: str = ""
    unit: str = ""
    barred: str = ""


@dataclass(frozen=True)
class Verdict:
    """What came out for a claim: the outcome, why it cannot be said where it cannot, and the parts it follows from."""

    claim: Claim
    outcome: Outcome
    reason: str
    parts: tuple[Part, ...]


def outcome_of(part: Part) -> tuple[Outcome, str]:
    """Whether a part holds, and why that cannot be said where it cannot.

    Examples
    --------
    >>> outcome_of(Part("gain", Estimate(0.2, 0.1, 0.3, 40), "above", 0.0))
    ('holds', '')
    >>> outcome_of(Part("gain", Estimate(0.2, -0.1, 0.5, 40), "above", 0.0))
    ('cannot be said', 'the interval includes the line')
    """
    found = part.estimate
    if part.barred:
        return "cannot be said", part.barred
    if math.isnan(found.value) or math.isnan(found.low) or math.isnan(found.high):
        return "cannot be said", found.reason or "there is no interval"
    low, high, line = found.low, found.high, part.line
    if part.side == "within":
        holds, fails = -line < low and high < line, low > line or high < -line
    else:
        holds, fails = (low > line, high < line) if part.side == "above" else (high < line, low > line)
    return ("holds", "") if holds else ("fails", "") if fails else ("cannot be said", INCLUDES)


def judge(claim: Claim, parts: Sequence[Part]) -> Verdict:
    """The verdict that follows from the parts.

    Examples
    --------
    >>> claim = Claim("gain", "a paper", "A gains more than B.", "the interval of the difference lies above 0")
    >>> above, below = (Part("gain", Estimate(value, value - 0.1, value + 0.1, 40), "above", 0.0) for value in (0.2, -0.2))
    >>> judge(claim, [above]).outcome, judge(claim, [above, below]).outcome
    ('holds', 'fails')
    """
    if not parts:
        raise ValueError(f"the claim {claim.name} has no parts")
    found = [outcome_of(part) for part in parts]
    outcomes = [outcome for outcome, _ in found]
    if "fails" in outcomes:
        return Verdict(claim, "fails", "", tuple(parts))
    if "cannot be said" in outcomes:
        return Verdict(claim, "cannot be said", "; ".join(dict.fromkeys(reason for _, reason in found if reason)), tuple(parts))
    return Verdict(claim, "holds", "", tuple(parts))
