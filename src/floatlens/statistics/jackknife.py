"""Intervals from leaving out one prompt at a time, for numbers that are not means: effect sizes and areas under a curve.

Estimate plus or minus the jackknife's standard error times Student's quantile. Simulated against bootstraps (percentile, BCa, studentised) with 10 to 40
prompts, it covers as well or better, since draws that repeat a few prompts have no spread, or one class, and tell nothing about such numbers; and it
costs one pass instead of thousands.
"""

import math
from functools import cache

import numpy as np

from floatlens.errors import Refusal


def check_level(level: float) -> None:
    """Refuse what is no level of an interval.

    Examples
    --------
    >>> check_level(0.95)
    """
    if not 0 < level < 1:
        raise Refusal(f"level={level} is not between 0 and 1. Pass 0.95 for an interval of 95 %.")


@cache
def student_quantile(level: float, degrees: int) -> float:
    """How far from 0 the central `level` of Student's t reaches.

    Examples
    --------
    >>> round(student_quantile(0.95, 1), 3), round(student_quantile(0.95, 10), 3)
    (12.706, 2.228)
    """
    low, high = 0.0, math.pi / 2  # of the angle whose tangent is t / sqrt(degrees): t itself has no bound
    for _ in range(60):
        angle = (low + high) / 2
        low, high = (angle, high) if _within(angle, degrees) < level else (low, angle)
    return math.tan(low) * math.sqrt(degrees)


def student_p_value(ratios: np.ndarray, degrees: int) -> np.ndarray:
    """How likely Student's t lies at least as far from 0 as each ratio; NaN stays NaN.

    Examples
    --------
    >>> student_p_value(np.array([0.0, 12.706, -2.0, np.inf]), 1).round(3).tolist()
    [1.0, 0.05, 0.295, 0.0]
    """
    angles = np.arctan(np.abs(ratios) / math.sqrt(degrees))
    return np.array([math.nan if math.isnan(angle) else max(0.0, 1 - _within(angle, degrees)) for angle in angles])


def _within(angle: float, degrees: int) -> float:
    """P(|t| <= tan(angle) * sqrt(degrees)): a finite sum of powers of the cosine, for whole degrees of freedom."""
    odd = degrees % 2
    terms = np.arange(2 + odd, degrees, 2)  # each term of the sum is the one before times cos^2 (n - 1) / n
    powers = np.cumprod(np.concatenate([[1.0], math.cos(angle) ** 2 * (terms - 1) / terms]))
    if not odd:
        return math.sin(angle) * powers.sum()
    return 2 / math.pi * (angle + math.sin(angle) * math.cos(angle) * (powers.sum() if degrees > 1 else 0.0))


def jackknife_reach(left_out: list[np.ndarray], present: list[np.ndarray], level: float) -> np.ndarray:
    """How far an interval reaches to either side of the estimate, by cell.

    Parameters
    ----------
    left_out
        For each side, the number without that prompt: prompt, cell.
    present
        For each side, whether the prompt has a value there.
    level
        What share of intervals shall cover the truth.

    Returns
    -------
    numpy.ndarray
        NaN where the number does not exist without some prompt, or where no degree of freedom is left.

    Examples
    --------
    >>> without_each = np.array([[2.5], [2.0], [1.5]])  # the means of 1, 2, 3 without each of them
    >>> float(jackknife_reach([without_each], [np.ones((3, 1), bool)], 0.95)[0].round(3))  # 4.303 / sqrt(3)
    2.484
    """
    variance = np.zeros(left_out[0].shape[1])
    degrees = np.zeros(left_out[0].shape[1], dtype=int)
    for without, there in zip(left_out, present, strict=True):
        count = there.sum(axis=0)
        divisor = np.maximum(count, 1)
        mean = np.where(there, without, 0.0).sum(axis=0) / divisor
        variance += (count - 1) / divisor * np.where(there, (without - mean) ** 2, 0.0).sum(axis=0)
        degrees += count - 1
    reach = np.full(len(variance), np.nan)
    for number in np.unique(degrees[degrees > 0]):
        cells = degrees == number
        reach[cells] = student_quantile(level, int(number)) * np.sqrt(variance[cells])
    return np.where(np.isfinite(reach), reach, np.nan)
