"""Dream 7B (Base, Instruct), Dream-Coder and DiffuCoder, as a stock bidirectional Qwen2.

Supports: `model_type` Dream; tensor names are Qwen2's already. The published tokenizer is remote code and slow; a fast one is built from
its vocabulary, merges and added tokens, because character offsets are needed.
Refuses: multimodal rotary embedding, sliding windows, and config fields it does not know.
Row p - 1 predicts position p (row 0 predicts position 0): the model keeps the shift of the autoregressive one it was made from.
"""

from collections.abc import Mapping
from typing import Any

from transformers import Qwen2Config, Qwen2ForCausalLM

from floatlens.decoding.tokens import qwen2_tokenizer, tokenizer_of_file
from floatlens.models.checkpoint import Checkpoint
from floatlens.models.families.adapter import Blueprint, Family, as_tokens, stock_config

MASK_TOKEN_ID = 151666


def recognises(config: Mapping[str, Any]) -> bool:
    """Dream and its kin."""
    return config.get("model_type") == "Dream"


def blueprint(checkpoint: Checkpoint) -> Blueprint:
    """A bidirectional Qwen2 that keeps the shift."""
    published = checkpoint.config
    required = {"use_mrope": False, "use_sliding_window": False}
    config = stock_config(
        checkpoint.name, Qwen2Config, published, ignored=["mask_token_id", "sliding_window", "max_window_layers"], required=required
    )
    eos = published.get("eos_token_id")
    return Blueprint(
        family=FAMILY.name,
        config=config,
        model_class=Qwen2ForCausalLM,
        sampler="dream",
        row_offset=1,
        mask_token_id=published.get("mask_token_id", MASK_TOKEN_ID),
        end_tokens=as_tokens(eos),
        end_token_names=("<|im_end|>", "<|dlm_pad|>"),
        tokenizer=_tokenizer,
    )


def _tokenizer(checkpoint: Checkpoint) -> Any:
    return tokenizer_of_file(checkpoint.folder) if checkpoint.has("tokenizer.json") else qwen2_tokenizer(checkpoint.folder)


FAMILY = Family(
    name="dream",
    models="Dream 7B, Dream-Coder, DiffuCoder",
    runs_as="Qwen2ForCausalLM, bidirectional, shifted",
    checked="published tensor names and config",
    recognises=recognises,
    blueprint=blueprint,
)
