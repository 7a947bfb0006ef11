"""The float index: how much of a set of anchors is replaced from one step to the next, and how much of that is movement.

`float_index = 1 - mean over neighbouring steps of Jaccard`. By itself it says little: static anchors that are seen through few, noisy rows
already score .5 to .9. Two nulls stand beside it. `no_memory` is the index of as many anchors that lie anywhere. `no_movement` is what the
noise of the rows alone gives; `method` says how it was found, which depends on what was recorded:

- "halves", for groups with several rows per step, when the rows at even positions were recorded by themselves. Within a step nothing has
  moved, so the anchors of its even and of its odd rows differ by noise alone: that is `no_movement`. It is set against `compared`, the
  even rows of a step and the odd rows of the next (and the other way round): sets of as many rows, and again of other rows, since a row
  at a step and the same row at the next share their noise. `movement` is the difference: 0 where nothing moves, 1 where the rows agree
  and all anchors change. Each step counts as often within as across.
- "order", for groups of one row per step (the predicting rows of an autoregressive model). Each step's anchors are those of one row, so
  rows can be reordered: `no_movement` is the mean over all orders, exactly. `compared` is the index on the keys that are measured at all
  steps (rows that see different keys cannot change places). Below `no_movement` neighbouring steps agree more than distant ones: the
  anchors drift. Where the two are equal, static anchors seen through noise and anchors that leap anywhere at every step look the same,
  and no null can tell them apart. `movement` is therefore NaN.

`float_index_of_rows` is the index where every row is known (full patterns): all rows of a group are shuffled and dealt to the steps
again, as many to each as it has. Rows are not drawn with replacement: the same row at two steps would make them alike. It has less power
than halves: shuffled rows of anchors that move are a mixture in which few keys reach a threshold, which is noisy by itself, and rows that
change little from step to step share their noise, which shuffling takes from them. A difference above 0 is movement; one at or below 0
does not show that there is none.

Where there is no number it is NaN, and `reason` says why.
"""

from collections.abc import Hashable, Sequence

import numpy as np
import xarray as xr

from floatlens.anchor_rules import refuse_unknown_rule
from floatlens.errors import Refusal
from floatlens.measures.anchors import find_anchors
from floatlens.measures.drift import jaccard, neighbours, overlap, refuse_without_axis, why_no_drift
from floatlens.measures.inputs import HALVES, RECEIVED, by_layers, one_sample_at_a_time, refuse_missing
from floatlens.measures.received_attention import halves_of, mean_over_heads

NO_ANCHORS_DEALT = "no anchors once the rows of all steps are dealt out again"


@one_sample_at_a_time
def float_index_of_rows(
    rows: xr.DataArray,
    visible: xr.DataArray | None = None,
    *,
    rule: str = "lift",
    eps: float | None = None,
    draws: int = 20,
    seed: int = 0,
) -> xr.Dataset:
    """How much of the anchors is replaced from step to step, beside the same after dealing the rows out again.

    Parameters
    ----------
    rows
        Attention over step, query and key, such as the `pattern` of a trace; further axes (`chosen`, `head`) are kept. Rows that are not
        of the group are NaN: `pattern.where(of_the_group)`. Keys that do not exist are NaN.
    visible
        Which keys each row may see (step, query, key); by default all that exist. Only keys that all rows see take part, for other rows
        could not change places.
    rule, eps
        How anchors are found, as in `find_anchors`.
    draws, seed
        How often rows are dealt, and the seed of it.

    Returns
    -------
    xarray.Dataset
        `float_index`, `no_memory`, `no_movement`, `movement` (NaN for one row per step), `pairs`, `reason`.

    Examples
    --------
    Two steps of four rows each that all look at key 3: whichever way they are dealt, nothing changes.

    >>> looks = np.full((2, 4, 10), 0.04)
    >>> looks[..., 3] = 0.64
    >>> found = float_index_of_rows(xr.DataArray(looks, dims=("step", "query", "key")))
    >>> found["float_index"].item(), found["no_movement"].item(), found["movement"].item()
    (0.0, 0.0, 0.0)
    """
    refuse_unknown_rule(rule, eps)
    if missing := [axis for axis in ("step", "query", "key") if axis not in rows.dims]:
        raise Refusal(f"Rows need the axis {missing[0]!r}: pass attention over step, query and key, such as the pattern of a trace.")
    if draws < 1:
        raise Refusal(f"draws={draws}: rows must be dealt at least once.")
    weights = rows.transpose("step", "query", ..., "key")
    seen = weights.notnull().any(weights.dims[2:-1]).values  # (step, query, key)
    of_group = seen.any(-1)
    if visible is not None:
        seen = seen & visible.transpose("step", "query", "key").values.astype(bool)
    step_of, query_of = np.nonzero(of_group)
    pool = weights.values[step_of, query_of]  # (row, ..., key)
    sees = seen[step_of, query_of]
    by_all = sees.all(0)
    if not by_all.any():
        raise Refusal(
            "No key is seen by all rows of the group, so that rows cannot change places; pass rows that share keys, or use float_index."
        )
    generator = np.random.default_rng(seed)
    orders = [np.arange(len(pool)), *(generator.permutation(len(pool)) for _ in range(draws))]
    each = index_of(
        find_anchors(_dealt(pool[..., by_all], 1 / sees.sum(-1), of_group.sum(-1), orders, weights.dims[2:-1]), rule=rule, eps=eps)
    )
    result = each.isel(draw=0)
    result["no_movement"] = each["float_index"].isel(draw=slice(1, None)).mean("draw")
    one_row = of_group.sum(-1).max() <= 1
    result["movement"] = xr.full_like(result["float_index"], np.nan) if one_row else result["float_index"] - result["no_movement"]
    without = xr.where(result["movement"].notnull(), "", ONE_ROW if one_row else NO_ANCHORS_DEALT)
    result["reason"] = xr.where(result["reason"] == "", without, result["reason"])
    return result.assign_coords({name: part for name, part in rows.coords.items() if not {"step", "query", "key"} & set(part.dims)})


