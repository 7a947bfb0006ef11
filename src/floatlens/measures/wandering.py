"""Where the anchors are: their centroid at each step, how far it wanders, and whether it follows what is being written.

Positions are given over the number of keys m, so that texts of different length compare. Two variances tell a fixed sink from a floating
one, after arXiv 2602.17664:

- temporal: of the centroid over steps, `Var_t(c_t / m)`. About 0 for a sink that stays; 1/12 for one that visits every position alike.
- spatial: of the *heights* of the mean profile over keys, `Var_j(m * mean_t(mass[t, j] / rows[t]))`. It is not the spread of positions:
  one key that draws everything at every step gives m - 1, attention that is even on average gives 0. Autoregressive models are expected
  high and masked diffusion models low, because a sink that moves is levelled out by the mean. The published number is this one over m^2,
  of mass summed over rows.

Beside them stand the temporal variance if each step's anchors lay anywhere among the measured keys, with the weights they have (exact),
and the spatial variance if every row spread evenly.

The frontier is the mean position committed at a step. Both it and the centroid tend to travel through the text, and any two things that
travel correlate; so what is correlated is how far each moves from one step to the next. The null is the same two series with one of them
shifted circularly by every possible number of steps: what they share by chance, given how each of them moves. NaN with a reason: too few
steps; anchors that do not move; a frontier that always moves by the same amount, as that of an autoregressive model does.
"""

import numpy as np
import xarray as xr

from floatlens.errors import Refusal
from floatlens.measures.drift import refuse_without_axis, why_no_drift
from floatlens.measures.inputs import RECEIVED, by_layers, existing, one_sample_at_a_time, refuse_missing, refuse_other_axes
from floatlens.measures.received_attention import fair_mass, mean_over_heads

ONE_CENTROID = "anchors at one step only"


@one_sample_at_a_time
def centroid(data: xr.Dataset, anchors: xr.Dataset) -> xr.Dataset:
    """The mean position of the anchors, weighted by their mass, over the number of keys.

    Parameters
    ----------
    data
        A trace, or a dataset with mass, visible, null and rows.
    anchors
        What `find_anchors` found in the same data; anchors of head-averaged attention are weighted by the head-averaged mass.

    Returns
    -------
    xarray.Dataset
        `centroid` by step, layer, head and group, NaN where there is no anchor; `no_memory`, the mean position of the keys measured there.

    Examples
    --------
    Of ten keys, key 4 draws .45 and key 7 draws .15: the centroid is at (4 * .75 + 7 * .25) / 10.

    >>> from floatlens.measures import find_anchors, from_attention
    >>> looks = np.full((4, 10), 0.05)
    >>> looks[:, 4], looks[:, 7] = 0.45, 0.15
    >>> data = from_attention(looks)
    >>> found = centroid(data, find_anchors(data, eps=0.4))
    >>> round(found["centroid"].item(), 6), found["no_memory"].item()
    (0.475, 0.45)
    """
    data = _matched(data, anchors)
    keys = _keys(data)
    return by_layers(lambda some, of_layers: _moments(some, of_layers, keys)[["centroid", "no_memory"]], data, anchors)


@one_sample_at_a_time
def position_variance(data: xr.Dataset, anchors: xr.Dataset) -> xr.Dataset:
    """Temporal variance of the anchors' centroid and spatial variance of the mean profile, each beside its null.

    See the top of this module.

    Returns
    -------
    xarray.Dataset
        By layer, head and group: `temporal` and `temporal_no_memory` (NaN with a `reason` unless two steps have anchors); `spatial` and
        `spatial_null`.

    Examples
    --------
    A sink that draws everything at every step, and one that visits each of four keys once.

    >>> from floatlens.measures import find_anchors, from_attention
    >>> for path in ([0, 0, 0, 0], [0, 1, 2, 3]):
    ...     data = from_attention(np.eye(4)[path].reshape(4, 1, 1, 1, 4))
    ...     found = position_variance(data, find_anchors(data, eps=1))
    ...     found["temporal"].item(), found["spatial"].item()
    (0.0, 3.0)
    (0.078125, 0.0)
    """
    data = _matched(data, anchors)
    refuse_without_axis(anchors, "step")
    keys = _keys(data)
    return by_layers(lambda some, of_layers: _variances(some, of_layers, keys), data, anchors)


def _matched(data: xr.Dataset, anchors: xr.Dataset) -> xr.Dataset:
    """Received attention with the heads that the anchors have."""
    refuse_missing(data, RECEIVED, "The position of anchors")
    refuse_other_axes(data["mass"], anchors)
    if "step" in data["mass"].dims and "step" not in anchors["anchor"].dims:
        raise Refusal("The anchors have no axis 'step' and the data do; find the anchors in the same data, find_anchors(data).")
    data = data[list(RECEIVED)]
    return data if "head" in anchors["anchor"].dims else mean_over_heads(data)


