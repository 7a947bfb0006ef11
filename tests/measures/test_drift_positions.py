"""Centroid, temporal and spatial variance, and the frontier, against plain arithmetic on dense attention."""

from collections.abc import Sequence

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from planted_anchors import anchors_of, looking_at, noisy, padded

from floatlens.errors import Refusal
from floatlens.measures import find_anchors, from_attention, pool_steps
from floatlens.measures.wandering import centroid, frontier_following, position_variance


def spiky(seed: int, steps: int = 5, heads: int = 2, keys: int = 12, rows: int = 4) -> np.ndarray:
    return noisy(np.full((steps, 2, heads, rows, keys), 1 / keys), 0.5, seed)


def writing(weights: np.ndarray, commits: list[list[int]]) -> xr.Dataset:
    """Attention of steps that commit these positions."""
    data = from_attention(weights)
    state = np.full((len(commits), weights.shape[-1]), 2, np.int8)
    for step, positions in enumerate(commits):
        state[step:, positions] = 4
        state[step, positions] = 3
    committed = np.full(weights.shape[-1], -1)
    for step, positions in enumerate(commits):
        committed[positions] = step
    return data.assign(state=(("step", "position"), state), committed=("position", committed))


def centroids_of(weights: np.ndarray, eps: float) -> np.ndarray:
    """(step, layer, head), in positions over keys."""
    steps, layers, heads, _, keys = weights.shape
    found = np.full((steps, layers, heads), np.nan)
    for step, layer, head in np.ndindex(steps, layers, heads):
        drawn = weights[step, layer, head].sum(0)
        anchors = anchors_of(weights[step, layer, head], eps)
        if anchors:
            found[step, layer, head] = sum(drawn[key] * key for key in anchors) / sum(drawn[key] for key in anchors) / keys
    return found


def test_the_centroid_is_that_of_dense_attention() -> None:
    weights = spiky(0)
    data = from_attention(weights)
    found = centroid(data, find_anchors(data, eps=3.0))
    np.testing.assert_allclose(found["centroid"].isel(group=0), centroids_of(weights, 3.0))
    assert found["centroid"].isnull().any()
    np.testing.assert_allclose(found["no_memory"], 11 / 2 / 12)


def test_the_centroid_of_head_averaged_anchors_weighs_head_averaged_mass() -> None:
    weights = spiky(1)
    data = from_attention(weights)
    found = centroid(data, find_anchors(data, eps=0.8, per_head=False))["centroid"]
    np.testing.assert_allclose(found.isel(group=0), centroids_of(weights.mean(2, keepdims=True), 0.8)[..., 0])


def test_the_centroid_of_pooled_steps_has_no_steps() -> None:
    pooled = pool_steps(from_attention(looking_at([3, 3, 9], keys=12)))
    found = centroid(pooled, find_anchors(pooled, eps=1.0))["centroid"]
    assert "step" not in found.dims
    at_3, at_9 = 2 * 0.6 + 3 * 0.4 / 12, 0.6 + 3 * 0.4 / 12
    np.testing.assert_allclose(found, (at_3 * 3 + at_9 * 9) / (at_3 + at_9) / 12)


def test_a_fixed_sink_is_spatial_and_a_moving_one_temporal() -> None:
    keys = 20
    still, moving = (from_attention(looking_at(path, keys=keys, rows=4)) for path in ([0] * keys, list(range(keys))))
    fixed, floating = (position_variance(data, find_anchors(data)).squeeze() for data in (still, moving))
    assert fixed["temporal"].item() == 0
    np.testing.assert_allclose(fixed["spatial"], 0.6**2 * (keys - 1))
    np.testing.assert_allclose(floating["temporal"], np.var(np.arange(keys) / keys))
    np.testing.assert_allclose(floating["spatial"], 0, atol=1e-12)
    np.testing.assert_allclose(fixed["spatial_null"], 0, atol=1e-12)


def test_variances_are_those_of_dense_attention() -> None:
    weights = spiky(2)
    data = from_attention(weights)
    found = position_variance(data, find_anchors(data, eps=1.0)).isel(group=0)
    np.testing.assert_allclose(found["temporal"], np.nanvar(centroids_of(weights, 1.0), axis=0))
    profile = np.mean([weights[step].mean(-2) for step in range(5)], axis=0) * 12
    np.testing.assert_allclose(found["spatial"], profile.var(-1))


def test_uniform_causal_attention_has_the_spatial_variance_of_its_null() -> None:
    causal = np.tril(np.ones((30, 30)))
    data = from_attention((causal / causal.sum(-1, keepdims=True))[None, None, None], visible=causal)
    found = position_variance(data, find_anchors(data))
    np.testing.assert_allclose(found["spatial"].squeeze(), found["spatial_null"].squeeze())
    assert found["spatial"].item() > 0.5
    assert found["temporal"].isnull().all()
    assert found["reason"].item() == "one step"


