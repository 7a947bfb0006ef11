"""A tiny Llama whose weights are set by hand so that one token draws most attention, in every layer and head and from everywhere.

Every token has the same number in component 0 of the residual stream, only the sink token has one in component 1, and nothing writes to
either. The queries of head h read `STRENGTH[h]` times component 0, the keys component 1, both in the rotary pair that turns slowest (3e-5
a position), so the sink's score hardly depends on where anything stands. All other components are random and weak: attention is uneven
beside the sink, but no rival to it.

Heads differ in how much the sink draws: in heads 0 and 1 more than all other keys together, in heads 2 and 3 about a third. It has values
like any other token. The model never writes the sink token, nor the mask.
"""

from typing import Any, NamedTuple

import torch
from transformers import LlamaConfig, LlamaForCausalLM

import floatlens as fl

VOCABULARY, MASK, SINK = 40, 39, 38
LAYERS, HEADS, KV_HEADS, DEPTH = 3, 4, 2, 8
STRENGTH = (16.0, 13.0, 7.0, 6.0)
SLOWEST = DEPTH // 2 - 1  # of the pairs (i, i + DEPTH / 2), the one that turns slowest


class Planted(NamedTuple):
    """The model, the token that is its sink, prompts that hold it once each, and where."""

    lm: fl.LanguageModel
    sink: int
    prompts: list[list[int]]
    sink_at: list[int]


def planted_sink_model(causal: bool, seed: int = 0) -> Planted:
    """A causal model that writes from left to right, or a bidirectional one that denoises as LLaDA does, of the same weights."""
    torch.manual_seed(seed)
    size: dict[str, Any] = {"hidden_size": HEADS * DEPTH, "intermediate_size": 48, "num_hidden_layers": LAYERS, "vocab_size": VOCABULARY}
    heads: dict[str, Any] = {"num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": DEPTH}
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": 1e6}
    module: Any = LlamaForCausalLM(LlamaConfig(**size, **heads, rope_parameters=rope, initializer_range=0.15, pad_token_id=0)).eval()
    module.set_attn_implementation("sdpa")
    module.config.is_causal = causal
    with torch.no_grad():
        _plant(module)
    prompts = [[SINK, 4, 5, 6, 7, 8], [9, 10, 11, SINK, 12, 13, 14, 15, 16], [17, 18, SINK, 19]]
    sink_at = [prompt.index(SINK) for prompt in prompts]
    if causal:
        lm = fl.LanguageModel(module, family="autoregressive", sampler="autoregressive", row_offset=1, name="planted")
    else:
        lm = fl.LanguageModel(module, family="llada", sampler="llada", mask_token_id=MASK, name="planted")
    return Planted(lm, SINK, prompts, sink_at)


def _plant(module: Any) -> None:
    embedding = module.get_input_embeddings().weight
    embedding.normal_()
    embedding[:, 0], embedding[:, 1] = 1.0, 0.0
    embedding[SINK, 1] = 1.0
    for number, layer in enumerate(module.model.layers):
        attention = layer.self_attn
        attention.o_proj.weight[:2] = 0
        layer.mlp.down_proj.weight.mul_(0.5)[:2] = 0
        # the residual stream grows with depth, and norms take that out of the planted components again
        for projection, strengths in (
            (attention.q_proj, [strength * (1 + number / 4) for strength in STRENGTH]),
            (attention.k_proj, (1.0,) * KV_HEADS),
        ):
            component = 0 if projection is attention.q_proj else 1
            projection.weight.mul_(0.6)[:, :2] = 0
            for head, strength in enumerate(strengths):
                for part in (SLOWEST, SLOWEST + DEPTH // 2):
                    projection.weight[head * DEPTH + part] = 0
                projection.weight[head * DEPTH + SLOWEST, component] = strength
    module.lm_head.weight[:, 0] = 0
    for never in (MASK, SINK):
        module.lm_head.weight[never] = 0
        module.lm_head.weight[never, 0] = -100
