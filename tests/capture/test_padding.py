"""Padding is neither query nor key; a batch that looks padded and does not say where is refused."""

import numpy as np
import pytest
import torch
from torch import nn

import floatlens as fl
import zoo

LENGTH, PADDED = 16, 5
BIDIRECTIONAL = "llama, bidirectional"


@pytest.mark.parametrize("family", zoo.FAMILIES)
@pytest.mark.parametrize("side", ["left", "right"])
def test_a_padded_sample_gives_what_it_gives_alone(family: str, side: str) -> None:
    model = zoo.build(family)
    ids, mask = zoo.padded(zoo.tokens(2, LENGTH), side, PADDED)
    here = slice(PADDED, None) if side == "left" else slice(0, LENGTH - PADDED)
    positions = {} if "bert" in family else {"position_ids": (mask.cumsum(-1) - 1).clamp(min=0)}
    if "bert" in family and side == "left":
        positions = {"position_ids": (mask.cumsum(-1) - 1).clamp(min=0)}
    with fl.tap(model, keep=["mass", "entropy", "geometry"]) as together:
        model(input_ids=ids, attention_mask=mask, **positions)
    with fl.tap(model, keep=["mass", "entropy", "geometry"]) as alone:
        model(input_ids=ids[1:, here])
    for name in ("mass", "visible", "null", "score", "cosine", "norm_product"):
        found = together.dataset[name].isel(sample=[1]).values
        np.testing.assert_allclose(found[..., here], alone.dataset[name].values, rtol=2e-4, atol=2e-4)
        assert np.isnan(np.delete(found, np.arange(LENGTH)[here], -1)).all()
    np.testing.assert_allclose(together.dataset.entropy.isel(sample=[1]).values, alone.dataset.entropy.values, rtol=1e-4)


def test_a_four_dimensional_mask_that_looks_padded_is_refused_until_padding_is_said() -> None:
    model = zoo.build(BIDIRECTIONAL)
    ids, mask = zoo.padded(zoo.tokens(2, LENGTH), "right", PADDED)
    four = mask.bool()[:, None, None].expand(2, 1, LENGTH, LENGTH)
    with pytest.raises(fl.Refusal, match=r"no query sees key 11 of sample 1: the batch looks padded.*padding="), fl.tap(model):
        model(input_ids=ids, attention_mask=four)
    with fl.tap(model, padding=mask, keep=["mass"]) as said:
        model(input_ids=ids, attention_mask=four)
    with fl.tap(model, keep=["mass"]) as known:
        model(input_ids=ids, attention_mask=mask)
    np.testing.assert_allclose(said.dataset.mass.values, known.dataset.mass.values, atol=1e-5)
    assert said.dataset.rows.isel(layer=0, group=0).values.tolist() == [LENGTH, LENGTH - PADDED]


def test_padding_tokens_without_any_mask_are_refused() -> None:
    model = zoo.build(BIDIRECTIONAL)
    ids, _ = zoo.padded(zoo.tokens(2, LENGTH), "right", PADDED)
    with (
        pytest.raises(fl.Refusal, match=r"Sample 1 begins or ends with the padding token \(0\).*Pass attention_mask to the model"),
        fl.tap(model),
    ):
        model(input_ids=ids)
    with fl.tap(model, padding=torch.ones_like(ids), keep=["mass"]) as tap:  # every token is meant to be read
        model(input_ids=ids)
    assert tap.dataset.rows.isel(layer=0, group=0).values.tolist() == [LENGTH, LENGTH]


def test_a_model_that_attends_to_its_padding_is_refused() -> None:
    model = zoo.build(BIDIRECTIONAL)
    ids, mask = zoo.padded(zoo.tokens(2, LENGTH), "left", PADDED)
    with (
        pytest.raises(fl.Refusal, match=r"real queries of sample 1 can see the padding at key 0.*Pass the attention_mask to the model"),
        fl.tap(model, padding=mask),
    ):
        model(input_ids=ids)


