"""Intervals and tests of proportions and bounded averages.

They stay inside the range, agree with their tests, equal what textbooks define, and cover what they say they cover.
"""

import math
from itertools import product
from typing import Any

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from floatlens.errors import Refusal
from floatlens.statistics.gamma_sums import chance_below
from floatlens.statistics.proportions import bounded_difference, bounded_mean, bounded_ratio
from floatlens.statistics.resampling import bootstrap, bootstrap_difference

NAMES = ("estimate", "low", "high")


def along_samples(values: Any, *others: str) -> xr.DataArray:
    return xr.DataArray(np.asarray(values, float), dims=("sample", *others))


def right(count: int, of: int) -> xr.DataArray:
    return along_samples([1.0] * count + [0.0] * (of - count))


def tables(prompts: int) -> list[tuple[int, int, int]]:
    """Every paired table: how many prompts got worse, stayed, got better."""
    return [(worse, prompts - worse - better, better) for worse in range(prompts + 1) for better in range(prompts + 1 - worse)]


def changes(found: list[tuple[int, int, int]]) -> xr.DataArray:
    """Differences of right-or-wrong answers, a table a cell."""
    return along_samples(np.array([[-1.0] * worse + [0.0] * stayed + [1.0] * better for worse, stayed, better in found]).T, "table")


def binomial_tail(count: int, of: int, chance: float) -> float:
    """The mid-p chance of at least so many right answers, summed up from its definition."""
    terms = [math.comb(of, k) * chance**k * (1 - chance) ** (of - k) for k in range(count, of + 1)]
    return sum(terms) - terms[0] / 2


def bisected(rising: Any, line: float, low: float, high: float) -> float:
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < line else (low, middle)
    return (low + high) / 2


def test_three_of_twenty_is_not_printed_as_up_to_three_quarters() -> None:
    found = bounded_mean(right(3, 20))
    assert [round(found[name].item(), 3) for name in NAMES] == [0.15, 0.04, 0.356]
    present = bootstrap(right(3, 20))
    assert present["high"].item() > 0.6, "what this replaces"


@pytest.mark.parametrize(("count", "of"), [(0, 8), (1, 8), (4, 8), (3, 20), (20, 20), (81, 263), (15, 148), (1, 29)])
def test_a_proportion_has_the_mid_p_interval(count: int, of: int) -> None:
    found = bounded_mean(right(count, of))
    low = bisected(lambda chance: binomial_tail(count, of, chance), 0.025, 0.0, 1.0) if count else 0.0
    high = bisected(lambda chance: binomial_tail(count, of, chance), 0.975, 0.0, 1.0) if count < of else 1.0
    assert (found["low"].item(), found["high"].item()) == pytest.approx((low, high), abs=1e-8)


@pytest.mark.parametrize(
    ("count", "of", "printed"),
    [(81, 263, (0.2544, 0.3658)), (15, 148, (0.0601, 0.1581)), (0, 20, (0.0, 0.1391)), (1, 29, (0.0017, 0.1585))],
)
def test_mid_p_intervals_are_those_that_newcombe_printed(count: int, of: int, printed: tuple[float, float]) -> None:
    """Newcombe, Statistics in Medicine 17 (1998) 857-872, table I, method 6."""
    found = bounded_mean(right(count, of))
    assert (round(found["low"].item(), 4), round(found["high"].item(), 4)) == printed


@pytest.mark.parametrize("prompts", [2, 5, 12])
def test_the_test_of_a_paired_difference_is_mcnemars_exact_test_with_mid_p(prompts: int) -> None:
    every = tables(prompts)
    found = bounded_mean(changes(every), within=(-1, 1))
    for place, (worse, _, better) in enumerate(every):
        tail = binomial_tail(better, worse + better, 0.5)
        assert found["p_value"].values[place] == pytest.approx(2 * min(tail, 1 - tail), abs=2e-8)


