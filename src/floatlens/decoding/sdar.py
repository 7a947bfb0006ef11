"""SDAR's loop, token for token in float32: blocks denoised one after another on a cache of finished blocks.

Blocks are counted from position 0 of each prompt, so the end of a prompt shares its block with the first masks. A batch is padded on the
left by whole blocks, which leaves every border where it is. A finished block is run once more to store its keys and values; that pass is
no step. A denoising pass must leave no keys behind, so the cache is cut back after it.

What differs from the published script, on purpose: where fewer masks are left than planned, only masks are written (its top-k reaches,
and rewrites, tokens of the prompt and tokens that the block has committed); `entropy_bounded` ranks by the entropy of each row's
distribution (the published line sums the confidences of the whole block and fails); temperature 0 takes the best token.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from floatlens.decoding.candidates import best_first, drawn, fetched, filtered, log_odds, negative_entropy, rows_at, spans
from floatlens.decoding.canvas import Canvas, Decision, Pass, Run, Step, commit
from floatlens.decoding.llada import even_shares
from floatlens.decoding.options import SdarOptions


def denoise(run: Run, canvas: Canvas, options: SdarOptions, new_cache: Callable[[], Any], end_tokens: Sequence[int] = ()) -> Iterator[Step]:
    """Write block after block. The canvas must end on a block border (`whole_blocks`)."""
    length = options.block_length
    full_blocks = [start // length for start in canvas.start]
    deepest = max(full_blocks)
    frame = _Frame(canvas, new_cache(), [(deepest - full) * length for full in full_blocks], length)
    if deepest:
        run(frame.store(0, deepest * length))
    going = list(range(canvas.samples))
    planned = even_shares(length, options.steps_per_block)
    written = list(canvas.start)
    block = deepest
    while going:
        inside = frame.inside(block)
        passes = planned if options.order != "entropy_bounded" else [1] * length
        for count in passes:
            samples = [sample for sample in canvas.open_samples(inside) if sample in going]
            if not samples:
                break
            yield _step(run, canvas, frame, block, samples, count, options)
        written = [frame.stop(block, sample) if sample in going else until for sample, until in enumerate(written)]
        if options.stop_at_eos:
            going = [sample for sample in going if not _has_ended(canvas, sample, frame.stop(block, sample), end_tokens)]
        going = [sample for sample in going if frame.stop(block, sample) < canvas.lengths[sample]]
        if going:
            run(frame.store(block * length, (block + 1) * length))
        block += 1
    canvas.end_at(written)


def whole_blocks(prompt_length: int, gen_length: int, block_length: int) -> int:
    """How many masks follow the prompt so that the text ends on a block border.

    Examples
    --------
    >>> whole_blocks(6, 8, 4)  # 14 positions become 16
    10
    """
    return -(-(prompt_length + gen_length) // block_length) * block_length - prompt_length


@dataclass(eq=False)
class _Frame:
    """The canvas with whole blocks of padding on the left, so that all samples denoise their next block together."""

    canvas: Canvas
    cache: Any
    offset: list[int]
    block_length: int

    def __post_init__(self) -> None:
        longest = max(offset + length for offset, length in zip(self.offset, self.canvas.lengths, strict=True))
        shape = (self.canvas.samples, longest)
        self.real = torch.zeros(shape, dtype=torch.bool)
        for sample, (offset, length) in enumerate(zip(self.offset, self.canvas.lengths, strict=True)):
            self.real[sample, offset : offset + length] = True

    def stop(self, block: int, sample: int) -> int:
        """The position of the sample at which the block ends."""
        return (block + 1) * self.block_length - self.offset[sample]

    def inside(self, block: int) -> Tensor:
        """bool (sample, position) on the canvas."""
        inside = torch.zeros_like(self.canvas.masked)
        for sample in range(self.canvas.samples):
            stop = self.stop(block, sample)
            inside[sample, stop - self.block_length : stop] = True
        return inside

    def denoising_pass(self, block: int) -> Pass:
        return self._pass(block * self.block_length, (block + 1) * self.block_length, is_step=True)

    def store(self, start: int, stop: int) -> Pass:
        """A pass that stores the keys and values of finished blocks."""
        return self._pass(start, stop, is_step=False)

    def _pass(self, start: int, stop: int, *, is_step: bool) -> Pass:
        shape = (self.canvas.samples, stop - start)
        tokens = torch.zeros(shape, dtype=torch.long)
        masked = torch.zeros_like(tokens, dtype=torch.bool)
        for sample, offset in enumerate(self.offset):
            here = slice(max(start - offset, 0), min(stop - offset, self.canvas.lengths[sample]))
            if here.stop > here.start:
                there = slice(here.start + offset - start, here.stop + offset - start)
                tokens[sample, there] = self.canvas.tokens[sample, here]
                masked[sample, there] = self.canvas.masked[sample, here]
        frame_block = torch.arange(stop) // self.block_length
        visible = (frame_block[start:, None] >= frame_block[None, :]) & self.real[:, None, :stop]
        visible |= torch.eye(stop, dtype=torch.bool)[start:]  # padding rows must see something
        return Pass(
            list(range(self.canvas.samples)),
            tokens,
            self.real[:, start:stop],
            masked,
            None,
            past=start,
            past_real=self.real[:, :start],
            offset=self.offset,
            cache=self.cache,
            visible=visible[:, None],
            is_step=is_step,
        )


def _step(run: Run, canvas: Canvas, frame: _Frame, block: int, samples: list[int], planned: int, options: SdarOptions) -> Step:
    asked = frame.denoising_pass(block)
    logits = run(asked)
    frame.cache.crop(-asked.tokens.shape[1])
    first = [frame.stop(block, sample) - options.block_length for sample in samples]
    masks = [
        canvas.masked[sample, start : start + options.block_length].nonzero()[:, 0] for sample, start in zip(samples, first, strict=True)
    ]
    at_sample = torch.cat([torch.full((len(own),), index) for index, own in enumerate(masks)])
    of_samples = spans(at_sample, len(samples))
    whole = torch.arange(options.block_length).repeat(len(samples))  # the whole block: the published loop draws for all of it
    every_row = rows_at(logits, torch.tensor(samples).repeat_interleave(options.block_length), whole)
    every_row = filtered(every_row, options.temperature, options.top_k, options.top_p)
    if options.temperature > 0:
        by_sample = zip(samples, every_row.split(options.block_length), strict=True)
        candidates = torch.cat([drawn(rows, canvas.generators[sample]) for sample, rows in by_sample])
    else:
        candidates = every_row.argmax(-1)
    masked = (at_sample * options.block_length + torch.cat(masks)).to(every_row.device)
    rows, candidates = every_row[masked], candidates[masked]
    odds = log_odds(rows, candidates)
    entropy = -negative_entropy(rows) if options.order == "entropy_bounded" else odds
    candidates, odds, entropy = fetched(candidates, odds, entropy)
    decisions = [
        Decision(sample, start + own, candidates[span].long(), odds[span].sigmoid(), _chosen(odds[span], entropy[span], planned, options))
        for sample, start, own, span in zip(samples, first, masks, of_samples, strict=True)
    ]
    return commit(canvas, asked, decisions)


def _chosen(odds: Tensor, entropy: Tensor, planned: int, options: SdarOptions) -> list[int]:
    """Which of the block's masks are committed."""
    if options.order == "sequential":
        return list(range(min(planned, len(odds))))
    if options.order == "entropy_bounded":
        order = best_first(-entropy)
        within = int((entropy[order].cumsum(0) < options.entropy_bound).sum())
        return order[: max(1, within)]
    best = best_first(odds)
    if options.order == "low_confidence_dynamic":
        sure = [index for index, value in enumerate(odds.sigmoid().tolist()) if value > options.threshold]
        if len(sure) >= planned:
            return sure
    return best[:planned]


def _has_ended(canvas: Canvas, sample: int, stop: int, end_tokens: Sequence[int]) -> bool:
    return any(token in end_tokens for token in canvas.tokens[sample, canvas.start[sample] : stop].tolist())
