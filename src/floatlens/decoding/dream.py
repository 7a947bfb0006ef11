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
    fetched,
    keep_top_k,
    keep_top_p,
    log_odds,
    margin_rank,
    negative_entropy,
    rows_at,
    spans,
    uniform,
)
from floatlens.decoding.canvas import Canvas, Decision, Run, Step, commit, whole_canvas_pass
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
    considered = [canvas.masked[sample].nonzero()[:, 0] for sample in samples]
    if options.order == "origin":
        generators = [canvas.generators[sample] for sample in samples]
        kept = [
            _each_by_itself(len(own), shares[sample], draws) for own, sample, draws in zip(considered, samples, generators, strict=True)
        ]
        considered = [own[of_sample] for own, of_sample in zip(considered, kept, strict=True)]
    positions = torch.cat(considered)
    at_sample = torch.cat([torch.full((len(own),), index) for index, own in enumerate(considered)])
    wanted = torch.searchsorted(asked.wanted_rows, (positions - row_offset).clamp(min=0))
    rows = _filtered(rows_at(logits, at_sample, wanted), options)
    of_samples = list(zip(samples, spans(at_sample, len(samples)), strict=True))
    if options.temperature > 0:
        candidates = torch.cat([drawn(rows[own], canvas.generators[sample]) for sample, own in of_samples])
    else:
        candidates = rows.argmax(-1)
    odds = log_odds(rows, candidates)
    rank = odds if options.order == "origin" else _ranks(rows, odds, options)
    if _draws_order(options):
        lengths = canvas.lengths
        drawn_ranks = [
            _drawn_order(rank[own], rows.dtype, positions[own], lengths[sample], canvas.generators[sample], options)
            if _count(own, shares[sample])
            else rank[own]
            for sample, own in of_samples
        ]
        rank = torch.cat(drawn_ranks)
    candidates, odds, rank = fetched(candidates, odds, rank)
    decisions = [
        Decision(
            sample,
            positions[own],
            candidates[own].long(),
            odds[own].sigmoid(),
            _chosen(odds[own], rank[own], _count(own, shares[sample]), options),
        )
        for sample, own in of_samples
    ]
    return commit(canvas, asked, decisions)


def _count(masks: slice, share: Tensor | None) -> int:
    """How many of a sample's masks are written."""
    count = masks.stop - masks.start
    return count if share is None else int(torch.tensor(float(count)) * share)  # in float32, as published: it decides by rounding


def _chosen(odds: Tensor, rank: Tensor, count: int, options: DreamOptions) -> list[int]:
    """Which candidates are committed."""
    if options.order == "origin":
        return list(range(len(odds)))
    if options.threshold is not None:
        return above_threshold(odds, rank, options.threshold)
    return best_first(rank)[:count]


def _draws_order(options: DreamOptions) -> bool:
    return options.order != "origin" and options.threshold is None and options.order_temperature != 0


def _ranks(rows: Tensor, odds: Tensor, options: DreamOptions) -> Tensor:
    """What candidates are ranked by."""
    if options.order == "maskgit_plus":
        return odds
    return margin_rank(rows) if options.order == "topk_margin" else negative_entropy(rows)


def _drawn_order(
    rank: Tensor, dtype: torch.dtype, positions: Tensor, length: int, generator: torch.Generator, options: DreamOptions
) -> Tensor:
    """The candidates of a sample ranked in an order that is drawn: those of high rank tend to come first."""
    value = {"maskgit_plus": rank.sigmoid, "topk_margin": lambda: -(-rank).expm1(), "entropy": lambda: rank}[options.order]()
    everywhere = torch.full((length,), float("-inf"), dtype=dtype, device=rank.device)
    everywhere[positions.to(rank.device)] = value.to(dtype)
    probabilities = (everywhere / options.order_temperature).softmax(-1)
    noise = torch.empty(length, dtype=dtype, device=generator.device).exponential_(1, generator=generator)
    return (probabilities / noise.to(rank.device))[positions.to(rank.device)].double()


def _each_by_itself(masks: int, share: Tensor | None, generator: torch.Generator) -> Tensor:
    """Every mask with the same probability, independently; all of them at the last step. bool (mask,)

    Only the rows that are drawn draw their tokens, so that the host must know which before it can go on.
    """
    draws = uniform(generator, masks).cpu()
    return torch.ones_like(draws, dtype=torch.bool) if share is None else draws < share


def _filtered(rows: Tensor, options: DreamOptions) -> Tensor:
    if options.temperature > 0:
        rows = rows / options.temperature
    return keep_top_k(keep_top_p(rows, options.top_p), options.top_k)
