"""The frontier: whether the anchors move as the positions that are being written move.

Both the centroid of the anchors and the mean position committed at a step tend to travel through the text, and any two things that travel correlate. What is correlated here is how
far each moves from one step to the next. The null are the same two series with one of them turned round by every possible number of steps: what they share by chance, given how each of
them moves.

NaN with a reason: too few steps; anchors that do not move; a frontier that always moves by the same amount, as that of an autoregressive model does (nothing can be told from it).
"""

import numpy as np
import xarray as xr

from floatlens.errors import Refusal
from floatlens.measures.drift import refuse_without_axis
from floatlens.measures.inputs import one_sample_at_a_time
from floatlens.measures.wandering import centroid

COMMITTED_NOW = 3
FEWEST_MOVES = 3
STILL = 1e-6  # of the length of the text: smaller moves are the rounding of float32 masses

TOO_FEW = "fewer than three moves between neighbouring steps that both have anchors and commits"
SAME_MOVES = "the frontier moves by the same amount at every step"
NO_MOVES = "the anchors do not move"


@one_sample_at_a_time
def frontier_following(data: xr.Dataset, anchors: xr.Dataset) -> xr.Dataset:
    """Correlation of the moves of the anchors' centroid with those of the position being committed.

    Parameters
    ----------
    data
        A trace, or a dataset with mass, visible, null and rows, and with `state` (or `committed`, where nothing that was written is masked again).
    anchors
        What `find_anchors` found in the same data.

    Returns
    -------
    xarray.Dataset
        By layer, head and group: `correlation`; `null`, its mean over all circular shifts but the one that took place; `p`, the share of all shifts (this one included) with at least this
        correlation; `moves`, how many were compared; `reason`, why there is no number.

    Examples
    --------
    Each step commits the position that the anchor is at.

    >>> from floatlens.measures import find_anchors, from_attention
    >>> path = [0, 3, 1, 7, 2, 9]
    >>> looks = (0.04 + 0.6 * np.eye(10)[path]).reshape(6, 1, 1, 1, 10)
    >>> state = np.where(np.eye(10)[path] > 0, 3, 2)
    >>> data = from_attention(looks).assign(state=(("step", "position"), state))
    >>> followed = frontier_following(data, find_anchors(data))
    >>> round(followed["correlation"].item(), 6), followed["p"].item(), followed["moves"].item()
    (1.0, 0.2, 5)
    """
    at = centroid(data, anchors)["centroid"]
    refuse_without_axis(anchors, "step")
    seen = anchors["measured"].any([axis for axis in anchors["measured"].dims if axis != "step"])
    steps = int(np.max(np.flatnonzero(seen), initial=0)) + 1  # padding is no step: the shifts go round without it
    units = at.transpose(..., "step")
    moves, travelled = np.diff(units.values[..., :steps]), np.diff(_frontier(data).values[:steps])
    if steps == 1:
        moves, travelled = np.full((*moves.shape[:-1], 1), np.nan), np.full(1, np.nan)
    followed = _against_shifts(moves, travelled)
    named = {
        name: xr.DataArray(values, dims=units.dims[:-1], coords=units.isel(step=0, drop=True).coords) for name, values in followed.items()
    }
    return xr.Dataset(named)


def _frontier(data: xr.Dataset) -> xr.DataArray:
    """The mean position committed at each step, over the number of positions; NaN where none is."""
    if "state" in data:
        now = data["state"] == COMMITTED_NOW
    elif "committed" in data:
        numbers = data["step"] if "step" in data.coords else xr.DataArray(np.arange(data.sizes["step"]), dims="step")
        now = data["committed"] == numbers
    else:
        raise Refusal("Following the frontier needs state or committed, which say what each step wrote; every trace holds them.")
    positions = data.sizes["position"]
    position = xr.DataArray(np.arange(positions) / positions, dims="position")
    return position.where(now).mean("position").transpose("step")


def _against_shifts(moves: np.ndarray, frontier: np.ndarray) -> dict[str, np.ndarray]:
    """Correlate moves (..., step) with those of the frontier (step), shifted by 0, 1, ... steps; pairs of which one does not exist are left out."""
    shifts = np.arange(len(frontier))
    turned = frontier[(shifts[None, :] - shifts[:, None]) % len(shifts)]  # (shift, step)
    there, moved = ~np.isnan(turned), ~np.isnan(moves)
    x, y, here, yonder = np.nan_to_num(moves), np.nan_to_num(turned), moved.astype(float), there.astype(float)
    pairs = here @ yonder.T  # (..., shift), like all that follow
    with np.errstate(invalid="ignore", divide="ignore"):
        mean_x, mean_y = x @ yonder.T / pairs, here @ y.T / pairs
        variance_x, variance_y = x**2 @ yonder.T / pairs - mean_x**2, here @ (y**2).T / pairs - mean_y**2
        moving, uneven = variance_x > STILL**2, variance_y > STILL**2
        correlation = (x @ y.T / pairs - mean_x * mean_y) / np.sqrt(variance_x * variance_y)
    correlation = np.where((pairs >= FEWEST_MOVES) & moving & uneven, correlation, np.nan)
    observed, known = correlation[..., 0], ~np.isnan(correlation)
    others = known[..., 1:].sum(-1)
    reached = (correlation >= observed[..., None] - 1e-9).sum(-1)
    reasons = np.select([pairs[..., 0] < FEWEST_MOVES, ~uneven[..., 0], ~moving[..., 0]], [TOO_FEW, SAME_MOVES, NO_MOVES], "")
    said = ~np.isnan(observed)
    return {
        "correlation": observed,
        "null": np.divide(np.nansum(correlation[..., 1:], axis=-1), others, out=np.full(observed.shape, np.nan), where=said & (others > 0)),
        "p": np.divide(reached, known.sum(-1), out=np.full(observed.shape, np.nan), where=said),
        "moves": pairs[..., 0].astype(int),
        "reason": reasons,
    }
