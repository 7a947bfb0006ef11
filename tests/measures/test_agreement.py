"""Consensus of heads and split sinks, against plain counting."""

from collections import Counter
from itertools import product

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from planted_anchors import looking_at, noisy, padded, similarity

from floatlens.errors import Refusal
from floatlens.measures import find_anchors, from_attention, pool_steps
from floatlens.measures.agreement import expected_consensus, head_consensus, split_sinks


def test_consensus_is_the_share_of_the_most_common_favourite() -> None:
    weights = noisy(np.full((3, 2, 7, 4, 5), 1 / 5), 3.0, 0)
    found = head_consensus(from_attention(weights))
    for step, layer in product(range(3), range(2)):
        favourites = Counter(int(np.argmax(weights[step, layer, head].sum(0))) for head in range(7))
        here = found["consensus"].isel(step=step, layer=layer, group=0)
        np.testing.assert_allclose(here, favourites.most_common(1)[0][1] / 7)
    assert len(np.unique(found["consensus"])) > 1
    assert (found["heads"] == 7).all()


def test_planted_agreement_is_found_exactly() -> None:
    found = head_consensus(from_attention(looking_at([[[3, 3, 3, 3], [3, 3, 5, 8], [1, 2, 3, 4]]], keys=12)))
    assert found["consensus"].squeeze().values.tolist() == [1, 0.5, 0.25]


def test_favourites_are_chosen_by_received_attention_among_measured_keys() -> None:
    length = 40
    causal = np.tril(np.ones((length, length)))
    own = np.eye(length) * 0.9 + causal * 0.1 / causal.sum(
        -1, keepdims=True
    )  # every row looks at itself: the last keys, seen by few, draw most
    second = own.copy()
    own[10:, 10] += 0.5
    second[20:, 20] += 0.5
    both = np.stack([part / part.sum(-1, keepdims=True) for part in (own, second)])
    data = from_attention(both, visible=causal)
    assert head_consensus(data)["consensus"].item() == 0.5
    assert head_consensus(data.isel(head=[0, 0]))["consensus"].item() == 1


def test_heads_that_spread_evenly_have_no_vote() -> None:
    weights = np.concatenate([looking_at([[[3, 3]]], keys=12), np.full((1, 1, 3, 20, 12), 1 / 12)], axis=2)
    data = from_attention(weights)
    rounding = np.random.default_rng(5).uniform(-1e-6, 1e-6, data["mass"].shape)  # as sums of single precision have it
    for mass in (data["mass"], data["mass"] * (1 + rounding)):
        found = head_consensus(data.assign(mass=mass))
        assert found["heads"].item() == 2
        assert found["consensus"].item() == 1
    nothing = head_consensus(from_attention(np.full((1, 1, 3, 20, 12), 1 / 12)))
    assert nothing["consensus"].isnull().all()
    assert nothing["null"].isnull().all()
    assert nothing["reason"].item() == "no head has one favourite key"


def test_groups_without_rows_are_not_measured() -> None:
    groups = {"everyone": np.ones(20, bool), "nobody": np.zeros(20, bool)}
    found = head_consensus(from_attention(looking_at([[[3, 3]]], keys=12), groups=groups))
    assert found["reason"].values.ravel().tolist() == ["", "no key is measured"]
    assert found["consensus"].sel(group="nobody").isnull().all()


def test_heads_that_do_not_exist_have_no_vote() -> None:
    data = from_attention(looking_at([[[3, 4, 4]]], keys=12))
    data["mass"][:, :, 2] = np.nan
    found = head_consensus(data)
    assert found["heads"].item() == 2
    assert found["consensus"].item() == 0.5


@settings(max_examples=25)
@given(heads=st.integers(1, 5), keys=st.integers(1, 5))
def test_the_null_of_the_consensus_is_the_mean_over_all_choices(heads: int, keys: int) -> None:
    every = [max(Counter(choice).values()) / heads for choice in product(range(keys), repeat=heads)]
    np.testing.assert_allclose(expected_consensus(np.array([heads]), np.array([keys])), [np.mean(every)])


