"""What a loop works on, what it asks for, and what it says it did.

A `Canvas` is a batch of texts being written, padded on the right, each with its own random generator. A loop yields one `Step` after
another; for each it has asked for a `Pass`, a forward of the model, through a function it was given. So the same loop generates, is
traced, and is tested without a model.

The canvas lies in host memory, whatever device the model runs on: which samples go on, which rows are wanted and what is written are
decided there, and what a pass needs is sent along with it. The only thing that a loop waits for is what the model makes of the wanted
rows, once per step (`candidates.fetched`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

DRAWING = ("cpu", "cuda", "xpu", "mps")
"""Devices that draw random numbers themselves; for any other the host draws them."""


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
        return [sample for sample, is_open in enumerate(left.any(-1).tolist()) if is_open]


@dataclass(frozen=True, eq=False)
class Pass:
    """One forward that a loop asks for. Row r of sample s stands at position `past + r - offset[s]` of its text.

    Its tensors may be in host memory; whoever runs the pass brings them to the model.
    """

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
    """Prompts followed by masks (and a suffix, for models that end every text with one); random numbers are drawn on the device.

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
    draws = torch.device(device) if torch.device(device).type in DRAWING else torch.device("cpu")
    generators = [torch.Generator(device=draws).manual_seed(seed) for seed in seeds]
    start = [len(prompt) if length else 0 for prompt, length in zip(prompts, lengths, strict=True)]
    return Canvas(tokens, masked, real, start, generators, mask_token_id)


def whole_canvas_pass(canvas: Canvas, samples: list[int], row_offset: int, candidates: Tensor, guidance: float = 0.0) -> Pass:
    """A pass over the whole text of these samples, with logits for the rows that fill the candidates (bool, whole canvas)."""
    lengths = canvas.lengths
    longest = max(lengths[sample] for sample in samples)
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


@dataclass(frozen=True, eq=False)
class Decision:
    """What a step decides for a sample: the positions it considered, a token for each, how sure it is of it, and which ones it writes."""

    sample: int
    positions: Tensor  # (candidate,)
    tokens: Tensor  # (candidate,)
    confidence: Tensor  # (candidate,): a probability
    chosen: Sequence[int]  # candidates


def commit(canvas: Canvas, asked: Pass, decisions: Sequence[Decision]) -> Step:
    """Write what was decided, and say so. A model that writes the mask token itself has written nothing."""
    tokens, masked = canvas.tokens.clone(), canvas.masked.clone()
    committed = torch.zeros_like(masked)
    confidences = torch.full(tokens.shape, float("nan"))
    for decision in decisions:
        confidences[decision.sample, decision.positions] = decision.confidence.float()
        chosen = torch.tensor(decision.chosen, dtype=torch.long)
        places, written = decision.positions[chosen], decision.tokens[chosen]
        if canvas.mask_token_id is not None:
            places, written = places[written != canvas.mask_token_id], written[written != canvas.mask_token_id]
        canvas.tokens[decision.sample, places] = written
        canvas.masked[decision.sample, places] = False
        committed[decision.sample, places] = True
    return Step([decision.sample for decision in decisions], asked, tokens, masked, committed, confidences)
