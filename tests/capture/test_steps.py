"""A step axis for any loop: every forward of `step_on` is a step, whoever drives it."""

import numpy as np
import pytest
import torch

import floatlens as fl
import zoo

PROMPT, NEW = 9, 6
GREEDY = {"max_new_tokens": NEW, "min_new_tokens": NEW, "do_sample": False, "pad_token_id": 0}


@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma3", "gpt2"])
def test_stepwise_generation_with_a_cache_equals_the_rows_of_eager_attention(family: str) -> None:
    """Left padding, growing cache, and for Gemma a sliding-window cache that forgets."""
    model = zoo.build(family)
    ids, mask = zoo.padded(zoo.tokens(2, PROMPT), "left", 3)
    unobserved = model.generate(ids, attention_mask=mask, **GREEDY)
    with fl.tap(model, step_on=model, keep=["mass", "top_keys:1"]) as tap:
        generated = model.generate(ids, attention_mask=mask, **GREEDY)
    assert torch.equal(unobserved, generated)
    data = tap.dataset
    assert data.sizes["step"] == NEW
    assert data.length.values.tolist() == [[PROMPT + t for t in range(NEW)], [PROMPT - 3 + t for t in range(NEW)]]
    seen = torch.cat([mask, torch.ones(2, NEW, dtype=torch.long)], 1)[:, :-1]
    positions = (seen.cumsum(-1) - 1).clamp(min=0)
    calls = zoo.eager_calls(model, input_ids=generated[:, :-1], attention_mask=seen, position_ids=positions)
    for layer, call in enumerate(calls):
        for step in range(1, NEW):
            row = call.weights[:, :, PROMPT + step - 1]
            found = data.mass.isel(layer=layer, step=step, group=0).values
            np.testing.assert_allclose(np.nan_to_num(found[..., : row.shape[-1]]), row, atol=2e-5)
            np.testing.assert_array_equal(data.top_key.isel(layer=layer, step=step, query=0, rank=0).values, row.argmax(-1))
            assert np.isnan(found[..., PROMPT + step :]).all()  # what has not been written yet does not exist
            assert np.isnan(found[1, ..., :3]).all()  # and padding never does


def test_a_static_cache_shows_only_the_slots_that_were_written() -> None:
    model = zoo.build("llama")
    with fl.tap(model, step_on=model, keep=["mass"]) as growing:
        model.generate(zoo.tokens(1, PROMPT), **GREEDY)
    with fl.tap(model, step_on=model, keep=["mass"]) as static:
        model.generate(zoo.tokens(1, PROMPT), cache_implementation="static", **GREEDY)
    expected, found = growing.dataset.mass.values, static.dataset.mass.values
    np.testing.assert_allclose(found[..., : expected.shape[-1]], expected, atol=1e-5)
    assert np.isnan(found[..., expected.shape[-1] :]).all()


def test_a_foreign_denoising_loop_gets_a_step_axis_with_no_further_code() -> None:
    """DiffusionGemma's own generate: an encoder pass and four denoising steps for each of two canvases."""
    model = zoo.diffusion_gemma()
    decoder = model.model.decoder
    prompt = zoo.tokens(1, 10)
    torch.manual_seed(1)
    unobserved = model.generate(prompt, max_new_tokens=16, max_denoising_steps=4)
    canvases = []
    with fl.tap(
        model, step_on=decoder, groups=lambda forward: {"canvas": canvases.append(forward.input_ids) or forward.input_ids >= 0}
    ) as tap:
        torch.manual_seed(1)
        observed = model.generate(prompt, max_new_tokens=16, max_denoising_steps=4)
    assert torch.equal(unobserved.sequences, observed.sequences)
    data = tap.dataset
    assert data.sizes["step"] == 8 == len(canvases)
    assert data.length.values.tolist() == [[18] * 4 + [26] * 4]
    assert data.attrs["calls_outside_steps"] == 6  # the encoder's layers, once per canvas
    np.testing.assert_allclose(data.mass.sum("key").values, 8, rtol=1e-5)  # eight rows of the canvas
    assert all(module.startswith("model.decoder.layers.") for module in data.module.values)
    sliding = data.mass.isel(step=4, layer=0, head=0, group=0).values[0]
    assert np.isnan(sliding[: 18 - 5]).all()  # a window of 6 forgot what came before
    assert not np.isnan(sliding[18 - 5 :]).any()


