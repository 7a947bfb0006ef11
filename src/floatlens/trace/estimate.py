"""What a trace will take, before it is begun: bytes from shapes and texts, and time from one pass of the model.

The size on disk is an upper bound of all that is written: the arrays uncompressed, their checksums and indices, every `zarr.json` (twice:
the root repeats them), the texts, and the manifest. It is no bound for models that run their own `generate`, which decides how many steps
there are and how wide the canvas is.

Refused: a trace for which there is not enough memory or disk.
"""

import json
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil, prod
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch

from floatlens.capture.holding import HELD_BYTES
from floatlens.capture.reduction import SEEN_BYTES
from floatlens.capture.steps import TOGETHER_BYTES
from floatlens.decoding.canvas import Pass
from floatlens.decoding.model import Writer
from floatlens.decoding.plan import Plan, masks_in
from floatlens.decoding.prompts import EncodedPrompt
from floatlens.decoding.tokens import token_text
from floatlens.errors import Refusal
from floatlens.terminal import counted
from floatlens.trace.recording import MOVED_BYTES, layers_differ
from floatlens.trace.schema import STEPS_PER_SHARD, UNDER_INTERVENTIONS, Detail, promised_arrays
from floatlens.trace.store import LARGE_STEP

# what is written besides numbers, in bytes; each is somewhat more than the longest that occurs
_CHUNK = 16 + 4 + 16  # header of Blosc, checksum, entry of the shard's index
_SHARD = 4 + 2 * 90 + 210  # checksum of the index, its line among the checksums (and in the root's copy), its entry in the manifest
_CHUNK_CHECKSUM = 2 * 24
_ARRAY = 2 * 1300 + 700 + 2 * 30 + 210  # its zarr.json, the copy in the root with its indentation, its entry in the manifest
_AXIS = 2 * 110
_SAMPLE = 2 * 700 + 210
_TRACE = 2 * 1500 + 4500
_LAYER = 160  # its number and the path of its module
_TEXT_OF_TOKEN = 2 * 200  # where the tokenizer is not known yet
_PADDING_SHRINKS = 50  # a last shard is filled up with a constant, which compresses at least so much


@dataclass(frozen=True)
class Held:
    """Bytes of queries, keys and values that a step holds, at most: until its layers are reduced, and until it is known which rows predict.

    Examples
    --------
    >>> Held(queries=100_000_000, keys=25_000_000, candidates=20_000_000).sentence
    '150 MB until layers are reduced, 125 MB until it is known which rows predict'
    >>> Held(queries=1_000_000_000, keys=250_000_000, candidates=200_000_000).predicting == SEEN_BYTES  # the last layers go beyond it
    True
    """

    queries: int = 0
    keys: int = 0
    candidates: int = 0  # of the queries, those of rows that may predict

    @property
    def waiting(self) -> int:
        """Of calls that wait to be reduced."""
        return min(HELD_BYTES, self.queries + 2 * self.keys)

    @property
    def together(self) -> int:
        """Of small steps that wait to be reduced together, on the CPU."""
        return TOGETHER_BYTES if self.queries + 2 * self.keys <= TOGETHER_BYTES // 2 else 0

    @property
    def predicting(self) -> int:
        """Of layers that are looked at again once it is known which rows predict."""
        whole = self.queries + self.keys
        return whole if whole <= SEEN_BYTES else max(SEEN_BYTES, min(whole, self.candidates + self.keys))

    @property
    def sentence(self) -> str:
        """For people."""
        beyond = (
            f"; of all rows it would be {size_in_words(self.queries + self.keys)}, so that beyond {size_in_words(SEEN_BYTES)} only keys "
            "and the queries of rows that may predict stay"
            if self.queries + self.keys > SEEN_BYTES
            else ""
        )
        return (
            f"{size_in_words(self.waiting)} until layers are reduced, {size_in_words(self.predicting)} until it is known which rows "
            f"predict{beyond}"
        )


@dataclass(frozen=True)
class Estimate:
    """Bytes of a trace: at most on disk, of its arrays uncompressed, and in memory while it is recorded (the model itself not counted)."""

    samples: int
    steps: int
    length: int
    disk: int
    arrays: int
    memory: int
    memory_if_streamed: int
    held: Held = Held()
    is_bound: bool = True

    @property
    def on_disk(self) -> str:
        """The size on disk, for people."""
        return f"{'at most' if self.is_bound else 'about'} {size_in_words(self.disk)}"

    def sentence(self, seconds: float | None = None) -> str:
        """For people."""
        took = "" if seconds is None else f", about {_duration(seconds)}"
        return (
            f"{counted(self.samples, 'sample')} of {self.length} tokens, {self.steps} steps: {self.on_disk} on disk, "
            f"{size_in_words(self.memory_if_streamed)} of memory{took}."
        )


