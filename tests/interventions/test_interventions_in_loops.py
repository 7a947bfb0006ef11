"""In every loop an intervention does what dense attention says it does, recomputed row by row without a cache."""

from typing import Any

import eager_reference as reference
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import floatlens as fl
from floatlens.interventions import (
    ExtraSinkToken,
    Intervention,
    KeepSinks,
    MaskAbove,
    MaskAnchors,
    MaskHeads,
    RandomHeads,
    RandomKeys,
    ZeroAnchorValues,
    to_text,
)
from writers import MASK, PROMPTS, SAMPLERS, autoregressive_model, diffusion_model
from zoo import build, diffusion_gemma

EVERY: list[Intervention] = [
    MaskAnchors(1),
    MaskAnchors(2, layers=[1], steps="2-"),
    MaskAbove(0.5),
    MaskAbove(0.3, rule="rate"),
    ZeroAnchorValues(1),
    MaskHeads([(0, 1), (2, 3)], steps=[1]),
    ExtraSinkToken(steps=[0, 2]),
    KeepSinks(1, k=1),
    RandomKeys(MaskAnchors(1)),
    RandomKeys(MaskAbove(0.5), equal="mass", seed=3),
    RandomKeys(ZeroAnchorValues(1), equal="mass"),
    RandomKeys(KeepSinks(1, k=1), equal="mass"),
    RandomHeads(MaskHeads([(1, 0), (1, 1)])),
]
names = [to_text(one) for one in EVERY]


def hide(choose: reference.Choose, causal: bool) -> reference.Act:
    return lambda last, rows, n: reference.hide(reference.picked(last, choose, causal), rows, n)


def beyond(rule: str, eps: float) -> reference.Choose:
    """Keys beyond a threshold, where every row sees every key."""

    def choose(received: list[float]) -> list[int]:
        m, mean, margins = len(received), float(np.mean(received)), []
        for value in received:
            others = (sum(received) - value) / (m - 1)
            spread = float(np.sqrt(sum((one - mean) ** 2 for one in received) / m))
            margins.append(
                {"lift": value * m - 1, "additive": value * m - others * m, "zscore": (value - mean) / spread, "rate": value}[rule]
            )
        return [key for key, margin in enumerate(margins) if margin > eps]

    return choose


def close(run: fl.InterventionRun, sample: int, expected: reference.Written) -> None:
    np.testing.assert_allclose(run.removed.values[sample, : len(expected.removed)], expected.removed, atol=5e-6)
    assert np.isnan(run.removed.values[sample, len(expected.removed) :]).all()


@pytest.mark.parametrize("choose", ["top 1", "top 3", "lift", "additive", "zscore", "rate"])
@pytest.mark.parametrize("causal", [False, True], ids=["llada", "autoregressive"])
def test_anchors_are_chosen_and_masked_as_dense_attention_says(causal: bool, choose: str) -> None:
    lm = autoregressive_model() if causal else diffusion_model("llada")
    k, eps = int(choose[-1]) if choose.startswith("top") else 0, {"lift": 0.5, "additive": 0.6, "zscore": 0.7, "rate": 0.12}.get(choose, 0)
    prompts = [PROMPTS[0], PROMPTS[2]]
    with lm.intervene(MaskAnchors(k) if k else MaskAbove(eps, rule=choose)) as run:
        written = lm.generate(prompts, gen_length=5, progress=False)
    act = hide(reference.top(k) if k else beyond(choose, eps), causal)
    for sample, prompt in enumerate(prompts):
        expected = (reference.write if causal else _denoise)(lm.module, prompt, 5, act)
        assert written[sample].tokens == expected.tokens
        close(run, sample, expected)
        assert (np.stack(expected.removed)[1:] > 0).mean() > 0.5


@pytest.mark.parametrize("causal", [False, True], ids=["llada", "autoregressive"])
def test_every_query_head_loses_the_values_of_its_own_anchors(causal: bool) -> None:
    """Two query heads share keys and values in the causal model; what one loses the other keeps."""
    lm, prompt = autoregressive_model() if causal else diffusion_model("llada"), PROMPTS[2]
    sample = lm.trace([prompt], gen_length=4, intervention=ZeroAnchorValues(2), detail={"norms": "head"}, progress=False).sample(0)

    def silence(last: reference.Looked | None, rows: list[int], n: int) -> reference.Plan:
        picks = reference.picked(last, reference.top(2), causal)
        steps.append(picks)
        return reference.Plan(np.ones((n, n), bool), silenced=reference.entries(picks, rows, n))

    steps: list[reference.Picks] = []
    expected = (reference.write if causal else _denoise)(lm.module, prompt, 4, silence)
    assert sample["final"].values[len(prompt) :].tolist() == expected.tokens
    np.testing.assert_allclose(sample["removed"].values, expected.removed, atol=5e-6)
    for step, picks in enumerate(steps):
        for layer, of_heads in picks.items():
            for head, keys in enumerate(of_heads):
                zeros = np.flatnonzero(sample["value_norm"].values[step, layer, head] == 0)
                assert zeros.tolist() == sorted(keys)
    assert any(of_heads[0] != of_heads[1] for picks in steps for of_heads in picks.values())


