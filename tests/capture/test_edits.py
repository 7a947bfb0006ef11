"""Edits change a call before it runs; what was there before them stays known, and an edited record says so."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import floatlens as fl
import zoo

LENGTH = 14


@dataclass(frozen=True)
class HideKey:
    """Hide one key from everyone but itself."""

    key: int
    uses_statistics = False

    def __call__(self, call: fl.AttentionCall, before: fl.Before) -> fl.AttentionCall:
        hidden = torch.zeros(call.queries, call.keys, dtype=torch.bool)
        hidden[:, self.key] = True
        hidden[self.key, self.key] = False
        return call.hide(hidden)


def observe(model: Any, *edits: Any, **options: Any) -> tuple[torch.Tensor, Any]:
    with fl.tap(model, edits=edits, **options) as tap:
        logits = model(zoo.tokens(2, LENGTH)).logits
    return logits, tap.dataset


@pytest.fixture(params=["llama", "llama, bidirectional", "qwen2"])
def model(request: pytest.FixtureRequest) -> Any:
    return zoo.build(request.param)


def test_a_hidden_key_has_no_mass_and_the_output_is_that_of_the_masked_model(model: Any) -> None:
    logits, data = observe(model, HideKey(3), patterns=[(0, 1)])
    causal = getattr(model.config, "is_causal", True) is not False
    mask = torch.ones(LENGTH, LENGTH, dtype=torch.bool)
    mask = mask.tril() if causal else mask
    mask[:, 3] = torch.arange(LENGTH) == 3
    expected = model(zoo.tokens(2, LENGTH), attention_mask=mask[None, None].expand(2, 1, -1, -1)).logits
    torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-4)
    pattern = data.pattern.values[0, 0]
    assert (np.delete(pattern[:, 3], 3) == 0).all()
    np.testing.assert_allclose(pattern.sum(-1), 1, atol=1e-5)


def test_an_edited_record_says_so(model: Any) -> None:
    _, edited = observe(model, HideKey(3))
    _, untouched = observe(model)
    assert (edited.attrs["edited"], edited.attrs["edits"]) == (1, ["HideKey(key=3)"])
    assert (untouched.attrs["edited"], untouched.attrs["edits"]) == (0, [])


def test_statistics_before_the_edit_are_those_of_the_unedited_call() -> None:
    model = zoo.build("llama")
    _, untouched = observe(model)
    seen: list[fl.Before] = []

    def hide_the_strongest(call: fl.AttentionCall, before: fl.Before) -> fl.AttentionCall:
        seen.append(before)
        assert before.now is not None
        strongest = before.now.mass[:, :, 0].argmax(-1)  # (sample, head)
        hidden = torch.nn.functional.one_hot(strongest, call.keys).bool()[:, :, None].expand(-1, -1, call.queries, -1)
        return call.hide(hidden & ~torch.eye(call.queries, dtype=torch.bool))

    _, edited = observe(model, hide_the_strongest)
    first = untouched.mass.isel(layer=0)
    np.testing.assert_allclose(edited.mass_before_edits.isel(layer=0), first, atol=1e-5)
    assert seen[0].now is not None
    np.testing.assert_allclose(seen[0].now.visible[:, 0], untouched.visible.isel(layer=0), atol=0)
    np.testing.assert_allclose(seen[0].now.null[:, 0], untouched["null"].isel(layer=0), rtol=1e-6)
    strongest = first.isel(group=0).argmax("key")
    kept = edited.mass.isel(layer=0, group=0).isel(key=strongest)
    assert (kept.values <= 1 + 1e-5).all()  # only the key itself still looks at it
    assert "head" in edited.visible.dims  # each head now sees something else


def test_layers_that_an_edit_left_alone_keep_their_own_statistics() -> None:
    """Their calls are reduced together, since nothing about them was changed."""
    model = zoo.build("llama")
    seen: list[Any] = []

    def look(call: fl.AttentionCall, before: fl.Before) -> fl.AttentionCall:
        assert before.now is not None
        seen.append(before.now.mass)
        return call

    _, looked_at = observe(model, look)
    _, untouched = observe(model)
    for layer, mass in enumerate(seen):
        np.testing.assert_array_equal(looked_at.mass_before_edits.isel(layer=layer).values, mass)
        np.testing.assert_allclose(mass, untouched.mass.isel(layer=layer).values, atol=1e-5)


def test_the_step_before_stays_available_before_its_edit() -> None:
    """Chosen after the edit, the hidden key would never show again; before it, it shows at every step."""
    model = zoo.build("llama, bidirectional")
    previous: list[Any] = []

    def remember(call: fl.AttentionCall, before: fl.Before) -> fl.AttentionCall:
        if call.layer == 0:
            previous.append((before.previous, before.now))
            hidden = torch.zeros(call.queries, call.keys, dtype=torch.bool)
            hidden[:, 2] = True
            return call.hide(hidden)
        return call

    with fl.tap(model, step_on=model, edits=[remember]) as tap:
        for seed in range(3):
            model(zoo.tokens(1, LENGTH, seed=seed))
    assert previous[0][0] is None
    for step in (1, 2):
        assert previous[step][0] is previous[step - 1][1]
        assert float(previous[step][0].mass[..., 2].min()) > 0
    assert (tap.dataset.mass.isel(layer=0, key=2).values == 0).all()
    assert (tap.dataset.mass_before_edits.isel(layer=0, key=2).values > 0).all()


def test_a_silenced_head_adds_nothing() -> None:
    model = zoo.build("llama")

    class Silence:
        uses_statistics = False

        def __call__(self, call: fl.AttentionCall, before: fl.Before) -> fl.AttentionCall:
            assert before.now is None
            return call.scale_heads(torch.tensor([1.0, 0.0, 1.0, 1.0])) if call.layer == 1 else call

    logits, data = observe(model, Silence())
    with torch.no_grad():
        depth = model.config.hidden_size // 4
        model.model.layers[1].self_attn.o_proj.weight[:, depth : 2 * depth] = 0
    expected = model(zoo.tokens(2, LENGTH)).logits
    torch.testing.assert_close(logits, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(data.mass.sum("key").values, LENGTH, rtol=1e-5)  # its attention is still there, its output is not


def test_values_can_be_changed_per_query_head() -> None:
    """Qwen2 here has one KV head for four query heads: zeroing a value for one of them needs the heads spelled out."""
    model = zoo.build("qwen2")

    def zero_values_of_head_two(call: fl.AttentionCall, before: fl.Before) -> fl.AttentionCall:
        call = call.expand_heads()
        assert call.kv_heads == call.heads == 4
        value = call.value.clone()
        value[:, 2] = 0
        return call.with_keys(call.key, value)

    logits, data = observe(model, zero_values_of_head_two)
    for layer in model.model.layers:
        depth = model.config.hidden_size // 4
        with torch.no_grad():
            layer.self_attn.o_proj.weight[:, 2 * depth : 3 * depth] = 0
    torch.testing.assert_close(logits, model(zoo.tokens(2, LENGTH)).logits, rtol=1e-4, atol=1e-4)
    assert (data.value_norm.isel(head=2).values == 0).all()
    assert (data.value_norm.isel(head=1).values > 0).all()


def test_a_bias_moves_attention_by_its_exponential() -> None:
    model = zoo.build("llama, bidirectional")
    bias = torch.zeros(LENGTH)
    bias[4] = 1.5

    def push(call: fl.AttentionCall, before: fl.Before) -> fl.AttentionCall:
        return call.add_bias(bias) if call.layer == 0 else call

    _, untouched = observe(model, patterns=[(0, 0)])
    _, pushed = observe(model, push, patterns=[(0, 0)])
    weights = untouched.pattern.isel(chosen=0).values * np.exp(bias.numpy())
    np.testing.assert_allclose(pushed.pattern.isel(chosen=0).values, weights / weights.sum(-1, keepdims=True), atol=1e-6)


@pytest.mark.parametrize("family", ["llama", "llama, bidirectional"])
@pytest.mark.parametrize("masked", [False, True])
def test_an_appended_key_is_seen_by_all_and_moves_nothing_else(family: str, masked: bool) -> None:
    """An extra sink of score 0 takes 1 / (1 + sum of exp) of every row, and leaves positions as they are."""
    model = zoo.build(family)
    inputs = {"input_ids": zoo.tokens(2, LENGTH)}
    if masked:
        ids, mask = zoo.padded(inputs["input_ids"], "right", 4)
        inputs = {"input_ids": ids, "attention_mask": mask}

    def append_sink(call: fl.AttentionCall, before: fl.Before) -> fl.AttentionCall:
        empty = torch.zeros_like(call.key[:, :, :1])
        return call.append_keys(empty, empty) if call.layer == 0 else call

    regions = {"start": (0, 5), "rest": (5, LENGTH)}
    with fl.tap(model, edits=[append_sink], regions=regions, keep=["mass", "flow"], patterns=[(0, 0)]) as tap:
        model(**inputs)
    data = tap.dataset.isel(layer=0)
    rows = [LENGTH, LENGTH - 4 if masked else LENGTH]
    assert data.length.values.tolist() == rows
    assert data.region_rows.values.tolist() == [[5, row - 5] for row in rows]
    assert data.visible.isel(group=0, key=LENGTH).values.tolist() == rows
    call = zoo.eager_calls(model, **inputs)[0]
    scores = np.where(call.visible, (call.query @ call.key.transpose(0, 1, 3, 2))[:, 0] * 8**-0.5, -np.inf)
    sink = 1 / (1 + np.exp(scores).sum(-1))
    found = tap.dataset.pattern.isel(chosen=0).values[:, :, LENGTH]
    for sample, count in enumerate(rows):
        np.testing.assert_allclose(found[sample, :count], sink[sample, :count], atol=1e-5)
    np.testing.assert_allclose(data.mass.sum("key").values[..., 0].T, np.broadcast_to(rows, (4, 2)), rtol=1e-5)


def test_the_step_before_says_where_its_keys_stood() -> None:
    """A sliding window of five: the same index is another token at every step."""
    model = zoo.build("gemma3")
    starts = []

    def look(call: fl.AttentionCall, before: fl.Before) -> fl.AttentionCall:
        if call.layer == 0 and before.previous is not None and before.now is not None:
            assert before.now.key_start == call.key_start
            starts.append((before.previous.key_start, before.now.key_start))
        return call

    with fl.tap(model, step_on=model, edits=[look]):
        model.generate(zoo.tokens(1, 9), max_new_tokens=4, min_new_tokens=4, do_sample=False, pad_token_id=0)
    assert starts == [(0, 5), (5, 6), (6, 7)]


def test_an_edit_does_not_hide_a_padding_mistake() -> None:
    model = zoo.build("llama, bidirectional")
    ids, _ = zoo.padded(zoo.tokens(2, LENGTH), "right", 4)
    with pytest.raises(fl.Refusal, match="ends with the padding token"), fl.tap(model, edits=[HideKey(3)]):
        model(input_ids=ids)


def test_the_edit_in_the_docs_hides_the_strongest_real_key() -> None:
    model = zoo.build("llama, bidirectional")
    ids, mask = zoo.padded(zoo.tokens(2, LENGTH), "left", 4)
    text = (Path(__file__).parents[2] / "docs" / "how-to" / "tap.md").read_text()
    source = next(block for block in text.split("```python")[1:] if "def hide_the_strongest_key" in block)
    names: dict[str, Any] = {"torch": torch}
    exec(source.split("with fl.tap")[0], names)
    with fl.tap(model, edits=[names["hide_the_strongest_key"]]) as tap:
        model(ids, attention_mask=mask)
    before = tap.dataset.mass_before_edits.isel(layer=0).sum(("head", "group"), skipna=False).values
    after = tap.dataset.mass.isel(layer=0).sum(("head", "group"), skipna=False).values
    for sample in range(2):
        strongest = np.nanargmax(before[sample])
        assert after[sample, strongest] == 0
        assert (np.delete(after[sample], strongest)[4:] > 0).all()


def test_edits_run_one_after_the_other(model: Any) -> None:
    together, _ = observe(model, HideKey(3), HideKey(5))

    def both(call: fl.AttentionCall, before: fl.Before) -> fl.AttentionCall:
        return HideKey(5)(HideKey(3)(call, before), before)

    at_once, _ = observe(model, both)
    assert torch.equal(together, at_once)


def test_an_edit_that_changes_nothing_leaves_logits_bit_identical(model: Any) -> None:
    def look(call: fl.AttentionCall, before: fl.Before) -> fl.AttentionCall:
        return call

    logits, _ = observe(model, look)
    assert torch.equal(logits, model(zoo.tokens(2, LENGTH)).logits)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda call, before: None, "returned a NoneType; an edit returns the call"),
        (
            lambda call, before: call.hide(torch.zeros(3, 3, dtype=torch.bool)),
            r"broadcastable to \(sample, head, query, key\) = \(2, 4, 14, 14\)",
        ),
        (lambda call, before: call.hide(torch.zeros(14)), "call.hide takes a boolean tensor"),
        (lambda call, before: call.scale_heads(torch.ones(3)), r"one factor per query head, shape \(4,\) or \(2, 4\)"),
        (lambda call, before: call.with_keys(call.key[:, :, :3], call.value[:, :, :3]), r"must stay as they are\. Use call\.hide"),
        (lambda call, before: call.append_keys(call.key[:, :1], call.value[:, :1]), "sample, head and depth must agree"),
    ],
)
def test_a_mistaken_edit_is_refused_with_a_sentence(edit: Any, message: str) -> None:
    with pytest.raises(fl.Refusal, match=message):
        observe(zoo.build("llama"), edit)
