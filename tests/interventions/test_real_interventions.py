"""SmolLM2-135M without its sink. Run by `make test-real`."""

import numpy as np
import pytest

import floatlens as fl
from floatlens.interventions import MaskAnchors, RandomKeys

pytestmark = pytest.mark.real

PROMPTS = ["What is the capital of France?", "Name three colours."]


@pytest.fixture(scope="module")
def lm() -> fl.LanguageModel:
    return fl.load("smollm2-135m")


def test_the_sink_is_masked_at_every_step_and_takes_the_answer_with_it(lm: fl.LanguageModel) -> None:
    free = lm.generate(PROMPTS, gen_length=12, progress=False)
    with lm.intervene(MaskAnchors(1)) as run:
        masked = lm.generate(PROMPTS, gen_length=12, progress=False)
    with lm.intervene(RandomKeys(MaskAnchors(1))) as control:
        spared = lm.generate(PROMPTS, gen_length=12, progress=False)
    by_step = run.removed.mean(["layer", "head"]).values
    print(f"\nremoved by step: {np.round(by_step, 2).tolist()}; by the control: {float(control.removed.mean()):.3f}")
    for one, other, third in zip(free, masked, spared, strict=True):
        print(f"{one.text!r} -> {other.text!r}; without another key {third.text!r}")
    assert "Paris" in free[0].text
    assert "Paris" in spared[0].text
    assert "Paris" not in masked[0].text
    assert (by_step[:, 0] == 0).all()
    assert np.nanmin(by_step[:, 1:]) > 0.3, "at every step: chosen after the edit, it would be masked at every other one"
    assert float(control.removed.mean()) < 0.05


def test_batched_and_single_generations_agree_under_an_intervention(lm: fl.LanguageModel) -> None:
    for intervention in (MaskAnchors(3), RandomKeys(MaskAnchors(3), equal="mass")):
        together = lm.generate(PROMPTS, gen_length=8, intervention=intervention, progress=False)
        for number, prompt in enumerate(PROMPTS):
            (alone,) = lm.generate([prompt], gen_length=8, seed=number, intervention=intervention, progress=False)
            assert alone.tokens == together[number].tokens
            assert alone.removed == pytest.approx(together[number].removed, abs=1e-4)
