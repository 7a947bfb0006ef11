"""One token draws most attention, by hand-set weights: found, masked at every step, accounted for, and matched by both controls."""

from typing import Any

import eager_reference as reference
import numpy as np
import pytest
import torch

import floatlens as fl
from floatlens.interventions import ExtraSinkToken, Intervention, KeepSinks, MaskAnchors, MaskHeads, RandomKeys, ZeroAnchorValues
from planted_sink import HEADS, LAYERS, MASK, Planted, planted_sink_model
from zoo import eager_calls

COUNT = 6
ways = pytest.mark.parametrize("causal", [False, True], ids=["both ways", "causal"])


def traced(planted: Planted, number: int, intervention: Any = None, **options: Any) -> Any:
    groups = ["predicting", "prompt"] if planted.lm.row_offset else ["masked", "unmasked", "predicting"]
    prompt = planted.prompts[number]
    return planted.lm.trace([prompt], gen_length=COUNT, groups=groups, intervention=intervention, progress=False, **options).sample(0)


def straight(planted: Planted, number: int, act: reference.Act) -> reference.Written:
    prompt, module = planted.prompts[number], planted.lm.module
    if planted.lm.row_offset:
        return reference.write(module, prompt, COUNT, act)
    return reference.denoise(module, prompt, MASK, COUNT, act)


def mask_anchors(k: int, causal: bool) -> reference.Act:
    return lambda last, rows, n: reference.hide(reference.picked(last, reference.top(k), causal), rows, n)


def text(sample: Any, prompt: list[int]) -> list[int]:
    return sample["final"].values[len(prompt) :].tolist()


@ways
@pytest.mark.parametrize("number", [1, 2])
def test_the_planted_key_is_the_strongest_and_its_share_is_that_of_eager_attention(causal: bool, number: int) -> None:
    planted = planted_sink_model(causal)
    sample, at = traced(planted, number), planted.sink_at[number]
    for step in range(COUNT):
        canvas = sample["canvas"].values[step]
        calls = eager_calls(planted.lm.module, input_ids=torch.tensor(canvas[None, canvas >= 0]), use_cache=False)
        group = "predicting" if causal else "unmasked"
        rows = [len(canvas[canvas >= 0]) - 1] if causal else np.isin(sample["state"].values[step], (1, 4)).nonzero()[0].tolist()
        for layer in range(LAYERS):
            mass = sample["mass"].sel(group=group).values[step, layer]
            np.testing.assert_allclose(mass[:, at], calls[layer].weights[0][:, rows, at].sum(-1), rtol=1e-4)
            assert (np.nanargmax(mass, -1) == at).all()
            assert (mass[:2, at] / len(rows) > 0.5).all()


@ways
@pytest.mark.parametrize("number", [1, 2])
def test_masking_the_anchor_removes_exactly_its_mass_at_every_step(causal: bool, number: int) -> None:
    """At every step: chosen from what is left after the edit, it would be masked at every other one only."""
    planted = planted_sink_model(causal)
    sample, at = traced(planted, number, MaskAnchors(1)), planted.sink_at[number]
    expected = straight(planted, number, mask_anchors(1, causal))
    assert text(sample, planted.prompts[number]) == expected.tokens
    np.testing.assert_allclose(sample["removed"].values, expected.removed, atol=2e-6)
    assert (sample["removed"].values[0] == 0).all(), "nothing comes before the first step"
    assert (sample["removed"].values[1:, :, :2] > 0.5).all()
    assert (sample["removed"].values[1:] > 0.15).all()
    assert (sample["mass"].sel(group="predicting").values[1:, ..., at] == 0).all()
    assert (sample["mass"].sel(group="predicting").values[0, ..., at] > 0.15).all()


@ways
@pytest.mark.parametrize("k", [2, 3])
def test_several_anchors_of_each_head_are_masked(causal: bool, k: int) -> None:
    planted = planted_sink_model(causal)
    sample = traced(planted, 1, MaskAnchors(k))
    expected = straight(planted, 1, mask_anchors(k, causal))
    assert text(sample, planted.prompts[1]) == expected.tokens
    np.testing.assert_allclose(sample["removed"].values, expected.removed, atol=2e-6)
    hidden = sample["visible"].sel(group="predicting").values == 0
    for step in range(1, COUNT):
        assert (hidden[step].sum(-1) == k).all()
        for layer in range(LAYERS):
            row = -1 if causal else 0
            there = expected.hidden[step][layer][:, row]
            np.testing.assert_array_equal(hidden[step, layer, :, : there.shape[1]], there)