@dataclass(frozen=True)
class Shapes:
    """What the size of a trace follows from. `texts` are the bytes of prompts, completions and vocabularies, if they are known.

    Examples
    --------
    >>> from transformers import LlamaConfig
    >>> llada = LlamaConfig(num_hidden_layers=32, num_attention_heads=32, hidden_size=4096)
    >>> round(Shapes(llada, lengths=[512], steps=32, detail=Detail()).estimate().disk / 1e6)
    465
    """

    config: Any  # of the model
    lengths: Sequence[int]  # tokens of each sample
    steps: int
    detail: Detail
    regions: Sequence[str] = ("bos", "prompt", "answer")
    batch_size: int = 1
    may_predict: int | None = None  # rows of a sample, at most; all of them if None
    itemsize: int = 4  # bytes of a weight
    autoregressive: bool = False
    texts: int | None = None
    count_axes: tuple[str, ...] = ()
    edited: bool = False
    is_bound: bool = True

    def estimate(self) -> Estimate:
        """The size, from these numbers alone."""
        config, detail, longest = self.config, self.detail, max(self.lengths)
        of_samples = [self._bytes_in_memory(length, detail) for length in self.lengths]
        texts = sum(self.lengths) * _TEXT_OF_TOKEN if self.texts is None else self.texts
        names = sum(len(json.dumps(name)) + 30 for name in (*self.regions, *detail.groups)) + 60 * len(detail.patterns)
        layers = _LAYER * config.num_hidden_layers
        disk = _TRACE + 2 * names + layers + texts + sum(map(self._sample_on_disk, self.lengths))
        held = self._held()
        if self.autoregressive:  # one pass holds all steps of a sample, heads not yet averaged
            every_head = replace(detail, kept={name: "head" if value == "layer" else value for name, value in detail.kept.items()})
            at_once = 3 * self._bytes_in_memory(longest, every_head)
            all_kept, streamed = sum(of_samples) + at_once, max(of_samples) * self.batch_size + at_once
        else:
            shard = min(1.0, STEPS_PER_SHARD / self.steps)
            all_kept = sum(of_samples) + held.waiting + held.predicting + held.together
            widest = max(prod(shape) * itemsize for _, shape, itemsize in self._arrays(longest, detail))  # is joined when it is written
            collected = (2 * max(of_samples) * self.batch_size + widest) * shard  # one copy is collected, one waits to be written
            streamed = int(collected) + 3 * MOVED_BYTES + held.waiting + held.predicting + held.together
        return Estimate(len(self.lengths), self.steps, longest, disk, sum(of_samples), all_kept, streamed, held, self.is_bound)

    def _held(self) -> Held:
        """What the layers of one step hold; in some models layers differ in width."""
        config, longest = self.config, max(self.lengths)
        of_layers: Any = getattr(config, "per_layer_config", None)
        queries = keys = 0
        for own in [*of_layers] if of_layers is not None else [config] * config.num_hidden_layers:
            heads = own.num_attention_heads
            depth = getattr(own, "head_dim", None) or own.hidden_size // heads
            queries += heads * (depth + 1)  # with the logsumexp of each row
            keys += (getattr(own, "num_key_value_heads", None) or heads) * depth
        row = self.itemsize * self.batch_size  # bytes of a number, in all samples
        candidates = longest if self.may_predict is None else min(longest, self.may_predict)
        return Held(row * queries * longest, row * keys * longest, row * queries * candidates)

    def _arrays(self, length: int, detail: Detail) -> Iterator[tuple[tuple[str, ...], tuple[int, ...], int]]:
        """The axes, the shape and the bytes of an entry of every array of a sample."""
        sizes = {
            "step": self.steps,
            "layer": self.config.num_hidden_layers,
            "head": self.config.num_attention_heads,
            "group": len(detail.groups),
            "chosen": len(detail.patterns),
            **dict.fromkeys(("region", "query_region", "key_region"), len(self.regions)),
            **dict.fromkeys(("position", "query", "key"), length),
            "rank": detail.top_keys,
        }
        promised = promised_arrays(detail.kept, bool(detail.patterns), self.count_axes)
        for axes, dtype in (promised | (UNDER_INTERVENTIONS if self.edited else {})).values():
            yield axes, tuple(sizes[axis] for axis in axes), np.dtype(dtype).itemsize

    def _bytes_in_memory(self, length: int, detail: Detail) -> int:
        return sum(prod(shape) * itemsize for _, shape, itemsize in self._arrays(length, detail))

    def _sample_on_disk(self, length: int) -> int:
        """Bytes of a sample without its texts."""
        return _SAMPLE + sum(_bytes_on_disk(axes, shape, itemsize) for axes, shape, itemsize in self._arrays(length, self.detail))


