"""Random numbers that depend on what they are for and on nothing else: no generator, no order of calls, no batch.

A number is a hash of the seed, the sample's own seed, its step, the layer, the head and the position of the key in the text. So the same
control draws the same keys whatever other prompts run beside it, and each of these changes them.
"""

from collections.abc import Sequence

import numpy as np

_ALL_BITS = (1 << 64) - 1


def lots(*parts: int | Sequence[int] | np.ndarray) -> np.ndarray:
    """Numbers in [0, 1), one for each combination of the parts, which broadcast against each other.

    Examples
    --------
    >>> drawn = lots(0, np.arange(3)[:, None], np.arange(4))
    >>> drawn.shape, bool((drawn[1] == lots(0, 1, np.arange(4))).all())  # whatever is drawn beside it
    ((3, 4), True)
    """
    state = np.zeros((), np.uint64)
    for part in parts:
        whole = np.uint64(part & _ALL_BITS) if isinstance(part, int) else np.asarray(part).astype(np.int64).astype(np.uint64)
        state = _scrambled(state ^ whole)
    return (state >> np.uint64(11)).astype(np.float64) / (1 << 53)


def _scrambled(state: np.ndarray) -> np.ndarray:
    """The output function of SplitMix64 one step on: every bit of the result depends on every bit of the state."""
    with np.errstate(over="ignore"):  # products and sums are meant to wrap around
        state = state + np.uint64(0x9E3779B97F4A7C15)
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return state ^ (state >> np.uint64(31))
