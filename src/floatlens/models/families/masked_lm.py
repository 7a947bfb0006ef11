"""BERT, RoBERTa, ModernBERT, ALBERT and other masked language models, as themselves, unmasked step by step.

Supports: whatever `AutoModelForMaskedLM` loads. Weights of heads that only training needs (pooler, next-sentence head) are left out. The
closing token of a text ([SEP], </s>) stands after the masks. The mask is the tokenizer's.
Refuses: checkpoints whose tokenizer has no mask; any other missing or surplus tensor.
Row p predicts position p.
"""

from collections.abc import Mapping
from typing import Any

from transformers import AutoModelForMaskedLM

from floatlens.models.checkpoint import Checkpoint
from floatlens.models.families.adapter import Blueprint, Family, native_config


def recognises(config: Mapping[str, Any]) -> bool:
    """By the class that the config names."""
    return any(name.endswith("ForMaskedLM") for name in config.get("architectures") or [])


def blueprint(checkpoint: Checkpoint) -> Blueprint:
    """The model itself."""
    return Blueprint(
        family=FAMILY.name,
        config=native_config(checkpoint),
        model_class=AutoModelForMaskedLM,
        sampler="llada",
        row_offset=0,
        suffix_names=("sep_token_id", "eos_token_id"),
        ignored_tensors=r"(^|\.)(pooler|seq_relationship|sop_classifier|position_ids)(\.|$)",
        strict_names=False,
    )


FAMILY = Family(
    name="masked-lm",
    models="BERT, RoBERTa, ModernBERT, ALBERT, AntiBERTy, ...",
    runs_as="AutoModelForMaskedLM",
    checked="tiny BERT and ModernBERT models; AntiBERTy against its own package",
    recognises=recognises,
    blueprint=blueprint,
)
