"""What the twins' initial weights contain, seen in eager attention: heads that look back, heads that compare, and no sink."""

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from floatlens.lab.recipe import bundled_recipe
from floatlens.lab.sequences import TOKEN_ID
from floatlens.lab.updates import make_twin
from floatlens.tasks.world.words import BOS

KINDS = ("arm", "mdm", "causal-mdm")
FIRST_WORD = 30  # words before it are punctuation and special tokens, which are words like any other here
LAYERS, LENGTH = 3, 40


@cache
def twin(kind: str) -> Any:
    recipe = bundled_recipe()
    model: Any = make_twin(kind, replace(recipe, model=replace(recipe.model, layers=LAYERS)))
    model.set_attn_implementation("eager")
    return model.eval()


@torch.no_grad()
def attention(kind: str, tokens: Tensor) -> Tensor:
    """(layer, sample, head, query, key)."""
    return torch.stack(twin(kind)(tokens, output_attentions=True).attentions)


def random_texts(count: int) -> Tensor:
    """Texts without a word twice, after a beginning token."""
    generator = torch.Generator().manual_seed(0)
    words = [FIRST_WORD + torch.randperm(len(TOKEN_ID) - FIRST_WORD, generator=generator)[: LENGTH - 1] for _ in range(count)]
    return torch.cat([torch.full((count, 1), TOKEN_ID[BOS]), torch.stack(words)], dim=1)


def test_all_twins_begin_with_the_same_numbers() -> None:
    first = dict(twin("arm").named_parameters())
    for kind in KINDS[1:]:
        assert all(torch.equal(weights, first[name]) for name, weights in twin(kind).named_parameters())


@pytest.mark.parametrize("kind", KINDS)
def test_head_h_of_the_first_layer_looks_its_offset_back(kind: str) -> None:
    first_layer, rows = attention(kind, random_texts(16))[0], torch.arange(6, LENGTH)
    for head, offset in enumerate((1, 2, 3, 4)):
        assert (first_layer[:, head, 6:].argmax(-1) == rows - offset).float().mean() > 0.97
        assert first_layer[:, head, rows, rows - offset].mean() > 0.8


def drawn_by_repetition(kind: str, repeated: range, onto: int, query: int, key: int) -> Tensor:
    """(layer, head): how many times as much the query gives the key if the words before it are repeated, all else being the same."""
    plain = random_texts(32)
    again = plain.clone()
    again[:, onto : onto + len(repeated)] = plain[:, repeated.start : repeated.stop]
    with_it, without = (attention(kind, texts)[:, :, :, query, key].mean(1) for texts in (again, plain))
    return with_it / without


@pytest.mark.parametrize("kind", KINDS)
def test_like_attends_to_like_in_even_heads_of_later_layers(kind: str) -> None:
    drawn = drawn_by_repetition(kind, range(12, 13), onto=30, query=30, key=12)
    assert (drawn[1:, 0::2] > 1.25).all(), drawn


@pytest.mark.parametrize("kind", KINDS)
def test_odd_heads_of_the_next_layers_find_what_followed_the_same_words(kind: str) -> None:
    drawn = drawn_by_repetition(kind, range(10, 16), onto=30, query=35, key=16)  # the sixth word again: 16 followed it
    assert (drawn[1, 1::2] > 3).all(), drawn
    assert (drawn[1:, 1::2].mean(-1) > 1.5 * drawn[1:, 0::2].mean(-1)).all(), drawn


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_prefers_the_first_token(kind: str) -> None:
    rows = torch.arange(8, LENGTH)
    seen = (rows + 1.0) if kind != "mdm" else torch.full((len(rows),), float(LENGTH))
    share = attention(kind, random_texts(16))[:, :, :, 8:, 0].mean((1, 2))  # (layer, row)
    lift = (share * seen).mean(-1)  # 1: as much as any other key
    assert (lift < 1.0).all(), lift
