"""The five contracts of the tap on real architectures, against transformers' eager attention."""

from typing import Any

import numpy as np
import pytest
import torch

import dense
import floatlens as fl
import zoo

KEEP = ["mass", "entropy:rows", "geometry", "norms", "flow", "top_keys:3"]
PADDINGS = [("left", 0), ("left", 4), ("right", 4)]
families = pytest.mark.parametrize("family", zoo.FAMILIES)
paddings = pytest.mark.parametrize(("side", "amount"), PADDINGS, ids=["unpadded", "left", "right"])


def batch(side: str, amount: int, length: int = 70) -> dict[str, torch.Tensor]:
    ids, mask = zoo.padded(zoo.tokens(2, length), side, amount)
    return {"input_ids": ids, "attention_mask": mask}


@families
@paddings
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_observing_leaves_logits_bit_identical(family: str, side: str, amount: int, dtype: torch.dtype) -> None:
    model, inputs = zoo.build(family, dtype=dtype), batch(side, amount)
    unobserved = model(**inputs).logits.detach()
    with fl.tap(model, keep=KEEP[:-2]):
        observed = model(**inputs).logits
    assert torch.equal(unobserved, observed)
    assert torch.equal(unobserved, model(**inputs).logits)  # and nothing is left behind


@families
@paddings
def test_streamed_reductions_equal_eager_attention(family: str, side: str, amount: int) -> None:
    model, inputs = zoo.build(family), batch(side, amount)
    length = inputs["input_ids"].shape[1]
    real = inputs["attention_mask"].bool().numpy()
    odd = torch.arange(length) % 2 == 1
    regions = {"start": (0, 10), "rest": (10, length)}
    chosen = [(layer, head) for layer in range(zoo.LAYERS) for head in (0, 3)]
    with fl.tap(model, keep=KEEP, groups={"odd": odd, "even": ~odd}, regions=regions, patterns=chosen) as tap:
        model(**inputs)
    data = tap.dataset
    calls = zoo.eager_calls(model, **inputs)
    assert len(calls) == zoo.LAYERS == data.sizes["layer"]
    for layer, call in enumerate(calls):
        # the first layer reads the same numbers in both runs; later ones read what SDPA and eager attention round differently
        tolerance = 1e-6 if layer == 0 else 5e-6
        for sample in range(2):
            here = data.isel(layer=layer, sample=sample)
            weights, visible = call.weights[sample], call.visible[sample] & real[sample]
            live = real[sample] & visible.any(-1)
            for group, rows in (("odd", odd.numpy()), ("even", ~odd.numpy())):
                expect_received(here.sel(group=group), dense.received(weights, visible, rows & live), real[sample], tolerance)
                found = here.sel(group=group)
                expected = dense.geometry(call.query[sample], call.key[sample], visible, rows & live)
                for name, values in expected.items():
                    close_to_largest(found[name].values, np.where(real[sample], values, np.nan), tolerance)
                entropy = dense.relative_entropy(weights, visible)[:, rows & live]
                np.testing.assert_allclose(found.entropy.values, np.nanmean(entropy, -1), rtol=2 * tolerance)
            entropy = dense.relative_entropy(weights, visible)
            np.testing.assert_allclose(here.row_entropy.values, np.where(live, entropy, np.nan), rtol=2 * tolerance, atol=2 * tolerance)
            for name, vectors in (("query_norm", call.query), ("key_norm", call.key), ("value_norm", call.value)):
                np.testing.assert_allclose(
                    here[name].values, np.where(real[sample], np.linalg.norm(vectors[sample], axis=-1), np.nan), rtol=1e-5
                )
            places = np.stack([np.arange(length) < 10, np.arange(length) >= 10])
            mass, null = dense.flow(weights, visible, places & live, places & real[sample])
            np.testing.assert_allclose(here.flow.values, mass, rtol=2 * tolerance, atol=tolerance)
            np.testing.assert_allclose(here.flow_null.values, null, rtol=1e-6)
            expect_top_keys(here, weights, live, tolerance)
        for at, (_, head) in enumerate(chosen):
            if chosen[at][0] == layer:
                expect_pattern(data.pattern.isel(chosen=at).values, call, head, real)


