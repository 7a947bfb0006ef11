"""Means, differences and ratios over prompts: what is estimated, and how often the intervals hold the truth."""

import math
import random
from typing import Any

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from floatlens.errors import Refusal
from floatlens.statistics.resampling import bootstrap, bootstrap_difference, bootstrap_ratio, student_quantile

SIMULATIONS = 6000  # along an axis of their own, each a cell: a share of 95 % is then known to 0.3 points
DRAWS = 400


def along_samples(values: Any, *others: str) -> xr.DataArray:
    return xr.DataArray(np.asarray(values), dims=("sample", *others))


def simulated(outcome: str, prompts: int, seed: int, most_samples: int = 8) -> tuple[np.ndarray, np.ndarray, float]:
    """Labels, values (sample, simulation) correlated within prompts, and the true mean.

    Prompts have other sizes in each simulation: NaN fills them up.
    """
    draw = np.random.default_rng([seed, prompts])
    labels = np.repeat(np.arange(prompts), most_samples)
    sizes = draw.integers(1, most_samples + 1, (prompts, SIMULATIONS))
    there = np.tile(np.arange(most_samples), prompts)[:, None] < sizes[labels]
    if outcome == "normal":
        values, truth = draw.standard_normal((prompts, SIMULATIONS))[labels] + draw.standard_normal(there.shape), 0.0
    elif outcome == "skewed":
        values, truth = draw.exponential(1.0, (prompts, SIMULATIONS))[labels] + draw.exponential(0.5, there.shape), 1.5
    else:  # accuracy: bounded, and most prompts are nearly always wrong
        ease = draw.beta(0.6, 1.4, (prompts, SIMULATIONS))[labels]
        values, truth = (draw.random(there.shape) < ease).astype(float), 0.3
    return labels, np.where(there, values, np.nan), truth


def coverage(found: xr.Dataset, truth: float) -> float:
    return float(((found["low"] <= truth) & (truth <= found["high"])).mean())


@pytest.mark.parametrize("outcome", ["normal", "skewed", "accuracy"])
@pytest.mark.parametrize("prompts", [15, 40])
def test_intervals_of_clustered_samples_cover_the_mean_as_often_as_they_say(outcome: str, prompts: int) -> None:
    labels, values, truth = simulated(outcome, prompts, seed=1)
    found = bootstrap(along_samples(values, "simulation"), clusters=labels, draws=DRAWS)
    assert 0.93 <= coverage(found, truth) <= 0.97


def test_intervals_that_ignore_prompts_cover_far_too_seldom() -> None:
    _, values, truth = simulated("normal", 25, seed=2)
    found = bootstrap(along_samples(values[:, :1000], "simulation"), draws=DRAWS)
    assert coverage(found, truth) < 0.85


def test_intervals_of_another_level_cover_that_much() -> None:
    labels, values, truth = simulated("normal", 25, seed=3)
    assert 0.77 <= coverage(bootstrap(along_samples(values, "simulation"), clusters=labels, draws=DRAWS, level=0.8), truth) <= 0.83


def test_intervals_of_unpaired_differences_cover_though_sides_differ_in_spread() -> None:
    labels, values, truth = simulated("skewed", 30, seed=4)
    others, few, _ = simulated("normal", 15, seed=5)
    found = bootstrap_difference(
        along_samples(values, "simulation"),
        along_samples(3 * few, "simulation"),
        paired=False,
        clusters=labels,
        clusters_b=1000 + others,
        draws=DRAWS,
    )
    assert 0.93 <= coverage(found, truth) <= 0.97


def test_intervals_of_ratios_cover() -> None:
    labels, noise, _ = simulated("normal", 25, seed=6)
    removed = np.exp(0.4 * np.random.default_rng(7).standard_normal((25, SIMULATIONS)))[labels]
    found = bootstrap_ratio(
        along_samples(2 * removed + 0.5 * noise, "simulation"), along_samples(removed, "simulation"), clusters=labels, draws=DRAWS
    )
    assert 0.93 <= coverage(found, 2.0) <= 0.97


def test_fewer_draws_make_no_shorter_intervals() -> None:
    labels, values, truth = simulated("normal", 25, seed=8)
    few, more = (bootstrap(along_samples(values, "simulation"), clusters=labels, draws=draws) for draws in (50, 800))
    assert abs(coverage(few, truth) - coverage(more, truth)) < 0.01


