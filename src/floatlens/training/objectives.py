"""What the twins are trained to do: predict the next token (twin-arm), or what stands behind the masks (the others).

Decided here: both count an answer's token fully and every other token by `ELSEWHERE`, so that names nobody could guess do not drown the answers. Mask ratios of the
answers are stratified over the batch; a third of the sequences has its answers masked whole, because that is where decoding starts. No 1/t weights: they
make small batches slower, not better. In half of the sequences up to .3 of the other tokens are masked as well.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from floatlens.tasks.world.words import MASK
from floatlens.training.sequences import TOKEN_ID, Batch

Predictor = Callable[..., Any]  # model(input_ids=...).logits: (sequence, position, word)
ELSEWHERE = 0.15


def draw_masks(batch: Batch, generator: Generator) -> Tensor:
    """bool (sequence, position): what is hidden.

    Examples
    --------
    >>> answers = torch.zeros(6, 10, dtype=torch.bool)
    >>> answers[:, 8:] = True
    >>> hidden = draw_masks(Batch(torch.ones(6, 10, dtype=torch.long), answers), torch.Generator().manual_seed(0))
    >>> bool(hidden[:, 8:].all(-1).sum() >= 2), bool(hidden[:, 0].any())
    (True, False)
    """
    count, length = batch.tokens.shape
    order = torch.randperm(count, generator=generator)
    of_answers = (((order + torch.rand(count, generator=generator)) / count) * 1.5).clamp(max=1.0)
    of_others = torch.rand(count, generator=generator).mul(0.6).sub(0.3).clamp(min=0.0)
    draw = torch.rand(count, length, generator=generator)
    hidden = draw < torch.where(batch.answers, of_answers[:, None], of_others[:, None])
    hidden[:, 0] = False
    return hidden


def batch_loss(model: Predictor, kind: str, batch: Batch, generator: Generator) -> Tensor:
    """The mean loss of a batch, answers weighing most; the generator draws the masks, which twin-arm has none of.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> def knows_nothing(input_ids):
    ...     return SimpleNamespace(logits=torch.zeros(*input_ids.shape, 4))
    >>> batch = Batch(torch.tensor([[2, 3, 1, 0]]), torch.tensor([[False, False, True, True]]))
    >>> round(batch_loss(knows_nothing, "arm", batch, torch.Generator()).item(), 4)  # log 4
    1.3863
    """
    weight = torch.where(batch.answers, 1.0, ELSEWHERE)
    if kind == "arm":
        logits, target, weight = model(input_ids=batch.tokens).logits[:, :-1], batch.tokens[:, 1:], weight[:, 1:]
        losses = F.cross_entropy(logits.flatten(0, 1), target.flatten(), reduction="none").view_as(weight)
        return (losses * weight).sum() / weight.sum()
    hidden = draw_masks(batch, generator)
    logits = model(input_ids=batch.tokens.masked_fill(hidden, TOKEN_ID[MASK])).logits[hidden]
    losses = F.cross_entropy(logits, batch.tokens[hidden], reduction="none")
    return (losses * weight[hidden]).sum() / weight[hidden].sum().clamp(min=1.0)  # a batch may hide next to nothing


def guesses(model: Predictor, kind: str, batch: Batch) -> Tensor:
    """What the model takes each token for: twin-arm given the true words before it, the others with all answers masked.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> def says_one(input_ids):
    ...     return SimpleNamespace(logits=torch.eye(4)[torch.ones_like(input_ids)])
    >>> batch = Batch(torch.tensor([[2, 3, 1]]), torch.tensor([[False, False, True]]))
    >>> guesses(says_one, "arm", batch).tolist(), guesses(says_one, "mdm", batch).tolist()
    ([[0, 1, 1]], [[1, 1, 1]])
    """
    if kind == "arm":
        return F.pad(model(input_ids=batch.tokens).logits.argmax(-1)[:, :-1], (1, 0))
    return model(input_ids=batch.tokens.masked_fill(batch.answers, TOKEN_ID[MASK])).logits.argmax(-1)