@ways
def test_zeroed_values_keep_the_weights_and_hand_on_nothing(causal: bool) -> None:
    planted = planted_sink_model(causal)
    sample = traced(planted, 0, ZeroAnchorValues(1))

    def silence(last: reference.Looked | None, rows: list[int], n: int) -> reference.Plan:
        picks = reference.picked(last, reference.top(1), causal)
        return reference.Plan(np.ones((n, n), bool), silenced=reference.entries(picks, rows, n))

    expected = straight(planted, 0, silence)
    assert text(sample, planted.prompts[0]) == expected.tokens
    np.testing.assert_allclose(sample["removed"].values, expected.removed, atol=2e-6)
    mass = sample["mass"].sel(group="predicting")
    assert (mass.isel(key=planted.sink_at[0]).values > 0.15).all(), "its weight stays"
    np.testing.assert_allclose(mass.sum("key").values, sample["rows"].sel(group="predicting").values, rtol=1e-5)


@ways
def test_an_extra_sink_draws_what_a_key_of_score_zero_draws(causal: bool) -> None:
    planted = planted_sink_model(causal)
    sample = traced(planted, 0, ExtraSinkToken(layers=[0, 2]))
    expected = straight(planted, 0, lambda last, rows, n: reference.Plan(np.ones((n, n), bool), sink_in=(0, 2)))
    assert text(sample, planted.prompts[0]) == expected.tokens
    np.testing.assert_allclose(sample["removed"].values, expected.removed, atol=2e-6)
    assert (sample["removed"].values[:, 1] == 0).all()
    assert (sample["removed"].values[:, [0, 2]] > 0).all(), "from the first step on: it needs no step before"
    left = sample["mass"].sel(group="predicting").sum("key").values / sample["rows"].sel(group="predicting").values
    assert (left[:, [0, 2]] < 1).all(), "the text keeps what the sink does not draw"
    np.testing.assert_allclose(left[:, 1], 1, rtol=1e-5)


@ways
def test_what_an_extra_sink_draws_comes_on_top_of_what_is_hidden(causal: bool) -> None:
    planted = planted_sink_model(causal)

    def both(last: reference.Looked | None, rows: list[int], n: int) -> reference.Plan:
        picks = reference.picked(last, reference.top(1), causal)
        return reference.Plan(np.ones((n, n), bool), hidden=reference.entries(picks, rows, n), sink_in=(0, 1, 2))

    expected = straight(planted, 0, both)
    for order in ([MaskAnchors(1), ExtraSinkToken()], [ExtraSinkToken(), MaskAnchors(1)]):
        sample = traced(planted, 0, order)
        assert text(sample, planted.prompts[0]) == expected.tokens
        np.testing.assert_allclose(sample["removed"].values, expected.removed, atol=2e-6)


@ways
def test_silenced_heads_count_as_wholly_removed(causal: bool) -> None:
    planted = planted_sink_model(causal)
    pairs = ((0, 1), (2, 0), (2, 3))
    sample = traced(planted, 0, MaskHeads(pairs))
    expected = straight(planted, 0, lambda last, rows, n: reference.Plan(np.ones((n, n), bool), off=pairs))
    assert text(sample, planted.prompts[0]) == expected.tokens
    share = np.zeros((LAYERS, HEADS))
    for pair in pairs:
        share[pair] = 1
    np.testing.assert_array_equal(sample["removed"].values, np.broadcast_to(share, sample["removed"].shape))


@ways
def test_keeping_sinks_leaves_the_anchors_and_a_window(causal: bool) -> None:
    planted, window = planted_sink_model(causal), 2

    def keep(last: reference.Looked | None, rows: list[int], n: int) -> reference.Plan:
        picks = reference.picked(last, reference.top(2), causal)
        hidden = {layer: np.zeros((HEADS, n, n), bool) for layer in picks}
        for layer, of_heads in picks.items():
            for head, anchors in enumerate(of_heads):
                for row in rows:
                    for key in range(n):
                        hidden[layer][head, row, key] = key not in anchors and abs(row - key) > window
        return reference.Plan(np.ones((n, n), bool), hidden=hidden)

    sample = traced(planted, 1, KeepSinks(window, k=2))
    expected = straight(planted, 1, keep)
    assert text(sample, planted.prompts[1]) == expected.tokens
    np.testing.assert_allclose(sample["removed"].values, expected.removed, atol=2e-6)
    assert (sample["mass"].sel(group="predicting").values[..., planted.sink_at[1]] > 0.15).all()


