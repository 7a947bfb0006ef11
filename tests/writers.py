"""Tiny language models of every way to write, with random weights."""

import torch

import floatlens as fl
from zoo import build

MASK = 95
PROMPTS = [[5, 6, 7, 8, 9], [11, 12], [21, 22, 23, 24, 25, 26, 27]]
SAMPLERS = {"llada": ("llama, bidirectional", 0), "dream": ("qwen2", 1), "sdar": ("qwen3", 0)}


def diffusion_model(sampler: str) -> fl.LanguageModel:
    family, row_offset = SAMPLERS[sampler]
    module = build(family, seed=3)
    module.config.is_causal = False
    with torch.no_grad():
        module.lm_head.weight[MASK] = 0
    return fl.LanguageModel(module, family=sampler, sampler=sampler, row_offset=row_offset, mask_token_id=MASK)


def autoregressive_model(family: str = "llama") -> fl.LanguageModel:
    module = build(family, seed=3)
    with torch.no_grad():  # a padding token's embedding of zeros makes attention even, and favourite keys ties
        module.get_input_embeddings().weight[0].normal_()
    return fl.LanguageModel(module, family="autoregressive", sampler="autoregressive", row_offset=1)
