"""Tiny language models with random weights that read the world's words."""

from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

import floatlens as fl
from floatlens.tasks.world import make_tokenizer, vocabulary

TOKENIZER = make_tokenizer()
MASK, END = (vocabulary().index(word) for word in ("[MASK]", "[EOS]"))


def _module(causal: bool, context: int) -> Any:
    size: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    torch.manual_seed(7)
    config = LlamaConfig(
        **size, vocab_size=len(vocabulary()), max_position_embeddings=context, initializer_range=0.2, pad_token_id=0, num_key_value_heads=2
    )
    config.is_causal = causal
    module: Any = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        module.lm_head.weight[MASK] = 0
        module.get_input_embeddings().weight[0].normal_()  # a padding token of zeros would make attention even
    return module


def arm(context: int = 1024) -> fl.LanguageModel:
    how: dict[str, Any] = {"family": "autoregressive", "sampler": "autoregressive", "row_offset": 1}
    return fl.LanguageModel(_module(True, context), TOKENIZER, end_tokens=(END,), name="tiny-arm", **how)


def mdm(context: int = 1024, row_offset: int = 0) -> fl.LanguageModel:
    sampler = "dream" if row_offset else "llada"
    how: dict[str, Any] = {"family": sampler, "sampler": sampler, "row_offset": row_offset, "mask_token_id": MASK}
    return fl.LanguageModel(_module(False, context), TOKENIZER, end_tokens=(END,), name="tiny-mdm", **how)
