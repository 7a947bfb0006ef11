"""The anchor rules: which keys draw far more attention than their share.

Measures apply them to the numpy arrays of a trace, interventions to the torch tensors of a running model; both call what is written here.
Every function is given arrays of one kind and returns that kind. The last axis is `key`, except for `rows`, which has no such axis; the
axes before it broadcast. NaN marks what does not exist: padding, a head that a layer does not have, a key that is not written yet.

Each rule gives a key a `margin`, and a key is an anchor where its margin exceeds eps.

| rule | margin | default eps |
|---|---|---|
| `lift` | received attention over its null, minus 1 | 3 |
| `additive` | `a[j]` minus the mean of the other keys, `a = mass * keys / rows` | 3 |
| `zscore` | standard deviations of the mass above its mean over keys (population) | 3 |
| `rate` | received attention | .3 |
| `top` | no margin: the keys with most received attention; eps is how many | 1 |

A rule that finds nothing returns nothing; `top` never stands in for another rule. Only keys that enough rows see are `eligible`.
Refused: rules that do not exist, and thresholds that are not numbers.

This module imports neither torch nor xarray: a trace is read without torch.
"""

import math
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from floatlens.errors import Refusal

Array = Any
"""A numpy array or a torch tensor."""

RULES = {"lift": 3.0, "additive": 3.0, "zscore": 3.0, "rate": 0.3, "top": 1.0}
"""The rules and the default eps of each."""

ROUNDING = 1e-5
"""Relative: sums of equal float32 weights differ by less, so deviations below this are not deviations."""

WITNESSES = 16
WITNESSES_PER_ROW = 0.25


def refuse_unknown_rule(rule: str, eps: float | None) -> float:
    """The eps to use; refuses a rule that does not exist and an eps that is not a threshold.

    Examples
    --------
    >>> refuse_unknown_rule("rate", None)
    0.3
    """
    if rule not in RULES:
        raise Refusal(f"There is no anchor rule {rule!r}; the rules are {', '.join(RULES)}.")
    if eps is None:
        return RULES[rule]
    if rule == "top" and (not math.isfinite(eps) or eps != int(eps) or eps < 1):
        raise Refusal(f"eps={eps} for the rule 'top': it is the number of keys, 1 or more.")
    if not math.isfinite(eps):
        raise Refusal(f"eps={eps} is not a threshold; the default of the rule {rule!r} is {RULES[rule]}.")
    return float(eps)


def eligible(visible: Array, rows: Array) -> Array:
    """Whether enough rows see a key: at least 16 and a quarter of them, or all of them where there are fewer.

    Examples
    --------
    >>> eligible(np.array([40, 16, 15, 0]), np.array(40)).tolist()
    [True, True, False, False]
    >>> eligible(np.array([3, 2, 0]), np.array(3)).tolist()  # three rows: all of them
    [True, False, False]
    """
    xp, rows = _namespace(visible), rows[..., None]
    share = WITNESSES_PER_ROW * rows
    return (visible >= xp.minimum(rows, xp.where(share > WITNESSES, share, float(WITNESSES)))) & (visible > 0)


def fair_mass(visible: Array, null: Array) -> Array:
    """The mass of each key if every row spread evenly over what it sees; NaN where no row sees it."""
    return _namespace(visible).where(visible > 0, visible * null, math.nan)


def margin(rule: str, mass: Array, visible: Array, null: Array, rows: Array) -> Array:
    """How far each key goes beyond the others by a rule: an anchor is a key whose margin exceeds eps.

    Examples
    --------
    >>> mass, visible = np.array([0.75, 0.25]), np.array([1.0, 1.0])  # one row that looks at two keys
    >>> margin("lift", mass, visible, visible / 2, np.array(1.0)).tolist()
    [0.5, -0.5]
    >>> margin("additive", mass, visible, visible / 2, np.array(1.0)).tolist()
    [1.0, -1.0]
    """
    xp = _namespace(mass)
    if rule == "lift":
        return mass / _like(mass, fair_mass(visible, null)) - 1
    if rule == "rate":
        return mass / _like(mass, xp.where(visible > 0, visible, math.nan))
    rows = xp.where(rows > 0, rows, math.nan)[..., None]
    if rule == "additive":
        keys = (~xp.isnan(mass)).sum(-1)[..., None]
        scaled = mass * _like(mass, keys / rows)
        return scaled - (_sum(scaled) - scaled) / _like(mass, xp.where(keys > 1, keys - 1, math.nan))
    if rule == "zscore":
        per_row = mass / _like(mass, rows)
        mean = _mean(per_row)
        deviation = per_row - mean
        spread = xp.sqrt(_mean(deviation**2))
        return deviation / xp.where(spread > ROUNDING * mean, spread, math.nan)  # an even spread is nothing but rounding
    raise Refusal(f"The rule {rule!r} has no margin; those with one are lift, additive, zscore and rate.")