def _dealt(pool: np.ndarray, fair: np.ndarray, number: np.ndarray, orders: Sequence[np.ndarray], axes: tuple[Hashable, ...]) -> xr.Dataset:
    """Received attention by step and draw, if rows (row, ..., key) with these fair shares are dealt in each order, so many to each step."""
    some = np.flatnonzero(number)
    starts = np.concatenate([[0], np.cumsum(number[some])[:-1]]).astype(int)[: len(some)]
    mass = np.zeros((len(number), len(orders), *pool.shape[1:]))
    expected = np.full((len(number), len(orders)), np.nan)
    for draw, order in enumerate(orders if len(some) else ()):
        mass[some, draw] = np.add.reduceat(pool[order], starts, axis=0)
        expected[some, draw] = np.add.reduceat(fair[order], starts) / number[some]
    counted, everyone = xr.DataArray(number.astype(float), dims="step"), xr.DataArray(np.ones(pool.shape[-1]), dims="key")
    return xr.Dataset(
        {
            "mass": (("step", "draw", *axes, "key"), mass),
            "visible": counted * everyone,
            "null": xr.DataArray(expected, dims=("step", "draw")) * everyone,
            "rows": counted,
        }
    )


NO_PAIR = "no two neighbouring steps that are both measured have anchors"
NO_HALVES = "nothing recorded that tells noise from movement: record halves"
HALVES_PER_LAYER = "halves were recorded per layer and mass per head: use per_head=False"
ONE_HALF = "no two neighbouring steps have rows of the group at even and at odd positions"
EMPTY_HALVES = "no anchors in the halves of the rows"
ONE_ROW = "one row per step, so noise and movement cannot be told apart; see float index (no movement)"


@one_sample_at_a_time
def float_index(data: xr.Dataset, *, rule: str = "lift", eps: float | None = None, per_head: bool = True) -> xr.Dataset:
    """How much of the anchors is replaced from step to step, beside what chance and what noise would replace.

    Parameters
    ----------
    data
        A trace, or a dataset with mass, visible, null and rows; with the same of the rows at even positions (detail "halves") noise can
        be told from movement.
    rule, eps, per_head
        How anchors are found, as in `find_anchors`.

    Returns
    -------
    xarray.Dataset
        By layer, head and group: `float_index`, `no_memory`, `no_movement`, `compared`, `movement`, `pairs` (of steps that counted),
        `reason`; by group: `method`. See the top of this module.

    Examples
    --------
    Four rows look at key 2 at step 0 and at key 5 from step 1 on: one of two pairs of steps differs.

    >>> from floatlens.measures import from_attention
    >>> looks = np.full((3, 1, 1, 4, 10), 0.04)
    >>> looks[0, ..., 2] = looks[1:, ..., 5] = 0.64
    >>> found = float_index(from_attention(looks))
    >>> found["float_index"].item(), found["no_movement"].item(), found["movement"].item()
    (0.5, 0.0, 0.5)
    """
    refuse_unknown_rule(rule, eps)
    kept = [*RECEIVED, *(HALVES if "mass_even" in data else ())]
    refuse_missing(data, kept, "The float index")
    if not per_head or "head" not in data["mass"].dims:
        data = mean_over_heads(data)
    grouped = data[kept] if "group" in data.dims else data[kept].expand_dims("group")
    if "step" in grouped.dims:
        grouped = grouped.transpose("step", ...)
    single = (grouped["rows"] <= 1) | grouped["rows"].isnull()
    by_order = single.all([axis for axis in single.dims if axis != "group"])
    index = by_layers(lambda some: _index(some, by_order, rule, eps), grouped)
    index = index.transpose(*(axis for axis in grouped["mass"].dims if axis not in ("step", "key")))
    return (index if "group" in data.dims else index.squeeze("group", drop=True)).assign_attrs(
        rule=rule, eps=refuse_unknown_rule(rule, eps)
    )


