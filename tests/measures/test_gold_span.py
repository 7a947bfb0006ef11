"""Attention on the gold span, on planted attention, against sums over the dense weights."""

from typing import Any

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

import floatlens as fl
from floatlens.measures import from_attention
from floatlens.measures.gold_span import gold_attention, gold_lift_by_sample

ROWS = {
    "predicting": np.array([[False] * 4 + [True, True], [False] * 5 + [True], [False] * 6]),
    "others": np.array([True] * 4 + [False] * 2),
}
GOLD = {"gold": [1, 2], "empty": []}


def noisy_weights(seed: int, visible: np.ndarray | None = None) -> np.ndarray:
    """(step, layer, head, query, key): three steps of two layers of two heads; six rows and keys."""
    weights = np.random.default_rng(seed).gamma(0.5, size=(3, 2, 2, 6, 6)) * (1 if visible is None else visible)
    return weights / weights.sum(-1, keepdims=True)


@pytest.mark.parametrize("causal", [False, True])
def test_mass_and_null_are_those_of_the_dense_rows(causal: bool) -> None:
    visible = np.tril(np.ones((6, 6))) if causal else np.ones((6, 6))
    weights = noisy_weights(0, visible)
    found = gold_attention(from_attention(weights, visible=visible, groups=ROWS, regions=GOLD), "gold")
    assert found["mass"].dims == ("step", "layer", "head")
    for step, rows in enumerate(([4, 5], [5])):
        for layer in range(2):
            for head in range(2):
                mass = np.mean([weights[step, layer, head, row, 1] + weights[step, layer, head, row, 2] for row in rows])
                null = np.mean([2 / visible[row].sum() for row in rows])
                here = found.isel(step=step, layer=layer, head=head)
                assert [float(here[name]) for name in ("mass", "null", "lift")] == pytest.approx([mass, null, mass / null])
    assert np.isnan(found[["mass", "null", "lift"]].isel(step=2).to_array()).all()
    assert found["reason"].values.tolist() == ["", "", "no predicting rows"]
    others = gold_attention(from_attention(weights, visible=visible, groups=ROWS, regions=GOLD), "gold", group="others")
    np.testing.assert_allclose(others["mass"].values, weights[..., :4, 1:3].sum((-1, -2)) / 4)


@settings(max_examples=25)
@given(st.booleans(), st.sets(st.integers(0, 5), min_size=1))
def test_even_attention_gives_every_span_its_fair_share(causal: bool, span: set[int]) -> None:
    visible = np.tril(np.ones((6, 6))) if causal else np.ones((6, 6))
    data = from_attention(visible / visible.sum(-1, keepdims=True), visible=visible, regions={"gold": sorted(span)})
    np.testing.assert_allclose(gold_attention(data, "gold", group="everyone")["lift"].values, 1)
    np.testing.assert_allclose(float(gold_lift_by_sample(data, "gold", group="everyone")["lift"]), 1)


def test_noise_has_a_lift_of_one_on_average_and_a_planted_look_has_its_own() -> None:
    weights = np.random.default_rng(0).dirichlet(np.full(10, 0.3), size=(1, 1, 400, 12))
    weights[0, 0, 7] = 0.04
    weights[0, 0, 7, :, 3] = 0.64  # head 7 looks at key 3
    lift = gold_attention(from_attention(weights, regions={"gold": [3, 4]}), "gold", group="everyone")["lift"].squeeze()
    assert float(lift[7]) == pytest.approx((0.64 + 0.04) * 10 / 2)
    noise = lift.drop_isel(head=7)
    assert abs(float(noise.mean()) - 1) < 4 * float(noise.std()) / np.sqrt(399)


