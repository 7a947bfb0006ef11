"""From the retrieval scores of runs to the retrieval heads of a model: means over the runs that count, shares of heads by depth, and values for heat maps.

A run counts if its answer recalls more than half of the needle (Wu et al. 2024): a head cannot be seen to copy what was not written. Published heat maps look divided by their largest value;
`normalised_for_display` does that and says so, and nothing else here does.
"""

import numpy as np
import xarray as xr

from floatlens.errors import Refusal
from floatlens.measures.inputs import depths


def mean_retrieval_score(scores: xr.Dataset) -> xr.Dataset:
    """The scores of each head, averaged over the runs whose answer recalls more than half of the needle.

    `runs` is the number of them; without any, scores are NaN and `reason` says so.

    Examples
    --------
    >>> by_run = xr.Dataset({"score": (("sample", "layer", "head"), [[[1.0]], [[0.5]], [[0.0]]]), "counts": ("sample", [True, True, False])})
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
        `share` over third ("all", "shallow", "middle", "deep") and threshold; `null`, the share of heads whose `null_shuffled` is above it; `heads`, how many heads a share is of;
        `reason` by third. A layer belongs to the third that holds its middle: of 32 layers, 11, 10 and 11.

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
    """Scores over the largest of their map, for heat maps like the published ones; `largest` is what 1 stands for, and the attribute `normalised` says what was done.

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
    said = {"normalised": "each map is divided by its largest score; not comparable between maps"}
    return xr.Dataset({"score": shown, "largest": largest, "reason": largest.copy(data=reason)}, attrs=said)
