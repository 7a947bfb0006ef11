"""LLaDA 8B (Base, Instruct), LLaDA 1.5 and MMaDA 8B, as a stock bidirectional Llama.

Supports: `model_type` llada and mmada with dense layers. Tensors are renamed while they are read. Rotary embedding is applied in float32
whatever the dtype, as the original does; in float32 the logits are bit-identical to those of the original code, in bfloat16 they would
otherwise differ by up to .016. MMaDA is read as a text model: its vocabulary (image tokens included) is as large as its embedding.
What a config leaves out is what the original class takes for it: `rope_theta` 10000, `weight_tying` true, `max_sequence_length` 1024.
Refuses: any config that says something a Llama does not do (alibi, biases, layer norms on queries and keys, scaled logits, other block
types) or that leaves out a field for which the original class would take such a value, and any field it does not know. LLaDA-MoE has its
own adapter (`remote`).
Row p predicts position p.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.llama.modeling_llama import (
    LlamaAttention,
    LlamaRotaryEmbedding,
    apply_rotary_pos_emb,
    eager_attention_forward,
)

from floatlens.decoding.tokens import tokenizer_of_file
from floatlens.errors import Refusal
from floatlens.models.checkpoint import Checkpoint
from floatlens.models.families.adapter import BOOKKEEPING, Blueprint, Family, as_tokens, refuse_other_values, refuse_unknown

MASK_TOKEN_ID = 126336

_BLOCK = r"^model\.transformer\.blocks\.(\d+)\."
RENAMES = {
    r"^model\.transformer\.wte\.": "model.embed_tokens.",
    _BLOCK + r"attn_norm\.": r"model.layers.\1.input_layernorm.",
    _BLOCK + r"q_proj\.": r"model.layers.\1.self_attn.q_proj.",
    _BLOCK + r"k_proj\.": r"model.layers.\1.self_attn.k_proj.",
    _BLOCK + r"v_proj\.": r"model.layers.\1.self_attn.v_proj.",
    _BLOCK + r"attn_out\.": r"model.layers.\1.self_attn.o_proj.",
    _BLOCK + r"ff_norm\.": r"model.layers.\1.post_attention_layernorm.",
    _BLOCK + r"ff_proj\.": r"model.layers.\1.mlp.gate_proj.",
    _BLOCK + r"up_proj\.": r"model.layers.\1.mlp.up_proj.",
    _BLOCK + r"ff_out\.": r"model.layers.\1.mlp.down_proj.",
    r"^model\.transformer\.ln_f\.": "model.norm.",
    r"^model\.transformer\.ff_out\.": "lm_head.",
}

_READ = {
    "d_model", "n_heads", "n_kv_heads", "n_layers", "mlp_hidden_size", "mlp_ratio", "rope_theta", "rms_norm_eps", "vocab_size",
    "embedding_size", "max_sequence_length", "weight_tying", "mask_token_id", "eos_token_id", "pad_token_id", "bos_token_id",
}  # fmt: skip
_REQUIRED = {
    "activation_type": "silu",
    "alibi": False,
    "attention_layer_norm": False,
    "bias_for_layer_norm": (False, None),
    "block_group_size": 1,
    "block_type": "llama",
    "include_bias": False,
    "include_qkv_bias": (False, None),
    "input_emb_norm": False,
    "layer_norm_type": "rms",
    "layer_norm_with_affine": True,
    "multi_query_attention": (None, False),
    "rope": True,
    "rope_full_precision": True,
    "scale_logits": False,
}
_IRRELEVANT = {
    "alibi_bias_max", "attention_dropout", "attention_layer_norm_with_affine", "embedding_dropout", "residual_dropout", "flash_attention",
    "flash_attn_varlen", "tie_word_embeddings", "dtype",
    # MMaDA: image generation and training
    "llm_vocab_size", "new_vocab_size", "codebook_size", "num_new_special_tokens", "num_vq_tokens", "w_clip_vit", "pretrained_model_path",
    "tokenizer_path", "llm_model_path",
}  # fmt: skip
# What the original class takes where a config says nothing and this adapter cannot: a config must say these.
_ORIGINAL_DEFAULTS = {"activation_type": "swiglu", "block_type": "sequential", "layer_norm_type": "default", "rope": False}


class FullPrecisionRotary(LlamaRotaryEmbedding):
    """Hands out cosines and sines in float32, whatever the hidden states are in."""

    def forward(self, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        return super().forward(x.new_empty((), dtype=torch.float32), position_ids)


class FullPrecisionRotaryAttention(LlamaAttention):
    """Llama's attention with queries and keys rotated in float32 and then rounded."""

    def forward(
        self, hidden_states: Tensor, position_embeddings: Any = None, attention_mask: Any = None, past_key_values: Any = None, **others: Any
    ) -> Any:
        samples, length, _ = hidden_states.shape
        query, key, value = (
            project(hidden_states).view(samples, length, -1, self.head_dim).transpose(1, 2)
            for project in (self.q_proj, self.k_proj, self.v_proj)
        )
        rotated_query, rotated_key = apply_rotary_pos_emb(query.float(), key.float(), *position_embeddings)
        query, key = rotated_query.to(query.dtype), rotated_key.to(key.dtype)
        if past_key_values is not None:
            key, value = past_key_values.update(key, value, self.layer_idx)
        attend = ALL_ATTENTION_FUNCTIONS.get_interface(self.config._attn_implementation or "sdpa", eager_attention_forward)
        output, weights = attend(self, query, key, value, attention_mask, dropout=0.0, scaling=self.scaling, **others)
        return self.o_proj(output.reshape(samples, length, -1)), weights


