"""Lifetimes and kinds of anchors, against plain loops over steps and keys."""

from itertools import combinations, groupby, product
from math import comb

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from planted_anchors import anchors_of, looking_at, noisy, padded

from floatlens.errors import Refusal
from floatlens.measures import find_anchors, from_attention, pool_steps
from floatlens.measures.drift import anchor_kinds, lifetimes


def sets_of(anchor: np.ndarray | list[list[int]], measured: np.ndarray | None = None) -> xr.Dataset:
    """Anchors over (step, key)."""
    found = xr.DataArray(np.asarray(anchor, bool), dims=("step", "key"))
    everywhere = np.ones(found.shape, bool) if measured is None else np.asarray(measured, bool)
    return xr.Dataset({"anchor": found & everywhere, "measured": found.copy(data=everywhere)})


def runs_in(marks: np.ndarray) -> list[int]:
    return [len(list(run)) for is_anchor, run in groupby(marks.tolist()) if is_anchor]


def counts(found: xr.Dataset) -> dict[str, float]:
    return dict(zip(found["kind"].values.tolist(), found["count"].squeeze().values.tolist(), strict=True))


def test_lifetimes_are_the_runs_of_dense_attention() -> None:
    keys = 10
    weights = noisy(looking_at(np.full((9, 2, 2), 4), keys=keys, rows=3, weight=0.3), 2.0, seed=1)
    lasted = lifetimes(find_anchors(from_attention(weights), eps=1.0))
    for layer, head in product(range(2), range(2)):
        sets = [anchors_of(step[layer, head], 1.0) for step in weights]
        runs = [run for key in range(keys) for run in runs_in(np.array([key in one for one in sets]))]
        here = lasted.isel(layer=layer, head=head, group=0)
        assert here["runs"].values.tolist() == [runs.count(length) for length in range(1, 10)]
        np.testing.assert_allclose(here["mean"], np.mean(runs))
        assert here["longest"].item() == max(runs) > 1
        assert here["reason"].item() == ""


@pytest.mark.parametrize(
    ("path", "mean", "longest"),
    [([3] * 6, 6, 6), ([3, 4, 5, 6, 7, 8], 1, 1), ([3, 3, 3, 8, 8, 3], 2, 3)],
    ids=["static", "moving", "comes back"],
)
def test_planted_lifetimes_are_found_exactly(path: list[int], mean: float, longest: int) -> None:
    lasted = lifetimes(find_anchors(from_attention(looking_at(path, keys=12))))
    assert lasted["mean"].item() == mean
    assert lasted["longest"].item() == longest


def test_a_step_at_which_a_key_is_not_measured_ends_its_run_and_cuts_it_off() -> None:
    anchor = np.array([[0, 1, 0], [1, 1, 1], [1, 1, 1], [0, 1, 1], [0, 1, 0]])
    measured = np.array([[1, 1, 1], [1, 1, 0], [1, 0, 1], [1, 1, 1], [1, 1, 1]])
    lasted = lifetimes(sets_of(anchor, measured))
    # key 0: steps 1 and 2, whole; key 1: before its gap (step 0 and 1) and after it; key 2: after its gap
    assert lasted["runs"].values.tolist() == [0, 4, 0, 0, 0]
    np.testing.assert_allclose(lasted["cut_off"], 3 / 4)


def test_runs_at_the_ends_are_cut_off_and_others_are_not() -> None:
    lasted = lifetimes(sets_of([[1, 0, 0, 0], [0, 1, 0, 0], [0, 1, 0, 1]]))
    np.testing.assert_allclose(lasted["cut_off"], 1.0)
    lasted = lifetimes(sets_of([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 1]]))
    np.testing.assert_allclose(lasted["cut_off"], 2 / 3)


def test_the_null_of_lifetimes_is_what_random_places_give() -> None:
    generator = np.random.default_rng(2)
    numbers = [3, 4, 2, 5, 4, 3]
    total = lengths = 0
    anchor = np.zeros((6, 8), bool)
    for _ in range(400):
        anchor[:] = False
        for step, number in enumerate(numbers):
            anchor[step, generator.choice(8, number, replace=False)] = True
        runs = [run for key in range(8) for run in runs_in(anchor[:, key])]
        total, lengths = total + len(runs), lengths + sum(runs)
    np.testing.assert_allclose(lifetimes(sets_of(anchor))["no_memory"], lengths / total, rtol=0.01)


