"""DiffusionGemma, native in transformers, with its own `generate`.

Supports: `DiffusionGemmaForBlockDiffusion`: an encoder that reads the text causally and a decoder that denoises a canvas. A step is a forward of the decoder.
Its canvas starts as random tokens and there is no mask token: the trace says which positions were accepted.
Refuses: floatlens' own samplers, which need a mask token.
Row p predicts position p.
"""

from collections.abc import Mapping
from typing import Any

from transformers.models.diffusion_gemma.modeling_diffusion_gemma import DiffusionGemmaForBlockDiffusion

from floatlens.models.checkpoint import Checkpoint
from floatlens.models.families.stock import as_tokens, native_config
from floatlens.models.weights import Blueprint, Family


def recognises(config: Mapping[str, Any]) -> bool:
    """By its type."""
    return config.get("model_type") == "diffusion_gemma"


def blueprint(checkpoint: Checkpoint) -> Blueprint:
    """The model itself."""
    config = native_config(checkpoint)
    eos = getattr(config, "eos_token_id", None)
    return Blueprint(
        family=FAMILY.name,
        config=config,
        model_class=DiffusionGemmaForBlockDiffusion,
        sampler=None,
        row_offset=0,
        end_tokens=as_tokens(eos),
        step_on=lambda module: module.model.decoder,  # type: ignore[union-attr]  # as the class has it
        strict_names=False,
    )


FAMILY = Family(
    name="diffusion-gemma",
    models="DiffusionGemma 26B-A4B",
    runs_as="DiffusionGemmaForBlockDiffusion, own generate",
    checked="a tiny model",
    recognises=recognises,
    blueprint=blueprint,
)
