"""Everything runs on a device that is not the CPU: the same tokens, values to 1e-6, and the host waits a fixed number of times per step."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import xarray as xr
from transformers import LlamaConfig, LlamaForCausalLM

import elsewhere
import floatlens as fl
import zoo
from floatlens.interventions import ExtraSinkToken, KeepSinks, MaskAbove, MaskAnchors, MaskHeads, RandomKeys, ZeroAnchorValues
from floatlens.interventions.specification import Intervention
from floatlens.tasks.likelihood import Continuation, log_likelihoods
from world_models import arm, mdm

pytestmark = pytest.mark.skipif(elsewhere.missing() is not None, reason=str(elsewhere.missing()))

VOCABULARY, MASK = 64, 63
PROMPTS = [[5, 6, 7, 8, 9, 10, 11, 12, 5, 6], [20, 21, 22, 23, 24], [30, 31, 32, 33, 34, 35, 36]]
HERE: list[str] = ["cpu", elsewhere.NAME]
INTERVENTIONS: list[Intervention] = [
    MaskAnchors(1),
    MaskAbove(0.2),
    ZeroAnchorValues(1),
    KeepSinks(k=1, window=2),
    RandomKeys(MaskAnchors(1)),
    RandomKeys(MaskAnchors(1), equal="mass"),
    ExtraSinkToken(),
    MaskHeads([(0, 1)]),
]


def language_model(device: str, *, layers: int = 3, causal: bool = False, sampler: str = "llada") -> fl.LanguageModel:
    """The same small model with sharp attention, on either device."""
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2}
    config = LlamaConfig(vocab_size=VOCABULARY, num_hidden_layers=layers, **sizes)
    config.is_causal = causal
    module: Any = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for layer in module.model.layers:
            layer.self_attn.q_proj.weight.mul_(30)
    module = module.to(elsewhere.device() if device == elsewhere.NAME else "cpu")
    if causal:
        return fl.LanguageModel(module, family="autoregressive", sampler="autoregressive", row_offset=1)
    return fl.LanguageModel(module, mask_token_id=MASK, sampler=sampler)


def on_both(run: Callable[[str], Any]) -> tuple[Any, Any]:
    here, there = (run(device) for device in HERE)
    return here, there


def assert_equal(here: xr.Dataset, there: xr.Dataset) -> None:
    assert {*here.data_vars} == {*there.data_vars}
    for name in here.data_vars:
        if here[name].dtype.kind == "f":
            scale = max(1.0, float(np.nanmax(np.abs(here[name].values), initial=0.0)))
            np.testing.assert_allclose(there[name].values, here[name].values, rtol=1e-6, atol=1e-6 * scale, err_msg=str(name))
        else:
            np.testing.assert_array_equal(there[name].values, here[name].values, err_msg=str(name))


def test_devices_do_not_mix_there() -> None:
    away = torch.ones(3, device=elsewhere.device())
    with pytest.raises(RuntimeError, match="on the same device"):
        _ = away + torch.ones(3)
    with elsewhere.Counted() as counted:
        assert float(away.sum()) == 3
        assert (away.cpu() == 1).all()
    assert counted.transfers.total() == 2


@pytest.mark.parametrize("family", ["llama", "llama, bidirectional", "gemma3"])
def test_a_tap_sees_the_same(family: str) -> None:
    ids, mask = zoo.padded(zoo.tokens(2, 16), "left", 5)
    keep = ["mass", "halves", "entropy:rows", "geometry", "norms", "top_keys:3", "flow"]

    def run(device: str) -> xr.Dataset:
        model = zoo.build(family).to(elsewhere.device() if device == elsewhere.NAME else "cpu")
        at: Any = next(model.parameters()).device
        inputs = {"input_ids": ids.to(at), "attention_mask": mask.to(at), "position_ids": (mask.cumsum(-1) - 1).clamp(min=0).to(at)}
        with fl.tap(model, keep=keep, regions={"begin": (0, 8), "end": (8, 16)}, patterns=[(1, 1)]) as tap:
            observed = model(**inputs).logits
        assert torch.equal(observed.cpu(), model(**inputs).logits.cpu())
        return tap.dataset

    assert_equal(*on_both(run))


@pytest.mark.parametrize(
    ("sampler", "options"),
    [
        ("llada", {"steps": 4, "block_length": 4}),
        ("llada", {"steps": 4, "guidance": 0.5}),
        ("llada", {"temperature": 0.8, "remasking": "random"}),
        ("dream", {"steps": 5, "order": "entropy"}),
        ("dream", {"steps": 5, "order": "origin", "temperature": 0.7}),
        ("sdar", {"block_length": 4}),
        ("autoregressive", {}),
        ("autoregressive", {"temperature": 0.9, "top_k": 10}),
    ],
)
def test_every_loop_writes_and_traces_the_same(sampler: str, options: dict[str, Any]) -> None:

    def run(device: str) -> tuple[list[list[int]], xr.Dataset]:
        lm = language_model(device, causal=sampler == "autoregressive", sampler=sampler)
        written = lm.generate(PROMPTS, gen_length=8, batch_size=3, progress=False, **options)
        return [text.tokens for text in written], lm.trace(PROMPTS, gen_length=8, batch_size=3, progress=False, **options).dataset

    (tokens, trace), (other_tokens, other_trace) = on_both(run)
    assert tokens == other_tokens
    assert_equal(trace, other_trace)


@pytest.mark.parametrize("intervention", INTERVENTIONS, ids=lambda intervention: type(intervention).__name__)
@pytest.mark.parametrize("causal", [False, True], ids=["diffusion", "autoregressive"])
def test_interventions_do_the_same(intervention: Intervention, causal: bool) -> None:
    def run(device: str) -> tuple[list[list[int]], list[float], xr.Dataset]:
        lm = language_model(device, causal=causal)
        written = lm.generate(PROMPTS, gen_length=4, batch_size=3, intervention=intervention, progress=False)
        trace = lm.trace(PROMPTS, gen_length=4, batch_size=3, intervention=intervention, progress=False).dataset
        return [text.tokens for text in written], [float(text.removed or 0) for text in written], trace

    (tokens, removed, trace), (other_tokens, other_removed, other_trace) = on_both(run)
    assert tokens == other_tokens
    assert any(removed)
    np.testing.assert_allclose(other_removed, removed, rtol=1e-5, atol=1e-7)
    assert_equal(trace, other_trace)


@pytest.mark.parametrize("make", [mdm, arm], ids=["diffusion", "autoregressive"])
def test_likelihoods_and_evaluations_are_the_same(make: Callable[[], fl.LanguageModel]) -> None:
    def run(device: str) -> tuple[list[float], list[tuple[Any, ...]]]:
        lm = make()
        lm.module.to(elsewhere.device() if device == elsewhere.NAME else "cpu")
        answers = [Continuation((20, 21, 22, 23), (24, 25)), Continuation((30, 31, 32), (33, 34))]
        under = log_likelihoods(lm, answers, intervention=MaskAnchors(1), draws=4)
        likelihoods = [likelihood.value for likelihood in [*log_likelihoods(lm, answers, draws=4), *under]]
        rows = fl.evaluate(lm, contexts="gold", interventions="mask-anchors:1", controls=False, samples=2, draws=4, progress=False).rows
        return likelihoods, rows.select("prediction", "log_likelihood", "removed").rows()

    (likelihoods, rows), (other_likelihoods, other_rows) = on_both(run)
    np.testing.assert_allclose(other_likelihoods, likelihoods, rtol=1e-6)
    assert [row[0] for row in rows] == [row[0] for row in other_rows]
    numbers, other_numbers = (np.array([row[1:] for row in table], dtype=float) for table in (rows, other_rows))
    np.testing.assert_allclose(other_numbers, numbers, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("causal", [False, True], ids=["diffusion", "autoregressive"])
@pytest.mark.parametrize("batch_size", [1, 3])
def test_a_model_spread_over_two_devices_is_the_same(tmp_path: Path, causal: bool, batch_size: int) -> None:
    language_model("cpu", causal=causal).save(tmp_path / "model")

    def run(device: str) -> tuple[list[list[int]], list[float], xr.Dataset, list[float]]:
        lm = fl.load(tmp_path / "model", device=device)
        spread = {str(parameter.device) for parameter in lm.module.parameters()}
        assert spread == set(device.split(","))
        options: dict[str, Any] = {"gen_length": 4, "batch_size": batch_size, "progress": False}
        edited = lm.generate(PROMPTS, intervention=MaskAnchors(1), **options)
        control = lm.generate(PROMPTS, intervention=RandomKeys(MaskAnchors(1), equal="mass"), **options)
        trace = lm.trace(PROMPTS, detail="full", **options).dataset
        likelihoods = [each.value for each in log_likelihoods(lm, [Continuation((20, 21, 22), (24, 25))], draws=4)]
        return [text.tokens for text in [*edited, *control]], [float(text.removed or 0) for text in [*edited, *control]], trace, likelihoods

    elsewhere.device()
    tokens, removed, trace, likelihoods = run("cpu")
    other_tokens, other_removed, other_trace, other_likelihoods = run(f"{elsewhere.NAME}:0,{elsewhere.NAME}:1")
    assert tokens == other_tokens
    np.testing.assert_allclose([*other_removed, *other_likelihoods], [*removed, *likelihoods], rtol=1e-5, atol=1e-7)
    assert_equal(trace, other_trace)


def test_a_model_is_not_divided_between_the_cpu_and_others() -> None:
    elsewhere.device()
    with pytest.raises(fl.Refusal, match="between the CPU and others"):
        fl.load("twin-mdm", device=f"cpu,{elsewhere.NAME}:0")
    with pytest.raises(fl.Refusal, match="names a device twice"):
        fl.load("twin-mdm", device=f"{elsewhere.NAME}:1,{elsewhere.NAME}:1")


def transfers(run: Callable[[], Any]) -> int:
    with elsewhere.Counted() as counted:
        run()
    return counted.transfers.total()


@pytest.mark.parametrize(("layers", "more"), [(2, 3), (6, 8)])
def test_how_often_the_host_waits_does_not_depend_on_the_layers(layers: int, more: int) -> None:
    """Once per step to write; once more to trace, and at most twice for an intervention, whatever the number of layers."""
    small, large = language_model(elsewhere.NAME, layers=layers), language_model(elsewhere.NAME, layers=more)
    options: dict[str, Any] = {"gen_length": 8, "steps": 4, "progress": False}
    for lm in (small, large):
        assert transfers(lambda lm=lm: lm.generate(PROMPTS[:1], **options)) <= 4
        assert transfers(lambda lm=lm: lm.trace(PROMPTS[:1], **options)) <= 2 * 4
        assert transfers(lambda lm=lm: lm.generate(PROMPTS[:1], intervention=MaskAnchors(1), **options)) <= 2 * 4
    padded = [transfers(lambda lm=lm: lm.trace(PROMPTS, batch_size=3, **options)) for lm in (small, large)]
    assert padded[0] == padded[1]


def test_a_step_of_a_loop_fetches_its_candidates_and_not_their_logits() -> None:
    """A token, its odds and its rank for each masked position: 8, 6, 4 and 2 of them are left."""
    lm = language_model(elsewhere.NAME)
    with elsewhere.Counted() as counted:
        lm.generate(PROMPTS[:1], gen_length=8, steps=4, progress=False)
    assert counted.bytes == 3 * 8 * (8 + 6 + 4 + 2)


def test_what_a_broken_row_costs_is_a_refusal_that_names_it() -> None:
    lm = language_model(elsewhere.NAME)
    module: Any = lm.module
    with torch.no_grad():
        module.model.layers[1].self_attn.k_proj.weight[0, 0] = float("nan")
    with pytest.raises(fl.Refusal, match=r"layer 1 .*sample 0, head 0, query 0 is not a number"):
        lm.trace(PROMPTS[:1], gen_length=4, progress=False)
    with pytest.raises(fl.Refusal, match=r"layer 1 .*sample 0, head 0 is not a number"):
        lm.generate(PROMPTS[:1], gen_length=4, intervention=MaskAnchors(1), progress=False)