def test_a_span_by_name_is_a_span_by_positions_and_heads_stay_in_their_order() -> None:
    data = from_attention(noisy_weights(1), groups=ROWS, regions=GOLD)
    positions = xr.DataArray([False, True, True, False, False, False], dims="position")
    found = gold_attention(data, "gold")
    xr.testing.assert_identical(gold_attention(data, positions), found)
    xr.testing.assert_identical(gold_attention(data.drop_vars(["in_region", "region"]), positions), found)
    xr.testing.assert_identical(gold_attention(data.isel(head=[1, 0]), "gold"), found.isel(head=[1, 0]))


@pytest.mark.parametrize("measure", [gold_attention, gold_lift_by_sample])
def test_each_sample_has_its_own_span_and_padding_changes_nothing(measure: Any) -> None:
    alone = [from_attention(noisy_weights(seed), groups=ROWS) for seed in range(2)]
    golds = [xr.DataArray(np.isin(np.arange(6), span), dims="position") for span in ([1, 2], [0])]
    wide = [data[["mass", "visible", "null", "rows"]].pad(step=(0, 2), key=(0, 3), constant_values=np.nan) for data in alone]
    gold = xr.concat([one.pad(position=(0, 3), constant_values=False) for one in golds], "sample")
    found = measure(xr.concat(wide, "sample"), gold)
    for number in range(2):
        expected, own = measure(alone[number], golds[number]), found.isel(sample=number)
        if "step" in own.dims:
            assert np.isnan(own["lift"].isel(step=slice(3, None))).all()
            own = own.isel(step=slice(0, 3))
        xr.testing.assert_allclose(own.drop_vars("reason"), expected.drop_vars("reason"))
        assert (own["reason"].values == expected["reason"].values).all()
    backwards = measure(xr.concat(wide[::-1], "sample"), gold.isel(sample=[1, 0]))
    xr.testing.assert_identical(backwards, found.isel(sample=[1, 0]))


def test_steps_may_be_pooled_and_heads_averaged() -> None:
    weights = noisy_weights(2)
    data = from_attention(weights, groups=ROWS, regions=GOLD)
    by_layer = gold_attention(data.assign(mass=data["mass"].mean("head")), "gold")
    np.testing.assert_allclose(by_layer["mass"].values, gold_attention(data, "gold")["mass"].mean("head").values)
    pooled = gold_attention(fl.measures.pool_steps(data).assign(in_region=data["in_region"]), "gold")
    rows = [weights[0, :, :, 4], weights[0, :, :, 5], weights[1, :, :, 5]]
    np.testing.assert_allclose(pooled["mass"].values, np.mean([row[..., 1:3].sum(-1) for row in rows], axis=0))


def test_a_span_that_nobody_sees_or_that_is_not_written_yet_has_no_lift_and_says_so() -> None:
    data = from_attention(noisy_weights(3), groups=ROWS, regions=GOLD)
    counts = data[["visible", "null", "rows"]].expand_dims(layer=2).copy(deep=True)  # sliding windows: layers see different keys
    counts["visible"][{"layer": 1, "key": [1, 2]}] = 0
    counts["null"][{"layer": 1, "key": [1, 2]}] = np.nan
    mass = data["mass"].copy(deep=True)
    mass[{"layer": 1, "key": [1, 2]}] = 0
    sliding = data.drop_vars(["visible", "null", "rows", "mass"]).merge(counts).assign(mass=mass)
    windowed = gold_attention(sliding, "gold").isel(step=0)
    assert windowed["reason"].transpose("layer").values.tolist() == ["", "no row sees the gold span"]
    assert (windowed["mass"].sel(layer=1) == 0).all()
    assert (windowed["null"].sel(layer=1) == 0).all()
    assert np.isnan(windowed["lift"].sel(layer=1)).all()
    assert windowed["lift"].sel(layer=0).notnull().all()
    means, first_layer = gold_lift_by_sample(sliding, "gold"), gold_lift_by_sample(data, "gold", layers=[0])
    for name in ("lift", "mass", "null"):
        assert float(means[name]) == pytest.approx(float(first_layer[name])), "the layer that sees nothing has no part in any mean"
    unwritten = data.copy(deep=True)
    for name in ("mass", "visible", "null"):
        unwritten[name][{"step": 0, "key": [1, 2]}] = np.nan
    later = gold_attention(unwritten, "gold")
    assert later["reason"].values.tolist() == ["the gold span is not written yet", "", "no predicting rows"]
    assert np.isnan(later["null"].isel(step=0)).all()


