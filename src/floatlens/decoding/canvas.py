"""What a loop works on, what it asks for, and what it says it did.

A `Canvas` is a batch of texts being written, padded on the right, each with its own random generator. A loop yields one `Step` after
another; for each it has asked for a `Pass`, a forward of the model, through a function it was given. So the same loop generates, is
traced, and is tested without a model.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(eq=False)
class Canvas:
    """Texts being written, (sample, position), padded on the right. `masked` is what is still to be written."""

    tokens: Tensor
    masked: Tensor
    real: Tensor  # bool: positions that exist
    start: list[int]  # position of the first token to be written, by sample
    generators: list[torch.Generator]
    mask_token_id: int | None

    def __post_init__(self) -> None:
        self.prompt = self.real & ~self.masked

    @property
    def samples(self) -> int:
        return len(self.tokens)

    @property
    def lengths(self) -> list[int]:
        return self.real.sum(-1).tolist()

    def only(self, sample: int) -> "Canvas":
        """One sample by itself, as far as its text goes."""
        own = slice(sample, sample + 1), slice(0, self.lengths[sample])
        alone = Canvas(
            self.tokens[own], self.masked[own], self.real[own], [self.start[sample]], [self.generators[sample]], self.mask_token_id
        )
        alone.prompt = self.prompt[own]
        return alone

    def end_at(self, lengths: Sequence[int]) -> None:
        """Shorten the texts: what was never begun does not exist."""
        for sample, length in enumerate(lengths):
            self.real[sample, length:] = False
        self.masked &= self.real

    def open_samples(self, within: Tensor | None = None) -> list[int]:
        """Samples with something left to write (in these positions)."""
        left = self.masked if within is None else self.masked & within
        return left.any(-1).nonzero()[:, 0].tolist()


@dataclass(frozen=True, eq=False)
class Pass:
    """One forward that a loop asks for. Row r of sample s stands at position `past + r - offset[s]` of its text."""

    samples: list[int]  # the samples of the canvas that are run
    tokens: Tensor  # (sample, row)
    real: Tensor  # bool (sample, row)
    masked: Tensor  # bool (sample, row): rows that hold a mask
    wanted_rows: Tensor | None  # rows whose logits are needed, in order; None for all
    guidance: float = 0.0
    unguided: Tensor | None = None  # the same tokens without the prompt, if there is guidance
    past: int = 0  # keys in the cache when the pass begins
    past_real: Tensor | None = None  # bool (sample, past)
    offset: list[int] | None = None  # padding before the text, by sample; none if None
    cache: Any = None
    visible: Tensor | None = None  # bool (sample, 1, row, key): who sees whom, where the model cannot know by itself
    is_step: bool = True

    @property
    def real_keys(self) -> Tensor:
        """bool (sample, past + row)."""
        return self.real if self.past_real is None else torch.cat([self.past_real, self.real], dim=1)

    def position(self, sample: int, row: int) -> int:
        """Where a row of the pass stands in the text of its n-th sample."""
        return self.past + row - (self.offset[sample] if self.offset else 0)


Run = Callable[[Pass], Tensor]
"""Runs a pass; returns logits (sample, wanted row, vocabulary)."""


@dataclass(frozen=True, eq=False)
class Step:
    """What a step did: everything on the canvas of the whole batch, (sample, position)."""

    samples: list[int]  # those that took part
    asked: Pass
    tokens: Tensor  # before the step
    masked: Tensor  # before the step
    committed: Tensor  # bool: written in this step
    confidence: Tensor  # probability of the candidate, NaN where none was considered


def blank_canvas(
    prompts: Sequence[Sequence[int]],
    gen_length: int | Sequence[int],
    mask_token_id: int,
    seeds: Sequence[int],
    suffix: Sequence[int] = (),
    pad_token_id: int = 0,
    device: torch.device | str = "cpu",
) -> Canvas:
    """Prompts followed by masks (and a suffix, for models that end every text with one).

    With a generation length of 0, the masks that stand in the prompts are what is to be written.

    Examples
    --------
    >>> canvas = blank_canvas([[5, 6], [7]], gen_length=2, mask_token_id=9, seeds=[0, 1])
    >>> canvas.tokens.tolist()
    [[5, 6, 9, 9], [7, 9, 9, 0]]
    >>> canvas.masked.tolist()[1]
    [False, True, True, False]
    """
    lengths = [gen_length] * len(prompts) if isinstance(gen_length, int) else list(gen_length)
    texts = [[*prompt, *[mask_token_id] * length, *suffix] for prompt, length in zip(prompts, lengths, strict=True)]
    longest = max(map(len, texts))
    tokens = torch.full((len(texts), longest), pad_token_id, dtype=torch.long)
    real = torch.zeros_like(tokens, dtype=torch.bool)
    masked = torch.zeros_like(real)
    for sample, (prompt, length, text) in enumerate(zip(prompts, lengths, texts, strict=True)):
        tokens[sample, : len(text)] = torch.tensor(text, dtype=torch.long)
        real[sample, : len(text)] = True
        if length:
            masked[sample, len(prompt) : len(prompt) + length] = True
        else:
            masked[sample] = real[sample] & (tokens[sample] == mask_token_id)
    generators = [torch.Generator(device=device).manual_seed(seed) for seed in seeds]
    start = [len(prompt) if length else 0 for prompt, length in zip(prompts, lengths, strict=True)]
    return Canvas(tokens.to(device), masked.to(device), real.to(device), start, generators, mask_token_id)


def whole_canvas_pass(canvas: Canvas, samples: list[int], row_offset: int, candidates: Tensor, guidance: float = 0.0) -> Pass:
    """A pass over the whole text of these samples, with logits for the rows that fill the candidates (bool, whole canvas)."""
    longest = max(canvas.lengths[sample] for sample in samples)
    tokens = canvas.tokens[samples, :longest]
    unguided = None
    if guidance > 0:
        assert canvas.mask_token_id is not None
        unguided = tokens.masked_fill(canvas.prompt[samples, :longest], canvas.mask_token_id)
    positions = candidates[samples].any(0).nonzero()[:, 0]
    rows = torch.unique((positions - row_offset).clamp(min=0))
    return Pass(
        samples, tokens, canvas.real[samples, :longest], canvas.masked[samples, :longest], rows, guidance=guidance, unguided=unguided
    )


def commit(
    canvas: Canvas, samples: list[int], asked: Pass, written: dict[int, list[tuple[int, int]]], confidence: dict[int, dict[int, float]]
) -> Step:
    """Write tokens, (position, token) by sample, and say so. A model that writes the mask token itself has written nothing."""
    tokens, masked = canvas.tokens.clone(), canvas.masked.clone()
    committed = torch.zeros_like(masked)
    confidences = torch.full(tokens.shape, float("nan"), device=tokens.device)
    for sample, placed in written.items():
        for position, token in placed:
            if token == canvas.mask_token_id:
                continue
            canvas.tokens[sample, position] = token
            canvas.masked[sample, position] = False
            committed[sample, position] = True
    for sample, of_sample in confidence.items():
        for position, value in of_sample.items():
            confidences[sample, position] = value
    return Step(samples, asked, tokens, masked, committed, confidences)