def _index(data: xr.Dataset, by_order: xr.DataArray, rule: str, eps: float | None) -> xr.Dataset:
    anchors = find_anchors(data[list(RECEIVED)], rule=rule, eps=eps)
    refuse_without_axis(anchors, "step")
    index = index_of(anchors)
    noise, without = _by_order(anchors, by_order), xr.where(by_order, ONE_ROW, "")
    if not by_order.all():
        halves, why = _by_halves(data, rule, eps, like=index["float_index"])
        noise, without = xr.where(by_order, noise, halves), xr.where(by_order, without, why)
    index = index.assign(noise.where(index["reason"] == ""))
    index["movement"] = (index["compared"] - index["no_movement"]).where(~by_order)
    index["reason"] = xr.where(index["reason"] == "", without, index["reason"])
    index["method"] = xr.where(by_order, "order", "halves" if "mass_even" in data else "")
    return index


def index_of(anchors: xr.Dataset) -> xr.Dataset:
    """`float_index`, `no_memory`, the `pairs` of steps that counted, and the `reason` why there is none, of anchors as they are."""
    along = jaccard(*neighbours(anchors, "step"))
    counted = along["jaccard"].notnull()
    pairs = counted.sum("step")
    reason = why_no_drift(anchors)
    return xr.Dataset(
        {
            "float_index": 1 - along["jaccard"].mean("step"),
            "no_memory": 1 - along["no_memory"].where(counted).mean("step"),
            "pairs": pairs,
            "reason": xr.where((reason == "") & (pairs == 0), NO_PAIR, reason).transpose(*reason.dims),
        }
    )


def _by_order(anchors: xr.Dataset, chosen: xr.DataArray) -> xr.Dataset:
    """The index of a group's steps in any order, and in theirs, on the keys measured at all of them; NaN for groups that are not chosen."""
    anchor, measured = anchors["anchor"].transpose("group", ..., "step", "key"), anchors["measured"]
    somewhere = measured.any([axis for axis in measured.dims if axis not in ("group", "step", "key")]).transpose("group", "step", "key")
    everywhere = measured.all([axis for axis in measured.dims if axis not in ("group", "step", "key")]).transpose("group", "step", "key")
    means = np.full((2, *anchor.shape[:-2]), np.nan)
    for group in np.flatnonzero(chosen):
        steps = np.flatnonzero(somewhere.values[group].any(-1))
        keys = everywhere.values[group][steps].all(0)
        sets = anchor.values[group][..., steps, :][..., keys].astype(np.float32)
        common = sets @ np.swapaxes(sets, -1, -2)
        number = sets.sum(-1)
        either = number[..., :, None] + number[..., None, :] - common
        similar = np.divide(common, either, out=np.full(common.shape, np.nan), where=either > 0)
        distance = steps[None, :] - steps[:, None]
        for row, pairs in enumerate((distance > 0, distance == 1)):
            among = similar[..., pairs]
            known = (~np.isnan(among)).sum(-1)
            means[row, group] = 1 - np.divide(np.nansum(among, -1), known, out=np.full(known.shape, np.nan), where=known > 0)
    axes = anchor.dims[:-2]
    return xr.Dataset({"no_movement": (axes, means[0]), "compared": (axes, means[1])})


def _by_halves(data: xr.Dataset, rule: str, eps: float | None, like: xr.DataArray) -> tuple[xr.Dataset, xr.DataArray]:
    """Within a step and across two, between the rows at even and those at odd positions; and why there is no number."""
    unknown = xr.Dataset({"no_movement": xr.full_like(like, np.nan), "compared": xr.full_like(like, np.nan)})
    if "mass_even" not in data:
        return unknown, xr.where(like.isnull(), "", NO_HALVES)
    if ("head" in data["mass"].dims) != ("head" in data["mass_even"].dims):
        return unknown, xr.where(like.isnull(), "", HALVES_PER_LAYER)
    even, odd = (find_anchors(half, rule=rule, eps=eps) for half in halves_of(data))
    (even_now, even_next), (odd_now, odd_next) = neighbours(even, "step"), neighbours(odd, "step")
    within = overlap(even_now, odd_now), overlap(even_next, odd_next)
    across = overlap(even_now, odd_next), overlap(odd_now, even_next)
    usable = (within[0].keys > 0) & (within[1].keys > 0) & (across[0].keys > 0) & (across[1].keys > 0)
    means = {
        name: 1 - xr.concat([shared.jaccard for shared in pair], "side").where(usable).mean(("side", "step"))
        for name, pair in (("no_movement", within), ("compared", across))
    }
    some = means["no_movement"].notnull() & means["compared"].notnull()
    return xr.Dataset(means), xr.where(some, "", xr.where(usable.any("step"), EMPTY_HALVES, ONE_HALF))
