"""Which seeds are accepted, everywhere the same: whole numbers from 0 to 2^62.

A seed plus the number of a sample then still fits the generators of torch and numpy.
"""

from collections.abc import Sequence
from numbers import Integral
from typing import Any

from floatlens.errors import Refusal

LARGEST_SEED = 1 << 62


def refuse_seed(seed: Any, largest: int = LARGEST_SEED) -> int:
    """The seed as an int; refuses what is none.

    Examples
    --------
    >>> refuse_seed(7)
    7
    >>> refuse_seed(None)
    Traceback (most recent call last):
    floatlens.errors.Refusal: seed=None is not a seed: it must be a whole number from 0 to 2^62, so that the run can be repeated.
    """
    if isinstance(seed, bool) or not isinstance(seed, Integral) or not 0 <= int(seed) <= largest:
        given = repr(seed) if len(repr(seed)) < 60 else f"{repr(seed)[:57]}..."
        raise Refusal(f"seed={given} is not a seed: it must be a whole number from 0 to 2^62, so that the run can be repeated.")
    return int(seed)


def seeds_of(seed: Any, count: int) -> Sequence[int]:
    """A seed for each of so many samples: those given, or one and those that follow it.

    Examples
    --------
    >>> list(seeds_of(7, 3)), seeds_of([4, 2], 2)
    ([7, 8, 9], [4, 2])
    """
    if isinstance(seed, str | bytes) or not hasattr(seed, "__len__") or getattr(seed, "ndim", 1) != 1:
        first = refuse_seed(seed)
        return range(first, first + count)
    if len(seed) != count:
        raise Refusal(f"{len(seed)} seeds were given for {count} prompts. Give one for each, or a single one.")
    return [
        refuse_seed(given.item() if hasattr(given, "item") else given, 2 * LARGEST_SEED - 1) for given in seed
    ]  # these may be a seed and a number