def test_kinds_are_those_of_dense_attention() -> None:
    keys, steps = 10, 8
    weights = noisy(looking_at(np.full((steps, 2, 2), 4), keys=keys, rows=4, weight=0.5), 3.0, seed=3)
    found = anchor_kinds(find_anchors(from_attention(weights), eps=1.0))
    seen = set()
    for layer, head in product(range(2), range(2)):
        sets = [anchors_of(step[layer, head], 1.0) for step in weights]
        times = [sum(key in one for one in sets) for key in range(keys)]
        static = sum(number >= 0.9 * steps for number in times)
        transient, ever = times.count(1), sum(number > 0 for number in times)
        here = found.isel(layer=layer, head=head, group=0)
        assert counts(here) == {"static": static, "moving": ever - static - transient, "transient": transient}
        np.testing.assert_allclose(here["share"], here["count"] / ever)
        seen |= {kind for kind, number in counts(here).items() if number}
    assert seen == {"static", "moving", "transient"}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ([3] * 10, {"static": 1, "moving": 0, "transient": 0}),
        ([3] * 9 + [5], {"static": 1, "moving": 0, "transient": 1}),
        ([3] * 8 + [5, 5], {"static": 0, "moving": 2, "transient": 0}),
        (list(range(10)), {"static": 0, "moving": 0, "transient": 10}),
    ],
    ids=["static", "static and transient", "moving", "transient"],
)
def test_planted_kinds_are_found_exactly(path: list[int], expected: dict[str, int]) -> None:
    assert counts(anchor_kinds(find_anchors(from_attention(looking_at(path, keys=12))))) == expected


def test_a_key_counts_the_steps_at_which_it_was_measured() -> None:
    anchor = np.array([[0, 0, 0], [0, 0, 0], [1, 0, 0], [1, 1, 1]])
    measured = np.array([[0, 0, 1], [0, 0, 1], [1, 0, 1], [1, 1, 1]])
    found = anchor_kinds(sets_of(anchor, measured))
    assert counts(found) == {"static": 1, "moving": 0, "transient": 1}  # key 0 whenever it could be; key 2 once
    assert found["undecided"].item() == 1  # key 1 was there to be seen at one step


def test_the_null_of_kinds_is_the_mean_over_all_placements() -> None:
    numbers, keys = [1, 1, 1], 3
    placements = [[set(part) for part in choice] for choice in product(*(list(combinations(range(keys), number)) for number in numbers))]
    expected = np.zeros(3)
    for sets in placements:
        for key in range(keys):
            times = sum(key in one for one in sets)
            expected += [times == 3, times == 2, times == 1]
    anchor = np.array([[1, 0, 0], [0, 1, 0], [0, 1, 0]])
    np.testing.assert_allclose(anchor_kinds(sets_of(anchor))["no_memory"], expected / expected.sum())


def test_the_null_of_kinds_knows_that_many_anchors_stay_by_chance() -> None:
    anchor = np.ones((12, 9), bool)
    anchor[np.arange(12), np.arange(12) % 9] = False  # eight of nine keys at every step
    chance = [comb(12, times) * (8 / 9) ** times * (1 / 9) ** (12 - times) for times in range(13)]
    expected = np.array([sum(chance[11:]), sum(chance[2:11]), chance[1]]) / sum(chance[1:])
    assert expected[0] > 0.5
    np.testing.assert_allclose(anchor_kinds(sets_of(anchor))["no_memory"], expected, atol=1e-12)


