"""Values per head in one byte each, for the single file: lift on a log scale, weights on a linear one.

Lift per head of a LLaDA-shaped run is 200 MB. In one byte it is 50 MB, and with coarser steps gzip makes of that what fits. `fitting_way`
takes the finest way whose size, estimated from a few steps of the run, stays within the room there is; None if not even the coarsest does.
The page marks such numbers with ≈ and shows how far off they can be.
"""

import gzip

import numpy as np

from floatlens.report.page.schema import Quantised

NAN = 255
WAYS = tuple(
    Quantised("log2", step, floor) for step, floor in ((1 / 8, -4.0), (1 / 4, -4.0), (1 / 4, -2.0), (1 / 4, 0.0), (1 / 2, 0.0), (1.0, 0.0))
)
"""From the finest to the coarsest. What lies below a fair share is given up before what lies above it."""
WEIGHT = Quantised("linear", 1 / 250, 0.0)
PATTERN = Quantised("log2", 1 / 8, -16.0)
"""Of full patterns: down to a weight of .00002, which no row shows beside its others."""


def as_levels(lift: np.ndarray, how: Quantised) -> np.ndarray:
    """Lift in one byte.

    Examples
    --------
    >>> as_levels(np.array([0.0, 0.0625, 1.0, np.nan]), Quantised("log2", 0.5, -4.0)).tolist()
    [0, 1, 9, 255]
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        levels = np.rint((np.log2(lift) - how.floor) / how.step) + 1
    return np.where(np.isnan(lift), NAN, np.clip(np.nan_to_num(levels, neginf=0), 0, NAN - 1)).astype(np.uint8)


def weights_as_levels(weights: np.ndarray) -> np.ndarray:
    """Shares of a row's attention in one byte.

    Examples
    --------
    >>> weights_as_levels(np.array([0.0, 0.5, 1.0, np.nan])).tolist()
    [0, 125, 250, 255]
    """
    return np.where(np.isnan(weights), NAN, np.rint(np.nan_to_num(weights) / WEIGHT.step)).astype(np.uint8)


def from_levels(levels: np.ndarray, how: Quantised) -> np.ndarray:
    """The numbers that the page shows for levels.

    Examples
    --------
    >>> from_levels(np.array([0, 1, 9, 255], np.uint8), Quantised("log2", 0.5, -4.0)).tolist()
    [0.0, 0.0625, 1.0, nan]
    """
    places = levels.astype(float)
    values = np.where(levels == 0, 0.0, 2 ** (how.floor + (places - 1) * how.step)) if how.kind == "log2" else places * how.step
    return np.where(levels == NAN, np.nan, values)


def fitting_way(lift: np.ndarray, room: float) -> Quantised | None:
    """The finest way to keep lift (step first) in that many bytes.

    Examples
    --------
    >>> noise = np.random.default_rng(0).gamma(1, size=(4, 1000))
    >>> fitting_way(noise, 4000), fitting_way(noise, 100)
    (Quantised(kind='log2', step=0.125, floor=-4.0), None)
    """
    seen = np.unique(np.linspace(0, len(lift) - 1, 3).astype(int))
    for how in WAYS:
        packed = sum(len(gzip.compress(as_levels(lift[number], how).tobytes(), compresslevel=6)) for number in seen)
        if packed / len(seen) * len(lift) <= room:
            return how
    return None