def straight_line(samples: list[tuple[str, float]], draws: int) -> tuple[float, float, float]:
    """The interval as the module describes it, prompt by prompt and draw by draw."""
    prompts = [[value for label, value in samples if label == name] for name in sorted({label for label, _ in samples})]
    count = len(prompts)

    def mean(drawn: list[list[float]]) -> float:
        return sum(map(sum, drawn)) / sum(map(len, drawn))

    def error(drawn: list[list[float]]) -> float:
        centre, size = mean(drawn), sum(map(len, drawn))
        return math.sqrt(count / (count - 1) * sum((sum(prompt) - centre * len(prompt)) ** 2 for prompt in drawn)) / size

    estimate = mean(prompts)
    without = [mean(prompts[:number] + prompts[number + 1 :]) for number in range(count)]
    jackknife = math.sqrt((count - 1) / count * sum((other - estimate) ** 2 for other in without))
    draw = random.Random(0)
    ratios = []
    for _ in range(draws):
        drawn = draw.choices(prompts, k=count)
        ratios.append((mean(drawn) - estimate) / max(error(drawn), error(prompts) / 4))
    ratios.sort()
    return estimate, estimate - ratios[int(0.975 * draws)] * jackknife, estimate - ratios[int(0.025 * draws)] * jackknife


def test_an_interval_is_the_one_computed_draw_by_draw() -> None:
    samples = [("a", 1.0), ("a", 2.0), ("b", 0.0), ("c", 5.0), ("c", 4.0), ("c", 7.0), ("d", 2.5), ("e", 3.0), ("e", 9.0), ("f", 1.0)]
    estimate, low, high = straight_line(samples, draws=20_000)
    found = bootstrap(along_samples([value for _, value in samples]), clusters=[label for label, _ in samples], draws=20_000)
    assert float(found.estimate) == pytest.approx(estimate)
    assert float(found.low) == pytest.approx(low, abs=0.03 * (high - low))
    assert float(found.high) == pytest.approx(high, abs=0.03 * (high - low))


def test_two_prompts_get_students_interval() -> None:
    found = bootstrap(along_samples([1.0, 3.0]))
    assert float(found.high) == pytest.approx(2 + 12.7062, abs=1e-4)  # the standard error of the mean is 1
    assert float(found.low) == pytest.approx(2 - 12.7062, abs=1e-4)


@pytest.mark.parametrize(
    ("level", "degrees", "printed"), [(0.95, 1, 12.706), (0.95, 2, 4.303), (0.95, 7, 2.365), (0.99, 10, 3.169), (0.9, 30, 1.697)]
)
def test_students_quantiles_are_those_of_printed_tables(level: float, degrees: int, printed: float) -> None:
    assert round(student_quantile(level, degrees), 3) == printed


@given(st.permutations(range(9)), st.integers(0, 3))
@settings(max_examples=25)
def test_the_order_of_samples_and_the_names_of_prompts_change_nothing(order: list[int], seed: int) -> None:
    values = np.random.default_rng(seed).standard_normal((9, 2))
    values[3, 1] = np.nan
    labels = np.array([0, 0, 1, 2, 2, 2, 3, 4, 4])
    before = bootstrap(along_samples(values, "layer"), clusters=labels, draws=200)
    after = bootstrap(along_samples(values[order], "layer"), clusters=[f"prompt {9 - label}" for label in labels[order]], draws=200)
    xr.testing.assert_allclose(after, before, rtol=1e-9)


@given(st.floats(-50, 50), st.floats(0.01, 100), st.integers(0, 50))
@settings(max_examples=25)
def test_an_interval_moves_and_stretches_with_its_values(shift: float, scale: float, seed: int) -> None:
    values = along_samples(np.random.default_rng(seed).exponential(1.0, 12))
    before, after = bootstrap(values, draws=200), bootstrap(values * scale + shift, draws=200)
    for name in ("estimate", "low", "high"):
        assert float(after[name]) == pytest.approx(float(before[name]) * scale + shift, rel=1e-6, abs=1e-6 * scale)
    assert before["low"] <= before["estimate"] <= before["high"]


def test_a_missing_value_is_as_if_the_sample_were_not_there() -> None:
    values = np.random.default_rng(0).standard_normal((12, 3))
    labels = np.arange(12) // 2
    holed = values.copy()
    holed[[0, 1, 4], 1] = np.nan  # a whole prompt and half of another
    found = bootstrap(along_samples(holed, "layer"), clusters=labels)
    kept = [number for number in range(12) if number not in (0, 1, 4)]
    alone = bootstrap(along_samples(values[kept, 1]), clusters=labels[kept])
    xr.testing.assert_allclose(found.isel(layer=1), alone)
    assert found["samples"].values.tolist() == [12, 9, 12]
    assert found["prompts"].values.tolist() == [6, 5, 6]
    xr.testing.assert_allclose(found.isel(layer=2), bootstrap(along_samples(values[:, 2]), clusters=labels))


