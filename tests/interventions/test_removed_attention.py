"""What calls are said to have lost, against dense weights, where choosing and losing rows differ, or not all lose the same."""

import numpy as np
import torch

from floatlens.capture.call import AttentionCall
from floatlens.capture.edits import Before
from floatlens.capture.forward import Forward
from floatlens.interventions import MaskAnchors, RandomKeys, ZeroAnchorValues
from floatlens.interventions.choosing import Memory, Row
from floatlens.interventions.running import Running
from floatlens.interventions.specification import Intervention

HEADS, DEPTH = 3, 4


def call_of(queries: int, keys: int, seed: int = 0) -> AttentionCall:
    """The last rows of a causal text."""
    random = torch.Generator().manual_seed(seed)
    query, key = (torch.randn(1, HEADS, rows, DEPTH, generator=random) for rows in (queries, keys))
    mask = torch.arange(keys) <= torch.arange(keys - queries, keys)[:, None]
    return AttentionCall(query, key, key, mask=mask[None, None], causal=False, scale=1.0, query_start=keys - queries)


def dense(call: AttentionCall) -> np.ndarray:
    """Weights (head, query, key)."""
    assert call.mask is not None
    scores = np.einsum("hqd,hkd->hqk", call.query[0].double().numpy(), call.key[0].double().numpy())
    weights = np.exp(np.where(call.mask[0].numpy(), scores, -np.inf))
    return weights / weights.sum(-1, keepdims=True)


def removed(one: Intervention, calls: list[AttentionCall], *, last_row_only: bool) -> np.ndarray:
    """What the last of several calls of one layer lost: (head,)."""
    running = Running([one], [0], last_row_only=last_row_only)
    reports = []
    for step, call in enumerate(calls):
        running.begin_rows([Row(0)])
        running(call, Before(None, None, Forward(step, {})))
        reports.append(running.finish_samples([0])[0]["removed"][1][0])
    assert (reports[0] == 0).all(), "nothing is known at first"
    return reports[-1]


def test_a_row_that_keeps_its_only_key_loses_nothing() -> None:
    call = call_of(6, 6)  # of six rows only key 0 is seen by all, and so measured; to the first row it is the only one
    weights = dense(call)
    expected = weights[:, 1:, 0].sum(-1) / 6
    np.testing.assert_allclose(removed(MaskAnchors(1), [call, call], last_row_only=False), expected, rtol=1e-5)
    silenced = weights[:, :, 0].mean(-1)  # a zeroed value is nothing to the first row, too
    np.testing.assert_allclose(removed(ZeroAnchorValues(1), [call, call], last_row_only=False), silenced, rtol=1e-5)


def test_all_rows_lose_what_the_last_row_chose() -> None:
    before, after = call_of(5, 5, seed=1), call_of(3, 8, seed=2)
    chosen = dense(before)[:, -1].argmax(-1)
    expected = [dense(after)[head, :, chosen[head]].mean() for head in range(HEADS)]
    np.testing.assert_allclose(removed(MaskAnchors(1), [before, after], last_row_only=True), expected, rtol=1e-5)


def test_a_single_row_loses_what_lay_on_the_hidden_keys() -> None:
    before, after = call_of(5, 5, seed=3), call_of(1, 6, seed=4)
    order = np.argsort(-dense(before)[:, -1], axis=-1)
    expected = [dense(after)[head, 0, order[head, :2]].sum() for head in range(HEADS)]
    np.testing.assert_allclose(removed(MaskAnchors(2), [before, after], last_row_only=True), expected, rtol=1e-5)
    control = removed(RandomKeys(MaskAnchors(2)), [before, after], last_row_only=True)
    others = [
        [dense(after)[head, 0, [i, j]].sum() for i in range(6) for j in range(i) if not {i, j} & {*order[head, :2]}] for head in range(3)
    ]
    assert all(np.isclose(control[head], others[head], rtol=1e-5).any() for head in range(HEADS))


def test_rows_are_remembered_by_their_sample_wherever_they_stand() -> None:
    q = torch.zeros(4, 1, 1, 2)
    k = torch.zeros(4, 1, 4, 2)
    call = AttentionCall(q, k, k, mask=None, causal=False, scale=1.0)
    memory = Memory()
    rows = [Row(sample) for sample in range(4)]
    memory.note(call, rows, {0: torch.eye(4, dtype=torch.bool)[:, None]}, torch.full((4,), 4))  # sample i picks key i
    memory.keep([0, 1, 2, 3])
    memory.forget_pass()
    memory.note(call, rows, {0: torch.eye(4, dtype=torch.bool).flip(0)[:, None]}, torch.full((4,), 4))
    memory.keep([3])  # sample 3 goes on, and picks key 0
    expected = {0: 0, 1: 1, 2: 2, 3: 0}
    for samples in ([0, 1, 2, 3], [3, 2, 1, 0], [0, 2, 3, 1], [1, 2, 0, 3]):
        recalled = memory.recall(0, call, [Row(sample) for sample in samples])
        assert recalled.keys[:, 0].int().argmax(-1).tolist() == [expected[sample] for sample in samples]
        assert recalled.keys.sum() == 4
    strangers = memory.recall(0, call, [Row(0), Row(9), Row(1), Row(2)])
    assert strangers.known == [True, False, True, True]
    assert strangers.keys[:, 0].int().tolist() == [[1, 0, 0, 0], [0, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]]
    two = AttentionCall(q[:2], k[:2], k[:2], mask=None, causal=False, scale=1.0)
    beside_a_stranger = memory.recall(0, two, [Row(2), Row(9)])
    assert beside_a_stranger.known == [True, False]
    assert beside_a_stranger.keys[:, 0].int().tolist() == [[0, 0, 1, 0], [0, 0, 0, 0]]
    assert beside_a_stranger.there_were.tolist() == [4, 0]
