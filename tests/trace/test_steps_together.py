"""Small steps wait and are reduced together: each gives what it gives by itself, in its place, and is refused by its own name."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import xarray as xr
from torch import Tensor, nn

import floatlens as fl
import zoo
from floatlens.capture import reduction, steps
from floatlens.capture.records import StepRecord, fetch_steps
from floatlens.capture.steps import Stack
from floatlens.capture.tapping import Tap, TapRequest
from floatlens.trace import recording
from writers import PROMPTS, diffusion_model

SAME_LENGTH = [PROMPTS[0], [10, 20, 30, 40, 50]]


@pytest.fixture
def reduced(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The steps of every observation that is reduced."""
    seen: list[tuple[int, ...]] = []
    reduce = reduction.reduce_layers

    def watched(observation: Any, *others: Any) -> Any:
        seen.append(observation.steps)
        return reduce(observation, *others)

    for module in (reduction, steps):
        monkeypatch.setattr(module, "reduce_layers", watched)
    return seen


def assert_equal(found: xr.Dataset, expected: xr.Dataset) -> None:
    assert {*found.variables} == {*expected.variables}
    for name in expected.variables:
        assert found[name].dims == expected[name].dims, name
        if expected[name].dtype.kind == "f":
            scale = max(1.0, float(np.nanmax(np.abs(expected[name].values), initial=0.0)))
            np.testing.assert_allclose(found[name].values, expected[name].values, rtol=2e-6, atol=2e-6 * scale, err_msg=str(name))
        else:
            np.testing.assert_array_equal(found[name].values, expected[name].values, err_msg=str(name))


