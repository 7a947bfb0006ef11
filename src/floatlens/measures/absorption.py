"""How much attention lies on few keys: absorption by a set of keys, and dispersion over all of them.

Each number stands beside its null, the same number if every row spread evenly over what it sees.

**Absorption** is the percentage of a group's attention that lies on a set of keys: the anchors of a rule, the strongest key, the first
token. The null matters as much as the share: uniform causal attention alone puts 9 % of 50 rows on the first token. The strongest key is
chosen on one half of the rows and measured on the other, since choosing and measuring on the same rows counts noise as attention; the
published way is reported as `same_rows`. Anchors are found and measured on the same rows: few rows make them look stronger than they are.
A rule that finds no anchors where keys were measured absorbs 0, of a null of 0. What keys draw that an edit appended is not counted.

**Dispersion** says over how many measured keys received attention is spread: the number of anchors; the effective number of keys,
exp(entropy) of received attention as shares (1: one key draws all; the number of keys: all draw alike); Gini's coefficient (0: all draw
alike; toward 1: one key draws all). Under a causal mask the null profile is not even. Anchors of head-averaged attention are measured
against head-averaged mass.

NaN where there is nothing to divide or to choose; `reason` says why. Refused: anchors that were not found in the same data.
"""

import numpy as np
import xarray as xr

from floatlens.measures.inputs import (
    HALVES,
    NO_ROWS,
    RECEIVED,
    by_layers,
    existing,
    one_sample_at_a_time,
    refuse_missing,
    refuse_other_axes,
)
from floatlens.measures.received_attention import fair_mass, mean_over_heads, measured

NOT_MEASURED = "too few rows see any key"
ONE_HALF = "only one half of the positions, even or odd, has rows of the group: measure pool_steps(data)"


@one_sample_at_a_time
def absorption_of_anchors(data: xr.Dataset, anchors: xr.Dataset) -> xr.Dataset:
    """The percentage of attention on the anchors.

    Parameters
    ----------
    data
        A trace, or a dataset with mass, visible, null and rows.
    anchors
        What `find_anchors` found in the same data. Anchors without an axis `head` or `step` (of head-averaged attention, of pooled steps)
        hold for every head or step.

    Returns
    -------
    xarray.Dataset
        `share` and `null` in percent by step, layer, head and group; `reason`, why there is none.

    Examples
    --------
    >>> from floatlens.measures import find_anchors, from_attention
    >>> looks = np.full((4, 10), 0.04)
    >>> looks[:, 7] = 0.64
    >>> data = from_attention(looks)
    >>> absorbed = absorption_of_anchors(data, find_anchors(data))
    >>> round(absorbed["share"].item(), 6), round(absorbed["null"].item(), 6)
    (64.0, 10.0)
    """
    refuse_missing(data, RECEIVED, "Absorption")
    refuse_other_axes(data["mass"], anchors)
    return by_layers(_on_anchors, data[list(RECEIVED)], anchors)


def _on_anchors(data: xr.Dataset, anchors: xr.Dataset) -> xr.Dataset:
    has_rows, known = data["rows"] > 0, anchors["measured"].any("key")
    held = share_on(anchors["anchor"], data["mass"], fair_mass(data)).where(known & has_rows)
    return held.assign(reason=xr.where(~has_rows, NO_ROWS, xr.where(known, "", NOT_MEASURED)))


@one_sample_at_a_time
def absorption_of_first_token(data: xr.Dataset) -> xr.Dataset:
    """The percentage of attention on key 0; 0, of a null of 0, where no row of the group sees it.

    Examples
    --------
    Two rows of a causal model that spread evenly: the first token has three quarters, and deserves them.

    >>> from floatlens.measures import from_attention
    >>> data = from_attention(np.array([[1.0, 0.0], [0.5, 0.5]]), visible=np.tril(np.ones((2, 2))))
    >>> absorbed = absorption_of_first_token(data)
    >>> absorbed["share"].item(), absorbed["null"].item()
    (75.0, 75.0)
    """
    refuse_missing(data, RECEIVED, "Absorption")
    return by_layers(_on_first_token, data[list(RECEIVED)])


def _on_first_token(data: xr.Dataset) -> xr.Dataset:
    mass, fair = existing(data["mass"]), existing(fair_mass(data))
    has_rows = data["rows"] > 0
    share, null = (_percent(amount.isel(key=0), _sum_over_keys(amount)).where(has_rows) for amount in (mass, fair))
    return xr.Dataset({"share": share, "null": null, "reason": xr.where(has_rows, "", NO_ROWS)})


