"""Retrieval heads: which heads look at the very token of the needle that is being written (Wu et al. 2024, arXiv 2404.15574).

A head *copies* needle position j when the row that fills a position, at the step that commits it, looks most at j, and j holds the token
that is written. For an autoregressive model that is the published rule; a diffusion model commits positions in any order, several at a
time, and is read at each position's commit. `retrieval_scores` is over the answer, `retrieval_by_step` step by step;
`mean_retrieval_score` and `retrieval_head_shares` go from the scores of runs to the retrieval heads of a model.

- **Repeats**: `score` counts each needle position once, so it stays within 1; the published program adds 1/|needle| for every copy, which
  an answer that repeats itself drives beyond 1: that number is `published`.
- **Recall** is ROUGE-1 recall on token ids; the published program compares stemmed words of the decoded text. A run counts if its answer
  recalls more than half of the needle: a head cannot be seen to copy what was not written.
- **Two nulls**, both expectations of `score`, computed and not drawn: `null` takes the favourite of each row at random from the keys it
  sees; `null_shuffled` deals the head's own favourites to the written positions at random, which is what a head gets that stares at the
  needle whatever is written.
- **Display**: published heat maps look divided by their largest value; `normalised_for_display` does that and says so; nothing else here
  does.

Refused: a needle that the model wrote itself. An empty one is NaN, with the reason.
"""

from dataclasses import dataclass

import numpy as np
import xarray as xr

from floatlens.errors import Refusal
from floatlens.measures.drift import jaccard_along
from floatlens.measures.gold_span import EMPTY, gold_positions
from floatlens.measures.inputs import choose_group, depths, one_sample_at_a_time, refuse_missing
from floatlens.measures.received_attention import fair_mass

RECALLED = 0.5
"""A run counts if its answer recalls more of the needle than this."""


@one_sample_at_a_time
def retrieval_scores(data: xr.Dataset, gold: str | xr.DataArray) -> xr.Dataset:
    """The share of the needle that each head copies into the answer: (layer, head), for every sample.

    Parameters
    ----------
    data
        A trace, or a dataset with top_key, final and committed; for `null` also visible, null and rows of the group "predicting".
    gold
        The needle: the name of a region of the prompt, or booleans over position (and sample).

    Returns
    -------
    xarray.Dataset
        By layer and head `score`, `null`, `null_shuffled` and `published`, NaN for heads that a layer does not have. `recall`, the share
        of the needle's tokens that the answer has; `counts`, whether that is more than half; `needle_tokens`, `written_tokens`; `reason`,
        "" where there are scores.

    Examples
    --------
    The prompt is 7 8 9, the model writes 8 9. Head 0 looks at the token that is being written, head 1 always at position 1.

    >>> data = xr.Dataset({
    ...     "top_key": (("layer", "head", "position", "rank"), [[[[-1], [-1], [-1], [1], [2]], [[-1], [-1], [-1], [1], [1]]]]),
    ...     "final": ("position", [7, 8, 9, 8, 9]),
    ...     "committed": ("position", [-1, -1, -1, 0, 1]),
    ... })
    >>> needle = xr.DataArray([False, True, True, False, False], dims="position")
    >>> scores = retrieval_scores(data, needle)
    >>> scores["score"].values.tolist(), scores["null_shuffled"].values.tolist(), float(scores["recall"])
    ([[1.0, 0.5]], [[0.5, 0.5]], 1.0)
    """
    copying = _read_copying(data, gold)
    size, copies, chances = len(copying.needle), copying.visits(copying.hit), _chances(data, copying.needle)
    by_head = {
        "score": (copies > 0).sum(-1) / max(size, 1),
        "null": np.nan if chances is None else _null(chances, copying),
        "null_shuffled": _null_shuffled(copying),
        "published": copies.sum(-1) / max(size, 1),
    }
    measured = copying.head_exists & (size > 0)
    like = data["top_key"].isel(rank=0, position=0, drop=True).transpose("layer", "head")
    scores = xr.Dataset({name: like.copy(data=np.where(measured, values, np.nan)) for name, values in by_head.items()})
    if chances is None:
        scores["null"].attrs["reason"] = "it needs visible, null and rows of the predicting rows, which this trace does not hold"
    recall = _recall(copying)
    return scores.assign(
        recall=recall,
        counts=recall > RECALLED,
        needle_tokens=size,
        written_tokens=len(copying.written),
        reason=EMPTY if not size else "nothing was written" if not len(copying.written) else "",
    )


