"""Which prompt a sample comes from: the unit of every interval, and what pairs the samples of two models.

Two models are given the same question in different templates, so a prompt is what the user wrote: its characters without the template's. A prompt of token ids is those ids.
"""

import numpy as np

from floatlens.trace.schema import PROMPT
from floatlens.trace.trace import Trace


def prompt_of(trace: Trace, number: int) -> str:
    """What the user wrote in a sample."""
    own = trace.sample(number)
    given = (own["state"].values == PROMPT).any(0)
    chosen = given & ~own["template"].values & (own["char_stop"].values > own["char_start"].values)
    if not chosen.any():
        return " ".join(map(str, own["final"].values[given]))
    text = trace.prompt(number)
    covered = np.zeros(len(text), bool)
    for start, stop in zip(own["char_start"].values[chosen], own["char_stop"].values[chosen], strict=True):
        covered[start:stop] = True
    return "".join(character for character, is_own in zip(text, covered, strict=True) if is_own).strip()


def prompts_of(trace: Trace) -> list[str]:
    """What the user wrote in each sample; samples with the same text are one prompt."""
    return [prompt_of(trace, number) for number in range(len(trace))]
