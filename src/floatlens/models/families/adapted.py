"""Models that `floatlens adapt` made: a stock Llama, Qwen2 or Qwen3 with an adapter merged into it when it is loaded.

Supports: bundled adapters (`smollm2-arm`, `smollm2-mdm`, `smollm2-causal-mdm`) and any adapter file. One that was trained to predict
the next token writes autoregressively; one that was trained on masked targets writes with LLaDA's loop, whether its attention is causal or
bidirectional. Adapters are recognised by their file, not by a config: the config is that of the base.
Refuses: a base with other weights than the adapter was trained on, parameters that do not fit.
Row p - 1 predicts position p of all of them, as in the base. The mask token is never written: training left its logit out.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from torch import nn
from transformers import AutoModelForCausalLM

from floatlens.errors import Refusal
from floatlens.models.adapters import Adapter, merge_adapter, read_adapter, refuse_other_base
from floatlens.models.checkpoint import Checkpoint
from floatlens.models.families.adapter import Blueprint, Family, as_tokens, native_config


def recognises(_config: Mapping[str, Any]) -> bool:
    """No config is an adapted model's: it is that of the base."""
    return False


def blueprint(checkpoint: Checkpoint) -> Blueprint:
    """The class of the base with the mask and the loop that the adapter was trained for."""
    if checkpoint.adapter is None:
        raise Refusal(f"{checkpoint.name} is not an adapter. Give a file that floatlens adapt wrote, or leave the family out.")
    adapter = read_adapter(checkpoint.adapter)
    info, config = adapter.info, native_config(checkpoint)
    config.is_causal = info.mask == "causal"
    return Blueprint(
        family=FAMILY.name,
        config=config,
        model_class=AutoModelForCausalLM,
        sampler="autoregressive" if info.objective == "ar" else "llada",
        row_offset=1,
        mask_token_id=None if info.objective == "ar" else info.mask_token_id,
        never_written=(info.mask_token_id,),
        end_tokens=as_tokens(config.eos_token_id),
        finish=partial(_merge, adapter, checkpoint.name),
        runs_as=f"{config.architectures[0] if config.architectures else 'the stock class'}, {info.mask}",
    )


def _merge(adapter: Adapter, name: str, module: nn.Module) -> None:
    refuse_other_base(module, adapter, name)
    merge_adapter(module, adapter)


FAMILY = Family(
    name="adapted",
    models="smollm2-arm, smollm2-mdm, smollm2-causal-mdm; what floatlens adapt trains",
    runs_as="LlamaForCausalLM, Qwen2ForCausalLM or Qwen3ForCausalLM, causal or bidirectional",
    checked="trained here; merging equals peft's; scores measured again by a test",
    recognises=recognises,
    blueprint=blueprint,
)