def replay(planted: Planted, number: int, sample: Any) -> tuple[reference.Written, list[np.ndarray]]:
    """The run again, straight from dense attention, with the keys hidden that the trace says were hidden.

    And those keys, (layer, head, key) by step.
    """
    seen = sample["visible"].sel(group="predicting").values
    steps: list[np.ndarray] = []

    def as_traced(_: reference.Looked | None, rows: list[int], n: int) -> reference.Plan:
        hidden = seen[len(steps), ..., :n] == 0
        steps.append(hidden)
        picks = {layer: [np.flatnonzero(hidden[layer, head]).tolist() for head in range(HEADS)] for layer in range(LAYERS)}
        return reference.hide(picks, rows, n)

    return straight(planted, number, as_traced), steps


@ways
@pytest.mark.parametrize("k", [1, 3])
def test_the_control_of_equal_count_masks_as_many_other_keys(causal: bool, k: int) -> None:
    planted = planted_sink_model(causal)
    sample = traced(planted, 1, RandomKeys(MaskAnchors(k), equal="count", seed=5))
    expected, hidden = replay(planted, 1, sample)
    assert text(sample, planted.prompts[1]) == expected.tokens
    np.testing.assert_allclose(sample["removed"].values, expected.removed, atol=2e-6)
    for step in range(1, COUNT):
        anchors = reference.picked(expected.steps[step - 1], reference.top(k), causal)
        for layer in range(LAYERS):
            for head in range(HEADS):
                there = np.flatnonzero(hidden[step][layer, head]).tolist()
                assert len(there) == k
                assert planted.sink_at[1] not in there
                assert not set(there) & set(anchors[layer][head])
    same_keys = np.stack([of_step[..., : len(planted.prompts[1])] for of_step in hidden[1:]])  # (step, layer, head, key)
    for axis in range(3):
        differ = np.diff(same_keys.astype(int), axis=axis).any(-1)
        assert differ.mean() > 0.4, "every step, layer and head draws its own"
    assert "shortfall" not in sample


@ways
@pytest.mark.parametrize("number", [1, 2])
def test_the_control_of_equal_mass_removes_as_much_to_within_one_key(causal: bool, number: int) -> None:
    planted = planted_sink_model(causal)
    sample, at = traced(planted, number, RandomKeys(MaskAnchors(1), equal="mass", seed=2)), planted.sink_at[number]
    expected, hidden = replay(planted, number, sample)
    assert text(sample, planted.prompts[number]) == expected.tokens
    removed, shortfall = sample["removed"].values, sample["shortfall"].values
    np.testing.assert_allclose(removed, expected.removed, atol=2e-6)
    reached, fell_short = 0, 0
    for step in range(1, COUNT):
        n = expected.steps[step].before[0].shape[1]
        rows = [n - 1] if causal else list(range(n))
        for layer in range(LAYERS):
            for head in range(HEADS):
                share = expected.steps[step].before[layer][head][rows].mean(0)
                target, others = share[at], np.delete(np.arange(n), at)
                gone = hidden[step][layer, head]
                assert not gone[at]
                if share[others].sum() < target:
                    assert gone.sum() == len(others) - 1, "all but one"
                    np.testing.assert_allclose(shortfall[step, layer, head], target - share[gone].sum(), atol=2e-6)
                    fell_short += 1
                else:
                    assert shortfall[step, layer, head] == 0
                    left = [key for key in others if not gone[key]]
                    one_key = max([share[gone].max(initial=0), *share[left]])
                    assert abs(removed[step, layer, head] - target) <= one_key / 2 + 1e-6, "the nearer of the last two sums"
                    reached += 1
    assert reached > 0
    assert fell_short > 0


