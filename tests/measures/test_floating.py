"""The float index and its nulls: against plain sets, and on anchors that stay, move, or are seen through noise."""

from itertools import combinations, permutations

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from planted_anchors import anchors_of, looking_at, noisy, padded, similarity

from floatlens.errors import Refusal
from floatlens.measures import find_anchors, from_attention, pool_steps
from floatlens.measures.floating import float_index, float_index_of_rows

HALVES = ["mass_even", "visible_even", "null_even", "rows_even"]


def mean_known(values: list[float]) -> float:
    known = [value for value in values if not np.isnan(value)]
    return float(np.mean(known)) if known else float("nan")


def rows_of(weights: np.ndarray) -> xr.DataArray:
    return xr.DataArray(weights, dims=("step", "layer", "head", "query", "key"))


def noisy_static(seed: int, steps: int = 8, heads: int = 6, rows: int = 16, keys: int = 32) -> np.ndarray:
    """Three faint anchors that never move, seen through spiky rows."""
    base = np.full((steps, 1, heads, rows, keys), 0.6 / keys)
    base[..., [3, 7, 11]] += 0.4 / 3
    return noisy(base, 1.0, seed)


def noisy_moving(seed: int, steps: int = 8, heads: int = 6, rows: int = 16, keys: int = 32) -> np.ndarray:
    paths = np.broadcast_to(np.arange(steps)[:, None, None] * 3, (steps, 1, heads))
    return noisy(looking_at(paths, keys=keys, rows=rows, weight=0.5), 2.0, seed)


def test_the_index_and_its_nulls_are_those_of_dense_attention() -> None:
    weights = noisy_static(0, steps=5, heads=3, rows=8, keys=16)
    found = float_index(from_attention(weights), eps=1.0).isel(layer=0, group=0)
    for head in range(3):
        rows = weights[:, 0, head]
        every = [anchors_of(step, 1.0) for step in rows]
        even, odd = [anchors_of(step[::2], 1.0) for step in rows], [anchors_of(step[1::2], 1.0) for step in rows]
        here = found.isel(head=head)
        np.testing.assert_allclose(here["float_index"], 1 - mean_known([similarity(every[t], every[t + 1]) for t in range(4)]))
        chance = []
        for t in range(4):
            a, b, mean = len(every[t]), len(every[t + 1]), []
            if a + b:
                mean = [similarity(set(range(a)), set(other)) for other in combinations(range(16), b)]
                chance.append(np.mean(mean))
        np.testing.assert_allclose(here["no_memory"], 1 - np.mean(chance))
        within = [similarity(even[s], odd[s]) for t in range(4) for s in (t, t + 1)]
        across = [similarity(*pair) for t in range(4) for pair in ((even[t], odd[t + 1]), (odd[t], even[t + 1]))]
        np.testing.assert_allclose(here["no_movement"], 1 - mean_known(within))
        np.testing.assert_allclose(here["compared"], 1 - mean_known(across))
        np.testing.assert_allclose(here["movement"], here["compared"] - here["no_movement"])
        assert here["pairs"].item() == sum(not np.isnan(similarity(every[t], every[t + 1])) for t in range(4))
    assert (found["reason"] == "").all()
    assert found["method"].item() == "halves"


@pytest.mark.parametrize(
    ("path", "index", "movement"),
    [([5] * 6, 0, 0), (list(range(6)), 1, 1), ([5, 5, 5, 9, 9, 9], 0.2, 0.2)],
    ids=["static", "moving", "once"],
)
def test_planted_movement_is_found_exactly(path: list[int], index: float, movement: float) -> None:
    found = float_index(from_attention(looking_at(path, keys=12, rows=8)))
    np.testing.assert_allclose(found["float_index"].item(), index)
    np.testing.assert_allclose(found["no_movement"].item(), 0)
    np.testing.assert_allclose(found["movement"].item(), movement)
    np.testing.assert_allclose(found["no_memory"].item(), 11 / 12)


def test_anchors_along_layers_do_not_float() -> None:
    paths = np.broadcast_to(np.arange(5)[None, :], (4, 5))
    found = float_index(from_attention(looking_at(paths, keys=12, rows=8)))
    assert (found["float_index"] == 0).all()
    assert found["layer"].values.tolist() == [0, 1, 2, 3, 4]


def test_static_anchors_in_noise_have_a_high_index_and_no_movement() -> None:
    found = float_index(from_attention(noisy_static(1, steps=24, heads=12)), eps=2.0)
    assert found["float_index"].mean() > 0.4
    assert abs(found["movement"].mean()) < 0.03
    assert (found["no_memory"] - found["float_index"]).mean() > 0.1


def test_moving_anchors_in_noise_move_and_hardly_differ_from_chance() -> None:
    found = float_index(from_attention(noisy_moving(2)))
    assert (found["movement"] > 0.4).all()
    assert (found["no_movement"] < 0.5).all()


