"""The contracts as properties over masks, padding, GQA ratios, dtypes and block sizes, on a plain module that calls SDPA."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import dense
import floatlens as fl
import zoo

KINDS = ["none", "causal flag", "causal", "block-causal", "window", "random", "one sample each", "one head each"]


@dataclass(frozen=True)
class Case:
    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None  # what the module gets
    causal: bool
    visible: Tensor  # bool (sample, head or 1, query, key): what it means, padding included
    bias: Tensor | None
    padding: Tensor
    block_entries: int

    @property
    def scale(self) -> float:
        return float(self.query.shape[-1]) ** -0.5


@st.composite
def cases(draw: st.DrawFn, square: bool = False) -> Case:
    samples, kv_heads, repeats = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.sampled_from([1, 2, 3]))
    queries = draw(st.integers(2, 150))
    keys = queries if square else draw(st.sampled_from([queries, queries + draw(st.integers(1, 40))]))
    kind = draw(st.sampled_from(KINDS))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    depth = draw(st.sampled_from([4, 8, 13]))
    heads = kv_heads * repeats
    query = torch.randn(samples, heads, queries, depth, generator=generator)
    key = torch.randn(samples, kv_heads, keys, depth, generator=generator)
    value = torch.randn(samples, kv_heads, keys, depth, generator=generator)
    at_query, at_key = torch.arange(queries)[:, None] + keys - queries, torch.arange(keys)
    visible = {
        "none": torch.ones(1, 1, queries, keys, dtype=torch.bool),
        "causal flag": torch.ones(1, 1, queries, keys, dtype=torch.bool).tril(),
        "causal": (at_key <= at_query)[None, None],
        "block-causal": (at_key // 4 <= at_query // 4)[None, None],
        "window": ((at_key <= at_query) & (at_key > at_query - 7))[None, None],
        "random": torch.rand(1, 1, queries, keys, generator=generator) < 0.6,
        "one sample each": torch.rand(samples, 1, queries, keys, generator=generator) < 0.7,
        "one head each": torch.rand(1, heads, queries, keys, generator=generator) < 0.7,
    }[kind]
    padding = torch.ones(samples, keys, dtype=torch.bool)
    if kind not in ("none", "causal flag") and keys == queries:
        amount = draw(st.integers(0, queries // 2))
        side = draw(st.sampled_from(["left", "right"]))
        padding[-1, slice(0, amount) if side == "left" else slice(keys - amount, keys)] = False
        visible = visible & padding[:, None, None]
    bias = None
    if kind in ("none", "causal flag"):
        mask = None
    elif draw(st.booleans()):
        mask = visible
    else:
        if draw(st.booleans()):
            bias = torch.randn(1, 1, queries, keys, generator=generator)
        hiding = draw(st.sampled_from([float("-inf"), torch.finfo(torch.float32).min, -1e4]))
        mask = torch.where(visible, torch.zeros(()) if bias is None else bias, torch.tensor(hiding))
    entries = draw(st.sampled_from([1, 64, 1000, 5000, 1 << 20]))
    return Case(query, key, value, mask, kind == "causal flag", visible, bias, padding, entries)


def tapped(case: Case, **options: object) -> fl.Tap:
    module = zoo.Direct()
    tap = fl.tap(module, layers=1, padding=case.padding, block_entries=case.block_entries, **options)  # type: ignore[arg-type]  # passed on
    with tap:
        module(case.query, case.key, case.value, case.mask, case.causal)
    return tap


def reference(case: Case) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Eager weights, who sees whom per head, and which rows are real and see something (sample, head, query)."""
    hidden = torch.tensor(torch.finfo(torch.float32).min)
    mask = case.visible if case.bias is None else torch.where(case.visible, case.bias, hidden).double()
    weights = zoo.eager_weights(case.query.double(), case.key.double(), mask, case.scale)
    visible = (case.visible & case.padding[:, None, None]).expand(*weights.shape).numpy()
    queries = case.query.shape[2]
    real = case.padding[:, case.key.shape[2] - queries :].numpy()
    return weights, visible, real[:, None] & visible.any(-1)


@settings(max_examples=60)
@given(cases())
def test_observing_leaves_the_output_bit_identical(case: Case) -> None:
    module = zoo.Direct()
    unobserved = module(case.query, case.key, case.value, case.mask, case.causal)
    with fl.tap(module, layers=1, padding=case.padding, block_entries=case.block_entries):
        observed = module(case.query, case.key, case.value, case.mask, case.causal)
    assert torch.equal(unobserved, observed) or (unobserved.isnan() == observed.isnan()).all()
    assert torch.equal(unobserved.nan_to_num(), observed.nan_to_num())


