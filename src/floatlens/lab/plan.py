"""What a study will take, before it starts: its task, its models, and a few questions of each, timed.

Decided here: every model is loaded and every file read before anything runs, so that a mistake is reported at once. A study of real models
takes hours, so that a few of its questions are timed first: without and with an intervention, with few passages and with the most, and one
traced text. Questions between few passages and the most are taken to cost what lies between. The world is not timed: it takes a minute.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from floatlens.claims.design import CLOSED_BOOK, Design
from floatlens.interventions.specification import MaskAnchors
from floatlens.lab.asked_task import AskedTask, asked_task
from floatlens.lab.experiments import (
    choice_of,
    heads_of,
    jobs_of,
    loaded,
    measurements_of,
    record,
    tracing_job,
    write_left_to_right,
)
from floatlens.lab.units import Experiment, Preparation, Prices, Sizes, Study, questions_of
from floatlens.models.language_model import LanguageModel
from floatlens.study.errand import Packed
from floatlens.study.one_model import evaluate_model
from floatlens.tasks.conditions import condition_of
from floatlens.tasks.contexts import arrange
from floatlens.tasks.likelihood import refuse_without_likelihood
from floatlens.tasks.samples import Sample

TIMED = 2
"""How many questions are timed in each way."""


def prepare(study: Study, timed: bool, processes: int, kept: Path, report: Callable[[int, str], object]) -> Preparation:
    """Read the task and load every model; time a few questions of each if asked to; make the jobs. An errand of a worker.

    The traces of the jobs lie below `kept`.
    """
    task = asked_task(study.choice)
    writing = {}
    for role, model in study.models.items():
        lm = loaded(model, study.choice.dtype)
        writing[role] = task.writing(lm)
        refuse_without_likelihood(lm)
    prices = {}
    for role, model in study.models.items() if timed else ():
        report(0, f"Timing a few questions, {role}")
        prices[role] = _timed(task, loaded(model, study.choice.dtype), study.seed)
        report(1, f"Timing a few questions, {role}")
    available = min(len(asks.samples(study.sizes.questions, study.seed)) for asks in task.asks.values() if asks.size == "questions")
    said = list(task.said)
    if available < study.sizes.questions:
        said.append(f"There are {available} questions to ask, not {study.sizes.questions}.")
        study = replace(study, sizes=Sizes(available, study.sizes.real))
    experiments = study.experiments(task.design)
    lines = plan_lines(experiments, task.design, prices, processes) if prices else []
    choices = {role: choice_of(model, study.choice.dtype) for role, model in study.models.items()}
    jobs: dict[tuple[str, str], tuple[Packed, ...]] = {}
    for experiment in experiments:
        role, name = experiment.role, experiment.name
        if name == "trace":
            own = [tracing_job(study, role, task, choices[role], writing[role], kept)]
        else:
            own = jobs_of(study, name, task, task.asks[name], choices[role], writing[role])
        jobs[role, name] = tuple(map(Packed.of, own))
    slots = {prompt.sample: prompt.slot for prompt in task.traced(study.sizes.traced, study.seed)}
    return Preparation(task.design, study.sizes.questions, tuple(said), tuple(lines), slots, jobs)


def _timed(task: AskedTask, lm: LanguageModel, seed: int) -> Prices:
    asks, design = task.asks["noise"], task.design
    samples = asks.samples(TIMED, seed)
    how = {**task.how, **task.writing(lm), **asks.how, "brackets": False, "progress": False, "seed": seed}
    evaluate_model(lm, samples[:1], [CLOSED_BOOK], **how)  # what is slow only once

    def per_question(context: str, keys: int = 0) -> float:
        began = time.monotonic()
        evaluate_model(lm, samples, [context], interventions=[MaskAnchors(keys)] if keys else [], controls=False, **how)
        return (time.monotonic() - began) / len(samples)

    few, most, edited = per_question(design.masked_context), per_question(design.noise[-1]), per_question(design.masked_context, 1)
    traced = task.traced(1, seed)
    with TemporaryDirectory() as folder:
        began = time.monotonic()
        trace = record(lm, task, traced, seed, Path(folder) / "trace.zarr")
        names = [prompt.sample for prompt in traced]
        heads_of("", trace, names, design.needle)
        measurements_of("", trace, names, write_left_to_right(lm, task, traced, trace, seed, Path(folder) / "left-to-right.zarr"))
        seconds = time.monotonic() - began
    shown = [sum(_passages(sample, context) for sample in samples) / len(samples) for context in (design.masked_context, design.noise[-1])]
    return Prices(few, most, max(edited - few, 0.0), seconds, (shown[0], shown[1]))


def _passages(sample: Sample, context: str) -> int:
    return len(arrange(sample, condition_of(context).context))


def seconds_of(experiment: Experiment, design: Design, prices: Prices) -> float:
    """How long an experiment takes, by what a few questions took.

    Examples
    --------
    >>> from floatlens.claims.design import one_piece
    >>> noise = Experiment("mdm", "m", "noise", Sizes(10, real=True), 5)
    >>> seconds_of(noise, one_piece("nq"), Prices(few=1.0, most=5.0, edited=2.0, traced=9.0, passages=(1, 5)))  # 0, 1, 3 and 5 passages
    90.0
    """
    sizes = experiment.sizes
    if experiment.name == "trace":
        return sizes.traced * prices.traced + sizes.masked * (prices.few + (1 + experiment.draws) * prices.edited)
    if experiment.name == "masked answers":
        return sizes.masked * prices.few + (questions_of(experiment, design) - sizes.masked) * prices.edited
    few, most = prices.passages
    shown = {
        "noise": [0, *(few + _distractors(context) for context in design.noise)],
        "position": [few, *[most] * len(design.positions)],
        "layout": [few, *[most] * len(design.layouts)],
    }
    return sizes.questions * sum(prices.of(passages) for passages in shown[experiment.name])


def _distractors(noise: str) -> int:
    return getattr(condition_of(noise).context, "distractors", 0)


def in_words(seconds: float) -> str:
    """A duration as one says it.

    Examples
    --------
    >>> in_words(50), in_words(400), in_words(9000)
    ('1 minute', '7 minutes', '2.5 hours')
    """
    minutes = max(1, round(seconds / 60))
    return f"{minutes} minute{'s' * (minutes != 1)}" if minutes < 90 else f"{minutes / 60:.1f} hours"


def plan_lines(experiments: Sequence[Experiment], design: Design, prices: Mapping[str, Prices], processes: int) -> list[str]:
    """The plan of a study: a line per experiment with how many questions it asks of each model and how long that takes, and the sum."""
    lines, total = [], 0.0
    for name in dict.fromkeys(experiment.name for experiment in experiments):
        own = [experiment for experiment in experiments if experiment.name == name]
        taken = {experiment.role: seconds_of(experiment, design, prices[experiment.role]) for experiment in own}
        total += sum(taken.values())
        each = ", ".join(f"{role} {in_words(seconds)}" for role, seconds in taken.items())
        lines.append(f"  {name}: {questions_of(own[0], design):,} questions and texts for each model; {each}")
    lines.append(f"About {in_words(total / processes)} in {processes} process{'es' * (processes != 1)}, by a few questions timed just now.")
    return lines
