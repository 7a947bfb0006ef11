"""Record a trace: check and estimate (`plan_trace`), then write, watch and store (`TracePlan.run`).

A denoising loop is recorded step by step; the steps of an autoregressive model that nothing changes are read off one pass over its
finished text (`one_pass`); a model that runs its own `generate` is watched from outside (`own_loop`). What has no step axis is stored
when a sample is done.

Refused, before anything runs: a seed for each prompt (a trace stores one), a module that cannot be tapped, heads that do not exist, and a
trace for which there is no room.
"""

import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import Any

import numpy as np
import torch
import transformers
import zarr
from torch import Tensor

from floatlens._version import __version__
from floatlens.capture.edits import Edit, describe
from floatlens.capture.layers import refuse_what_cannot_be_tapped
from floatlens.capture.records import StepArrays
from floatlens.capture.walk import Workspace
from floatlens.decoding.canvas import Canvas, Step
from floatlens.decoding.model import Writer
from floatlens.decoding.options import AutoregressiveOptions, Decoding
from floatlens.decoding.plan import Batch, Plan, plan_writing
from floatlens.decoding.prompts import AnyPrompt, EncodedPrompt
from floatlens.decoding.tokens import special_tokens, token_text, writes_words
from floatlens.errors import Refusal
from floatlens.interventions.run import InterventionRun
from floatlens.seeds import refuse_seed
from floatlens.terminal import progress_bar
from floatlens.trace.estimate import Estimate, estimate, refuse_too_large, region_names, seconds
from floatlens.trace.own_axes import Favourites
from floatlens.trace.recording import Recorder, canvas_arrays
from floatlens.trace.schema import COMMITTED_NOW, SCHEMA_VERSION, Arrays, Detail
from floatlens.trace.store import SampleInMemory, SampleStore, TraceFolder
from floatlens.trace.trace import SampleArrays, Trace, open_trace

_LENGTH_DEPENDENT = ("dynamic", "longrope")  # kinds of rotary embedding


@dataclass(frozen=True, eq=False)
class TracePlan:
    """A trace that is about to be recorded: everything is checked, and `size` says what it will take. `run` records it, once."""

    writing: Plan
    detail: Detail
    edits: tuple[Edit, ...]
    under: InterventionRun | None  # interventions, which come before the edits
    size: Estimate

    @property
    def lm(self) -> Writer:
        """The model."""
        return self.writing.lm

    @property
    def changes(self) -> list[str]:
        """Interventions and edits in words."""
        return _described(self.under, self.edits)

    def seconds(self) -> float | None:
        """How long it will take, from one pass of the model; None if the model runs its own loop, whose steps nobody knows."""
        return None if self.lm.sampler is None else seconds(self.lm, self.size)

    def run(self, path: str | PathLike[str] | None = None, *, progress: bool = True) -> Trace:
        """Write after each prompt and record where the model looks; straight into a folder, if `path` names one."""
        refuse_too_large(self.size, path)
        plan, attributes = self.writing, _attributes(self)
        stores = _InMemory() if path is None else _OnDisk(path)
        try:
            with progress_bar(plan.steps_of_all_batches, f"Tracing {self.lm.name} ({self.size.on_disk})", show=progress) as advance:
                for batch in plan.batches():
                    samples = [_Sample(stores.new_sample(), prompt) for prompt in batch.prompts]
                    canvas, favourites, seen = _record_batch(self, batch, samples, advance)
                    inside = _regions_on(canvas, batch.prompts, attributes["regions"])
                    for number, sample in enumerate(samples):
                        _finish(self.lm, sample, canvas, number, favourites[number], {name: rows[number] for name, rows in inside.items()})
                    attributes |= _layer_facts(seen)
            if self.under is not None:
                self.under.say_if_nothing_was_removed()
            return stores.finish(attributes)
        finally:
            stores.abandon()


def plan_trace(
    lm: Writer,
    prompts: AnyPrompt | Sequence[AnyPrompt],
    decoding: Decoding,
    detail: Detail,
    edits: Sequence[Edit] = (),
    under: InterventionRun | None = None,
) -> TracePlan:
    """Check everything, encode the prompts and estimate the size. See `LanguageModel.trace`."""
    refuse_seed(decoding.seed)
    refuse_what_cannot_be_tapped(lm.module)
    if not hasattr(lm.config, "num_hidden_layers"):
        raise Refusal(
            f"{type(lm.module).__name__} has no config that names its layers and heads, so it cannot be traced; fl.tap can watch it."
        )
    detail = detail.fitted(autoregressive=lm.sampler == "autoregressive")
    _refuse_missing_heads(lm, detail)
    writing = plan_writing(lm, prompts, decoding)
    return TracePlan(writing, detail, tuple(edits), under, estimate(writing, detail, _described(under, edits)))


def _described(under: InterventionRun | None, edits: Sequence[Edit]) -> list[str]:
    return [*(() if under is None else under.names), *map(describe, edits)]


