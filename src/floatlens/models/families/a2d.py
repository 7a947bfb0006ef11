"""Tiny-A2D: autoregressive models of half a billion parameters turned into diffusion models, as stock bidirectional Llama, Qwen2 or Qwen3.

Supports: `model_type` a2d-llama, a2d-qwen2, a2d-qwen3; tensor names are the stock ones. The mask token is the config's or the tokenizer's. A tied
`lm_head` that is stored all the same is accepted.
Refuses: config fields the stock class does not know.
Row p predicts position p: their training removed the shift.
"""

from collections.abc import Mapping
from typing import Any

from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from floatlens.models.blueprint import Blueprint, Family
from floatlens.models.checkpoint import Checkpoint
from floatlens.models.families.stock import as_tokens, stock_config

_STOCK: dict[str, tuple[Any, Any]] = {
    "a2d-llama": (LlamaConfig, LlamaForCausalLM),
    "a2d-qwen2": (Qwen2Config, Qwen2ForCausalLM),
    "a2d-qwen3": (Qwen3Config, Qwen3ForCausalLM),
}


def recognises(config: Mapping[str, Any]) -> bool:
    """The three kinds."""
    return config.get("model_type") in _STOCK


def blueprint(checkpoint: Checkpoint) -> Blueprint:
    """The model it was made from, bidirectional."""
    published = checkpoint.config
    config_class, model_class = _STOCK[published["model_type"]]
    ignored = ["mask_token_id", "use_mrope", "sliding_window", "max_window_layers"]
    config = stock_config(checkpoint.name, config_class, published, ignored=ignored, required={"use_sliding_window": False})
    eos = published.get("eos_token_id")
    return Blueprint(
        family=FAMILY.name,
        config=config,
        model_class=model_class,
        sampler="llada",
        row_offset=0,
        mask_token_id=published.get("mask_token_id"),
        end_tokens=as_tokens(eos),
        end_token_names=("<|im_end|>", "<|endoftext|>"),
    )


FAMILY = Family(
    name="a2d",
    models="Tiny-A2D (Llama, Qwen2, Qwen3)",
    runs_as="the stock class, bidirectional",
    checked="published tensor names and config",
    recognises=recognises,
    blueprint=blueprint,
)
