"""The twins: small Llamas of one shape, tokenizer and data that differ in the mask and the objective only.

Supports: bundled twins, those that `floatlens train twins` writes, and any Llama config that says which twin it is (`"twin": "mdm"`).
`twin-arm` is causal and predicts the next token; `twin-mdm` is bidirectional and `twin-causal-mdm` causal, and both predict what stands
behind the masks, with LLaDA's loop. That loop runs the causal one as it runs any model: a mask sees what stands before it, written or
not, and who sees whom is read off every attention call, never assumed from the loop.
Refuses: a kind of twin that does not exist, and a config whose mask is not its kind's.
Row p - 1 predicts position p of twin-arm; row p predicts position p of the other two.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from transformers import LlamaForCausalLM

from floatlens.errors import Refusal
from floatlens.models.checkpoint import Checkpoint
from floatlens.models.families.adapter import Blueprint, Family, as_tokens, native_config


@dataclass(frozen=True)
class Kind:
    """What sets a twin apart: whether rows see only what stands before them, and how it writes."""

    causal: bool
    sampler: str
    row_offset: int


KINDS = {"arm": Kind(True, "autoregressive", 1), "mdm": Kind(False, "llada", 0), "causal-mdm": Kind(True, "llada", 0)}


def recognises(config: Mapping[str, Any]) -> bool:
    """A config that says which twin it is."""
    return "twin" in config


def blueprint(checkpoint: Checkpoint) -> Blueprint:
    """A stock Llama with the mask and the loop of its kind."""
    named = checkpoint.config.get("twin")
    kind = KINDS.get(named) if isinstance(named, str) else None
    if kind is None or checkpoint.config.get("model_type") != "llama":
        raise Refusal(
            f"{checkpoint.name} is not a twin: its config must be a Llama's and say "
            f'"twin": one of {", ".join(KINDS)}, not {named!r}. Choose another family, or none.'
        )
    config = native_config(checkpoint)
    if getattr(config, "is_causal", True) is not kind.causal:
        raise Refusal(
            f"The config of {checkpoint.name} says twin={named!r} and is_causal={getattr(config, 'is_causal', True)}, but attention of "
            f"that twin is {'causal' if kind.causal else 'bidirectional'}. Config and weights may not belong together; write the twin "
            "again."
        )
    return Blueprint(
        family=FAMILY.name,
        config=config,
        model_class=LlamaForCausalLM,
        sampler=kind.sampler,
        row_offset=kind.row_offset,
        end_tokens=as_tokens(config.eos_token_id),
        runs_as=f"LlamaForCausalLM, {'causal' if kind.causal else 'bidirectional'}",
    )


FAMILY = Family(
    name="twin",
    models="twin-arm, twin-mdm, twin-causal-mdm",
    runs_as="LlamaForCausalLM, causal or bidirectional",
    checked="trained here; scores measured again by a test",
    recognises=recognises,
    blueprint=blueprint,
)
