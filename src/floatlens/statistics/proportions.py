"""Intervals and tests for what is right or wrong, and for averages and differences of such outcomes.

Intervals stay inside the possible range, and have a width even where all prompts agree.

**The rule.** Besides the n prompts that were seen there is one that was not. The prompts and that one get random shares of the whole, all
divisions being equally likely, and the mean under these shares is a random number. Half of the time the unseen prompt scores the least,
half of the time the most; the central 95 % of that number are the interval. The test of a mean of 0 reads the same distribution: p is
twice the smaller of the chances that the number is below 0 and above 0 (0 itself counts half), so an interval of 95 % excludes 0 exactly
where p < .05.

For right-or-wrong answers this is not a new method but three old ones:

- one proportion: the mid-p interval of Clopper and Pearson;
- a paired difference: at 0, the mid-p version of McNemar's exact test, which is the sign-flip permutation test of such outcomes;
- an unpaired difference: at 0, the mid-p version of Fisher's exact test (Altham 1969; Fay, Proschan and Brittain 2015).

For averages in a range it is Gaffke's bound (2005; Learned-Miller and Thomas 2020), with mid-p in place of the worst case.

**How far out the unseen prompt lies.** For scores, at the ends of the range. For differences, which may lie on either side of 0 (`within`
is symmetric), as far from 0 as the farthest prompt that was seen, and at the ends where all prompts agree. For right-or-wrong answers
that is the same; differences of averages and differences of differences seldom come near their ends, and intervals that expect them there
cover 99 to 100 %.

Chosen by what it covers: Wilson's interval falls to 84-90 % near 0 and 1, Tango's for paired proportions to 85 % with 8 prompts, the
studentised bootstrap further; this one stays above 92 %. `python benchmarks/coverage.py` prints the table of
docs/reference/statistics.md.

**Refuses** values outside of the range, a denominator below 0, and sides that do not match. One prompt has an estimate and no interval:
`reason` says so.
"""

from dataclasses import dataclass

import numpy as np
import xarray as xr

from floatlens.errors import Refusal
from floatlens.statistics.by_prompt import (
    Labels,
    PromptSums,
    flattened,
    labelled,
    matched,
    mean_by_prompt,
    prompt_numbers,
    ratio_by_prompt,
    sides_by_prompt,
)
from floatlens.statistics.gamma_sums import chance_below, crossing
from floatlens.statistics.resampling import check_level

Range = tuple[float, float]
"""The least and the most that one prompt can have."""

NUMBERS_AT_ONCE, NODES = 1_000_000, 40
"""Size of the largest temporary array, roughly: different prompts times nodes of the integral times cells."""
DIGITS = 12
"""Values that agree to so many digits are one value: 0.1 + 0.2 and 0.3."""
LOGITS = np.arange(-20.0, 20.25, 0.5)
"""Where the distribution of one side is read off when two sides are compared."""


def bounded_mean(values: xr.DataArray, *, within: Range = (0.0, 1.0), clusters: Labels | None = None, level: float = 0.95) -> xr.Dataset:
    """The mean over `sample` of values that lie in a known range, with an interval over prompts inside of it.

    Parameters
    ----------
    values
        Any axes, one of them `sample`. NaN: the sample does not have this value, and is left out.
    within
        The least and the most that a value can be. Symmetric around 0 for differences, such as (-1, 1): see the top of this module.
    clusters
        The prompt of each sample. A prompt weighs as much as it has samples. By default each sample is its own prompt.
    level
        What share of intervals shall cover the truth.

    Returns
    -------
    xarray.Dataset
        `estimate`, `low`, `high`, `p_value` (two-sided, of a mean of 0), `samples` (values that went in), `prompts` (that they come from)
        and `reason` (why there is no interval, or ""), on the axes of the values but `sample`.

    Examples
    --------
    >>> right = bounded_mean(xr.DataArray([1.0] * 3 + [0.0] * 17, dims="sample"))
    >>> [round(right[name].item(), 3) for name in ("estimate", "low", "high")]
    [0.15, 0.04, 0.356]
    >>> always = bounded_mean(xr.DataArray([1.0] * 20, dims="sample"))
    >>> [round(always[name].item(), 3) for name in ("estimate", "low", "high")]
    [1.0, 0.861, 1.0]
    """
    rows = flattened(values, "values")
    refuse_outside(rows, within, "values")
    return _described(values, [mean_by_prompt(rows, prompt_numbers(clusters, len(rows)))], within, level)


