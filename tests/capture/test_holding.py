"""Layers that are held and reduced together give what each gives by itself, in the order in which they ran."""

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import xarray as xr
from torch import Tensor, nn

import elsewhere
import floatlens as fl
import zoo
from floatlens.capture import holding, walk
from floatlens.capture.checks import Check, fetch
from floatlens.capture.reducers import geometry
from floatlens.errors import BrokenPromise

KEEP = ["mass", "halves", "entropy:rows", "geometry", "norms", "top_keys:3", "flow"]
LENGTH = 24


def observed(family: str, **options: Any) -> xr.Dataset:
    """A padded batch of two, with groups that differ between its samples."""
    model = zoo.build(family)
    ids, mask = zoo.padded(zoo.tokens(2, LENGTH), "left", 7)
    positions = {"position_ids": (mask.cumsum(-1) - 1).clamp(min=0)}
    groups = {"low": ids < 30, "high": ids >= 30}
    with fl.tap(
        model, keep=KEEP, groups=groups, regions={"first": (0, 9), "rest": (9, LENGTH)}, patterns=[(2, 1), (0, 3), (1, 0)], **options
    ) as tap:
        model(input_ids=ids, attention_mask=mask, **positions)
    return tap.dataset


def assert_equal(found: xr.Dataset, expected: xr.Dataset) -> None:
    assert {*found.variables} == {*expected.variables}
    for name in expected.variables:
        assert found[name].dims == expected[name].dims, name
        if expected[name].dtype.kind == "f":
            np.testing.assert_allclose(found[name].values, expected[name].values, rtol=2e-6, atol=2e-6, err_msg=str(name))
        else:
            np.testing.assert_array_equal(found[name].values, expected[name].values, err_msg=str(name))


