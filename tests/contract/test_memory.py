"""Memory stays bounded: what a tap holds at once does not grow with the square of the text."""

import torch
from torch.profiler import ProfilerActivity, profile

import floatlens as fl
import zoo


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


def test_a_full_pattern_is_kept_only_where_it_was_asked_for() -> None:
    model = zoo.build("llama")
    with fl.tap(model, patterns=[(1, 2)]) as tap:
        model(zoo.tokens(1, 20))
    assert dict(tap.dataset.pattern.sizes) == {"sample": 1, "chosen": 1, "query": 20, "key": 20}
    assert (tap.dataset.chosen_layer.item(), tap.dataset.chosen_head.item()) == (1, 2)
    assert not any({"query", "key"} <= set(tap.dataset[name].dims) for name in tap.dataset.data_vars if name != "pattern")
