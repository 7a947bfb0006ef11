"""Estimates over prompts, the claims they are held against, and the verdicts that follow.

An `Estimate` is a number over prompts with its 95 % interval, made from one value per prompt: arrays over `sample`, labelled with
the sample, by which two sides are paired. What cannot be estimated is NaN, with the reason. Outcomes that are right or wrong, and
averages of such, carry the attributes `least` and `most`: what a question can score. They get the intervals of
`floatlens.statistics.proportions`, which stay inside that range and have width where no question differs from another. Everything
else gets a bootstrap over prompts (`floatlens.statistics.resampling`), cut off at `most` where only that is known: no
log-likelihood lies above 0.

A `Claim` says what a paper says, in plain words, and by which rule it holds; the rule is written down with the claim, before any
number is seen. What was measured comes as `Part`s: an estimate, the null or control to compare it with, and a threshold. `judge`
reads nothing else, so a verdict is computed and never written by hand.

A part *holds* if its whole interval lies on the claimed side of the threshold and *fails* if all of it lies on the other side. It
is *inconclusive* if the interval includes the threshold or does not exist, and *not asked* if the number was not measured, or if
something bars the question (a model at the shortcut, two models at the ceiling). A claim fails if one of its parts fails, holds if
all hold, is not asked if none of them was, and is inconclusive otherwise.
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
    estimate = _estimate(bootstrap(values), [values])
    most = values.attrs.get("most", math.inf)
    return estimate if math.isnan(estimate.high) else replace(estimate, low=min(estimate.low, most), high=min(estimate.high, most))


def difference_of(first: xr.DataArray, second: xr.DataArray) -> Estimate:
    """The mean of the first minus the mean of the second, over the same samples.

    Examples
    --------
    >>> with_context, without = (xr.DataArray(values, dims="sample") for values in ([1.0, 1.0, 0.0], [0.0, 1.0, 0.0]))
    >>> round(difference_of(with_context, without).value, 3)
    0.333
    """
    return mean_of(change(first, second))


def ratio_of(above: xr.DataArray, below: xr.DataArray) -> Estimate:
    """The mean of the first divided by the mean of the second, over the same samples.

    Examples
    --------
    >>> damage, removed = xr.DataArray([1.0, 2.0, 3.0], dims="sample"), xr.DataArray([0.5, 1.0, 1.5], dims="sample")
    >>> ratio_of(damage, removed).value
    2.0
    """
    sides, within = _paired(above, below), _range(above)
    return _estimate(bounded_ratio(*sides, within=within) if within else bootstrap_ratio(*sides), [above, below])


def change(after: xr.DataArray, before: xr.DataArray) -> xr.DataArray:
    """The first minus the second, sample by sample; the reason why a side has no values stays with the result.

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
    """What a question can score, from least to most; None where one end or both are not known."""
    return (values.attrs["least"], values.attrs["most"]) if {"least", "most"} <= values.attrs.keys() else None


def _paired(first: xr.DataArray, second: xr.DataArray) -> tuple[xr.DataArray, xr.DataArray]:
    """Both sides with all samples that either has; NaN where a side lacks one, so that the pair is left out."""
    left, right = xr.align(first, second, join="outer")
    return left, right


def _estimate(interval: xr.Dataset, sides: Sequence[xr.DataArray]) -> Estimate:
    """An interval as an `Estimate`; where a side has no value at all, the reason is that side's own."""
    value, low, high = (interval[name].item() for name in ("estimate", "low", "high"))
    own = [str(side.attrs["reason"]) for side in sides if side.attrs.get("reason") and bool(side.isnull().all())]
    reason = own[0] if own and math.isnan(value) else str(interval["reason"].item())
    return Estimate(value, low, high, int(interval["prompts"].item()), reason)


Outcome = Literal["holds", "fails", "inconclusive", "not asked"]
Side = Literal["above", "below", "within"]

INCLUDES = "the interval includes the threshold"


@dataclass(frozen=True)
class Claim:
    """What a paper claims, and by which rule it holds for the models of a study. The rule is fixed before anything is measured."""

    name: str
    paper: str
    statement: str
    rule: str


@dataclass(frozen=True)
class Part:
    """One number of a claim: what it is (`says`), its estimate, and on which side of a threshold (`line`) it has to lie.

    "within" means between minus and plus the threshold. `beside` is the null or control to compare it with, and `beside_says` its
    name; `barred` says why the question cannot be asked of these models, or is "". The names are those of `claims.json`.
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
    """The outcome of a claim, the reason where it neither holds nor fails, and the parts it follows from."""

    claim: Claim
    outcome: Outcome
    reason: str
    parts: tuple[Part, ...]


def outcome_of(part: Part) -> tuple[Outcome, str]:
    """Whether a part holds, and the reason where it neither holds nor fails.

    Examples
    --------
    >>> outcome_of(Part("gain", Estimate(0.2, 0.1, 0.3, 40), "above", 0.0))
    ('holds', '')
    >>> outcome_of(Part("gain", Estimate(0.2, -0.1, 0.5, 40), "above", 0.0))
    ('inconclusive', 'the interval includes the threshold')
    """
    low, high, line = part.estimate.low, part.estimate.high, part.line
    if part.barred:
        return "not asked", part.barred
    if math.isnan(part.estimate.value):
        return "not asked", part.estimate.reason or "it was not measured"
    if math.isnan(low) or math.isnan(high):
        return "inconclusive", part.estimate.reason or "there is no interval"
    if part.side == "within":
        holds, fails = -line < low and high < line, low > line or high < -line
    else:
        holds, fails = (low > line, high < line) if part.side == "above" else (high < line, low > line)
    return ("holds", "") if holds else ("fails", "") if fails else ("inconclusive", INCLUDES)


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
    outcomes, reasons = zip(*map(outcome_of, parts), strict=True)
    if "fails" in outcomes:
        return Verdict(claim, "fails", "", tuple(parts))
    if set(outcomes) == {"holds"}:
        return Verdict(claim, "holds", "", tuple(parts))
    outcome = "not asked" if set(outcomes) == {"not asked"} else "inconclusive"
    return Verdict(claim, outcome, "; ".join(dict.fromkeys(filter(None, reasons))), tuple(parts))