@pytest.mark.parametrize("family", ["llama", "llama, bidirectional", "gemma3"])
def test_together_or_one_by_one_layers_give_the_same(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gemma's layers see different keys: some of them find together, out of order."""
    alone = observed(family, held_bytes=0)
    assert_equal(observed(family), alone)
    assert_equal(observed(family, held_bytes=60_000), alone)  # two layers, and then the rest
    assert_equal(observed(family, block_entries=4 * LENGTH * LENGTH), alone)  # a sample of a layer at a time
    assert_equal(observed(family, block_entries=12 * LENGTH * LENGTH), alone)  # room for three samples, of which two are of a layer
    monkeypatch.setattr(holding, "STACKED_NUMBERS", 3000)
    assert_equal(observed(family), alone)
    monkeypatch.setattr(walk, "PREPARED_NUMBERS", 2000)
    monkeypatch.setattr(walk, "FEW_ROWS", 0)
    assert_equal(observed(family), alone)


class Windows(nn.Module):
    """Layers of two kinds in turn: every other one sees a window only. Their queries and keys differ by layer."""

    def forward(self, hidden: Tensor) -> Tensor:
        at = torch.arange(hidden.shape[2])
        near = (at[:, None] - at).abs() < 3
        for layer in range(6):
            mask = near[None, None] if layer % 2 else None
            hidden = F.scaled_dot_product_attention(hidden * (1 + layer), hidden.roll(layer, 2), hidden, mask)
        return hidden


def test_layers_of_two_kinds_keep_their_places() -> None:
    hidden = torch.randn(2, 3, 10, 4, generator=torch.Generator().manual_seed(0))
    with fl.tap(module := Windows(), layers=6, keep=["mass"], padding=torch.ones(2, 10)) as tap:
        module(hidden)
    at = torch.arange(10)
    for layer in range(6):
        visible = ((at[:, None] - at).abs() < 3) if layer % 2 else torch.ones(10, 10, dtype=torch.bool)
        weights = zoo.eager_weights(hidden * (1 + layer), hidden.roll(layer, 2), visible[None, None], 0.5)
        np.testing.assert_allclose(tap.dataset.mass.isel(layer=layer, group=0).values, weights.sum(-2), atol=1e-5)
        assert (tap.dataset.visible.isel(layer=layer, group=0).values == visible.sum(0).numpy()).all()
        hidden = F.scaled_dot_product_attention(hidden * (1 + layer), hidden.roll(layer, 2), hidden, visible[None, None])


class Scaled(nn.Module):
    """Layers of one shape, each with a scale of its own."""

    def forward(self, hidden: Tensor) -> Tensor:
        for layer in range(3):
            hidden = F.scaled_dot_product_attention(hidden, hidden.roll(1, 2), hidden, scale=0.2 * (1 + layer))
        return hidden


def test_layers_of_one_shape_keep_their_own_scale() -> None:
    hidden = torch.randn(1, 2, 6, 4, generator=torch.Generator().manual_seed(0))
    with fl.tap(module := Scaled(), layers=3, keep=["mass"]) as tap:
        module(hidden)
    for layer in range(3):
        weights = zoo.eager_weights(hidden, hidden.roll(1, 2), None, 0.2 * (1 + layer))
        np.testing.assert_allclose(tap.dataset.mass.isel(layer=layer, group=0).values, weights.sum(-2), atol=1e-5)
        hidden = torch.as_tensor(weights).float() @ hidden


@pytest.mark.parametrize("wrong", ["broken row", "padding"])
def test_what_is_wrong_is_refused_though_every_call_is_reduced_at_once(wrong: str) -> None:
    hidden, padding = torch.randn(2, 2, 6, 4), torch.ones(2, 6, dtype=torch.bool)
    key = hidden.clone()
    if wrong == "padding":
        padding[1, :2] = False
    else:
        key[1, 0, 3] = float("nan")
    message = {"padding": "can see the padding at key 0", "broken row": "sample 1, head 0, query 0 is not a number"}[wrong]
    with pytest.raises(fl.Refusal, match=message), fl.tap(module := zoo.Direct(), layers=1, padding=padding, held_bytes=0):
        module(hidden, key, hidden)


def test_heads_that_take_turns_in_geometry_keep_their_own_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    query, key = torch.randn(2, 6, 10, 4, generator=generator), torch.randn(2, 3, 10, 4, generator=generator)
    mask = torch.rand(2, 6, 10, 10, generator=generator) < 0.6

    def found() -> xr.Dataset:
        with fl.tap(module := zoo.Direct(), layers=1, keep=["geometry"], padding=torch.ones(2, 10)) as tap:
            module(query, key, key, mask)
        return tap.dataset

    at_once = found()
    monkeypatch.setattr(geometry, "NUMBERS_AT_ONCE", 2 * 2 * 10 * 4)  # the query heads of one key head
    assert_equal(found(), at_once)


class Overwriting(nn.Module):
    """Writes the keys of its second layer over those of its first."""

    def forward(self, hidden: Tensor) -> Tensor:
        key = hidden.clone()
        hidden = F.scaled_dot_product_attention(hidden, key, hidden)
        key.mul_(2)
        return F.scaled_dot_product_attention(hidden, key, hidden)


def test_keys_that_are_overwritten_are_refused_unless_every_call_is_reduced_at_once() -> None:
    hidden = torch.randn(1, 2, 6, 4, generator=torch.Generator().manual_seed(0))
    with (
        pytest.raises(fl.Refusal, match=r"wrote to the queries, keys or values of layer 0 .* held_bytes=0"),
        fl.tap(Overwriting(), layers=2) as tap,
    ):
        tap._model(hidden)
    with fl.tap(module := Overwriting(), layers=2, keep=["mass"], held_bytes=0) as tap:
        module(hidden)
    first = zoo.eager_weights(hidden, hidden, None, 0.5)
    np.testing.assert_allclose(tap.dataset.mass.isel(layer=0, group=0).values, first.sum(-2), atol=1e-5)
    second = zoo.eager_weights(torch.as_tensor(first).float() @ hidden, 2 * hidden, None, 0.5)
    np.testing.assert_allclose(tap.dataset.mass.isel(layer=1, group=0).values, second.sum(-2), atol=1e-5)


@pytest.mark.parametrize("held_bytes", [-1, 1.5, True])
def test_a_number_of_bytes_that_is_none_is_refused(held_bytes: Any) -> None:
    with pytest.raises(fl.Refusal, match="is not a number of bytes"):
        fl.tap(zoo.build("llama"), held_bytes=held_bytes)


class Later(nn.Module):
    """A part that calls attention from its second run on."""

    def __init__(self) -> None:
        super().__init__()
        self.runs = 0

    def forward(self, hidden: Tensor) -> Tensor:
        self.runs += 1
        return hidden if self.runs == 1 else F.scaled_dot_product_attention(hidden, hidden, hidden)


class Changing(nn.Module):
    """Its first forward calls attention itself, all others leave that to a part."""

    def __init__(self) -> None:
        super().__init__()
        self.steady, self.later = zoo.Direct(), Later()

    def forward(self, hidden: Tensor) -> Tensor:
        if self.later.runs == 0:
            hidden = self.steady(hidden, hidden, hidden)
        return self.later(hidden)


def test_a_module_that_calls_attention_only_later_is_refused_and_never_overlooked() -> None:
    hidden = torch.randn(1, 2, 6, 4)
    model = Changing()
    with fl.tap(model, layers=1, step_on=model, keep=["mass"]):
        model(hidden)
        with pytest.raises(fl.Refusal, match="1 attention layers were expected and 0 were seen"):
            model(hidden)


def test_only_what_calls_attention_is_followed_after_the_first_forward() -> None:
    model = zoo.build("llama")
    with fl.tap(model, step_on=model, keep=["mass"]) as tap:
        for _ in range(3):
            model(zoo.tokens(1, 5))
        followed = [name for name, module in model.named_modules() if module._forward_pre_hooks and name]
        assert followed == [f"model.layers.{layer}.self_attn" for layer in range(zoo.LAYERS)]
    np.testing.assert_array_equal(tap.dataset.mass.isel(step=0), tap.dataset.mass.isel(step=2))


def test_nothing_is_handed_out_if_a_check_fails() -> None:
    said = []
    with pytest.raises(BrokenPromise, match="cannot be explained"):
        fetch(
            [torch.ones(2)],
            [Check(torch.tensor(False), lambda: said.append("fine")), Check(torch.tensor(True), lambda: said.append("off"))],
        )
    assert said == ["off"]


@pytest.mark.skipif(elsewhere.missing() is not None, reason=str(elsewhere.missing()))
def test_everything_arrives_as_it_left_in_one_transfer() -> None:
    left = [
        torch.tensor([True, False, True]),
        torch.randn(3, 5).T,
        torch.arange(4, dtype=torch.int32),
        torch.tensor(2.5, dtype=torch.float64),
        torch.zeros(0, 4),
        torch.randn(2, 3, dtype=torch.float16),
        torch.arange(5),
    ]
    away = [tensor.to(elsewhere.device()) for tensor in left]
    with elsewhere.Counted() as counted:
        arrived = fetch([*away, left[1]], [Check(away[0].all(), lambda: None)])
    assert counted.transfers.total() == 1
    for tensor, other in zip([*left, left[1]], arrived, strict=True):
        assert tensor.numpy().dtype == other.dtype
        np.testing.assert_array_equal(tensor.numpy(), other)
