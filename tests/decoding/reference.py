"""Straight-line decoding loops of LLaDA, Dream and SDAR, written from the published code and from nothing of floatlens.

One sample, no cache, loops over positions: slow, and meant to be read. Every random number is drawn with the shape, dtype and order
of the published code on a batch of one, so that equal seeds give equal tokens. What may differ on purpose: positions are ranked in
float64 (by log-odds where the published code ranks by probability, which saturates at 1), and ties go to the left.

A position counts as masked as long as it holds the mask id, so a loop that commits the mask id itself leaves the position open.
"""

import math
from collections.abc import Callable, Sequence
from typing import Literal, TypedDict

import torch
from torch import Tensor

PASS_LIMIT = 10_000
"""Passes after which a loop that runs until no mask is left gives up (it keeps committing the mask id)."""


class Step(TypedDict):
    """One forward pass and what was done with it."""

    canvas: list[int]
    """All tokens before the pass."""
    committed: dict[int, int]
    """Position -> token written."""
    confidence: dict[int, float]
    """Candidate position -> confidence as the published code defines it, in float64."""
    score: dict[int, float]
    """Candidate position -> what it was ranked by (log-odds if the confidence is a probability); empty if nothing was ranked."""


# ---------------------------------------------------------------------------------------------------------------- shared arithmetic


