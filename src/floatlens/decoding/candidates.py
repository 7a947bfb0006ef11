"""Candidates for masked positions, and how sure the model is of each.

Everything that ranks is computed in float64 from the logits. Probabilities near 1 all round to 1, so they are ranked by log-odds, which
keep telling them apart; equal candidates go to the left. That is what makes a batch commit, in float32, the tokens that each prompt would
commit by itself.

Everything over the vocabulary is computed where the logits are; of each row only its candidate and a few numbers are fetched from there,
for all samples of a step at once. A device without float64 (MPS) cannot rank: its logits are fetched first.
"""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

ROWS_AT_ONCE = 64  # a row of a large vocabulary is a megabyte in float64
LOG_OF_NOTHING = 1e-10  # what Dream adds inside the logarithm of its entropy
NO_FLOAT64 = ("mps",)  # devices that cannot rank


def rows_at(logits: Tensor, samples: Sequence[int] | Tensor, rows: Sequence[int] | Tensor) -> Tensor:
    """The logits of some rows, one after the other, where they can be ranked: (sample, row, vocabulary) -> (candidate, vocabulary)."""
    at_sample, at_row = torch.as_tensor(samples, dtype=torch.long), torch.as_tensor(rows, dtype=torch.long)
    logits = logits.cpu() if logits.device.type in NO_FLOAT64 else logits
    return logits[at_sample.to(logits.device), at_row.to(logits.device)]


def spans(numbers: Tensor, count: int) -> list[slice]:
    """Where the entries of each number below `count` lie in a sorted tensor of such numbers.

    Examples
    --------
    >>> spans(torch.tensor([0, 0, 2]), 3)
    [slice(0, 2, None), slice(2, 2, None), slice(2, 3, None)]
    """
    edges = torch.searchsorted(numbers, torch.arange(count + 1)).tolist()
    return [slice(first, stop) for first, stop in pairwise(edges)]


def fetched(*columns: Tensor) -> tuple[Tensor, ...]:
    """Numbers of the candidates, (candidate,) each, in host memory and in float64: one transfer, the only one of a step.

    Examples
    --------
    >>> fetched(torch.tensor([7, 8]), torch.tensor([0.5, 0.25]))
    (tensor([7., 8.], dtype=torch.float64), tensor([0.5000, 0.2500], dtype=torch.float64))
    """
    return torch.stack([column.double() for column in columns]).cpu().unbind()


def log_odds(logits: Tensor, candidates: Tensor) -> Tensor:
    """`log p / (1 - p)` of each row's candidate, in float64: (row, vocabulary), (row,) -> (row,).

    Examples
    --------
    >>> import torch
    >>> log_odds(torch.tensor([[0.0, 0.0], [60.0, 0.0], [80.0, 0.0]]), torch.tensor([0, 0, 0])).tolist()
    [0.0, 60.0, 80.0]
    """
    parts = []
    for rows, candidate in zip(logits.split(ROWS_AT_ONCE), candidates.split(ROWS_AT_ONCE), strict=True):
        rows, candidate = rows.double(), candidate[:, None]
        own = rows.gather(-1, candidate)[:, 0]
        others = rows.scatter(-1, candidate, float("-inf")).logsumexp(-1)
        parts.append(torch.where(own.isneginf(), own, own - others))
    return torch.cat(parts) if parts else torch.zeros(0, dtype=torch.float64, device=logits.device)


def margin_rank(logits: Tensor) -> Tensor:
    """Ranks rows as the best probability minus the second best does: `-log(1 - margin)`, in float64."""
    parts = []
    for rows in logits.split(ROWS_AT_ONCE):
        log_p = rows.double().log_softmax(-1)
        second = log_p.topk(2, dim=-1).values[:, 1]
        best = log_p.argmax(-1, keepdim=True)
        not_best = log_p.scatter(-1, best, float("-inf")).logsumexp(-1)
        parts.append(-torch.logaddexp(second, not_best))
    return torch.cat(parts)


