"""Anchors and random other keys, against loops over plain numbers."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import floatlens as fl
from floatlens.capture.call import AttentionCall
from floatlens.capture.checks import fetch
from floatlens.capture.edits import Received
from floatlens.capture.visibility import Real
from floatlens.interventions import MaskAbove, MaskAnchors
from floatlens.interventions.acting import hide_keys
from floatlens.interventions.choosing import anchors, as_many_others, as_much_from_others, random_numbers


def received(weights: np.ndarray, visible: np.ndarray | None = None) -> Received:
    """What keys receive in one call, from dense weights (head, query, key); NaN where no query may ever see a key."""
    queries, keys = weights.shape[1:]
    visible = np.ones((queries, keys), bool) if visible is None else visible
    seen = visible.sum(0).astype(float)
    null = np.array([np.mean([1 / visible[i].sum() for i in range(queries) if visible[i, j]] or [np.nan]) for j in range(keys)])
    mass, seen, null = (
        torch.tensor(array, dtype=torch.float32)
        for array in (weights.sum(1)[None, :, None], seen[None, None, None], null[None, None, None])
    )
    return Received(("all",), 0, mass, seen, null, torch.tensor([[[float(queries)]]]))


def attention(heads: int, queries: int, keys: int, seed: int, visible: np.ndarray | None = None, sharpness: float = 2.0) -> np.ndarray:
    scores = np.random.default_rng(seed).normal(size=(heads, queries, keys)) * sharpness
    if visible is not None:
        scores = np.where(visible, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


@given(heads=st.integers(1, 4), queries=st.integers(1, 30), keys=st.integers(2, 30), k=st.integers(1, 5), seed=st.integers(0, 99))
def test_the_strongest_keys_are_those_that_receive_most(heads: int, queries: int, keys: int, k: int, seed: int) -> None:
    weights = attention(heads, queries, keys, seed)
    found = anchors(MaskAnchors(k), received(weights))[0].numpy()
    for head in range(heads):
        mean = [sum(weights[head, i, j] for i in range(queries)) / queries for j in range(keys)]
        expected = sorted(range(keys), key=lambda j: (-mean[j], j))[:k]
        assert sorted(np.flatnonzero(found[head])) == sorted(expected)


@given(
    rule=st.sampled_from(["lift", "additive", "zscore", "rate"]), eps=st.floats(0.01, 0.9), causal=st.booleans(), seed=st.integers(0, 99)
)
def test_keys_above_a_threshold_are_found_by_every_rule(rule: str, eps: float, causal: bool, seed: int) -> None:
    n = 24
    visible = np.tril(np.ones((n, n), bool)) if causal else np.ones((n, n), bool)
    weights = attention(2, n, n, seed, visible)
    found = anchors(MaskAbove(eps, rule=rule), received(weights, visible))[0].numpy()
    for head in range(2):
        mass = [sum(weights[head, i, j] for i in range(n)) for j in range(n)]
        for j in range(n):
            seeing = [i for i in range(n) if visible[i, j]]
            fair = np.mean([1 / visible[i].sum() for i in seeing])
            others = [mass[other] for other in range(n) if other != j]
            margin = {
                "lift": mass[j] / len(seeing) / fair - 1,
                "additive": mass[j] - np.mean(others),  # as many keys as rows: mass is in units of an even share
                "zscore": (mass[j] - np.mean(mass)) / np.std(mass),
                "rate": mass[j] / len(seeing),
            }[rule]
            if abs(margin - eps) > 1e-4:
                assert found[head, j] == (margin > eps and len(seeing) >= 16)


@pytest.mark.parametrize("rule", ["lift", "additive", "zscore", "rate"])
@pytest.mark.parametrize("keys", [3, 40, 301])
def test_even_attention_has_no_anchors_however_it_is_rounded(rule: str, keys: int) -> None:
    weights = np.full((3, 50, keys), 1 / keys, np.float32)
    noisy = weights * (1 + 1e-7 * np.random.default_rng(0).normal(size=weights.shape))
    eps = 1 / keys + 1e-6 if rule == "rate" else 0.0
    assert not anchors(MaskAbove(eps, rule=rule), received(noisy)).any()


def test_of_equals_the_left_key_is_chosen_however_they_are_rounded() -> None:
    for seed in range(20):
        noise = 1 + 1e-7 * np.random.default_rng(seed).normal(size=(1, 6, 9))
        assert np.flatnonzero(anchors(MaskAnchors(2), received(np.full((1, 6, 9), 1 / 9) * noise))[0, 0]).tolist() == [0, 1]


def test_padding_is_never_chosen() -> None:
    seen = received(attention(2, 5, 6, 0))
    for part in (seen.mass, seen.visible, seen.null):
        part[..., :2] = float("nan")
    for intervention in (
        MaskAnchors(6),
        MaskAbove(0.0),
        MaskAbove(0.0, rule="additive"),
        MaskAbove(0.0, rule="zscore"),
        MaskAbove(0.0, rule="rate"),
    ):
        chosen = anchors(intervention, seen)
        assert not chosen[..., :2].any()
        assert chosen.any()


@given(permutation=st.permutations(range(5)), k=st.integers(1, 4))
def test_permuting_heads_permutes_what_is_chosen(permutation: list[int], k: int) -> None:
    weights = attention(5, 7, 8, 1)
    for intervention in (MaskAnchors(k), MaskAbove(0.4)):
        np.testing.assert_array_equal(
            anchors(intervention, received(weights))[0, permutation], anchors(intervention, received(weights[permutation]))[0]
        )


scenes: dict[str, Any] = {"keys": st.integers(4, 30), "picks": st.integers(1, 6), "seed": st.integers(0, 500)}


def scene(keys: int, picks: int, seed: int) -> tuple[np.random.Generator, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Picked and available keys, an order to draw in, and a share of attention for each: (1, 1, key)."""
    random = np.random.default_rng(seed)
    picked = torch.zeros(1, 1, keys, dtype=torch.bool)
    picked[0, 0, random.choice(keys, min(picks, keys), replace=False)] = True
    available = torch.from_numpy(random.random((1, 1, keys)) < 0.8) | picked
    return (
        random,
        picked,
        available,
        torch.from_numpy(random.random((1, 1, keys))),
        torch.from_numpy(random.dirichlet(np.full(keys, 0.5)))[None, None],
    )