def test_the_null_of_the_temporal_variance_is_what_random_places_give() -> None:
    generator = np.random.default_rng(3)
    shares = [np.array([0.5, 0.2]), np.array([0.6]), np.array([0.3, 0.3, 0.2])]  # of the anchors at each step
    keys, drawn = 9, []
    for _ in range(3000):
        centroids = [(share / share.sum()) @ generator.choice(keys, len(share), replace=False) / keys for share in shares]
        drawn.append(np.var(centroids))
    weights = np.zeros((3, 1, 1, 1, keys))
    for step, share in enumerate(shares):
        weights[step, 0, 0, 0] = (1 - share.sum()) / (keys - len(share))
        weights[step, 0, 0, 0, : len(share)] = share
    data = from_attention(weights)
    found = position_variance(data, find_anchors(data, eps=0.7))
    np.testing.assert_allclose(found["temporal_no_memory"], np.mean(drawn), rtol=0.05)


def test_random_places_have_the_temporal_variance_of_no_memory() -> None:
    places = np.random.default_rng(4).integers(0, 16, (12, 10, 10))
    data = from_attention(looking_at(places, keys=16, rows=2))
    found = position_variance(data, find_anchors(data))
    np.testing.assert_allclose(found["temporal"].mean(), found["temporal_no_memory"].mean(), rtol=0.05)


def test_a_temporal_variance_needs_anchors_at_two_steps() -> None:
    weights = np.full((3, 1, 1, 4, 12), 1 / 12)
    weights[1] = looking_at([3], keys=12, rows=4)[0]
    data = from_attention(weights, groups={"everyone": np.ones(4, bool), "nobody": np.zeros(4, bool)})
    found = position_variance(data, find_anchors(data))
    assert found["temporal"].isnull().all()
    assert found["temporal_no_memory"].isnull().all()
    assert found["reason"].values.ravel().tolist() == ["anchors at one step only", "not measured at any step"]
    assert found["spatial"].notnull().values.ravel().tolist() == [True, False]


def test_padding_changes_no_position() -> None:
    weights = looking_at([3, 9, 4, 2, 8], keys=12)
    data = writing(weights, [[5], [6], [2], [9], [0]])
    longer = padded(data)
    plain, more = find_anchors(data), find_anchors(longer)
    xr.testing.assert_allclose(position_variance(data, plain), position_variance(longer, more))
    xr.testing.assert_allclose(frontier_following(data, plain), frontier_following(longer, more))
    found = centroid(longer, more)
    xr.testing.assert_allclose(centroid(data, plain), found.isel(step=slice(5)))
    assert found["centroid"].isel(step=slice(5, None)).isnull().all()


def test_a_head_that_does_not_exist_has_no_profile() -> None:
    data = from_attention(looking_at(np.full((3, 1, 2), 4), keys=12))
    data["mass"][:, :, 1] = np.nan
    found = position_variance(data, find_anchors(data))
    assert found["spatial"].notnull().values.ravel().tolist() == [True, False]


def correlation(first: Sequence[float], second: Sequence[float]) -> float:
    return float(np.corrcoef(first, second)[0, 1])


def test_the_frontier_is_correlated_move_by_move_against_all_shifts() -> None:
    path = [3, 9, 4, 2, 8, 0, 11, 5]
    commits = [[1, 2], [7], [3, 6], [2], [10], [0], [9, 8, 4], [5]]
    data = writing(looking_at(path, keys=12), commits)
    found = frontier_following(data, find_anchors(data)).squeeze()
    moves = [path[at + 1] - path[at] for at in range(7)]
    frontier = [float(np.mean(commits[at + 1]) - np.mean(commits[at])) for at in range(7)]
    shifted = [correlation(moves, frontier[-by:] + frontier[:-by]) if by else correlation(moves, frontier) for by in range(7)]
    np.testing.assert_allclose(found["correlation"], shifted[0])
    np.testing.assert_allclose(found["null"], np.mean(shifted[1:]))
    np.testing.assert_allclose(found["p"], sum(value >= shifted[0] for value in shifted) / 7)
    assert found["moves"].item() == 7


def test_steps_without_anchors_or_commits_are_left_out() -> None:
    path, commits = [3, 9, 4, 2, 8, 0, 11, 5], [[1], [7], [3], [], [10], [0], [9], [5]]
    weights = looking_at(path, keys=12)
    weights[6] = 1 / 12
    data = writing(weights, commits)
    found = frontier_following(data, find_anchors(data)).squeeze()
    pairs = [(0, 1), (1, 2), (4, 5)]  # the others touch step 3 or step 6
    expected = correlation([path[b] - path[a] for a, b in pairs], [commits[b][0] - commits[a][0] for a, b in pairs])
    np.testing.assert_allclose(found["correlation"], expected)
    assert found["moves"].item() == 3


