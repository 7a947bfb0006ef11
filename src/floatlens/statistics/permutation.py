"""Comparisons by ranks, and tests by permutation, over prompts.

**Ranks** (`auc`, `cliffs_delta`): does a higher score go with a correct answer, and do values of one side exceed those of the other; ties
count one half. Samples are compared with samples, and intervals leave out one prompt at a time (`floatlens.statistics.resampling`) on the
logit scale, where they stay between 0 and 1. In simulations with 10 to 40 prompts those there are cover 94-100 %; bootstraps cover less
(percentile: 80-95 %) or stretch over nearly the whole range (studentised), as many draws hold one class only or separate the classes.
Where all correct samples lie above all wrong ones, or below, leaving out prompts shows no spread, and the interval is NaN rather than of
zero width; where only one class is there, nothing can be compared. `reason` says which.

**Permutation**: would a difference this large come about if the two sides were the same? Paired, the two sides of a prompt could be
swapped under the null, so the sign of each prompt's summed difference is flipped. Unpaired, whole prompts are dealt to the two sides
again, and the difference is divided by its own standard error each time. Undivided, the test rejects too often when the smaller side
varies more; divided, it is exact where the sides are alike and nearly right where only their means are. Where there are no more
arrangements than draws, each is looked at once and the p-value is exact; otherwise the observed arrangement counts as one of the draws,
so p is never 0.

The intervals of floatlens do not invert this test; they come with the p-values that agree with them (`floatlens.statistics.resampling`,
`floatlens.statistics.proportions`).

Refuses: sides that do not match. An unpaired side of one prompt has no spread to compare with: p is NaN and `reason` says so.
"""

from collections.abc import Callable
from itertools import combinations
from math import comb
from typing import Literal

import numpy as np
import xarray as xr

from floatlens.errors import Refusal
from floatlens.statistics.by_prompt import Labels, PromptSums, by_prompt, flattened, labelled, matched, prompt_numbers, sides_by_prompt
from floatlens.statistics.resampling import NUMBERS_AT_ONCE, check_level, jackknife_reach


def auc(score: xr.DataArray, correct: xr.DataArray, *, clusters: Labels | None = None, level: float = 0.95) -> xr.Dataset:
    """The area under the ROC curve: how often a correct sample has a higher score than a wrong one.

    Parameters
    ----------
    score
        Any axes, one of them `sample`. NaN: the sample has no score, and is left out.
    correct
        True and False, or 1 and 0, along `sample`; other axes are matched with those of the score.
    clusters
        The prompt of each sample. By default each sample is its own prompt.
    level
        What share of intervals shall cover the truth.

    Returns
    -------
    xarray.Dataset
        `estimate` (.5: the score tells nothing), `low`, `high`, `samples`, `prompts` and `reason` (why there is no estimate or no
        interval, or ""), on the axes of the score but `sample`.

    Examples
    --------
    >>> score = xr.DataArray([0.9, 0.4, 0.4, 0.1], dims="sample")
    >>> auc(score, xr.DataArray([True, True, False, False], dims="sample")).estimate.item()  # of 4 pairs 3 in order, 1 tied
    0.875
    """
    check_level(level)
    scores, classes = matched(score, correct, ("score", "correct"), paired=True)
    values, truth = flattened(scores, "score"), flattened(classes, "correct")
    if not np.isin(truth[~np.isnan(truth)], (0, 1)).all():
        raise Refusal("`correct` holds something else than True, False, 1, 0 and NaN. Say for each sample whether its answer is right.")
    numbers = prompt_numbers(clusters, len(values))
    has = ~np.isnan(values) & ~np.isnan(truth)
    right, wrong = has & (truth == 1), has & (truth == 0)

    in_order = _pairs_in_order(values, right, np.where(has, 0, -1))
    within_prompts = _pairs_in_order(values, right, np.where(has, numbers[:, None], -1))
    rights, wrongs = (by_prompt(those.astype(float), numbers) for those in (right, wrong))  # prompt, cell
    won = np.where(right, in_order, 0.0).sum(axis=0)
    # the pairs in order that a prompt has a part in: those of its samples, less the pairs among themselves, which count twice
    lost = by_prompt(in_order - np.where(right, within_prompts, 0.0), numbers)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        estimate = won / (rights.sum(axis=0) * wrongs.sum(axis=0))
        left_out = (won - lost) / ((rights.sum(axis=0) - rights) * (wrongs.sum(axis=0) - wrongs))
        odds = np.log(estimate / (1 - estimate))
        present = by_prompt(has.astype(float), numbers) > 0
        reach = jackknife_reach([left_out], [present], level) / (estimate * (1 - estimate))  # NaN for areas of 0 and 1
        low, high = 1 / (1 + np.exp(reach - odds)), 1 / (1 + np.exp(-reach - odds))
    separated = (estimate == 0) | (estimate == 1)
    prompts = present.sum(axis=0)
    reasons = {
        "no sample has a score and a class": prompts == 0,
        "all samples are correct, so nothing to compare": ~wrong.any(axis=0),
        "no sample is correct, so nothing to compare": ~right.any(axis=0),
        "one prompt, so no interval": prompts == 1,
        "one prompt holds all correct or all wrong samples, so no interval": ~np.isfinite(reach) & ~separated,
        "the classes do not overlap, so no interval": separated,
    }
    limits = {"estimate": estimate, "low": low, "high": high}
    reason = np.select(list(reasons.values()), list(reasons), "")
    return labelled(scores, {**limits, "samples": has.sum(axis=0), "prompts": prompts, "reason": reason})


