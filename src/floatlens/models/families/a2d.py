"""A2D: autoregressive models turned into diffusion models, as stock Llama, Qwen2 or Qwen3 that see the whole text or block by block.

Supports: `model_type` a2d-llama, a2d-qwen2, a2d-qwen3; tensor names are the stock ones. The mask token is the config's or the
tokenizer's. A tied `lm_head` that is stored all the same is accepted.
Two kinds of training share these types, and published configs name neither. MDLM (Tiny-A2D) sees the whole text and writes with LLaDA's
loop. BD3LM (published with blocks of 32) and OPDLM (blocks of 4) see their own block and those before it, and write with SDAR's loop, the
planned number of tokens per step. The block length is the config's (`block_size` or `block_length`) or the
user's (`block_length=`; 0 is the whole text).
Blocks are counted from the start of the text, as in training. The sampler published with BD3LM pads the prompt to whole blocks on the
left instead, so its borders lie elsewhere in the prompt.
Refuses: checkpoints whose block length nobody states, because the wrong mask gives plausible but wrong numbers; config fields the stock
class does not know.
Row p predicts position p: their training removed the shift.
"""

import json
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

from floatlens.errors import Refusal
from floatlens.models.checkpoint import Checkpoint
from floatlens.models.families.adapter import Blocks, Blueprint, Family, as_tokens, stock_config

BLOCK_FIELDS = ("block_size", "block_length")
_STOCK: dict[str, tuple[Any, Any]] = {
    "a2d-llama": (LlamaConfig, LlamaForCausalLM),
    "a2d-qwen2": (Qwen2Config, Qwen2ForCausalLM),
    "a2d-qwen3": (Qwen3Config, Qwen3ForCausalLM),
}


def recognises(config: Mapping[str, Any]) -> bool:
    """The three kinds."""
    return config.get("model_type") in _STOCK


def blueprint(checkpoint: Checkpoint) -> Blueprint:
    """The model it was made from, bidirectional unless `blocks` says otherwise."""
    published = checkpoint.config
    config_class, model_class = _STOCK[published["model_type"]]
    ignored = ["mask_token_id", "use_mrope", "sliding_window", "max_window_layers", *BLOCK_FIELDS]
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
        blocks=Blocks(named=_named_block_length(checkpoint), may_be_none=True),
    )


def _named_block_length(checkpoint: Checkpoint) -> Any:
    """The block length in the config; None if it names none."""
    named = {field: checkpoint.config[field] for field in BLOCK_FIELDS if checkpoint.config.get(field) is not None}
    if len({json.dumps(value) for value in named.values()}) > 1:
        lengths = " and ".join(f"{field}={value!r}" for field, value in named.items())
        raise Refusal(f"The config of {checkpoint.name} names two block lengths, {lengths}. Correct it.")
    return next(iter(named.values()), None)


FAMILY = Family(
    name="a2d",
    models="Tiny-A2D, BD3LM, OPDLM (Llama, Qwen2, Qwen3)",
    runs_as="the stock class, bidirectional or block-causal",
    checked="published tensor names and config; block models equal a dense masked pass",
    recognises=recognises,
    blueprint=blueprint,
)