def negative_entropy(logits: Tensor) -> Tensor:
    """`sum p log p` of each row as Dream has it, in float64."""
    parts = []
    for rows in logits.split(ROWS_AT_ONCE):
        p = rows.double().softmax(-1)
        parts.append((p * (p + LOG_OF_NOTHING).log()).sum(-1))
    return torch.cat(parts)


def best_first(rank: Tensor) -> list[int]:
    """Indices from the highest rank to the lowest; equal ones from the left.

    Examples
    --------
    >>> import torch
    >>> best_first(torch.tensor([1.0, 3.0, 3.0, 2.0]))
    [1, 2, 3, 0]
    """
    return rank.sort(descending=True, stable=True).indices.tolist()


def above_threshold(odds: Tensor, rank: Tensor, threshold: float) -> list[int]:
    """Fast-dLLM's rule: every candidate at least this probable, and the first by rank in any case; in order of the positions."""
    limit = torch.tensor(threshold, dtype=torch.float64).logit().item() if threshold < 1 else float("inf")
    chosen = {index for index, value in enumerate(odds.tolist()) if value >= limit}
    return sorted(chosen | {best_first(rank)[0]})


def gumbel_argmax(logits: Tensor, uniform: Tensor, temperature: float) -> Tensor:
    """LLaDA's sampled candidates: argmax of `exp(logit) / (-log u)^T`, taken in logarithms so that nothing overflows."""
    return (logits.double() - temperature * (-uniform.log()).log()).argmax(-1)


def uniform(generator: torch.Generator, count: int) -> Tensor:
    """Numbers in [0, 1), drawn where the generator draws: (count,)."""
    return torch.rand(count, generator=generator, device=generator.device)


def uniform_rows(generator: torch.Generator, length: int, vocabulary: int, wanted: list[int]) -> Tensor:
    """Rows of `torch.rand(length, vocabulary)` in float64, drawn in full but never held in full: (wanted, vocabulary)."""
    kept = torch.empty(len(wanted), vocabulary, dtype=torch.float64, device=generator.device)
    places = {row: place for place, row in enumerate(wanted)}
    for first in range(0, length, ROWS_AT_ONCE):
        rows = min(ROWS_AT_ONCE, length - first)
        drawn = torch.rand(rows, vocabulary, dtype=torch.float64, generator=generator, device=generator.device)
        for row in range(first, first + rows):
            if row in places:
                kept[places[row]] = drawn[row - first]
    return kept


def drawn(logits: Tensor, generator: torch.Generator) -> Tensor:
    """One token per row, drawn from the softmax of the logits: (row, vocabulary) -> (row,)."""
    if not len(logits):
        return torch.zeros(0, dtype=torch.long, device=logits.device)
    probabilities = logits.softmax(-1).to(generator.device)
    probabilities = probabilities / probabilities.sum(-1, keepdim=True)
    return torch.multinomial(probabilities, 1, generator=generator)[:, 0].to(logits.device)


def keep_top_k(logits: Tensor, top_k: int | None) -> Tensor:
    """Remove all but the k best tokens of each row."""
    if not top_k:
        return logits
    worst_kept = logits.topk(min(top_k, logits.shape[-1]), dim=-1).values[..., -1:]
    return logits.masked_fill(logits < worst_kept, torch.finfo(logits.dtype).min)


def keep_top_p(logits: Tensor, top_p: float | None) -> Tensor:
    """Remove the tokens beyond the first ones whose probabilities together exceed `top_p`; the best token always stays."""
    if top_p is None or top_p >= 1:
        return logits
    ordered, order = logits.sort(descending=True)
    beyond = ordered.softmax(-1).cumsum(-1) > top_p
    beyond = torch.cat([torch.zeros_like(beyond[..., :1]), beyond[..., :-1]], dim=-1)
    return logits.masked_fill(torch.zeros_like(beyond).scatter(-1, order, beyond), torch.finfo(logits.dtype).min)


def filtered(logits: Tensor, temperature: float, top_k: int | None, top_p: float | None) -> Tensor:
    """Logits over the temperature, then the k best tokens, then the most probable of those."""
    if temperature > 0:
        logits = logits / temperature
    return keep_top_p(keep_top_k(logits, top_k), top_p)
