"""What a study will take, with the arithmetic shown: units, passes, time, memory, disk, and on given accelerators hours and price.

**Token passes** are tokens that go through a model once. Writing takes an autoregressive model as many as prompt and answer have tokens; a
diffusion model takes one pass over both per denoising step. A likelihood takes an autoregressive model one pass over prompt and answer,
and a diffusion model one per set of masks. A pass takes 2 x parameters operations per token; what attention adds to that (a few per cent
at a thousand tokens) is left out. Time on this machine follows from a warm-up: a unit of each sort (plain, edited, traced) of each model
is run and timed, and a sort takes as many seconds per pass as its unit did. On accelerators that are not here, time is operations over
speed and utilisation, which the user states.

Prompts are counted by the model's tokenizer, or by four characters per token where it has none. Nothing is written.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from floatlens.decoding.prompts import encode
from floatlens.models.doctor import Examination
from floatlens.study.engine import local_devices
from floatlens.study.jobs import ModelJob
from floatlens.study.local_engine import MEMORY_PER_WEIGHTS, OVERHEAD, default_workers
from floatlens.study.planning import KnownModel, Plan
from floatlens.study.sealed import unseal
from floatlens.tasks.contexts import arrange
from floatlens.tasks.wording import format_prompt
from floatlens.terminal import counted, progress_bar
from floatlens.trace.estimate import Shapes, size_in_words
from floatlens.trace.schema import make_detail

PLAIN, EDITED, TRACED = "plain", "edited", "traced"
LISTED = 40  # groups of units; the others are counted
UNIT_BYTES, ROW_BYTES, PROMPT_SHARE = 9_000, 120, 0.35
"""The size of a unit's file: what every one has (columns, JSON), what a row adds, and what is left of a prompt when it is compressed.

