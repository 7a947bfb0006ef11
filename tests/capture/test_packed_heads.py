"""transformers 5.23 hands a single row of a grouped-query layer to the kernel with its query heads packed as rows.

A tap must tell them from queries.
"""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import floatlens as fl

SAMPLES, KV_HEADS, HEADS_PER_KV_HEAD, KEYS, DEPTH = 2, 2, 3, 7, 4
HEADS = KV_HEADS * HEADS_PER_KV_HEAD


class PackedAttention(nn.Module):
    """One row over given keys, packed as (sample, KV head, heads per KV head, depth)."""

    num_key_value_groups = HEADS_PER_KV_HEAD

    def __init__(self, mask: Tensor | None) -> None:
        super().__init__()
        random = torch.Generator().manual_seed(0)
        self.query = torch.randn(SAMPLES, HEADS, 1, DEPTH, generator=random)
        self.key, self.value = (torch.randn(SAMPLES, KV_HEADS, KEYS, DEPTH, generator=random) for _ in range(2))
        self.mask = mask

    def forward(self, hidden_states: Tensor) -> Tensor:
        def packed(tensor: Tensor) -> Tensor:
            return tensor.reshape(SAMPLES, KV_HEADS, HEADS_PER_KV_HEAD, tensor.shape[-1])

        mask = self.mask if self.mask is None or self.mask.shape[1] == 1 else packed(self.mask)
        output = F.scaled_dot_product_attention(packed(self.query), self.key, self.value, attn_mask=mask)
        return output.reshape(SAMPLES, HEADS, 1, DEPTH)


def masks() -> dict[str, Tensor | None]:
    some = torch.rand(SAMPLES, HEADS, 1, KEYS, generator=torch.Generator().manual_seed(1)) > 0.4
    some[..., 0] = True
    bias = torch.randn(SAMPLES, HEADS, 1, KEYS, generator=torch.Generator().manual_seed(2))
    return {"no mask": None, "one mask for all heads": some[:, :1], "a mask per head": some, "a bias per head": bias}


def dense_weights(attention: PackedAttention) -> Tensor:
    """(sample, head, key), head by head."""
    weights = torch.zeros(SAMPLES, HEADS, KEYS)
    for sample in range(SAMPLES):
        for head in range(HEADS):
            scores = attention.key[sample, head // HEADS_PER_KV_HEAD] @ attention.query[sample, head, 0] / DEPTH**0.5
            if attention.mask is not None:
                own = attention.mask[sample, head if attention.mask.shape[1] > 1 else 0, 0]
                scores = scores.masked_fill(~own, float("-inf")) if own.dtype == torch.bool else scores + own
            weights[sample, head] = scores.softmax(-1)
    return weights


@pytest.mark.parametrize("kind", list(masks()))
def test_packed_heads_are_heads_and_not_queries(kind: str) -> None:
    attention = PackedAttention(masks()[kind])
    bare = attention(torch.zeros(SAMPLES, 1, DEPTH))
    padding = torch.ones(SAMPLES, KEYS, dtype=torch.bool)
    with fl.tap(attention, layers=1, keep=["mass"], padding=padding) as tap:
        observed = attention(torch.zeros(SAMPLES, 1, DEPTH))
    assert torch.equal(observed, bare)
    mass = tap.dataset.mass.isel(layer=0, group=0)
    assert mass.sizes == {"sample": SAMPLES, "head": HEADS, "key": KEYS}
    torch.testing.assert_close(torch.as_tensor(mass.values), dense_weights(attention), rtol=1e-6, atol=1e-6)


def test_an_edit_of_packed_heads_reaches_the_model() -> None:
    attention = PackedAttention(None)
    with fl.tap(attention, layers=1, edits=[lambda call, before: call.scale_heads(torch.arange(HEADS))]):
        edited = attention(torch.zeros(SAMPLES, 1, DEPTH))
    values = attention.value.repeat_interleave(HEADS_PER_KV_HEAD, dim=1)
    expected = torch.einsum("shk,shkd->shd", dense_weights(attention), values) * torch.arange(HEADS)[:, None]
    torch.testing.assert_close(edited[:, :, 0], expected, rtol=1e-5, atol=1e-6)
