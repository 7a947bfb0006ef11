"""Dispersion: over how many keys received attention is spread.

Three numbers, on the measured keys: how many anchors there are; the effective number of keys, exp(entropy) of received attention as shares (1: one key draws all; the number of keys: all draw alike); and
Gini's coefficient (0: all draw alike; toward 1: one key draws all). Each of the last two stands beside that of the null profile, which is even for bidirectional attention
and is not under a causal mask.

Anchors of head-averaged attention are measured against head-averaged mass. Where nothing is measured the numbers are NaN, and `reason` says so.
"""

import numpy as np
import xarray as xr

from floatlens.measures.inputs import mean_over_heads, one_sample_at_a_time, refuse_missing
from floatlens.measures.layers import by_layers, existing, refuse_other_axes

NOTHING = "no key is measured, or none draws anything"


@one_sample_at_a_time
def dispersion(data: xr.Dataset, anchors: xr.Dataset) -> xr.Dataset:
    """Number of anchors, effective number of keys and Gini coefficient of received attention, beside those of the null profile.

    Parameters
    ----------
    data
        A trace, or a dataset with mass, visible and null.
    anchors
        What `find_anchors` found in the same data.

    Returns
    -------
    xarray.Dataset
        By step, layer, head and group: `anchors`, `effective_keys` and `gini`; `null_effective_keys`, `null_gini` and `keys` (how many were measured); `reason`.

    Examples
    --------
    Half of the attention on one of ten keys and half on another.

    >>> from floatlens.measures import find_anchors, from_attention
    >>> looks = np.zeros((4, 10))
    >>> looks[:, [2, 7]] = 0.5
    >>> data = from_attention(looks)
    >>> spread = dispersion(data, find_anchors(data))
    >>> spread["anchors"].item(), round(spread["effective_keys"].item(), 6), round(spread["gini"].item(), 6)
    (2.0, 2.0, 0.8)
    >>> round(spread["null_effective_keys"].item(), 6), round(spread["null_gini"].item(), 6)
    (10.0, 0.0)
    """
    refuse_missing(data, ("mass", "visible", "null"), "Dispersion")
    refuse_other_axes(data["mass"], anchors)
    data = data[["mass", "visible", "null"]]
    if "head" not in anchors["anchor"].dims:
        data = mean_over_heads(data)
    return by_layers(_dispersion, data, anchors)


def _dispersion(data: xr.Dataset, anchors: xr.Dataset) -> xr.Dataset:
    measured = anchors["measured"]
    keys = measured.sum("key")
    scale = (measured / data["visible"].where(data["visible"] > 0)).fillna(0)
    effective, gini = _spread(existing(data["mass"]) * scale.astype(data["mass"].dtype), keys)
    null_effective, null_gini = _spread(data["null"].where(measured, 0), keys)
    known = effective.notnull()
    return xr.Dataset(
        {
            "anchors": anchors["anchor"].sum("key").where(known),
            "effective_keys": effective,
            "gini": gini,
            "null_effective_keys": null_effective,
            "null_gini": null_gini,
            "keys": keys,
            "reason": xr.where(known, "", NOTHING),
        }
    )


def _spread(profile: xr.DataArray, keys: xr.DataArray) -> tuple[xr.DataArray, xr.DataArray]:
    """Effective number and Gini coefficient of a profile over keys, 0 at those that do not count."""
    profile = profile.transpose(..., "key")
    heights = np.sort(profile.values, axis=-1)  # those that do not count lie among the first
    size = heights.shape[-1]
    like = profile.isel(key=0, drop=True).astype(float)
    total = like.copy(data=heights.sum(-1, dtype=float)).where(lambda height: height > 0)
    ranked = like.copy(data=heights @ np.arange(1, size + 1, dtype=heights.dtype))  # sum over i of i x_(i)
    logs = np.maximum(heights, np.finfo(heights.dtype).tiny)
    np.log(logs, out=logs)
    surprise = like.copy(data=np.einsum("...k,...k->...", heights, logs))
    effective = total * np.exp(-surprise / total)  # exp of the entropy of x / total
    ranked_among_keys = ranked / total - (size - keys)
    return effective, (2 * ranked_among_keys - keys - 1) / keys