def _keys(data: xr.Dataset) -> int:
    """How many keys there are at any step: where none exists, nothing is visible."""
    return int(data["visible"].notnull().any([axis for axis in data["visible"].dims if axis != "key"]).sum())


def _moments(data: xr.Dataset, anchors: xr.Dataset, keys: int) -> xr.Dataset:
    """The centroid of the anchors; the sum of their squared weights; mean and variance of the position of measured keys."""
    anchor = anchors["anchor"].transpose(..., "key")
    size = anchor.sizes["key"]
    indices = np.flatnonzero(anchor.values)  # few keys are anchors: only those are read
    held = data["mass"].transpose(*anchor.dims).values.ravel()[indices].astype(float)
    places = indices % size / keys
    like = anchor.isel(key=0, drop=True)

    def total(values: np.ndarray) -> xr.DataArray:
        return like.copy(data=np.bincount(indices // size, weights=values, minlength=like.size).reshape(like.shape))

    mass = total(held).where(lambda amount: amount > 0)
    measured, position = anchors["measured"], xr.DataArray(np.arange(size) / keys, dims="key")
    number = measured.sum("key").where(lambda count: count > 0)
    middle = (measured * position).sum("key") / number
    return xr.Dataset(
        {
            "centroid": total(held * places) / mass,
            "squared_weights": total(held**2) / mass**2,
            "measured": number,
            "no_memory": middle,
            "spread": (measured * (position - middle) ** 2).sum("key") / number,
        }
    )


def _variances(data: xr.Dataset, anchors: xr.Dataset, keys: int) -> xr.Dataset:
    where = _moments(data, anchors, keys)
    counted = where["centroid"].notnull()
    steps = counted.sum("step")
    # weights w on positions drawn without replacement have a mean of this variance; centroids of different steps are independent
    alone = where["spread"] * (where["measured"] * where["squared_weights"] - 1) / (where["measured"] - 1).where(where["measured"] > 1)
    of_means = where["no_memory"].where(counted).var("step")
    chance = of_means + (1 - 1 / steps.where(steps > 0)) * alone.fillna(0).where(counted).mean("step")
    reason = why_no_drift(anchors)
    reason = xr.where((reason == "") & (steps < 2), ONE_CENTROID, reason).transpose(*reason.dims)
    return xr.Dataset(
        {
            "temporal": where["centroid"].var("step").where(steps > 1),
            "temporal_no_memory": chance.where(steps > 1),
            "spatial": _unevenness(data["mass"], data, keys),
            "spatial_null": _unevenness(fair_mass(data), data, keys),
            "reason": reason,
        }
    )


def _unevenness(mass: xr.DataArray, data: xr.Dataset, keys: int) -> xr.DataArray:
    """Variance over keys of the mean profile, in units of an even share.

    A key that does not exist at a step drew nothing there; a head that does not exist has no profile.
    """
    counted = data["rows"] > 0  # steps without rows are no part of the mean
    weight = (counted / data["rows"].where(counted) / counted.sum("step")).fillna(0)
    profile = keys * xr.dot(existing(mass), weight.astype(mass.dtype), dim="step").astype(float)
    variance = (profile**2).sum("key", skipna=False) / keys - (profile.sum("key", skipna=False) / keys) ** 2
    return variance.clip(min=0).where(mass.isel(key=0).notnull().any("step") & counted.any("step"))


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
        A trace, or a dataset with mass, visible, null and rows, and with `state` (or `committed`, where nothing that was written is
        masked again).
    anchors
        What `find_anchors` found in the same data.

    Returns
    -------
    xarray.Dataset
        By layer, head and group: `correlation`; `null`, its mean over all circular shifts but the one that took place; `p`, the share of
        all shifts (this one included) with at least this correlation; `moves`, how many were compared; `reason`, why there is no number.

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
    centroids = centroid(data, anchors)["centroid"]
    refuse_without_axis(anchors, "step")
    seen = anchors["measured"].any([axis for axis in anchors["measured"].dims if axis != "step"])
    steps = int(np.max(np.flatnonzero(seen), initial=0)) + 1  # padding is no step: the shifts go round without it
    units = centroids.transpose(..., "step")
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
    """Correlate moves (..., step) with those of the frontier (step), shifted by 0, 1, ... steps.

    Pairs of which one does not exist are left out.
    """
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
    has_value = ~np.isnan(observed)
    return {
        "correlation": observed,
        "null": np.divide(
            np.nansum(correlation[..., 1:], axis=-1), others, out=np.full(observed.shape, np.nan), where=has_value & (others > 0)
        ),
        "p": np.divide(reached, known.sum(-1), out=np.full(observed.shape, np.nan), where=has_value),
        "moves": pairs[..., 0].astype(int),
        "reason": reasons,
    }