def test_the_null_of_kinds_counts_keys_that_came_late() -> None:
    generator = np.random.default_rng(4)
    measured = np.ones((12, 9), bool)
    measured[:5, 6:] = False
    measured[:, 8] = [False] * 11 + [True]  # of this one nothing can be said
    expected, anchor = np.zeros(3), np.zeros(measured.shape, bool)
    for _ in range(1500):
        anchor[:] = False
        for step in range(12):
            there = np.flatnonzero(measured[step])
            anchor[step, generator.choice(there, 3, replace=False)] = True
        for key in range(8):
            times, chances = int(anchor[:, key].sum()), int(measured[:, key].sum())
            static = times >= 0.9 * chances
            expected += [static, times > 1 and not static, times == 1]
    np.testing.assert_allclose(anchor_kinds(sets_of(anchor, measured))["no_memory"], expected / expected.sum(), atol=0.01)


def test_random_places_have_the_kinds_and_lifetimes_of_no_memory() -> None:
    places = np.random.default_rng(5).integers(0, 16, (20, 6, 6))
    found = find_anchors(from_attention(looking_at(places, keys=16, rows=2)))
    lasted, kinds = lifetimes(found), anchor_kinds(found)
    assert abs(lasted["mean"].mean() - lasted["no_memory"].mean()) < 0.02
    np.testing.assert_allclose(
        kinds["count"].sum(("layer", "head", "group")) / kinds["count"].sum(),
        kinds["no_memory"].mean(("layer", "head", "group")),
        atol=0.05,
    )


def test_nothing_is_said_of_one_step_of_no_anchors_and_of_groups_without_rows() -> None:
    groups = {"everyone": np.ones(20, bool), "nobody": np.zeros(20, bool)}
    for weights, reason in ((looking_at([3], keys=12), "one step"), (np.full((3, 1, 1, 20, 12), 1 / 12), "no anchors at any step")):
        found = find_anchors(from_attention(weights, groups=groups))
        lasted, kinds = lifetimes(found), anchor_kinds(found)
        assert lasted["reason"].values.ravel().tolist() == kinds["reason"].values.ravel().tolist() == [reason, "not measured at any step"]
        for name in ("mean", "no_memory", "longest", "cut_off"):
            assert lasted[name].isnull().all(), name
        for name in ("count", "share", "no_memory", "undecided"):
            assert kinds[name].isnull().all(), name


def test_padding_changes_nothing() -> None:
    data = from_attention(noisy(looking_at(np.full((5, 2, 2), 4), keys=10, rows=4), 2.0, seed=6))
    plain, longer = find_anchors(data, eps=1.0), find_anchors(padded(data), eps=1.0)
    xr.testing.assert_allclose(anchor_kinds(plain), anchor_kinds(longer))
    xr.testing.assert_allclose(lifetimes(plain), lifetimes(longer).isel(length=slice(5)))


@settings(max_examples=5)
@given(seed=st.integers(0, 30), order=st.permutations(range(3)))
def test_permuting_heads_permutes_results_and_shares_are_whole(seed: int, order: list[int]) -> None:
    found = find_anchors(from_attention(noisy(np.full((6, 2, 3, 4, 12), 1 / 12), 0.4, seed)), eps=1.0)
    for measure in (lifetimes, anchor_kinds):
        xr.testing.assert_identical(measure(found).isel(head=list(order)), measure(found.isel(head=list(order))))
    kinds, lasted = anchor_kinds(found), lifetimes(found)
    some = kinds["reason"] == ""
    np.testing.assert_allclose(kinds["share"].sum("kind"), some)
    np.testing.assert_allclose(kinds["no_memory"].sum("kind"), some)
    assert ((lasted["mean"] >= 1) & (lasted["mean"] <= lasted["longest"]) & (lasted["longest"] <= 6)).where(some, True).all()


def test_samples_are_measured_one_by_one() -> None:
    each = [find_anchors(from_attention(looking_at(path, keys=12))) for path in ([3, 3, 3], [3, 4, 5])]
    several = xr.concat(each, "sample")
    assert lifetimes(several)["mean"].squeeze().values.tolist() == [3, 1]
    assert anchor_kinds(several)["share"].sel(kind="static").squeeze().values.tolist() == [1, 0]


def test_pooled_steps_are_refused() -> None:
    pooled = find_anchors(pool_steps(from_attention(looking_at([3, 4], keys=12))))
    for measure in (lifetimes, anchor_kinds):
        with pytest.raises(Refusal, match="no axis 'step'"):
            measure(pooled)
