"""Anchors, their rules and sweeps, against straight-line loops over dense attention."""

import numpy as np
import pytest
import torch
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

import floatlens as fl
from floatlens.measures import find_anchors, from_attention, lift, margin, measured, pool_steps, received, threshold_sweep
from floatlens.measures.inputs import as_dataset, one_sample_at_a_time
from writers import PROMPTS, autoregressive_model, diffusion_model

RULES = ["lift", "additive", "zscore", "rate", "top"]


def random_attention(
    seed: int, steps: int = 2, layers: int = 2, heads: int = 3, n: int = 40, causal: bool = False, sharp: float = 0.3
) -> np.ndarray:
    """Rows that sum to 1, spiky enough for anchors."""
    draw = np.random.default_rng(seed)
    weights = draw.gamma(sharp, size=(steps, layers, heads, n, n)) + 1e-6
    if causal:
        weights = weights * np.tril(np.ones((n, n)))
    return weights / weights.sum(-1, keepdims=True)


def is_anchor(rule: str, eps: float, weights: np.ndarray, visible: np.ndarray, rows: np.ndarray, key: int) -> bool:
    """The rule of METHODS for one key, from the weights (query, key) of one head."""
    n, m = int(rows.sum()), weights.shape[1]

    def mass(j: int) -> float:
        return sum(weights[i, j] for i in range(len(weights)) if rows[i])

    def received_by(j: int) -> float:
        seeing = [i for i in range(len(weights)) if rows[i] and visible[i, j]]
        return sum(weights[i, j] for i in seeing) / len(seeing)

    if rule == "lift":
        seeing = [i for i in range(len(weights)) if rows[i] and visible[i, key]]
        null = np.mean([1 / visible[i].sum() for i in seeing])
        return bool(received_by(key) / null > 1 + eps)
    if rule == "rate":
        return received_by(key) > eps
    if rule == "additive":
        a = [mass(j) * m / n for j in range(m)]
        return bool(a[key] > np.mean([a[k] for k in range(m) if k != key]) + eps)
    if rule == "zscore":
        x = np.array([mass(j) / n for j in range(m)])
        return bool(x[key] > x.mean() + eps * x.std())
    enough = [j for j in range(m) if visible[rows, j].sum() >= min(n, max(16, n / 4))]
    return key in sorted(enough, key=lambda j: -received_by(j))[: int(eps)]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("causal", [False, True])
def test_every_rule_finds_what_its_definition_says(rule: str, causal: bool) -> None:
    weights = random_attention(3, n=40, causal=causal)
    visible = np.tril(np.ones((40, 40), bool)) if causal else np.ones((40, 40), bool)
    groups = {"even thirds": np.arange(40) % 3 > 0, "all": np.ones(40, bool)}
    eps = {"lift": 0.4, "additive": 0.4, "zscore": 1.5, "rate": 0.035, "top": 3}[rule]
    found = find_anchors(from_attention(weights, visible=visible, groups=groups), rule=rule, eps=eps)
    hits = 0
    for (step, layer, head), (name, rows) in ((at, group) for at in np.ndindex(2, 2, 3) for group in groups.items()):
        here = found.isel(step=step, layer=layer, head=head).sel(group=name)
        n = rows.sum()
        for key in range(40):
            seen = visible[rows, key].sum() >= min(n, max(16, n / 4))
            there = found["measured"].isel(step=step).sel(group=name).values[key]
            assert there == seen
            expected = seen and is_anchor(rule, eps, weights[step, layer, head], visible, rows, key)
            assert here["anchor"].values[key] == expected
            hits += expected
    assert hits > 10, "nothing was found, so this shows nothing"


@pytest.mark.parametrize("rule", ["lift", "additive", "zscore", "rate"])
def test_even_attention_has_no_anchors_and_a_lift_of_one(rule: str) -> None:
    for visible in (np.ones((30, 30)), np.tril(np.ones((30, 30)))):
        data = from_attention(visible / visible.sum(1, keepdims=True), visible=visible)
        np.testing.assert_allclose(lift(data).values, 1, rtol=1e-12)
        if rule == "lift" or visible.all():  # the other rules take the first causal key for a sink: they do not know what is even
            assert not find_anchors(data, rule=rule)["anchor"].any()


def test_the_additive_and_zscore_rules_take_even_causal_attention_for_a_sink_and_lift_does_not() -> None:
    visible = np.tril(np.ones((60, 60)))
    data = from_attention(visible / visible.sum(1, keepdims=True), visible=visible)
    for rule, fires in (("additive", True), ("zscore", True), ("lift", False)):
        assert bool(find_anchors(data, rule=rule)["anchor"].isel(key=0).all()) is fires


