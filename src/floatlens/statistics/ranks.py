"""Does a higher score go with a correct answer, and do values of one side exceed those of the other: by ranks alone, ties counting one half.

Decides: samples are compared with samples, and intervals leave out one prompt at a time (`floatlens.statistics.jackknife`) on the logit scale, where they stay between 0
and 1. In simulations with 10 to 40 prompts those there are cover 94-100 %; bootstraps cover less (percentile: 80-95 %) or stretch over nearly the whole range (studentised), as many
draws hold one class only or separate the classes. Where all correct samples lie above all wrong ones, or below, leaving out prompts shows no spread, and
the interval is NaN rather than of zero width; where only one class is there, nothing can be compared. `reason` says which.
"""

import numpy as np
import xarray as xr

from floatlens.errors import Refusal
from floatlens.statistics.by_prompt import Labels, by_prompt, flattened, labelled, matched, prompt_numbers
from floatlens.statistics.jackknife import check_level, jackknife_reach


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
        `estimate` (.5: the score tells nothing), `low`, `high`, `samples`, `prompts` and `reason` (why there is no estimate or no interval, or ""), on the
        axes of the score but `sample`.

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
    """How often a value of a exceeds one of b, less how often one of b exceeds one of a: from -1 to 1, whatever the units.

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
    found = auc(xr.concat([a, b], dim="sample"), side, clusters=labels, level=level)
    for name in ("estimate", "low", "high"):
        found[name] = 2 * found[name] - 1
    return found


def _pairs_in_order(values: np.ndarray, right: np.ndarray, group: np.ndarray) -> np.ndarray:
    """For each correct sample, how many wrong ones of its group lie below it, and for each wrong one, how many correct ones lie above; a tie is one half.

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
