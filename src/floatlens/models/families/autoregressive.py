"""Llama, Qwen, SmolLM2, Gemma 3, GPT-2 and every other model that `AutoModelForCausalLM` loads and SDPA serves.

Supports: the stock classes of transformers, without remote code. Files of other formats are converted once (`sources`).
Refuses: configs whose class transformers does not have, bidirectional configs that no family claims, models that cannot be tapped (soft
caps, sink logits).
Row p - 1 predicts position p.
"""

from collections.abc import Mapping
from typing import Any

from transformers import AutoModelForCausalLM

from floatlens.errors import Refusal
from floatlens.models.checkpoint import Checkpoint
from floatlens.models.families.adapter import Blueprint, Family, as_tokens, native_config


def recognises(_config: Mapping[str, Any]) -> bool:
    """Everything that no other family has claimed."""
    return True


def blueprint(checkpoint: Checkpoint) -> Blueprint:
    """The model itself."""
    config = native_config(checkpoint)
    if getattr(config, "is_causal", True) is False:
        raise Refusal(
            f"{checkpoint.name} is bidirectional (is_causal is false), and its config does not say how it writes. Name its family: "
            "family='llada' or another."
        )
    if type(config) not in AutoModelForCausalLM._model_mapping:
        raise Refusal(f"{checkpoint.name} (model_type {config.model_type!r}) is not a language model that writes text from left to right.")
    eos = getattr(config, "eos_token_id", None)
    return Blueprint(
        family=FAMILY.name,
        config=config,
        model_class=AutoModelForCausalLM,
        sampler="autoregressive",
        row_offset=1,
        end_tokens=as_tokens(eos),
        strict_names=False,
    )


FAMILY = Family(
    name="autoregressive",
    models="Llama, Qwen, SmolLM2, Gemma 3, GPT-2, ...; GGUF; llama2.c",
    runs_as="AutoModelForCausalLM",
    checked="tiny models of four kinds; SmolLM2-135M and stories260K with real weights",
    recognises=recognises,
    blueprint=blueprint,
)
