"""Memory stays bounded: what a tap holds at once does not grow with the square of the text, nor a trace with what its layers show."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.profiler import ProfilerActivity, profile
from transformers import LlamaConfig, LlamaForCausalLM

import floatlens as fl
import zoo
from floatlens.capture import reduction, tapping
from floatlens.errors import BrokenPromise


def peak_bytes(run: object) -> int:
    """The most memory torch held at once while `run` ran, from the allocator's own events."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        run()  # type: ignore[operator]  # any callable
    held, peak = 0, 0
    events = [event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]  # type: ignore[union-attr]  # set once it ran
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()  # type: ignore[attr-defined]  # missing from torch's stubs
        peak = max(peak, held)
    return peak


def test_at_8192_tokens_the_extra_peak_is_below_one_heads_full_matrix() -> None:
    length, heads = 8192, 2
    generator = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(1, heads, length, 16, generator=generator) for _ in range(3))
    module = zoo.Direct()
    one_head = length * length * 4

    def bare() -> None:
        module(query, key, value)

    def tapped() -> None:
        with fl.tap(module, layers=1):
            module(query, key, value)

    bare()  # what torch sets up once is nobody's cost
    extra = peak_bytes(tapped) - peak_bytes(bare)
    assert 0 < extra < one_head / 4
    assert peak_bytes(lambda: query @ key.transpose(-1, -2)) > one_head  # the measure sees a full matrix where there is one


def test_one_query_against_a_long_cache_needs_little_more_than_its_own_keys() -> None:
    """A decoding step: many heads and samples, one row each. Keys are made ready a few heads at a time."""
    query, key = torch.randn(8, 32, 1, 64), torch.randn(8, 32, 2048, 64)
    module = zoo.Direct()

    def tapped() -> None:
        with fl.tap(module, layers=1):
            module(query, key, key)

    tapped()
    assert peak_bytes(tapped) < 48 << 20
    assert key.numel() * 4 == 128 << 20


class Deep(torch.nn.Module):
    """Thirty-two layers, each with queries and keys of its own."""

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        for layer in range(32):
            hidden = torch.nn.functional.scaled_dot_product_attention(hidden + layer / 32, hidden.roll(1, 2), hidden * 1.1)
        return hidden