@one_sample_at_a_time
def retrieval_by_step(data: xr.Dataset, gold: str | xr.DataArray, *, only_needle_tokens: bool = True) -> xr.Dataset:
    """Which heads copy at each step, and how much these sets of heads have in common from one step to the next.

    Parameters
    ----------
    data, gold
        As `retrieval_scores` takes them.
    only_needle_tokens
        Compare steps that commit a token of the needle: at others no head can copy, so their sets are empty for a reason that says
        nothing about heads. False compares all steps that commit something.

    Returns
    -------
    xarray.Dataset
        `copies` (step, layer, head); `heads_copying` (step); `compared` (step), which steps are; `jaccard` (step), of a compared step
        with the next one: NaN where both sets are empty, 0 where one is; `no_memory` (step), what it would be on average if as many heads
        were drawn at random; `mean_jaccard` and `mean_no_memory` over the `pairs` that have one; `reason`, "" where there is a mean.

    Examples
    --------
    The prompt is 7 8 9, the model writes 8 9. Head 0 copies both, head 1 only the first.

    >>> data = xr.Dataset({
    ...     "top_key": (("layer", "head", "position", "rank"), [[[[-1], [-1], [-1], [1], [2]], [[-1], [-1], [-1], [1], [1]]]]),
    ...     "final": ("position", [7, 8, 9, 8, 9]),
    ...     "committed": ("position", [-1, -1, -1, 0, 1]),
    ... })
    >>> found = retrieval_by_step(data, xr.DataArray([False, True, True, False, False], dims="position"))
    >>> found["heads_copying"].values.tolist(), float(found["mean_jaccard"])
    ([2, 1], 0.5)
    """
    copying = _read_copying(data, gold)
    commit_steps = copying.committed[copying.written]  # (written,)
    steps = data.sizes.get("step", int(commit_steps.max(initial=-1)) + 1)
    copies = np.zeros((steps, *copying.hit.shape[:2]), bool)
    np.logical_or.at(copies, commit_steps, np.moveaxis(copying.hit, -1, 0))
    counted = copying.same_token.any(-1) if only_needle_tokens else np.ones(len(commit_steps), bool)
    compared = np.isin(np.arange(steps), commit_steps[counted]) & (len(copying.needle) > 0)
    heads = xr.DataArray(copying.head_exists.ravel(), dims="key")  # sets of heads are compared as sets of anchors are
    sets = xr.DataArray(copies[compared].reshape(compared.sum(), heads.size), dims=("step", "key"))
    drift = jaccard_along(xr.Dataset({"anchor": sets, "measured": heads}), "step")
    by_pair = {name: np.full(steps, np.nan) for name in ("jaccard", "no_memory")}
    for name, values in by_pair.items():
        values[np.flatnonzero(compared)[:-1]] = drift[name].values
    pairs = int(drift["jaccard"].notnull().sum())
    what = "a token of the needle" if only_needle_tokens else "something"
    few = f"fewer than two steps commit {what}" if len(sets) < 2 else "no head copies at any of these steps"
    like = data["top_key"].isel(rank=0, position=0, drop=True).transpose("layer", "head")
    return xr.Dataset(
        {
            "copies": like.expand_dims(step=steps).copy(data=copies),
            "heads_copying": ("step", copies.sum((1, 2))),
            "compared": ("step", compared),
            **{name: ("step", values) for name, values in by_pair.items()},
            **{f"mean_{name}": drift[name].mean() for name in by_pair},
            "pairs": pairs,
            "reason": "" if pairs else few if len(copying.needle) else EMPTY,
        }
    )


@dataclass(frozen=True, eq=False)
class _Copying:
    """What was written, where the rows that wrote it looked, and what of that is copying."""

    final: np.ndarray  # (position,): token ids
    committed: np.ndarray  # (position,): steps
    needle: np.ndarray  # (needle,): its positions
    written: np.ndarray  # (written,): positions that the model filled
    favourite: np.ndarray  # (layer, head, written): the key that the filling row looks at most
    head_exists: np.ndarray  # bool (layer, head): a head that a layer does not have has no favourite anywhere
    same_token: np.ndarray  # bool (written, needle)
    in_needle: np.ndarray  # bool (layer, head, written)
    hit: np.ndarray  # bool (layer, head, written): in the needle, and the very token

    def visits(self, which: np.ndarray) -> np.ndarray:
        """How often each head looks most at each needle position, of the looks that `which` says: (layer, head, needle)."""
        layer, head, written = np.nonzero(which)
        counts = np.zeros((*which.shape[:2], len(self.needle)), int)
        np.add.at(counts, (layer, head, np.searchsorted(self.needle, self.favourite[layer, head, written])), 1)
        return counts


