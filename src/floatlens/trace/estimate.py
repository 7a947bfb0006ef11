"""What a trace will take, before it is begun: numbers from shapes alone, and time from one pass of the model."""

import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import psutil
import torch

from floatlens.decoding.canvas import Pass
from floatlens.errors import Refusal
from floatlens.models.language_model import LanguageModel
from floatlens.trace.schema import STEPS_PER_SHARD, Detail


@dataclass(frozen=True)
class Estimate:
    """Bytes of a trace: uncompressed on disk, and in memory while it is recorded (the model itself not counted)."""

    samples: int
    steps: int
    length: int
    disk: int
    memory: int
    memory_if_streamed: int

    def sentence(self, seconds: float | None = None) -> str:
        """For people."""
        took = "" if seconds is None else f", about {_duration(seconds)}"
        return (
            f"{self.samples} sample{'s' * (self.samples != 1)} of {self.length} tokens, {self.steps} steps: at most {size_in_words(self.disk)} on disk, "
            f"{size_in_words(self.memory_if_streamed)} of memory{took}."
        )


def trace_estimate(
    config: Any,
    lengths: Sequence[int],
    steps: int,
    detail: Detail,
    regions: int = 3,
    batch_size: int = 1,
    itemsize: int = 4,
    autoregressive: bool = False,
) -> Estimate:
    """From a model's config alone.

    Examples
    --------
    >>> from transformers import LlamaConfig
    >>> llada = LlamaConfig(num_hidden_layers=32, num_attention_heads=32, hidden_size=4096)
    >>> round(trace_estimate(llada, [512], 32, Detail()).disk / 1e6)
    465
    """
    of_samples = [_bytes(config, length, steps, detail, regions) for length in lengths]
    longest = max(lengths)
    if autoregressive:  # one pass holds all steps of a sample, heads not yet averaged
        every_head = Detail(
            {name: "head" if value == "layer" else value for name, value in detail.kept.items()},
            detail.groups,
            detail.top_keys,
            detail.patterns,
        )
        at_once = 3 * _bytes(config, longest, steps, every_head, regions)
        return Estimate(len(lengths), steps, longest, sum(of_samples), sum(of_samples) + at_once, max(of_samples) * batch_size + at_once)
    held = 2 * config.num_hidden_layers * config.hidden_size * longest * itemsize * batch_size
    shard = min(1.0, STEPS_PER_SHARD / steps)
    streamed = int(max(of_samples) * batch_size * shard * 2)  # one copy collected, one being written
    return Estimate(len(lengths), steps, longest, sum(of_samples), sum(of_samples) + held, streamed + held)


def estimate(
    lm: LanguageModel, encoded: Sequence[Any], gen_length: int, steps: int, detail: Detail, regions: int, batch_size: int
) -> Estimate:
    """For prompts that are about to be traced."""
    autoregressive = lm.sampler == "autoregressive"
    lengths = [len(prompt.tokens) + gen_length + len(lm.suffix) for prompt in encoded]
    return trace_estimate(lm.config, lengths, max(steps, 1), detail, regions, batch_size, lm.dtype.itemsize, autoregressive)


def seconds(lm: LanguageModel, size: Estimate) -> float:
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
    one = time.perf_counter() - began
    if lm.sampler == "autoregressive":
        return one * size.samples * (2.5 + size.steps / max(size.length, 1) * 4)
    return one * 1.3 * size.steps * size.samples


def refuse_too_large(size: Estimate, path: str | PathLike[str] | None) -> None:
    """Refuse what will not fit, before anything is run."""
    free = psutil.virtual_memory().available
    needed = size.memory if path is None else size.memory_if_streamed
    if needed > free:
        remedy = "Write it to disk as it goes (path=...)" if path is None and size.memory_if_streamed < free else "Use a smaller batch_size"
        raise Refusal(
            f"This trace needs {size_in_words(needed)} of memory, and {size_in_words(free)} are free. {remedy}, keep less (detail='light'), or trace fewer prompts."
        )
    if path is not None:
        room = shutil.disk_usage(Path(path).absolute().parent).free if Path(path).absolute().parent.is_dir() else None
        if room is not None and size.disk > room:
            raise Refusal(
                f"This trace may take {size_in_words(size.disk)} on disk, and {size_in_words(room)} are free. Keep less (detail='light'), or trace fewer prompts."
            )


def _bytes(config: Any, length: int, steps: int, detail: Detail, regions: int) -> int:
    layers, heads, groups = config.num_hidden_layers, config.num_attention_heads, len(detail.groups)

    def of_heads(name: str) -> int:
        return heads if detail.per_head(name) else 1

    per_step = length * (4 + 1 + 4)
    if detail.keeps("mass"):
        per_step += 4 * groups * (layers * of_heads("mass") * length + 2 * length)
    if detail.keeps("halves"):
        per_step += 4 * groups * (layers * of_heads("halves") * length + 2 * length)
    if detail.keeps("entropy"):
        per_step += 4 * groups * layers * of_heads("entropy")
    if detail.keeps("geometry"):
        per_step += 4 * 3 * groups * layers * of_heads("geometry") * length
    if detail.keeps("norms"):
        per_step += 4 * 3 * layers * of_heads("norms") * length
    if detail.keeps("flow"):
        per_step += 4 * 2 * layers * of_heads("flow") * regions * regions
    per_step += 4 * len(detail.patterns) * length * length
    favourites = layers * heads * length * (8 * detail.top_keys + 4) if detail.keeps("top_keys") else 0
    return per_step * steps + favourites


def size_in_words(count: float) -> str:
    """Bytes for people."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