def _denoise(module: nn.Module, prompt: list[int], count: int, act: reference.Act) -> reference.Written:
    return reference.denoise(module, prompt, MASK, count, act)


@pytest.mark.parametrize("k", [1, 2])
def test_blocks_on_a_cache_are_stored_under_the_mask_of_the_step_that_follows(k: int) -> None:
    lm = diffusion_model("sdar")
    with lm.intervene(MaskAnchors(k)) as run:
        written = lm.generate(PROMPTS, gen_length=9, order="sequential", progress=False)
    for sample, prompt in enumerate(PROMPTS):
        expected = reference.write_blocks(lm.module, prompt, MASK, 9, reference.top(k))
        assert written[sample].tokens == expected.tokens
        close(run, sample, expected)


def test_each_half_under_guidance_has_anchors_of_its_own() -> None:
    lm = diffusion_model("llada")
    with lm.intervene(MaskAnchors(1)) as run:
        written = lm.generate(PROMPTS[:2], gen_length=5, guidance=1.5, progress=False)
    for sample, prompt in enumerate(PROMPTS[:2]):
        expected = reference.denoise(lm.module, prompt, MASK, 5, hide(reference.top(1), False), guidance=1.5)
        assert written[sample].tokens == expected.tokens
        close(run, sample, expected)


def test_a_sliding_window_forgets_anchors_and_never_mistakes_one_for_another() -> None:
    lm = autoregressive_model("gemma3")
    with lm.intervene(MaskAnchors(2)) as run:
        written = lm.generate(PROMPTS, gen_length=8, progress=False)
    for sample, prompt in enumerate(PROMPTS):
        expected = reference.write(lm.module, prompt, 8, hide(reference.top(2), True), window={0: 5, 2: 5})
        assert written[sample].tokens == expected.tokens
        close(run, sample, expected)


@pytest.mark.parametrize("intervention", EVERY, ids=names)
@pytest.mark.parametrize("sampler", ["llada", "sdar", "autoregressive"])  # Dream's passes are LLaDA's
def test_a_batch_writes_what_each_prompt_writes_alone(sampler: str, intervention: Intervention) -> None:
    lm = autoregressive_model() if sampler == "autoregressive" else diffusion_model(sampler)
    prompts = [PROMPTS[0], [31, 32, 33], PROMPTS[2]]
    together = lm.generate(prompts, gen_length=4, seed=4, intervention=intervention, progress=False)
    for number in (1, 0):
        (alone,) = lm.generate([prompts[number]], gen_length=4, seed=4 + number, intervention=intervention, progress=False)
        assert alone.tokens == together[number].tokens
        assert alone.removed == pytest.approx(together[number].removed, abs=1e-6)
        assert alone.removed is not None


@settings(max_examples=5)
@given(
    lengths=st.lists(st.integers(3, 12), min_size=2, max_size=4),
    sampler=st.sampled_from([*SAMPLERS, "autoregressive"]),
    intervention=st.sampled_from([MaskAnchors(2), RandomKeys(MaskAnchors(1)), RandomKeys(MaskAnchors(2), equal="mass")]),
    seed=st.integers(0, 99),
)
def test_prompts_of_any_length_in_any_order_write_what_they_write_alone(
    lengths: list[int], sampler: str, intervention: Intervention, seed: int
) -> None:
    lm = autoregressive_model() if sampler == "autoregressive" else diffusion_model(sampler)
    random = np.random.default_rng(seed)
    prompts = [random.integers(3, 90, length).tolist() for length in lengths]
    together = lm.generate(prompts, gen_length=4, intervention=intervention, progress=False)
    for number, prompt in enumerate(prompts):
        (alone,) = lm.generate([prompt], gen_length=4, seed=number, intervention=intervention, progress=False)
        assert alone.tokens == together[number].tokens
        assert alone.removed == pytest.approx(together[number].removed, abs=1e-6)


@pytest.mark.parametrize("intervention", [MaskAnchors(1), RandomKeys(MaskAnchors(1), equal="mass")], ids=["anchors", "control"])
def test_a_sample_that_leaves_the_batch_takes_nobodys_anchors_along(intervention: Intervention) -> None:
    """Infilling: the first prompt has one mask and is done after one step, so the others move up in the batch."""
    lm = diffusion_model("llada")
    prompts = [[5, 6, MASK, 8, 9, 10], [11, MASK, MASK, 12, MASK, 13, 14], [21, MASK, MASK, MASK, MASK, 22]]
    together = lm.generate(prompts, gen_length=0, steps=4, intervention=intervention, progress=False)
    assert [one.steps for one in together] == [1, 3, 4]
    for number, prompt in enumerate(prompts):
        (alone,) = lm.generate([prompt], gen_length=0, steps=4, seed=number, intervention=intervention, progress=False)
        assert alone.tokens == together[number].tokens
        assert alone.removed == pytest.approx(together[number].removed, abs=1e-6)