def test_an_empty_span_and_a_run_without_rows_have_no_number_and_say_why() -> None:
    data = from_attention(noisy_weights(4), groups={**ROWS, "nobody": np.zeros(6, bool)}, regions=GOLD)
    empty = gold_attention(data, "empty")
    assert np.isnan(empty[["mass", "null", "lift"]].to_array()).all()
    assert set(empty["reason"].values.tolist()) == {"the gold span is empty"}
    assert str(gold_lift_by_sample(data, "empty")["reason"].values) == "the gold span is empty"
    nobody = gold_lift_by_sample(data, "gold", group="nobody")
    assert np.isnan(float(nobody["lift"]))
    assert str(nobody["reason"].values) == "no nobody rows"


def test_the_lift_of_a_sample_is_the_mean_over_steps_and_what_was_chosen() -> None:
    weights = noisy_weights(5)
    data = from_attention(weights, groups=ROWS, regions=GOLD).assign_coords(layer=[3, 8])
    # (step, layer, head), of the steps with rows
    shares = np.stack([weights[0, :, :, 4:, 1:3].sum(-1).mean(-1), weights[1, :, :, 5, 1:3].sum(-1)])
    choices: list[tuple[dict[str, Any], np.ndarray]] = [
        ({}, shares),
        ({"layers": [8]}, shares[:, 1]),
        ({"heads": [(3, 1), (8, 0)]}, shares[:, [0, 1], [1, 0]]),
    ]
    for chosen, expected in choices:
        found = gold_lift_by_sample(data, "gold", **chosen)
        assert float(found["lift"]) == pytest.approx((expected / (2 / 6)).mean())
        assert float(found["mass"]) == pytest.approx(expected.mean())
        assert (float(found["null"]), str(found["reason"].values)) == (pytest.approx(2 / 6), "")
    gone = data.copy(deep=True)
    gone["mass"][{"layer": 0, "head": 1}] = np.nan
    assert str(gold_lift_by_sample(gone, "gold", heads=[(3, 1)])["reason"].values) == "no such head; no predicting rows"


def test_what_cannot_be_asked_for_is_refused() -> None:
    data = from_attention(noisy_weights(6), groups=ROWS, regions=GOLD)
    refused: list[tuple[xr.Dataset, dict[str, Any], str]] = [
        (data, {"layers": [0], "heads": [(0, 0)]}, "not both"),
        (data, {"layers": [7]}, r"no layer 7 here; the layers are \[0, 1\]"),
        (data, {"layers": []}, "leave it out"),
        (data, {"heads": [(0, 2)]}, r"no head \(0, 2\) here; every layer has the heads 0 to 1"),
        (data, {"group": "masked"}, "no query group 'masked'"),
        (data.assign(mass=data["mass"].mean("head")), {"heads": [(0, 0)]}, "kept per layer"),
        (data.drop_vars("rows"), {}, "needs rows, which this trace does not hold"),
    ]
    for given_data, options, message in refused:
        with pytest.raises(fl.Refusal, match=message):
            gold_lift_by_sample(given_data, "gold", **options)


def test_a_span_of_each_sample_may_be_named_or_not() -> None:
    data = from_attention(noisy_weights(6), groups=ROWS, regions=GOLD)
    both = xr.concat([data, data], "sample")
    spans = xr.DataArray(np.arange(6) >= np.array([[2], [4]]), dims=("sample", "position"))
    xr.testing.assert_identical(gold_attention(both, gold=spans), gold_attention(both, spans))
