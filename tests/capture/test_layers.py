"""Layer identity: the module being run and its n-th call; none missing, none too many."""

import numpy as np
import pytest
import torch
from torch import nn

import floatlens as fl
import zoo

HIDDEN = torch.randn(2, 11, 16, generator=torch.Generator().manual_seed(0))


def plain(*order: int, heads: tuple[int, ...] = (2, 2, 2)) -> zoo.Plain:
    torch.manual_seed(0)
    return zoo.Plain(order, heads).eval()


def check_against_eager(model: zoo.Plain, data: object) -> None:
    hidden = HIDDEN
    for call, at in enumerate(model.order):
        block = model.layers[at]
        assert isinstance(block, zoo.Block)
        with torch.no_grad():
            weights = block.dense(hidden).numpy()
            hidden = block(hidden)
        found = data.mass.isel(layer=call, group=0).values[:, : weights.shape[1]]  # type: ignore[attr-defined]  # a dataset
        np.testing.assert_allclose(found, weights.sum(-2), atol=1e-5)


def test_a_plain_module_that_calls_sdpa_in_its_block() -> None:
    model = plain(0, 1, 2)
    with fl.tap(model, layers=3) as tap:
        model(HIDDEN)
    assert tap.dataset.module.values.tolist() == ["layers.0", "layers.1", "layers.2"]
    check_against_eager(model, tap.dataset)


def test_a_layer_run_twice_counts_on_and_says_so() -> None:
    model = plain(0, 1, 1, 2)
    with fl.tap(model, layers=4) as tap:
        model(HIDDEN)
    assert tap.dataset.layer.values.tolist() == [0, 1, 2, 3]
    assert tap.dataset.module.values.tolist() == ["layers.0", "layers.1", "layers.1", "layers.2"]
    assert tap.dataset["repeat"].values.tolist() == [0, 0, 1, 0]
    check_against_eager(model, tap.dataset)


def test_a_skipped_layer_leaves_a_gap() -> None:
    model = plain(0, 2)
    with fl.tap(model, layers=2, patterns=[(2, 1)]) as tap:
        model(HIDDEN)
    assert tap.dataset.layer.values.tolist() == [0, 2]
    assert tap.dataset.module.values.tolist() == ["layers.0", "layers.2"]
    check_against_eager(model, tap.dataset)


def test_layers_of_different_head_counts_are_nan_where_a_head_does_not_exist() -> None:
    model = plain(0, 1, 2, heads=(2, 4, 1))
    with fl.tap(model, layers=3) as tap:
        model(HIDDEN)
    assert tap.dataset.heads.values.tolist() == [2, 4, 1]
    exists = ~np.isnan(tap.dataset.mass.isel(sample=0, group=0, key=0).values)
    assert exists.sum(-1).tolist() == [2, 4, 1]
    check_against_eager(model, tap.dataset)


def test_a_missing_call_is_refused_by_the_name_of_its_layer() -> None:
    with pytest.raises(fl.Refusal, match=r"3 attention layers were expected and 2 were seen: nothing came from layer 1\. .*layers=2"):
        tap_and_run(plain(0, 2), layers=3)


def test_a_surplus_call_is_refused_by_the_name_of_its_module() -> None:
    with pytest.raises(fl.Refusal, match=r"3 attention layers were expected, but layers\.2 \(its run number 2\) makes one call more"):
        tap_and_run(plain(0, 1, 2, 2), layers=3)


def test_a_module_without_a_config_must_be_told_its_layers() -> None:
    with pytest.raises(fl.Refusal, match=r"Plain has no config .* Pass layers=N"):
        fl.tap(plain(0, 1, 2))
    with pytest.raises(fl.Refusal, match="layers=0 is not a number of attention layers"):
        fl.tap(plain(0, 1, 2), layers=0)


def test_linear_attention_layers_are_not_expected_to_call() -> None:
    model = zoo.build("llama")
    model.config.layer_types = ["full_attention", "linear_attention", "sliding_attention"]
    more = r"2 attention layers were expected, but model\.layers\.2\.self_attn makes one call more"
    with pytest.raises(fl.Refusal, match=more), fl.tap(model):
        model(zoo.tokens(1, 5), use_cache=False)


def test_another_model_run_inside_the_tap_is_left_alone() -> None:
    model, other = zoo.build("llama"), zoo.build("gpt2")
    expected = other(zoo.tokens(1, 6)).logits
    with fl.tap(model) as tap:
        found = other(zoo.tokens(1, 6)).logits
        model(zoo.tokens(1, 5))
        other(zoo.tokens(1, 6))
    assert torch.equal(found, expected)
    assert tap.dataset.sizes["layer"] == zoo.LAYERS
    assert tap.dataset.sizes["key"] == 5


def test_a_part_run_by_itself_is_refused() -> None:
    model = zoo.build("llama")
    with (
        pytest.raises(fl.Refusal, match=r"was run by itself, outside a forward of LlamaForCausalLM\. Tap the module that you run"),
        fl.tap(model),
    ):
        model.model(zoo.tokens(1, 5))


def test_a_tap_that_saw_nothing_says_so() -> None:
    with pytest.raises(fl.Refusal, match="No forward of LlamaForCausalLM ran inside the tap"), fl.tap(zoo.build("llama")):
        pass


def test_a_sequential_of_blocks_can_be_tapped() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(zoo.Block(16, 2), nn.LayerNorm(16), zoo.Block(16, 4))
    with fl.tap(model, layers=2) as tap:
        model(HIDDEN)
    assert tap.dataset.module.values.tolist() == ["0", "2"]


def test_a_failed_forward_leaves_no_hook_and_no_mode_behind() -> None:
    model = zoo.build("llama")
    expected = model(zoo.tokens(1, 5)).logits
    with pytest.raises(IndexError), fl.tap(model):
        model(torch.tensor([[10**6]]))
    assert torch.equal(model(zoo.tokens(1, 5)).logits, expected)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert torch.is_grad_enabled()
    with fl.tap(model) as tap:
        model(zoo.tokens(1, 5))
    assert tap.dataset.sizes["layer"] == zoo.LAYERS


def tap_and_run(model: nn.Module, layers: int) -> None:
    with fl.tap(model, layers=layers):
        model(HIDDEN)