def even_plan(count: int, steps: int) -> list[int]:
    """How many of `count` tokens each step commits: the same for all, the remainder one each to the first steps."""
    plan = []
    for step in range(steps):
        plan.append(count // steps + (1 if step < count % steps else 0))
    return plan


def best(score: dict[int, float], count: int) -> list[int]:
    """The `count` positions of highest score (all if there are fewer); of equals, the left one."""
    return sorted(score, key=lambda position: (-score[position], position))[:count]


def first_largest(row: Tensor) -> int:
    """Index of the largest value; of equals, the first."""
    values = row.tolist()
    return values.index(max(values))


def probabilities(row: Tensor) -> Tensor:
    """Softmax in float64."""
    return torch.softmax(row.double(), dim=-1)


def log_odds(row: Tensor, token: int) -> float:
    """Log of p / (1 - p) for `token`, straight from the logits: its logit minus the logsumexp of all others."""
    row = row.double()
    logit = float(row[token])
    if logit == -math.inf:
        return -math.inf
    others = torch.cat([row[:token], row[token + 1 :]])
    return logit - float(torch.logsumexp(others, dim=-1))


def keep_top_k(row: Tensor, top_k: int) -> Tensor:
    """Logits below the k-th largest become -inf (all that equal it stay)."""
    smallest_kept = torch.topk(row, min(top_k, row.numel())).values[-1]
    return torch.where(row < smallest_kept, torch.full_like(row, -math.inf), row)


def keep_top_p(row: Tensor, top_p: float) -> Tensor:
    """Keep tokens by falling probability up to and including the one whose cumulative probability first exceeds `top_p`."""
    ordered, tokens = torch.sort(row, descending=True)
    cumulative = torch.cumsum(torch.softmax(ordered, dim=-1), dim=-1)
    kept = row.clone()
    for rank in range(1, row.numel()):
        if cumulative[rank - 1] > top_p:
            kept[tokens[rank]] = -math.inf
    return kept


def masked(canvas: Sequence[int], mask_id: int, start: int, end: int) -> list[int]:
    """Positions of [start, end) that hold the mask id."""
    return [position for position in range(start, end) if canvas[position] == mask_id]


# ---------------------------------------------------------------------------------------------------------------------------- LLaDA


def llada(
    logits_of: Callable[[Tensor], Tensor],
    prompt: Sequence[int],
    mask_id: int,
    gen_length: int,
    steps: int,
    block_length: int,
    temperature: float = 0.0,
    remasking: Literal["low_confidence", "random"] = "low_confidence",
    cfg_scale: float = 0.0,
    forbid_eos: int | None = None,
    forbid_eos_confidence: Sequence[int] = (),
    threshold: float | None = None,
    generator: torch.Generator | None = None,
) -> tuple[list[int], list[Step]]:
    """LLaDA's loop; with `threshold`, Fast-dLLM's.

    `forbid_eos_confidence` removes the ids from the softmax that confidences are read off, after the candidates are chosen.
    The published option means (EOS, end of turn) at temperature 0 but, by an oversight, (end of turn,) only above it.
    """
    if gen_length % block_length or steps % (gen_length // block_length):
        raise ValueError("gen_length must be a multiple of block_length, and steps of the number of blocks")
    blocks = gen_length // block_length
    canvas = list(prompt) + [mask_id] * gen_length
    prompt_positions = [position for position, token in enumerate(canvas) if token != mask_id]
    record: list[Step] = []

    for block in range(blocks):
        start = len(prompt) + block * block_length
        end = start + block_length
        plan = even_plan(len(masked(canvas, mask_id, start, end)), steps // blocks)
        passes = 0
        while True:
            if threshold is None:
                if passes == len(plan):
                    break
            elif passes > 0 and not masked(canvas, mask_id, start, end):
                break
            if passes == PASS_LIMIT:
                raise RuntimeError("masks are left after very many passes: the model keeps predicting the mask id")

            logits = logits_of(torch.tensor([canvas]))
            if cfg_scale > 0:
                without_prompt = list(canvas)
                for position in prompt_positions:
                    without_prompt[position] = mask_id
                unconditional = logits_of(torch.tensor([without_prompt]))
                logits = unconditional + (cfg_scale + 1) * (logits - unconditional)
            logits = logits.clone()
            if forbid_eos is not None:
                logits[0, :, forbid_eos] = -math.inf

            perturbed = logits
            if temperature > 0:
                uniform = torch.rand(logits.shape, dtype=torch.float64, generator=generator)
                perturbed = logits.double().exp() / (-torch.log(uniform)) ** temperature

            confidence_logits = logits.clone()
            for token in forbid_eos_confidence:
                confidence_logits[0, :, token] = -math.inf

            random_confidence = torch.zeros(1, len(canvas))
            if remasking == "random":
                random_confidence = torch.rand((1, len(canvas)), generator=generator)

            candidate: dict[int, int] = {}
            confidence: dict[int, float] = {}
            score: dict[int, float] = {}
            for position in masked(canvas, mask_id, 0, end):
                token = first_largest(perturbed[0, position])
                candidate[position] = token
                if remasking == "random":
                    confidence[position] = float(random_confidence[0, position])
                    score[position] = confidence[position]
                else:
                    row = confidence_logits[0, position]
                    confidence[position] = float(probabilities(row)[token])
                    score[position] = log_odds(row, token)

            if threshold is None:
                chosen = best(score, plan[passes])
            else:
                chosen = best(score, 1)
                for position in candidate:
                    if confidence[position] > threshold and position not in chosen:
                        chosen.append(position)

            committed = {position: candidate[position] for position in sorted(chosen)}
            record.append({"canvas": list(canvas), "committed": committed, "confidence": confidence, "score": score})
            for position, token in committed.items():
                canvas[position] = token
            passes += 1

    return canvas, record


# ---------------------------------------------------------------------------------------------------------------------------- Dream


def dream_filter(row: Tensor, temperature: float, top_p: float | None, top_k: int | None) -> Tensor:
    """Dream's distribution, as logits in their own dtype: temperature (if any), then top-p, then top-k."""
    if temperature > 0:
        row = row / temperature
    if top_p is not None and top_p < 1:
        row = keep_top_p(row, top_p)
    if top_k is not None:
        row = keep_top_k(row, top_k)
    return row


def dream_candidates(rows: list[Tensor], temperature: float, generator: torch.Generator | None) -> list[int]:
    """One token per filtered row: the largest, or above temperature 0 a sample, all rows in one draw."""
    if temperature == 0 or not rows:
        return [first_largest(row) for row in rows]
    table = torch.softmax(torch.stack(rows), dim=-1)
    table = table / table.sum(dim=-1, keepdim=True)
    return torch.multinomial(table, 1, replacement=True, generator=generator)[:, 0].tolist()


def dream_confidence(chances: Tensor, token: int, order: str) -> Tensor:
    """Dream's confidence in a position, in the dtype of its probabilities."""
    if order == "topk_margin":
        first, second = torch.sort(chances, descending=True).values[:2]
        return first - second
    if order == "entropy":
        return torch.sum(chances * torch.log(chances + 1e-10))
    return chances[token]


def dream(
    logits_of: Callable[[Tensor], Tensor],
    prompt: Sequence[int],
    mask_id: int,
    gen_length: int,
    steps: int,
    eps: float = 1e-3,
    order: Literal["origin", "maskgit_plus", "topk_margin", "entropy"] = "origin",
    order_temperature: float | None = None,
    temperature: float = 0.0,
    top_p: float | None = None,
    top_k: int | None = None,
    threshold: float | None = None,
    generator: torch.Generator | None = None,
) -> tuple[list[int], list[Step]]:
    """Dream's loop: one block, logits shifted by one (position 0 keeps row 0).

    With `threshold`, the steps are as many as it takes: each commits the best candidate by the order and all more probable than
    `threshold`; `steps`, `eps` and `order_temperature` then mean nothing.
    """
    if threshold is not None and order == "origin":
        raise ValueError("origin does not rank candidates, so it takes no threshold")
    canvas = list(prompt) + [mask_id] * gen_length
    times = torch.linspace(1, eps, steps + 1)
    record: list[Step] = []
    passes = 0

    while True:
        positions = masked(canvas, mask_id, 0, len(canvas))
        if threshold is None:
            if passes == steps:
                break
        elif not positions:
            break
        if passes == PASS_LIMIT:
            raise RuntimeError("masks are left after very many passes: the model keeps predicting the mask id")
        logits = logits_of(torch.tensor([canvas]))[0]
        last = passes == steps - 1
        share = torch.tensor(1.0)
        if threshold is None and not last:
            share = 1 - times[passes + 1] / times[passes]

        if order == "origin":
            uniform = torch.rand(len(positions), generator=generator)
            positions = [position for index, position in enumerate(positions) if uniform[index] < share]

        rows: list[Tensor] = []
        for position in positions:
            rows.append(dream_filter(logits[max(position - 1, 0)], temperature, top_p, top_k))
        tokens = dream_candidates(rows, temperature, generator)
        candidate = dict(zip(positions, tokens, strict=True))

        confidence: dict[int, float] = {}
        score: dict[int, float] = {}
        for position, row, token in zip(positions, rows, tokens, strict=True):
            confidence[position] = float(dream_confidence(probabilities(row), token, order))
            score[position] = log_odds(row, token) if order == "maskgit_plus" else confidence[position]

        if order == "origin":
            chosen = positions
            score = {}
        elif threshold is not None:
            chosen = best(score, 1)
            for position, row in zip(positions, rows, strict=True):
                if float(probabilities(row)[candidate[position]]) > threshold and position not in chosen:
                    chosen.append(position)
        else:
            planned = len(positions) if last else int(torch.tensor(float(len(positions))) * share)
            chosen = best(score, planned)
            if planned > 0 and order_temperature:
                everywhere = torch.full((1, len(canvas)), -math.inf, dtype=logits.dtype)
                for position, row in zip(positions, rows, strict=True):
                    everywhere[0, position] = dream_confidence(torch.softmax(row, dim=-1), candidate[position], order)
                weights = torch.softmax(everywhere / order_temperature, dim=-1)
                drawn = torch.multinomial(weights, planned, generator=generator)[0].tolist()
                # If fewer than `planned` weights are above zero, the draw can land on tokens that are not masked, and the published
                # code writes a mask over them. Here the best of the masks that were not drawn take their place.
                chosen = [position for position in drawn if position in candidate]
                rest = {position: score[position] for position in positions if position not in chosen}
                chosen += best(rest, planned - len(chosen))

        committed = {position: candidate[position] for position in sorted(chosen)}
        record.append({"canvas": list(canvas), "committed": committed, "confidence": confidence, "score": score})
        for position, token in committed.items():
            canvas[position] = token
        passes += 1

    return canvas, record


# ----------------------------------------------------------------------------------------------------------------------------- SDAR


def sdar_filter(row: Tensor, temperature: float, top_k: int, top_p: float) -> Tensor:
    """SDAR's distribution, as logits in their own dtype: temperature (if any), then top-k, then top-p."""
    if temperature not in (0, 1):
        row = row / temperature
    if top_k > 0:
        row = keep_top_k(row, top_k)
    if top_p < 1:
        row = keep_top_p(row, top_p)
    return row


def sdar(
    logits_of: Callable[[Tensor, int], Tensor],
    prompt: Sequence[int],
    mask_id: int,
    gen_length: int,
    block_length: int = 4,
    denoising_steps: int = 4,
    order: Literal["sequential", "low_confidence_static", "low_confidence_dynamic", "entropy_bounded"] = "low_confidence_dynamic",
    threshold: float = 0.85,
    entropy_bound: float = 0.35,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    stop_ids: Sequence[int] = (),
    generator: torch.Generator | None = None,
) -> tuple[list[int], list[Step]]:
    """SDAR's loop: blocks counted from position 0 of the prompt, each finished before the next is begun.

    The canvas is rounded up to whole blocks; blocks after one with a stop id stay masked. `logits_of` sees the canvas up to the end of
    the current block. Temperature 0, which the published code divides by, is taken as argmax and the distribution of temperature 1.
    `entropy_bounded`, which crashes as published, follows JetEngine's definition and runs until the block has no mask.
    """
    blocks = -(-(len(prompt) + gen_length) // block_length)
    canvas = list(prompt) + [mask_id] * (blocks * block_length - len(prompt))
    plan = even_plan(block_length, denoising_steps)
    record: list[Step] = []

    for block in range(len(prompt) // block_length, blocks):
        start = block * block_length
        end = start + block_length
        passes = 0
        while True:
            positions = masked(canvas, mask_id, start, end)
            if not positions or (order != "entropy_bounded" and passes == denoising_steps):
                break
            if passes == PASS_LIMIT:
                raise RuntimeError("masks are left after very many passes: the model keeps predicting the mask id")
            logits = logits_of(torch.tensor([canvas[:end]]), block_length)[0]

            rows: dict[int, Tensor] = {}
            for position in range(start, end):
                rows[position] = sdar_filter(logits[position], temperature, top_k, top_p)
            if temperature == 0:
                tokens = [first_largest(row) for row in rows.values()]
            else:
                table = torch.softmax(torch.stack(list(rows.values())), dim=-1)
                tokens = torch.multinomial(table, 1, generator=generator)[:, 0].tolist()

            candidate: dict[int, int] = {}
            confidence: dict[int, float] = {}
            score: dict[int, float] = {}
            for position in positions:
                row = rows[position]
                candidate[position] = tokens[position - start]
                chances = probabilities(row)
                if order == "entropy_bounded":
                    confidence[position] = -float(torch.special.entr(chances).sum())
                    score[position] = confidence[position]
                else:
                    confidence[position] = float(chances[candidate[position]])
                    score[position] = log_odds(row, candidate[position])

            if order == "sequential":
                chosen = positions[: plan[passes]]
                score = {}
            elif order == "low_confidence_static":
                chosen = best(score, plan[passes])
            elif order == "low_confidence_dynamic":
                chosen = [position for position in positions if confidence[position] > threshold]
                if len(chosen) < plan[passes]:
                    chosen = best(score, plan[passes])
            else:
                chosen = []
                total = 0.0
                for position in best(score, len(score)):
                    total += -confidence[position]
                    if chosen and total >= entropy_bound:
                        break
                    chosen.append(position)

            committed = {position: candidate[position] for position in sorted(chosen)}
            record.append({"canvas": list(canvas), "committed": committed, "confidence": confidence, "score": score})
            for position, token in committed.items():
                canvas[position] = token
            passes += 1
        if any(token in stop_ids for token in canvas[len(prompt) :]):
            break

    return canvas, record