@ways
def test_the_control_of_kept_sinks_keeps_other_keys_that_hold_as_much_outside_the_windows(causal: bool) -> None:
    planted, window, k = planted_sink_model(causal), 1, 2
    every_head = [(layer, head) for layer in range(LAYERS) for head in range(HEADS)]
    sample = traced(planted, 1, RandomKeys(KeepSinks(window, k=k), equal="mass", seed=1), patterns=every_head)
    at, compared = planted.sink_at[1], 0

    def as_traced(_: reference.Looked | None, rows: list[int], n: int) -> reference.Plan:
        pattern = sample["pattern"].values[len(steps)].reshape(LAYERS, HEADS, *sample["pattern"].shape[-2:])[..., :n, :n]
        hidden = {layer: pattern[layer] == 0 for layer in range(LAYERS)}
        for of_layer in hidden.values():
            of_layer[:, [row for row in range(n) if row not in rows]] = False
        steps.append(hidden)
        return reference.Plan(np.ones((n, n), bool), hidden=hidden if len(steps) > 1 else {})

    steps: list[dict[int, np.ndarray]] = []
    expected = straight(planted, 1, as_traced)
    assert text(sample, planted.prompts[1]) == expected.tokens
    np.testing.assert_allclose(sample["removed"].values, expected.removed, atol=2e-6)
    for step in range(1, COUNT):
        anchors = reference.picked(expected.steps[step - 1], reference.top(k), causal)
        n = expected.steps[step].before[0].shape[1]
        rows = [n - 1] if causal else list(range(n))
        far = np.abs(np.arange(n)[:, None] - np.arange(n)) > window
        for layer in range(LAYERS):
            for head in range(HEADS):
                share = (expected.steps[step].before[layer][head] * far)[rows].mean(0)
                kept = [key for key in range(n) if any(far[row, key] and not steps[step][layer][head, row, key] for row in rows)]
                target, others = share[anchors[layer][head]].sum(), [key for key in range(n) if key not in anchors[layer][head]]
                assert at not in kept
                if share[others].sum() >= target:
                    assert abs(share[kept].sum() - target) <= share[others].max() / 2 + 1e-6
                    compared += 1
    assert compared > 0


@ways
def test_what_generate_and_trace_do_under_an_intervention_is_the_same(causal: bool) -> None:
    planted = planted_sink_model(causal)
    every: list[Intervention] = [MaskAnchors(2), ExtraSinkToken(), RandomKeys(MaskAnchors(1), equal="mass")]
    untouched = [one.tokens for one in planted.lm.generate(planted.prompts, gen_length=COUNT, progress=False)]
    changed = 0
    for intervention in every:
        with planted.lm.intervene(intervention) as run:
            written = planted.lm.generate(planted.prompts, gen_length=COUNT, progress=False)
        trace = planted.lm.trace(planted.prompts, gen_length=COUNT, intervention=intervention, progress=False)
        for number, one in enumerate(written):
            sample = trace.sample(number)
            assert text(sample, planted.prompts[number]) == one.tokens
            np.testing.assert_array_equal(run.removed.values[number], sample["removed"].values)
            assert one.removed == pytest.approx(float(sample["removed"].mean()), abs=1e-6)
        changed += [one.tokens for one in written] != untouched
    assert changed >= 2
    assert all(one.removed is None for one in planted.lm.generate(planted.prompts, gen_length=2, progress=False))


def test_the_planted_model_loses_its_way_without_its_sink_more_than_without_other_keys() -> None:
    """A sanity check of the whole idea: removing the sink moves the logits more than removing as many other keys."""
    planted = planted_sink_model(causal=False)
    prompt = planted.prompts[1]
    canvas = [*prompt, *[MASK] * COUNT]
    n = len(canvas)
    free = reference.look(planted.lm.module, canvas, reference.Plan(np.ones((n, n), bool))).logits

    def moved(key: int) -> float:
        picks = {layer: [[key]] * HEADS for layer in range(LAYERS)}
        logits = reference.look(planted.lm.module, canvas, reference.hide(picks, list(range(n)), n)).logits
        return float(np.abs(logits - free).mean())

    sink = planted.sink_at[1]
    assert moved(sink) > 2 * max(moved(key) for key in range(n) if key != sink)


def test_a_trace_under_an_intervention_says_so_and_keeps_what_was_removed(tmp_path: Any) -> None:
    planted = planted_sink_model(causal=False)

    def look_on(call: fl.AttentionCall, before: fl.Before) -> fl.AttentionCall:
        return call

    interventions = [MaskAnchors(1, layers=[1]), RandomKeys(ZeroAnchorValues(2), equal="mass")]
    planted.lm.trace(planted.prompts, gen_length=4, intervention=interventions, edits=[look_on], path=tmp_path / "run.zarr", progress=False)
    trace = fl.open_trace(tmp_path / "run.zarr")
    assert trace.attributes["edits"][:2] == ["mask-anchors:1,layers=1", "random-keys:mass of zero-anchor-values:2"]
    assert "look_on" in trace.attributes["edits"][2]
    assert trace.dataset["removed"].dims == trace.dataset["shortfall"].dims == ("sample", "step", "layer", "head")
    assert trace.dataset["removed"].dtype == np.float32
    assert "removed" not in planted.lm.trace(planted.prompts, gen_length=4, progress=False).dataset
