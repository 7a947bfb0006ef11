"""The verdict "it floats": movement above noise in the rows of the prompt, and from left to right, over prompts."""

import numpy as np
import pytest
import xarray as xr
from planted_anchors import looking_at, noisy

import floatlens as fl
from floatlens.measures import bootstrap, strongest_path
from floatlens.measures.path import floats
from floatlens.measures.received_attention import from_attention
from writers import PROMPTS, autoregressive_model, diffusion_model

STEPS, KEYS, PROMPT_ROWS = 8, 24, 16


def traced(seed: int, *, prompt_moves: bool, predicting_moves: bool) -> xr.Dataset:
    """Eight steps: rows 0-15 are the prompt's and row 16 + t predicts at step t, each looking at a key that stays or moves."""
    moving, static = 2 * np.arange(STEPS), np.full(STEPS, 5)
    paths = [np.broadcast_to((moving if moves else static)[:, None, None], (STEPS, 3, 4)) for moves in (prompt_moves, predicting_moves)]
    prompt, predicting = (
        looking_at(path, keys=KEYS, rows=rows, weight=0.4) for path, rows in zip(paths, (PROMPT_ROWS, STEPS), strict=True)
    )
    weights = noisy(np.concatenate([prompt, predicting], axis=3), 6.0, seed)
    rows = np.arange(KEYS)
    groups = {"prompt": rows < PROMPT_ROWS, "predicting": rows == PROMPT_ROWS + np.arange(STEPS)[:, None]}
    committed = np.where(rows < PROMPT_ROWS, -1, rows - PROMPT_ROWS)
    state = np.where(rows < PROMPT_ROWS, 1, 2) * np.ones((STEPS, 1), int)
    return from_attention(weights, groups=groups).assign(committed=("position", committed), state=(("step", "position"), state))


def traces(count: int = 6, **moves: bool) -> xr.Dataset:
    return xr.concat([traced(seed, **moves) for seed in range(count)], "sample")


@pytest.mark.parametrize("prompt_moves", [True, False])
@pytest.mark.parametrize("predicting_moves", [True, False])
def test_it_floats_if_both_kinds_of_rows_are_above_noise(prompt_moves: bool, predicting_moves: bool) -> None:
    data = traces(prompt_moves=prompt_moves, predicting_moves=predicting_moves)
    for keys, depth in (("all", "all"), ("prompt", "all"), ("all", "deep")):
        verdict = floats(data, data, keys=keys, depth=depth)
        assert verdict["above_noise"].values.tolist() == [prompt_moves, predicting_moves]
        assert verdict["floats"].item() is (prompt_moves and predicting_moves)
        assert verdict["prompts"].values.tolist() == [6, 6]
        assert verdict["condition"].values.tolist() == ["prompt rows", "left to right"]


def test_the_interval_is_that_of_the_movement_over_prompts() -> None:
    data = traces(prompt_moves=True, predicting_moves=False)
    verdict = floats(data, data, depth="middle", level=0.9)
    movement = strongest_path(data, pooled=True)["movement"].sel(depth="middle")
    for number, group in enumerate(("prompt", "predicting")):
        expected = bootstrap(movement.sel(group=group), level=0.9)
        for name in ("estimate", "low", "high"):
            np.testing.assert_allclose(verdict[name].isel(condition=number), expected[name])


def test_one_prompt_gives_no_verdict() -> None:
    data = traced(0, prompt_moves=True, predicting_moves=True)
    verdict = floats(data, data)
    assert (verdict["estimate"] > 0.3).all()
    assert not verdict["floats"].item()
    assert all(verdict["reason"].values.tolist())


def test_real_traces_are_judged_prompt_by_prompt_and_other_orders_refused() -> None:
    lm = diffusion_model("llada")
    every = {"gen_length": 6, "groups": ["predicting", "prompt"], "progress": False}
    left_to_right, leaping = (lm.trace([*PROMPTS, PROMPTS[0]], block_length=block, **every) for block in (1, 6))
    verdict = floats(leaping, left_to_right)
    assert verdict["prompts"].values.tolist() == [len(PROMPTS)] * 2  # one prompt was asked twice
    movement = strongest_path(leaping, pooled=True)["movement"].sel(depth="all", group="prompt")
    np.testing.assert_allclose(verdict["estimate"].isel(condition=0), movement.mean())
    with pytest.raises(fl.Refusal, match=r"not written from left to right.*block_length=1"):
        floats(left_to_right, leaping)
    with pytest.raises(fl.Refusal, match="no prompt rows; record them with groups="):
        floats(lm.trace(PROMPTS, gen_length=6, progress=False), left_to_right)
    with pytest.raises(fl.Refusal, match="depth='top' is not known; choose one of all, shallow, middle, deep"):
        floats(leaping, left_to_right, depth="top")


def test_prompt_rows_of_an_autoregressive_model_exist_at_one_step_and_do_not_float() -> None:
    trace = autoregressive_model().trace(PROMPTS, gen_length=6, groups=["predicting", "prompt"], progress=False)
    verdict = floats(trace, trace)
    assert np.isnan(verdict["estimate"].values[0])
    assert verdict["reason"].values[0] == "one step"
    assert np.isfinite(verdict["estimate"].values[1])
    assert not verdict["floats"].item()
