"""Number of anchors, effective number of keys and Gini, against their textbook formulas on dense attention."""

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from planted_anchors import anchors_of, looking_at, noisy, padded

from floatlens.errors import Refusal
from floatlens.measures import find_anchors, from_attention, pool_steps
from floatlens.measures.absorption import dispersion


def effective_number(profile: np.ndarray) -> float:
    shares = [height / profile.sum() for height in profile if height > 0]
    return float(np.exp(-sum(share * np.log(share) for share in shares)))


def gini(profile: np.ndarray) -> float:
    """Mean absolute difference of all pairs over twice the mean."""
    return float(np.abs(profile[:, None] - profile[None, :]).mean() / (2 * profile.mean()))


def measured(data: xr.Dataset, **options: float | bool) -> xr.Dataset:
    return dispersion(data, find_anchors(data, **options))  # type: ignore[arg-type]  # options of find_anchors


def test_dispersion_is_that_of_dense_attention() -> None:
    weights = noisy(np.full((2, 2, 3, 6, 12), 1 / 12), 0.7, 0)
    found = measured(from_attention(weights), eps=1.0).isel(group=0)
    for at in np.ndindex(2, 2, 3):
        profile = weights[at].mean(0)
        np.testing.assert_allclose(found["effective_keys"].values[at], effective_number(profile))
        np.testing.assert_allclose(found["gini"].values[at], gini(profile))
        assert found["anchors"].values[at] == len(anchors_of(weights[at], 1.0))
    assert len(np.unique(found["anchors"])) > 1
    np.testing.assert_allclose(found["null_effective_keys"], 12)
    np.testing.assert_allclose(found["null_gini"], 0, atol=1e-12)


def test_causal_attention_is_measured_on_the_keys_that_enough_rows_see() -> None:
    length = 40
    causal = np.tril(np.ones((length, length)))
    weights = np.where(causal > 0, noisy(causal / causal.sum(-1, keepdims=True), 20.0, 1), 0)
    weights = weights / weights.sum(-1, keepdims=True)
    found = measured(from_attention(weights, visible=causal)).squeeze()
    enough = [key for key in range(length) if length - key >= 16]
    received = np.array([weights[key:, key].mean() for key in enough])
    null = np.array([np.mean([1 / (row + 1) for row in range(key, length)]) for key in enough])
    assert found["keys"].item() == len(enough) == 25
    for name, profile in (("", received), ("null_", null)):
        np.testing.assert_allclose(found[f"{name}effective_keys"], effective_number(profile))
        np.testing.assert_allclose(found[f"{name}gini"], gini(profile))
    assert found["null_effective_keys"].item() < 24.5


def test_uniform_attention_reaches_all_keys_and_has_no_anchors() -> None:
    found = measured(from_attention(np.full((2, 1, 1, 5, 30), 1 / 30)))
    np.testing.assert_allclose(found["effective_keys"], 30)
    np.testing.assert_allclose(found["gini"], 0, atol=1e-12)
    assert (found["anchors"] == 0).all()
    assert (found["reason"] == "").all()


def test_one_key_that_draws_everything_is_one_effective_key() -> None:
    found = measured(from_attention(np.eye(30)[[7] * 5])).squeeze()
    np.testing.assert_allclose([found["effective_keys"], found["gini"], found["anchors"]], [1, 29 / 30, 1])


def test_masses_of_single_precision_do_nearly_as_well() -> None:
    data = from_attention(noisy(np.full((2, 1, 2, 6, 200), 1 / 200), 5.0, 2))
    single = measured(data.assign({name: data[name].astype(np.float32) for name in ("mass", "visible", "null", "rows")}))
    for name in ("effective_keys", "gini", "null_effective_keys", "null_gini"):
        np.testing.assert_allclose(single[name], measured(data)[name], rtol=1e-5, atol=1e-5)


def test_groups_without_rows_are_nan_and_not_without_anchors() -> None:
    groups = {"everyone": np.ones(20, bool), "nobody": np.zeros(20, bool)}
    found = measured(from_attention(looking_at([3], keys=12), groups=groups)).squeeze()
    assert found["anchors"].values[0] == 1
    for name in ("anchors", "effective_keys", "gini", "null_effective_keys", "null_gini"):
        assert np.isnan(found[name].values[1]), name
    assert found["reason"].values.tolist() == ["", "no key is measured, or none draws anything"]


def test_heads_that_do_not_exist_have_no_anchors_to_count() -> None:
    data = from_attention(looking_at([[[3, 4]]], keys=12))
    data["mass"][:, :, 1] = np.nan
    assert measured(data)["anchors"].isnull().values.ravel().tolist() == [False, True]


def test_padding_changes_nothing() -> None:
    data = from_attention(noisy(np.full((3, 2, 2, 6, 12), 1 / 12), 0.7, 3))
    found = measured(padded(data), eps=1.0)
    xr.testing.assert_allclose(found.isel(step=slice(3)), measured(data, eps=1.0))
    assert found["effective_keys"].isel(step=slice(3, None)).isnull().all()


def test_head_averages_and_pooled_steps_are_measured_too() -> None:
    weights = noisy(np.full((3, 2, 2, 6, 12), 1 / 12), 0.7, 4)
    data = from_attention(weights)
    averaged = measured(data, per_head=False)["effective_keys"]
    assert averaged.dims == ("step", "layer", "group")
    np.testing.assert_allclose(averaged.values[1, 0, 0], effective_number(weights[1, 0].mean((0, 1))))
    pooled = measured(pool_steps(data))["gini"]
    assert pooled.dims == ("layer", "head", "group")
    np.testing.assert_allclose(pooled.values[1, 0, 0], gini(weights[:, 1, 0].mean((0, 1))))


@settings(max_examples=5)
@given(seed=st.integers(0, 30), order=st.permutations(range(3)))
def test_permuting_heads_permutes_and_permuting_keys_changes_nothing(seed: int, order: list[int]) -> None:
    weights = noisy(np.full((2, 2, 3, 4, 10), 1 / 10), 0.5, seed)
    found = measured(from_attention(weights), eps=1.0)
    xr.testing.assert_allclose(found.isel(head=list(order)), measured(from_attention(weights[:, :, list(order)]), eps=1.0))
    xr.testing.assert_allclose(found, measured(from_attention(weights[..., ::-1]), eps=1.0))
    assert ((found["effective_keys"] >= 1) & (found["effective_keys"] <= 10 + 1e-9)).all()
    assert ((found["gini"] >= -1e-12) & (found["gini"] <= 0.9 + 1e-12)).all()


def test_samples_are_measured_one_by_one() -> None:
    several = xr.concat([from_attention(looking_at([3], keys=12)), from_attention(np.full((1, 1, 1, 20, 12), 1 / 12))], "sample")
    assert measured(several)["anchors"].squeeze().values.tolist() == [1, 0]


def test_bad_input_is_refused() -> None:
    data = from_attention(looking_at([3, 4], keys=12))
    with pytest.raises(Refusal, match=r"Dispersion needs null.*detail"):
        dispersion(data.drop_vars("null"), find_anchors(data))
    with pytest.raises(Refusal, match="differ in step"):
        dispersion(data, find_anchors(data).isel(step=[0]))
    with pytest.raises(Refusal, match="must be anchors"):
        dispersion(data, data)