@pytest.mark.parametrize(("a", "b"), [((3, 3), (0, 3)), ((7, 20), (2, 20)), ((5, 8), (8, 8)), ((0, 6), (6, 9)), ((10, 10), (10, 10))])
def test_the_test_of_two_sides_is_fishers_exact_test_with_mid_p(a: tuple[int, int], b: tuple[int, int]) -> None:
    (x, n), (y, m) = a, b
    found = bounded_difference(right(x, n), right(y, m), paired=False)
    deals = {k: math.comb(n, k) * math.comb(m, x + y - k) / math.comb(n + m, x + y) for k in range(max(0, x + y - m), min(n, x + y) + 1)}
    tail = sum(chance for k, chance in deals.items() if k > x) + deals[x] / 2
    assert found["p_value"].item() == pytest.approx(2 * min(tail, 1 - tail), abs=2e-6)
    assert found["estimate"].item() == pytest.approx(x / n - y / m)


@pytest.mark.parametrize("prompts", range(2, 13))
@pytest.mark.parametrize("level", [0.95, 0.8])
def test_every_table_has_an_interval_inside_the_range_that_excludes_0_exactly_where_its_test_does(prompts: int, level: float) -> None:
    found = bounded_mean(changes(tables(prompts)), within=(-1, 1), level=level)
    low, high, estimate = (found[name].values for name in ("low", "high", "estimate"))
    assert (low >= -1).all()
    assert (high <= 1).all()
    assert (low <= estimate + 1e-9).all()
    assert (estimate <= high + 1e-9).all()
    assert (high - low > 0.05).all(), "also where all agree"
    np.testing.assert_array_equal((low > 0) | (high < 0), found["p_value"].values < round(1 - level, 8))


def test_the_interval_that_a_bootstrap_contradicted_agrees_with_its_test() -> None:
    """3 of 20 prompts changed, all in one direction: the bootstrap excluded 0 beside a p-value of .25."""
    a, b = right(17, 20), right(20, 20)
    before, now = bootstrap_difference(a, b), bounded_difference(a, b)
    assert before["high"].item() < 0
    assert now["p_value"].item() == pytest.approx(0.125), "mid-p: half of the sign-flip test's .25"
    assert now["low"].item() < -0.15 < 0 < now["high"].item()


def test_unpaired_tables_agree_with_their_tests_and_stay_inside() -> None:
    for (n, m), level in product([(2, 3), (3, 3), (3, 5)], [0.95]):
        for x, y in product(range(n + 1), range(m + 1)):
            found = bounded_difference(right(x, n), right(y, m), paired=False, level=level)
            low, high = found["low"].item(), found["high"].item()
            assert -1 <= low <= x / n - y / m + 1e-6
            assert x / n - y / m - 1e-6 <= high <= 1
            assert (low > 0 or high < 0) == (found["p_value"].item() < 0.05)


def test_swapping_sides_and_calling_right_wrong_mirrors_the_interval() -> None:
    for of, count in ((8, 0), (8, 3), (20, 19)):
        found, mirrored = bounded_mean(right(count, of)), bounded_mean(1 - right(count, of))
        assert (found["low"].item(), found["high"].item()) == pytest.approx((1 - mirrored["high"].item(), 1 - mirrored["low"].item()))
    draw = np.random.default_rng(0)
    a, b = (along_samples(draw.integers(0, 5, 12) / 4) for _ in range(2))
    for paired in (True, False):
        found, swapped = bounded_difference(a, b, paired=paired), bounded_difference(b, a, paired=paired)
        flipped = bounded_difference(1 - b, 1 - a, paired=paired)
        ends = pytest.approx((found["low"].item(), found["high"].item(), found["p_value"].item()), abs=1e-6)
        assert (-swapped["high"].item(), -swapped["low"].item(), swapped["p_value"].item()) == ends
        assert (flipped["low"].item(), flipped["high"].item(), flipped["p_value"].item()) == ends