def test_structureless_noise_is_at_both_nulls() -> None:
    rows = noisy(np.full((40, 2, 6, 8, 24), 1 / 24), 0.5, 3)  # rows alike at all steps, and no key better than another
    found = float_index(from_attention(rows), eps=1.5)
    assert (found["reason"] == "").all()
    assert abs((found["float_index"] - found["no_memory"]).mean()) < 0.02
    assert abs(found["movement"].mean()) < 0.02


@pytest.mark.parametrize("by", ["halves", "rows"])
def test_halves_and_dealt_rows_reach_the_same_verdict(by: str) -> None:
    def movement(weights: np.ndarray, eps: float) -> xr.DataArray:
        found = float_index(from_attention(weights), eps=eps) if by == "halves" else float_index_of_rows(rows_of(weights), eps=eps)
        return found["movement"]

    keys, paths = 64, np.arange(6)[:, None, None] * np.ones((6, 1, 4), int)
    static = looking_at(np.zeros_like(paths) + 7, keys=keys, rows=16)
    assert (movement(static, 3.0) == 0).all()
    assert abs(movement(noisy_static(4, steps=24, heads=8), 2.0).mean()) < 0.05
    assert (movement(noisy(looking_at(paths, keys=keys, rows=16), 6.0, 5), 3.0) > 0.3).all()


def test_rows_that_keep_their_noise_are_not_taken_for_anchors_that_stay() -> None:
    """A row and the same row at the next step share their noise: halves compare other rows, dealing takes it from them."""
    once = noisy(np.full((1, 1, 6, 16, 32), 1 / 32), 0.5, 6)
    frozen = np.repeat(once, 8, axis=0)
    by_halves, dealt = float_index(from_attention(frozen), eps=1.0), float_index_of_rows(rows_of(frozen), eps=1.0)
    np.testing.assert_allclose(by_halves["movement"], 0, atol=1e-12)
    assert (dealt["movement"] < -0.3).all()


def one_row(weights: np.ndarray) -> xr.Dataset:
    return from_attention(weights[..., :1, :])


def test_one_row_per_step_is_compared_with_its_steps_in_any_order() -> None:
    weights = noisy_static(7, steps=5, heads=3, rows=1, keys=16)
    found = float_index(one_row(weights), eps=2.0).isel(layer=0, group=0)
    for head in range(3):
        sets = [anchors_of(step, 2.0) for step in weights[:, 0, head]]
        orders = [similarity(sets[order[t]], sets[order[t + 1]]) for order in permutations(range(5)) for t in range(4)]
        np.testing.assert_allclose(found["no_movement"].isel(head=head), 1 - mean_known(orders))
        np.testing.assert_allclose(found["compared"].isel(head=head), found["float_index"].isel(head=head))
    assert found["method"].item() == "order"


def test_one_row_per_step_cannot_tell_leaps_from_noise_and_says_so() -> None:
    found = float_index(one_row(looking_at(list(range(8)), keys=12, rows=1)))
    assert found["float_index"].item() == found["no_movement"].item() == 1
    assert found["movement"].isnull().all()
    assert found["reason"].item() == "one row per step, so noise and movement cannot be told apart; see float index (no movement)"


def test_slow_drift_of_one_row_per_step_shows_against_the_order() -> None:
    path = np.repeat(np.arange(6), 5)
    found = float_index(one_row(looking_at(path, keys=12, rows=1)))
    assert found["compared"].item() < found["no_movement"].item() - 0.5


def test_one_row_per_step_exchanges_only_keys_that_all_rows_see() -> None:
    length = 16
    weights = np.full((3, 1, 1, length, length), np.nan)
    for step, row in enumerate((12, 13, 14)):  # all look at key 2 and at themselves
        weights[step, 0, 0, row] = 0.1 / (row - 1)
        weights[step, 0, 0, row, [2, row]] = 0.5, 0.4
        weights[step, 0, 0, row, row + 1 :] = 0
    found = float_index(from_attention(weights, visible=np.tril(np.ones((length, length)))))
    assert found["float_index"].item() == 0.5  # at the second of two steps the first one's own key is no anchor any more
    np.testing.assert_allclose(found["compared"].item(), 1 - (1 / 2 + 1) / 2)  # keys 0 to 12 are there at all steps: {2, 12}, {2}, {2}
    np.testing.assert_allclose(found["no_movement"].item(), 1 - (1 / 2 + 1 / 2 + 1) / 3)