def test_right_padding_behind_the_causal_flag_needs_no_mask() -> None:
    model = zoo.build("llama")
    ids, mask = zoo.padded(zoo.tokens(2, LENGTH), "right", PADDED)
    with fl.tap(model, padding=mask, keep=["mass"]) as tap:
        model(input_ids=ids)
    with fl.tap(model, keep=["mass"]) as known:
        model(input_ids=ids, attention_mask=mask)
    np.testing.assert_allclose(tap.dataset.mass.values, known.dataset.mass.values, atol=1e-5)


def test_rows_with_nothing_to_see_are_counted_and_in_no_mean() -> None:
    query, key = torch.randn(1, 2, 5, 4), torch.randn(1, 2, 5, 4)
    mask = torch.ones(1, 1, 5, 5, dtype=torch.bool)
    mask[..., 2, :] = False
    with fl.tap(module := zoo.Direct(), layers=1, keep=["mass", "entropy:rows"]) as tap:
        module(query, key, key, mask)
    data = tap.dataset.isel(sample=0, layer=0, group=0)
    assert (data.rows.item(), data.rows_without_keys.item()) == (4, 1)
    assert (data.visible.values == 4).all()
    np.testing.assert_allclose(data["null"].values, 1 / 5)
    np.testing.assert_allclose(data.mass.sum("key").values, 4, rtol=1e-6)
    assert np.isnan(data.row_entropy.values[:, 2]).all()
    np.testing.assert_allclose(data.entropy.values, np.nanmean(data.row_entropy.values, -1), rtol=1e-6)


def test_autocast_is_observed_as_it_runs() -> None:
    model = zoo.build("llama")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        unobserved = model(zoo.tokens(2, LENGTH)).logits
        with fl.tap(model) as tap:
            observed = model(zoo.tokens(2, LENGTH)).logits
    assert torch.equal(unobserved, observed)
    np.testing.assert_allclose(tap.dataset.mass.sum("key").values, LENGTH, rtol=1e-4)


@pytest.mark.parametrize("context", [torch.inference_mode, torch.no_grad])
def test_inference_mode_changes_nothing(context: type) -> None:
    model = zoo.build("gemma3")
    expected = model(zoo.tokens(2, LENGTH)).logits
    with context(), fl.tap(model) as tap:
        assert torch.equal(model(zoo.tokens(2, LENGTH)).logits, expected)
    assert tap.dataset.sizes["layer"] == zoo.LAYERS


def test_a_wrapper_that_passes_its_own_keywords_on_is_understood() -> None:
    class Wrapper(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = zoo.build(BIDIRECTIONAL)
            self.config = self.model.config

        def forward(self, input_ids: torch.Tensor, **model_inputs: torch.Tensor) -> torch.Tensor:
            return self.model(input_ids, **model_inputs).logits

    ids, mask = zoo.padded(zoo.tokens(2, LENGTH), "right", PADDED)
    with fl.tap(wrapper := Wrapper(), keep=["mass"]) as tap:
        wrapper(ids, attention_mask=mask)
    assert tap.dataset.rows.isel(layer=0, group=0).values.tolist() == [LENGTH, LENGTH - PADDED]


def test_a_padding_token_that_is_one_of_several_ends_of_text_is_text() -> None:
    model = zoo.build(BIDIRECTIONAL)
    model.config.eos_token_id = [0, 5]
    ids, _ = zoo.padded(zoo.tokens(2, LENGTH), "right", PADDED)
    with fl.tap(model, keep=["mass"]) as tap:
        model(input_ids=ids)
    assert tap.dataset.rows.isel(layer=0, group=0).values.tolist() == [LENGTH, LENGTH]


def test_padding_mistakes_are_refused_in_inference_mode_too() -> None:
    model = zoo.build(BIDIRECTIONAL)
    ids, mask = zoo.padded(zoo.tokens(2, LENGTH), "right", PADDED)
    with torch.inference_mode(), pytest.raises(fl.Refusal, match="the batch looks padded"), fl.tap(model):
        model(input_ids=ids, attention_mask=mask.bool()[:, None, None].repeat(1, 1, LENGTH, 1))
