"""Tests by permutation, over prompts: would a difference this large come about if the two sides were the same?

**Paired**: under the null the two sides of a prompt could be swapped, so the sign of each prompt's summed difference is flipped. **Unpaired**: whole prompts
are dealt to the two sides anew, and the difference is divided by its own standard error each time. Undivided, the test rejects too often when the smaller
side varies more; divided, it is exact where the sides are alike and nearly right where only their means are. Where all arrangements are no more than the
draws, each is looked at once and the p-value is exact; otherwise the arrangement that was found counts as one of the draws, so p is never 0.

The intervals of floatlens do not invert this test; they come with the p-values that agree with them (`floatlens.statistics.resampling`, `floatlens.statistics.proportions`).

Refuses sides that do not match. An unpaired side of one prompt has no spread to compare with: p is NaN and `reason` says so.
"""

from collections.abc import Callable
from itertools import combinations
from math import comb
from typing import Literal

import numpy as np
import xarray as xr

from floatlens.errors import Refusal
from floatlens.statistics.by_prompt import Labels, PromptSums, labelled, sides_by_prompt
from floatlens.statistics.resampling import NUMBERS_AT_ONCE

Alternative = Literal["two-sided", "greater", "less"]

ROUNDING = 1e-9
"""Arrangements that tie with the one that was found must count, whatever the order in which their sums were rounded."""


