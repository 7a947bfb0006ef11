"""Likelihoods and greedy decoding by plain forwards of a module, without any of floatlens's loops."""

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import torch

import floatlens as fl


@torch.no_grad()
def log_probabilities(lm: fl.LanguageModel, tokens: Sequence[int]) -> torch.Tensor:
    """Of every token at every row, (row, vocabulary)."""
    return lm.module(input_ids=torch.tensor([list(tokens)])).logits[0].double().log_softmax(-1)


def next_token_sum(lm: fl.LanguageModel, prompt: Sequence[int], answer: Sequence[int]) -> float:
    rows = log_probabilities(lm, [*prompt, *answer])
    return sum(float(rows[len(prompt) + place - 1, token]) for place, token in enumerate(answer))


def masked_sum(lm: fl.LanguageModel, prompt: Sequence[int], answer: Sequence[int], hidden: Sequence[int]) -> float:
    """The summed log probability of an answer's hidden tokens, with masks in their place."""
    assert lm.mask_token_id is not None
    rows = log_probabilities(lm, [*prompt, *(lm.mask_token_id if place in hidden else token for place, token in enumerate(answer))])
    return sum(float(rows[len(prompt) + place - lm.row_offset, answer[place]]) for place in hidden)


def dense_bound(lm: fl.LanguageModel, prompt: Sequence[int], answer: Sequence[int]) -> float:
    """The mean over l = 1 .. L of L / l times the mean over all sets of l masks."""
    length, means = len(answer), []
    for masked in range(1, length + 1):
        sums = [masked_sum(lm, prompt, answer, hidden) for hidden in combinations(range(length), masked)]
        means.append(length / masked * float(np.mean(sums)))
    return float(np.mean(means))


def most_confident_first(lm: fl.LanguageModel, prompt: Sequence[int], length: int) -> list[int]:
    """What a masked diffusion model writes, one token per pass, the most probable candidate first."""
    mask = lm.mask_token_id
    assert mask is not None
    text = [*prompt, *[mask] * length]
    for _ in range(length):
        rows = log_probabilities(lm, text)
        open_places = [place for place in range(len(prompt), len(text)) if text[place] == mask]
        best = max(open_places, key=lambda place: float(rows[place - lm.row_offset].max()))
        text[best] = int(rows[best - lm.row_offset].argmax())
    return text[len(prompt) :]
