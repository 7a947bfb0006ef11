"""Objectives and attention masks of an adaptation: what is hidden, who sees whom, and the loss at the targets.

Decided here: `ar` reads the sequence as it is, `diffusion` reads it with its targets replaced by the mask token; both predict position p
from row p - 1, at the same positions with the same weights. The mask token is never an output: its logit is left out. Logits are computed
at the predicting rows alone, because the vocabulary makes them most of the cost. Sequences run one by one: nothing is padded, and no mask
is needed unless it is the annealed one.

The annealed mask: every pair of a row and a later position has a fixed random number, and the row sees that position once the visible
share exceeds it. So what is visible grows and never shrinks; a share of 0 is the causal mask, 1 the bidirectional one.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from floatlens.lab.adaptation.sequences import TrainingSequence
from floatlens.models.adapters import MaskKind, Objective


def annealed_mask(length: int, share: float, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    """float (1, 1, row, position): 0 where a row sees a position, the lowest number where it does not.

    Examples
    --------
    >>> (annealed_mask(3, 0.0)[0, 0] == 0).int().tolist()
    [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    >>> bool((annealed_mask(3, 1.0) == 0).all())
    True
    """
    rows, positions = torch.arange(length)[:, None], torch.arange(length)[None, :]
    visible = (positions <= rows) | (_thresholds(rows, positions, seed) < share)
    return torch.zeros(length, length, dtype=dtype).masked_fill_(~visible, torch.finfo(dtype).min)[None, None]


def _thresholds(rows: Tensor, positions: Tensor, seed: int) -> Tensor:
    """A number from 0 up to below 1 for each pair, the same whatever the length of the sequence: a hash of both (splitmix64's mixing
    steps)."""
    of_seed = (seed * 104_729 + 1 + (1 << 63)) % (1 << 64) - (1 << 63)  # as 64 bits hold it
    mixed = rows * 1_000_003 + positions * 7_919 + of_seed
    for shift, factor in ((30, -4658895280553007687), (27, -7723592293110705685)):
        mixed = (mixed ^ ((mixed >> shift) & ((1 << (64 - shift)) - 1))) * factor  # logical shifts; products wrap around
    return ((mixed ^ ((mixed >> 31) & ((1 << 33) - 1))) & ((1 << 24) - 1)).double() / (1 << 24)


def visible_tokens(sequence: TrainingSequence, objective: Objective, mask_token_id: int) -> Tensor:
    """int64 (position): the sequence as the model reads it.

    Examples
    --------
    >>> sequence = TrainingSequence((5, 6, 7, 8), (1, 3), (0.5, 0.5), "text")
    >>> [visible_tokens(sequence, objective, 0).tolist() for objective in ("ar", "diffusion")]
    [[5, 6, 7, 8], [5, 0, 7, 0]]
    """
    tokens = torch.tensor(sequence.tokens)
    if objective == "diffusion":
        tokens[list(sequence.targets)] = mask_token_id
    return tokens


class Predictor:
    """A causal language model of a stock class under one mask, with the offset of its mask token's embedding."""

    def __init__(self, module: Any, mask_offset: Tensor, mask_token_id: int, mask: MaskKind, seed: int = 0) -> None:
        self.module, self.mask_offset, self.mask_token_id, self.mask, self.seed = module, mask_offset, mask_token_id, mask, seed
        module.config.is_causal = mask != "bidirectional"

    def logits(self, tokens: Tensor, rows: Tensor, visible_share: float = 1.0) -> Tensor:
        """(row, token) at some rows of one sequence; that of the mask token is -inf."""
        device = self.mask_offset.device
        tokens, rows = tokens.to(device), rows.to(device)
        embedded = self.module.get_input_embeddings()(tokens) + (tokens == self.mask_token_id)[:, None] * self.mask_offset
        attention = None
        if self.mask == "annealed":
            attention = annealed_mask(len(tokens), visible_share, self.seed, embedded.dtype).to(device)
        states = self.module.model(inputs_embeds=embedded[None], attention_mask=attention, use_cache=False).last_hidden_state[0]
        logits = self.module.lm_head(states[rows])
        never = torch.zeros(logits.shape[-1], dtype=torch.bool, device=device)
        never[self.mask_token_id] = True
        return logits.masked_fill(never, -torch.inf)

    def losses(self, sequence: TrainingSequence, objective: Objective, visible_share: float = 1.0) -> Tensor:
        """The cross-entropy of each target of a sequence."""
        targets = torch.tensor(sequence.targets)
        logits = self.logits(visible_tokens(sequence, objective, self.mask_token_id), targets - 1, visible_share)
        return F.cross_entropy(logits.float(), torch.tensor(sequence.tokens)[targets].to(logits.device), reduction="none")


def backward(predictor: Predictor, sequences: Sequence[TrainingSequence], objective: Objective, visible_share: float = 1.0) -> float:
    """Add the gradients of the weighted loss of an update, sequence by sequence; the loss."""
    total = 0.0
    for sequence in sequences:
        losses = predictor.losses(sequence, objective, visible_share)
        loss = (losses * torch.tensor(sequence.weights, device=losses.device)).sum()
        loss.backward()
        total += loss.item()
    return total


def held_out_losses(
    predictor: Predictor, sequences: Sequence[TrainingSequence], objective: Objective, visible_share: float = 1.0
) -> dict[str, float]:
    """The mean cross-entropy per target, of questions and of texts."""
    values: dict[str, list[float]] = {}
    with torch.inference_mode():
        for sequence in sequences:
            values.setdefault(sequence.kind, []).extend(predictor.losses(sequence, objective, visible_share).tolist())
    return {kind: sum(losses) / len(losses) for kind, losses in values.items()}
