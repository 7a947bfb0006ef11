"""Anchors: keys that draw far more attention than their share.

Five rules, one form: each gives every key a `margin`, and a key is an anchor where its margin exceeds eps.

| rule | margin | eps |
|---|---|---|
| `lift` | received over its null, minus 1 | 3 |
| `additive` | `a[j]` minus the mean of the others, `a = mass * keys / rows` | 3 |
| `zscore` | standard deviations of the mass above its mean over keys (population) | 3 |
| `rate` | received | .3 |
| `top` | the keys with most received attention: eps is how many | 1 |

A rule that finds nothing returns nothing: `top` is for budgets and never stands in for another rule. Keys that too few rows see are not measured (docs/footguns.md).
"""

import numpy as np
import xarray as xr

from floatlens.errors import Refusal
from floatlens.measures.fair_share import fair_mass, measured
from floatlens.measures.inputs import RECEIVED, mean_over_heads, one_sample_at_a_time, refuse_missing

ROUNDING = 1e-5  # relative: even attention in float32 differs by less, and its deviations are no deviations

RULES = {"lift": 3.0, "additive": 3.0, "zscore": 3.0, "rate": 0.3, "top": 1.0}
"""The rules and the eps of each."""


@one_sample_at_a_time
def find_anchors(data: xr.Dataset, *, rule: str = "lift", eps: float | None = None, per_head: bool = True) -> xr.Dataset:
    """The anchors at every step, layer, head and query group.

    Parameters
    ----------
    data
        A trace, or a dataset with mass, visible, null and rows.
    rule
        "lift", "additive", "zscore", "rate" or "top".
    eps
        How far the margin must go; for "top", how many keys. Each rule has its own default.
    per_head
        Per head, or on attention averaged over heads.

    Returns
    -------
    xarray.Dataset
        `anchor`, True at anchors; `measured`, False at keys of which nothing can be said.

    Examples
    --------
    >>> from floatlens.measures import from_attention
    >>> looks = np.full((4, 10), 0.04)
    >>> looks[:, 7] = 0.64  # ten keys, and key 7 draws 6.4 times its share
    >>> found = find_anchors(from_attention(looks))
    >>> found["anchor"].squeeze().values.nonzero()[0].tolist()
    [7]
    """
    eps = refuse_unknown_rule(rule, eps)
    refuse_missing(data, RECEIVED, "Anchors")
    if not per_head or "head" not in data["mass"].dims:
        data = mean_over_heads(data[list(RECEIVED)])
    enough = measured(data)
    found = rank_of_keys(data, enough) < eps if rule == "top" else _exceeds(data, rule, eps)
    anchor = (found & enough).transpose(*data["mass"].dims)
    return xr.Dataset({"anchor": anchor, "measured": enough}, attrs={"rule": rule, "eps": eps})


@one_sample_at_a_time
def margin(data: xr.Dataset, rule: str = "lift") -> xr.DataArray:
    """How far each key goes beyond the others by a rule: an anchor is a key whose margin exceeds eps.

    Examples
    --------
    >>> from floatlens.measures import from_attention
    >>> margin(from_attention(np.array([[0.75, 0.25]])), "lift").squeeze().values.tolist()
    [0.5, -0.5]
    >>> margin(from_attention(np.array([[0.75, 0.25]])), "additive").squeeze().values.tolist()
    [1.0, -1.0]
    """
    refuse_missing(data, ("mass", "visible", "null", "rows"), "Anchors")
    mass, rows = data["mass"], data["rows"].where(data["rows"] > 0)
    if rule == "lift":
        return mass / fair_mass(data).astype(mass.dtype) - 1
    if rule == "rate":
        return mass / data["visible"].where(data["visible"] > 0).astype(mass.dtype)
    exists = mass.notnull()
    keys = exists.sum("key")
    if rule == "additive":
        scaled = mass * (keys / rows).astype(mass.dtype)
        others = (scaled.sum("key") - scaled) / (keys - 1).where(keys > 1).astype(mass.dtype)
        return scaled - others
    if rule == "zscore":
        per_row = mass / rows.astype(mass.dtype)
        mean, spread = per_row.mean("key"), per_row.std("key", ddof=0)
        return (per_row - mean) / spread.where(spread > ROUNDING * mean)
    raise Refusal(f"The rule {rule!r} has no margin; those with one are lift, additive, zscore and rate.")


def _exceeds(data: xr.Dataset, rule: str, eps: float) -> xr.DataArray:
    """Whether the margin exceeds eps. Where the rule compares with something small, that is scaled instead of the mass, which is a hundred times larger."""
    mass = data["mass"]
    if rule == "lift":
        return mass > (1 + eps) * fair_mass(data).astype(mass.dtype)
    if rule == "rate":
        return mass > (eps * data["visible"].where(data["visible"] > 0)).astype(mass.dtype)
    return margin(data, rule) > eps


def rank_of_keys(data: xr.Dataset, enough: xr.DataArray) -> xr.DataArray:
    """The rank of each key by received attention among the measured ones, 0 for the strongest; ties to the left; as many as there are keys where it is not measured."""
    mass = data["mass"]
    strength = margin(data, "rate").where(enough, -np.inf).transpose(*mass.dims)
    axis = strength.get_axis_num("key")
    order = np.argsort(-strength.values, axis=axis, kind="stable")
    ranks = np.empty(order.shape, np.int32)
    np.put_along_axis(
        ranks, order, np.arange(order.shape[axis], dtype=np.int32).reshape([-1 if at == axis else 1 for at in range(order.ndim)]), axis
    )
    return strength.copy(data=ranks).where(np.isfinite(strength), order.shape[axis])


def refuse_unknown_rule(rule: str, eps: float | None) -> float:
    """The eps to use, or a refusal of a rule that does not exist or an eps that makes no sense.

    Examples
    --------
    >>> refuse_unknown_rule("rate", None)
    0.3
    """
    if rule not in RULES:
        raise Refusal(f"There is no anchor rule {rule!r}; the rules are {', '.join(RULES)}.")
    if eps is None:
        return RULES[rule]
    if rule == "top" and (eps != int(eps) or eps < 1):
        raise Refusal(f"eps={eps} for the rule 'top': it is the number of keys, 1 or more.")
    if not np.isfinite(eps):
        raise Refusal(f"eps={eps} is no threshold; the default of the rule {rule!r} is {RULES[rule]}.")
    return float(eps)
