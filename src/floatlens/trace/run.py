"""`lm.trace`: estimate, write, record, store."""

import json
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import Any

import numpy as np
import torch
import transformers
import xarray as xr
import zarr
from torch import Tensor

from floatlens._version import __version__
from floatlens.capture.edits import Edit, describe
from floatlens.capture.layers import refuse_what_cannot_be_tapped
from floatlens.capture.walk import BLOCK_ENTRIES, Workspace
from floatlens.decoding.canvas import Canvas, Step
from floatlens.decoding.options import AutoregressiveOptions, Options
from floatlens.decoding.prompts import AnyPrompt, EncodedPrompt
from floatlens.decoding.tokens import say_what_is_unknown, special_tokens, token_text
from floatlens.errors import Refusal
from floatlens.interventions.run import AnyIntervention, InterventionRun, run_of
from floatlens.models.language_model import LanguageModel, as_list, described, refuse_batch_size
from floatlens.seeds import refuse_seed
from floatlens.terminal import progress_bar
from floatlens.trace.estimate import estimate, refuse_too_large
from floatlens.trace.one_pass import one_pass_is_exact, trace_finished
from floatlens.trace.own_loop import record_own_loop
from floatlens.trace.recording import Arrays, Favourites, Recorder, canvas_arrays
from floatlens.trace.schema import COMMITTED_NOW, SCHEMA_VERSION, Detail, make_detail
from floatlens.trace.store import SampleInMemory, SampleStore, TraceFolder
from floatlens.trace.trace import SampleArrays, Trace, open_trace


def record_trace(
    lm: LanguageModel,
    prompts: AnyPrompt | Sequence[AnyPrompt],
    *,
    gen_length: int,
    steps: int | None,
    sampler: str | None,
    seed: int,
    batch_size: int,
    chat: bool | None,
    detail: str | dict[str, str],
    groups: Sequence[str] | None,
    top_keys: int,
    patterns: Sequence[tuple[int, int]],
    edits: Sequence[Edit],
    intervention: AnyIntervention | None,
    path: str | PathLike[str] | None,
    progress: bool,
    options: dict[str, Any],
) -> Trace:
    """See `LanguageModel.trace`."""
    refuse_batch_size(batch_size)
    seed = refuse_seed(seed)
    under = run_of(lm, intervention)
    refuse_what_cannot_be_tapped(lm.module)
    if not hasattr(lm.config, "num_hidden_layers"):
        raise Refusal(
            f"{type(lm.module).__name__} has no config that names its layers and heads, so it cannot be traced; fl.tap can watch it."
        )
    encoded = [lm.encode(prompt, chat=chat) for prompt in as_list(prompts)]
    say_what_is_unknown(lm, encoded)
    kept = make_detail(detail, groups, top_keys, patterns, autoregressive=lm.sampler == "autoregressive")
    _refuse_missing_heads(lm, kept)
    own = lm.sampler is None and sampler is None
    own_options = options if steps is None else {**options, "steps": steps}
    chosen = None if own else lm.options(encoded, gen_length, steps, sampler, options)
    regions = region_names(encoded)
    taken = lm.steps_at_most(encoded, chosen) if chosen is not None else int(own_options.get("steps") or gen_length)
    changes = [*(() if under is None else under.names), *map(describe, edits)]
    size = estimate(lm, encoded, gen_length, taken, kept, regions, batch_size, changes, own)
    refuse_too_large(size, path)
    said = {
        **_attributes(lm, seed, changes, kept, regions),
        "samples": len(encoded),
        "sampler": {"name": "own", "gen_length": gen_length, **json.loads(json.dumps(own_options, default=repr))}
        if chosen is None
        else described(chosen, sampler or lm.sampler),
    }
    stores = _InMemory() if path is None else _OnDisk(path)
    seen: dict[str, Any] = {}
    try:
        total = len(encoded) if chosen is None else lm.most_steps(encoded, chosen, batch_size)
        with progress_bar(total, f"Tracing {lm.name} ({size.on_disk})", show=progress) as advance:
            for first in range(0, len(encoded), 1 if chosen is None else batch_size):
                batch = encoded[first : first + (1 if chosen is None else batch_size)]
                samples = [_Sample(stores.new_sample(), prompt) for prompt in batch]
                if chosen is None:
                    canvas, favourites, facts = _own(lm, samples[0], gen_length, seed + first, own_options, kept, edits, under)
                    advance(1)
                else:
                    canvas = lm.canvas(batch, chosen, range(seed + first, seed + first + len(batch)))
                    inside = _regions_on(canvas, batch, regions)
                    favourites, facts = _record_batch(lm, canvas, inside, chosen, kept, edits, under, samples, advance)
                inside = _regions_on(canvas, batch, regions)
                for at, sample in enumerate(samples):
                    _finish(lm, sample, canvas, at, favourites[at], {name: rows[at] for name, rows in inside.items()})
                seen = _layer_facts(facts)
        if under is not None:
            under.say_if_nothing_was_removed()
        return stores.finish({**said, **seen})
    finally:
        stores.abandon()


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


