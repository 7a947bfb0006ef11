"""How questions are asked: one frozen value, checked when it is made and passed whole from `floatlens.study.evaluation` to every batch."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from inspect import isfunction
from typing import Any

from floatlens.decoding.options import refuse_batch_size
from floatlens.models.language_model import LanguageModel
from floatlens.seeds import refuse_seed
from floatlens.tasks.conditions import Condition
from floatlens.tasks.likelihood import DRAWS as MASK_SETS
from floatlens.tasks.scoring import Scorer, Shortcut, score_text
from floatlens.tasks.wording import QA_WORDING, Wording


@dataclass(frozen=True)
class Settings:
    """How questions are asked, the same for all conditions of a run: checked when it is made, passed whole.

    Parameters
    ----------
    wording, scorer, shortcut
        How a prompt reads, how what a model writes is scored, and what to report beside the scores (the world has a `shortcut`).
    gen_length, steps
        How many tokens to write, and the largest number of denoising steps; by default one per token. Autoregressive models ignore `steps`.
    batch_size
        How many prompts run together. It changes the speed and, in float32, never the tokens; in bfloat16 and float16 a near tie may
        be decided differently (docs/reference/decoding.md).
    seed
        What random controls and mask sets are drawn from.
    likelihood, mask_sets
        Whether the log-likelihood of the first answer is taken as well, and from how many mask sets at most.
    chat
        Whether prompts go through the chat template; by default where there is one.
    allow_unknown
        Warn instead of refusing where the tokenizer does not know parts of the prompts or answers.
    options
        Options of the sampler, as for `lm.generate`.

    Examples
    --------
    >>> Settings(gen_length=3, batch_size=0)
    Traceback (most recent call last):
    floatlens.errors.Refusal: batch_size=0: at least one prompt must run at a time.
    """

    wording: Wording = QA_WORDING
    scorer: Scorer = score_text
    shortcut: Shortcut | None = None
    gen_length: int = 32
    steps: int | None = None
    batch_size: int = 8
    seed: int = 0
    likelihood: bool = False
    mask_sets: int = MASK_SETS
    chat: bool | None = None
    allow_unknown: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        refuse_batch_size(self.batch_size)
        object.__setattr__(self, "seed", refuse_seed(self.seed))

    @property
    def decisive(self) -> dict[str, Any]:
        """What rows depend on besides model, condition and prompts; the batch size is not part of it."""
        functions = {"scorer": function_name(self.scorer), "shortcut": function_name(self.shortcut)}
        ignored = ("scorer", "shortcut", "batch_size", "likelihood", "allow_unknown")
        values = {name: value for name, value in vars(self).items() if name not in ignored}
        return values | {"mask_sets": self.mask_sets if self.likelihood else None} | functions

    def length_for(self, condition: Condition) -> int:
        """How many tokens are to be written under a condition."""
        return condition.masks or self.gen_length

    def steps_for(self, lm: LanguageModel, condition: Condition) -> int | None:
        """How many denoising steps a model gets under a condition; None leaves it to the sampler."""
        if self.steps is None or lm.sampler == "autoregressive":
            return None
        return min(self.steps, self.length_for(condition))


def settings_of(given: Mapping[str, Any]) -> Settings:
    """Settings from their fields by name; any other name is an option of the sampler.

    Examples
    --------
    >>> settings_of({"gen_length": 3, "temperature": 0.5}).options
    {'temperature': 0.5}
    """
    names = {field.name for field in fields(Settings)}
    known = {name: value for name, value in given.items() if name in names}
    return Settings(**known, options={name: value for name, value in given.items() if name not in names})


def function_name(function: Any) -> str | None:
    """A function by its module and name, with the arguments of a `partial`; the `repr` of a lambda or an object, which have no name.

    Examples
    --------
    >>> function_name(partial(score_text, whole_words=True))
    "floatlens.tasks.scoring.score_text () {'whole_words': True}"
    """
    if function is None:
        return None
    if isinstance(function, partial):
        return f"{function_name(function.func)} {function.args} {function.keywords}"
    return f"{function.__module__}.{function.__name__}" if isfunction(function) and "<" not in function.__qualname__ else repr(function)