def cliffs_delta(
    a: xr.DataArray, b: xr.DataArray, *, clusters: Labels | None = None, clusters_b: Labels | None = None, level: float = 0.95
) -> xr.Dataset:
    """How often a value of a exceeds one of b, minus how often one of b exceeds one of a: from -1 to 1, whatever the units.

    Parameters
    ----------
    a, b
        Two sides, not paired; the other axes match.
    clusters, clusters_b
        The prompts of the samples of each side: both or neither. A prompt may have samples on both sides.
    level
        What share of intervals shall cover the truth.

    Returns
    -------
    xarray.Dataset
        As for `auc`.

    Examples
    --------
    >>> a, b = xr.DataArray([3.0, 2.0], dims="sample"), xr.DataArray([2.0, 1.0], dims="sample")
    >>> cliffs_delta(a, b).estimate.item()  # of 4 pairs 3 are won, 1 is tied
    0.75
    """
    a, b = (
        side.drop_vars([name for name, held in side.coords.items() if "sample" in held.dims])
        for side in matched(a, b, ("a", "b"), paired=False)
    )
    if (clusters is None) != (clusters_b is None):
        raise Refusal("One side has prompts and the other has none. Pass both `clusters` and `clusters_b`, or neither.")
    labels = None if clusters is None or clusters_b is None else [*np.asarray(clusters).tolist(), *np.asarray(clusters_b).tolist()]
    side = xr.DataArray([True] * a.sizes["sample"] + [False] * b.sizes["sample"], dims="sample")
    area = auc(xr.concat([a, b], dim="sample"), side, clusters=labels, level=level)
    for name in ("estimate", "low", "high"):
        area[name] = 2 * area[name] - 1
    return area


def _pairs_in_order(values: np.ndarray, right: np.ndarray, group: np.ndarray) -> np.ndarray:
    """For each correct sample, how many wrong ones of its group lie below it, and for each wrong one, how many correct ones lie above.

    A tie counts one half.

    Samples of group -1 take no part, and get 0. All arrays have the axes sample, cell.
    """
    of_class = np.where(group < 0, -1, 2 * group + right)
    # a rank among all, less the rank among one's own class, counts the others below
    below, above = (_ranks(sign * values, group) - _ranks(sign * values, of_class) for sign in (1, -1))
    return np.where(group < 0, 0.0, np.where(right, below, above))


def _ranks(values: np.ndarray, group: np.ndarray) -> np.ndarray:
    """Ranks from 0 within each group, ties sharing their mean."""
    values = np.where(group < 0, 0.0, values)
    order = np.lexsort((values, group), axis=0)
    value, of_group = np.take_along_axis(values, order, axis=0), np.take_along_axis(group, order, axis=0)
    place = np.broadcast_to(np.arange(len(values))[:, None], values.shape)
    new_group = np.diff(of_group, axis=0, prepend=-2) != 0
    new_value = new_group | (np.diff(value, axis=0, prepend=0.0) != 0)
    group_start, first = (np.maximum.accumulate(np.where(new, place, 0), axis=0) for new in (new_group, new_value))
    ends = np.concatenate([new_value[1:], np.ones_like(new_value[:1])])
    last = np.minimum.accumulate(np.where(ends, place, len(values))[::-1], axis=0)[::-1]
    ranks = np.empty_like(values)
    np.put_along_axis(ranks, order, (first + last) / 2 - group_start, axis=0)
    return ranks


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
    observed = values[:, :1]
    return (values >= observed - ROUNDING * np.maximum(1.0, np.abs(observed))).mean(axis=1)
