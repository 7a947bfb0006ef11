"""The rectangle that both kinds of models share, against loops over eager attention."""

from typing import Any

import numpy as np
import pytest
import torch
import xarray as xr

import floatlens as fl
from floatlens.measures import find_anchors, from_attention, lift, pool_steps, shared_rectangle
from writers import PROMPTS, autoregressive_model, diffusion_model
from zoo import eager_calls


@pytest.mark.parametrize("sampler", ["llada", "dream", "autoregressive"])
def test_the_rectangle_holds_the_predicting_rows_on_the_prompt_of_eager_attention(sampler: str) -> None:
    lm = autoregressive_model() if sampler == "autoregressive" else diffusion_model(sampler)
    steps: dict[str, Any] = {} if sampler == "autoregressive" else {"steps": 3}
    trace = lm.trace(PROMPTS, gen_length=6, batch_size=2, progress=False, **steps)
    rectangle = shared_rectangle(trace)
    for number, prompt in enumerate(PROMPTS):
        own, found = trace.sample(number), rectangle.isel(sample=number)
        for step in range(own.sizes["step"]):
            canvas, state = own["canvas"].values[step], own["state"].values[step]
            rows = [max(int(position) - lm.row_offset, 0) for position in np.flatnonzero(state == 3)]
            written = canvas[canvas >= 0]
            calls = eager_calls(lm.module, input_ids=torch.tensor(written[None].astype(np.int64)), use_cache=False)
            for layer, call in enumerate(calls):
                given = call.weights[0][:, rows, : len(prompt)]  # (head, row, key)
                expected = np.zeros((given.shape[0], len(prompt)))
                for half in (0, 1):
                    members = [at for at, row in enumerate(rows) if row % 2 == half]
                    if members:
                        mass = given[:, members].sum(1)
                        expected += mass / mass.sum(-1, keepdims=True) * len(members)
                here = found.isel(step=step, layer=layer, group=0)
                np.testing.assert_allclose(here["mass"].values[:, : len(prompt)], expected, rtol=1e-4, atol=1e-5)
                assert np.isnan(here["mass"].values[:, len(prompt) :]).all()
                np.testing.assert_allclose(here["on_prompt"].values, given.sum((1, 2)) / len(rows), rtol=1e-4)
            assert float(found["on_prompt_null"].isel(step=step, group=0)) == pytest.approx(len(prompt) / len(written))
        np.testing.assert_allclose(found["null"].isel(step=0, group=0).values[: len(prompt)], 1 / len(prompt))


def test_even_attention_is_even_on_the_rectangle_of_both_kinds() -> None:
    causal = np.tril(np.ones((12, 12)))
    state = xr.DataArray([[1] * 6 + [2] * 6] * 6, dims=("step", "position"))
    rows = np.eye(12, dtype=bool)[5:11]  # an autoregressive step is one row
    for visible in (causal, np.ones((12, 12))):
        weights = np.broadcast_to(visible / visible.sum(1, keepdims=True), (6, 1, 1, 12, 12))
        data = from_attention(weights, visible=visible, groups={"predicting": rows}).assign(state=state)
        rectangle = shared_rectangle(data)
        np.testing.assert_allclose(lift(rectangle).isel(key=slice(0, 6)).values, 1)
        assert not find_anchors(pool_steps(rectangle))["anchor"].any()
        np.testing.assert_allclose(rectangle["on_prompt"].values[..., 0].squeeze(), rectangle["on_prompt_null"].values.squeeze())


def test_a_planted_sink_has_the_same_share_in_both_kinds() -> None:
    state = xr.DataArray([[1] * 8 + [2] * 4] * 4, dims=("step", "position"))
    shares = []
    for sees in (8, 12):  # only the prompt, or the masks as well
        weights = np.zeros((4, 1, 1, 12, 12))
        weights[..., :sees] = 0.2 / (sees - 1)
        weights[..., 3] = 0.8
        weights[..., 8:sees] = 0
        weights /= weights.sum(-1, keepdims=True)
        data = from_attention(weights, groups={"predicting": np.arange(12) >= 8}).assign(state=state)
        pooled = pool_steps(shared_rectangle(data))
        shares.append(float(pooled["mass"].isel(key=3).squeeze() / pooled["rows"].squeeze()))
        assert find_anchors(pooled)["anchor"].squeeze().values.nonzero()[0].tolist() == [3]
    assert shares[0] == pytest.approx(0.8)
    assert shares[1] == pytest.approx(0.8 / (0.8 + 7 * 0.2 / 11))


def test_a_trace_without_halves_is_rescaled_as_a_whole() -> None:
    looks = np.array([[0.1, 0.3, 0.6], [0.4, 0.4, 0.2]])
    data = from_attention(looks, groups={"predicting": np.array([True, True])}).assign(state=(("step", "position"), [[1, 1, 2]]))
    without = shared_rectangle(data.drop_vars(["mass_even", "visible_even", "null_even", "rows_even"]))
    np.testing.assert_allclose(without["mass"].squeeze().values[:2], np.array([0.5, 0.7]) / 1.2 * 2)


def test_what_shares_no_rectangle_is_refused() -> None:
    looks = from_attention(np.full((2, 3), 1 / 3), groups={"predicting": np.array([True, True])})
    with pytest.raises(fl.Refusal, match="needs state"):
        shared_rectangle(looks)
    with pytest.raises(fl.Refusal, match="no query group 'masked' in this trace; it has predicting"):
        shared_rectangle(looks.assign(state=(("step", "position"), [[1, 1, 2]])), group="masked")
    with pytest.raises(fl.Refusal, match="has no prompt"):
        shared_rectangle(looks.assign(state=(("step", "position"), [[2, 2, 2]])))
    window = from_attention(np.eye(3), visible=np.eye(3), groups={"predicting": np.array([False, True, True])})
    with pytest.raises(fl.Refusal, match="do not see the whole prompt"):
        shared_rectangle(window.assign(state=(("step", "position"), [[1, 1, 2]])))
