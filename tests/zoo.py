"""Tiny models built offline from their configs, plain modules, and the reference: transformers' own eager attention.

Weights are drawn wide, so that attention is far from even and a wrong weight cannot hide.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import (
    AlbertConfig,
    AlbertForMaskedLM,
    AttentionInterface,
    AttentionMaskInterface,
    BertConfig,
    BertForMaskedLM,
    DiffusionGemmaConfig,
    DiffusionGemmaForBlockDiffusion,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    ModernBertConfig,
    ModernBertForMaskedLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)
from transformers.masking_utils import eager_mask
from transformers.models.llama.modeling_llama import eager_attention_forward

VOCABULARY = 96
LAYERS = 3

_SHARED: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "initializer_range": 0.2,
    "pad_token_id": 0,
}


def llama(kv_heads: int = 2, causal: bool = True) -> nn.Module:
    model = LlamaForCausalLM(LlamaConfig(**_SHARED, num_key_value_heads=kv_heads))
    model.config.is_causal = causal
    return model


def qwen2() -> nn.Module:
    return Qwen2ForCausalLM(Qwen2Config(**_SHARED, num_key_value_heads=1))


def qwen3() -> nn.Module:
    return Qwen3ForCausalLM(Qwen3Config(**_SHARED, num_key_value_heads=2, head_dim=16))


def gemma3() -> nn.Module:
    kinds = ["sliding_attention", "full_attention", "sliding_attention"]
    config = Gemma3TextConfig(**_SHARED, num_key_value_heads=2, head_dim=8, sliding_window=5, layer_types=kinds, query_pre_attn_scalar=8)
    return Gemma3ForCausalLM(config)


def gpt2() -> nn.Module:
    config = GPT2Config(vocab_size=VOCABULARY, n_embd=32, n_layer=LAYERS, n_head=4, n_positions=256, initializer_range=0.2)
    return GPT2LMHeadModel(config)


def bert() -> nn.Module:
    return BertForMaskedLM(BertConfig(**_SHARED))


def modernbert() -> nn.Module:
    config = ModernBertConfig(
        **_SHARED,
        local_attention=8,
        layer_types=["full_attention", "sliding_attention", "full_attention"],
        bos_token_id=1,
        eos_token_id=2,
        cls_token_id=1,
    )
    model = ModernBertForMaskedLM(config)
    for name, parameter in model.named_parameters():
        if "Wqkv" in name:
            nn.init.normal_(parameter, std=0.2)
    return model


def albert() -> nn.Module:
    return AlbertForMaskedLM(AlbertConfig(**_SHARED, embedding_size=16))


def diffusion_gemma(canvas_length: int = 8) -> Any:
    text = {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "global_head_dim": 16,
        "sliding_window": 6,
        "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
        "num_experts": 4,
        "top_k_experts": 2,
        "moe_intermediate_size": 16,
        "initializer_range": 0.2,
    }
    eyes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "head_dim": 8}
    vision = {**eyes, "num_key_value_heads": 2, "position_embedding_size": 16}
    torch.manual_seed(0)
    return DiffusionGemmaForBlockDiffusion(DiffusionGemmaConfig(text_config=text, vision_config=vision, canvas_length=canvas_length)).eval()


def llama_both_ways() -> nn.Module:
    return llama(kv_heads=4, causal=False)


FAMILIES: dict[str, Callable[[], nn.Module]] = {
    "llama": llama,
    "llama, bidirectional": llama_both_ways,
    "qwen2": qwen2,
    "qwen3": qwen3,
    "gemma3": gemma3,
    "gpt2": gpt2,
    "bert": bert,
    "modernbert": modernbert,
    "albert": albert,
}


def build(family: str, seed: int = 0, dtype: torch.dtype = torch.float32) -> Any:
    torch.manual_seed(seed)
    model = FAMILIES[family]().to(dtype).eval()
    model.set_attn_implementation("sdpa")  # type: ignore[operator]  # every family is a PreTrainedModel
    return model


def tokens(samples: int, length: int, seed: int = 0) -> Tensor:
    """Token ids without the padding token."""
    return torch.randint(3, VOCABULARY, (samples, length), generator=torch.Generator().manual_seed(seed))


def padded(ids: Tensor, side: str, amount: int) -> tuple[Tensor, Tensor]:
    """Pad every sample but the first by `amount`; returns ids and attention mask."""
    mask = torch.ones_like(ids)
    if amount:
        where = slice(0, amount) if side == "left" else slice(ids.shape[1] - amount, None)
        mask[1:, where] = 0
    return ids * mask, mask


@dataclass(frozen=True)
class EagerCall:
    """One attention call as transformers' eager attention computes it."""

    query: np.ndarray  # (sample, head, query, depth)
    key: np.ndarray  # (sample, head, key, depth), spelled out to query heads
    value: np.ndarray
    weights: np.ndarray  # (sample, head, query, key)
    visible: np.ndarray  # bool (sample, query, key), from transformers' own mask


