"""DiffusionGemma, native in transformers, with its own `generate`.

Supports: `DiffusionGemmaForBlockDiffusion`: an encoder that reads the text causally and a decoder that denoises a canvas. A step is a
forward of the decoder. Its canvas starts as random tokens and there is no mask token: its sampler accepts tokens, and may take them back.
Which it accepted, and the draft that it made of the canvas, is asked for after each of its denoising steps (`watch_decisions`), a private
method of the class.
Refuses: floatlens' own samplers, which need a mask token.
Row p predicts position p.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from torch import nn
from transformers.models.diffusion_gemma.modeling_diffusion_gemma import DiffusionGemmaForBlockDiffusion

from floatlens.errors import Refusal
from floatlens.models.checkpoint import Checkpoint
from floatlens.models.families.adapter import Blueprint, Family, as_tokens, native_config


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


class SamplerDecisions:
    """What the sampler decided in the last denoising step."""

    def __init__(self) -> None:
        self.draft: np.ndarray | None = None  # (row,): what becomes of the canvas if the step was its last
        self._sampler: Any = None

    def accepted(self, rows: int) -> np.ndarray:
        """bool (row,): the rows whose tokens the sampler has accepted; none before its first step."""
        accepted = getattr(self._sampler, "accepted_token_mask", None)
        return np.zeros(rows, bool) if accepted is None else accepted[0].cpu().numpy()

    def note(self, sampler: Any, draft: Any) -> None:
        """A denoising step is over."""
        self._sampler, self.draft = sampler, draft[0].cpu().numpy()


@contextmanager
def watch_decisions(module: nn.Module) -> Iterator[SamplerDecisions]:
    """Note the sampler and its draft after every denoising step of `generate` in here; nothing is left on the module."""
    model: Any = module
    decisions, step = SamplerDecisions(), getattr(model, "_denoising_step", None)
    if step is None:
        raise Refusal(
            f"{type(module).__name__} has no _denoising_step in this version of transformers, so it cannot be told which tokens its "
            "sampler accepts. Install the version that floatlens names in its dependencies."
        )

    def step_and_note(*args: Any, sampler: Any, **kwargs: Any) -> Any:
        result = step(*args, sampler=sampler, **kwargs)
        _, draft, *_ = result
        decisions.note(sampler, draft)
        return result

    model._denoising_step = step_and_note
    try:
        yield decisions
    finally:
        del model._denoising_step


FAMILY = Family(
    name="diffusion-gemma",
    models="DiffusionGemma 26B-A4B",
    runs_as="DiffusionGemmaForBlockDiffusion, own generate",
    checked="a tiny model",
    recognises=recognises,
    blueprint=blueprint,
    watch_decisions=watch_decisions,
)