def exceeds(rule: str, eps: float, mass: Array, visible: Array, null: Array, rows: Array) -> Array:
    """Whether the margin of a key exceeds eps.

    `lift` and `rate` scale the fair mass and the visible rows instead of the mass, which in a trace is a hundred times larger.

    Examples
    --------
    >>> mass, visible = np.array([0.75, 0.25]), np.array([1.0, 1.0])
    >>> exceeds("lift", 0.4, mass, visible, visible / 2, np.array(1.0)).tolist()
    [True, False]
    """
    if rule == "lift":
        return mass > (1 + eps) * _like(mass, fair_mass(visible, null))
    if rule == "rate":
        return mass > _like(mass, eps * _namespace(visible).where(visible > 0, visible, math.nan))
    return margin(rule, mass, visible, null, rows) > eps


def rank(strength: Array, count: int, *, rounding: float = 0.0) -> Array:
    """The rank of the `count` strongest keys, 0 for the strongest; as many as there are keys for all others.

    Ties go to the left. Values that differ by less than `rounding` (relative) are ties too, so that in float32 a batch does not choose
    another key than a single prompt. NaN and minus infinity have no rank.

    Examples
    --------
    >>> rank(np.array([0.1, 0.4, np.nan, 0.4, -np.inf]), 2).tolist()
    [5, 0, 5, 1, 5]
    >>> rank(np.array([0.3, 0.3 + 1e-8, 0.4]), 2, rounding=1e-5).tolist()
    [1, 3, 0]
    """
    xp, keys = _namespace(strength), strength.shape[-1]
    ranks = xp.zeros_like(strength, dtype=xp.int32) + keys
    for number, chosen in enumerate(_best_first(strength, count, rounding)):
        ranks = xp.where(chosen, number, ranks)
    return ranks


def strongest(strength: Array, count: int, *, rounding: float = 0.0) -> Array:
    """The `count` strongest keys, by `rank`: fewer where fewer have a strength.

    Examples
    --------
    >>> strongest(np.array([0.1, 0.4, np.nan, 0.2]), 2).tolist()
    [False, True, False, True]
    """
    best = None
    for chosen in _best_first(strength, count, rounding):
        best = chosen if best is None else best | chosen
    return strength < strength if best is None else best


def _best_first(strength: Array, count: int, rounding: float) -> Iterator[Array]:
    """The strongest key, then the next, as booleans over keys: nowhere true once no key with a strength is left."""
    xp, keys = _namespace(strength), strength.shape[-1]
    left = xp.nan_to_num(strength, nan=-math.inf, posinf=-math.inf, neginf=-math.inf)
    position = xp.arange(keys, device=left.device)
    for number in range(min(count, keys)):
        least = xp.amax(left, -1, keepdims=True)
        if rounding:
            least = least - rounding * abs(least)  # minus infinity stays what it is
        first = xp.argmax((left >= least).view(xp.uint8), -1, keepdims=True)  # argmax returns the first of equals
        chosen = (position == first) & (left > -math.inf)
        yield chosen
        if number + 1 < count:
            left = xp.where(chosen, -math.inf, left)


def _namespace(values: Array) -> Any:
    """torch for its tensors, numpy for everything else."""
    torch = sys.modules.get("torch")
    return torch if torch is not None and isinstance(values, torch.Tensor) else np


def _like(mass: Array, values: Array) -> Array:
    """In the precision of the mass."""
    return np.asarray(values).astype(mass.dtype, copy=False) if _namespace(mass) is np else values.to(mass.dtype)


def _sum(values: Array) -> Array:
    """Over the keys that exist; the axis stays."""
    return _namespace(values).nansum(values, -1)[..., None]


def _mean(values: Array) -> Array:
    """Over the keys that exist, NaN where none does; the axis stays."""
    xp = _namespace(values)
    keys = (~xp.isnan(values)).sum(-1)[..., None]
    return _sum(values) / _like(values, xp.where(keys > 0, keys, math.nan))