@pytest.mark.parametrize(
    ("sampler", "prompts", "options", "together"),
    [
        ("llada", SAME_LENGTH, {"steps": 5}, [(0, 1, 2, 3, 4)]),
        ("llada", PROMPTS, {"steps": 3, "block_length": 2}, [(0, 1, 2)]),
        ("llada", PROMPTS, {"threshold": 0.1}, None),
        ("llada", PROMPTS, {"steps": 3, "guidance": 0.5}, [(0, 1, 2)]),
        ("dream", PROMPTS, {"steps": 4}, [(0, 1, 2, 3)]),
        ("sdar", PROMPTS, {"block_length": 2}, None),
    ],
    ids=["one length", "ragged", "as many as are sure", "guided", "dream", "with a cache"],
)
@pytest.mark.parametrize("detail", ["default", "full"])
def test_together_or_one_by_one_steps_give_the_same(
    sampler: str,
    prompts: list[list[int]],
    options: dict[str, Any],
    together: list[tuple[int, ...]] | None,
    detail: str,
    reduced: list[tuple[int, ...]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lm = diffusion_model(sampler)
    groups = ("masked", "unmasked", "predicting", "prompt")

    def traced() -> xr.Dataset:
        return lm.trace(prompts, gen_length=6, **options, batch_size=3, detail=detail, groups=groups, top_keys=3, progress=False).dataset

    found = traced()
    assert reduced[::2] == reduced[1::2], "first all rows of some steps, then those that predict"
    if together is None:
        assert any(len(of_steps) > 1 for of_steps in reduced)
    else:
        assert reduced[::2] == together
    reduced.clear()
    monkeypatch.setattr(recording, "STEPS_AT_MOST", 2)
    assert_equal(traced(), found)
    assert {len(of_steps) for of_steps in reduced} <= {1, 2}
    reduced.clear()
    monkeypatch.setattr(recording, "TOGETHER_BYTES", 0)
    assert_equal(traced(), found)
    assert {len(of_steps) for of_steps in reduced} == {1}


@pytest.mark.parametrize("options", [{"patterns": [(1, 2)]}, {"intervention": "mask-anchors:1"}], ids=["patterns", "intervention"])
def test_what_is_large_or_may_be_written_to_does_not_wait(options: dict[str, Any], reduced: list[tuple[int, ...]]) -> None:
    if "intervention" in options:
        options = {"intervention": fl.interventions.from_text(options["intervention"])}
    diffusion_model("llada").trace(SAME_LENGTH, gen_length=4, steps=4, progress=False, **options)
    assert {len(of_steps) for of_steps in reduced} == {1}


def test_steps_of_more_bytes_than_may_wait_do_not(reduced: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 11 tokens, 4 heads and 4 layers: what waits stays below the limit, whatever the number of steps."""
    waiting: list[int] = []
    wait = recording.Recorder._wait

    def watched(self: recording.Recorder, decided: Any) -> None:
        wait(self, decided)
        waiting.append(sum(step.bytes for step in self._waiting))

    monkeypatch.setattr(recording.Recorder, "_wait", watched)
    lm = diffusion_model("llada")
    lm.trace(SAME_LENGTH, gen_length=6, batch_size=2, progress=False)
    of_a_step = waiting[0]
    assert waiting == [of_a_step * (step + 1) for step in range(6)]
    for steps_that_fit, expected in ((3, [(0, 1, 2), (3, 4, 5)]), (2, [(0, 1), (2, 3), (4, 5)]), (1.9, [(step,) for step in range(6)])):
        monkeypatch.setattr(recording, "TOGETHER_BYTES", int(of_a_step * steps_that_fit))
        reduced.clear()
        waiting.clear()
        lm.trace(SAME_LENGTH, gen_length=6, batch_size=2, progress=False)
        assert reduced[::2] == expected
        assert max(waiting, default=0) <= of_a_step * steps_that_fit


class Reusing(nn.Module):
    """Keeps its queries, keys and values in one place, and writes to it again in the next forward."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.layers, self.place = layers, [torch.zeros(3, 1, 2, 6, 4) for _ in range(layers)]

    def forward(self, hidden: Tensor) -> Tensor:
        for layer in range(self.layers):
            self.place[layer].copy_(torch.stack([hidden, hidden.roll(1, 2), 2 * hidden]))
            queries, keys, values = self.place[layer]
            hidden = torch.nn.functional.scaled_dot_product_attention(queries, keys, values)
        return hidden


@pytest.mark.parametrize("layers", [1, 3])
def test_what_waits_is_what_the_step_saw_whatever_the_model_writes_there_next(layers: int) -> None:
    waiting: list[Stack] = []
    model, hidden = Reusing(layers), torch.randn(1, 2, 6, 4, generator=torch.Generator().manual_seed(0))
    request = TapRequest(
        layers=layers, step_on=model, keep=["mass", "norms"], on_seen=lambda _: None, on_stacked=waiting.extend, later_bytes=1 << 20
    )
    with Tap(model, request) as tap:
        for step in range(3):
            model(hidden * (1 + step))
            assert not tap.take_step().records
        checks: list[Any] = []
        (record,) = tap.reduce_later([steps.side_by_side(waiting)], checks)
    assert not any(bool(check.failed) for check in checks)
    for step in range(3):
        with fl.tap(model, layers=layers, keep=["mass", "norms"]) as alone:
            model(hidden * (1 + step))
        for name in ("mass", "query_norm", "key_norm", "value_norm"):
            own = record.values[name][1][:, step].numpy()
            np.testing.assert_allclose(own, alone.dataset[name].isel(sample=0).values, rtol=1e-6, atol=1e-6)


def broken_from(forward: int) -> fl.LanguageModel:
    """Keys of its second layer are no numbers from this forward on, in the second sample."""
    lm, runs = diffusion_model("llada"), []
    layer: Any = lm.module.model.layers[1].self_attn.k_proj  # type: ignore[union-attr]

    def break_keys(_module: nn.Module, _inputs: Any, keys: Tensor) -> Tensor:
        runs.append(1)
        if len(runs) > forward:
            keys = keys.clone()
            keys[1, :, 0] = float("nan")
        return keys

    layer.register_forward_hook(break_keys)
    return lm


@pytest.mark.parametrize("at_most", [16, 1])
def test_a_broken_step_is_refused_by_its_own_name_whatever_waits_with_it(at_most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "STEPS_AT_MOST", at_most)
    with pytest.raises(fl.Refusal, match=r"layer 1 .*, step 2, sample 1, head 0, query 0 is not a number"):
        broken_from(2).trace(SAME_LENGTH, gen_length=6, batch_size=2, progress=False)


def test_what_is_wrong_with_a_step_that_waits_is_said_when_the_loop_stumbles(monkeypatch: pytest.MonkeyPatch) -> None:
    def stumbling(run: Callable[..., Any]) -> Callable[..., Any]:
        passes = []

        def run_pass(self: Any, asked: Any) -> Any:
            passes.append(asked)
            if len(passes) == 4:
                raise ArithmeticError("the loop has stumbled")
            return run(self, asked)

        return run_pass

    run_pass = fl.LanguageModel.run_pass
    monkeypatch.setattr(fl.LanguageModel, "run_pass", stumbling(run_pass))
    with pytest.raises(fl.Refusal, match=r"step 1, sample 1, head 0, query 0 is not a number"):
        broken_from(1).trace(SAME_LENGTH, gen_length=6, batch_size=2, progress=False)
    monkeypatch.setattr(fl.LanguageModel, "run_pass", stumbling(run_pass))
    with pytest.raises(ArithmeticError, match="stumbled"):
        broken_from(99).trace(SAME_LENGTH, gen_length=6, batch_size=2, progress=False)


@pytest.mark.parametrize("at_most", [16, 1, 0])
@pytest.mark.parametrize("forward", [0, 2])
def test_a_forward_that_looks_at_its_padding_is_refused_whether_its_step_waits_or_not(
    forward: int, at_most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was asked of the forward itself is answered with the numbers of its step."""
    lm, runs = diffusion_model("llada"), []

    def forget_the_mask(_module: nn.Module, _inputs: Any, named: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        runs.append(1)
        return _inputs, {**named, "attention_mask": None} if len(runs) > forward else named

    lm.module.register_forward_pre_hook(forget_the_mask, with_kwargs=True)  # type: ignore[union-attr]
    monkeypatch.setattr(recording, *(("STEPS_AT_MOST", at_most) if at_most else ("TOGETHER_BYTES", 0)))
    with pytest.raises(fl.Refusal, match=r"real queries of sample \d can see the padding"):
        lm.trace(PROMPTS, gen_length=6, steps=4, batch_size=3, progress=False)


def test_steps_that_wait_are_sent_before_one_that_is_too_large_to_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a cache steps grow. Where one is too large, those before it are sent, and then it is: neither takes the other's place."""
    lm, sent = diffusion_model("sdar"), list[tuple[int, bool]]()
    send = recording.Recorder._send

    def watched(self: recording.Recorder, in_passing: Any, seen: Any, together: Any) -> None:
        sent.append((len(together), bool(together[0].stacks)))
        send(self, in_passing, seen, together)

    def traced() -> xr.Dataset:
        return lm.trace(PROMPTS[:1], gen_length=12, block_length=4, detail="full", progress=False).dataset

    whole = traced()
    monkeypatch.setattr(recording.Recorder, "_send", watched)
    both = 0
    for kilobytes in range(4, 40, 4):
        sent.clear()
        monkeypatch.setattr(recording, "TOGETHER_BYTES", kilobytes << 10)
        assert_equal(traced(), whole)
        both += any(waited and not large for (_, waited), (_, large) in pairwise(sent))
    assert both, "either all steps waited or none did, so that this shows nothing"


def test_a_forward_that_was_too_large_to_be_held_at_once_does_not_wait(
    reduced: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first layers were reduced when there were too many bytes of them; its last ones are few, and belong to them."""
    lm = diffusion_model("llada")

    def traced() -> xr.Dataset:
        return lm.trace(SAME_LENGTH, gen_length=6, steps=3, batch_size=2, detail="full", progress=False).dataset

    whole = traced()
    of_a_layer = 2 * 11 * 8 * (4 + 4 + 4) * 4
    make = TapRequest.__init__
    monkeypatch.setattr(TapRequest, "__init__", lambda self, **given: make(self, **{**given, "held_bytes": of_a_layer * 3 // 2}))
    reduced.clear()
    assert_equal(traced(), whole)
    assert reduced == [(step,) for step in (0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2)], "two layers, then one; all rows, then those that predict"


def test_a_step_that_sees_one_key_more_is_stored_by_itself() -> None:
    lm, sink = diffusion_model("llada"), fl.interventions.ExtraSinkToken(steps=[1])
    sample = lm.trace(SAME_LENGTH[:1], gen_length=4, steps=4, intervention=sink, progress=False).sample(0)
    lost = sample["rows"].sel(group="masked").isel(layer=0, head=0) - sample["mass"].sel(group="masked").isel(layer=0, head=0).sum("key")
    assert (lost.values > 0.01).tolist() == [False, True, False, False]


def test_only_steps_that_lie_alike_are_put_side_by_side() -> None:
    waiting: list[Stack] = []
    model = zoo.Direct()
    request = TapRequest(layers=1, step_on=model, keep=["mass"], on_seen=lambda _: None, on_stacked=waiting.extend, later_bytes=1 << 20)
    hidden, mask = torch.randn(1, 2, 6, 4), torch.ones(1, 1, 6, 6, dtype=torch.bool)
    given: list[tuple[tuple[Tensor, ...], dict[str, Any]]] = [
        ((hidden, hidden, hidden), {}),
        ((hidden, hidden, hidden), {"causal": True}),
        ((hidden, hidden, hidden), {"scale": 1.0}),
        ((hidden, hidden, hidden), {"mask": mask}),
        ((hidden, hidden, hidden), {"mask": torch.zeros(1, 1, 6, 6)}),
        ((hidden[..., :5, :], hidden, hidden), {}),
        ((hidden, hidden[:, :1], hidden[:, :1]), {}),
        ((hidden.double(), hidden.double(), hidden.double()), {}),
    ]
    with Tap(model, request) as tap:
        for tensors, named in [*given, given[0]]:
            model(*tensors, **named)
            tap.take_step()
    *others, again = waiting
    assert [again.lies_like(other) for other in others] == [True, *[False] * (len(given) - 1)]


def test_each_step_keeps_its_own_mask() -> None:
    """In a loop of one length all steps have the same; here the first sees backwards, the second a window, the third all."""
    at, waiting = torch.arange(6), list[Stack]()
    masks = [at[:, None] >= at, (at[:, None] - at).abs() < 3, torch.ones(6, 6, dtype=torch.bool)]
    generator = torch.Generator().manual_seed(0)
    tensors = [[torch.randn(2, 2, 6, 4, generator=generator) for _ in range(3)] for _ in masks]
    request = TapRequest(
        layers=1,
        step_on=(model := zoo.Direct()),
        keep=["mass", "entropy", "geometry"],
        padding=torch.ones(2, 6),
        on_seen=lambda _: None,
        on_stacked=waiting.extend,
        later_bytes=1 << 20,
    )
    with Tap(model, request) as tap:
        for step, mask in zip(tensors, masks, strict=True):
            model(*step, mask[None, None])
            tap.take_step()
        (record,) = tap.reduce_later([steps.side_by_side(waiting)], [])
    for number, (step, mask) in enumerate(zip(tensors, masks, strict=True)):
        with fl.tap(model, layers=1, keep=["mass", "entropy", "geometry"], padding=torch.ones(2, 6)) as alone:
            model(*step, mask[None, None])
        own = slice(2 * number, 2 * number + 2)
        for name in ("mass", "entropy", "score", "cosine"):
            found = record.values[name][1][0, own].numpy()
            np.testing.assert_allclose(found, alone.dataset[name].isel(layer=0).values, rtol=1e-5, atol=1e-6, err_msg=name)
        np.testing.assert_array_equal(record.values["visible"][1][own].numpy(), alone.dataset.visible.isel(layer=0).values)


def test_each_step_keeps_its_own_padding() -> None:
    """Samples that take turns in a batch have steps of one shape, and texts of different lengths."""
    lengths, length = [(6, 6), (4, 6), (6, 3)], 6
    generator, waiting, model = torch.Generator().manual_seed(0), list[Stack](), zoo.Direct()
    tensors = [[torch.randn(2, 2, length, 4, generator=generator) for _ in range(3)] for _ in lengths]
    paddings = [torch.arange(length) < torch.tensor(of_step)[:, None] for of_step in lengths]
    keep = ["mass", "halves", "entropy:rows", "geometry", "norms"]
    request = TapRequest(
        layers=1,
        step_on=model,
        keep=keep,
        padding=lambda forward: paddings[forward.step],
        on_seen=lambda _: None,
        on_stacked=waiting.extend,
        later_bytes=1 << 20,
    )
    checks: list[Any] = []
    with Tap(model, request) as tap:
        for step, padding in zip(tensors, paddings, strict=True):
            model(*step, padding[:, None, None])
            checks += tap.take_step().checks
        together = StepRecord(tap.reduce_later([steps.side_by_side(waiting)], checks), checks)
    (arrays,) = fetch_steps(together)
    for own, step, padding in zip(steps.of_each(arrays, len(lengths)), tensors, paddings, strict=True):
        with fl.tap(model, layers=1, keep=keep, padding=padding) as alone:
            model(*step, padding[:, None, None])
        assert own.length.tolist() == padding.sum(-1).tolist()
        for name, (axes, found) in own.arrays.items():
            expected = alone.dataset[name].isel(layer=0).values
            np.testing.assert_allclose(found[0] if axes[0] == "layer" else found, expected, rtol=1e-5, atol=1e-6, err_msg=name)


class Cached(nn.Module):
    """Says that so many keys are cached already, of which it shows the last ones."""

    def forward(self, hidden: Tensor, past_key_values: Any) -> Tensor:
        return torch.nn.functional.scaled_dot_product_attention(hidden[:, :, -2:], hidden, hidden)


class Length(NamedTuple):
    past: int

    def get_seq_length(self) -> int:
        return self.past


def test_steps_whose_keys_stand_at_other_positions_are_not_put_side_by_side() -> None:
    """In a sliding-window cache as many keys are shown in each step, and each time they are others."""
    waiting, model, hidden = list[Stack](), Cached(), torch.randn(1, 2, 6, 4)
    request = TapRequest(layers=1, step_on=model, keep=["mass"], on_seen=lambda _: None, on_stacked=waiting.extend, later_bytes=1 << 20)
    with Tap(model, request) as tap:
        for past in (8, 8, 9):
            model(hidden, past_key_values=Length(past))
            tap.take_step()
    assert [stack.observation.scene.key_start for stack in waiting] == [4, 4, 5]
    assert waiting[1].lies_like(waiting[0])
    assert not waiting[2].lies_like(waiting[0])