def _own(
    lm: LanguageModel,
    sample: _Sample,
    gen_length: int,
    seed: int,
    options: dict[str, Any],
    detail: Detail,
    edits: Sequence[Edit],
    under: InterventionRun | None,
) -> tuple[Canvas, list[Favourites], xr.Dataset]:
    running = None if under is None else under.start([seed])
    canvas, arrays, favourites, facts = record_own_loop(lm, sample.prompt, gen_length, seed, options, detail, edits, running)
    sample.append(arrays)
    return canvas, favourites, facts


def _record_batch(
    lm: LanguageModel,
    canvas: Canvas,
    inside: dict[str, Tensor],
    options: Options,
    detail: Detail,
    edits: Sequence[Edit],
    under: InterventionRun | None,
    samples: Sequence[_Sample],
    advance: Callable[[int], None],
) -> tuple[list[Favourites], xr.Dataset]:
    """Run the loop on a batch; the favourite keys of each sample, and one step as it was seen."""
    if isinstance(options, AutoregressiveOptions) and not edits and under is None and one_pass_is_exact(lm):
        taken: list[Step] = []
        for step in lm.loop(lm.run_pass, canvas, options):
            taken.append(step)
            advance(1)
        finished, facts = trace_finished(lm, canvas, detail, inside)
        for number, (arrays, _) in enumerate(finished):
            canvases = [canvas_arrays(canvas, step, number) for step in taken if number in step.samples]
            of_steps: Arrays = {
                name: (("step", *dims), np.stack([one[name][1] for one in canvases])) for name, (dims, _) in canvases[0].items()
            }
            samples[number].append({**of_steps, **arrays})
        return [favourites for _, favourites in finished], facts
    running = None if under is None else under.start_batch(canvas, options)
    recorder = Recorder(lm, canvas, detail, inside, edits, Workspace(BLOCK_ENTRIES), running)
    with recorder.watching():
        for step in lm.loop(recorder.run, canvas, options):
            for number, arrays in recorder.step(step).items():
                samples[number].append({name: (("step", *dims), array[None]) for name, (dims, array) in arrays.items()})
            advance(1)
    return recorder.favourites, recorder.last_seen


def _finish(lm: LanguageModel, sample: _Sample, canvas: Canvas, number: int, favourites: Favourites, inside: dict[str, Tensor]) -> None:
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


def _characters(lm: LanguageModel, prompt: EncodedPrompt, final: np.ndarray, written: np.ndarray) -> tuple[np.ndarray, np.ndarray, str]:
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


def region_names(encoded: Sequence[EncodedPrompt]) -> list[str]:
    """The regions of all prompts in order, and the answer."""
    return [*dict.fromkeys(name for prompt in encoded for name in prompt.regions), "answer"]


def _regions_on(canvas: Canvas, batch: Sequence[EncodedPrompt], regions: Sequence[str]) -> dict[str, Tensor]:
    """bool (sample, position), by region."""
    inside = {name: torch.zeros_like(canvas.real) for name in regions}
    for sample, prompt in enumerate(batch):
        for name, of_tokens in prompt.regions.items():
            inside[name][sample, : len(of_tokens)] = torch.tensor(of_tokens, dtype=torch.bool, device=canvas.tokens.device)
    inside["answer"] = canvas.real & ~canvas.prompt
    return inside


def _layer_facts(seen: xr.Dataset) -> dict[str, Any]:
    return {
        "layers": seen.sizes["layer"],
        "heads": int(seen["heads"].max()),
        "layer_numbers": seen["layer"].values.tolist(),
        "modules": seen["module"].values.tolist(),
    }


def _refuse_missing_heads(lm: LanguageModel, detail: Detail) -> None:
    layers, heads = lm.config.num_hidden_layers, lm.config.num_attention_heads
    for layer, head in detail.patterns:
        if not (0 <= layer < layers and 0 <= head < heads):
            raise Refusal(
                f"patterns asks for layer {layer}, head {head}; {lm.name} has layers 0 to {layers - 1} and heads 0 to {heads - 1}."
            )


def _attributes(lm: LanguageModel, seed: int, edits: Sequence[str], detail: Detail, regions: Sequence[str]) -> dict[str, Any]:
    return {
        "format": "trace",
        "schema_version": SCHEMA_VERSION,
        "model": lm.name,
        "revision": lm.revision,
        "family": lm.family,
        "row_offset": lm.row_offset,
        "mask_token_id": lm.mask_token_id,
        "seed": seed,
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
        "edits": list(edits),
        "groups": list(detail.groups),
        "regions": list(regions),
        "chosen": [list(pair) for pair in detail.patterns],
        "detail": dict(detail.kept),
    }