@settings(max_examples=80)
@given(cases())
def test_streamed_reductions_equal_the_dense_computation(case: Case) -> None:
    data = tapped(case, keep=["mass", "entropy:rows", "geometry"]).dataset
    weights, visible, live = reference(case)
    real_keys = case.padding.numpy()
    query, key = case.query.double().numpy(), case.key.double().repeat_interleave(case.query.shape[1] // case.key.shape[1], 1).numpy()
    for sample in range(weights.shape[0]):
        here = data.isel(sample=sample, layer=0, group=0)
        nothing = np.where(real_keys[sample], 0, np.nan)
        for head in range(weights.shape[1]):
            own = {name: here[name].isel(head=head) if "head" in here[name].dims else here[name] for name in here.data_vars}
            rows = live[sample, head]
            expected = dense.received(weights[sample, head : head + 1], visible[sample, head], rows)
            np.testing.assert_allclose(own["mass"].values, expected["mass"][0] + nothing, rtol=1e-6, atol=1e-6 * max(1.0, rows.sum()))
            np.testing.assert_array_equal(own["visible"].values, expected["visible"] + nothing)
            np.testing.assert_allclose(own["null"].values, expected["null"] + nothing, rtol=1e-6)
            entropy = dense.relative_entropy(weights[sample, head : head + 1], visible[sample, head])[0]
            np.testing.assert_allclose(own["row_entropy"].values, np.where(rows, entropy, np.nan), rtol=1e-5, atol=2e-6)
            one = slice(head, head + 1)
            for name, values in dense.geometry(query[sample, one], key[sample, one], visible[sample, head], rows).items():
                largest = np.nanmax(np.abs(values), initial=1.0)
                np.testing.assert_allclose(own[name].values / largest, values[0] / largest + nothing, atol=1e-6)


@settings(max_examples=60)
@given(cases())
def test_rows_sum_to_one_and_hidden_keys_have_exactly_nothing(case: Case) -> None:
    heads = case.query.shape[1]
    data = tapped(case, keep=["mass"], patterns=[(0, head) for head in range(heads)]).dataset
    _, visible, live = reference(case)
    pattern = data.pattern.values
    assert np.allclose(np.nansum(pattern, -1)[live], 1, atol=1e-5)
    assert np.isnan(pattern[~live]).all()
    shown = live[..., None] & case.padding[:, None, None].numpy()
    assert (pattern[shown & ~visible] == 0).all()
    never_seen = ~(visible & live[..., None]).any(-2) & case.padding[:, None].numpy()
    assert (data.mass.isel(layer=0, group=0).values[never_seen] == 0).all()
    without_keys = case.padding[:, case.key.shape[2] - case.query.shape[2] :].numpy()[:, None] & ~visible.any(-1)
    found = data.rows_without_keys.isel(layer=0, group=0).values
    np.testing.assert_array_equal(found if found.ndim == 2 else np.repeat(found[:, None], heads, 1), without_keys.sum(-1))


@settings(max_examples=30)
@given(cases(square=True), st.sampled_from([torch.bfloat16, torch.float16, torch.float64]))
def test_other_precisions_equal_the_float32_computation_on_the_same_numbers(case: Case, dtype: torch.dtype) -> None:
    query, key, value = (tensor.to(dtype) for tensor in (case.query, case.key, case.value))
    mask = case.mask if case.mask is None or case.mask.dtype == torch.bool else case.mask.clamp(min=-6e4).to(dtype)
    module = zoo.Direct()
    with fl.tap(module, layers=1, padding=case.padding, keep=["mass", "entropy"]) as tap:
        module(query, key, value, mask, case.causal)
    mask = mask if mask is None or mask.dtype == torch.bool else mask.float()
    with fl.tap(module, layers=1, padding=case.padding, keep=["mass", "entropy"]) as plain:
        module(query.float(), key.float(), value.float(), mask, case.causal)
    for name in ("mass", "entropy"):
        np.testing.assert_allclose(tap.dataset[name].values, plain.dataset[name].values, rtol=1e-4, atol=1e-5)


@settings(max_examples=20)
@given(cases(square=True), st.integers(1, 3000), st.integers(1, 3000))
def test_block_size_does_not_matter(case: Case, one: int, other: int) -> None:
    found = []
    for entries in (one, other):
        module = zoo.Direct()
        with fl.tap(module, layers=1, padding=case.padding, block_entries=entries, keep=["mass", "entropy:rows", "top_keys:2"]) as tap:
            module(case.query, case.key, case.value, case.mask, case.causal)
        found.append(tap.dataset)
    for name in ("mass", "row_entropy", "top_weight"):
        np.testing.assert_allclose(found[0][name].values, found[1][name].values, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("grouped", [False, True])
def test_multi_query_attention_is_bit_identical_whether_torch_is_told_or_broadcasts(grouped: bool) -> None:
    """Without `enable_gqa` torch broadcasts one key head on its math kernel, which rounds differently."""

    class MultiQuery(nn.Module):
        def forward(self, query: Tensor, key: Tensor) -> Tensor:
            return F.scaled_dot_product_attention(query, key, key, enable_gqa=grouped)

    generator = torch.Generator().manual_seed(0)
    query, key = torch.randn(2, 4, 40, 16, generator=generator), torch.randn(2, 1, 40, 16, generator=generator)
    module = MultiQuery()
    unobserved = module(query, key)
    with fl.tap(module, layers=1, keep=["mass"]) as tap:
        observed = module(query, key)
    assert torch.equal(unobserved, observed)
    expected = zoo.eager_weights(query.double(), key.double(), None, 0.25).sum(-2)
    np.testing.assert_allclose(tap.dataset.mass.isel(layer=0, group=0).values, expected, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", ["boolean", "additive", "flag"])
def test_a_hidden_key_has_nothing_however_high_its_score(dtype: torch.dtype, kind: str) -> None:
    query, key = torch.ones(1, 1, 4, 4, dtype=dtype), torch.ones(1, 1, 4, 4, dtype=dtype)
    key[..., -1, :] = 2e4  # scores 40,000 above the rest
    visible = torch.ones(4, 4, dtype=torch.bool).tril()
    visible[-1, -1] = kind == "flag"
    additive = torch.zeros(4, 4, dtype=dtype).masked_fill(~visible, float("-inf"))
    mask = {"boolean": visible, "additive": additive, "flag": None}[kind]
    module = zoo.Direct()
    with fl.tap(module, layers=1, keep=["mass"], patterns=[(0, 0)], padding=torch.ones(1, 4)) as tap:
        module(query, key, key, mask, kind == "flag")
    pattern = tap.dataset.pattern.values[0, 0]
    np.testing.assert_allclose(pattern.sum(-1), 1, rtol=1e-5)
    assert (pattern[~visible.numpy()] == 0).all()


def test_a_mask_rewritten_in_place_between_layers_is_read_again() -> None:
    class Rewriting(nn.Module):
        def forward(self, hidden: Tensor) -> Tensor:
            mask = torch.ones(1, 1, 6, 6, dtype=torch.bool)
            mask[..., 3:] = False
            hidden = F.scaled_dot_product_attention(hidden, hidden, hidden, mask)
            mask[:] = True
            return F.scaled_dot_product_attention(hidden, hidden, hidden, mask)

    hidden = torch.randn(1, 2, 6, 4, generator=torch.Generator().manual_seed(0))
    for context in (torch.no_grad, torch.inference_mode):
        with context(), fl.tap(module := Rewriting(), layers=2, keep=["mass"], padding=torch.ones(1, 6)) as tap:
            module(hidden.clone())
        assert tap.dataset.visible.isel(sample=0, group=0).values.tolist() == [[6, 6, 6, 0, 0, 0], [6] * 6]
        assert (tap.dataset.mass.isel(layer=1).values > 0).all()


def test_a_query_of_length_zero_has_cosine_zero() -> None:
    query, key = torch.randn(1, 1, 5, 4), torch.randn(1, 1, 5, 4)
    query[0, 0, 2] = 0
    with fl.tap(module := zoo.Direct(), layers=1, keep=["geometry"]) as tap:
        module(query, key, key)
    expected = F.cosine_similarity(query[0, 0][:, None], key[0, 0][None], dim=-1).mean(0)
    np.testing.assert_allclose(tap.dataset.cosine.values[0, 0, 0, 0], expected, atol=1e-6)


def test_top_keys_are_positions_of_the_text_in_every_block() -> None:
    """A window over 300 rows: later blocks begin at later keys."""
    generator = torch.Generator().manual_seed(0)
    query, key = (torch.randn(1, 2, 300, 8, generator=generator) for _ in range(2))
    at = torch.arange(300)
    window = ((at <= at[:, None]) & (at > at[:, None] - 9))[None, None]
    with fl.tap(module := zoo.Direct(), layers=1, keep=["top_keys:2"]) as tap:
        module(query, key, key, window)
    expected = zoo.eager_weights(query, key, window, 8**-0.5).argmax(-1)
    np.testing.assert_array_equal(tap.dataset.top_key.isel(layer=0, rank=0).values, expected)