def test_the_null_of_the_consensus_holds_for_many_heads_and_keys() -> None:
    generator = np.random.default_rng(1)
    drawn = [Counter(generator.integers(0, 3000, 64).tolist()).most_common(1)[0][1] / 64 for _ in range(3000)]
    found = expected_consensus(np.array([[64, 0]]), np.array([[3000, 9]]))
    assert abs(found[0, 0] - np.mean(drawn)) < 4 * np.std(drawn) / np.sqrt(3000)
    assert np.isnan(found[0, 1])


def test_structureless_heads_agree_as_much_as_by_chance() -> None:
    found = head_consensus(from_attention(noisy(np.full((40, 4, 8, 1, 10), 1 / 10), 1.0, 2)))
    assert abs(found["consensus"].mean() - found["null"].mean()) < 0.02


def test_padding_and_pooled_steps_change_nothing_in_the_consensus() -> None:
    data = from_attention(noisy(np.full((3, 2, 5, 20, 8), 1 / 8), 3.0, 3))
    found = head_consensus(padded(data))
    xr.testing.assert_allclose(found.isel(step=slice(3)), head_consensus(data))
    assert found["consensus"].isel(step=slice(3, None)).isnull().all()
    pooled = head_consensus(pool_steps(data.isel(step=[0])))
    np.testing.assert_allclose(pooled["consensus"], head_consensus(data)["consensus"].isel(step=0))


@settings(max_examples=5)
@given(seed=st.integers(0, 30), order=st.permutations(range(4)))
def test_the_order_of_heads_does_not_matter_to_the_consensus(seed: int, order: list[int]) -> None:
    data = from_attention(noisy(np.full((2, 2, 4, 3, 6), 1 / 6), 3.0, seed))
    found = head_consensus(data)
    xr.testing.assert_identical(found, head_consensus(data.isel(head=list(order))))
    assert ((found["consensus"] >= 1 / 4) & (found["consensus"] <= 1)).all()


def test_consensus_needs_heads() -> None:
    data = from_attention(looking_at([3], keys=12))
    with pytest.raises(Refusal, match="needs mass per head"):
        head_consensus(data.isel(head=0, drop=True))
    with pytest.raises(Refusal, match="The consensus of heads needs rows"):
        head_consensus(data.drop_vars("rows"))


def two_groups(seen_by_masked: list[int], seen_by_unmasked: list[int]) -> xr.Dataset:
    """Anchors of 10 masked and 10 unmasked rows, each looking at its key of the step."""
    weights = np.concatenate([looking_at(path, keys=12, rows=10) for path in (seen_by_masked, seen_by_unmasked)], axis=-2)
    masked = np.arange(20) < 10
    return find_anchors(from_attention(weights, groups={"masked": masked, "unmasked": ~masked, "nobody": masked & ~masked}))


def test_split_sinks_are_found_exactly() -> None:
    found = split_sinks(two_groups([2, 2, 2], [5, 2, 2]))
    assert found["jaccard"].dims == ("step", "layer", "head")
    assert found["jaccard"].squeeze().values.tolist() == [0, 1, 1]
    np.testing.assert_allclose(found["no_memory"], 1 / 12)


def test_split_sinks_are_the_jaccard_of_dense_attention_of_any_two_groups() -> None:
    weights = noisy(np.full((2, 2, 3, 8, 12), 1 / 12), 0.5, 4)
    late = np.arange(8) >= 5
    found = split_sinks(find_anchors(from_attention(weights, groups={"early": ~late, "late": late}), eps=1.0), "early", "late")
    for at in np.ndindex(2, 2, 3):
        sets = [{key for key in range(12) if part.mean(0)[key] * 12 > 2} for part in (weights[at][~late], weights[at][late])]
        np.testing.assert_allclose(found["jaccard"].values[at], similarity(*sets))


def test_a_group_without_rows_or_that_is_not_there_is_not_compared() -> None:
    anchors = two_groups([2, 2], [5, 2])
    assert split_sinks(anchors, "masked", "nobody")["jaccard"].isnull().all()
    with pytest.raises(Refusal, match="no query group 'prompt'"):
        split_sinks(anchors, "masked", "prompt")


def test_samples_are_measured_one_by_one() -> None:
    several = xr.concat([two_groups([2, 2], [2, 2]), two_groups([2, 2], [5, 5])], "sample")
    assert split_sinks(several)["jaccard"].squeeze().values.tolist() == [[1, 1], [0, 0]]