def permutation_test(
    a: xr.DataArray,
    b: xr.DataArray,
    *,
    paired: bool = True,
    clusters: Labels | None = None,
    clusters_b: Labels | None = None,
    alternative: Alternative = "two-sided",
    draws: int = 9999,
    seed: int = 0,
) -> xr.Dataset:
    """How often chance alone gives a difference as large as that of a and b.

    Parameters
    ----------
    a, b, paired, clusters, clusters_b
        As for `bootstrap_difference`.
    alternative
        "greater" asks whether a exceeds b, "less" whether b exceeds a.
    draws, seed
        How many arrangements to draw where there are more than that.

    Returns
    -------
    xarray.Dataset
        `p_value`, `exact` (all arrangements were looked at), `samples`, `prompts` and `reason`, on the axes of the values but `sample`.

    Examples
    --------
    >>> treated, control = xr.DataArray([3.0, 4.0, 5.0], dims="sample"), xr.DataArray([1.0, 1.0, 1.0], dims="sample")
    >>> permutation_test(treated, control).p_value.item()  # of 8 signs, +++ and --- are as far from 0
    0.25
    >>> permutation_test(treated, control, paired=False).p_value.item()  # 2 of 20 ways to deal 6 prompts to two sides
    0.1
    """
    if alternative not in ("two-sided", "greater", "less"):
        raise Refusal(f"alternative={alternative!r} is not known. Pass 'two-sided', 'greater' or 'less'.")
    if draws < 1 or seed < 0:
        raise Refusal(f"draws={draws} and seed={seed} arrange nothing. Pass at least one draw and a seed of 0 or more.")
    like, sides = sides_by_prompt(a, b, paired, clusters, clusters_b)
    prompts = np.stack([side.prompts for side in sides])  # side, cell
    least = 1 if paired else 2
    p_value, exact = np.full(prompts.shape[1], np.nan), np.zeros(prompts.shape[1], dtype=bool)
    for counts in np.unique(prompts, axis=1).T:
        if counts.min() < least:
            continue
        cells = np.flatnonzero((prompts == counts[:, None]).all(axis=0))
        arranged, all_of_them = (_signs if paired else _dealt)(counts.tolist(), draws, seed)
        statistic = _flipped if paired else _studentised
        for some in np.array_split(cells, -(-len(cells) * arranged.shape[1] // NUMBERS_AT_ONCE)):
            p_value[some] = _share_as_far(statistic, _gathered(sides, some, counts.tolist()), arranged, alternative)
        exact[cells] = all_of_them
    where = "" if paired else " on one side"
    reason = np.select(
        [prompts.min(axis=0) == 0, prompts.min(axis=0) < least], [f"no sample{where} has a value", "one prompt on one side, so no test"], ""
    )
    samples = np.sum([side.samples for side in sides], axis=0)
    return labelled(like, {"p_value": p_value, "exact": exact, "samples": samples, "prompts": prompts.sum(axis=0), "reason": reason})


def _signs(counts: list[int], draws: int, seed: int) -> tuple[np.ndarray, bool]:
    """Signs for each prompt, all or as many as asked for: prompt, arrangement. The first leaves everything as it was found."""
    count = counts[0]
    if 2**count <= draws:
        return 1.0 - 2.0 * (np.arange(2**count) >> np.arange(count)[:, None] & 1), True
    drawn = 1.0 - 2.0 * np.random.default_rng([seed, count]).integers(0, 2, size=(count, draws))
    return np.concatenate([np.ones((count, 1)), drawn], axis=1), False


def _dealt(counts: list[int], draws: int, seed: int) -> tuple[np.ndarray, bool]:
    """Which prompts are on the first side (1, else 0): prompt, arrangement. The first leaves everything as it was found."""
    first, both = counts[0], sum(counts)
    if comb(both, first) <= draws:
        chosen = np.array(list(combinations(range(both), first)))
    else:
        order = np.argsort(np.random.default_rng([seed, *counts]).random((draws, both)), axis=1)
        chosen = np.concatenate([np.arange(first)[None], order[:, :first]])
    dealt = np.zeros((both, len(chosen)))
    dealt[chosen.T, np.arange(len(chosen))] = 1
    return dealt, comb(both, first) <= draws


def _gathered(sides: list[PromptSums], cells: np.ndarray, counts: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Summed values and their numbers for each prompt, one side after the other: cell, prompt."""
    parts = [(side, *side.in_own_order(cells, count)) for side, count in zip(sides, counts, strict=True)]
    amounts = [amount + side.lowest[cells, None] * base for side, amount, base in parts]
    return np.concatenate(amounts, axis=-1), np.concatenate([base for *_, base in parts], axis=-1)


def _flipped(amount: np.ndarray, base: np.ndarray, signs: np.ndarray) -> np.ndarray:
    """The mean difference under each arrangement of signs, in units of the largest there is: cell, arrangement."""
    largest = np.abs(amount).sum(axis=1, keepdims=True)
    return amount @ signs / np.where(largest > 0, largest, 1.0)


def _studentised(amount: np.ndarray, base: np.ndarray, dealt: np.ndarray) -> np.ndarray:
    """The difference of the sides' means over its standard error, under each way to deal the prompts: cell, arrangement."""
    overall = amount.sum(axis=1, keepdims=True) / base.sum(axis=1, keepdims=True)
    residual = amount - overall * base
    difference, variance = np.zeros(1), np.zeros(1)
    for sign, side in ((1, dealt), (-1, 1 - dealt)):
        count, whole = side[:, 0].sum(), base @ side
        mean = (residual @ side) / whole
        spread = residual**2 @ side - 2 * mean * ((residual * base) @ side) + mean**2 * (base**2 @ side)
        difference = difference + sign * mean
        variance = variance + count / (count - 1) * np.maximum(spread, 0) / whole**2
    # sides that do not vary have no error, or what rounding leaves of one: they are far apart, but finitely
    smallest = 1e-12 * (residual**2).sum(axis=1, keepdims=True) / base.sum(axis=1, keepdims=True) ** 2
    return difference / np.sqrt(np.where(smallest > 0, np.maximum(variance, smallest), 1.0))


def _share_as_far(
    statistic: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray],
    sums: tuple[np.ndarray, np.ndarray],
    arranged: np.ndarray,
    alternative: Alternative,
) -> np.ndarray:
    """The share of arrangements, the one that was found among them, that lie as far out as it does."""
    values = statistic(*sums, arranged)
    if alternative != "greater":
        values = np.abs(values) if alternative == "two-sided" else -values
    found = values[:, :1]
    return (values >= found - ROUNDING * np.maximum(1.0, np.abs(found))).mean(axis=1)