def test_a_text_that_has_ended_is_not_counted_on() -> None:
    free = autoregressive_model()
    first = free.generate([PROMPTS[0]], gen_length=6, intervention=MaskAnchors(1), progress=False)[0].tokens
    lm = fl.LanguageModel(free.module, family="autoregressive", sampler="autoregressive", row_offset=1, end_tokens=(first[2],))
    with lm.intervene(MaskAnchors(1)) as run:
        written = lm.generate(PROMPTS, gen_length=6, progress=False)
    assert written[0].tokens == first[:3]
    assert np.isfinite(run.removed.values[0, :3]).all()
    assert np.isnan(run.removed.values[0, 3:]).all()


class WritesByItself(nn.Module):
    """A model with a `generate` of its own: the leftmost mask first."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = build("llama, bidirectional", seed=3)
        self.config = self.inner.config
        with torch.no_grad():
            self.inner.lm_head.weight[MASK] = 0  # never the best

    def forward(self, input_ids: torch.Tensor) -> Any:
        return self.inner(input_ids=input_ids, use_cache=False)

    def generate(self, input_ids: torch.Tensor, gen_length: int = 4) -> torch.Tensor:
        canvas = torch.cat([input_ids, torch.full((1, gen_length), MASK)], 1)
        for position in range(input_ids.shape[1], canvas.shape[1]):
            logits = self(canvas).logits
            canvas[0, position] = logits[0, position].argmax()
        return canvas


def test_a_models_own_loop_runs_under_interventions() -> None:
    module = WritesByItself()
    lm = fl.LanguageModel(module, family="remote", sampler=None, mask_token_id=MASK)
    with lm.intervene(MaskAnchors(2)) as run:
        written = lm.generate(PROMPTS, gen_length=5, progress=False)
    trace = lm.trace(PROMPTS, gen_length=5, intervention=MaskAnchors(2), progress=False)
    for sample, prompt in enumerate(PROMPTS):
        expected = reference.denoise(module.inner, prompt, MASK, 5, hide(reference.top(2), False), leftmost=True)
        assert written[sample].tokens == expected.tokens == trace.sample(sample)["final"].values[len(prompt) :].tolist()
        close(run, sample, expected)
        np.testing.assert_array_equal(trace.sample(sample)["removed"].values, run.removed.values[sample])
        assert (trace.sample(sample)["visible"].sel(group="masked").values[1:] == 0).sum(-1).max() == 2


@pytest.fixture(scope="module")
def gemma() -> fl.LanguageModel:
    model = diffusion_gemma(8)
    model.set_attn_implementation("sdpa")
    return fl.LanguageModel(model, family="diffusion-gemma", sampler=None, step_on=model.model.decoder)


@pytest.mark.parametrize("intervention", [MaskAnchors(2), ExtraSinkToken()], ids=to_text)
def test_a_diffusion_gemma_runs_under_interventions(gemma: fl.LanguageModel, intervention: Intervention) -> None:
    asked: dict[str, Any] = {"gen_length": 16, "max_denoising_steps": 2, "seed": 3, "progress": False}
    with gemma.intervene(intervention) as run:
        written = gemma.generate([PROMPTS[0]], **asked)
    trace = gemma.trace([PROMPTS[0]], intervention=intervention, **asked)
    for number, one in enumerate(written):
        sample = trace.sample(number)
        steps = sample.sizes["step"]
        np.testing.assert_array_equal(sample["removed"].values, run.removed.values[number, :steps])
        assert sample["final"].values[sample["final"].values >= 0][len(one.prompt_tokens) :].tolist() == one.tokens
        assert one.removed is not None
        assert one.removed > 0


@pytest.mark.parametrize("sampler", ["llada", "sdar", "autoregressive"])
def test_an_intervention_that_never_acts_changes_no_token(sampler: str) -> None:
    lm = autoregressive_model() if sampler == "autoregressive" else diffusion_model(sampler)
    free = lm.generate(PROMPTS, gen_length=5, progress=False)
    idle = lm.generate(PROMPTS, gen_length=5, intervention=[MaskAnchors(1, steps=[99]), ExtraSinkToken(steps="50-")], progress=False)
    assert [one.tokens for one in free] == [one.tokens for one in idle]
    assert [one.removed for one in idle] == [0.0] * len(PROMPTS)
