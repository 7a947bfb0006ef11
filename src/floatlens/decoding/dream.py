"""Dream's loop, token for token in float32: one block, and at each step the share of masks that the schedule prescribes.

What differs from the published class, on purpose: candidates are ranked in float64 with ties to the left; each sample has a generator of
its own; and the number of masks is that of each sample instead of the batch's mean. An order that is drawn (`order_temperature`) is drawn
among the masks only; the published draw can reach prompt tokens when probabilities underflow, and erases them.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from floatlens.decoding.candidates import (
    above_threshold,
    best_first,
    drawn,
    keep_top_k,
    keep_top_p,
    log_odds,
    margin_rank,
    negative_entropy,
)
from floatlens.decoding.canvas import Canvas, Run, Step, commit, whole_canvas_pass
from floatlens.decoding.options import DreamOptions


def denoise(run: Run, canvas: Canvas, options: DreamOptions, row_offset: int = 1) -> Iterator[Step]:
    """Write the masks of the canvas."""
    masks = canvas.masked.sum(-1).tolist()
    steps = [count if options.threshold is not None or options.steps is None else options.steps for count in masks]
    for step in range(max(steps)):
        samples = canvas.open_samples()
        if not samples:
            break
        yield _step(run, canvas, samples, {sample: _share(step, steps[sample], options.eps) for sample in samples}, options, row_offset)


def _share(step: int, steps: int, eps: float) -> Tensor | None:
    """The share of a sample's masks that a step writes, in float32 as published; None for all that is left."""
    times = torch.linspace(1, eps, steps + 1)
    return None if step >= steps - 1 else 1 - times[step + 1] / times[step]


def _step(run: Run, canvas: Canvas, samples: list[int], shares: dict[int, Tensor | None], options: DreamOptions, row_offset: int) -> Step:
    asked = whole_canvas_pass(canvas, samples, row_offset, canvas.masked)
    logits = run(asked)
    assert asked.wanted_rows is not None
    place = {row: index for index, row in enumerate(asked.wanted_rows.tolist())}
    written, confidence = {}, {}
    for index, sample in enumerate(samples):
        positions = canvas.masked[sample].nonzero()[:, 0].tolist()
        rows = logits[index, [place[max(position - row_offset, 0)] for position in positions]]
        generator, share = canvas.generators[sample], shares[sample]
        if options.order == "origin":
            kept = _each_by_itself(len(positions), share, generator)
            positions, rows = [positions[index] for index in kept], rows[kept]
        rows = _filtered(rows, options)
        candidates = drawn(rows, generator) if options.temperature > 0 else rows.argmax(-1)
        odds = log_odds(rows, candidates) if len(rows) else torch.zeros(0, dtype=torch.float64, device=rows.device)
        chosen = _chosen(rows, odds, positions, canvas.lengths[sample], share, generator, options)
        written[sample] = [(positions[index], int(candidates[index])) for index in chosen]
        confidence[sample] = dict(zip(positions, odds.sigmoid().tolist(), strict=True))
    return commit(canvas, samples, asked, written, confidence)


def _chosen(
    rows: Tensor, odds: Tensor, positions: list[int], length: int, share: Tensor | None, generator: torch.Generator, options: DreamOptions
) -> list[int]:
    """Which candidates are committed."""
    if options.order == "origin":
        return list(range(len(positions)))
    ranks = {"maskgit_plus": lambda: odds, "topk_margin": lambda: margin_rank(rows), "entropy": lambda: negative_entropy(rows)}
    if options.threshold is not None:
        return above_threshold(odds, ranks[options.order](), options.threshold)
    masks = torch.tensor(float(len(positions)))
    count = len(positions) if share is None else int(masks * share)  # in float32, as published: it decides by rounding
    if count == 0:
        return []
    if options.order_temperature == 0:
        return best_first(ranks[options.order]())[:count]
    value = {
        "maskgit_plus": lambda: odds.sigmoid(),
        "topk_margin": lambda: -(-margin_rank(rows)).expm1(),
        "entropy": lambda: negative_entropy(rows),
    }[options.order]()
    everywhere = torch.full((length,), float("-inf"), dtype=rows.dtype, device=rows.device)
    everywhere[positions] = value.to(rows.dtype)
    probabilities = (everywhere / options.order_temperature).softmax(-1)
    noise = torch.empty_like(probabilities).exponential_(1, generator=generator)
    return best_first((probabilities / noise)[positions])[:count]


def _each_by_itself(masks: int, share: Tensor | None, generator: torch.Generator) -> list[int]:
    """Every mask with the same probability, independently; all of them at the last step."""
    draws = torch.rand(masks, generator=generator, device=generator.device)
    return list(range(masks)) if share is None else (draws < share.to(draws.device)).nonzero()[:, 0].tolist()


def _filtered(rows: Tensor, options: DreamOptions) -> Tensor:
    if options.temperature > 0:
        rows = rows / options.temperature
    return keep_top_k(keep_top_p(rows, options.top_p), options.top_k)
