"""The path of the strongest key: against plain loops, on paths that are planted, seen through noise, tied, or not there."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from planted_anchors import looking_at, noisy, padded

from floatlens.errors import Refusal
from floatlens.measures import from_attention, pool_steps
from floatlens.measures.path import NUMBERS, strongest_path

HALVES = ["mass_even", "visible_even", "null_even", "rows_even"]
STATIC, MOVING, ONCE, ALTERNATING = [5] * 6, [0, 1, 2, 3, 4, 5], [5, 5, 5, 9, 9, 9], [2, 7, 2, 7, 2, 7]


def described(path: Sequence[int], first: Sequence[int], second: Sequence[int]) -> dict[str, float]:
    """The numbers of a path whose halves go their own ways, counted in the words of the definition. All steps have a strongest key."""
    changes = np.mean([now != later for now, later in pairwise(path)])
    within, across = [], []
    for step in range(len(path) - 1):
        within += [first[step] != second[step], first[step + 1] != second[step + 1]]
        across += [first[step] != second[step + 1], second[step] != first[step + 1]]
    noise, compared = float(np.mean(within)), float(np.mean(across))
    return {
        "keys": len(set(path)),
        "keys_null": 1 + (len(path) - 1) * noise,
        "changes": float(changes),
        "noise": noise,
        "share": Counter(path).most_common(1)[0][1] / len(path),
        "share_null": 1 - noise,
        "compared": compared,
        "movement": compared - noise,
    }


def strongest(rows: np.ndarray) -> int:
    """The key with the largest sum over rows (row, key)."""
    return max(range(rows.shape[1]), key=lambda key: sum(row[key] for row in rows))


def assert_described(found: xr.Dataset, expected: dict[str, float]) -> None:
    for name in NUMBERS:
        np.testing.assert_allclose(found[name].item(), expected[name], atol=1e-12, err_msg=name)


def thirds(weights: np.ndarray) -> dict[str, np.ndarray]:
    """Six layers, all and by thirds, each averaged: (step, head, query, key)."""
    return {"all": weights.mean(1), "shallow": weights[:, :2].mean(1), "middle": weights[:, 2:4].mean(1), "deep": weights[:, 4:].mean(1)}


def test_the_numbers_are_those_of_loops_over_dense_attention() -> None:
    weights = noisy(np.full((7, 6, 4, 9, 8), 1 / 8), 2.0, 0)
    data = from_attention(weights)
    by_layer, pooled, by_head = strongest_path(data), strongest_path(data, pooled=True), strongest_path(data, per_head=True)
    looks = {("layer", layer): weights[:, layer].mean(1) for layer in range(6)}
    looks |= {("depth", depth): of_layers.mean(1) for depth, of_layers in thirds(weights).items()}
    looks |= {("head", head): weights[:, 3, head] for head in range(4)}
    results = {"layer": by_layer, "depth": pooled, "head": by_head.isel(layer=3)}
    for (axis, label), rows in looks.items():  # (step, query, key)
        paths = [[strongest(step[start::by]) for step in rows] for start, by in ((0, 1), (0, 2), (1, 2))]
        found = results[axis].isel(group=0)
        found = found.isel(head=label) if axis == "head" else found.sel({axis: label})
        assert found["path"].values.tolist() == paths[0]
        assert_described(found, described(*paths))
        assert found["favourite"].item() in [key for key, times in Counter(paths[0]).items() if times == max(Counter(paths[0]).values())]
        assert (found["steps"].item(), found["pairs"].item(), found["reason"].item(), found["noise_reason"].item()) == (7, 6, "", "")
    assert by_layer["method"].values.tolist() == ["rows"]
    assert pooled["depth"].values.tolist() == ["all", "shallow", "middle", "deep"]


def test_where_a_step_has_one_row_heads_are_set_against_heads() -> None:
    weights = noisy(np.full((7, 6, 5, 1, 8), 1 / 8), 4.0, 1)
    by_layer, pooled = strongest_path(from_attention(weights)), strongest_path(from_attention(weights), pooled=True)
    for found, looks in (
        *((by_layer.isel(layer=layer), weights[:, layer, :, 0]) for layer in range(6)),
        *((pooled.sel(depth=depth), of_layers[:, :, 0]) for depth, of_layers in thirds(weights).items()),
    ):
        paths = [[strongest(step[start::by]) for step in looks] for start, by in ((0, 1), (0, 2), (1, 2))]
        assert_described(found, described(*paths))
    assert by_layer["method"].item() == pooled["method"].item() == "heads"
    assert (by_layer["noise"] > 0).any()


@pytest.mark.parametrize("rows", [8, 1])
@pytest.mark.parametrize(
    ("path", "keys", "changes", "share"),
    [(STATIC, 1, 0, 1), (MOVING, 6, 1, 1 / 6), (ONCE, 2, 0.2, 0.5), (ALTERNATING, 2, 1, 0.5)],
    ids=["static", "moving", "once", "alternating"],
)
def test_planted_paths_are_found_exactly(path: list[int], keys: int, changes: float, share: float, rows: int) -> None:
    data = from_attention(looking_at(np.array(path)[:, None, None].repeat(2, 2), keys=12, rows=rows))
    for found in (strongest_path(data), strongest_path(data, pooled=True).sel(depth="all")):
        assert found["path"].values.ravel().tolist() == path
        assert_described(
            found,
            {
                "keys": keys,
                "keys_null": 1,
                "changes": changes,
                "noise": 0,
                "share": share,
                "share_null": 1,
                "compared": changes,
                "movement": changes,
            },
        )
        assert found["favourite"].item() == min(path)


def test_every_layer_has_its_own_path_and_the_strongest_layers_decide_the_pooled_one() -> None:
    still = looking_at([[5]] * 4, keys=12, weight=0.8)
    moves = looking_at([[1], [2], [3], [4]], keys=12, weight=0.3)
    data = from_attention(np.concatenate([still, still, moves], axis=1))
    assert strongest_path(data)["changes"].values.ravel().tolist() == [0, 0, 1]
    pooled = strongest_path(data, pooled=True).isel(group=0)
    assert pooled["changes"].sel(depth=["all", "shallow", "middle", "deep"]).values.tolist() == [0, 0, 0, 1]


def test_a_step_without_one_strongest_key_is_left_out_with_the_changes_around_it() -> None:
    weights = looking_at([3, 3, 3, 7, 7], keys=10, rows=4)
    weights[2] = 0.01
    weights[2, ..., [4, 8]] = 0.46  # two keys that draw the same
    found = strongest_path(from_attention(weights))
    assert found["path"].values.ravel().tolist() == [3, 3, -1, 7, 7]
    assert (found["steps"].item(), found["pairs"].item()) == (4, 2)
    assert (found["keys"].item(), found["changes"].item(), found["share"].item()) == (2, 0, 0.5)
    assert (found["noise"].item(), found["compared"].item()) == (0, 0)


def test_rounding_does_not_make_a_tie_a_path() -> None:
    data = from_attention(np.full((6, 1, 2, 4, 10), 0.1))
    rounding = np.random.default_rng(0).uniform(-1e-6, 1e-6, data["mass"].shape)
    found = strongest_path(data.assign(mass=data["mass"] * (1 + rounding)))
    assert (found["path"] == -1).all()
    assert found["favourite"].item() == -1
    assert all(np.isnan(found[name].item()) for name in NUMBERS)
    assert found["reason"].item() == found["noise_reason"].item() == "several keys draw the same at every step"


@pytest.mark.parametrize("rows", [8, 1], ids=["rows", "heads"])
def test_structureless_noise_changes_at_every_step_and_does_not_move(rows: int) -> None:
    found = strongest_path(from_attention(noisy(np.full((60, 20, 6, rows, 24), 1 / 24), 0.5, 2)))
    assert found["changes"].mean() > 0.9
    assert abs(found["movement"].mean()) < 0.01
    assert (found["keys"] <= found["keys_null"]).all()
    assert (found["share"] >= found["share_null"] - 0.02).all()


@pytest.mark.parametrize("rows", [8, 1], ids=["rows", "heads"])
def test_a_key_that_stays_in_noise_changes_without_moving(rows: int) -> None:
    base = np.full((60, 20, 6, rows, 24), 1 / 24)
    base[..., 5] += 2 / 24
    found = strongest_path(from_attention(noisy(base, 1.0, 3)))
    assert found["changes"].mean() > 0.2
    assert abs(found["movement"].mean()) < 0.02
    assert found["keys"].mean() < found["keys_null"].mean()
    assert found["share"].mean() > found["share_null"].mean()


@pytest.mark.parametrize("rows", [16, 1], ids=["rows", "heads"])
def test_a_key_that_moves_in_noise_moves(rows: int) -> None:
    path = np.broadcast_to(np.arange(8)[:, None, None] * 3, (8, 6, 12))
    found = strongest_path(from_attention(noisy(looking_at(path, keys=32, rows=rows, weight=0.5), 8.0, 4)))
    assert (found["movement"] > 0.4).all()


def test_rows_that_keep_their_noise_do_not_move() -> None:
    frozen = np.repeat(noisy(np.full((1, 4, 6, 16, 32), 1 / 32), 0.5, 5), 8, axis=0)
    found = strongest_path(from_attention(frozen))
    assert (found["movement"] == 0).all()
    assert (found["changes"] == 0).all()
    assert (found["noise"] > 0).any()


def test_only_keys_that_enough_rows_see_are_on_the_path() -> None:
    length = 40
    causal = np.tril(np.ones((length, length)))
    own = np.eye(length) * 0.9 + 0.1 * causal / causal.sum(-1, keepdims=True)  # the last keys, seen by few rows, draw most
    own[10:, 10] += 0.5
    found = strongest_path(from_attention(np.repeat(own[None, None, None] / own.sum(-1, keepdims=True), 3, 0), visible=causal))
    assert found["path"].values.ravel().tolist() == [10, 10, 10]


def test_the_prompt_has_a_path_of_its_own() -> None:
    looks = looking_at([8, 9, 10, 11], keys=12, rows=6, weight=0.5)
    looks[..., 2] += 0.1
    data = from_attention(looks / looks.sum(-1, keepdims=True)).assign(state=(("step", "position"), [[1] * 6 + [2] * 6] * 4))
    assert strongest_path(data)["path"].values.ravel().tolist() == [8, 9, 10, 11]
    on_prompt = strongest_path(data, keys="prompt")
    assert on_prompt["path"].values.ravel().tolist() == [2, 2, 2, 2]
    assert (on_prompt["movement"].item(), on_prompt["share"].item()) == (0, 1)


def test_what_does_not_exist_is_nan_with_a_reason() -> None:
    moving = looking_at(np.array(MOVING)[:, None, None].repeat(2, 2), keys=12, rows=8)
    several, single = from_attention(moving), from_attention(moving[..., :1, :])
    one_step = strongest_path(several.isel(step=[0]))
    assert all(one_step[name].isnull().all() for name in NUMBERS)
    assert one_step["reason"].item() == one_step["noise_reason"].item() == "one step"
    without = strongest_path(several.drop_vars(HALVES))
    assert (without["keys"].item(), without["changes"].item(), without["reason"].item()) == (6, 1, "")
    cases = {
        "nothing recorded that tells noise from movement: record halves": without,
        "halves were recorded per layer: use per_head=False": strongest_path(
            several.assign({name: several[name].mean("head") if name == "mass_even" else several[name] for name in HALVES}), per_head=True
        ),
        "one row per step, and heads cannot be set against each other: record mass per head": strongest_path(
            single.mean("head").assign(rows=single["rows"])
        ),
        "one row per step of one head, so noise and movement cannot be told apart": strongest_path(single.isel(head=[0])),
        "no two neighbouring steps both have a strongest key in each half": strongest_path(
            from_attention(moving, groups={"these": np.arange(8) % 2 == 0})
        ),
    }
    for reason, found in cases.items():
        assert np.unique(found["noise_reason"]).tolist() == [reason]
        for name in ("noise", "compared", "movement", "keys_null", "share_null"):
            assert found[name].isnull().all()
        assert (found["changes"] == 1).all()
    assert without["method"].item() == ""
    assert np.unique(strongest_path(single, per_head=True)["noise_reason"]).item().startswith("one row per step of one head")
    empty = strongest_path(from_attention(moving, groups={"nobody": np.zeros(8, bool)}))
    assert (empty["reason"].item(), empty["steps"].item()) == ("not measured at any step", 0)
    apart = moving.copy()
    apart[1::2] = 1 / 12
    assert strongest_path(from_attention(apart))["reason"].item() == "no two neighbouring steps both have a strongest key"


def test_halves_kept_per_layer_are_enough() -> None:
    data = from_attention(noisy(np.full((6, 2, 3, 8, 10), 1 / 10), 1.0, 6))
    per_layer = data.assign(mass_even=data["mass_even"].mean("head"))
    xr.testing.assert_allclose(strongest_path(data), strongest_path(per_layer))


def test_padding_and_samples_change_nothing() -> None:
    weights = noisy(np.full((6, 3, 2, 8, 10), 1 / 10), 1.0, 7)
    groups = {"several": np.arange(8) < 6, "single": np.arange(8) == 7}
    data = from_attention(weights, groups=groups).assign(state=(("step", "position"), [[1] * 6 + [2] * 4] * 6))
    both = xr.concat([padded(data), padded(data)], "sample")
    every: list[dict[str, Any]] = [{}, {"pooled": True}, {"keys": "prompt"}, {"per_head": True}]
    for options in every:
        alone, beside = strongest_path(data, **options), strongest_path(both, **options)
        assert beside["movement"].dims[0] == "sample"
        for name in (*NUMBERS, "steps", "pairs", "favourite", "reason", "noise_reason", "method"):
            for sample in range(2):
                xr.testing.assert_equal(beside[name].isel(sample=sample, drop=True), alone[name])
        assert (beside["path"].isel(step=slice(6, None)) == -1).all()


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**16), steps=st.integers(2, 9), rows=st.integers(1, 5), keys=st.integers(2, 7), heads=st.integers(1, 4))
def test_numbers_of_any_path_keep_their_bounds_whichever_way_keys_and_steps_are_counted(
    seed: int, steps: int, rows: int, keys: int, heads: int
) -> None:
    weights = noisy(np.full((steps, 3, heads, rows, keys), 1 / keys), 1.0, seed)
    found = strongest_path(from_attention(weights))
    assert ((found["keys"] >= 1) & (found["keys"] <= 1 + found["changes"] * found["pairs"] + 1e-9)).all()
    assert (found["share"] >= 1 / found["keys"] - 1e-9).all()
    assert (found["share"] * steps).round(6).isin(range(1, steps + 1)).all()
    other_keys = np.random.default_rng(seed).permutation(keys)
    renamed, reversed_ = (strongest_path(from_attention(other)) for other in (weights[..., other_keys], weights[::-1]))
    np.testing.assert_array_equal(other_keys[renamed["path"].values], found["path"].values)
    for name in NUMBERS:
        np.testing.assert_allclose(renamed[name], found[name], atol=1e-12, err_msg=name)
        np.testing.assert_allclose(reversed_[name], found[name], atol=1e-12, err_msg=name)


def test_what_has_no_path_is_refused() -> None:
    data = from_attention(looking_at(STATIC, keys=12, rows=4))
    with pytest.raises(Refusal, match="keys='some' is not known; choose one of all, prompt"):
        strongest_path(data, keys="some")
    with pytest.raises(Refusal, match="needs state"):
        strongest_path(data, keys="prompt")
    with pytest.raises(Refusal, match="needs mass"):
        strongest_path(data.drop_vars("mass"))
    with pytest.raises(Refusal, match="no axis 'step'"):
        strongest_path(pool_steps(data))
    with pytest.raises(Refusal, match="no axis 'layer'"):
        strongest_path(data.mean("layer"), pooled=True)