def test_the_zscore_rule_cannot_fire_with_ten_keys() -> None:
    looks = np.zeros((20, 10))
    looks[:, 4] = 1  # all attention on one key
    assert not find_anchors(from_attention(looks), rule="zscore")["anchor"].any()
    assert find_anchors(from_attention(looks), rule="lift")["anchor"].values.ravel().nonzero()[0].tolist() == [4]


def test_the_additive_rule_on_averages_as_printed_never_fires() -> None:
    """A mean weight is at most 1, so no key can exceed the others' mean by 3; on sums scaled to the keys it can."""
    looks = np.zeros((20, 50))
    looks[:, 4] = 1
    averages = looks.mean(0)
    assert averages.max() - averages.min() < 3
    assert find_anchors(from_attention(looks), rule="additive")["anchor"].values.ravel().nonzero()[0].tolist() == [4]


def test_late_causal_keys_are_not_measured_rather_than_no_anchors() -> None:
    visible = np.tril(np.ones((100, 100)))
    data = from_attention(visible / visible.sum(1, keepdims=True), visible=visible)
    assert measured(data).squeeze().values.tolist() == [100 - key >= 25 for key in range(100)]


@given(st.integers(0, 10_000), st.permutations(range(4)))
@settings(max_examples=12, deadline=None)
def test_permuting_heads_permutes_anchors_and_nothing_else(seed: int, order: list[int]) -> None:
    weights = random_attention(seed, steps=1, layers=1, heads=4, n=12)
    data = from_attention(weights)
    for rule in RULES:
        whole = find_anchors(data, rule=rule)
        moved = find_anchors(data.isel(head=order), rule=rule)
        xr.testing.assert_identical(whole.isel(head=order), moved)
        first, second = (find_anchors(one, rule=rule, per_head=False)["anchor"] for one in (data, data.isel(head=order)))
        np.testing.assert_array_equal(first.values, second.values)


@pytest.mark.parametrize("rule", RULES)
def test_a_sweep_counts_what_find_anchors_finds_at_each_eps(rule: str) -> None:
    data = from_attention(random_attention(5, causal=True), visible=np.tril(np.ones((40, 40))))
    grid = {"rate": [0.02, 0.05, 0.1], "top": [1, 2, 7]}.get(rule, [0, 0.5, 1, 2.5])
    swept = threshold_sweep(data, rule=rule, eps=grid)
    for at, eps in enumerate(grid):
        found = find_anchors(data, rule=rule, eps=eps)
        for layer in range(2):
            anchor = found["anchor"].isel(layer=layer, group=0)
            there = found["measured"].isel(group=0).values.sum() * 3
            assert float(swept["kept"].isel(eps=at, layer=layer, group=0)) == pytest.approx(anchor.values.sum() / there)
            mass = data["mass"].isel(layer=layer, group=0)
            assert float(swept["absorbed"].isel(eps=at, layer=layer, group=0)) == pytest.approx(
                float(mass.where(anchor).sum() / mass.sum())
            )


def test_samples_are_measured_one_by_one_whatever_their_padding() -> None:
    lm = diffusion_model("llada")
    trace = lm.trace(PROMPTS, gen_length=6, steps=3, batch_size=3, progress=False)
    together = find_anchors(trace, eps=0.5)
    assert together["anchor"].dims == ("sample", *trace.sample(0)["mass"].dims)
    for number in range(len(PROMPTS)):
        own = trace.sample(number)
        alone = find_anchors(own, eps=0.5)
        keys = own.sizes["key"]
        here = together.isel(sample=number)
        np.testing.assert_array_equal(here["anchor"].values[..., :keys], alone["anchor"].values)
        assert not here["anchor"].values[..., keys:].any()
        assert not here["measured"].values[..., keys:].any()
    order = [2, 0, 1]
    moved = find_anchors(trace.dataset.isel(sample=order), eps=0.5)
    np.testing.assert_array_equal(moved["anchor"].values, together["anchor"].values[order])


