"""The tap: a context in which every attention call of a model is observed, and may be edited.

An `AttentionWatch` is told of each `scaled_dot_product_attention`; hooks tell which module is running and where a forward begins and
ends, and calls are watched only while a module runs that may make one. The output comes from torch's own kernel, so an observed model is
bit-identical to an unobserved one. Gradients are off inside a tap.

During a forward the tap only holds what it was shown. When the forward ends, or when it holds more than `held_bytes`, layers that see the
same keys are reduced together (`holding.py`); what they gave is fetched from the device in one transfer.
"""

import inspect
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
import xarray as xr
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from floatlens._version import __version__
from floatlens.capture.arguments import as_pairs, is_whole
from floatlens.capture.call import AttentionCall, full_precision, read_call, unpack_heads
from floatlens.capture.checks import Check
from floatlens.capture.edits import Before, Edit, Received, apply_edits, describe, received, refuse_uncallable, uses_statistics
from floatlens.capture.forward import Forward, Groups, Regions, known_padding, named_inputs, pad_token
from floatlens.capture.holding import HELD_BYTES, Held, HeldCalls
from floatlens.capture.kernels import run
from floatlens.capture.layers import (
    LayerNumbers,
    RunningModules,
    expected_calls,
    refuse_missing,
    refuse_surplus,
    refuse_what_cannot_be_tapped,
)
from floatlens.capture.observation import Scene
from floatlens.capture.records import Record, StepArrays, StepRecord, assemble, fetch_steps
from floatlens.capture.reducers import DEFAULT_KEEP, as_names, reducer_makers
from floatlens.capture.reduction import Reducing, SeenLayers
from floatlens.capture.steps import Stack
from floatlens.capture.walk import Workspace
from floatlens.capture.watching import AttentionWatch
from floatlens.errors import Refusal

_open_in_this_thread = threading.local()


@dataclass(frozen=True, eq=False)
class TapRequest:
    """What a tap is asked for. The parameters of `tap` say what each field means; those from `on_seen` on are for recorders.

    Refused: samples that are not a slice, blocks that hold no weight, and a negative number of bytes.
    """

    keep: str | Iterable[str] = DEFAULT_KEEP
    patterns: tuple[int, int] | Sequence[tuple[int, int]] = ()
    groups: Groups | None = None
    regions: Regions | None = None
    padding: Tensor | Callable[[Forward], Tensor] | None = None
    layers: int | None = None
    edits: Iterable[Edit] = ()
    step_on: nn.Module | None = None
    samples: slice | Callable[[Forward], slice | None] | None = None
    block_entries: int | None = None
    held_bytes: int = HELD_BYTES
    on_seen: Callable[[SeenLayers], None] | None = None  # is given all recorded layers; records then stay on the device (`take_step`)
    on_stacked: Callable[[Sequence[Stack]], None] | None = None  # is given forwards of at most `later_bytes`, which are not reduced
    later_bytes: int = 0
    averaged: frozenset[str] = frozenset()  # arrays that are averaged over heads on the device
    record: bool = True  # False: steps are counted and edited, and their records stay empty

    def __post_init__(self) -> None:
        if not (self.samples is None or isinstance(self.samples, slice) or callable(self.samples)):
            raise Refusal(f"samples={self.samples!r} does not say which samples are recorded; pass a slice, such as slice(0, 4).")
        if self.block_entries is not None and (not is_whole(self.block_entries) or self.block_entries < 1):
            raise Refusal(f"block_entries={self.block_entries!r}: at least one attention weight must be held at a time.")
        if not is_whole(self.held_bytes) or self.held_bytes < 0:
            raise Refusal(f"held_bytes={self.held_bytes!r} is not a number of bytes; 0 reduces every call at once.")