def finish(module: nn.Module) -> None:
    """Rotate in float32."""
    for part in module.modules():
        if type(part) is LlamaAttention:
            part.__class__ = FullPrecisionRotaryAttention
        elif type(part) is LlamaRotaryEmbedding:
            part.__class__ = FullPrecisionRotary


def recognises(config: Mapping[str, Any]) -> bool:
    """Dense LLaDA and MMaDA."""
    return config.get("model_type") in ("llada", "mmada")


def blueprint(checkpoint: Checkpoint) -> Blueprint:
    """A bidirectional Llama with LLaDA's sizes."""
    published = checkpoint.config
    refuse_other_values(checkpoint.name, published, _REQUIRED)
    if unknown := set(published) - BOOKKEEPING - _READ - _IRRELEVANT - set(_REQUIRED):
        refuse_unknown(checkpoint.name, published, unknown)
    missing = [field for field in ("d_model", "n_heads", "n_layers", "vocab_size") if field not in published]
    if missing:
        raise Refusal(
            f"The config of {checkpoint.name} does not say {', '.join(missing)}, which LLaDA's configs do. Fetch config.json again."
        )
    for field, default in _ORIGINAL_DEFAULTS.items():
        if field not in published:
            raise Refusal(
                f"The config of {checkpoint.name} does not say {field}, for which the original class takes {default!r}; this adapter is "
                f"right for {_REQUIRED[field]!r} only, and would give plausible but wrong numbers. Fetch config.json again, or add it."
            )
    vocabulary = published.get("embedding_size") or published["vocab_size"]
    embedding = checkpoint.tensors.get("model.transformer.wte.weight")
    config = LlamaConfig(
        vocab_size=embedding[0][0] if embedding else vocabulary,
        hidden_size=published["d_model"],
        intermediate_size=published.get("mlp_hidden_size") or published["d_model"] * published.get("mlp_ratio", 4),
        num_hidden_layers=published["n_layers"],
        num_attention_heads=published["n_heads"],
        num_key_value_heads=published.get("n_kv_heads") or published["n_heads"],
        max_position_embeddings=published.get("max_sequence_length", 1024),
        rms_norm_eps=published.get("rms_norm_eps", 1e-5),
        tie_word_embeddings=published.get("weight_tying", True),
        pad_token_id=published.get("pad_token_id"),
        eos_token_id=published.get("eos_token_id"),
        bos_token_id=published.get("bos_token_id"),
        rope_parameters={"rope_type": "default", "rope_theta": published.get("rope_theta", 10000.0)},
    )
    config.is_causal = False
    eos = published.get("eos_token_id")
    return Blueprint(
        family=FAMILY.name,
        config=config,
        model_class=LlamaForCausalLM,
        sampler="llada",
        row_offset=0,
        mask_token_id=published.get("mask_token_id", MASK_TOKEN_ID),
        end_tokens=as_tokens(eos),
        end_token_names=("<|eot_id|>",),
        renames=RENAMES,
        tokenizer=lambda checkpoint: tokenizer_of_file(checkpoint.folder),
        finish=finish,
    )


FAMILY = Family(
    name="llada",
    models="LLaDA 8B, LLaDA 1.5, MMaDA 8B",
    runs_as="LlamaForCausalLM, bidirectional",
    checked="a straight-line forward from the published tensor names; published config",
    recognises=recognises,
    blueprint=blueprint,
    finish=finish,
)
