"""Check what a tap and a trace are asked to keep. Without torch: a trace is read, and claims are judged, in processes that lack it.

Refused: patterns that are not pairs of a layer and a head.
"""

from collections.abc import Iterable
from numbers import Integral
from typing import Any

from floatlens.errors import Refusal

MOST_TOP_KEYS = 4096
"""How many favourite keys of a row can be kept; whoever wants more wants whole patterns."""


def as_pairs(patterns: Any) -> tuple[tuple[int, int], ...]:
    """The (layer, head) pairs of `patterns`: one pair or several.

    Examples
    --------
    >>> as_pairs((3, 0)), as_pairs([(3, 0), (11, 4)])
    (((3, 0),), ((3, 0), (11, 4)))
    """
    given: list[Any] = list(patterns) if isinstance(patterns, Iterable) and not isinstance(patterns, str) else [patterns]
    pairs: list[Any] = [tuple(pair) if isinstance(pair, Iterable) and not isinstance(pair, str) else pair for pair in given]
    if len(pairs) == 2 and all(map(is_whole, pairs)):
        pairs = [tuple(pairs)]
    for pair in pairs:
        if not isinstance(pair, tuple) or len(pair) != 2 or not all(is_whole(number) and number >= 0 for number in pair):
            raise Refusal(
                f"patterns={patterns!r}: {pair!r} is not a (layer, head) pair of whole numbers from 0 on; write patterns=[(3, 0), (11, 4)]."
            )
    return tuple((int(layer), int(head)) for layer, head in pairs)


def is_whole(value: object) -> bool:
    """Whether a value is a whole number, numpy's included; True and False are none."""
    return isinstance(value, Integral) and not isinstance(value, bool)