def test_axes_and_labels_are_carried_along() -> None:
    values = xr.DataArray(
        np.arange(24.0).reshape(2, 4, 3),
        dims=("layer", "sample", "role"),
        coords={"layer": [3, 7], "role": ["mask", "special", "layout"], "sample": list("abcd"), "text": ("sample", list("wxyz"))},
    )
    found = bootstrap(values)
    assert found["estimate"].dims == ("layer", "role")
    assert set(found.coords) == {"layer", "role"}
    np.testing.assert_allclose(found["estimate"].sel(layer=7, role="mask"), np.mean([12, 15, 18, 21]))


def test_many_cells_give_what_each_gives_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    values = along_samples(np.random.default_rng(0).standard_normal((6, 11)), "head")
    whole = bootstrap(values, draws=100)
    monkeypatch.setattr("floatlens.statistics.resampling.NUMBERS_AT_ONCE", 250)
    xr.testing.assert_allclose(bootstrap(values, draws=100), whole)


def test_the_same_seed_gives_the_same_interval_and_another_a_similar_one() -> None:
    values = along_samples(np.random.default_rng(0).standard_normal(20))
    first, again, other = (bootstrap(values, seed=seed) for seed in (3, 3, 4))
    xr.testing.assert_identical(first, again)
    assert first["low"] != other["low"]
    assert float(abs(first["low"] - other["low"])) < 0.1 * float(first["high"] - first["low"])


def test_equal_values_have_an_interval_of_no_width() -> None:
    found = bootstrap(along_samples([0.7] * 20), clusters=[0] * 10 + [1] * 7 + [2] * 3)  # whose sums are rounded
    assert found["low"] == found["estimate"] == found["high"] == 0.7
    assert found["reason"] == ""


def test_one_prompt_has_an_estimate_and_says_why_it_has_no_interval() -> None:
    nan = float("nan")
    found = bootstrap(along_samples([[1.0, 1.0, nan], [3.0, nan, nan], [nan, 5.0, nan]], "layer"), clusters=["p", "p", "q"])
    np.testing.assert_array_equal(found["estimate"], [2.0, 3.0, nan])
    assert found["reason"].values.tolist() == ["one prompt, so no interval", "", "no sample has a value"]
    assert np.isnan(found["low"].values).tolist() == np.isnan(found["high"].values).tolist() == [True, False, True]


def test_a_paired_difference_is_the_mean_of_the_differences() -> None:
    a, b = np.random.default_rng(0).standard_normal((2, 10))
    a[2], b[5] = np.nan, np.nan
    found = bootstrap_difference(along_samples(a), along_samples(b))
    xr.testing.assert_allclose(found.drop_vars("p_value"), bootstrap(along_samples(a - b)))
    assert int(found["samples"]) == 8
    swapped = bootstrap_difference(along_samples(b), along_samples(a))
    assert float(swapped["estimate"]) == pytest.approx(-float(found["estimate"]))


def test_pairing_uses_what_the_sides_share() -> None:
    draw = np.random.default_rng(0)
    hard = 5 * draw.standard_normal(20)
    a, b = along_samples(hard + draw.standard_normal(20) + 1), along_samples(hard + draw.standard_normal(20))
    paired, unpaired = bootstrap_difference(a, b), bootstrap_difference(a, b, paired=False)
    assert float(paired["estimate"]) == pytest.approx(float(unpaired["estimate"]))
    assert float(paired["high"] - paired["low"]) < 0.5 * float(unpaired["high"] - unpaired["low"])
    assert int(unpaired["prompts"]) == 40


def test_an_unpaired_interval_is_long_where_the_second_sides_tail_is_not() -> None:
    skewed = along_samples(np.random.default_rng(1).exponential(1.0, 20) ** 2)
    alone = bootstrap(skewed, draws=20_000)
    below, above = (float(abs(alone[name] - alone["estimate"])) for name in ("low", "high"))
    assert above > 1.5 * below
    found = bootstrap_difference(along_samples([5.0] * 4), skewed, paired=False, draws=20_000)
    assert float(found["estimate"] - found["low"]) == pytest.approx(above, rel=0.1)
    assert float(found["high"] - found["estimate"]) == pytest.approx(below, rel=0.1)


def test_a_side_without_the_others_axes_is_compared_with_each() -> None:
    a, b = along_samples(np.arange(12.0).reshape(4, 3), "layer"), along_samples([1.0, 2.0, 3.0, 4.0])
    np.testing.assert_allclose(bootstrap_difference(a, b)["estimate"], [2.0, 3.0, 4.0])
    np.testing.assert_allclose(bootstrap_difference(b, a, paired=False)["estimate"], [-2.0, -3.0, -4.0])


