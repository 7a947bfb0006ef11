"""The chance that a weighted sum of gamma variables lies below 0, and where a rising function crosses a line.

This is the arithmetic of `floatlens.statistics.proportions`.

The chance is computed, not drawn: no seed, no noise. It is the integral of the sum's characteristic function (Gil-Pelaez, as Imhof 1961
did for sums of squares), taken over a hyperbolic sine so that equally spaced nodes converge exponentially. Against binomial tails the
error stays below 1e-9 for 1 to 1,000 prompts (tests/statistics/test_proportions.py). Tails below `NEGLIGIBLE` by Chernoff's bound are 0.
"""

from collections.abc import Callable

import numpy as np

SPACING, SPACED_FOR = 0.08, 150
"""The distance between nodes for sums of so many variables; it shrinks with the root of their number."""
REACHES = (3.0, 5.0, 8.0, 13.0)
"""How far nodes may have to go; the shortest that all sums in hand allow is taken. 13 is enough for a sum of two exponentials."""
DECAYED = 28.0
"""Nodes end where the characteristic function is below exp(-28)."""
NEGLIGIBLE = -28.0
"""Logarithm of a chance that counts as 0."""


def chance_below(weights: np.ndarray, shapes: np.ndarray) -> np.ndarray:
    """The chance that the sum over the last axis of `weights` times independent gamma variables of these shapes is at most 0.

    It is one half if all weights are 0.

    Examples
    --------
    >>> round(float(chance_below(np.array([1.0, -1.0]), np.array([1.0, 1.0]))), 9)  # one exponential exceeds another half of the time
    0.5
    >>> round(float(chance_below(np.array([1.0, -1.0]), np.array([5.0, 1.0]))), 9)  # five of them hardly ever: 2 ** -5
    0.03125
    """
    weights, shapes = np.broadcast_arrays(np.asarray(weights, float), np.asarray(shapes, float))
    counts = shapes > 0
    above, below = ((weights > 0) & counts).any(axis=-1), ((weights < 0) & counts).any(axis=-1)
    chance = np.where(above, 0.0, np.where(below, 1.0, 0.5))
    mixed = above & below
    if mixed.any():
        weights, shapes = weights[mixed], shapes[mixed]
        scaled = weights / np.sqrt((shapes * weights**2).sum(axis=-1, keepdims=True))
        of_mixed_signs = _integral(scaled, shapes)
        of_mixed_signs = np.where(_log_tail(scaled, shapes) < NEGLIGIBLE, 0.0, of_mixed_signs)
        of_mixed_signs = np.where(_log_tail(-scaled, shapes) < NEGLIGIBLE, 1.0, of_mixed_signs)
        chance[mixed] = np.clip(of_mixed_signs, 0.0, 1.0)
    return chance


def _integral(weights: np.ndarray, shapes: np.ndarray) -> np.ndarray:
    """One half minus the integral of the characteristic function's imaginary part over its argument, divided by pi."""
    decays = {reach: (shapes * np.log1p((weights * np.sinh(reach)) ** 2)).sum(axis=-1).min() / 2 for reach in REACHES[:-1]}
    reach = next((reach for reach, decay in decays.items() if decay > DECAYED), REACHES[-1])
    spacing = SPACING * min(1.0, np.sqrt(SPACED_FOR / shapes.sum(axis=-1).max()))
    nodes = np.arange(spacing / 2, reach, spacing)
    points = np.sinh(nodes)
    exponent = -(shapes[..., None] * np.log(1 - 1j * weights[..., None] * points)).sum(axis=-2)
    return 0.5 - (np.exp(exponent).imag * (spacing * np.cosh(nodes) / points)).sum(axis=-1) / np.pi


def _log_tail(weights: np.ndarray, shapes: np.ndarray) -> np.ndarray:
    """Chernoff's bound on the chance of a sum of at most 0, as a logarithm."""
    steepest = 1 / np.max(-weights * (shapes > 0), axis=-1, keepdims=True)
    bounds = [-(shapes * np.log1p(weights * steepest * share)).sum(axis=-1) for share in np.linspace(0.05, 0.95, 10)]
    return np.min(bounds, axis=0)


def crossing(function: Callable[[np.ndarray, np.ndarray], np.ndarray], low: np.ndarray, high: np.ndarray, line: np.ndarray) -> np.ndarray:
    """Where rising functions cross a line, one for each place of the arrays, by Chandrupatla's method.

    At `low` or `high` they count as below and above it.

    `function` gets numbers and the places of those that are asked for, and gives shares from 0 to 1.

    Examples
    --------
    >>> crossing(lambda x, places: x**2, np.zeros(2), np.full(2, 1.0), np.array([0.25, 0.81])).round(9).tolist()
    [0.5, 0.9]
    """
    crossings: np.ndarray = np.where(high > low, np.nan, low)
    places: np.ndarray = np.flatnonzero(high > low)
    here, there, line = low[places], high[places], line[places]
    value_here, value_there = -line, 1 - line
    share, tolerance = np.full(len(places), 0.5), 1e-12 * np.maximum(1.0, there - here)
    while len(places):
        place = here + share * (there - here)
        value = function(place, places) - line
        same = np.sign(value) == np.sign(value_here)
        before, value_before = np.where(same, here, there), np.where(same, value_here, value_there)
        there, value_there = np.where(same, there, here), np.where(same, value_there, value_here)
        here, value_here = place, value
        crossings[places] = np.where(np.abs(value_here) < np.abs(value_there), here, there)
        least = tolerance / np.maximum(np.abs(there - here), tolerance)
        with np.errstate(divide="ignore", invalid="ignore"):
            part, rise = (here - there) / (before - there), (value_here - value_there) / (value_before - value_there)
            slower = (
                (before - here) / (there - here) * value_here / (value_before - value_here) * value_there / (value_before - value_there)
            )
            curved = value_here / (value_there - value_here) * value_before / (value_there - value_before) + slower
            share = np.where((rise**2 < part) & ((1 - rise) ** 2 < 1 - part) & np.isfinite(curved), curved, 0.5)
        share = np.clip(share, least, np.maximum(1 - least, least))
        going = (least <= 0.5) & (np.abs(value) > 1e-14)
        places = places[going]
        here, there, line, value_here, value_there, share, tolerance = (
            each[going] for each in (here, there, line, value_here, value_there, share, tolerance)
        )
    return crossings