@given(**scenes)
def test_as_many_others_are_drawn_in_order_or_it_is_refused(keys: int, picks: int, seed: int) -> None:
    _, picked, available, order, _ = scene(keys, picks, seed)
    others = [key for key in range(keys) if available[0, 0, key] and not picked[0, 0, key]]
    wanted = int(picked.sum())
    if len(others) < wanted:
        with pytest.raises(fl.Refusal, match=rf"to take {wanted} other keys in layer 3, head 0, and there are only {len(others)}"):
            fetch([], as_many_others(picked, available, order.argsort(-1), "layer 3").checks)
        return
    drawn = as_many_others(picked, available, order.argsort(-1), "layer 3")
    fetch([drawn.keys], drawn.checks)
    assert np.flatnonzero(drawn.keys[0, 0]).tolist() == sorted(sorted(others, key=lambda key: float(order[0, 0, key]))[:wanted])
    assert float(drawn.shortfall) == 0


@given(**scenes)
def test_others_are_drawn_until_they_hold_as_much(keys: int, picks: int, seed: int) -> None:
    _, picked, available, order, share = scene(keys, picks, seed)
    others = [key for key in range(keys) if available[0, 0, key] and not picked[0, 0, key]]
    others.sort(key=lambda key: float(order[0, 0, key]))
    target = float((share * picked).sum())
    drawn = as_much_from_others(picked, available, order.argsort(-1), share)
    taken: list[int] = []
    total = 0.0
    for key in others:
        if total >= target:
            break
        before, total = total, total + float(share[0, 0, key])
        taken.append(key)
        if total >= target and target - before < total - target:
            taken.pop()
    if total < target:
        taken = others[: max(len(others) - 1, 0)]
        shortfall = target - sum(float(share[0, 0, key]) for key in taken)
    else:
        shortfall = 0.0
    assert np.flatnonzero(drawn.keys[0, 0]).tolist() == sorted(taken)
    assert float(drawn.shortfall) == pytest.approx(shortfall, abs=1e-12)
    assert not (drawn.keys & picked).any()


def test_lots_are_even_and_depend_on_every_part() -> None:
    drawn = random_numbers(3, np.arange(20)[:, None, None], 7, 2, np.arange(16)[:, None], np.arange(64))
    counts = np.histogram(drawn, bins=16, range=(0, 1))[0]
    expected = drawn.size / 16
    assert ((counts - expected) ** 2 / expected).sum() < 37.7, "chi-square with 15 degrees of freedom, one in a thousand"
    first = drawn.argmin(-1).ravel()
    counts = np.bincount(first, minlength=64)
    assert ((counts - 5.0) ** 2 / 5.0).sum() < 103.4, "which key is drawn first: 63 degrees of freedom, one in a thousand"
    flat = drawn.reshape(-1, 64)
    assert abs(np.corrcoef(flat[:-1].ravel(), flat[1:].ravel())[0, 1]) < 0.03
    base = [3, 5, 7, 2, 1, 9]
    for part in range(len(base)):
        other = list(base)
        other[part] += 1
        assert random_numbers(*other) != random_numbers(*base)
    assert random_numbers(2**70 + 3, 1) == random_numbers(3 + 64 * 2**64, 1)  # any whole number is a seed


@given(queries=st.integers(1, 8), causal=st.booleans(), padded=st.integers(0, 3), seed=st.integers(0, 300))
def test_no_query_is_ever_left_with_nothing_to_see(queries: int, causal: bool, padded: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    padded = min(padded, queries - 1)
    real = torch.arange(queries)[None] >= padded
    mask = real[:, None, None].expand(1, 1, queries, queries).clone()
    if causal:
        mask &= torch.ones(queries, queries, dtype=torch.bool).tril()
    q = torch.zeros(1, 2, queries, 4)
    call = AttentionCall(q, q, q, mask=mask, causal=False, scale=0.5)
    entries = torch.from_numpy(random.random((1, 2, random.choice([1, queries]), queries)) < random.choice([0.5, 1.0]))
    hidden, whole = hide_keys(call, entries, Real(real, real, all_queries=False, all_keys=False))
    visible = hidden.mask.expand(1, 2, queries, queries)[0] if hidden.mask is not None else mask
    kept_something = False
    for head in range(2):
        for i in range(queries):
            seen = [j for j in range(queries) if mask[0, 0, i, j]]
            left = [j for j in range(queries) if visible[head, i, j]]
            if not real[0, i]:
                assert left == seen, "padding is left alone"
                continue
            expected = [j for j in seen if not entries[0, head, i % entries.shape[2], j]]
            assert left == (expected or [i]), "it keeps itself"
            kept_something |= not expected
    assert not whole, "whether all are hidden from everyone is not asked"
    if not kept_something:
        safely = hide_keys(call, entries, Real(real, real, all_queries=False, all_keys=False), safe=True)
        assert safely.whole
        assert safely.call.mask is not None
        assert hidden.mask is not None
        assert torch.equal(safely.call.mask, hidden.mask)
