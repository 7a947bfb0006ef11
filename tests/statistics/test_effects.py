"""Effect sizes, areas and slopes, each against a computation by hand, prompt by prompt."""

import math
import statistics
from typing import Any

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from floatlens.errors import Refusal
from floatlens.statistics.effects import effect_size
from floatlens.statistics.permutation import auc, cliffs_delta
from floatlens.statistics.resampling import bootstrap, student_quantile
from floatlens.statistics.slopes import correlation_over, slope_over


def along_samples(values: Any, *others: str) -> xr.DataArray:
    return xr.DataArray(np.asarray(values), dims=("sample", *others))


def share_covered(found: xr.Dataset, truth: float) -> float:
    return float(((found["low"] <= truth) & (truth <= found["high"])).mean())


def prompt_means(values: np.ndarray, labels: np.ndarray) -> list[float]:
    return [statistics.fmean(values[labels == label]) for label in np.unique(labels)]


def pooled(a: list[float], b: list[float]) -> float:
    degrees = len(a) + len(b) - 2
    squares = sum((value - statistics.fmean(side)) ** 2 for side in (a, b) for value in side)
    return (statistics.fmean(a) - statistics.fmean(b)) / math.sqrt(squares / degrees)


def test_a_paired_effect_is_the_mean_difference_over_its_spread_between_prompts() -> None:
    a, b = np.random.default_rng(0).standard_normal((2, 11))
    labels = np.array([0, 0, 1, 2, 2, 2, 3, 4, 5, 5, 6])
    differences = prompt_means(a - b, labels)
    expected = statistics.fmean(differences) / statistics.stdev(differences)
    without = [differences[:number] + differences[number + 1 :] for number in range(7)]
    others = [statistics.fmean(some) / statistics.stdev(some) for some in without]
    reach = student_quantile(0.95, 6) * math.sqrt(6 / 7 * sum((other - statistics.fmean(others)) ** 2 for other in others))
    found = effect_size(along_samples(a), along_samples(b), clusters=labels)
    assert found["estimate"].item() == pytest.approx(expected)
    assert found["low"].item() == pytest.approx(expected - reach)
    assert found["high"].item() == pytest.approx(expected + reach)
    assert found["prompts"].item() == 7


def test_an_unpaired_effect_is_hedges_g() -> None:
    draw = np.random.default_rng(1)
    a, b = (draw.standard_normal(6) + 1).tolist(), draw.standard_normal(9).tolist()
    correction = 1 - 3 / (4 * 13 - 1)
    squares = 0.0
    for side, other, sign in ((a, b, 1), (b, a, -1)):
        without = [sign * pooled(side[:number] + side[number + 1 :], other) for number in range(len(side))]
        squares += (len(side) - 1) / len(side) * sum((value - statistics.fmean(without)) ** 2 for value in without)
    reach = student_quantile(0.9, 13) * math.sqrt(squares)
    found = effect_size(along_samples(a), along_samples(b), paired=False, level=0.9)
    assert found["estimate"].item() == pytest.approx(correction * pooled(a, b))
    assert found["low"].item() == pytest.approx(correction * (pooled(a, b) - reach))
    assert found["high"].item() == pytest.approx(correction * (pooled(a, b) + reach))


def test_hedges_g_has_no_bias_where_cohens_d_has() -> None:
    draw = np.random.default_rng(2)
    a, b = draw.standard_normal((2, 6, 20_000))
    found = effect_size(along_samples(a + 1, "simulation"), along_samples(b, "simulation"), paired=False)
    assert float(found["estimate"].mean()) == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("effect", [0.0, 0.8])
def test_intervals_of_effects_cover(paired: bool, effect: float) -> None:
    a, b = np.random.default_rng(3).standard_normal((2, 20, 4000)) * math.sqrt(0.5 if paired else 1.0)  # differences have a spread of 1
    found = effect_size(along_samples(a + effect, "simulation"), along_samples(b, "simulation"), paired=paired)
    assert 0.94 <= share_covered(found, effect) <= 0.98


@given(st.floats(0.1, 10), st.floats(-5, 5), st.integers(0, 20))
@settings(max_examples=20)
def test_effects_do_not_depend_on_units(scale: float, shift: float, seed: int) -> None:
    a, b = np.random.default_rng(seed).standard_normal((2, 8))
    for paired in (True, False):
        before = effect_size(along_samples(a), along_samples(b), paired=paired)
        after = effect_size(along_samples(a * scale + shift), along_samples(b * scale + shift), paired=paired)
        swapped = effect_size(along_samples(b), along_samples(a), paired=paired)
        assert after["estimate"].item() == pytest.approx(before["estimate"].item(), abs=1e-9)
        assert swapped["low"].item() == pytest.approx(-before["high"].item())


