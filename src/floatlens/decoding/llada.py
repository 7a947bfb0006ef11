"""LLaDA's loop, token for token in float32: semi-autoregressive blocks, most confident candidates first.

What differs from the published script, on purpose: candidates are ranked by log-odds in float64 with ties to the left (the published
softmax has the precision of the logits, so in bfloat16 many candidates tie that are told apart here); every sample has a generator of its
own; with a temperature, `eos_last` keeps the end-of-text token back as well (the published line forgets it there).

The noise of a step is drawn for the whole text even where few rows are needed, so a single sample consumes its generator as the published
loop does.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from floatlens.decoding.candidates import (
    above_threshold,
    best_first,
    fetched,
    gumbel_argmax,
    log_odds,
    rows_at,
    spans,
    uniform,
    uniform_rows,
)
from floatlens.decoding.canvas import Canvas, Decision, Run, Step, commit, whole_canvas_pass
from floatlens.decoding.options import LladaOptions


def denoise(run: Run, canvas: Canvas, options: LladaOptions, row_offset: int = 0, end_tokens: Sequence[int] = ()) -> Iterator[Step]:
    """Write the masks of the canvas; `eos_last` keeps all `end_tokens` back, `forbid_eos` forbids the first of them, end-of-text."""
    for block in range(options.blocks):
        inside, reached = _block(canvas, block, options)
        planned = _plan(canvas, inside, options)
        for step in range(max(map(len, planned))):
            samples = canvas.open_samples(reached)
            if not samples:
                break
            counts = [plan[step] if step < len(plan) else 0 for plan in planned]
            yield _step(run, canvas, samples, reached, counts, options, row_offset, end_tokens)


def _block(canvas: Canvas, block: int, options: LladaOptions) -> tuple[Tensor, Tensor]:
    """bool (sample, position), twice: the positions of a block, and those up to its end. Masks inside a prompt are all one block."""
    if options.gen_length == 0:
        return canvas.real, canvas.real
    length = options.block_length or options.gen_length
    inside, reached = torch.zeros_like(canvas.masked), torch.zeros_like(canvas.masked)
    for sample, start in enumerate(canvas.start):
        inside[sample, start + block * length : start + (block + 1) * length] = True
        reached[sample, : start + (block + 1) * length] = True
    return inside, reached


def _plan(canvas: Canvas, inside: Tensor, options: LladaOptions) -> list[list[int]]:
    """How many to commit at each step, by sample: evenly, the remainder first. Under a threshold, one for each mask at most."""
    masks = (canvas.masked & inside).sum(-1).tolist()
    steps = [count if options.threshold is not None else min(options.steps_per_block, count) for count in masks]
    return [even_shares(count, of_sample) if of_sample else [] for count, of_sample in zip(masks, steps, strict=True)]


def even_shares(count: int, steps: int) -> list[int]:
    """`count` divided evenly over the steps, the remainder going to the first ones.

    Examples
    --------
    >>> even_shares(7, 3)
    [3, 2, 2]
    """
    return [count // steps + (step < count % steps) for step in range(steps)]


def _step(
    run: Run,
    canvas: Canvas,
    samples: list[int],
    reached: Tensor,
    planned: list[int],
    options: LladaOptions,
    row_offset: int,
    end_tokens: Sequence[int],
) -> Step:
    considered = canvas.masked & reached
    asked = whole_canvas_pass(canvas, samples, row_offset, considered, options.guidance)
    logits = run(asked)
    assert asked.wanted_rows is not None
    at_sample, positions = considered[samples].nonzero().unbind(-1)
    wanted = torch.searchsorted(asked.wanted_rows, (positions - row_offset).clamp(min=0))
    rows = rows_at(logits, at_sample, wanted)
    if options.forbid_eos and end_tokens:
        rows = rows.index_fill(-1, torch.tensor([end_tokens[0]], device=rows.device), float("-inf"))
    of_samples = spans(at_sample, len(samples))
    lengths = canvas.lengths
    if options.temperature > 0:
        candidates = torch.cat(
            [
                gumbel_argmax(rows[own], _noise(canvas, sample, lengths[sample], rows, positions[own].tolist()), options.temperature)
                for sample, own in zip(samples, of_samples, strict=True)
            ]
        )
    else:
        candidates = rows.argmax(-1)
    if options.eos_last and end_tokens:
        rows = rows.index_fill(-1, torch.tensor(list(end_tokens), device=rows.device), float("-inf"))
    odds = rank = log_odds(rows, candidates)
    if options.remasking == "random":
        drawn = [
            uniform(canvas.generators[sample], lengths[sample])[positions[own]] for sample, own in zip(samples, of_samples, strict=True)
        ]
        rank = torch.cat(drawn).to(odds.device).double().masked_fill(odds.isneginf(), float("-inf"))
    candidates, odds, rank = fetched(candidates, odds, rank)
    decisions = []
    for sample, own in zip(samples, of_samples, strict=True):
        if options.threshold is None:
            chosen = best_first(rank[own])[: planned[sample]]
        else:
            chosen = above_threshold(odds[own], rank[own], options.threshold)
        decisions.append(Decision(sample, positions[own], candidates[own].long(), odds[own].sigmoid(), chosen))
    return commit(canvas, asked, decisions)


def _noise(canvas: Canvas, sample: int, length: int, rows: Tensor, positions: list[int]) -> Tensor:
    return uniform_rows(canvas.generators[sample], length, rows.shape[-1], positions).to(rows.device)