@given(
    st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=4), min_size=2, max_size=10),
    st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=4), min_size=2, max_size=10),
)
@settings(max_examples=25, deadline=None)
def test_averaged_and_clustered_outcomes_stay_inside_and_agree_with_their_tests(a: list[list[int]], b: list[list[int]]) -> None:
    values, others = (along_samples([value / 4 for prompt in side for value in prompt]) for side in (a, b))
    labels, other_labels = ([place for place, prompt in enumerate(side) for _ in prompt] for side in (a, b))
    mean = bounded_mean(values, clusters=labels)
    assert 0 <= mean["low"].item() < mean["high"].item() <= 1
    assert mean["low"].item() <= float(values.mean()) + 1e-9
    assert float(values.mean()) <= mean["high"].item() + 1e-9
    found = bounded_mean(values - 0.5, within=(-0.5, 0.5), clusters=labels)
    assert -0.5 <= found["low"].item() <= found["high"].item() <= 0.5
    assert (found["low"].item() > 0 or found["high"].item() < 0) == (found["p_value"].item() < 0.05)
    apart = bounded_difference(values, others, paired=False, clusters=labels, clusters_b=[1000 + label for label in other_labels])
    assert -1 <= apart["low"].item() < apart["high"].item() <= 1
    assert (apart["low"].item() > 0 or apart["high"].item() < 0) == (apart["p_value"].item() < 0.05)


def test_the_interval_of_averages_is_that_of_random_shares_with_one_unseen_prompt() -> None:
    """The rule of the module, drawn: exponential shares, the unseen prompt at either end half of the time."""
    draw = np.random.default_rng(3)
    amounts, sizes = np.array([0.5, 2.0, 1.25, 3.0, 0.0]), np.array([1, 2, 2, 4, 1])
    shares = draw.exponential(size=(400_000, 6))
    ends = np.where(np.arange(400_000) % 2, 0.0, sizes.mean())
    means = (shares[:, :5] @ amounts + shares[:, 5] * ends) / (shares[:, :5] @ sizes + shares[:, 5] * sizes.mean())
    values = [amount / size for amount, size in zip(amounts, sizes, strict=True) for _ in range(size)]
    found = bounded_mean(along_samples(values), clusters=np.repeat(np.arange(5), sizes))
    assert (found["low"].item(), found["high"].item()) == pytest.approx(tuple(np.quantile(means, [0.025, 0.975])), abs=0.004)


def exact_coverage(prompts: int, chances: np.ndarray) -> np.ndarray:
    """How often the interval of a proportion holds each true chance: every number of right answers, weighted by how likely it is."""
    every = along_samples(np.array([[1.0] * count + [0.0] * (prompts - count) for count in range(prompts + 1)]).T, "count")
    found = bounded_mean(every)
    counts = np.arange(prompts + 1)
    ways = np.array([math.comb(prompts, int(count)) for count in counts], float)
    likely = ways * chances[:, None] ** counts * (1 - chances[:, None]) ** (prompts - counts)
    holds = (found["low"].values <= chances[:, None]) & (chances[:, None] <= found["high"].values)
    return (likely * holds).sum(axis=1)


@pytest.mark.parametrize("prompts", [8, 20, 40, 100])
def test_intervals_of_proportions_cover_at_every_chance(prompts: int) -> None:
    covered = exact_coverage(prompts, np.arange(0.02, 1.0005, 0.001).clip(max=1))
    assert covered.min() >= 0.92
    assert 0.94 <= covered.mean() <= 0.98


@pytest.mark.parametrize("prompts", [8, 20])
def test_intervals_of_paired_differences_cover_at_every_pair_of_chances(prompts: int) -> None:
    every = tables(prompts)
    found = bounded_mean(changes(every), within=(-1, 1))
    ways = np.array([math.factorial(prompts) / math.prod(map(math.factorial, table)) for table in every])
    counts, covered = np.array(every), []
    for first, second, together in product((0.02, 0.1, 0.3, 0.5, 0.8, 0.95, 1.0), (0.02, 0.1, 0.3, 0.5, 0.8, 0.95, 1.0), (0.0, 0.5)):
        both = first * second + together * math.sqrt(first * (1 - first) * second * (1 - second))
        both = min(both, first, second)
        chances = np.array([second - both, 1 - first - second + 2 * both, first - both]).clip(0, 1)
        likely = ways * np.prod(chances**counts, axis=1)
        truth = first - second
        holds = (found["low"].values <= truth + 1e-9) & (truth - 1e-9 <= found["high"].values)
        covered.append((likely * holds).sum())
    assert min(covered) >= 0.92
    assert 0.94 <= np.mean(covered) <= 0.99, "above 98 % because so few answers can differ"