@dataclass(eq=False)
class _Sample:
    """A sample being recorded: where it goes, and what is needed of its steps at the end."""

    store: SampleStore
    prompt: EncodedPrompt
    states: list[np.ndarray] = field(default_factory=list)
    tokens_seen: set[int] = field(default_factory=set)

    def append(self, steps: Arrays) -> None:
        self.states.append(steps["state"][1])
        self.tokens_seen.update(np.unique(steps["canvas"][1]).tolist())
        self.store.append(steps)


class _InMemory:
    """Samples that stay in memory."""

    def __init__(self) -> None:
        self._samples: list[SampleInMemory] = []

    def new_sample(self) -> SampleInMemory:
        self._samples.append(SampleInMemory())
        return self._samples[-1]

    def finish(self, attributes: dict[str, Any]) -> Trace:
        return Trace([SampleArrays(sample.arrays, sample.attributes) for sample in self._samples], attributes)

    def abandon(self) -> None:
        """Nothing to leave behind."""


class _OnDisk:
    """Samples that are written as they come."""

    def __init__(self, path: str | PathLike[str]) -> None:
        self._folder = TraceFolder(path)
        self._count = 0

    def new_sample(self) -> SampleStore:
        self._count += 1
        return self._folder.sample(self._count - 1)

    def finish(self, attributes: dict[str, Any]) -> Trace:
        self._folder.finish(attributes)
        return open_trace(self._folder.path)

    def abandon(self) -> None:
        self._folder.abandon()


def _record_batch(
    plan: TracePlan, batch: Batch, samples: Sequence[_Sample], advance: Callable[[int], None]
) -> tuple[Canvas, list[Favourites], StepArrays]:
    """Write a batch and store its steps; the finished canvas, the favourite keys of each sample, and one step as it was seen."""
    if plan.writing.options is None:
        recorded = _record_own_loop(plan, batch, samples[0])
        advance(1)
        return recorded
    canvas = plan.writing.canvas(batch)
    inside = _regions_on(canvas, batch.prompts, region_names(plan.writing.encoded))
    changed = bool(plan.edits) or plan.under is not None
    if isinstance(plan.writing.options, AutoregressiveOptions) and not changed and _rows_stay_the_same(plan.lm):
        return canvas, *_record_finished(plan, canvas, inside, samples, advance)
    running = None if plan.under is None else plan.under.start_batch(canvas, plan.writing.options)
    recorder = Recorder(
        plan.lm,
        canvas,
        plan.detail,
        inside,
        lambda number, steps: samples[number].append(steps),
        plan.edits,
        Workspace(),
        running,
    )
    with recorder.watching():
        for step in plan.writing.loop(recorder.run, canvas):
            recorder.step(step)
            advance(1)
    return canvas, recorder.favourites, recorder.last_seen


def _rows_stay_the_same(lm: Writer) -> bool:
    """Whether rows of a causal model stay what they are while the text grows: not where its rotary embedding depends on the length."""
    rope: Any = getattr(lm.config, "rope_parameters", None) or {}
    kinds = [part.get("rope_type") for part in rope.values() if isinstance(part, dict)] or [rope.get("rope_type")]
    return not any(kind in _LENGTH_DEPENDENT for kind in kinds)


def _record_own_loop(plan: TracePlan, batch: Batch, sample: _Sample) -> tuple[Canvas, list[Favourites], StepArrays]:
    """One prompt, written by the model's own `generate`."""
    from floatlens.trace.own_loop import record_own_loop

    running = None if plan.under is None else plan.under.start(batch.seeds)
    canvas, arrays, favourites, seen = record_own_loop(
        plan.lm, sample.prompt, plan.writing.decoding, batch.seeds[0], plan.detail, plan.edits, running
    )
    sample.append(arrays)
    return canvas, favourites, seen


def _record_finished(
    plan: TracePlan, canvas: Canvas, inside: dict[str, Tensor], samples: Sequence[_Sample], advance: Callable[[int], None]
) -> tuple[list[Favourites], StepArrays]:
    """Write with an autoregressive model first; then one pass over each finished text shows all of its steps."""
    from floatlens.trace.one_pass import trace_finished

    steps: list[Step] = []
    for step in plan.writing.loop(plan.lm.run_pass, canvas):
        steps.append(step)
        advance(1)
    finished, seen = trace_finished(plan.lm, canvas, plan.detail, inside)
    for number, (arrays, _) in enumerate(finished):
        length = canvas.lengths[number]
        canvases = [canvas_arrays(canvas, step, number, length) for step in steps if number in step.samples]
        of_steps: Arrays = {
            name: (("step", *dims), np.stack([of_step[name][1] for of_step in canvases])) for name, (dims, _) in canvases[0].items()
        }
        samples[number].append({**of_steps, **arrays})
    return [favourites for _, favourites in finished], seen


