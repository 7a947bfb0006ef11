"""The float index where every row is known: `no_movement` by dealing the rows out again.

All rows of a group over all steps are shuffled and dealt to the steps, as many to each as it has, and anchors are detected again: what would be seen if it made no difference at which step a row
was computed. Rows are dealt, not drawn with replacement: the same row at two steps would make them alike.

This needs full patterns. It has less power than halves of rows (`float_index`): shuffled rows of anchors that move are a mixture in which few keys reach a threshold, which is noisy by
itself; and rows that change little from step to step share their noise, which shuffling takes from them. A difference above 0 is movement; one at or below 0 does not say that there is none.
"""

from collections.abc import Hashable, Sequence

import numpy as np
import xarray as xr

from floatlens.errors import Refusal
from floatlens.measures.anchors import find_anchors, refuse_unknown_rule
from floatlens.measures.floating import ONE_ROW, index_of
from floatlens.measures.inputs import one_sample_at_a_time

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
    """How much of the anchors is replaced from step to step, beside the same of rows that were dealt out again.

    Parameters
    ----------
    rows
        Attention over step, query and key, such as the `pattern` of a trace; further axes (`chosen`, `head`) are kept. Rows that are not of the group are NaN:
        `pattern.where(of_the_group)`. Keys that do not exist are NaN.
    visible
        Which keys each row may see (step, query, key); by default all that exist. Only keys that all rows see take part, for other rows could not change places.
    rule, eps
        How anchors are found, as in `find_anchors`.
    draws, seed
        How often rows are dealt, and the seed of it.

    Returns
    -------
    xarray.Dataset
        `float_index`, `no_memory`, `no_movement`, `movement` (NaN for one row a step), `pairs`, `reason`.

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
    found = each.isel(draw=0)
    found["no_movement"] = each["float_index"].isel(draw=slice(1, None)).mean("draw")
    one_row = of_group.sum(-1).max() <= 1
    found["movement"] = xr.full_like(found["float_index"], np.nan) if one_row else found["float_index"] - found["no_movement"]
    without = xr.where(found["movement"].notnull(), "", ONE_ROW if one_row else NO_ANCHORS_DEALT)
    found["reason"] = xr.where(found["reason"] == "", without, found["reason"])
    return found.assign_coords({name: part for name, part in rows.coords.items() if not {"step", "query", "key"} & set(part.dims)})


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
