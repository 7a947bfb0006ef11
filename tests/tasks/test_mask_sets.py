"""Sets of masks whose sizes are evenly spaced from a random start."""

from collections import Counter

import numpy as np
import pytest

from floatlens.errors import Refusal
from floatlens.tasks.mask_sets import mask_sets, spaced_mask_sets


@pytest.mark.parametrize(("length", "draws"), [(40, 128), (40, 16), (9, 7), (300, 128)])
def test_sizes_are_evenly_spaced_around_the_answer(length: int, draws: int) -> None:
    drawn = spaced_mask_sets(length, draws, name="a")
    sizes = np.array([len(masks.positions) for masks in drawn])
    assert len(drawn) == draws
    assert sizes.min() >= 1
    assert sizes.max() <= length
    around = np.diff([*sizes, sizes[0] + length]) % length
    assert set(around) <= {length // draws, length // draws + 1}  # one circle, in steps that differ by rounding alone
    assert all(len(set(masks.positions)) == len(masks.positions) and max(masks.positions) < length for masks in drawn)


def test_every_size_is_as_likely_as_any_other() -> None:
    length, draws, names = 9, 4, 4000
    sizes = Counter(len(masks.positions) for name in range(names) for masks in spaced_mask_sets(length, draws, name=str(name)))
    expected = names * draws / length
    assert all(abs(sizes[size] - expected) < 5 * np.sqrt(expected) for size in range(1, length + 1))


def test_the_start_and_the_places_belong_to_the_name_and_the_seed() -> None:
    drawn = spaced_mask_sets(40, 16, name="a")
    assert drawn == spaced_mask_sets(40, 16, name="a")
    assert drawn != spaced_mask_sets(40, 16, name="b")
    assert drawn != spaced_mask_sets(40, 16, name="a", seed=1)


def test_a_constant_counts_once_per_token() -> None:
    assert sum(masks.weight * len(masks.positions) for masks in spaced_mask_sets(9, 16, name="a")) == pytest.approx(9)


def test_few_sets_are_all_run_as_they_are_when_stratified() -> None:
    assert spaced_mask_sets(7, 128) == mask_sets(7, 128)
    assert len(spaced_mask_sets(8, 128)) == 128


def test_no_draws_at_all_are_refused() -> None:
    with pytest.raises(Refusal, match="draws=0: at least one set of masks is needed"):
        spaced_mask_sets(9, 0)
