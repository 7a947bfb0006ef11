"""Candidates for masked positions, and how sure the model is of each.

Everything that ranks is computed in float64 from the logits. Probabilities near 1 all round to 1, so they are ranked by log-odds, which
keep telling them apart; equal candidates go to the left. That is what makes a batch commit the tokens that each prompt would commit by
itself.
"""

import torch
from torch import Tensor

ROWS_AT_ONCE = 64  # a row of a large vocabulary is a megabyte in float64
LOG_OF_NOTHING = 1e-10  # what Dream adds inside the logarithm of its entropy


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
    return torch.cat(parts)


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
    probabilities = logits.softmax(-1)
    probabilities = probabilities / probabilities.sum(-1, keepdim=True)
    return torch.multinomial(probabilities, 1, generator=generator)[:, 0]


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