def test_groups_are_judged_by_what_each_of_them_has() -> None:
    weights = looking_at([3, 4, 5], keys=12, rows=8)
    only = np.arange(8) == 0
    groups = {"several": ~only, "one": only, "nobody": np.zeros(8, bool), "even": np.arange(8) % 2 == 0}
    found = float_index(from_attention(weights, groups=groups)).squeeze()
    assert found["method"].values.tolist() == ["halves", "order", "order", "halves"]
    assert found["movement"].notnull().values.tolist() == [True, False, False, False]
    reasons = found["reason"].values.tolist()
    assert reasons[0] == ""
    assert reasons[1].startswith("one row per step")
    assert reasons[2:] == ["not measured at any step", "no two neighbouring steps have rows of the group at even and at odd positions"]


def test_without_halves_noise_is_not_told_from_movement() -> None:
    data = from_attention(looking_at([3, 4, 5], keys=12, rows=8)).drop_vars(HALVES)
    found = float_index(data).squeeze()
    assert found["float_index"].item() == 1
    assert found["reason"].item() == "nothing recorded that tells noise from movement: record halves"
    for name in ("no_movement", "compared", "movement"):
        assert found[name].isnull().all(), name
    assert found["method"].item() == ""


def test_halves_per_layer_serve_head_averaged_anchors_only() -> None:
    data = from_attention(looking_at(np.broadcast_to(np.arange(3)[:, None, None], (3, 1, 2)), keys=12, rows=8))
    data["mass_even"] = data["mass_even"].mean("head")
    assert (float_index(data)["reason"] == "halves were recorded per layer and mass per head: use per_head=False").all()
    averaged = float_index(data, per_head=False)
    assert averaged["movement"].dims == ("layer", "group")
    assert averaged["movement"].item() == 1


def test_mass_per_layer_takes_halves_per_head_as_their_mean() -> None:
    data = from_attention(noisy_static(15, heads=3))
    expected = float_index(data, eps=1.0, per_head=False)
    xr.testing.assert_allclose(float_index(data.assign(mass=data["mass"].mean("head")), eps=1.0), expected)
    assert expected["movement"].notnull().all()


def test_head_averaged_anchors_are_those_of_head_averaged_attention_in_halves_too() -> None:
    weights = noisy_static(14, steps=6, heads=4)
    averaged, alone = (
        float_index(from_attention(weights), eps=1.0, per_head=False),
        float_index(from_attention(weights.mean(2, keepdims=True)), eps=1.0),
    )
    xr.testing.assert_allclose(averaged, alone.isel(head=0))
    assert averaged["movement"].notnull().all()


@pytest.mark.parametrize(
    ("weights", "reason"),
    [
        (np.full((3, 1, 1, 8, 12), 1 / 12), "no anchors at any step"),
        (looking_at([3], keys=12, rows=8), "one step"),
    ],
    ids=["uniform attention", "one step"],
)
def test_what_cannot_be_said_is_nan_with_its_reason(weights: np.ndarray, reason: str) -> None:
    for found in (float_index(from_attention(weights)), float_index_of_rows(rows_of(weights))):
        assert found["reason"].item() == reason
        assert found["pairs"].item() == 0
        for name in ("float_index", "no_memory", "no_movement", "movement"):
            assert found[name].isnull().all(), name


def test_measured_steps_that_are_not_neighbours_make_no_pair() -> None:
    here = np.array([True, False, True])[:, None] & np.ones((3, 8), bool)
    found = float_index(from_attention(looking_at([3, 3, 3], keys=12, rows=8), groups={"some": here}))
    assert found["float_index"].isnull().all()
    assert found["reason"].item() == "no two neighbouring steps that are both measured have anchors"


def test_padding_changes_nothing() -> None:
    for data in (from_attention(noisy_static(8, rows=6)), one_row(noisy_static(9))):
        xr.testing.assert_allclose(float_index(data, eps=1.5), float_index(padded(data), eps=1.5))


def test_data_without_groups_or_heads_are_measured_all_the_same() -> None:
    data = from_attention(noisy_static(10))
    whole = float_index(data, eps=1.5)
    alone = float_index(data.isel(group=0, drop=True), eps=1.5)
    assert alone["float_index"].dims == ("layer", "head")
    xr.testing.assert_identical(alone, whole.isel(group=0, drop=True))
    headless = float_index(data.isel(head=0, drop=True), eps=1.5)
    xr.testing.assert_identical(headless, whole.isel(head=0, drop=True))
    layerless = float_index(data.isel(layer=0, drop=True), eps=1.5)
    xr.testing.assert_identical(layerless, whole.isel(layer=0, drop=True))


@pytest.mark.parametrize("rule", ["lift", "additive", "zscore", "rate", "top"])
def test_every_rule_gives_the_index_of_its_own_anchors(rule: str) -> None:
    data = from_attention(noisy_moving(11, steps=4, heads=2))
    found = float_index(data, rule=rule)
    sets = find_anchors(data, rule=rule)["anchor"].isel(layer=0, group=0)
    for head in range(2):
        each = [set(np.flatnonzero(sets.isel(step=t, head=head)).tolist()) for t in range(4)]
        expected = 1 - mean_known([similarity(each[t], each[t + 1]) for t in range(3)])
        np.testing.assert_allclose(found["float_index"].isel(layer=0, group=0, head=head), expected)
    assert found.attrs["rule"] == rule