def _finish(lm: Writer, sample: _Sample, canvas: Canvas, number: int, favourites: Favourites, inside: dict[str, Tensor]) -> None:
    """Store what has no step axis."""
    states = np.concatenate(sample.states)
    length = states.shape[1]
    exists = canvas.real[number, :length].cpu().numpy()
    given = canvas.prompt[number, :length].cpu().numpy()
    final = np.where(exists, canvas.tokens[number, :length].cpu().numpy(), -1).astype(np.int32)
    now = states == COMMITTED_NOW
    committed = np.where(now.any(0) & exists, len(now) - 1 - now[::-1].argmax(0), -1).astype(np.int32)
    starts, stops, completion = _characters(lm, sample.prompt, final, exists & ~given)
    template = np.ones(length, bool)  # a suffix is the template's, too
    template[: len(sample.prompt.template)] = sample.prompt.template
    arrays: Arrays = {
        "final": (("position",), final),
        "committed": (("position",), committed),
        "char_start": (("position",), starts),
        "char_stop": (("position",), stops),
        "template": (("position",), template & given),
        "special": (("position",), np.isin(final, [*special_tokens(lm.tokenizer), *lm.end_tokens])),
        "in_region": (("region", "position"), np.stack([rows[:length].cpu().numpy() for rows in inside.values()])),
        **favourites.labelled(),
    }
    ids = sorted(token for token in {*final.tolist(), *sample.tokens_seen} if token >= 0)
    texts = {str(token): token_text(lm.tokenizer, token) for token in ids}
    sample.store.finish(arrays, {"prompt": sample.prompt.text, "completion": completion, "vocabulary": texts})


def _characters(lm: Writer, prompt: EncodedPrompt, final: np.ndarray, written: np.ndarray) -> tuple[np.ndarray, np.ndarray, str]:
    """Characters of prompt and completion that each token covers. A token that completes a character begun by another covers it."""
    starts, stops = np.full(len(final), -1, np.int32), np.full(len(final), -1, np.int32)
    starts[: len(prompt.starts)], stops[: len(prompt.stops)] = prompt.starts, prompt.stops
    if lm.tokenizer is None:
        return starts, stops, ""
    positions = np.flatnonzero(written)
    tokens = final[positions].tolist()
    before = prompt.tokens[-1:]  # decoded along, so that the first token keeps the blank it begins with
    known = lm.tokenizer.decode(before, skip_special_tokens=False) if before else ""
    if known.endswith("\ufffd"):
        before, known = [], ""
    texts = [lm.tokenizer.decode([*before, *tokens[: count + 1]], skip_special_tokens=False)[len(known) :] for count in range(len(tokens))]
    if (positions < len(prompt.tokens)).any():  # masks inside the prompt: their characters are the prompt's
        return starts, stops, texts[-1]
    end = len(prompt.text)
    for position, text in zip(positions, texts, strict=True):
        whole = len(prompt.text) + len(text.rstrip("\ufffd"))
        if whole > end:
            starts[position], stops[position], end = end, whole, whole
    return starts, stops, texts[-1] if texts else ""


def _regions_on(canvas: Canvas, batch: Sequence[EncodedPrompt], regions: Sequence[str]) -> dict[str, Tensor]:
    """bool (sample, position), by region."""
    inside = {name: torch.zeros_like(canvas.real) for name in regions}
    for sample, prompt in enumerate(batch):
        for name, of_tokens in prompt.regions.items():
            inside[name][sample, : len(of_tokens)] = torch.tensor(of_tokens, dtype=torch.bool, device=canvas.tokens.device)
    inside["answer"] = canvas.real & ~canvas.prompt
    return inside


def _layer_facts(seen: StepArrays) -> dict[str, Any]:
    return {
        "layers": len(seen.layers),
        "heads": max(seen.heads),
        "layer_numbers": [identity.layer for identity in seen.layers],
        "modules": [identity.module for identity in seen.layers],
    }


def _refuse_missing_heads(lm: Writer, detail: Detail) -> None:
    layers, heads = lm.config.num_hidden_layers, lm.config.num_attention_heads
    for layer, head in detail.patterns:
        if not (0 <= layer < layers and 0 <= head < heads):
            raise Refusal(
                f"patterns asks for layer {layer}, head {head}; {lm.name} has layers 0 to {layers - 1} and heads 0 to {heads - 1}."
            )


def _attributes(plan: TracePlan) -> dict[str, Any]:
    """What was run, and how: stored whole with the trace."""
    lm, detail = plan.lm, plan.detail
    return {
        "format": "trace",
        "schema_version": SCHEMA_VERSION,
        "model": lm.name,
        "revision": lm.revision,
        "family": lm.family,
        "row_offset": lm.row_offset,
        "mask_token_id": lm.mask_token_id,
        "writes_words": writes_words(lm.tokenizer),
        "seed": refuse_seed(plan.writing.decoding.seed),
        "dtype": str(lm.dtype).removeprefix("torch."),
        "device": str(lm.device),
        "threads": torch.get_num_threads(),
        "versions": {
            "floatlens": __version__,
            "torch": str(torch.__version__),
            "transformers": transformers.__version__,
            "zarr": zarr.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
        "edits": plan.changes,
        "groups": list(detail.groups),
        "regions": region_names(plan.writing.encoded),
        "chosen": [list(pair) for pair in detail.patterns],
        "detail": dict(detail.kept),
        "samples": len(plan.writing.encoded),
        "sampler": plan.writing.described,
    }
