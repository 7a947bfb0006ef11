"""A model whose weights make one key draw most attention, through the whole chain: trace, measure, mask, control.

The numbers are checked against eager attention.
"""

from typing import Any

import numpy as np
import pytest
import torch

from floatlens import measures
from floatlens.interventions import MaskAnchors, RandomKeys
from planted_sink import planted_sink_model
from zoo import eager_calls

FILLER = [20, 21, 22, 23, 24, 25, 26, 27, 28, 29]
EPS = 1.0  # twice its fair share: in heads 2 and 3 the sink draws a third of some twenty keys


@pytest.mark.parametrize("causal", [False, True])
def test_a_planted_sink_is_detected_measured_masked_and_controlled(causal: bool) -> None:
    planted = planted_sink_model(causal)
    prompts = [[*prompt, *FILLER] for prompt in planted.prompts]
    options: dict[str, Any] = {"gen_length": 6, "progress": False, "detail": {"geometry": "head", "norms": "head"}}
    group = "predicting" if causal else "unmasked"
    trace = planted.lm.trace(prompts, **options)
    anchors = measures.find_anchors(trace, eps=EPS)["anchor"].sel(group=group)
    share = measures.absorption_of_anchors(trace, measures.find_anchors(trace, rule="top", eps=1))["share"].sel(group=group)
    for number, at in enumerate(planted.sink_at):
        own = trace.sample(number)
        assert anchors.isel(sample=number, key=at).values.all(), "detected at every step, layer and head"
        for step in range(own.sizes["step"]):
            canvas = own["canvas"].values[step]
            state = own["state"].values[step]
            rows = [int((canvas >= 0).sum()) - 1] if causal else [row for row in range(len(canvas)) if state[row] in (1, 4)]
            calls = eager_calls(planted.lm.module, input_ids=torch.tensor(canvas[None, canvas >= 0].astype(np.int64)), use_cache=False)
            for layer, call in enumerate(calls):
                expected = 100 * call.weights[0][:, rows, at].mean(-1)
                np.testing.assert_allclose(share.isel(sample=number, step=step, layer=layer).values, expected, rtol=1e-3)
    strongest = measures.absorption_of_strongest_key(measures.pool_steps(trace.sample(0))).sel(group=group)
    assert (strongest["share"] > 3 * strongest["null"]).all(), "also where it is chosen on one half of the rows and measured on the other"

    masked = planted.lm.trace(prompts, intervention=MaskAnchors(1), **options)
    counted = planted.lm.trace(prompts, intervention=RandomKeys(MaskAnchors(1)), **options)
    weighed = planted.lm.trace(prompts, intervention=RandomKeys(MaskAnchors(1), equal="mass"), **options)
    for number, at in enumerate(planted.sink_at):
        own = masked.sample(number)
        for step in range(1, own.sizes["step"]):
            canvas = own["canvas"].values[step]
            assert (own["mass"].sel(group=group).isel(step=step, key=at) == 0).all(), "masked at every step, not at every other one"
            first_layer = eager_calls(
                planted.lm.module, input_ids=torch.tensor(canvas[None, canvas >= 0].astype(np.int64)), use_cache=False
            )[0]
            rows = [-1] if causal else slice(None)  # what an edit takes in a later layer depends on what it took before
            removed = first_layer.weights[0][:, rows, at].mean(-1)
            np.testing.assert_allclose(own["removed"].isel(step=step, layer=0).values, removed, rtol=1e-3)
        assert (counted.sample(number)["mass"].sel(group=group).isel(key=at) > 0).all(), "the controls leave the sink alone"
        assert (weighed.sample(number)["mass"].sel(group=group).isel(key=at) > 0).all()
    taken = {
        name: float(one.dataset["removed"].isel(step=slice(1, None)).mean())
        for name, one in (("masked", masked), ("counted", counted), ("weighed", weighed))
    }
    assert taken["counted"] < 0.5 * taken["masked"], "as many keys hold much less"
    lacking = float(weighed.dataset["shortfall"].isel(step=slice(1, None)).mean())
    assert taken["weighed"] + lacking == pytest.approx(taken["masked"], rel=0.35), "other keys that hold as much, as far as there are any"