def test_steps_of_a_hand_written_loop_differ_as_the_canvas_does() -> None:
    model = zoo.build("llama, bidirectional")
    canvas = zoo.tokens(1, 12)
    with fl.tap(model, step_on=model, groups=lambda forward: {"mask": forward.input_ids == 5, "rest": forward.input_ids != 5}) as tap:
        for step in range(3):
            canvas[:, 4 * step] = 5
            model(canvas.clone())
    rows = tap.dataset.rows.isel(layer=0, sample=0)
    assert rows.sel(group="mask").values.tolist() == [(canvas[:, :1] == 5).sum().item() + extra for extra in (0, 1, 2)]
    assert not np.allclose(tap.dataset.score.isel(step=0).sum("group"), tap.dataset.score.isel(step=2).sum("group"))


def test_without_step_on_a_second_forward_is_refused() -> None:
    model = zoo.build("llama")
    with fl.tap(model):
        model(zoo.tokens(1, 4))
        with pytest.raises(fl.Refusal, match="Pass step_on=model to record each forward as a step"):
            model(zoo.tokens(1, 4))


def test_a_step_module_from_elsewhere_is_refused() -> None:
    with pytest.raises(fl.Refusal, match="not part of the tapped model"):
        fl.tap(zoo.build("llama"), step_on=zoo.build("llama"))


def test_a_batch_that_changes_between_steps_is_refused() -> None:
    model = zoo.build("llama")
    with fl.tap(model, step_on=model) as tap:
        model(zoo.tokens(2, 4))
        model(zoo.tokens(1, 4))
    with pytest.raises(fl.Refusal, match="Step 1 runs 1 samples, step 0 ran 2"):
        _ = tap.dataset


def test_only_the_conditional_half_of_a_guided_batch_is_recorded() -> None:
    model = zoo.build("llama, bidirectional")
    conditional, unconditional = zoo.tokens(2, 10, seed=1), zoo.tokens(2, 10, seed=2)
    both = {"input_ids": torch.cat([conditional, unconditional]), "attention_mask": torch.ones(4, 10, dtype=torch.long)}
    both["attention_mask"][1, 7:] = 0
    with fl.tap(model, samples=slice(0, 2), keep=["mass", "entropy", "geometry", "norms"]) as tap:
        model(**both)
    with fl.tap(model, keep=["mass", "entropy", "geometry", "norms"]) as alone:
        model(input_ids=conditional, attention_mask=both["attention_mask"][:2])
    assert tap.dataset.sizes["sample"] == 2
    for name in tap.dataset.data_vars:
        np.testing.assert_allclose(tap.dataset[name].values, alone.dataset[name].values, rtol=1e-4, atol=1e-5)


def test_a_failed_forward_is_not_a_step_and_what_follows_is_outside() -> None:
    model = zoo.build("llama")
    inner = model.model.layers[1]

    def fail(module: torch.nn.Module, args: object) -> None:
        raise ZeroDivisionError

    with fl.tap(model, step_on=inner, layers=1, keep=["mass"]) as tap:
        model(zoo.tokens(1, 5))
        failing = inner.mlp.register_forward_pre_hook(fail)
        with pytest.raises(ZeroDivisionError):
            model(zoo.tokens(1, 5))
        failing.remove()
        model(zoo.tokens(1, 5))
    assert tap.dataset.sizes["step"] == 2
    assert tap.dataset.attrs["calls_outside_steps"] == 2 + 1 + 2


def test_steps_may_run_in_and_out_of_inference_mode() -> None:
    model = zoo.build("llama")
    with fl.tap(model, step_on=model, keep=["mass", "entropy"]) as tap:
        with torch.inference_mode():
            model(zoo.tokens(1, 8))
        model(zoo.tokens(1, 8))
    np.testing.assert_array_equal(tap.dataset.mass.isel(step=0), tap.dataset.mass.isel(step=1))


def test_query_start_says_where_the_rows_of_a_step_stand() -> None:
    model = zoo.build("llama")
    with fl.tap(model, step_on=model) as tap:
        model.generate(zoo.tokens(1, PROMPT), **GREEDY)
    assert tap.dataset.query_start.values.tolist() == [0, *range(PROMPT, PROMPT + NEW - 1)]


def test_the_mask_of_one_forward_is_not_the_padding_of_another() -> None:
    model = zoo.build("llama, bidirectional")
    ids, mask = zoo.padded(zoo.tokens(2, 8), "right", 3)
    with fl.tap(model, step_on=model.model, keep=["mass"]) as tap:
        model(ids, attention_mask=mask)
        model.model(zoo.tokens(2, 8))
    assert tap.dataset.rows.isel(layer=0, group=0).values.tolist() == [[8, 8], [5, 8]]
