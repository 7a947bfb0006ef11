"""Anchors in a trace: which keys draw far more attention than their share, at every step, layer, head and query group.

The rules themselves (lift, additive, zscore, rate, top) are in `floatlens.anchor_rules`, which interventions use too. `find_anchors`
applies one to a trace; `threshold_sweep` says how many keys it calls anchors as its threshold moves: every key is sorted between two
thresholds once and counted from above, one layer at a time, so that forty thresholds cost little more than one.

Keys that too few rows see are not measured (docs/footguns.md). Refused: rules that do not exist, and thresholds that do not grow.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
import xarray as xr

from floatlens import anchor_rules
from floatlens.anchor_rules import refuse_unknown_rule
from floatlens.errors import Refusal
from floatlens.measures.inputs import RECEIVED, one_sample_at_a_time, refuse_missing
from floatlens.measures.received_attention import mean_over_heads, measured


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
    if rule == "top":
        chosen = _by_strength(lambda strength: anchor_rules.strongest(strength, int(eps)), data, enough)
    else:
        chosen = _by_key(lambda *received: anchor_rules.exceeds(rule, eps, *received), data)
    anchor = (chosen & enough).transpose(*data["mass"].dims)
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
    refuse_missing(data, RECEIVED, "Anchors")
    return _by_key(lambda *received: anchor_rules.margin(rule, *received), data)


def _by_strength(of_array: Callable[[np.ndarray], np.ndarray], data: xr.Dataset, enough: xr.DataArray) -> xr.DataArray:
    """What the rule `top` says of every key, from the received attention of those that are measured."""
    strength = margin(data, "rate").where(enough)
    chosen = xr.apply_ufunc(of_array, strength, input_core_dims=[["key"]], output_core_dims=[["key"]])
    return chosen.transpose(*data["mass"].dims, ...)


def _by_key(of_arrays: Callable[..., np.ndarray], data: xr.Dataset) -> xr.DataArray:
    """What an anchor rule says of every key, from mass, visible, null and rows."""
    arrays = [data[name] for name in RECEIVED]
    axes = [["key"] if "key" in values.dims else [] for values in arrays]
    return xr.apply_ufunc(of_arrays, *arrays, input_core_dims=axes, output_core_dims=[["key"]]).transpose(*data["mass"].dims, ...)


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
    refuse_missing(data, RECEIVED, "A threshold sweep")
    if not per_head or "head" not in data["mass"].dims:
        data = mean_over_heads(data)
    by_layer = [_sweep_layer(_layer(data, number), rule, grid) for number in range(data["mass"].sizes["layer"])]
    labels = {name: data[name] for name in ("layer", "group") if name in data.coords}
    return xr.concat(by_layer, "layer").transpose("eps", "layer", ...).assign_coords({"eps": grid, **labels}).assign_attrs(rule=rule)


def _layer(data: xr.Dataset, number: int) -> xr.Dataset:
    return data[list(RECEIVED)].isel(layer=number, drop=True)


def _sweep_layer(data: xr.Dataset, rule: str, grid: np.ndarray) -> xr.Dataset:
    enough = measured(data)
    if rule == "top":  # a rank below K, as a margin that must exceed -K
        rank = _by_strength(lambda strength: anchor_rules.rank(strength, math.ceil(grid[-1])), data, enough)
        beyond, thresholds = -rank.astype(float), -grid[::-1]
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