def bounded_difference(
    a: xr.DataArray,
    b: xr.DataArray,
    *,
    within: Range = (0.0, 1.0),
    paired: bool = True,
    clusters: Labels | None = None,
    clusters_b: Labels | None = None,
    level: float = 0.95,
) -> xr.Dataset:
    """The mean of a minus the mean of b, of values in a known range, with an interval over prompts and the test that it inverts.

    Parameters
    ----------
    a, b, paired, clusters, clusters_b
        As for `floatlens.statistics.resampling.bootstrap_difference`.
    within
        The least and the most that a value of either side can be; a paired difference lies within plus or minus their distance.
    level
        What share of intervals shall cover the truth.

    Returns
    -------
    xarray.Dataset
        As for `bounded_mean`; unpaired, `samples` and `prompts` count both sides.

    Examples
    --------
    >>> before, after = (xr.DataArray(right, dims="sample") for right in ([0.0] * 6 + [1.0] * 4, [1.0] * 10))
    >>> gain = bounded_difference(after, before)
    >>> gain.p_value.item()  # McNemar's test: 6 prompts changed, all in one direction; 2 * (1 / 2) ** 6, and mid-p takes half
    0.015625
    >>> round(gain.low.item(), 3), round(gain.high.item(), 3)
    (0.123, 0.854)
    """
    for side, name in ((a, "a"), (b, "b")):
        refuse_outside(flattened(side, name), within, name)
    like, sides = sides_by_prompt(a, b, paired, clusters, clusters_b)
    return _described(like, sides, (within[0] - within[1], within[1] - within[0]) if paired else within, level)


def bounded_ratio(
    numerator: xr.DataArray,
    denominator: xr.DataArray,
    *,
    within: Range = (0.0, 1.0),
    clusters: Labels | None = None,
    level: float = 0.95,
) -> xr.Dataset:
    """The mean of a quantity in a known range over the mean of another that is never below 0, of the same samples.

    For example damage per removed attention.

    Parameters
    ----------
    numerator, denominator
        The same samples in the same order; a NaN in either leaves the sample out. The unseen prompt has the mean denominator.
    within
        The least and the most that a value of the numerator can be.
    clusters, level
        As for `bounded_mean`.

    Returns
    -------
    xarray.Dataset
        As for `bounded_mean`; NaN with its reason where the denominator is 0.

    Examples
    --------
    >>> damage, removed = xr.DataArray([1.0, 0.0, 1.0], dims="sample"), xr.DataArray([0.5, 0.25, 0.25], dims="sample")
    >>> float(bounded_ratio(damage, removed, within=(-1, 1)).estimate)
    2.0
    """
    above, below = matched(numerator, denominator, ("numerator", "denominator"), paired=True)
    over, under = flattened(above, "numerator"), flattened(below, "denominator")
    refuse_outside(over, within, "numerator")
    if (under < 0).any():
        raise Refusal(
            f"`denominator` is {np.nanmin(under):g} at its lowest, and a share of it below 0 has no meaning. Use bootstrap_ratio for "
            "quantities of any sign."
        )
    interval = _described(above, [ratio_by_prompt(over, under, prompt_numbers(clusters, len(over)))], within, level, ratio=True)
    zero = ~np.isfinite(interval["estimate"]) & (interval["prompts"] > 0)
    for name in ("estimate", "low", "high", "p_value"):
        interval[name] = interval[name].where(~zero)
    interval["reason"] = xr.where(zero, "the denominator is 0", interval["reason"]).astype(str)
    return interval


