"""SDAR 1.7B to 8B (dense), as a stock Qwen3 that sees block by block.

Supports: `model_type` sdar; tensor names are Qwen3's already. Published configs name neither the mask token (151669) nor the block length
(4); both are taken from there if a config does, and the block length from the user (`block_length=`). Who sees whom is handed to the
model with every pass.
Refuses: the mixture-of-experts sizes (`sdar_moe`), sliding windows, and config fields it does not know.
Row p predicts position p.
"""

from collections.abc import Mapping
from typing import Any

from transformers import Qwen3Config, Qwen3ForCausalLM

from floatlens.errors import Refusal
from floatlens.models.checkpoint import Checkpoint
from floatlens.models.families.adapter import Blocks, Blueprint, Family, as_tokens, stock_config

MASK_TOKEN_ID = 151669
BLOCK_LENGTH = 4
_TRAINING = ("debug", "ep_size", "micro_forward", "skip_checkpoint", "use_deepep")  # in one of the two published forms of the config


def recognises(config: Mapping[str, Any]) -> bool:
    """All SDAR models; those with experts are refused by name."""
    return config.get("model_type") in ("sdar", "sdar_moe")


def blueprint(checkpoint: Checkpoint) -> Blueprint:
    """A Qwen3 whose passes say who sees whom."""
    published = checkpoint.config
    if published["model_type"] == "sdar_moe":
        raise Refusal(
            f"{checkpoint.name} is an SDAR with a mixture of experts, which floatlens does not run as a stock model. The dense SDAR "
            "models (1.7B, 4B, 8B) are supported."
        )
    ignored = ["mask_token_id", "fuse_cross_entropy", "block_size", "sliding_window", "max_window_layers", *_TRAINING]
    config = stock_config(checkpoint.name, Qwen3Config, published, ignored=ignored, required={"use_sliding_window": False})
    eos = published.get("eos_token_id")
    return Blueprint(
        family=FAMILY.name,
        config=config,
        model_class=Qwen3ForCausalLM,
        sampler="sdar",
        row_offset=0,
        mask_token_id=published.get("mask_token_id", MASK_TOKEN_ID),
        end_tokens=as_tokens(eos),
        end_token_names=("<|im_end|>",),
        blocks=Blocks(named=published.get("block_size"), default=BLOCK_LENGTH),
    )


FAMILY = Family(
    name="sdar",
    models="SDAR 1.7B, 4B, 8B",
    runs_as="Qwen3ForCausalLM, block-causal",
    checked="cached blocks equal a full pass under the block mask; published tensor names and config",
    recognises=recognises,
    blueprint=blueprint,
)