@one_sample_at_a_time
def absorption_of_strongest_key(data: xr.Dataset) -> xr.Dataset:
    """The percentage of attention on the key with most received attention, chosen on half of the rows and measured on the other half.

    The key that rows at even positions favour is measured on rows at odd positions, and the other way round, so that every row is
    measured once and all rows weigh alike. Where rows are independent and have no favourite, `share` is its null on average. Candidates
    are the keys that enough rows see. Halves kept per layer give results per layer.

    Returns
    -------
    xarray.Dataset
        `share` and `null` in percent by step, layer, head and group; `reason`, why there is no share (a group of one row has no halves:
        measure `pool_steps(data)`); `same_rows` and `same_rows_null`, of the key chosen and measured on all rows, as published.

    Examples
    --------
    Rows 0 and 2 look at key 0 most, rows 1 and 3 at key 1: no key is strong for both halves.

    >>> from floatlens.measures import from_attention
    >>> looks = np.array([[0.7, 0.1, 0.2], [0.1, 0.5, 0.4], [0.7, 0.1, 0.2], [0.1, 0.5, 0.4]])
    >>> absorbed = absorption_of_strongest_key(from_attention(looks))
    >>> round(absorbed["share"].item(), 6), round(absorbed["same_rows"].item(), 6), round(absorbed["null"].item(), 1)
    (10.0, 40.0, 33.3)
    """
    refuse_missing(data, (*RECEIVED, *HALVES), "Absorption of the strongest key")
    if ("head" in data["mass"].dims) != ("head" in data["mass_even"].dims):
        data = mean_over_heads(data)
    return by_layers(_on_strongest_key, data[[*RECEIVED, *HALVES]])


def _on_strongest_key(data: xr.Dataset) -> xr.Dataset:
    enough, fair, fair_even = measured(data), existing(fair_mass(data)), existing(fair_mass(data, "_even"))
    mass, mass_even, visible_even = existing(data["mass"]), existing(data["mass_even"]), data["visible_even"]
    mass_odd, visible_odd = mass - mass_even, data["visible"] - visible_even
    favourite, known = _strongest(mass, data["visible"], enough)
    favourite_even, known_even = _strongest(mass_even, visible_even, enough)
    favourite_odd, known_odd = _strongest(mass_odd, visible_odd, enough)
    all_mass, all_fair = _sum_over_keys(mass), _sum_over_keys(fair)
    held = mass_odd.isel(key=favourite_even) + mass_even.isel(key=favourite_odd)
    deserved = (fair - fair_even).isel(key=favourite_even) + fair_even.isel(key=favourite_odd)
    has_rows, both = data["rows"] > 0, (data["rows_even"] > 0) & (data["rows"] - data["rows_even"] > 0)
    known_in_both = known_even & known_odd
    reason = xr.where(~has_rows, NO_ROWS, xr.where(~both, ONE_HALF, xr.where(known_in_both, "", NOT_MEASURED)))
    return xr.Dataset(
        {
            "share": _percent(held, all_mass).where(both & known_in_both),
            "null": _percent(deserved, all_fair).where(both & known_in_both),
            "same_rows": _percent(mass.isel(key=favourite), all_mass).where(known),
            "same_rows_null": _percent(fair.isel(key=favourite), all_fair).where(known),
            "reason": reason,
        }
    )


def _strongest(mass: xr.DataArray, visible: xr.DataArray, enough: xr.DataArray) -> tuple[xr.DataArray, xr.DataArray]:
    """The measured key with most received attention, ties to the left, and whether there is any."""
    candidates = enough & (visible > 0)
    # a product and a sum with small arrays cost less than a division and a choice in the large one
    strength = mass * (1 / visible).where(candidates, 0).astype(mass.dtype)
    strength += xr.where(candidates, 0, -np.inf).astype(mass.dtype)
    return strength.argmax("key", skipna=False), candidates.any("key")


def share_on(chosen: xr.DataArray, mass: xr.DataArray, fair: xr.DataArray) -> xr.Dataset:
    """The percentage of `mass` on the chosen keys (`share`), and that of the fair mass (`null`); NaN where there is no mass.

    Examples
    --------
    >>> chosen = xr.DataArray([True, False, True], dims="key")
    >>> mass, fair = xr.DataArray([3.0, 1.0, 0.0], dims="key"), xr.DataArray([1.0, 1.0, np.nan], dims="key")
    >>> held = share_on(chosen, mass, fair)
    >>> held["share"].item(), held["null"].item()
    (75.0, 50.0)
    """
    weights = chosen.astype(mass.dtype)
    shares: dict[str, xr.DataArray] = {}
    for name, amount in (("share", existing(mass)), ("null", existing(fair))):
        shares[name] = _percent(xr.dot(amount, weights, dim="key"), _sum_over_keys(amount))
    return xr.Dataset(shares)


def _sum_over_keys(amount: xr.DataArray) -> xr.DataArray:
    return amount.sum("key", skipna=False)


def _percent(part: xr.DataArray, whole: xr.DataArray) -> xr.DataArray:
    return 100 * part / whole.where(whole > 0)


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
        By step, layer, head and group: `anchors`, `effective_keys` and `gini`; `null_effective_keys`, `null_gini` and `keys` (how many
        were measured); `reason`.

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