@dataclass(frozen=True)
class _Side:
    """The different prompts of each cell, how many there are of each, and what the unseen one would be: (cell, level).

    `ends` has the axes cell and end.
    """

    amount: np.ndarray
    base: np.ndarray
    count: np.ndarray
    ends: np.ndarray
    end_base: np.ndarray

    def chance(self, values: np.ndarray, cells: np.ndarray, end: int) -> np.ndarray:
        """The chance that the mean of each of these cells is at most this value if the unseen prompt lies at one end."""
        weights = self.amount[cells] - values[:, None] * self.base[cells]
        unseen = self.ends[cells, end] - values * self.end_base[cells]
        return chance_below(np.column_stack([weights, unseen]), np.column_stack([self.count[cells], np.ones(len(cells))]))

    def only_value(self, end: int) -> np.ndarray:
        """What all prompts of a cell have, the unseen one included, or NaN if they differ."""
        value = self.ends[:, end] / self.end_base
        differs = (self.count > 0) & (np.abs(self.amount - value[:, None] * self.base) > 10.0**-DIGITS)
        return np.where(differs.any(axis=1), np.nan, value)

    def confidence(self, values: np.ndarray, cells: np.ndarray) -> np.ndarray:
        """The same, with the unseen prompt at either end half of the time."""
        return (self.chance(values, cells, 0) + self.chance(values, cells, 1)) / 2

    def reach(self) -> tuple[np.ndarray, np.ndarray]:
        """Bounds that the mean cannot lie below or above, by cell.

        Ratios may have no such bounds; theirs are far beyond the rest.
        """
        amount = np.concatenate([self.amount, self.ends], axis=1)
        base = np.concatenate([self.base, self.end_base[:, None], self.end_base[:, None]], axis=1)
        there = np.concatenate([self.count, np.ones_like(self.ends)], axis=1) > 0
        far = 1e6 * np.abs(amount).max(axis=1) / self.end_base
        with np.errstate(divide="ignore", invalid="ignore"):
            places = np.where(base > 0, amount / base, np.where(amount == 0, np.nan, np.sign(amount) * far[:, None]))
        return (
            np.where(there & ~np.isnan(places), places, np.inf).min(axis=1),
            np.where(there & ~np.isnan(places), places, -np.inf).max(axis=1),
        )

    def quantiles(self, shares: np.ndarray, end: int) -> np.ndarray:
        """Where the chance reaches each share: cell, share."""
        low, high = (np.repeat(ends, len(shares)) for ends in self.reach())
        crossings = crossing(
            lambda value, places: self.chance(value, places // len(shares), end), low, high, np.tile(shares, len(self.count))
        )
        return crossings.reshape(len(self.count), -1)


@dataclass(frozen=True)
class _TwoSides:
    """The difference of two independent sides.

    Where the unseen prompt of one lies at the upper end, that of the other lies at the lower end.
    """

    first: _Side
    second: _Side
    read_off: tuple[np.ndarray, np.ndarray]

    @classmethod
    def of(cls, first: _Side, second: _Side) -> "_TwoSides":
        shares = 1 / (1 + np.exp(-LOGITS))
        return cls(first, second, (second.quantiles(shares, 0), second.quantiles(shares, 1)))

    def confidence(self, values: np.ndarray, cells: np.ndarray) -> np.ndarray:
        """The chance that the difference of each of these cells is at most this value."""
        return (self._chance(values, cells, 0) + self._chance(values, cells, 1)) / 2

    def _chance(self, values: np.ndarray, cells: np.ndarray, end: int) -> np.ndarray:
        """The same, with the first side's unseen prompt at one end and the second side's at the other."""
        parts = np.exp(-LOGITS) / (1 + np.exp(-LOGITS)) ** 2
        moved = values[:, None] + self.read_off[1 - end][cells]
        chances = self.first.chance(moved.ravel(), np.repeat(cells, len(LOGITS)), end).reshape(moved.shape)
        only = self.first.only_value(end)[cells]  # a step, which no quadrature gets right
        beyond = 1 - self.second.chance(np.nan_to_num(only) - values, cells, 1 - end)
        return np.where(np.isnan(only), (chances * parts).sum(axis=-1) / parts.sum(), beyond)

    def reach(self) -> tuple[np.ndarray, np.ndarray]:
        """The least and the most that the difference can be."""
        (low, high), (other_low, other_high) = self.first.reach(), self.second.reach()
        return low - other_high, high - other_low


def _described(values: xr.DataArray, sums: list[PromptSums], within: Range, level: float, *, ratio: bool = False) -> xr.Dataset:
    """The estimate of one side, or of the first minus the second, with its interval and test, on the axes of the values."""
    check_level(level)
    prompts = np.stack([side.prompts for side in sums])  # side, cell
    with np.errstate(divide="ignore", invalid="ignore"):
        means = [side.lowest + side.amount.sum(axis=0) / side.base.sum(axis=0) for side in sums]
    estimate = means[0] if len(sums) == 1 else means[0] - means[1]
    low, high, p_value = (np.full(prompts.shape[1], np.nan) for _ in range(3))
    cells = np.flatnonzero((prompts.min(axis=0) > 1) & np.isfinite(estimate))
    numbers = max(side.present.shape[0] for side in sums) * NODES * (1 if len(sums) == 1 else len(LOGITS))
    for some in np.array_split(cells, max(1, -(-len(cells) * numbers // NUMBERS_AT_ONCE))) if len(cells) else []:
        sides = [_side(side, some, within, ratio) for side in sums]
        low[some], high[some], p_value[some] = _intervals(sides[0] if len(sides) == 1 else _TwoSides.of(*sides), level)
    least = prompts.min(axis=0)
    where = "" if len(sums) == 1 else " on one side"
    return labelled(
        values,
        {
            "estimate": estimate,
            "low": low,
            "high": high,
            "p_value": p_value,
            "samples": np.sum([side.samples for side in sums], axis=0),
            "prompts": prompts.sum(axis=0),
            "reason": np.select([least == 0, least == 1], [f"no sample{where} has a value", f"one prompt{where}, so no interval"], ""),
        },
    )


def _side(sums: PromptSums, cells: np.ndarray, within: Range, ratio: bool) -> _Side:
    """The different prompts of each cell and the unseen one, which has the mean base.

    A ratio's base is its denominator, and its range that of the numerator.
    """
    prompts: list[tuple[np.ndarray, np.ndarray]] = []
    ends, bases = np.tile(np.array(within, float), (len(cells), 1)), np.zeros(len(cells))
    for place, cell in enumerate(cells):
        there = sums.present[:, cell]
        base = sums.base[there, cell]
        amount = sums.amount[there, cell] + sums.lowest[cell] * base
        seen, bases[place] = amount if ratio else amount / base, base.mean()
        if np.isclose(within[0], -within[1]) and np.ptp(seen) > 10.0**-DIGITS:
            ends[place] = np.abs(seen).max() * np.array([-1.0, 1.0])
        prompts.append(np.unique(np.round(np.stack([amount, base], axis=1), DIGITS), axis=0, return_counts=True))
    levels = np.zeros(
        (len(cells), max(len(count) for _, count in prompts), 3)
    )  # amount, base, count: cells with fewer levels end in counts of 0
    for place, (pairs, count) in enumerate(prompts):
        levels[place, : len(count), :2], levels[place, : len(count), 2] = pairs, count
    return _Side(levels[..., 0], levels[..., 1], levels[..., 2], ends if ratio else ends * bases[:, None], bases)


def _intervals(side: _Side | _TwoSides, level: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The ends of the interval and the p-value of each cell.

    Where rounding leaves them at odds, at a p-value of 1 - level to eight digits, nothing is rejected.
    """
    least, most = (np.repeat(end, 2) for end in side.reach())
    shares = np.tile([(1 - level) / 2, (1 + level) / 2], len(least) // 2)
    low, high = crossing(lambda value, places: side.confidence(value, places // 2), least, most, shares).round(10).reshape(-1, 2).T
    below = side.confidence(np.zeros(len(low)), np.arange(len(low)))
    p_value = (2 * np.minimum(below, 1 - below)).round(8)
    kept = p_value >= round(1 - level, 8)
    p_value = np.where(~kept & (low <= 0) & (high >= 0), round(1 - level, 8), p_value)
    low, high = np.where(kept & (low > 0) & (low < 1e-6), 0.0, low), np.where(kept & (high < 0) & (high > -1e-6), 0.0, high)
    return low, high, p_value


def refuse_outside(rows: np.ndarray, within: Range, name: str) -> None:
    """Refuse an empty or reversed range, and values outside it."""
    least, most = within
    if not (np.isfinite(least) and np.isfinite(most) and least < most):
        raise Refusal(f"within=({least:g}, {most:g}) is not a range. Pass the least and the most that a value can be, such as (0, 1).")
    outside = (rows < least - 1e-9) | (rows > most + 1e-9)
    if outside.any():
        first = int(outside.any(axis=1).argmax())
        raise Refusal(
            f"`{name}` is {rows[first][outside[first]][0]:g} at sample {first}, outside of {least:g} to {most:g}. Pass within=(least, "
            "most) as values can be."
        )