def expect_received(found: Any, expected: dict[str, np.ndarray], real: np.ndarray, tolerance: float) -> None:
    close_to_largest(found.mass.values, np.where(real, expected["mass"], np.nan), tolerance)
    np.testing.assert_array_equal(found.visible.values, np.where(real, expected["visible"], np.nan))
    np.testing.assert_allclose(found["null"].values, np.where(real, expected["null"], np.nan), rtol=1e-6)


def close_to_largest(found: np.ndarray, expected: np.ndarray, tolerance: float) -> None:
    """Equal to a share of the largest value, and NaN in the same places."""
    scale = np.nanmax(np.abs(expected))
    np.testing.assert_allclose(found / scale, expected / scale, rtol=0, atol=tolerance)


def expect_top_keys(found: Any, weights: np.ndarray, live: np.ndarray, tolerance: float) -> None:
    for row in range(weights.shape[1]):
        top = -np.sort(-weights[:, row], axis=-1)[:, :3] if live[row] else np.zeros((weights.shape[0], 3))
        np.testing.assert_allclose(np.nan_to_num(found.top_weight.values[:, row]), top, atol=2 * tolerance)
        if live[row]:
            np.testing.assert_allclose(found.top_retained.values[:, row], top.sum(-1), atol=2 * tolerance)
            at = found.top_key.values[:, row]
            named = np.take_along_axis(weights[:, row], np.maximum(at, 0), axis=-1)
            np.testing.assert_allclose(np.where(at >= 0, named, 0), top, atol=2 * tolerance)
        else:
            assert np.isnan(found.top_retained.values[:, row]).all()


def expect_pattern(found: np.ndarray, call: zoo.EagerCall, head: int, real: np.ndarray) -> None:
    visible = call.visible & real[:, None]
    live = real & visible.any(-1)
    expected = np.where(live[:, :, None] & real[:, None], call.weights[:, head], np.nan)
    np.testing.assert_allclose(found, expected, atol=5e-6)
    np.testing.assert_allclose(np.nansum(found, -1)[live], 1, atol=1e-5)
    assert (found[live[:, :, None] & ~visible & real[:, None]] == 0).all()


@families
def test_every_attention_layer_is_seen_once_and_named(family: str) -> None:
    model = zoo.build(family)
    with fl.tap(model, keep=["mass"]) as tap:
        model(zoo.tokens(1, 12))
    assert tap.dataset.layer.values.tolist() == list(range(zoo.LAYERS))
    modules = tap.dataset.module.values.tolist()
    assert all(any(module.endswith(end) for end in ("attn", "attention", "self")) for module in modules)
    assert tap.dataset["repeat"].values.tolist() == ([0, 1, 2] if family == "albert" else [0, 0, 0])


@families
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_agrees_with_eager_attention_to_its_own_rounding(family: str, dtype: torch.dtype) -> None:
    model, inputs = zoo.build(family, dtype=dtype), batch("left", 0, length=24)
    with fl.tap(model, keep=["mass"]) as tap:
        model(**inputs)
    first = zoo.eager_calls(model, **inputs)[0]  # later layers read what earlier ones rounded
    # eager rounds scores and weights to the dtype; the tap does not, so they differ by a few of its steps
    expected = torch.softmax(torch.from_numpy(first.weights).log(), -1).sum(-2).numpy()
    np.testing.assert_allclose(tap.dataset.mass.isel(layer=0, group=0).values, expected, rtol=0.05, atol=0.02 * expected.max())
    np.testing.assert_allclose(tap.dataset.mass.sum("key").values, 24, rtol=1e-4)
