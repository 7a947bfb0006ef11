"""SmolLM2-135M traced for real on three open questions of Natural Questions. Run by `make test-real`."""

from pathlib import Path

import numpy as np
import pytest
import torch

import floatlens as fl

pytestmark = pytest.mark.real

QUESTIONS = [
    "when was the last time anyone was on the moon",
    "who wrote he ain't heavy he's my brother lyrics",
    "how many seasons of the bastard executioner are there",
]


@pytest.fixture(scope="module")
def lm() -> fl.LanguageModel:
    return fl.load("smollm2-135m")


def test_the_first_token_is_a_sink_with_small_values(lm: fl.LanguageModel, tmp_path: Path) -> None:
    trace = lm.trace(QUESTIONS, gen_length=32, path=tmp_path / "run.zarr", detail={"norms": "layer"})
    rows = trace.dataset["rows"].sel(group="predicting")
    share = (trace.dataset["mass"].sel(group="predicting").isel(key=0) / rows).mean(["sample", "step", "head"])
    null = (trace.dataset["null"] * trace.dataset["visible"]).sel(group="predicting").isel(key=0).mean(["sample", "step"])
    deep = share.sel(layer=slice(12, None)).values
    norms = trace.dataset["value_norm"].mean(["sample", "step"])
    first, others = norms.isel(key=0), norms.isel(key=slice(1, None)).mean("key")
    ratio = (first / others).sel(layer=slice(3, None))
    print(f"\nfirst token, share by layer: {np.round(share.values, 2).tolist()} (null {float(null):.3f})")
    print(f"its value norm over the others', layer 3 on: mean {float(ratio.mean()):.2f}; {np.round(ratio.values, 2).tolist()}")
    for number in range(3):
        print(f"{QUESTIONS[number]!r} -> {trace.completion(number)!r}")
    assert np.mean((deep > 0.4) & (deep < 0.85)) > 0.5, "most deep layers"
    assert float(null) < 0.05
    assert float(ratio.mean()) < 0.5


def test_one_pass_equals_stepwise_capture_on_real_weights(lm: fl.LanguageModel) -> None:
    prompt = lm.encode(QUESTIONS[0]).tokens
    trace = lm.trace(QUESTIONS[0], gen_length=8, detail={"geometry": "head"}).sample(0)
    cache = lm.new_cache()
    tokens = torch.tensor([prompt])
    with fl.tap(
        lm.module,
        step_on=lm.module,
        keep=["mass", "geometry"],
        groups=lambda forward: {"last": torch.arange(forward.input_ids.shape[1])[None] == forward.input_ids.shape[1] - 1},
    ) as tap:
        for _ in range(trace.sizes["step"]):
            logits = lm.module(tokens, past_key_values=cache, use_cache=True).logits
            tokens = logits[:, -1:].argmax(-1)
    stepwise = tap.dataset["mass"].isel(sample=0, group=0).values
    recorded = trace["mass"].sel(group="predicting").values[..., : stepwise.shape[-1]]
    np.testing.assert_allclose(recorded, stepwise, atol=1e-5)


def test_batched_and_single_generations_agree_on_real_weights(lm: fl.LanguageModel) -> None:
    together = [one.tokens for one in lm.generate(QUESTIONS, gen_length=16, batch_size=3)]
    assert together == [lm.generate(question, gen_length=16)[0].tokens for question in QUESTIONS]