def test_one_prompt_on_one_side_has_no_interval() -> None:
    found = bootstrap_difference(along_samples([1.0, 2.0, 3.0]), along_samples([1.0]), paired=False)
    assert float(found["estimate"]) == 1.0
    assert found["reason"].item() == "one prompt on one side, so no interval"
    assert np.isnan(found["low"])


def test_a_ratio_is_of_means_not_a_mean_of_ratios() -> None:
    found = bootstrap_ratio(along_samples([1.0, 9.0, 2.0, np.nan]), along_samples([1.0, 2.0, 1.0, 5.0]))
    assert float(found["estimate"]) == 3.0
    assert int(found["samples"]) == 3


def test_a_sample_without_a_numerator_does_not_count_in_the_denominator() -> None:
    damage, removed = [1.0, 2.0, 3.0, 2.0], [1.0, 2.0, 3.0, 2.5]
    found = bootstrap_ratio(along_samples([*damage, np.nan]), along_samples([*removed, -1000.0]))
    xr.testing.assert_allclose(found, bootstrap_ratio(along_samples(damage), along_samples(removed)))
    assert found["reason"].item() == ""
    assert np.isfinite(found["low"])


def test_a_ratio_to_ones_is_the_mean() -> None:
    values = along_samples(np.random.default_rng(0).exponential(1.0, (9, 2)), "layer")
    xr.testing.assert_allclose(bootstrap_ratio(values, xr.ones_like(values)), bootstrap(values))


def test_a_ratio_to_what_may_be_zero_has_no_interval() -> None:
    damage = along_samples([1.0, 2.0, 3.0, 2.0])
    found = bootstrap_ratio(damage, along_samples([[1.0, 2.0, 0.0], [-1.0, -1.5, 0.0], [2.0, 1.0, 0.0], [-2.0, -0.5, 8.0]], "layer"))
    assert found["reason"].values.tolist() == ["the denominator is 0", *["the denominator may be 0, so no interval"] * 2]
    assert np.isnan(found["estimate"].values).tolist() == [True, False, False]
    assert found["low"].isnull().all()
    assert found["high"].isnull().all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"values": xr.DataArray([1.0], dims="prompt")}, "no axis `sample`"),
        ({"values": along_samples(np.zeros((0,)))}, "empty along `sample`"),
        ({"values": along_samples(np.zeros((2, 0)), "layer")}, "empty along `layer`"),
        ({"values": along_samples([1.0, -np.inf])}, "infinite at sample 1"),
        ({"values": along_samples(["x", "y"])}, "not numbers"),
        ({"values": along_samples([1.0, 2.0]), "clusters": ["x"]}, "one label per sample"),
        ({"values": along_samples([1.0, 2.0]), "clusters": xr.DataArray([0, 1], dims="prompt")}, "along `sample` alone"),
        ({"values": along_samples([1.0, 2.0]), "clusters": ["x", None]}, "lacks the label"),
        ({"values": along_samples([1.0, 2.0]), "clusters": [0.0, np.nan]}, "lacks the label"),
        ({"values": along_samples([1.0, 2.0]), "level": 95}, "between 0 and 1"),
        ({"values": along_samples([1.0, 2.0]), "draws": 20}, "no tail"),
        ({"values": along_samples([1.0, 2.0]), "seed": -1}, "negative"),
    ],
)
def test_what_has_no_mean_over_prompts_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(Refusal, match=message):
        bootstrap(**arguments)


def test_sides_that_do_not_match_are_refused() -> None:
    three, two = along_samples([1.0, 2.0, 3.0]), along_samples([1.0, 2.0])
    with pytest.raises(Refusal, match=r"`a` has 3 along `sample`, `b` has 2\. Pass the same samples in the same order, or paired=False"):
        bootstrap_difference(three, two)
    with pytest.raises(Refusal, match="different labels along `sample`"):
        bootstrap_difference(two.assign_coords(sample=["x", "y"]), two.assign_coords(sample=["y", "x"]))
    with pytest.raises(Refusal, match="along `layer`"):
        bootstrap_difference(along_samples(np.ones((2, 3)), "layer"), along_samples(np.ones((2, 4)), "layer"), paired=False)
    with pytest.raises(Refusal, match="is for sides that are not paired"):
        bootstrap_difference(two, two, clusters=[0, 1], clusters_b=[0, 1])
    with pytest.raises(Refusal, match="The prompt 'x' is on both sides"):
        bootstrap_difference(two, three, paired=False, clusters=["x", "y"], clusters_b=["z", "x", "z"])
    with pytest.raises(Refusal, match="`denominator` has 2"):
        bootstrap_ratio(three, two)