def test_effects_without_a_spread_or_an_interval_say_why() -> None:
    nan = float("nan")
    a = along_samples([[2.0, 1.0, 0.0, nan, 1.0], [2.0, 3.0, 0.0, nan, nan], [2.0, nan, 5.0, nan, nan]], "layer")
    found = effect_size(a, xr.zeros_like(a))
    assert found["reason"].values.tolist() == [
        "prompts do not differ, so no spread",
        "without one of the prompts the others do not differ, so no interval",
        "without one of the prompts the others do not differ, so no interval",
        "no sample has a value",
        "one prompt, so no spread",
    ]
    assert np.isnan(found["estimate"].values).tolist() == [True, False, False, True, True]
    assert found["low"].isnull().all()
    one = effect_size(along_samples([1.0, 2.0, 4.0]), along_samples([1.0]), paired=False)
    assert one["reason"].item() == "one prompt on one side, so no interval"
    assert np.isfinite(one["estimate"])


def area_by_hand(scores: list[float], correct: list[bool]) -> float:
    pairs = [
        (x > y) + 0.5 * (x == y)
        for x, right in zip(scores, correct, strict=True)
        if right
        for y, other in zip(scores, correct, strict=True)
        if not other
    ]
    return statistics.fmean(pairs)


@given(st.integers(0, 10_000))
@settings(max_examples=40)
def test_an_area_counts_pairs_in_order_and_leaves_out_prompt_by_prompt(seed: int) -> None:
    draw = np.random.default_rng(seed)
    scores = draw.integers(0, 5, 12).astype(float)  # many ties
    correct, labels = draw.random(12) < 0.5, draw.integers(0, 6, 12)
    if correct.all() or not correct.any():
        return
    area = area_by_hand(scores.tolist(), correct.tolist())
    found = auc(along_samples(scores), along_samples(correct), clusters=labels)
    assert found["estimate"].item() == pytest.approx(area)
    names = np.unique(labels)
    kept = [labels != name for name in names]
    if 0 < area < 1 and all(0 < correct[some].sum() < some.sum() for some in kept):
        others = [area_by_hand(scores[some].tolist(), correct[some].tolist()) for some in kept]
        share = (len(names) - 1) / len(names)
        error = math.sqrt(share * sum((other - statistics.fmean(others)) ** 2 for other in others)) / (area * (1 - area))
        reach = student_quantile(0.95, len(names) - 1) * error
        odds = math.log(area / (1 - area))
        assert found["low"].item() == pytest.approx(1 / (1 + math.exp(reach - odds)))
        assert found["high"].item() == pytest.approx(1 / (1 + math.exp(-reach - odds)))
    else:
        assert np.isnan(found["low"])
        assert found["reason"].item() != ""


def test_a_score_that_tells_nothing_has_half_the_area_and_intervals_cover_it() -> None:
    draw = np.random.default_rng(4)
    labels = np.repeat(np.arange(30), 4)  # of one prompt, scores are much alike, and mostly all are correct or none is
    scores = along_samples(draw.standard_normal((30, 3000))[labels] + 0.5 * draw.standard_normal((120, 3000)), "simulation")
    correct = along_samples(draw.standard_normal((30, 3000))[labels] + 0.3 * draw.standard_normal((120, 3000)) > 0.3, "simulation")
    found = auc(scores, correct, clusters=labels)
    assert float(found["estimate"].mean()) == pytest.approx(0.5, abs=0.005)
    assert 0.93 <= share_covered(found, 0.5) <= 0.97
    assert share_covered(auc(scores, correct), 0.5) < 0.8, "samples of one prompt are no evidence of their own"


def test_areas_run_along_other_axes_and_leave_out_what_is_missing() -> None:
    draw = np.random.default_rng(5)
    scores, correct = draw.standard_normal((20, 3)), draw.random(20) < 0.5
    scores[4, 1] = np.nan
    found = auc(along_samples(scores, "head"), along_samples(correct))
    kept = np.arange(20) != 4
    alone = auc(along_samples(scores[kept, 1]), along_samples(correct[kept].astype(float)))
    xr.testing.assert_allclose(found.isel(head=1), alone)
    assert found["samples"].values.tolist() == [20, 19, 20]
    order = draw.permutation(20)
    xr.testing.assert_allclose(auc(along_samples(scores[order], "head"), along_samples(correct[order])), found)
    turned = auc(-along_samples(scores, "head"), along_samples(correct))
    np.testing.assert_allclose(turned["estimate"], 1 - found["estimate"])
    np.testing.assert_allclose(turned["low"], 1 - found["high"])


@pytest.mark.parametrize(
    ("correct", "clusters", "area", "reason"),
    [
        ([1, 1, 1, 1], None, math.nan, "all samples are correct, so nothing to compare"),
        ([0, 0, 0, 0], None, math.nan, "no sample is correct, so nothing to compare"),
        ([math.nan] * 4, None, math.nan, "no sample has a score and a class"),
        ([0, 0, 1, 1], None, 1.0, "the classes do not overlap, so no interval"),
        ([0, 1, 0, 1], ["x"] * 4, 0.75, "one prompt, so no interval"),
        ([0, 1, 0, 0], None, 1 / 3, "one prompt holds all correct or all wrong samples, so no interval"),
    ],
)
def test_an_area_without_two_classes_or_an_interval_says_why(
    correct: list[float], clusters: list[str] | None, area: float, reason: str
) -> None:
    found = auc(along_samples([1.0, 2.0, 3.0, 4.0]), along_samples(correct), clusters=clusters)
    assert found["estimate"].item() == pytest.approx(area, nan_ok=True)
    assert found["reason"].item() == reason
    assert np.isnan(found["low"])
    assert np.isnan(found["high"])


