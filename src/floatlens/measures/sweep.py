"""How many keys a rule calls anchors, as its threshold moves.

Every key is sorted between two thresholds once and counted from above, a layer at a time: forty thresholds cost little more than one.
"""

from collections.abc import Sequence

import numpy as np
import xarray as xr

from floatlens.errors import Refusal
from floatlens.measures.anchors import margin, rank_of_keys, refuse_unknown_rule
from floatlens.measures.fair_share import measured
from floatlens.measures.inputs import mean_over_heads, one_sample_at_a_time, refuse_missing

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
