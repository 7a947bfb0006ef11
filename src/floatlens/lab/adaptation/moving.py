"""What moves while a checkpoint writes: whether its strongest key is another one at the next step, and whether its anchors are others.

Decided here: a checkpoint continues the beginnings of held-out documents from left to right, one token per step, so that diffusion models
and autoregressive ones fill the same positions in the same order. What is measured are the rows that predict and the keys of the
prompt, which exist at every step of both kinds. Numbers are in percent. Changes of the path stand beside the noise of half of the heads,
which is larger than that of all; the movement of the path, which sets halves against halves, is what noise does not explain. The float
index stands beside as many anchors at random places. Documents that are shorter than a beginning and what is written after it are
left out.
"""

import math
from collections.abc import Sequence
from typing import Any

from floatlens.lab.adaptation.sequences import TrainingSequence
from floatlens.measures.catalogue import SHARED
from floatlens.measures.summary import measure_trace
from floatlens.models.language_model import LanguageModel

BEGINNING, WRITTEN = 32, 16  # tokens
MEASURES = ("changes of the path", "movement of the path", "float index (no memory)")
LINES = tuple(line for line in SHARED if line.name in MEASURES)
GROUP = "predicting"


def beginnings(texts: Sequence[TrainingSequence], count: int) -> list[list[int]]:
    """The first tokens of the first `count` documents that are long enough.

    Examples
    --------
    >>> story = TrainingSequence(tuple(range(60)), (1,), (1.0,), "text")
    >>> [len(beginning) for beginning in beginnings([story, story, story], 2)]
    [32, 32]
    """
    long_enough = [text.tokens for text in texts if text.kind == "text" and len(text.tokens) >= BEGINNING + WRITTEN]
    return [list(tokens[:BEGINNING]) for tokens in long_enough[:count]]


def movement_by_layer(lm: LanguageModel, prompts: Sequence[Sequence[int]]) -> list[dict[str, Any]]:
    """One row per text, measure and layer: `value` and `null` in percent, while the model writes after each prompt from left to right."""
    options = {} if lm.sampler == "autoregressive" else {"sampler": "llada", "block_length": 1}
    trace = lm.trace([list(prompt) for prompt in prompts], gen_length=WRITTEN, groups=[GROUP], progress=False, **options)
    measured = measure_trace(trace, lines=LINES, rectangle=True, progress=False).values
    rows = []
    for measure in MEASURES:
        values = measured[measure].sel(group=GROUP)
        values = values if "null" in values else values.assign(null=values["value"] * math.nan)
        for text in range(len(prompts)):
            for layer in values["layer"].values:
                place = {"layer": layer}
                value, null = (values[name].isel(sample=text).sel(place) for name in ("value", "null"))
                rows.append(
                    {
                        "text": text,
                        "group": GROUP,
                        "layer": int(layer),
                        "measure": measure,
                        "value": 100 * float(value),
                        "null": 100 * float(null),
                        "key": -1,
                        "token": "",
                    }
                )
    return rows