def test_anchors_that_follow_the_frontier_are_found_and_others_are_not() -> None:
    generator = np.random.default_rng(5)
    places = generator.permutation(40)
    follows = writing(looking_at(places, keys=40, rows=2), [[int(place)] for place in places])
    found = frontier_following(follows, find_anchors(follows)).squeeze()
    np.testing.assert_allclose(found["correlation"], 1)
    np.testing.assert_allclose(found["p"], 1 / 39)
    chances = []
    for _ in range(25):
        stray = writing(looking_at(generator.integers(0, 40, 40), keys=40, rows=2), [[int(place)] for place in places])
        chances.append(frontier_following(stray, find_anchors(stray))["p"].item())
    assert 0.35 < np.mean(chances) < 0.65  # chance alone: p is even


def test_two_things_that_both_travel_do_not_follow_each_other() -> None:
    generator = np.random.default_rng(6)
    moves, others = generator.integers(0, 3, 30).cumsum(), generator.integers(0, 3, 30).cumsum()
    data = writing(looking_at(moves, keys=70, rows=2), [[int(place)] for place in others])
    found = frontier_following(data, find_anchors(data))
    assert correlation(moves.tolist(), others.tolist()) > 0.9
    assert abs(found["correlation"].item()) < 0.4
    assert found["p"].item() > 0.05


@pytest.mark.parametrize(
    ("path", "commits", "reason"),
    [
        ([3, 9, 4, 2, 8], [0, 1, 2, 3, 4], "the frontier moves by the same amount at every step"),
        ([3, 3, 3, 3, 3], [5, 1, 9, 2, 7], "the anchors do not move"),
        ([3, 9, 4], [5, 1, 9], "fewer than three moves between neighbouring steps that both have anchors and commits"),
        ([3], [5], "fewer than three moves between neighbouring steps that both have anchors and commits"),
    ],
    ids=["even frontier", "still anchors", "three steps", "one step"],
)
def test_a_frontier_that_tells_nothing_says_so(path: list[int], commits: list[int], reason: str) -> None:
    data = writing(looking_at(path, keys=12).astype(np.float32), [[place] for place in commits])
    found = frontier_following(data, find_anchors(data))
    assert found["reason"].item() == reason
    for name in ("correlation", "null", "p"):
        assert found[name].isnull().all(), name


def test_the_frontier_can_be_read_from_committed() -> None:
    data = writing(looking_at([3, 9, 4, 2, 8], keys=12), [[5], [6], [2], [9], [0]])
    anchors = find_anchors(data)
    expected = frontier_following(data, anchors)
    xr.testing.assert_identical(frontier_following(data.drop_vars("state"), anchors), expected)
    with pytest.raises(Refusal, match="needs state or committed"):
        frontier_following(data.drop_vars(["state", "committed"]), anchors)


@settings(max_examples=5)
@given(seed=st.integers(0, 30), order=st.permutations(range(3)))
def test_permuting_heads_permutes_positions(seed: int, order: list[int]) -> None:
    data = writing(spiky(seed, heads=3), [[5], [6], [2], [9], [0]])
    anchors, by = find_anchors(data, eps=1.0), {"head": list(order)}
    for measure in (centroid, position_variance, frontier_following):
        xr.testing.assert_allclose(measure(data, anchors).isel(by), measure(data.isel(by), anchors.isel(by)))
    found = centroid(data, anchors)["centroid"]
    assert ((found >= 0) & (found < 1) | found.isnull()).all()


def test_samples_are_measured_one_by_one() -> None:
    several = xr.concat([from_attention(looking_at(path, keys=12)) for path in ([3, 3, 3], [3, 4, 5])], "sample")
    anchors = find_anchors(several)
    assert (position_variance(several, anchors)["temporal"].squeeze().values > 0).tolist() == [False, True]


def test_anchors_of_other_data_and_missing_variables_are_refused() -> None:
    data = from_attention(looking_at([3, 4], keys=12))
    anchors = find_anchors(data)
    with pytest.raises(Refusal, match="differ in key"):
        centroid(data, anchors.isel(key=slice(5)))
    with pytest.raises(Refusal, match=r"The position of anchors needs rows.*detail"):
        centroid(data.drop_vars("rows"), anchors)
    with pytest.raises(Refusal, match="no axis 'step' and the data do"):
        position_variance(data, find_anchors(pool_steps(data)))
    with pytest.raises(Refusal, match="no axis 'step'"):
        position_variance(pool_steps(data), find_anchors(pool_steps(data)))