def _read_copying(data: xr.Dataset, gold: str | xr.DataArray) -> _Copying:
    refuse_missing(data, ("top_key", "final", "committed"), "Retrieval")
    final, committed, needle = data["final"].values, data["committed"].values, gold_positions(data, gold)
    # a row looks at its own position: were that in the needle, every head that does so would seem to copy
    if (foreign := needle[(committed[needle] >= 0) | (final[needle] < 0)]).size:
        raise Refusal(
            f"The gold span holds position {foreign[0]}, which is not in the prompt. Choose a span that the model was given, not one "
            "that it wrote."
        )
    written = np.flatnonzero((committed >= 0) & (final >= 0))
    favourite = data["top_key"].isel(rank=0, position=written).transpose("layer", "head", "position").values
    in_needle = np.isin(favourite, needle)
    hit = in_needle & (final[favourite] == final[written])  # favourites below 0 are no positions, and so not in the needle
    same_token = final[written][:, None] == final[needle]
    return _Copying(final, committed, needle, written, favourite, (favourite != -1).any(-1), same_token, in_needle, hit)


def _recall(copying: _Copying) -> float:
    """ROUGE-1 recall of the needle by what was written, on token ids."""
    if not len(copying.needle):
        return np.nan
    tokens, asked = np.unique(copying.final[copying.needle], return_counts=True)
    given = (copying.final[copying.written][:, None] == tokens).sum(0)
    return float(np.minimum(asked, given).sum() / len(copying.needle))


def _chances(data: xr.Dataset, needle: np.ndarray) -> xr.DataArray | None:
    """How likely a predicting row of each step is to fall on each needle position if it draws one of the keys it sees.

    None if the trace does not hold what it takes.

    Over step and key, with layers and heads where these see different keys. Where rows of one step see different keys this is their mean.
    """
    needed = ("visible", "null", "rows")
    if any(name not in data for name in needed) or "group" not in data.coords or "predicting" not in data["group"].values:
        return None
    own = choose_group(data[list(needed)], "predicting").isel(key=needle)
    return (fair_mass(own) / own["rows"].where(own["rows"] > 0)).fillna(0)  # what no row sees is never drawn


def _null(chances: xr.DataArray, copying: _Copying) -> np.ndarray:
    """Expected score if every row's favourite were drawn from the keys it sees.

    A needle position is missed if no row that writes its token falls on it.
    """
    written, needle = np.nonzero(copying.same_token)
    at_step = xr.DataArray(copying.committed[copying.written[written]], dims="pair")
    drawn = chances.isel(step=at_step, key=xr.DataArray(needle, dims="pair")).transpose("pair", "layer", "head", missing_dims="ignore")
    missed = np.ones((len(copying.needle), *drawn.shape[1:]))
    np.multiply.at(missed, needle, 1 - drawn.values)
    expected = (1 - missed).sum(0) / max(len(copying.needle), 1)
    return expected[:, None] if drawn.dims[1:] == ("layer",) else expected


def _null_shuffled(copying: _Copying) -> np.ndarray:
    """Expected score if each head's favourites were dealt to the written positions at random.

    A needle position is missed if none of the looks at it falls on its token.
    """
    looks = copying.visits(copying.in_needle)  # (layer, head, needle)
    cards, wanted = len(copying.written), copying.same_token.sum(0)  # positions, and how many hold each needle position's token
    dealt = np.arange(cards)[:, None]
    none_yet = np.concatenate([np.ones((1, len(wanted))), np.cumprod(np.maximum(cards - wanted - dealt, 0) / (cards - dealt), axis=0)])
    return (1 - none_yet[looks, np.arange(len(wanted))]).sum(-1) / max(len(wanted), 1)