def test_what_is_held_of_many_layers_stays_within_the_bytes_that_are_allowed() -> None:
    hidden = torch.randn(1, 1, 2048, 16, generator=torch.Generator().manual_seed(0))
    of_all_layers = 32 * 3 * hidden.nbytes
    module = Deep()

    def tapped(held_bytes: int) -> None:
        with fl.tap(module, layers=32, keep=["mass", "entropy"], held_bytes=held_bytes):
            module(hidden)

    tapped(0)
    few, all_of_them = peak_bytes(lambda: tapped(of_all_layers // 16)), peak_bytes(lambda: tapped(of_all_layers))
    assert few < all_of_them - of_all_layers / 2
    assert few < 2 * 2048 * 2048 * 4, "the two buffers of a block, and little more"


class Masked(torch.nn.Module):
    """Thirty-two layers, each with a large mask of its own over few numbers."""

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        for layer in range(32):
            mask = torch.ones(hidden.shape[2], hidden.shape[2], dtype=torch.bool)
            mask[:, layer] = False
            hidden = torch.nn.functional.scaled_dot_product_attention(hidden, hidden, hidden, mask)
        return hidden


def test_masks_that_layers_do_not_share_count_as_held() -> None:
    hidden = torch.randn(1, 1, 1024, 4, generator=torch.Generator().manual_seed(0))
    of_a_mask = hidden.shape[2] ** 2

    def tapped(held_bytes: int) -> None:
        with fl.tap(module := Masked(), layers=32, keep=["mass"], held_bytes=held_bytes, padding=torch.ones(1, 1024)):
            module(hidden)

    tapped(0)
    few, all_of_them = peak_bytes(lambda: tapped(4 * of_a_mask)), peak_bytes(lambda: tapped(64 * of_a_mask))
    assert few < all_of_them - 20 * of_a_mask


PROMPT_LENGTH, WRITTEN, MASK = 240, 16, 63


@pytest.fixture(scope="module")
def deep_model() -> fl.LanguageModel:
    """Thirty-two layers that write."""
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"hidden_size": 64, "intermediate_size": 64, "num_attention_heads": 4, "num_key_value_heads": 1}
    config = LlamaConfig(vocab_size=64, num_hidden_layers=32, **sizes)
    config.is_causal = False
    return fl.LanguageModel(LlamaForCausalLM(config).eval(), mask_token_id=MASK)


def limit(monkeypatch: pytest.MonkeyPatch, *, waiting: int, seen: int) -> None:
    """Reduce calls when more bytes of them wait, and let go of queries when more bytes of them were seen."""
    monkeypatch.setattr(tapping.TapRequest, "__init__", _with_held_bytes(tapping.TapRequest.__init__, waiting))
    monkeypatch.setattr(reduction, "SEEN_BYTES", seen)


def _with_held_bytes(make: Any, waiting: int) -> Any:
    return lambda self, **given: make(self, **{**given, "held_bytes": waiting})


def traced(lm: fl.LanguageModel) -> Any:
    generator = torch.Generator().manual_seed(1)
    prompts = [torch.randint(0, MASK - 5, (length,), generator=generator).tolist() for length in (PROMPT_LENGTH, PROMPT_LENGTH)]
    return lm.trace(prompts, gen_length=WRITTEN, steps=2, block_length=8, batch_size=2, progress=False)


def test_beyond_both_limits_a_trace_of_32_layers_is_the_same_in_bounded_memory(
    deep_model: fl.LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls are reduced four layers at a time, and of the queries of a step only those of rows that may predict stay."""
    length, samples, depth = PROMPT_LENGTH + WRITTEN, 2, 16
    row = 32 * depth * 4 * samples * length  # bytes of a head of all layers
    queries, keys = 4 * row, row
    whole, seen_at_once = traced(deep_model), []
    add = reduction.SeenStep.add

    def watched(self: reduction.SeenStep, layers: reduction.SeenLayers) -> None:
        add(self, layers)
        seen_at_once.append((self.bytes, sum(len(held.identities) for held in self.layers)))

    monkeypatch.setattr(reduction.SeenStep, "add", watched)
    peak_without = peak_bytes(lambda: traced(deep_model))
    assert max(seen_at_once)[0] >= queries + keys, "without limits, everything is held"
    seen_at_once.clear()
    limit(monkeypatch, waiting=(queries + 2 * keys) // 8, seen=(queries + keys) // 4)
    peak = peak_bytes(lambda: traced(deep_model))
    calls = [layers for _, layers in seen_at_once]
    assert 6 <= len(set(calls)) <= 9, "layers were all reduced at once, or one by one once the first limit had been reached"
    most = max(held for held, _ in seen_at_once)
    assert most < keys + queries // 8 + (queries + keys) // 4, "the second limit was not reached, or did not bind"
    at_the_end = [held for held, layers in seen_at_once if layers == 32]
    assert max(at_the_end) < keys + queries // 8, "some layers kept all of their queries"
    assert peak < peak_without - (queries + keys) // 2
    limited = traced(deep_model)
    for name in whole.dataset.data_vars:
        found, expected = limited.dataset[name].values, whole.dataset[name].values
        if expected.dtype.kind == "f":
            np.testing.assert_allclose(found, expected, rtol=2e-6, atol=2e-6, err_msg=str(name))
        else:
            np.testing.assert_array_equal(found, expected, err_msg=str(name))


class LongAndDeep(torch.nn.Module):
    """Thirty-two layers of one head, whose queries and keys differ by layer, and which writes the same token everywhere."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(64, depth)
        sizes = {"num_hidden_layers": 32, "num_attention_heads": 1, "hidden_size": depth, "vocab_size": 64}
        self.config = type("Config", (), sizes)()

    def queries_and_keys(self, input_ids: torch.Tensor, layers: int = 32) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Of one layer after the other."""
        hidden = self.embedding(input_ids)[:, None]
        for layer in range(layers):
            query, key = hidden * (1 + layer / 32), hidden.roll(1, 2)
            yield query, key
            hidden = torch.nn.functional.scaled_dot_product_attention(query, key, hidden, is_causal=True)

    def forward(self, input_ids: torch.Tensor) -> Any:
        for _ in self.queries_and_keys(input_ids):
            pass
        logits = torch.zeros(*input_ids.shape, 64)
        logits[..., 7] = 9.0
        return type("Output", (), {"logits": logits})()


def test_at_8192_tokens_and_32_layers_a_trace_stays_within_both_limits_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What may be held is counted from the shapes alone; what was held, by the allocator."""
    length, depth, layers, looked_at = 8192, 32, 32, 9
    torch.manual_seed(0)
    lm = fl.LanguageModel(module := LongAndDeep(depth), mask_token_id=MASK)
    prompt = torch.randint(0, MASK, (length - WRITTEN,), generator=torch.Generator().manual_seed(1)).tolist()
    nothing: dict[str, str] = dict.fromkeys(("halves", "entropy", "geometry", "norms", "flow", "top_keys"), "off")
    one = length * depth * 4  # bytes of the queries of a layer, and as many of its keys and of its values
    limit(monkeypatch, waiting=4 * 3 * one, seen=8 * one)
    traces: list[Any] = []
    peak = peak_bytes(lambda: traces.append(lm.trace([prompt], gen_length=WRITTEN, steps=1, detail=nothing, progress=False)))
    waiting = 5 * 3 * one  # four layers and the one with which there are too many
    seen = layers * one  # the keys of all layers, which are more than the second limit; queries of candidates are few
    side_by_side = 5 * 2 * one  # copies of the queries and keys of the layers that are reduced
    blocks = 2 * (4 << 20) + (8 << 20)  # weights and their logarithms; queries and keys made ready
    of_the_model = 4 * one  # what it computes with, and its logits
    assert peak < waiting + seen + side_by_side + blocks + of_the_model
    assert waiting + seen < peak, "the limits were never reached together"
    *_, (query, key) = module.queries_and_keys(torch.tensor([[*prompt, *[MASK] * WRITTEN]]), looked_at + 1)
    scores = (query[0, 0, -WRITTEN:] @ key[0, 0].T * depth**-0.5).masked_fill(
        ~torch.ones(WRITTEN, length).tril(length - WRITTEN).bool(), -1e9
    )
    mass = traces[0].dataset["mass"].isel(sample=0, step=0, layer=looked_at, head=0).sel(group="predicting")
    np.testing.assert_allclose(mass.values, scores.softmax(-1).sum(0).detach().numpy(), rtol=1e-5, atol=1e-6)


def test_a_row_that_predicts_without_being_a_candidate_is_noticed() -> None:
    """Its queries are gone; those of another row must not stand in for them."""
    seen = reduction.SeenStep(at_most=0)
    held: list[reduction.SeenLayers] = []
    hidden = torch.randn(1, 2, 6, 4)
    request = tapping.TapRequest(layers=1, keep=["mass"], on_seen=held.append)
    with tapping.Tap(module := zoo.Direct(), request):
        module(hidden, hidden, hidden)
    seen.begin(torch.tensor([1, 3, 4]))
    seen.add(held[0])
    assert seen.layers[0].observation.query.shape[3] == 3
    groups = {"predicting": torch.tensor([[True, True]])}
    there = reduction.ChosenRows(torch.tensor([[4, 1]]), groups).observe(seen.layers[0].observation, seen.layers[0].rows)
    assert torch.equal(there.query[0], hidden[:, :, [4, 1]])
    with pytest.raises(BrokenPromise, match="not among the candidates"):
        reduction.ChosenRows(torch.tensor([[4, 2]]), groups).observe(seen.layers[0].observation, seen.layers[0].rows)


def test_keys_that_lie_in_a_fused_projection_are_counted_with_all_that_they_keep() -> None:
    fused = torch.randn(1, 2, 8, 12)
    query, key, value = fused.split(4, dim=-1)
    held: list[reduction.SeenLayers] = []
    with tapping.Tap(module := zoo.Direct(), tapping.TapRequest(layers=1, keep=["mass"], on_seen=held.append)):
        module(query, key, value)
    assert held[0].bytes >= fused.nbytes
    fewer = held[0].only(torch.tensor([2]))
    assert fewer.bytes < fused.nbytes / 2
    assert torch.equal(fewer.observation.key, held[0].observation.key)


def test_a_full_pattern_is_kept_only_where_it_was_asked_for() -> None:
    model = zoo.build("llama")
    with fl.tap(model, patterns=[(1, 2)]) as tap:
        model(zoo.tokens(1, 20))
    assert dict(tap.dataset.pattern.sizes) == {"sample": 1, "chosen": 1, "query": 20, "key": 20}
    assert (tap.dataset.chosen_layer.item(), tap.dataset.chosen_head.item()) == (1, 2)
    assert not any({"query", "key"} <= set(tap.dataset[name].dims) for name in tap.dataset.data_vars if name != "pattern")