def test_classes_that_are_none_are_refused() -> None:
    with pytest.raises(Refusal, match="whether its answer is right"):
        auc(along_samples([1.0, 2.0]), along_samples([0.5, 1.0]))
    with pytest.raises(Refusal, match="`correct` has 3"):
        auc(along_samples([1.0, 2.0]), along_samples([True, False, True]))
    with pytest.raises(Refusal, match="between 0 and 1"):
        auc(along_samples([1.0, 2.0]), along_samples([True, False]), level=95)


def test_cliffs_delta_counts_who_exceeds_whom() -> None:
    a, b = np.random.default_rng(6).integers(0, 6, (2, 9)).astype(float)
    won = [(x > y) - (x < y) for x in a.tolist() for y in b[:7].tolist()]
    found = cliffs_delta(along_samples(a).assign_coords(sample=range(9)), along_samples(b[:7]))
    assert found["estimate"].item() == pytest.approx(statistics.fmean(won))
    assert -1 <= found["low"] <= found["estimate"] <= found["high"] <= 1
    swapped = cliffs_delta(along_samples(b[:7]), along_samples(a))
    assert swapped["low"].item() == pytest.approx(-found["high"].item())
    with pytest.raises(Refusal, match="both `clusters` and `clusters_b`"):
        cliffs_delta(along_samples(a), along_samples(b), clusters=list(range(9)))


@given(st.integers(0, 1000))
@settings(max_examples=30)
def test_slopes_and_correlations_are_those_of_each_row(seed: int) -> None:
    draw = np.random.default_rng(seed)
    values, places = draw.standard_normal((3, 7, 2)), np.sort(draw.random(7))
    values[draw.random(values.shape) < 0.2] = np.nan
    data = xr.DataArray(values, dims=("sample", "layer", "group"))
    slopes, correlations = slope_over(data, "layer", at=places), correlation_over(data, "layer", at=places)
    assert slopes.dims == correlations.dims == ("sample", "group")
    for sample in range(3):
        for group in range(2):
            known = ~np.isnan(values[sample, :, group])
            if known.sum() >= 3:
                row = values[sample, known, group]
                assert float(slopes[sample, group]) == pytest.approx(np.polyfit(places[known], row, 1)[0])
                assert float(correlations[sample, group]) == pytest.approx(np.corrcoef(places[known], row)[0, 1])


def test_places_come_from_a_coordinate_or_differ_between_samples() -> None:
    data = xr.DataArray(
        [[0.0, 2.0, 4.0], [0.0, 2.0, 4.0]], dims=("sample", "layer"), coords={"layer": [0, 4, 8], "depth": ("layer", [0.0, 0.5, 1.0])}
    )
    assert slope_over(data, "layer").values.tolist() == [0.5, 0.5]
    assert slope_over(data, "layer", at="depth").values.tolist() == [4.0, 4.0]
    own = xr.DataArray([[0.0, 1.0, 2.0], [0.0, 2.0, 4.0]], dims=("sample", "layer"))
    assert slope_over(data, "layer", at=own).values.tolist() == [2.0, 1.0]


def test_what_has_no_slope_is_nan_and_left_out_of_the_mean() -> None:
    nan = float("nan")
    data = along_samples([[1.0, 2.0, 3.0], [1.0, nan, nan], [nan, nan, nan], [0.1, 0.1, 0.1]], "layer")
    slopes = slope_over(data, "layer", at=[0, 1, 2])
    np.testing.assert_array_equal(slopes, [1.0, nan, nan, 0.0])
    assert bootstrap(slopes)["estimate"].item() == 0.5
    np.testing.assert_array_equal(correlation_over(data, "layer", at=[0, 1, 2]), [1.0, nan, nan, nan])
    assert slope_over(data, "layer", at=[0.1, 0.1, 0.1]).isnull().all()


@pytest.mark.parametrize(
    ("axis", "at", "message"),
    [
        ("step", None, "no axis `step`"),
        ("layer", None, "`layer` is not a coordinate"),
        ("layer", "depth", "`depth` is not a coordinate"),
        ("layer", [1.0, 2.0], "`values` has 3 along `layer`, `at` has 2"),
        ("layer", xr.DataArray([1.0, 2.0], dims="sample"), "not `layer`"),
        ("layer", ["low", "middle", "high"], "not numbers"),
    ],
)
def test_places_that_do_not_fit_are_refused(axis: str, at: Any, message: str) -> None:
    with pytest.raises(Refusal, match=message):
        slope_over(along_samples([[1.0, 2.0, 3.0]], "layer"), axis, at)