def test_chances_are_binomial_tails_to_nine_digits() -> None:
    for of, chance in product((1, 2, 8, 40, 100, 1000), (0.001, 0.02, 0.3, 0.5, 0.97)):
        for count in {0, 1, of // 3, of - 1, of}:
            at_either_end = [
                chance_below(np.array([1 - chance, -chance, end - chance]), np.array([count, of - count, 1.0])).item() for end in (0, 1)
            ]
            assert np.mean(at_either_end) == pytest.approx(binomial_tail(count, of, chance), abs=1e-9)


def test_a_ratio_is_that_of_the_means_and_its_interval_has_no_impossible_side() -> None:
    draw = np.random.default_rng(1)
    left, before = along_samples(draw.integers(0, 3, 20) / 4), along_samples(np.full(20, 1.0))
    found = bounded_ratio(left, before)
    assert found["estimate"].item() == pytest.approx(left.values.mean())
    assert found["low"].item() == pytest.approx(bounded_mean(left)["low"].item()), "over 1, it is the mean"
    removed = along_samples(draw.uniform(0.1, 0.4, 20))
    damage = bounded_ratio(left, removed)
    assert 0 <= damage["low"].item() < damage["estimate"].item() < damage["high"].item()
    nothing = bounded_ratio(left, 0 * removed)
    assert np.isnan([nothing[name].item() for name in NAMES]).all()
    assert nothing["reason"].item() == "the denominator is 0"


def test_many_cells_are_as_each_alone_and_missing_values_are_left_out() -> None:
    draw = np.random.default_rng(2)
    values = (draw.random((15, 6)) < 0.7).astype(float)
    values[3:, 5] = np.nan
    values[1:, 4] = np.nan
    values[:, 3] = np.nan
    found = bounded_mean(along_samples(values, "layer"))
    for layer in (0, 1, 2, 5):
        own = values[~np.isnan(values[:, layer]), layer]
        assert found["low"].values[layer] == pytest.approx(bounded_mean(along_samples(own))["low"].item(), abs=1e-9)
    assert found["reason"].values.tolist() == ["", "", "", "no sample has a value", "one prompt, so no interval", ""]
    assert np.isnan(found["low"].values).tolist() == [False, False, False, True, True, False]


@pytest.mark.parametrize(
    ("ask", "sentence"),
    [
        (lambda: bounded_mean(along_samples([0.0, 1.5])), "`values` is 1.5 at sample 1, outside of 0 to 1. Pass within=(least, most)"),
        (lambda: bounded_mean(along_samples([0.0, 1.0]), within=(1, 0)), "within=(1, 0) is not a range."),
        (lambda: bounded_difference(right(1, 2), along_samples([2.0, 0.0])), "`b` is 2 at sample 0, outside of 0 to 1."),
        (lambda: bounded_ratio(right(1, 2), along_samples([-0.5, 0.5])), "`denominator` is -0.5 at its lowest"),
        (lambda: bounded_mean(right(1, 2), level=1.5), "level=1.5 is not between 0 and 1."),
    ],
)
def test_what_has_no_such_interval_is_refused(ask: Any, sentence: str) -> None:
    with pytest.raises(Refusal) as refused:
        ask()
    assert sentence in str(refused.value)


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("prompts", [2, 3, 4, 9, 25])
def test_a_bootstrap_excludes_0_exactly_where_its_p_value_is_below_the_level(prompts: int, paired: bool) -> None:
    draw = np.random.default_rng(prompts)
    sides = [along_samples(draw.exponential(1.0, (prompts, 400)) + shift, "cell") for shift in (0.0, 0.7)]
    sides[0][:, :3] = 1.0
    sides[1][:, :3] = [1.0, 0.0, 2.0]  # all agree: on no difference, and on one
    for level in (0.95, 0.8):
        found = bootstrap_difference(*sides, paired=paired, level=level, draws=199)
        excluded = ((found["low"] > 0) | (found["high"] < 0)).values
        np.testing.assert_array_equal(excluded, found["p_value"].values < 1 - level)
        assert excluded[1:3].all()
        assert found["p_value"].values[0] == 1.0
        assert 0.02 < excluded.mean() < 0.999
