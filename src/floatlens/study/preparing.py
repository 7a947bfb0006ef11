"""What has to be settled before models are asked: which questions can be asked under which conditions, and with which settings by which
model. Both `fl.evaluate` and studies (`floatlens.study.planning`) come through here.

Decided here: sampler options go to the models whose loop has them. Everything is checked without weights. Refused: questions that lack
what a context needs (unless they may be left out), an option or a loop that no model has, likelihoods of a model that has none, and
questions that a tokenizer does not know.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from floatlens.decoding.options import share_out
from floatlens.decoding.prompts import encode
from floatlens.errors import Caution, Refusal
from floatlens.models.doctor import Examination
from floatlens.models.language_model import LanguageModel
from floatlens.study.one_model import refuse_samples
from floatlens.study.settings import Settings
from floatlens.tasks.conditions import Condition, complete, with_one_gold
from floatlens.tasks.contexts import arrange
from floatlens.tasks.likelihood import refuse_without_likelihood
from floatlens.tasks.registry import Task
from floatlens.tasks.wording import format_prompt, refuse_unknown_tokens
from floatlens.terminal import counted

Tell = Callable[[str], object]
"""Called with sentences about what was adapted."""


def adapted_task(task: Task, asked: list[Condition], leave_out: bool, tell: Tell) -> tuple[Task, list[Condition]]:
    """The task and the conditions such that the questions can be asked under them, and a sentence about each thing that was adapted."""
    refuse_samples(task.samples)
    if task.passages_from:
        tell(task.passages_from)
    with_one = with_one_gold(asked, task.samples)
    if with_one != asked:
        texts = ", ".join(condition.text for condition in with_one)
        tell(f"No question has more than one gold passage, so noise adds distractors to that one: {texts}.")
    if not leave_out:
        return task, with_one
    kept, lacking = complete(task.samples, with_one)
    left_out = {**task.left_out, **lacking}
    if not kept:
        raise Refusal(f"No question has what these contexts need: {next(iter(left_out.values()))}")
    if left_out:
        tell(f"Left out {counted(len(left_out), 'question')}, such as: {next(iter(left_out.values()))}")
    return replace(task, samples=tuple(kept), left_out=left_out), with_one


def settings_by_model(
    examined: Sequence[Examination | LanguageModel],
    task: Task,
    conditions: Sequence[Condition],
    settings: Settings,
    sampler: str | None,
    tell: Tell,
    others: Sequence[Examination] = (),
) -> list[Settings]:
    """The settings of each model: the options that its loop has, and the loop; `sampler` is another one for the diffusion models.

    `others` are models that are asked with the same settings, but something else: an option is refused if none of all has it.
    """
    for known in examined:
        if settings.likelihood:
            refuse_without_likelihood(known)
    for known in examined:
        if not settings.allow_unknown:
            _refuse_unreadable(known.name, known.tokenizer, task, conditions, settings)
    everyone = [*examined, *others]
    if sampler and all(known.sampler in (None, "autoregressive") for known in everyone):
        raise Refusal(
            f"{sampler} is a loop of diffusion models, and none of these models can be run by it. Leave --sampler (sampler=) out."
        )
    every_loop = [known.sampler if known.sampler in (None, "autoregressive") else sampler or known.sampler for known in everyone]
    loops, shares = every_loop[: len(examined)], share_out(settings.options, every_loop)[: len(examined)]
    for known, share in zip(examined, shares, strict=True):
        if lacking := ", ".join(name for name in settings.options if name not in share):
            tell(f"{known.name} has no {lacking} and runs without.")
    return [replace(settings, options={"sampler": loop, **share}) for loop, share in zip(loops, shares, strict=True)]


def _refuse_unreadable(name: str, tokenizer: Any, task: Task, conditions: Sequence[Condition], settings: Settings) -> None:
    """Refuse questions that a model cannot read, before any weights are."""
    if tokenizer is None:
        return
    contexts = dict.fromkeys(condition.context for condition in conditions)
    prompts = [format_prompt(sample, arrange(sample, context), task.wording) for context in contexts for sample in task.samples]
    encoded = [encode(prompt, tokenizer, chat=settings.chat) for prompt in prompts]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Caution)  # the warnings come when the model is asked
        refuse_unknown_tokens(name, tokenizer, task.samples, encoded, task.wording, likelihood=settings.likelihood)
