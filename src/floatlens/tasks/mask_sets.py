"""Which tokens of an answer a masked diffusion model is asked for together: the sets behind the bound of `floatlens.tasks.likelihood`.

Of an answer of L tokens, l are masked, l uniformly from 1 .. L and the set uniformly among those of its size. Where all 2^L - 1 sets are no
more than the draws, each is run once with its weight and the bound is exact. Otherwise l is drawn in one of two ways: `mask_sets` draws two
sets per stratum of l, so that their difference gives a standard error; `spaced_mask_sets` takes l evenly spaced from one random start, as
LLaDA is evaluated, which gives no error. Both depend on the name of the answer, its number of tokens and the seed, and on nothing else.

Refused: fewer draws than such a scheme needs.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from math import comb
from random import Random

from floatlens.errors import Refusal

DRAWS = 32


@dataclass(frozen=True)
class MaskSet:
    """Positions of an answer that are masked together, and the weight of their summed log probabilities in the bound."""

    positions: tuple[int, ...]
    weight: float
    stratum: int | None = None  # None where all sets are run


DrawSets = Callable[..., list[MaskSet]]
"""`mask_sets` or `spaced_mask_sets`."""


def mask_sets(length: int, draws: int = DRAWS, *, name: str = "", seed: int = 0) -> list[MaskSet]:
    """The sets of masked positions for an answer of so many tokens, with their weights; sizes are stratified, two sets per stratum.

    Parameters
    ----------
    length
        How many tokens the answer has.
    draws
        How many sets to run at most; an even number of at least 4. Where there are no more sets than that, each comes once.
    name, seed
        What the draw depends on.

    Examples
    --------
    >>> [(masks.positions, round(masks.weight, 3)) for masks in mask_sets(2)]  # l = 1: 2/1 * 1/2 sets * 1/2; l = 2: 2/2 * 1/2
    [((0,), 0.5), ((1,), 0.5), ((0, 1), 0.5)]
    >>> len(mask_sets(20)), mask_sets(20, name="a") == mask_sets(20, name="a"), mask_sets(20, name="a") == mask_sets(20, name="b")
    (32, True, False)
    """
    if draws < 4 or draws % 2:
        raise Refusal(f"draws={draws}: an even number of at least 4 is needed, two for each stratum.")
    if 2**length - 1 <= draws:
        return _every_set(length)
    random = Random(f"masks of {name}, {length} tokens, seed {seed}")
    strata = draws // 2
    drawn = []
    for stratum in range(strata):
        for _ in range(2):
            masked = 1 + int(length * (stratum + random.random()) / strata)
            drawn.append(MaskSet(tuple(sorted(random.sample(range(length), masked))), length / masked / draws, stratum))
    return drawn


def spaced_mask_sets(length: int, draws: int = DRAWS, *, name: str = "", seed: int = 0) -> list[MaskSet]:
    """The same for sizes that are evenly spaced from a random start, around the end and on from the beginning; any number of draws.

    Examples
    --------
    >>> [len(masks.positions) for masks in spaced_mask_sets(12, 6, name="a")]
    [9, 11, 1, 3, 5, 7]
    """
    if draws < 1:
        raise Refusal(f"draws={draws}: at least one set of masks is needed.")
    if 2**length - 1 <= draws:
        return _every_set(length)
    random = Random(f"spaced masks of {name}, {length} tokens, seed {seed}")
    start = random.random()
    drawn = []
    for number in range(draws):
        masked = min(length, 1 + int(length * ((start + number / draws) % 1)))
        drawn.append(MaskSet(tuple(sorted(random.sample(range(length), masked))), length / masked / draws, number))
    return drawn


def _every_set(length: int) -> list[MaskSet]:
    return [
        MaskSet(positions, 1 / (masked * comb(length, masked)))
        for masked in range(1, length + 1)
        for positions in combinations(range(length), masked)
    ]
