"""What layers show under interventions is measured when a pass is over, all together: the same as layer by layer, and seldom."""

from typing import Any

import numpy as np
import pytest
import torch

import floatlens as fl
from floatlens.capture.call import AttentionCall
from floatlens.capture.edits import Before, received_by_layer
from floatlens.capture.forward import Forward
from floatlens.interventions import KeepSinks, MaskAbove, MaskAnchors, RandomKeys, ZeroAnchorValues
from floatlens.interventions import running as running_module
from floatlens.interventions.choosing import Row
from floatlens.interventions.running import EachForward, Running
from floatlens.interventions.specification import Intervention
from writers import PROMPTS, autoregressive_model, diffusion_model
from zoo import LAYERS

STEPS = 4
INTERVENTIONS: list[Intervention] = [
    MaskAnchors(2),
    MaskAbove(0.2),
    ZeroAnchorValues(1),
    KeepSinks(k=1, window=1),
    RandomKeys(MaskAnchors(1)),
    RandomKeys(MaskAnchors(1), equal="mass"),
]


def written(sampler: str, intervention: Intervention) -> tuple[list[list[int]], np.ndarray]:
    lm = autoregressive_model() if sampler == "autoregressive" else diffusion_model(sampler)
    with lm.intervene(intervention) as run:
        texts = lm.generate(PROMPTS, gen_length=STEPS, batch_size=3, progress=False)
    return [text.tokens for text in texts], run.removed.values


@pytest.mark.parametrize("sampler", ["llada", "sdar", "autoregressive"])
@pytest.mark.parametrize("intervention", INTERVENTIONS, ids=lambda intervention: type(intervention).__name__)
def test_measured_together_or_layer_by_layer_is_the_same(sampler: str, intervention: Intervention, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens, removed = written(sampler, intervention)
    monkeypatch.setattr(running_module, "HELD_BYTES", 0)
    tokens_by_layer, removed_by_layer = written(sampler, intervention)
    assert tokens == tokens_by_layer
    np.testing.assert_allclose(removed, removed_by_layer, rtol=1e-5, atol=1e-7)
    assert np.nansum(removed) > 0
    assert not np.allclose(removed[..., 0, :], removed[..., 1, :], equal_nan=True), "layers that are alike could be mistaken for each other"


@pytest.mark.parametrize(
    ("intervention", "measured"),
    [(MaskAnchors(1), STEPS), (RandomKeys(MaskAnchors(1), equal="mass"), STEPS * LAYERS)],
    ids=["once", "each"],
)
def test_a_pass_is_measured_once_unless_it_must_know_meanwhile(
    intervention: Intervention, measured: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    measure = received_by_layer

    def counted(observation: Any, *given: Any) -> Any:
        seen.append(observation.layers)
        return measure(observation, *given)

    monkeypatch.setattr(running_module, "received_by_layer", counted)
    diffusion_model("llada").generate(PROMPTS[:1], gen_length=STEPS, steps=STEPS, intervention=intervention, progress=False)
    assert len(seen) == measured
    assert sum(seen) == STEPS * LAYERS


def call_of(key: torch.Tensor, step: int) -> AttentionCall:
    return AttentionCall(torch.ones(1, 1, 3, 4), key, key, mask=None, causal=False, scale=1.0, step=step)


def test_keys_that_are_written_to_before_the_step_is_over_are_refused() -> None:
    key, running = torch.randn(1, 1, 20, 4), Running([MaskAnchors(1)], [0])
    running.begin_rows([Row(0)])
    running(call_of(key, 0), Before(None, None, Forward(0, {})))
    key.mul_(2)
    with pytest.raises(fl.Refusal, match=r"wrote to the queries, keys or values of layer 0 .* a cache that it does not reuse"):
        running.finish_samples([0])


def test_a_loop_that_does_not_say_when_a_step_is_over_is_measured_at_once() -> None:
    """Its next forward may have written to the keys by the time that the step is known to be over."""
    key = torch.zeros(1, 1, 20, 4)
    key[0, 0, 7] = 5.0  # every query looks at it
    forwards = EachForward(Running([MaskAnchors(1)], [0]))
    forwards(call_of(key, 0), Before(None, None, Forward(0, {})))
    key.zero_()
    key[0, 0, 3] = 5.0
    hidden = forwards(call_of(key, 1), Before(None, None, Forward(1, {}))).mask
    assert hidden is not None
    assert (~hidden).nonzero()[:, -1].unique().tolist() == [7]
