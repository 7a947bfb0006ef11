"""Calls of a few rows, as a cache makes them: the keys are used as they lie, and every weight is that of a softmax written out."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from floatlens.capture import walk as walking
from floatlens.capture.call import AttentionCall
from floatlens.capture.forward import Forward
from floatlens.capture.observation import Labelled
from floatlens.capture.walk import Block, Workspace, walk

SAMPLES, HEADS, KV_HEADS, KEYS, DEPTH = 3, 6, 2, 11, 4


class Whole:
    """Puts the blocks together again."""

    needs_blocks = True
    rows = None

    def __init__(self, queries: int) -> None:
        self.weights = torch.zeros(SAMPLES * HEADS, queries, KEYS)

    def add(self, block: Block) -> None:
        self.weights[block.matrices, block.rows, block.keys] = block.weights

    def result(self, sums: Tensor | None) -> dict[str, Labelled]:
        return {"weights": (("matrix", "query", "key"), self.weights)}


def call_of(queries: int) -> tuple[AttentionCall, Tensor]:
    """Queries at the end of the text, the last sample padded on the left with what must not be read; and which positions are real."""
    random = torch.Generator().manual_seed(queries)
    query = torch.randn(SAMPLES, HEADS, queries, DEPTH, generator=random)
    key = torch.randn(SAMPLES, KV_HEADS, KEYS, DEPTH, generator=random)
    real = torch.ones(SAMPLES, KEYS, dtype=torch.bool)
    real[-1, :4] = False
    key[-1, :, :4] = float("nan")
    if queries == KEYS:
        query[-1, :, :4] = float("nan")
    at_query, at_key = torch.arange(KEYS - queries, KEYS)[:, None], torch.arange(KEYS)
    visible = (at_key <= at_query) & (real[:, None, None] | ~real[:, None, KEYS - queries :, None])  # padding may look at padding
    return AttentionCall(query, key, key, mask=visible, causal=False, scale=0.3, grouped=True), real


def written_out(call: AttentionCall, real: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Weights (sample, head, query, key) and logsumexp (sample, head, query), an entry at a time; 0 for rows that are padding."""
    weights, logsumexp = np.zeros((SAMPLES, HEADS, call.queries, KEYS)), np.zeros((SAMPLES, HEADS, call.queries))
    assert call.mask is not None
    for sample in range(SAMPLES):
        for head in range(HEADS):
            for row in range(call.queries):
                if not real[sample, KEYS - call.queries + row]:
                    continue
                seen = [at for at in range(KEYS) if call.mask[sample, 0, row, at] and real[sample, at]]
                query = call.query[sample, head, row].double().numpy()
                scores = np.array([0.3 * query @ call.key[sample, head // 3, at].double().numpy() for at in seen])
                logsumexp[sample, head, row] = np.log(np.exp(scores).sum())
                weights[sample, head, row, seen] = np.exp(scores - logsumexp[sample, head, row])
    return weights, logsumexp


@pytest.mark.parametrize("known", [False, True], ids=["walk normalises", "logsumexp known"])
@pytest.mark.parametrize("queries", [1, 2, KEYS])
@pytest.mark.parametrize("entries", [HEADS * KEYS * KEYS, 1 << 20], ids=["sample by sample", "all at once"])
def test_a_few_rows_are_weighed_as_a_softmax_weighs_them(queries: int, known: bool, entries: int) -> None:
    call, real = call_of(queries)
    expected, logsumexp = written_out(call, real)
    whole = Whole(queries)
    forward = Forward(0, {}, padding=real)
    observation = forward.observe(forward.locate(call))
    observation = replace(observation, logsumexp=torch.from_numpy(logsumexp).float()[None] if known else None)
    walk(observation, [whole], Workspace(entries))
    np.testing.assert_allclose(whole.weights.reshape(expected.shape), expected, atol=2e-6)


@pytest.mark.parametrize("queries", [1, 2, KEYS])
def test_a_few_rows_are_weighed_as_many_are(queries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    call, real = call_of(queries)
    few, many = Whole(queries), Whole(queries)
    forward = Forward(0, {}, padding=real)
    observation = forward.observe(forward.locate(call))
    _, logsumexp = written_out(call, real)
    observation = replace(observation, logsumexp=torch.from_numpy(logsumexp).float()[None])
    walk(observation, [few], Workspace())
    monkeypatch.setattr(walking, "FEW_ROWS", 0)
    walk(observation, [many], Workspace())
    np.testing.assert_allclose(few.weights, many.weights, atol=1e-6)
