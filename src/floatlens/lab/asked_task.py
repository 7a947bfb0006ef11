"""What a study asks of each model: a task as one small frozen value, which experiments run without knowing what it is about.

An `AskedTask` says which samples each experiment takes, in which contexts, how they are worded, answered and scored, which prompts are
traced, and, in its `Design`, what it cannot ask. There are two: the world (`floatlens.lab.asked_world`) and questions with passages
(`floatlens.lab.asked_questions`). `asked_task` makes the one that a `Choice` names.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from floatlens.claims.design import Design
from floatlens.decoding.prompts import Prompt
from floatlens.lab.units import Choice
from floatlens.models.doctor import Examination
from floatlens.models.language_model import LanguageModel
from floatlens.tasks.samples import Sample


@dataclass(frozen=True)
class Asks:
    """The questions of one experiment: `samples` makes them from a number and a seed; `size` is the field of `Sizes` that says how many.

    `masked` are numbers of strongest keys to mask, and `how` what differs from the task's own settings.
    """

    samples: Callable[[int, int], list[Sample]]
    size: str
    contexts: tuple[str, ...]
    masked: tuple[int, ...] = ()
    how: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class TracedPrompt:
    """A prompt to trace: the sample it is of, and the slot of the gold passage, counted from 1."""

    sample: str
    prompt: Prompt
    slot: int


@dataclass(frozen=True)
class AskedTask:
    """A task to study. `how` are settings of `evaluate_model` that all experiments share, `tracing` those of `lm.trace`.

    `writing` gives the options with which a model writes. `silenced`, given how many heads there are and how many in a layer, says how many
    are silenced, and how many of them in one layer at most. `said` are sentences about the questions, and `in_memory` says whether a trace
    is small enough to be measured in memory.
    """

    design: Design
    asks: Mapping[str, Asks]
    without_heads: Asks
    traced: Callable[[int, int], list[TracedPrompt]]
    how: Mapping[str, Any]
    tracing: Mapping[str, Any]
    writing: Callable[[LanguageModel | Examination], dict[str, Any]]
    silenced: Callable[[int, int], tuple[int, int]]
    said: tuple[str, ...] = ()
    in_memory: bool = False


@lru_cache(maxsize=1)
def asked_task(choice: Choice) -> AskedTask:
    """The task that a choice names; it is read once per process."""
    if choice.task == "world":
        from floatlens.lab.asked_world import WORLD_TASK

        return WORLD_TASK
    from floatlens.lab.asked_questions import read_questions

    return read_questions(choice)
