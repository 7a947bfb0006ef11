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

How many keys a rule calls anchors, as its threshold moves.

Every key is sorted between two thresholds once and counted from above, a layer at a time: forty thresholds cost little more than one.
"""

from collections.abc import Sequence

import numpy as np
import xarray as xr

from floatlens.errors import Refusal
from floatlens.measures.inputs import RECEIVED, fair_mass, mean_over_heads, measured, one_sample_at_a_time, refuse_missing

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


_GRIDS = {"rate": np.linspace(0, 1, 41), "top": np.arange(1.0, 11.0)}
_GRID = np.linspace(0, 10, 41)


@one_sample_at_a_time
def threshold_sweep(data: xr.Dataset, *, rule: str = "lift", eps: Sequence[float] | None = None, per_head: bool = True) -> xr.Dataset:
    """Share of measured keys that a rule calls anchors, and of the attention that lies on them, for many eps: (eps, layer, group).

    Steps and heads are pooled. From 0 to 10 by default; 0 to 1 for "rate", 1 to 10 keys for "top".

    Examples
    --------
    >>> from floatlens.measures import from_attention
    >>> looks = np.full((4, 10), 0.04)
    >>> looks[:, 7] = 0.64  # 6.4 times its share
    >>> swept = threshold_sweep(from_attention(looks), eps=[0, 5, 6])
    >>> swept["kept"].squeeze().values.tolist()
    [0.1, 0.1, 0.0]
    >>> swept["absorbed"].squeeze().values.round(2).tolist()
    [0.64, 0.64, 0.0]
    """
    refuse_unknown_rule(rule, None)
    grid = np.asarray(_GRIDS.get(rule, _GRID) if eps is None else eps, dtype=float)
    if grid.ndim != 1 or not len(grid) or np.any(np.diff(grid) <= 0):
        raise Refusal("The eps of a sweep are numbers that grow from one to the next.")
    refuse_missing(data, ("mass", "visible", "null", "rows"), "A threshold sweep")
    if not per_head or "head" not in data["mass"].dims:
        data = mean_over_heads(data)
    by_layer = [_sweep_layer(_layer(data, number), rule, grid) for number in range(data["mass"].sizes["layer"])]
    labels = {name: data[name] for name in ("layer", "group") if name in data.coords}
    return xr.concat(by_layer, "layer").transpose("eps", "layer", ...).assign_coords({"eps": grid, **labels}).assign_attrs(rule=rule)


def _layer(data: xr.Dataset, number: int) -> xr.Dataset:
    wanted = data[["mass", "visible", "null", "rows"]]
    return wanted.isel(layer=number, drop=True)


def _sweep_layer(data: xr.Dataset, rule: str, grid: np.ndarray) -> xr.Dataset:
    enough = measured(data)
    if rule == "top":  # a rank below K, as a margin that must exceed -K
        beyond, thresholds = -rank_of_keys(data, enough).astype(float), -grid[::-1]
    else:
        beyond, thresholds = margin(data, rule), grid
    mass = data["mass"]
    counted = enough.broadcast_like(mass).transpose(*mass.dims)
    beyond = beyond.transpose(*mass.dims).where(counted)
    pooled = [dim for dim in mass.dims if dim != "group"]
    kept, absorbed = xr.apply_ufunc(
        lambda values, weights, there: _counted_above(values, weights, there, thresholds),
        beyond,
        mass.fillna(0),
        counted,
        input_core_dims=[pooled] * 3,
        output_core_dims=[["eps"]] * 2,
        vectorize=True,
    )
    back = slice(None, None, -1) if rule == "top" else slice(None)
    return xr.Dataset({"kept": kept, "absorbed": absorbed}).isel(eps=back)


def _counted_above(values: np.ndarray, weights: np.ndarray, there: np.ndarray, thresholds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Share of the values that exceed each threshold, and of the weights that belong to them."""
    nothing = np.full(len(thresholds), np.nan)
    total = there.sum()
    if not total:
        return nothing, nothing
    above = values > thresholds[0]
    exceeded = np.searchsorted(thresholds, values[above], side="left")  # how many thresholds lie below the value
    number = np.bincount(exceeded, minlength=len(thresholds) + 1)
    mass = np.bincount(exceeded, weights=weights[above], minlength=len(thresholds) + 1)
    at_least = slice(None, 0, -1)
    return number[at_least].cumsum()[::-1] / total, mass[at_least].cumsum()[::-1] / weights.sum(dtype=float)