def test_rows_of_all_steps_can_be_measured_together() -> None:
    weights = random_attention(2, steps=4, n=10)
    rows = np.zeros((4, 10), bool)
    rows[np.arange(4), [3, 4, 5, 8]] = True
    pooled = pool_steps(from_attention(weights, groups={"predicting": rows}))
    by_hand = sum(weights[step, :, :, row] for step, row in enumerate([3, 4, 5, 8]))
    np.testing.assert_allclose(pooled["mass"].sel(group="predicting").values, by_hand)
    even = sum(weights[step, :, :, row] for step, row in enumerate([3, 4, 5, 8]) if row % 2 == 0)
    np.testing.assert_allclose(pooled["mass_even"].sel(group="predicting").values, even)
    assert float(pooled["rows"].item()) == 4
    np.testing.assert_allclose(pooled["null"].values, 0.1)


def test_pooled_causal_steps_keep_the_null_of_each_row() -> None:
    lm = autoregressive_model()
    sample = lm.trace([PROMPTS[0]], gen_length=6, progress=False).sample(0)
    pooled = pool_steps(sample)
    start = len(PROMPTS[0])
    for key in range(start + 5):
        seeing = [row for row in range(start - 1, start + 5) if row >= key]
        assert float(pooled["visible"].sel(group="predicting")[key]) == len(seeing)
        assert float(pooled["null"].sel(group="predicting")[key]) == pytest.approx(np.mean([1 / (row + 1) for row in seeing]))


def test_dense_attention_reduces_as_the_tap_does() -> None:
    draw = np.random.default_rng(0)
    weights = draw.dirichlet(np.ones(6), size=(2, 3, 4, 5))  # steps, layers, heads, queries
    groups = {"a": draw.random((2, 5)) > 0.5, "b": np.array([True, False, True, True, False])}
    data = from_attention(weights, groups=groups)
    for step, layer, head in np.ndindex(2, 3, 4):
        for name, rows in groups.items():
            chosen = np.broadcast_to(rows, (2, 5))[step]
            np.testing.assert_allclose(
                data["mass"].isel(step=step, layer=layer, head=head).sel(group=name), weights[step, layer, head][chosen].sum(0)
            )
    assert received(data).shape == data["mass"].shape


def test_mistakes_are_said_in_a_sentence() -> None:
    data = from_attention(np.full((3, 4), 0.25))
    with pytest.raises(fl.Refusal, match="no anchor rule 'sinks'; the rules are lift"):
        find_anchors(data, rule="sinks")
    with pytest.raises(fl.Refusal, match="number of keys, 1 or more"):
        find_anchors(data, rule="top", eps=0)
    with pytest.raises(fl.Refusal, match="not a threshold"):
        find_anchors(data, eps=float("nan"))
    with pytest.raises(fl.Refusal, match="needs mass, which this trace does not hold"):
        find_anchors(data.drop_vars("mass"))
    with pytest.raises(fl.Refusal, match="grow from one to the next"):
        threshold_sweep(data, eps=[1, 1])
    with pytest.raises(fl.Refusal, match="not a ndarray"):
        as_dataset(np.zeros(3))  # type: ignore[arg-type]  # the mistake
    with pytest.raises(fl.Refusal, match="2 and 3 samples"):
        one_sample_at_a_time(lambda a, b: a)(xr.DataArray(np.zeros(2), dims="sample"), xr.DataArray(np.zeros(3), dims="sample"))
    with pytest.raises(fl.Refusal, match="6 axes"):
        from_attention(np.zeros((1,) * 6))
    with pytest.raises(fl.Refusal, match="has no margin"):
        margin(data, "top")


@pytest.mark.parametrize("kept", ["head", "layer"])
def test_heads_that_an_edit_keeps_from_different_keys_are_averaged_together(kept: str) -> None:
    def hide_one_key_from_each_head(call: fl.AttentionCall, before: fl.Before) -> fl.AttentionCall:
        return call.hide((torch.arange(call.keys) == torch.arange(call.heads)[:, None])[None, :, None])

    lm = diffusion_model("llada")
    sample = lm.trace([PROMPTS[0]], gen_length=4, edits=[hide_one_key_from_each_head], detail={"mass": kept}, progress=False).sample(0)
    assert "head" in sample["visible"].dims
    found = find_anchors(sample, eps=0.5, per_head=False)
    heads = sample.sizes["head"]
    for step, layer, group, key in np.ndindex(*found["anchor"].shape):
        here = sample.isel(step=step, layer=layer, group=group, key=key)
        mass = here["mass"].values.mean()
        fair = np.nansum(here["visible"].values * here["null"].values) / heads
        assert bool(found["anchor"][step, layer, group, key]) == (mass > 1.5 * fair and bool(found["measured"][step, layer, group, key]))
    if kept == "layer":
        xr.testing.assert_identical(found, find_anchors(sample, eps=0.5))
