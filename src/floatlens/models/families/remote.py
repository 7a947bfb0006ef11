"""LLaDA-MoE, LLaDA2.x and other models that run only with the code in their checkpoint.

Supports: any causal-LM class that the checkpoint brings along, if the caller trusts it (`trust_remote_code=True`), with its own
`generate`; each forward of the base model (below the head) is a step: `generate` of LLaDA2.x calls `self.forward`, which no hook of the
model itself sees.
Refuses: everything without that trust; models whose code does not run on transformers 5 say so themselves.
Row p predicts position p.
"""

from collections.abc import Mapping
from typing import Any

from transformers import AutoConfig, AutoModelForCausalLM

from floatlens.models.checkpoint import Checkpoint
from floatlens.models.families.adapter import Blueprint, Family, as_tokens

MASK_TOKEN_ID = 156895  # LLaDA2.x and LLaDA-MoE; their configs do not name it


def recognises(config: Mapping[str, Any]) -> bool:
    """Mixtures of experts of the LLaDA line."""
    experts = "num_experts" in config or any("MoE" in name for name in config.get("architectures") or [])
    return str(config.get("model_type", "")).startswith("llada") and experts


def blueprint(checkpoint: Checkpoint) -> Blueprint:
    """Whatever the checkpoint's code says."""
    published = checkpoint.config
    eos = published.get("eos_token_id")
    return Blueprint(
        family=FAMILY.name,
        config=AutoConfig.from_pretrained(checkpoint.folder, trust_remote_code=True),
        model_class=AutoModelForCausalLM,
        sampler=None,
        row_offset=0,
        mask_token_id=published.get("mask_token_id", MASK_TOKEN_ID),
        end_tokens=as_tokens(eos),
        step_on=lambda module: module.base_model,  # type: ignore[return-value]  # every transformers model has one; see above
        strict_names=False,
    )


FAMILY = Family(
    name="remote",
    models="LLaDA-MoE, LLaDA2.x (own code, own generate)",
    runs_as="the class in the checkpoint",
    checked="a tiny model with code of its own",
    recognises=recognises,
    blueprint=blueprint,
)