def mean_retrieval_score(scores: xr.Dataset) -> xr.Dataset:
    """The scores of each head, averaged over the runs whose answer recalls more than half of the needle.

    `runs` is the number of them; without any, scores are NaN and `reason` says so.

    Examples
    --------
    >>> scores = xr.DataArray([[[1.0]], [[0.5]], [[0.0]]], dims=("sample", "layer", "head"))
    >>> by_run = xr.Dataset({"score": scores, "counts": ("sample", [True, True, False])})
    >>> mean = mean_retrieval_score(by_run)
    >>> float(mean["score"].squeeze()), int(mean["runs"])
    (0.75, 2)
    """
    if "score" not in scores or "counts" not in scores:
        raise Refusal("mean_retrieval_score takes what retrieval_scores returns, with score and counts.")
    by_run = scores if "sample" in scores.dims else scores.expand_dims("sample")
    used = by_run["counts"] & by_run["score"].notnull().any(("layer", "head"))
    averaged = [name for name in ("score", "null", "null_shuffled", "published") if name in by_run]
    runs = int(used.sum())
    return (
        by_run[averaged].where(used).mean("sample").assign(runs=runs, reason="" if runs else "no run recalls more than half of its needle")
    )


def retrieval_head_shares(scores: xr.Dataset, thresholds: tuple[float, ...] = (0.1, 0.5)) -> xr.Dataset:
    """The share of heads whose score is above each threshold, of the whole model and of each third of its depth.

    Parameters
    ----------
    scores
        What `mean_retrieval_score` returns; or what `retrieval_scores` returns, which is averaged first.
    thresholds
        Scores that a head must exceed.

    Returns
    -------
    xarray.Dataset
        `share` over third ("all", "shallow", "middle", "deep") and threshold; `null`, the share of heads whose `null_shuffled` is above
        it; `heads`, how many heads a share is of; `reason` by third. A layer belongs to the third that holds its middle: of 32 layers,
        11, 10 and 11.

    Examples
    --------
    >>> scores = xr.Dataset({"score": (("layer", "head"), [[0.0, 0.0], [0.2, 0.0], [0.6, 0.3]])})
    >>> retrieval_head_shares(scores)["share"].values.round(2).tolist()
    [[0.5, 0.17], [0.0, 0.0], [0.5, 0.0], [1.0, 0.5]]
    """
    averaged = mean_retrieval_score(scores) if "counts" in scores else scores
    if "score" not in averaged or "sample" in averaged["score"].dims:
        raise Refusal("retrieval_head_shares takes what mean_retrieval_score or retrieval_scores returns.")
    score = averaged["score"]
    limits = xr.DataArray(list(thresholds), dims="threshold", coords={"threshold": list(thresholds)})
    inside = depths(score["layer"].values)  # without labels xarray counts from 0
    counted = inside.rename(depth="third") & score.notnull()  # (third, layer, head)
    heads = counted.sum(("layer", "head"))
    why = str(averaged["reason"].values) if "reason" in averaged else ""
    shares = {"share": _share_above(score, limits, counted), "heads": heads}
    if "null_shuffled" in averaged:
        shares["null"] = _share_above(averaged["null_shuffled"], limits, counted)
    reason = np.where(heads.values > 0, "", why or "no head of this third has a score")
    return xr.Dataset(shares).assign(reason=("third", reason))


def _share_above(values: xr.DataArray, limits: xr.DataArray, counted: xr.DataArray) -> xr.DataArray:
    above = ((values > limits) & counted).sum(("layer", "head"))
    heads = (counted & values.notnull()).sum(("layer", "head"))
    return (above / heads.where(heads > 0)).transpose("third", "threshold")


def normalised_for_display(scores: xr.Dataset) -> xr.Dataset:
    """Scores divided by the largest of their map, for heat maps like the published ones.

    `largest` is what 1 stands for, and the attribute `normalised` says what was done.

    Examples
    --------
    >>> shown = normalised_for_display(xr.Dataset({"score": (("layer", "head"), [[0.1, 0.4]])}))
    >>> shown["score"].values.tolist(), float(shown["largest"]), shown.attrs["normalised"]
    ([[0.25, 1.0]], 0.4, 'each map is divided by its largest score; not comparable between maps')
    """
    if "score" not in scores:
        raise Refusal("normalised_for_display takes what retrieval_scores or mean_retrieval_score returns, with score.")
    largest = scores["score"].max(("layer", "head"))
    shown = scores["score"] / largest.where(largest > 0)
    reason = np.select([largest.isnull().values, (largest == 0).values], ["no head has a score", "every score is 0"], default="")
    attributes = {"normalised": "each map is divided by its largest score; not comparable between maps"}
    return xr.Dataset({"score": shown, "largest": largest, "reason": largest.copy(data=reason)}, attrs=attributes)
