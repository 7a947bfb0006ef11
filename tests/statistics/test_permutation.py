"""Tests by permutation: exact where few prompts allow it, right under the null, and the difference of differences built on them."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from floatlens.errors import Refusal
from floatlens.statistics.effects import interaction
from floatlens.statistics.permutation import permutation_test
from floatlens.statistics.proportions import bounded_difference, bounded_mean
from floatlens.statistics.resampling import bootstrap_difference


def along_samples(values: Any, *others: str) -> xr.DataArray:
    return xr.DataArray(np.asarray(values), dims=("sample", *others))


def of_prompts(values: list[float], labels: list[Any]) -> list[list[float]]:
    return [[value for value, label in zip(values, labels, strict=True) if label == name] for name in sorted(set(labels))]


def mean_of(prompts: list[list[float]]) -> float:
    return sum(map(sum, prompts)) / sum(map(len, prompts))


def squared_error(prompts: list[list[float]]) -> float:
    centre, size, count = mean_of(prompts), sum(map(len, prompts)), len(prompts)
    return count / (count - 1) * sum((sum(prompt) - centre * len(prompt)) ** 2 for prompt in prompts) / size**2


@given(st.lists(st.integers(-4, 4), min_size=4, max_size=8), st.integers(0, 100))
@settings(max_examples=40)
def test_paired_sides_are_swapped_prompt_by_prompt_in_every_way(differences: list[int], seed: int) -> None:
    labels = sorted(np.random.default_rng(seed).integers(0, 5, len(differences)).tolist())
    prompts = of_prompts([float(value) for value in differences], labels)
    found = sum(map(sum, prompts))
    as_far, above = 0, 0
    for signs in itertools.product((1, -1), repeat=len(prompts)):
        swapped = sum(sign * sum(prompt) for sign, prompt in zip(signs, prompts, strict=True))
        as_far += abs(swapped) >= abs(found)
        above += swapped >= found
    a, b = along_samples(np.array(differences) + 0.1), along_samples([0.1] * len(differences))
    test = permutation_test(a, b, clusters=labels)
    assert test["p_value"].item() == pytest.approx(as_far / 2 ** len(prompts))
    assert bool(test["exact"])
    assert permutation_test(a, b, clusters=labels, alternative="greater")["p_value"].item() == pytest.approx(above / 2 ** len(prompts))


@given(st.integers(0, 1000), st.integers(2, 4), st.integers(2, 4))
@settings(max_examples=30)
def test_unpaired_prompts_are_dealt_to_the_sides_in_every_way(seed: int, first: int, second: int) -> None:
    draw = np.random.default_rng(seed)
    prompts = [draw.integers(0, 6, draw.integers(1, 4)).astype(float).tolist() for _ in range(first + second)]

    def statistic(chosen: tuple[int, ...]) -> float:
        sides = [prompts[number] for number in chosen], [prompts[number] for number in range(first + second) if number not in chosen]
        difference, error = mean_of(sides[0]) - mean_of(sides[1]), math.sqrt(sum(map(squared_error, sides)))
        if abs(difference) < 1e-9:
            return 0.0
        return difference / error if error > 1e-9 else math.copysign(math.inf, difference)

    found = statistic(tuple(range(first)))
    dealt = [statistic(chosen) for chosen in itertools.combinations(range(first + second), first)]
    if all(math.isfinite(value) for value in dealt):  # sides that do not vary are the next test's
        expected = sum(abs(value) >= abs(found) - 1e-9 for value in dealt) / len(dealt)
        labels = [[number for number in some for _ in prompts[number]] for some in (range(first), range(first, first + second))]
        a, b = (
            along_samples([value for number in some for value in prompts[number]]) for some in (range(first), range(first, first + second))
        )
        test = permutation_test(a, b, paired=False, clusters=labels[0], clusters_b=labels[1])
        assert test["p_value"].item() == pytest.approx(expected)
        assert bool(test["exact"])


def test_sides_that_do_not_vary_are_as_far_apart_as_can_be() -> None:
    a, b = along_samples([0.7] * 4), along_samples([0.1] * 4)
    assert permutation_test(a, b, paired=False)["p_value"].item() == pytest.approx(2 / math.comb(8, 4))
    assert permutation_test(a, a, paired=False)["p_value"].item() == 1.0
    assert permutation_test(a, a)["p_value"].item() == 1.0


@given(st.lists(st.integers(-7, 7), min_size=5, max_size=5))
@settings(max_examples=40)
def test_rounding_does_not_decide_ties(tenths: list[int]) -> None:
    whole, rounded = (
        along_samples(tenths),
        along_samples(np.array(tenths) / 10),
    )  # sums of tenths tie in whole numbers, and nearly in floating point
    assert permutation_test(rounded, 0 * rounded)["p_value"].item() == permutation_test(whole, 0 * whole)["p_value"].item()


def test_drawn_arrangements_agree_with_all_of_them_and_never_give_zero() -> None:
    a, b = np.random.default_rng(0).standard_normal((2, 9, 4)) + np.array([[[0.2, 0.6, 1.0, 30.0]], [[0, 0, 0, 0]]])
    for paired in (True, False):
        every = permutation_test(along_samples(a, "layer"), along_samples(b, "layer"), paired=paired, draws=1_000_000)
        some = permutation_test(along_samples(a, "layer"), along_samples(b, "layer"), paired=paired, draws=500)
        assert every["exact"].all()
        assert not some["exact"].any()
        np.testing.assert_allclose(some["p_value"], every["p_value"], atol=0.06)
        assert some["p_value"].min() >= 1 / 501


@pytest.mark.parametrize("paired", [True, False])
def test_without_a_difference_five_percent_of_tests_say_five_percent(paired: bool) -> None:
    draw = np.random.default_rng(1)
    labels = np.repeat(np.arange(18), draw.integers(1, 5, 18))
    a, b = (draw.exponential(1.0, (18, 2000))[labels] + draw.standard_normal((len(labels), 2000)) for _ in range(2))
    others = None if paired else labels + 100
    test = permutation_test(
        along_samples(a, "simulation"), along_samples(b, "simulation"), paired=paired, clusters=labels, clusters_b=others, draws=499
    )
    assert 0.035 <= float((test["p_value"] <= 0.05).mean()) <= 0.065
    assert 0.46 <= float((test["p_value"] <= 0.5).mean()) <= 0.54


def test_a_small_side_that_varies_more_does_not_make_differences() -> None:
    draw = np.random.default_rng(2)
    a, b = 3 * draw.standard_normal((10, 2000)), draw.standard_normal((40, 2000))
    test = permutation_test(along_samples(a, "simulation"), along_samples(b, "simulation"), paired=False, draws=499)
    assert float((test["p_value"] <= 0.05).mean()) <= 0.07  # differences that are not divided by their errors: above .2


def test_a_planted_difference_is_found_and_its_direction() -> None:
    draw = np.random.default_rng(3)
    a, b = along_samples(draw.standard_normal(20) + 1.5), along_samples(draw.standard_normal(20))
    for paired in (True, False):
        p_values = {
            which: float(permutation_test(a, b, paired=paired, alternative=which)["p_value"]) for which in ("two-sided", "greater", "less")
        }
        assert p_values["two-sided"] < 0.01
        assert p_values["greater"] < 0.01
        assert p_values["less"] > 0.99


def test_the_order_of_pairs_and_missing_ones_change_nothing() -> None:
    a, b = np.random.default_rng(4).standard_normal((2, 16, 2))
    labels = np.arange(16) // 2
    before = permutation_test(along_samples(a, "layer"), along_samples(b, "layer"), clusters=labels, draws=100)
    order = np.random.default_rng(5).permutation(16)
    after = permutation_test(along_samples(a[order], "layer"), along_samples(b[order], "layer"), clusters=labels[order], draws=100)
    xr.testing.assert_allclose(before, after)
    holed = np.concatenate([a, np.full((3, 2), np.nan)])
    more = permutation_test(
        along_samples(holed, "layer"),
        along_samples(np.concatenate([b, np.ones((3, 2))]), "layer"),
        clusters=[*labels, 97, 98, 99],
        draws=100,
    )
    xr.testing.assert_allclose(before, more)


def test_many_cells_give_what_each_gives_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = (along_samples(values, "head") for values in np.random.default_rng(0).standard_normal((2, 9, 7)))
    whole = permutation_test(a, b, paired=False, draws=99)
    monkeypatch.setattr("floatlens.statistics.permutation.NUMBERS_AT_ONCE", 250)
    xr.testing.assert_identical(permutation_test(a, b, paired=False, draws=99), whole)


def test_one_prompt_tells_nothing() -> None:
    one, three = along_samples([5.0]), along_samples([1.0, 2.0, 3.0])
    assert permutation_test(one, along_samples([0.0]))["p_value"].item() == 1.0
    test = permutation_test(three, one, paired=False)
    assert np.isnan(test["p_value"])
    assert test["reason"].item() == "one prompt on one side, so no test"
    nothing = permutation_test(one * np.nan, one)
    assert np.isnan(nothing["p_value"])
    assert nothing["reason"].item() == "no sample has a value"


def test_an_interaction_is_the_difference_of_the_gains() -> None:
    draw = np.random.default_rng(6)
    outcomes = draw.random((4, 15, 2)) < np.array([0.9, 0.2, 0.6, 0.4])[:, None, None]  # A gains .7, B gains .2
    a_with, a_without, b_with, b_without = (along_samples(values, "task") for values in outcomes)
    found = interaction(a_with, a_without, b_with, b_without)
    for task in range(2):
        gains = [[float(x) - float(y) for x, y in zip(outcomes[i, :, task], outcomes[i + 1, :, task], strict=True)] for i in (0, 2)]
        here = found.isel(task=task)
        assert here["gain_a"].item() == pytest.approx(sum(gains[0]) / 15)
        assert here["gain_b"].item() == pytest.approx(sum(gains[1]) / 15)
        assert here["estimate"].item() == pytest.approx((sum(gains[0]) - sum(gains[1])) / 15)
        differences = along_samples(gains[0]), along_samples(gains[1])
        names = ["low", "high", "p_value", "samples"]
        xr.testing.assert_allclose(here[names], bootstrap_difference(*differences)[names])
        bounded = interaction(a_with, a_without, b_with, b_without, within=(0, 1)).isel(task=task)
        xr.testing.assert_allclose(bounded[names], bounded_mean(differences[0] - differences[1], within=(-2, 2))[names])


def test_an_interaction_leaves_out_prompts_that_lack_any_of_the_four() -> None:
    nan = float("nan")
    full = along_samples([1.0, 2.0, 4.0, 8.0])
    found = interaction(full * 2, along_samples([nan, 2.0, 4.0, 8.0]), full, along_samples([0.0, 0.0, nan, 0.0]))
    assert int(found["samples"]) == 2
    assert found["gain_a"].item() == found["gain_b"].item() == 5.0  # samples 1 and 3 alone
    assert found["estimate"].item() == 0.0


def test_models_that_saw_other_prompts_interact_unpaired() -> None:
    a, b = along_samples([3.0, 4.0, 5.0]), along_samples([1.0, 1.0, 2.0, 2.0])
    found = interaction(a, 0 * a, b, 0 * b, paired=False)
    assert found["estimate"].item() == pytest.approx(2.5)
    assert found["p_value"].item() == bootstrap_difference(a, b, paired=False)["p_value"].item() < 0.05
    assert int(found["prompts"]) == 7
    with pytest.raises(Refusal, match="or paired=False"):
        interaction(a, 0 * a, b, 0 * b)
    with pytest.raises(Refusal, match="`a_with` has 3 along `sample`, `a_without` has 4"):
        interaction(a, b, b, b)


def test_an_interaction_keeps_samples_of_one_prompt_together() -> None:
    gain_a, gain_b = along_samples([3.0, 5.0, 4.0, 5.0, 6.0, 1.0]), along_samples([1.0, 0.0, 2.0, 2.0, 0.0, 1.0])
    labels, others = [0, 0, 1, 1, 2, 3], [4, 4, 4, 5, 6, 7]
    choices: list[dict[str, Any]] = [{"clusters": labels}, {"paired": False, "clusters": labels, "clusters_b": others}]
    for sides in choices:
        found = interaction(gain_a, 0 * gain_a, gain_b, 0 * gain_b, **sides)
        names = ["low", "high", "p_value", "prompts"]
        xr.testing.assert_allclose(found[names], bootstrap_difference(gain_a, gain_b, **sides)[names])
        bounded = interaction(gain_a / 6, 0 * gain_a, gain_b / 6, 0 * gain_b, within=(0, 1), **sides)
        xr.testing.assert_allclose(bounded[names], bounded_difference(gain_a / 6, gain_b / 6, within=(-1, 1), **sides)[names])
        assert found["prompts"].item() == (4 if len(sides) == 1 else 8)


def test_unknown_alternatives_and_no_draws_are_refused() -> None:
    a = along_samples([1.0, 2.0])
    unknown: Any = "larger"
    with pytest.raises(Refusal, match="'larger' is not known"):
        permutation_test(a, a, alternative=unknown)
    with pytest.raises(Refusal, match="at least one draw"):
        permutation_test(a, a, draws=0)