def _bytes_on_disk(axes: tuple[str, ...], shape: tuple[int, ...], itemsize: int) -> int:
    """At most, of an array: what `trace/store.py` makes of it."""
    numbers = prod(shape) * itemsize
    shards = chunks = 1
    if axes[0] == "step":
        shards = ceil(shape[0] / STEPS_PER_SHARD)
        if "layer" not in axes and numbers > LARGE_STEP * shape[0]:
            chunks = min(shape[0], STEPS_PER_SHARD)
        else:
            filled = shards * min(shape[0], STEPS_PER_SHARD) / shape[0]
            numbers += ceil(numbers * (filled - 1) / _PADDING_SHRINKS)
    if "layer" in axes:
        chunks = shape[axes.index("layer")]
    around = shards * (_SHARD + chunks * (_CHUNK + _CHUNK_CHECKSUM))
    return numbers + around + _ARRAY + len(axes) * _AXIS


def estimate(plan: Plan, detail: Detail, changes: Sequence[str] = ()) -> Estimate:
    """For prompts that are about to be traced; `changes` describes interventions and edits."""
    lm, gen_length = plan.lm, plan.decoding.gen_length
    shapes = Shapes(
        config=lm.config,
        lengths=[len(prompt.tokens) + gen_length + len(lm.suffix) for prompt in plan.encoded],
        steps=max(plan.steps_at_most, 1),
        detail=detail,
        regions=region_names(plan.encoded),
        batch_size=min(plan.decoding.batch_size, len(plan.encoded)),
        may_predict=None if plan.options is None else max(gen_length + masks_in(lm, prompt) for prompt in plan.encoded),
        itemsize=lm.dtype.itemsize,
        autoregressive=lm.sampler == "autoregressive",
        texts=_bytes_of_texts(plan) + 2 * sum(len(json.dumps(change)) + 30 for change in changes),
        count_axes=("layer", "head") if changes else ("layer",) if layers_differ(lm) else (),
        edited=bool(changes),
        is_bound=plan.options is not None,
    )
    return shapes.estimate()


def region_names(encoded: Sequence[EncodedPrompt]) -> list[str]:
    """The regions of all prompts in order, and the answer."""
    return [*dict.fromkeys(name for prompt in encoded for name in prompt.regions), "answer"]


def _bytes_of_texts(plan: Plan) -> int:
    """At most, of prompts, completions and vocabularies as JSON; everything is written twice, in the sample and in the root."""
    lm, gen_length = plan.lm, plan.decoding.gen_length
    longest = _longest_token(lm)
    known: dict[int, int] = {}
    total = 0
    for prompt in plan.encoded:
        given = {*prompt.tokens, *lm.suffix, *([] if lm.mask_token_id is None else [lm.mask_token_id])}
        for token in given - known.keys():
            known[token] = _as_json(token_text(lm.tokenizer, token))
        written = gen_length + masks_in(lm, prompt)
        entries = sum(known[token] for token in given) + written * longest + (len(given) + written) * 32  # the id, its indentation
        total += _as_json(prompt.text) + written * longest + entries
    return 2 * total


def _longest_token(lm: Writer) -> int:
    """Bytes of the longest token as JSON. Pieces of a vocabulary are never shorter than the text they stand for."""
    if lm.tokenizer is None:
        return _as_json(token_text(None, 10**7))
    return max(24, *(_as_json(piece) + 2 for piece in lm.tokenizer.get_vocab()))


def _as_json(text: str) -> int:
    return len(json.dumps(text))


def seconds(lm: Writer, size: Estimate) -> float:
    """How long it will take, from one pass over a text of that length."""
    tokens = torch.zeros(1, size.length, dtype=torch.long, device=lm.device)
    asked = Pass(
        [0],
        tokens,
        torch.ones_like(tokens, dtype=torch.bool),
        torch.zeros_like(tokens, dtype=torch.bool),
        torch.tensor([0], device=lm.device),
    )
    began = time.perf_counter()
    lm.run_pass(asked)
    of_pass = time.perf_counter() - began
    if lm.sampler == "autoregressive":
        return of_pass * size.samples * (2.5 + size.steps / max(size.length, 1) * 4)
    return of_pass * 1.3 * size.steps * size.samples


def refuse_too_large(size: Estimate, path: str | PathLike[str] | None) -> None:
    """Refuse what will not fit, before anything is run."""
    free = psutil.virtual_memory().available
    needed = size.memory if path is None else size.memory_if_streamed
    if needed > free:
        remedy = (
            "Write it to disk during the run (path=...)" if path is None and size.memory_if_streamed < free else "Use a smaller batch_size"
        )
        raise Refusal(
            f"This trace needs {size_in_words(needed)} of memory, and {size_in_words(free)} are free. {remedy}, keep less "
            "(detail='light'), or trace fewer prompts."
        )
    if path is not None:
        room = shutil.disk_usage(Path(path).absolute().parent).free if Path(path).absolute().parent.is_dir() else None
        if room is not None and size.disk > room:
            raise Refusal(
                f"This trace may take {size_in_words(size.disk)} on disk, and {size_in_words(room)} are free. Keep less "
                "(detail='light'), or trace fewer prompts."
            )


def size_in_words(count: float) -> str:
    """Bytes for people."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