_spied: list[EagerCall] = []


def _spy(module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **kwargs: Any) -> Any:
    eager = sys.modules[type(module).__module__].eager_attention_forward
    output, weights = eager(module, query, key, value, attention_mask, **kwargs)
    visible = torch.ones(weights.shape[0], 1, *weights.shape[2:], dtype=torch.bool)
    if attention_mask is not None:
        visible = (attention_mask if attention_mask.dtype == torch.bool else attention_mask > -1e30).expand_as(visible)
    groups = weights.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    arrays = (tensor.detach().double().numpy() for tensor in (query, key, value, weights))
    _spied.append(EagerCall(*arrays, visible=visible[:, 0].numpy()))
    return output, weights


AttentionInterface.register("spy", _spy)
AttentionMaskInterface.register("spy", eager_mask)


def eager_calls(model: Any, **inputs: Any) -> list[EagerCall]:
    """Every attention call of a forward, from transformers' eager attention."""
    _spied.clear()
    model.set_attn_implementation("spy")
    with torch.no_grad():
        model(**inputs)
    model.set_attn_implementation("sdpa")
    return list(_spied)


class Direct(nn.Module):
    """A plain module that calls SDPA with whatever it is given."""

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, causal: bool = False, scale: float | None = None
    ) -> Tensor:
        grouped = query.shape[1] != key.shape[1]
        return F.scaled_dot_product_attention(query, key, value, mask, is_causal=causal, scale=scale, enable_gqa=grouped)


def eager_weights(query: Tensor, key: Tensor, mask: Tensor | None, scale: float) -> np.ndarray:
    """The weights of one call from transformers' eager attention, (sample, head, query, key)."""
    module = nn.Module()
    module.num_key_value_groups = query.shape[1] // key.shape[1]  # type: ignore[assignment]  # what eager attention reads off its module
    if mask is not None and mask.dtype == torch.bool:
        mask = torch.zeros(mask.shape, dtype=query.dtype).masked_fill(~mask, torch.finfo(query.dtype).min)
    _, weights = eager_attention_forward(module.eval(), query, key, key, mask, scaling=scale)
    return weights.double().numpy()


class Block(nn.Module):
    """A plain transformer block that calls SDPA inside its own forward."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, hidden: Tensor) -> Tensor:
        parts = self.qkv(hidden).chunk(3, dim=-1)
        query, key, value = (each.unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in parts)
        mixed = F.scaled_dot_product_attention(3 * query, key, value, is_causal=True)
        return hidden + self.out(mixed.transpose(1, 2).flatten(2))

    def dense(self, hidden: Tensor) -> Tensor:
        """The weights of this block, through transformers' eager attention."""
        parts = self.qkv(hidden).chunk(3, dim=-1)
        query, key, _ = (each.unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in parts)
        causal = torch.ones(hidden.shape[1], hidden.shape[1], dtype=torch.bool).tril()[None, None]
        return torch.from_numpy(eager_weights(3 * query, key, causal, query.shape[-1] ** -0.5))


class Plain(nn.Module):
    """A stack of plain blocks; `order` says which ones run, in which order, so that layers can be skipped or repeated."""

    def __init__(self, order: tuple[int, ...] = (0, 1, 2), heads: tuple[int, ...] = (2, 2, 2)) -> None:
        super().__init__()
        self.order = order
        self.layers = nn.ModuleList(Block(16, count) for count in heads)

    def forward(self, hidden: Tensor) -> Tensor:
        for at in self.order:
            hidden = self.layers[at](hidden)
        return hidden