@settings(max_examples=4)
@given(seed=st.integers(0, 30), order=st.permutations(range(3)))
def test_permuting_heads_permutes_results_and_all_is_between_0_and_1(seed: int, order: list[int]) -> None:
    data = from_attention(noisy_static(seed, heads=3))
    found = float_index(data, eps=1.5)
    xr.testing.assert_allclose(found.isel(head=list(order)), float_index(data.isel(head=list(order)), eps=1.5))
    for name in ("float_index", "no_memory", "no_movement", "compared"):
        assert ((found[name] >= 0) & (found[name] <= 1)).all(), name


def test_samples_are_measured_one_by_one() -> None:
    several = xr.concat([from_attention(looking_at(path, keys=12, rows=8)) for path in ([3, 3, 3], [3, 4, 5])], "sample")
    assert float_index(several)["movement"].squeeze().values.tolist() == [0, 1]


def test_bad_input_is_refused() -> None:
    data = from_attention(looking_at([3, 4], keys=12))
    with pytest.raises(Refusal, match=r"The float index needs mass, .*detail"):
        float_index(data.drop_vars("mass"))
    with pytest.raises(Refusal, match="needs visible_even"):
        float_index(data.drop_vars("visible_even"))
    with pytest.raises(Refusal, match="no axis 'step'"):
        float_index(pool_steps(data))
    with pytest.raises(Refusal, match="no anchor rule 'best'"):
        float_index(data, rule="best")
    rows = rows_of(looking_at([3, 4], keys=12))
    with pytest.raises(Refusal, match="axis 'query'"):
        float_index_of_rows(rows.isel(query=0))
    with pytest.raises(Refusal, match="draws=0"):
        float_index_of_rows(rows, draws=0)


def test_dealing_is_that_of_shuffled_rows_and_repeats_with_its_seed() -> None:
    weights = noisy_static(12, steps=3, heads=1, rows=4, keys=16)
    found = float_index_of_rows(rows_of(weights), eps=1.0, draws=400, seed=1).squeeze()
    pool, generator, drawn = weights[:, 0, 0].reshape(12, 16), np.random.default_rng(99), []
    for _ in range(400):
        sets = [anchors_of(step, 1.0) for step in pool[generator.permutation(12)].reshape(3, 4, 16)]
        drawn.append(1 - mean_known([similarity(sets[0], sets[1]), similarity(sets[1], sets[2])]))
    np.testing.assert_allclose(found["no_movement"], mean_known(drawn), atol=0.03)
    again = [float_index_of_rows(rows_of(weights), eps=1.0, seed=seed)["no_movement"].item() for seed in (1, 1, 2)]
    assert again[0] == again[1] != again[2]


def test_one_row_per_step_dealt_often_is_its_steps_in_any_order() -> None:
    weights = noisy_static(13, steps=6, heads=2, rows=1, keys=16)
    dealt = float_index_of_rows(rows_of(weights), eps=2.0, draws=300)
    exact = float_index(from_attention(weights), eps=2.0)["no_movement"].isel(group=0)
    np.testing.assert_allclose(dealt["no_movement"], exact, atol=0.04)
    assert dealt["movement"].isnull().all()
    assert dealt["reason"].str.startswith("one row per step").all()


def test_dealt_rows_take_the_pattern_of_a_trace_with_rows_of_a_group_and_keys_that_all_see() -> None:
    weights = looking_at(np.broadcast_to(np.array([3, 4])[:, None, None], (2, 1, 2)), keys=12, rows=8)
    weights[:, :, :, 0] = np.eye(12)[11]  # a row that is not of the group
    data = from_attention(weights)
    of_group = xr.DataArray(np.arange(8) > 0, dims="query")
    found = float_index_of_rows(data["pattern"].where(of_group), eps=2.0)
    assert found["float_index"].dims == ("chosen",)
    assert found["chosen_head"].values.tolist() == [0, 1]
    assert found["float_index"].values.tolist() == [1, 1]
    hidden = xr.DataArray(np.ones((2, 8, 12), bool), dims=("step", "query", "key"))
    hidden[0, 1, 4] = False  # one row does not see key 4, so that it cannot be compared
    assert float_index_of_rows(data["pattern"].where(of_group), hidden, eps=2.0)["pairs"].values.tolist() == [1, 1]
    with pytest.raises(Refusal, match="No key is seen by all rows"):
        float_index_of_rows(data["pattern"], hidden & False)
    nobody = float_index_of_rows(data["pattern"].where(~of_group & of_group))
    assert (nobody["reason"] == "not measured at any step").all()
