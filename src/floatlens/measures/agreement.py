"""Agreement: whether heads have the same favourite key, and whether two query groups have the same anchors.

The favourite of a head is the measured key with most received attention. A head without one (several keys draw the same, as in even
attention) has no vote. The null of the consensus is the expected share of the most popular key if every voting head picked any measured
key: exact, and well above 1 / keys for few heads (1 for a single one).
"""

from functools import lru_cache

import numpy as np
import xarray as xr

from floatlens.errors import Refusal
from floatlens.measures.drift import jaccard
from floatlens.measures.inputs import by_layers, choose_group, existing, one_sample_at_a_time, refuse_missing
from floatlens.measures.received_attention import measured

TIE = 1e-5  # relative: float32 sums of equal weights differ by less
NO_FAVOURITE = "no head has one favourite key"
NOT_MEASURED = "no key is measured"


@one_sample_at_a_time
def head_consensus(data: xr.Dataset) -> xr.Dataset:
    """Share of heads with the same favourite key.

    Returns
    -------
    xarray.Dataset
        By step, layer and group: `consensus`, the share of the voting heads whose favourite is the most common one; `null`, its mean if
        they picked at random; `heads`, how many voted; `reason`.

    Examples
    --------
    Two of three heads look at key 0 most, one at key 1.

    >>> from floatlens.measures import from_attention
    >>> looks = np.array([[[0.8, 0.2]], [[0.7, 0.3]], [[0.1, 0.9]]])  # head, query, key
    >>> agreed = head_consensus(from_attention(looks))
    >>> round(agreed["consensus"].item(), 3), agreed["null"].item()  # three coins: 3 alike with chance 1/4, else 2
    (0.667, 0.75)
    """
    refuse_missing(data, ("mass", "visible", "rows"), "The consensus of heads")
    if "head" not in data["mass"].dims:
        raise Refusal("The consensus of heads needs mass per head; record it with detail={'mass': 'head'}.")
    return by_layers(_consensus, data[["mass", "visible", "rows"]])


def _consensus(data: xr.Dataset) -> xr.Dataset:
    enough = measured(data)
    favourite, known = sole_favourite(data["mass"], data["visible"], enough)
    favourite = favourite.transpose(..., "head")
    votes = favourite >= 0
    keys_voted_for = favourite.values
    alike = (keys_voted_for[..., :, None] == keys_voted_for[..., None, :]).sum(-1)
    most = votes.copy(data=alike).where(votes, 0).max("head")
    heads = votes.sum("head")
    keys = enough.sum("key")
    keys = keys.max("head") if "head" in keys.dims else keys
    return xr.Dataset(
        {
            "consensus": most / heads.where(heads > 0),
            "null": xr.apply_ufunc(expected_consensus, heads, keys),
            "heads": heads,
            "reason": xr.where(known.any("head"), xr.where(heads > 0, "", NO_FAVOURITE), NOT_MEASURED),
        }
    )


def sole_favourite(mass: xr.DataArray, visible: xr.DataArray, candidates: xr.DataArray) -> tuple[xr.DataArray, xr.DataArray]:
    """The candidate with most received attention, -1 where several draw the same; and whether any draws something.

    Examples
    --------
    >>> mass = xr.DataArray([[0.2, 0.5, 0.3], [0.4, 0.4, 0.2]], dims=("head", "key"))
    >>> favourite, known = sole_favourite(mass, xr.ones_like(mass), mass > 0)
    >>> favourite.values.tolist(), known.values.tolist()
    ([1, -1], [True, True])
    """
    scale = candidates / visible.where(visible > 0)
    strength = existing(mass) * scale.fillna(0).astype(mass.dtype)
    best = strength.max("key", skipna=False)
    rivals = (strength >= best * (1 - TIE)).sum("key")
    known = best > 0  # 0 where there is no candidate, or no head
    return strength.argmax("key", skipna=False).where(known & (rivals == 1), -1).astype(int), known


def expected_consensus(heads: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Mean share of the most popular key if each head picks any key; NaN without heads.

    Examples
    --------
    >>> expected_consensus(np.array([1, 2]), np.array([50, 4])).round(6).tolist()  # two heads: alike with chance 1/4
    [1.0, 0.625]
    """
    heads, keys = (np.asarray(part, dtype=np.int64) for part in np.broadcast_arrays(heads, keys))
    distinct, place = np.unique(np.stack([heads.ravel(), keys.ravel()]), axis=1, return_inverse=True)
    means = np.array([_expected_share(int(voters), int(choices)) for voters, choices in distinct.T])
    return means[place.ravel()].reshape(heads.shape)


@lru_cache(maxsize=4096)
def _expected_share(heads: int, keys: int) -> float:
    """The expected share of the most popular of `keys` keys, if each of `heads` heads votes for any of them.

    Votes for a key are Poisson variables given their sum: the chance that none exceeds c is a coefficient of the keys-th power of the
    truncated series.
    """
    if not heads or not keys:
        return float("nan")
    logs = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, heads + 1)))])
    votes = np.arange(heads + 1)
    series = np.exp(votes * np.log(heads / keys) - heads / keys - logs)
    all_votes = np.exp(heads * np.log(heads) - heads - logs[-1])
    below = [_power(np.where(votes <= most, series, 0), keys)[heads] / all_votes for most in range(heads)]
    return float(np.sum(1 - np.clip(below, 0, 1)) / heads)


def _power(series: np.ndarray, exponent: int) -> np.ndarray:
    """A polynomial to a power, up to its own degree, by squaring."""
    result = np.zeros_like(series)
    result[0] = 1
    while exponent:
        if exponent % 2:
            result = np.convolve(result, series)[: len(series)]
        series, exponent = np.convolve(series, series)[: len(series)], exponent // 2
    return result


@one_sample_at_a_time
def split_sinks(anchors: xr.Dataset, first: str = "masked", second: str = "unmasked") -> xr.Dataset:
    """Jaccard of the anchors of two query groups: low where each kind of row has sinks of its own.

    Returns
    -------
    xarray.Dataset
        `jaccard` by step, layer and head, NaN where both have none or one has no rows; `no_memory`, if as many lay anywhere.

    Examples
    --------
    Masked rows look at key 2, unmasked ones at key 5.

    >>> from floatlens.measures import find_anchors, from_attention
    >>> looks = np.full((4, 10), 0.04)
    >>> looks[:2, 2] = looks[2:, 5] = 0.64
    >>> masked = np.array([True, True, False, False])
    >>> found = find_anchors(from_attention(looks, groups={"masked": masked, "unmasked": ~masked}))
    >>> split_sinks(found)["jaccard"].item()
    0.0
    """
    groups = (choose_group(anchors[["anchor", "measured"]], group).drop_vars("group") for group in (first, second))
    return jaccard(*groups)
