"""What a trace holds, against eager attention on the canvas of each step, one sample at a time, computed straight from the weights."""

from typing import Any

import numpy as np
import pytest
import torch
import xarray as xr

import floatlens as fl
from writers import MASK, PROMPTS, SAMPLERS, autoregressive_model, diffusion_model
from zoo import EagerCall, eager_calls


def rows_of_step(lm: fl.LanguageModel, canvas: np.ndarray, state: np.ndarray) -> tuple[slice, list[EagerCall], dict[str, list[int]]]:
    """The rows that a step computes, its eager calls (with keys from position 0 on), and the rows of each group."""
    inputs: dict[str, Any] = {}
    first, stop = 0, len(canvas)
    if lm.sampler == "sdar":
        stop = (int(np.flatnonzero(state == 3)[0]) // 4 + 1) * 4
        first = stop - 4
        block = torch.arange(stop) // 4
        visible = block[:, None] >= block[None]
        inputs["attention_mask"] = torch.where(visible, 0.0, -1e9)[None, None]
    calls = eager_calls(lm.module, input_ids=torch.tensor(canvas[None, :stop]), use_cache=False, **inputs)
    rows = range(first, stop)
    committed = np.flatnonzero(state == 3)
    still = [row for row in rows if state[row] in (2, 3)]
    groups = {
        "masked": still,
        "unmasked": [row for row in rows if row not in still],
        "predicting": [max(int(position) - lm.row_offset, 0) for position in committed],
        "prompt": [row for row in rows if state[row] == 1],
    }
    return slice(first, stop), calls, groups


def assert_close(found: Any, expected: Any) -> None:
    """To 5e-6 of the largest value: SDPA and eager attention round hidden states differently."""
    expected = np.asarray(expected)
    np.testing.assert_allclose(np.asarray(found), expected, rtol=2e-5, atol=5e-6 * max(1.0, np.abs(np.nan_to_num(expected)).max(initial=0)))


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_every_step_holds_what_eager_attention_gives_on_its_canvas(sampler: str) -> None:
    lm = diffusion_model(sampler)
    steps: dict[str, Any] = {} if sampler == "sdar" else {"steps": 3}
    groups = ("masked", "unmasked", "predicting", "prompt")
    trace = lm.trace(
        PROMPTS, gen_length=6, **steps, batch_size=3, detail="full", groups=groups, top_keys=3, patterns=[(1, 2)], progress=False
    )
    for number in range(len(PROMPTS)):
        sample = trace.sample(number)
        for step in range(sample.sizes["step"]):
            here = sample.isel(step=step)
            canvas, state = here["canvas"].values, here["state"].values
            computed, calls, rows_of_group = rows_of_step(lm, canvas, state)
            for layer, call in enumerate(calls):
                weights, scores = call.weights[0], call.query[0] @ call.key[0].transpose(0, 2, 1)
                keys = weights.shape[-1]
                for group in groups:
                    rows = rows_of_group[group]
                    found = here.isel(layer=layer).sel(group=group)
                    assert float(found["rows"]) == len(rows)
                    assert_close(found["mass"].values[:, :keys], weights[:, rows].sum(1))
                    assert np.isnan(found["mass"].values[:, keys:]).all()
                    visible = call.visible[0][rows]
                    assert_close(found["visible"].values[:keys], visible.sum(0))
                    if not rows:
                        continue
                    even = visible / visible.sum(1, keepdims=True)
                    assert_close(found["null"].values[:keys], even.sum(0) / visible.sum(0))
                    half = [row for row in rows if row % 2 == 0]
                    assert float(found["rows_even"]) == len(half)
                    assert_close(found["mass_even"].values[:, :keys], weights[:, half].sum(1))
                    seen_by_half = call.visible[0][half]
                    assert_close(found["visible_even"].values[:keys], seen_by_half.sum(0))
                    if half:
                        share = seen_by_half / seen_by_half.sum(1, keepdims=True)
                        assert_close(found["null_even"].values[:keys], share.sum(0) / seen_by_half.sum(0))
                    with np.errstate(divide="ignore", invalid="ignore"):
                        bits = -np.where(weights > 0, weights * np.log(weights), 0).sum(-1)[:, rows] / np.log(visible.sum(1))
                    assert_close(found["entropy"].values, bits.mean(1))
                    assert_close(found["score"].values[:, :keys], scores[:, rows].mean(1))
                assert_close(here["key_norm"].isel(layer=layer).values[:, :keys], np.linalg.norm(call.key[0], axis=-1))
                assert_close(here["value_norm"].isel(layer=layer).values[:, :keys], np.linalg.norm(call.value[0], axis=-1))
                query_norm = here["query_norm"].isel(layer=layer).values
                assert_close(query_norm[:, computed], np.linalg.norm(call.query[0], axis=-1)[:, computed])
                assert np.isnan(np.delete(query_norm, np.r_[computed], axis=1)).all()
                for position, row in zip(np.flatnonzero(state == 3), rows_of_group["predicting"], strict=True):
                    order = np.argsort(-weights[:, row], axis=-1)[:, :3]
                    favourites = sample.isel(layer=layer, position=int(position))
                    assert (favourites["top_key"].values == order).all()
                    assert_close(favourites["top_weight"].values, np.take_along_axis(weights[:, row], order, -1))
                    assert_close(favourites["top_retained"].values, np.take_along_axis(weights[:, row], order, -1).sum(-1))
                if layer == 1:
                    assert_close(here["pattern"].values[0, computed, :keys], weights[2, computed])
            region = sample["in_region"].values.astype(float)
            flow = np.stack([region[:, computed] @ call.weights[0][:, computed] @ region[:, : call.weights.shape[-1]].T for call in calls])
            assert_close(here["flow"].values, flow)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_the_canvas_tells_what_was_written_when(sampler: str) -> None:
    lm = diffusion_model(sampler)
    written = lm.generate(PROMPTS, gen_length=6, progress=False)
    trace = lm.trace(PROMPTS, gen_length=6, batch_size=2, progress=False)
    for number, prompt in enumerate(PROMPTS):
        sample = trace.sample(number)
        canvas, state, committed = (sample[name].values for name in ("canvas", "state", "committed"))
        final = sample["final"].values
        assert final.tolist() == [*prompt, *written[number].tokens], "tracing changed what was written"
        assert len(canvas) == written[number].steps
        assert (canvas[0] == [*prompt, *[MASK] * len(written[number].tokens)]).all()
        for step in range(len(canvas)):
            expected = np.where(committed < step, 4, np.where(committed == step, 3, 2))
            expected[: len(prompt)] = 1
            assert (state[step] == expected).all()
            assert (canvas[step] == np.where((expected == 1) | (expected == 4), final, MASK)).all()
        assert (committed[: len(prompt)] == -1).all()
        considered = ~np.isnan(sample["confidence"].values)
        assert (considered <= np.isin(state, (2, 3))).all()
        assert considered[state == 3].all()


@pytest.mark.parametrize("sampler", [*SAMPLERS, "autoregressive"])
def test_a_batch_traces_what_each_prompt_traces_alone(sampler: str) -> None:
    lm = autoregressive_model() if sampler == "autoregressive" else diffusion_model(sampler)
    groups = ["predicting", "prompt"] + ["masked", "unmasked"] * (sampler != "autoregressive")
    options: dict[str, Any] = {"gen_length": 6, "detail": "full", "groups": groups, "patterns": [(0, 1)], "progress": False}
    together = lm.trace(PROMPTS, batch_size=3, **options)
    for number, prompt in enumerate(PROMPTS):
        alone = lm.trace([prompt], seed=number, **options).sample(0)
        xr.testing.assert_allclose(together.sample(number).drop_attrs(), alone.drop_attrs(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("sampler", [*SAMPLERS, "autoregressive"])
def test_the_same_seed_gives_the_same_trace_bit_for_bit(sampler: str) -> None:
    lm = autoregressive_model() if sampler == "autoregressive" else diffusion_model(sampler)
    first, second = (lm.trace(PROMPTS, gen_length=6, temperature=0.8, seed=4, progress=False).dataset.load() for _ in range(2))
    xr.testing.assert_identical(first, second)
    third = lm.trace(PROMPTS, gen_length=6, temperature=0.8, seed=5, progress=False).dataset
    assert not np.array_equal(first["final"].values, third["final"].values)


@pytest.mark.parametrize("family", ["llama", "qwen3", "gpt2"])
def test_one_pass_over_the_finished_text_gives_what_every_step_of_an_arm_saw(family: str) -> None:
    """Contract 6: against eager attention of the growing text, one token at a time."""
    lm = autoregressive_model(family)
    trace = lm.trace(PROMPTS, gen_length=5, groups=["predicting", "prompt"], detail="full", top_keys=2, patterns=[(2, 3)], progress=False)
    for number, prompt in enumerate(PROMPTS):
        sample = trace.sample(number)
        final = sample["final"].values
        for step in range(5):
            row = len(prompt) - 1 + step
            here = sample.isel(step=step)
            assert here["canvas"].values.tolist() == [*final[: row + 1], *[-1] * (len(final) - row - 1)]
            for layer, call in enumerate(eager_calls(lm.module, input_ids=torch.tensor(final[None, : row + 1]), use_cache=False)):
                found = here.isel(layer=layer).sel(group="predicting")
                weights = call.weights[0][:, row]
                np.testing.assert_allclose(found["mass"].values[:, : row + 1], weights, atol=1e-5)
                assert np.isnan(found["mass"].values[:, row + 1 :]).all()
                assert_close(found["null"].values[: row + 1], np.full(row + 1, 1 / (row + 1)))
                assert_close(found["score"].values[:, : row + 1], (call.query[0][:, row, None] * call.key[0]).sum(-1))
                assert_close(here["value_norm"].isel(layer=layer).values[:, : row + 1], np.linalg.norm(call.value[0], axis=-1))
                assert_close(here["query_norm"].isel(layer=layer).values[:, row], np.linalg.norm(call.query[0][:, row], axis=-1))
                best = weights.argmax(-1)
                assert (sample["top_key"].isel(layer=layer, position=row + 1, rank=0).values == best).all()
                if step == 0:
                    mass = here.isel(layer=layer).sel(group="prompt")["mass"].values
                    np.testing.assert_allclose(mass[:, : row + 1], call.weights[0].sum(1), atol=1e-5)
                if layer == 2:
                    assert_close(here["pattern"].values[0, row, : row + 1], weights[3])


def test_samples_that_end_at_different_steps_are_traced_together() -> None:
    lm = autoregressive_model()
    end = lm.generate(PROMPTS, gen_length=6, progress=False)[0].tokens[2]
    ending = fl.LanguageModel(lm.module, family="autoregressive", sampler="autoregressive", row_offset=1, end_tokens=(end,))
    together = ending.trace(PROMPTS, gen_length=6, batch_size=3, detail="full", progress=False)
    assert len({together.sample(number).sizes["step"] for number in range(3)}) > 1
    for number, prompt in enumerate(PROMPTS):
        alone = ending.trace([prompt], gen_length=6, detail="full", progress=False).sample(0)
        xr.testing.assert_allclose(together.sample(number).drop_attrs(), alone.drop_attrs(), rtol=1e-4, atol=1e-5)


def unchanged(call: fl.AttentionCall, before: fl.Before) -> fl.AttentionCall:
    return call


@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma3"])
def test_one_pass_equals_the_trace_taken_step_by_step(family: str) -> None:
    """Contract 6 for everything kept: an edit that changes nothing makes an ARM be traced step by step, on its cache."""
    lm = autoregressive_model(family)
    options: dict[str, Any] = {
        "gen_length": 5,
        "groups": ["predicting", "prompt"],
        "detail": "full",
        "patterns": [(2, 3)],
        "progress": False,
    }
    at_once, by_step = lm.trace(PROMPTS, **options).dataset, lm.trace(PROMPTS, edits=[unchanged], **options).dataset
    assert set(at_once.data_vars) == set(by_step.data_vars)
    for name in at_once.data_vars:
        stepped = by_step[name]
        if str(name).startswith(("visible", "null", "rows")):
            stepped = stepped.isel(head=0) if family == "gemma3" else stepped.isel(layer=0, head=0)
        if family == "gemma3" and name in ("key_norm", "value_norm", "pattern"):
            continue  # a sliding-window cache has forgotten those keys
        np.testing.assert_allclose(at_once[name].values, stepped.values, rtol=1e-5, atol=1e-5, err_msg=str(name))


@pytest.mark.parametrize("sampler", [*SAMPLERS, "autoregressive"])
def test_a_traced_sample_draws_from_its_own_seed_whatever_its_batch(sampler: str) -> None:
    lm = autoregressive_model() if sampler == "autoregressive" else diffusion_model(sampler)
    options: dict[str, Any] = {"gen_length": 6, "temperature": 0.9, "seed": 7, "progress": False}
    written = [one.tokens for one in lm.generate(PROMPTS, batch_size=3, **options)]
    for batch_size in (1, 2):
        trace = lm.trace(PROMPTS, batch_size=batch_size, **options)
        found = [trace.sample(number)["final"].values.tolist()[len(prompt) :] for number, prompt in enumerate(PROMPTS)]
        assert found == written


class CountsMasks(torch.nn.Module):
    """One layer whose every row looks at the key at position (number of masks on the canvas)."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.length = length
        self.unused = torch.nn.Parameter(torch.zeros(1))
        self.config = type("Config", (), {"num_hidden_layers": 1, "num_attention_heads": 1, "hidden_size": length, "vocab_size": 100})()

    def forward(self, input_ids: torch.Tensor) -> Any:
        masks = (input_ids == MASK).sum(-1)
        query = torch.nn.functional.one_hot(masks, self.length).float() * 40
        query = query[:, None, None].expand(-1, 1, input_ids.shape[1], -1)
        keys = torch.eye(self.length)[None, None].expand(len(input_ids), -1, -1, -1)
        torch.nn.functional.scaled_dot_product_attention(query, keys, keys, scale=1.0)
        logits = torch.zeros(*input_ids.shape, 100)
        logits[..., 7] = 9.0
        return type("Output", (), {"logits": logits})()


def test_a_trace_is_of_the_step_and_not_of_the_final_canvas() -> None:
    lm = fl.LanguageModel(CountsMasks(10), mask_token_id=MASK)
    sample = lm.trace([[1, 2, 3, 4]], gen_length=6, steps=6, progress=False).sample(0)
    looked_at = sample["mass"].sel(group="masked").isel(layer=0, head=0).argmax("key").values
    assert looked_at.tolist() == [6, 5, 4, 3, 2, 1]


def test_guidance_records_the_conditional_half() -> None:
    lm = diffusion_model("llada")
    trace = lm.trace(PROMPTS[:2], gen_length=6, steps=6, guidance=1.5, progress=False)
    assert trace.sample(0)["final"].values.tolist()[5:] == lm.generate(PROMPTS[:1], gen_length=6, guidance=1.5, progress=False)[0].tokens
    here = trace.sample(0).isel(step=2)
    call = eager_calls(lm.module, input_ids=torch.tensor(here["canvas"].values[None]), use_cache=False)[1]
    masked = np.isin(here["state"].values, (2, 3))
    assert_close(here["mass"].isel(layer=1).sel(group="masked").values, call.weights[0][:, masked].sum(1))


def test_an_edited_run_is_recorded_as_it_ran_and_says_so() -> None:
    def hide_first(call: fl.AttentionCall, before: fl.Before) -> fl.AttentionCall:
        return call.hide(torch.arange(call.keys) == 0)

    lm = diffusion_model("llada")
    trace = lm.trace(PROMPTS, gen_length=6, edits=[hide_first], progress=False)
    assert (trace.dataset["mass"].isel(key=0) == 0).all()
    assert (trace.dataset["visible"].isel(key=0) == 0).all()
    assert "hide_first" in trace.attributes["edits"][0]
    untouched = lm.trace(PROMPTS, gen_length=6, progress=False)
    assert untouched.attributes["edits"] == []
    assert float(untouched.dataset["mass"].isel(key=0).max()) > 0


@pytest.mark.parametrize("sampler", ["llada", "autoregressive"])
def test_patterns_carry_the_names_of_their_heads_in_whatever_order_they_are_asked_for(sampler: str) -> None:
    lm = autoregressive_model() if sampler == "autoregressive" else diffusion_model(sampler)
    dataset = lm.trace([PROMPTS[0]], gen_length=4, patterns=[(2, 1), (0, 3)], groups=["predicting", "prompt"], progress=False).sample(0)
    canvas = dataset["canvas"].values[0]
    calls = eager_calls(lm.module, input_ids=torch.tensor(canvas[None, canvas >= 0]), use_cache=False)
    for chosen in range(2):
        layer, head = int(dataset["chosen_layer"][chosen]), int(dataset["chosen_head"][chosen])
        assert (layer, head) in ((2, 1), (0, 3))
        weights = calls[layer].weights[0, head]
        assert_close(dataset["pattern"].values[0, chosen, : len(weights), : len(weights)], weights)
    with pytest.raises(fl.Refusal, match="names a head twice"):
        lm.trace([PROMPTS[0]], gen_length=4, patterns=[(2, 1), (2, 1)], progress=False)


@pytest.mark.parametrize("sampler", [*SAMPLERS, "autoregressive"])
def test_keys_that_an_edit_appends_are_no_positions_of_the_text(sampler: str) -> None:
    def add_a_sink(call: fl.AttentionCall, before: fl.Before) -> fl.AttentionCall:
        mean = call.query.mean(dim=(1, 2), keepdim=True)[:, :, :, : call.key.shape[-1]]
        return call.append_keys(mean.expand(-1, call.kv_heads, -1, -1) * 50, torch.zeros_like(call.value[:, :, :1]))

    lm = autoregressive_model() if sampler == "autoregressive" else diffusion_model(sampler)
    sample = lm.trace([PROMPTS[0]], gen_length=4, edits=[add_a_sink], progress=False).sample(0)
    mass = sample["mass"].sel(group="predicting")
    assert (mass.sum("key") < sample["rows"].sel(group="predicting") - 1e-3).any(), "the sink drew nothing, so this shows nothing"
    assert set(np.unique(sample["top_key"].values)) <= {-2, -1, *range(sample.sizes["position"])}
    assert (sample["top_key"].values == -2).any()
    if sampler == "autoregressive":
        assert np.isnan(mass.isel(step=0, key=slice(len(PROMPTS[0]), None)).values).all()


@pytest.mark.parametrize(
    ("sampler", "kept"), [("llada", {}), ("autoregressive", {}), ("autoregressive", {"norms": "layer"}), ("llada", {"top_keys": "head"})]
)
def test_little_can_be_kept(sampler: str, kept: dict[str, str]) -> None:
    lm = autoregressive_model() if sampler == "autoregressive" else diffusion_model(sampler)
    nothing: dict[str, str] = dict.fromkeys(("mass", "halves", "entropy", "geometry", "norms", "flow", "top_keys"), "off")
    trace = lm.trace(PROMPTS, gen_length=4, detail={**nothing, **kept}, patterns=[(1, 1)], progress=False)
    assert trace.attributes["layers"] == 3
    assert "mass" not in trace.dataset
    with pytest.raises(fl.Refusal, match="switches everything off"):
        lm.trace(PROMPTS, gen_length=4, detail=nothing, progress=False)


def test_infilling_does_not_depend_on_the_other_prompts() -> None:
    lm = diffusion_model("dream")
    prompts = [[5, MASK, 7, MASK, MASK, 10], [11, *[MASK] * 12, 12]]
    together = lm.trace(prompts, gen_length=0, temperature=1.0, seed=3, progress=False)
    alone = lm.trace(prompts[:1], gen_length=0, temperature=1.0, seed=3, progress=False)
    assert together.sample(0)["committed"].values.tolist() == alone.sample(0)["committed"].values.tolist()
    assert together.sample(0)["final"].values.tolist() == alone.sample(0)["final"].values.tolist()
    assert together.sample(1).sizes["step"] == 12


@pytest.mark.parametrize("sampler", ["llada", "sdar"])
def test_layers_are_means_over_heads(sampler: str) -> None:
    """What does not exist (in a block of masks, what its unmasked rows look at) is no part of a mean."""
    lm = diffusion_model(sampler)
    by_head, by_layer = (
        lm.trace(
            PROMPTS, gen_length=6, detail=dict.fromkeys(("mass", "halves", "entropy", "geometry", "norms", "flow"), kind), progress=False
        ).dataset
        for kind in ("head", "layer")
    )
    for name in ("mass", "entropy", "score", "cosine", "norm_product", "query_norm", "value_norm", "flow", "flow_null"):
        assert "head" in by_head[name].dims
        assert sampler == "llada" or name != "score" or by_head[name].isnull().all("head").any(), "everything exists, so this shows nothing"
        np.testing.assert_allclose(by_head[name].mean("head").values, by_layer[name].values, rtol=1e-5, atol=1e-6, err_msg=name)


def test_a_sample_that_is_done_leaves_the_batch() -> None:
    lm = diffusion_model("llada")
    with torch.no_grad():
        lm.module.lm_head.weight.mul_(6)  # type: ignore[union-attr,operator]
    trace = lm.trace(PROMPTS, gen_length=8, threshold=0.5, batch_size=3, progress=False)
    taken = [trace.sample(number).sizes["step"] for number in range(3)]
    assert len(set(taken)) > 1
    assert taken == [one.steps for one in lm.generate(PROMPTS, gen_length=8, threshold=0.5, progress=False)]
    assert np.isnan(trace.dataset["mass"].values[taken.index(min(taken)), min(taken) :]).all()