class Tap:
    """What `fl.tap` returns: a context manager that records. See `tap` for its options."""

    def __init__(self, model: nn.Module, request: TapRequest) -> None:
        refuse_what_cannot_be_tapped(model)
        step_on = request.step_on
        if step_on is not None and all(module is not step_on for module in model.modules()):
            raise Refusal(
                f"step_on is a {type(step_on).__name__} that is not part of the tapped model; pass the model or one of its modules."
            )
        self._model = model
        self._request = request
        self._step_module = model if step_on is None else step_on
        self._has_steps = step_on is not None
        self._keep = as_names(request.keep)
        self._makers = reducer_makers(self._keep)
        self._patterns = as_pairs(request.patterns)
        self._expected = expected_calls(self._step_module, request.layers)
        self._edits = refuse_uncallable(request.edits)
        self._recording = True
        self._workspace = Workspace(request.block_entries)
        self._reducing = Reducing(self._makers, self._workspace, request.averaged)
        self._steps: list[StepRecord | StepArrays] = []
        self._steps_taken = 0
        self._previous: dict[tuple[str, int], Received] = {}
        self._forward: Forward | None = None
        self._outer_inputs: dict[str, Any] = {}
        self._calls_outside_steps = 0
        self._assembled: tuple[int, xr.Dataset] | None = None

    def __enter__(self) -> "Tap":
        if getattr(_open_in_this_thread, "tap", None) is not None:
            raise Refusal("Another tap is open in this thread; close it first, or ask one tap for everything.")
        _open_in_this_thread.tap = self
        self._watch = AttentionWatch(self._model, self._on_attention)
        self._running = RunningModules(self._model, self._watch)
        if not self._running.is_known:
            self._watch.forget()
        self._handles: list[RemovableHandle] = [
            self._model.register_forward_pre_hook(self._remember_inputs, with_kwargs=True),
            self._model.register_forward_hook(self._forget_inputs, always_call=True),
            self._step_module.register_forward_pre_hook(self._begin_step, with_kwargs=True),
            self._step_module.register_forward_hook(self._end_step),
            self._step_module.register_forward_hook(self._leave_step, always_call=True),
        ]
        self._signatures = [inspect.signature(module.forward) for module in (self._model, self._step_module)]
        self._no_grad = torch.no_grad()
        self._no_grad.__enter__()
        self._watch.begin()
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        self._watch.end()
        self._running.remove()
        self._no_grad.__exit__(kind, error, traceback)
        for handle in self._handles:
            handle.remove()
        self._forward = None
        self._outer_inputs = {}
        self._previous.clear()
        self._workspace = Workspace(self._workspace.entries)
        self._reducing = replace(self._reducing, workspace=self._workspace)
        self._held = HeldCalls(self._reducing, self._patterns)
        _open_in_this_thread.tap = None
        if kind is None and not self._steps_seen:
            raise Refusal(
                f"No forward of {type(self._step_module).__name__} ran inside the tap. Run the module that is tapped (or step_on)."
            )

    @property
    def dataset(self) -> xr.Dataset:
        """Everything kept so far, over (sample, [step,] layer, head, group, query, key)."""
        if not self._steps:
            raise Refusal("The tap has not seen a finished forward yet.")
        if self._assembled is None or self._assembled[0] != len(self._steps):
            steps = [step for step in self._steps if isinstance(step, StepArrays)]
            dataset = assemble(steps, with_steps=self._has_steps, attributes=self._attributes())
            self._assembled = (len(self._steps), dataset)
        return self._assembled[1]

    @property
    def _steps_seen(self) -> int:
        return self._steps_taken + len(self._steps)

    def take_step(self) -> StepRecord:
        """The record of the last step, still on the device, which the tap then forgets: for recorders, which pass `on_seen`.

        It holds nothing but checks if the step was stacked, to be reduced with others.
        """
        self._steps_taken += 1
        step = self._steps.pop()
        assert isinstance(step, StepRecord)
        return step

    @contextmanager
    def unrecorded(self) -> Iterator[None]:
        """Forwards in here are no steps: edits apply to them, but nothing of them is kept. For passes that only fill a cache."""
        self._recording = False
        try:
            yield
        finally:
            self._recording = True

    def reduce_later(self, stacks: Sequence[Stack], checks: list[Check]) -> list[Record]:
        """Reduce what was only stacked, as the tap would have reduced it. What must be checked before it is handed out goes to `checks`."""
        with full_precision(stacks[0].observation.device):
            return [stack.reduced(self._reducing, self._patterns, checks) for stack in stacks]

    def _attributes(self) -> dict[str, Any]:
        return {
            "floatlens_version": __version__,
            "torch_version": torch.__version__,
            "model": type(self._model).__name__,
            "keep": list(self._keep),
            "edited": int(bool(self._edits)),
            "edits": [describe(edit) for edit in self._edits],
            "calls_outside_steps": self._calls_outside_steps,
        }

    def _remember_inputs(self, _module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._outer_inputs = named_inputs(self._signatures[0], args, kwargs)

    def _forget_inputs(self, _module: nn.Module, _args: Any, _output: Any) -> None:
        self._outer_inputs = {}

    def _leave_step(self, _module: nn.Module, _args: Any, _output: Any) -> None:
        self._forward = None  # also after a failed forward

    def _begin_step(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not self._has_steps and self._steps_seen:
            raise Refusal(
                f"A second forward of {type(module).__name__} began inside the tap. Pass step_on=model to record each forward as a step, "
                "or open a tap for each."
            )
        inputs, request = named_inputs(self._signatures[1], args, kwargs), self._request
        self._forward = Forward(
            step=self._steps_seen, inputs=inputs, groups=request.groups, regions=request.regions, pad_token=pad_token(self._model)
        )
        if callable(request.padding):
            padding = request.padding(self._forward)
        else:
            padding = request.padding if request.padding is not None else known_padding(inputs, self._outer_inputs)
        self._forward.padding = None if padding is None else torch.as_tensor(padding).bool()
        self._samples = request.samples(self._forward) if callable(request.samples) else request.samples
        self._numbers = LayerNumbers()
        step = None if request.on_seen is None else self._forward.step
        self._held = HeldCalls(self._reducing, self._patterns, self._forward.checks, request.on_seen, step)

    def _end_step(self, _module: nn.Module, _args: Any, _output: Any) -> None:
        if len(self._numbers.identities) < self._expected:
            self._watch.forget()
            self._running.forget()
            refuse_missing(self._numbers.identities, self._expected)
        seen = {identity.layer for identity in self._numbers.identities}
        for layer, _ in self._patterns:
            if layer not in seen:
                raise Refusal(f"patterns asks for layer {layer}; the layers of this model are {min(seen)} to {max(seen)}.")
        assert self._forward is not None
        self._running.settle()
        self._watch.settle()
        if not self._request.record:
            self._steps += [StepRecord()] if self._recording else []  # whoever edits reads the checks
            return
        self._held.reduce(self._request.later_bytes if self._recording else 0)
        if self._held.stacks and self._request.on_stacked is not None:
            self._request.on_stacked(self._held.stacks)
        step = StepRecord(self._held.records, self._forward.checks)
        if not self._recording:
            fetch_steps(StepRecord(checks=step.checks))
        else:
            self._steps += [step] if self._request.on_seen is not None else fetch_steps(step)

    def _on_attention(self, function: Callable[..., Tensor], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        module = self._running.calling()
        if module is None:  # another model, run inside the tap
            return function(*args, **kwargs)
        if self._forward is None:
            if not self._has_steps:
                raise Refusal(
                    f"{module or 'A part of the model'} was run by itself, outside a forward of {type(self._model).__name__}. "
                    "Tap the module that you run."
                )
            self._calls_outside_steps += 1
            return function(*args, **kwargs)
        identity = self._numbers.identify(module)
        if len(self._numbers.identities) > self._expected:
            refuse_surplus(identity, self._expected)
        own = read_call(args, kwargs)
        unedited = unpack_heads(own, self._running.packed_heads)
        named: dict[str, Any] = {"layer": identity.layer, "module": module, "repeat": identity.repeat, "step": self._forward.step}
        unedited = self._forward.locate(unedited, **named)
        scene = self._forward.scene(unedited, self._samples)  # checks the model's own call, whatever edits make of it
        call, before = unedited, Before(None, None, self._forward)
        if self._edits:
            with full_precision(unedited.query.device):
                before = self._before(unedited)
                call = apply_edits(self._edits, unedited, before)
        if call is unedited:
            output, logsumexp = run(own, lambda: function(*args, **kwargs))
        else:
            output, logsumexp = run(call)
        if logsumexp is not None:
            logsumexp = logsumexp.reshape(call.query.shape[:3])
        output = output.reshape(*own.query.shape[:3], -1)
        if not (self._recording and self._request.record):
            return output
        if call is not unedited:
            scene = self._forward.scene(call, self._samples, edited=True)
        self._hold(call, scene, logsumexp, before)
        return output

    def _before(self, call: AttentionCall) -> Before:
        """Statistics of the unedited call, for edits that want them."""
        assert self._forward is not None
        if not any(map(uses_statistics, self._edits)):
            return Before(None, None, self._forward)
        identity = (call.module, call.repeat)
        previous = self._previous.get(identity)
        now = received(self._forward.observe(call), self._workspace, self._forward.checks)
        if self._recording:
            self._previous[identity] = now
        return Before(now, previous, self._forward)

    def _hold(self, call: AttentionCall, scene: Scene, logsumexp: Tensor | None, before: Before) -> None:
        """Keep a call for later; reduce what is held if that is too much by now."""
        samples = self._samples
        if samples is not None:
            call = call.of_samples(samples)
            logsumexp = None if logsumexp is None else logsumexp[samples]
        mass = None if before.now is None else before.now.mass if samples is None else before.now.mass[samples]
        self._held.add(Held(self._numbers.identities[-1], call, scene, logsumexp, mass), self._request.held_bytes)


def tap(
    model: nn.Module,
    *,
    keep: str | Iterable[str] = DEFAULT_KEEP,
    patterns: tuple[int, int] | Sequence[tuple[int, int]] = (),
    groups: Groups | None = None,
    regions: Regions | None = None,
    padding: Tensor | Callable[[Forward], Tensor] | None = None,
    layers: int | None = None,
    edits: Iterable[Edit] = (),
    step_on: nn.Module | None = None,
    samples: slice | None = None,
    block_entries: int | None = None,
    held_bytes: int = HELD_BYTES,
) -> Tap:
    """Watch every attention call of a model while it runs, without changing a bit of what it computes.

    Gradients are off inside: the body runs under `torch.no_grad()`, so nothing computed in it has a graph, and `loss.backward()` on it
    fails. Parameters keep their `requires_grad`. To train, leave the tap; `torch.enable_grad()` inside it is refused.

    Parameters
    ----------
    model
        Any module whose attention goes through `torch.nn.functional.scaled_dot_product_attention`.
    keep
        What to keep of every call, one name or several: "mass", "halves", "entropy", "entropy:rows", "geometry", "norms", "flow" (needs
        `regions`), "top_keys:K" or "top_keys:K@group".
    patterns
        (layer, head) pairs whose full query x key pattern is kept, or one such pair.
    groups
        Query groups by name, each a boolean tensor (sample, query); or a function of the `Forward` that returns them. One group of all
        rows by default.
    regions
        Regions of the text by name, each (start, stop) or a boolean tensor over positions; or a function of the `Forward`. A span that is
        empty, reversed or reaches outside the text is refused.
    padding
        True (or 1) where a position is real, (sample, position). By default the forward's own 2D `attention_mask`.
    layers
        How many attention calls one forward makes, where the config does not say or the model skips or repeats some.
    edits
        Callables `edit(call, before) -> call` that may change a call before it runs; see `floatlens.capture.edits`.
    step_on
        A module of the model: every forward of it is a step of its own, and the dataset gets a `step` axis.
    samples
        Which samples of the batch are recorded, e.g. `slice(0, B)` for the conditional half under classifier-free guidance.
        Groups, regions and padding always cover the whole batch.
    block_entries
        How many attention weights are held at once; by default as many as suit the device, 2**20 on the CPU.
    held_bytes
        How many bytes of queries, keys and values are held before they are reduced, 256 MiB by default; layers that are held together
        are reduced together, which is faster. 0 reduces every call at once, for models that write to their own keys during a forward.

    Examples
    --------
    >>> import floatlens as fl, torch
    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> size = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)
    >>> model = LlamaForCausalLM(LlamaConfig(vocab_size=64, **size)).eval()
    >>> with fl.tap(model) as tap:
    ...     logits = model(torch.arange(10)[None]).logits
    >>> dict(tap.dataset.mass.sizes)
    {'sample': 1, 'layer': 2, 'head': 4, 'group': 1, 'key': 10}
    >>> round(float(tap.dataset.mass.sum("key")[0, 0, 0, 0]), 4)  # ten rows, each of which sums to 1
    10.0
    """
    return Tap(
        model,
        TapRequest(
            keep=keep,
            patterns=patterns,
            groups=groups,
            regions=regions,
            padding=padding,
            layers=layers,
            edits=edits,
            step_on=step_on,
            samples=samples,
            block_entries=block_entries,
            held_bytes=held_bytes,
        ),
    )