Fitted to units of the twins with 4 to 100 rows; `docs/how-to/scale-out.md` compares it with what was written."""
CHARACTERS_PER_TOKEN = 4


@dataclass(frozen=True)
class Accelerators:
    """Devices to plan for: how many, their best speed in 10^12 operations per second, the share of it that is reached, price per hour."""

    count: int
    tflops: float
    utilisation: float
    price: float | None


@dataclass(frozen=True)
class Load:
    """What jobs ask of a model."""

    units: int
    questions: int
    passes: int
    disk: float

    def __add__(self, other: "Load") -> "Load":
        return Load(self.units + other.units, self.questions + other.questions, self.passes + other.passes, self.disk + other.disk)


def sort_of(job: ModelJob) -> str:
    """Which sort of unit a job is: they take different time per pass."""
    if job.tracing is not None:
        return TRACED
    return EDITED if job.unit.intervention else PLAIN


class _Counter:
    """Counts the tokens of prompts and answers, each text once."""

    def __init__(self, model: KnownModel) -> None:
        self.examined, self._known = model.examined, dict[str, int]()

    def tokens(self, text: str, chat: bool | None = False) -> int:
        """How many tokens a text has; with the chat template, if it goes through it."""
        key = f"{chat} {text}"
        if key not in self._known:
            tokenizer = self.examined.tokenizer
            self._known[key] = (
                -(-len(text) // CHARACTERS_PER_TOKEN) if tokenizer is None else len(encode(text, tokenizer, chat=chat).tokens)
            )
        return self._known[key]


def load_of(job: ModelJob, counter: "_Counter") -> Load:
    """What a job asks of its model."""
    settings, examined = job.settings, counter.examined
    passes, disk = 0, float(UNIT_BYTES)
    length = settings.gen_length if job.condition is None else settings.length_for(job.condition)
    texts = [prompt.text for prompt in job.prompts]
    if job.condition is not None:
        texts = [format_prompt(sample, arrange(sample, job.condition.context), settings.wording).text for sample in job.samples]
    lengths = [counter.tokens(text, settings.chat) for text in texts]
    for number, prompt in enumerate(lengths):
        passes += _writing(examined, prompt, length, settings.steps, settings.options.get("block_length"))
        if settings.likelihood and job.tracing is None:
            answer = counter.tokens(job.samples[number].answers[0])
            passes += _likelihood(examined, prompt, answer, settings.mask_sets)
        disk += ROW_BYTES + PROMPT_SHARE * len(texts[number].encode())
    if job.tracing is not None and job.tracing.keep:
        detail = make_detail(job.tracing.detail, autoregressive=examined.sampler == "autoregressive")
        steps = min(settings.steps or length, length)
        disk += Shapes(examined.config, [prompt + length for prompt in lengths], steps, detail).estimate().disk
    return Load(1, job.unit.count, passes, disk)


def _writing(examined: Examination, prompt: int, length: int, steps: int | None, block_length: object) -> int:
    """Token passes to write `length` tokens behind a prompt."""
    if examined.sampler in (None, "autoregressive"):
        return prompt + length
    denoising = min(steps or length, length)
    if examined.sampler == "sdar":  # blocks that are written stay in a cache
        block = block_length if isinstance(block_length, int) else examined.block_length or 4
        return prompt + length + denoising * block
    return denoising * (prompt + length)


def _likelihood(examined: Examination, prompt: int, answer: int, mask_sets: int) -> int:
    """Token passes for the likelihood of an answer."""
    if examined.sampler == "autoregressive":
        return prompt + answer
    return min(2 ** min(answer, 20) - 1, mask_sets) * (prompt + answer)


def estimate_lines(
    plan: Plan, *, workers: int | None = None, warm_up: bool = True, accelerators: Accelerators | None = None, progress: bool = True
) -> Iterator[str]:
    """What `floatlens study check` prints, line by line."""
    jobs = list({job.unit.id: job for job in plan.jobs}.values())
    yield from _listed(plan, jobs)
    total_disk, seconds, price_hours = 0.0, 0.0, 0.0
    for model in plan.models:
        own = [job for job in jobs if job.model.label == model.choice.label]
        if not own:
            continue
        loads = _loads(own, model, progress)
        whole = sum(loads.values(), Load(0, 0, 0, 0))
        total_disk += whole.disk
        parameters = model.examined.parameters
        yield (
            f"{model.choice.label}: {counted(whole.units, 'unit')}, {whole.questions:,} answers and texts, {whole.passes:,} token passes"
            f" x 2 x {parameters:,} parameters = {2.0 * parameters * whole.passes:.3g} operations."
        )
        if accelerators is not None:
            hours = 2.0 * parameters * whole.passes / (accelerators.tflops * 1e12 * accelerators.utilisation) / 3600
            price_hours += hours
            yield (
                f"  {2.0 * parameters * whole.passes:.3g} operations / ({accelerators.tflops:g} TFLOP/s x {accelerators.utilisation:g}) = "
                f"{hours:.3g} hours of one device."
            )
        elif warm_up:
            for sort, per_pass in _timed(own, loads, model, _devices(plan)[0], progress):
                seconds += loads[sort].passes * per_pass
                yield (f"  {sort}: {loads[sort].passes:,} passes x {1e6 * per_pass:.4g} us = {_duration(loads[sort].passes * per_pass)}.")
        yield (
            f"  Memory per worker: {MEMORY_PER_WEIGHTS:g} x {size_in_words(model.examined.weight_bytes)} of weights + "
            f"{size_in_words(OVERHEAD)} = {size_in_words(MEMORY_PER_WEIGHTS * model.examined.weight_bytes + OVERHEAD)}."
        )
    yield f"Disk: about {size_in_words(total_disk)} in {counted(len(jobs), 'file')} of units."
    yield from _totals(plan, jobs, workers, warm_up, accelerators, seconds, price_hours)


def _devices(plan: Plan) -> list[str]:
    return local_devices(plan.device, plan.study.run.devices_per_worker)


def _totals(
    plan: Plan,
    jobs: Sequence[ModelJob],
    workers: int | None,
    warm_up: bool,
    accelerators: Accelerators | None,
    seconds: float,
    hours: float,
) -> Iterator[str]:
    if accelerators is not None:
        rounds = -(-len(jobs) // accelerators.count)
        line = f"Time: {hours:.3g} hours / {accelerators.count} devices = {hours / accelerators.count:.3g} hours"
        yield f"{line}, {rounds} units per device, {3600 * hours / len(jobs):.3g} s each."
        if accelerators.price is not None:
            yield f"Price: {hours:.3g} hours x {accelerators.price:g} = {hours * accelerators.price:.4g}, however many devices share them."
        return
    if not warm_up:
        yield "Time: not estimated. Leave out --no-warm-up to time a few units here, or give --devices and --tflops."
        return
    largest = max(model.examined.weight_bytes for model in plan.models)
    count = min(len(jobs), workers or default_workers(_devices(plan), plan.study.run.threads, largest))
    yield f"Time: {_duration(seconds)} / {counted(count, 'worker')} = about {_duration(seconds / count)} here, without loading."


def _listed(plan: Plan, jobs: Sequence[ModelJob]) -> Iterator[str]:
    """The units, those that differ in shard, draw and seed together."""
    yield f"{plan.study.name}: {counted(len(jobs), 'unit')} of up to {plan.study.run.shard} samples, {counted(len(plan.models), 'model')}."
    groups: dict[tuple[str, ...], list[ModelJob]] = {}
    for job in jobs:
        unit = job.unit
        what = "traced" if job.tracing is not None else (f"under {unit.intervention}" if unit.intervention else "")
        groups.setdefault((unit.model, unit.task, unit.context, what, unit.control, unit.sampler), []).append(job)
    for (model, task, context, what, control, sampler), own in list(groups.items())[:LISTED]:
        name = ", ".join(
            filter(None, (model, task, context, what, f"control {control}" if control else "", sampler if sampler != "default" else ""))
        )
        yield f"  {counted(len(own), 'unit')}: {name}"
    if len(groups) > LISTED:
        yield f"  ... and {sum(len(own) for own in list(groups.values())[LISTED:])} more units in {len(groups) - LISTED} groups"


def _loads(jobs: Sequence[ModelJob], model: KnownModel, progress: bool) -> dict[str, Load]:
    counter, loads = _Counter(model), dict[str, Load]()
    with progress_bar(len(jobs), f"Counting tokens, {model.choice.label}", show=progress) as advance:
        for job in jobs:
            sort = sort_of(job)
            loads[sort] = loads.get(sort, Load(0, 0, 0, 0)) + load_of(job, counter)
            advance(1)
    return loads


def _timed(jobs: Sequence[ModelJob], loads: dict[str, Load], model: KnownModel, device: str, progress: bool) -> Iterator[tuple[str, float]]:
    """Seconds per token pass of each sort of unit, from a unit of each; the first runs twice, because the first run of all is slow."""
    from floatlens.study.worker import Worker

    worker, counter = Worker(device), _Counter(model)
    chosen = {sort: next(job for job in jobs if sort_of(job) == sort) for sort in loads}
    with progress_bar(1 + len(chosen), f"Warming up, {model.choice.label}", show=progress) as advance:
        worker.run(next(iter(chosen.values())))
        advance(1)
        for sort, job in chosen.items():
            stored = unseal(worker.run(job))
            advance(1)
            yield sort, stored.run["seconds"] / load_of(job, counter).passes


def _duration(seconds: float) -> str:
    """A time for people.

    Examples
    --------
    >>> _duration(12.34), _duration(600), _duration(9000)
    ('12.3 s', '10.0 min', '2.5 h')
    """
    return f"{seconds:.1f} s" if seconds < 120 else f"{seconds / 60:.1f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
