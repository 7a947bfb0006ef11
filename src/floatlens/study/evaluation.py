"""Evaluate models on a task: everything that `floatlens eval` does, as one call that returns tables and saves them if asked to.

`evaluate` finds the questions, plans the conditions, has one unit run per model and condition (`floatlens.study.settling`), and summarises.
Units run in this process, one model after the other, or in worker processes. `floatlens.study.one_model` asks one model;
`floatlens.report.evaluation` draws and prints what comes out.

Decided here: everything that can be checked without weights is checked before any are read: the place to write to, the contexts, the
questions, the sampler options, and whether each tokenizer knows the words. Sampler options go to the models whose loop has them. A folder
is written beside its place and renamed when it is whole; units that are finished are kept meanwhile, so that the same call after an
interruption resumes from them. Python's own objects (loaded models, a `Task`) stay in this process.

Refused: two models of one name, an option that no model has, traces without a folder to write them to, and whatever the tasks, the
contexts and the models refuse; workers for models that are loaded already or for a `Task`, which may hold functions of a script.
"""

import contextlib
import os
import shutil
import socket
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import polars as pl

from floatlens.errors import Caution, Refusal
from floatlens.folders import refuse_place, unfinished_folder
from floatlens.interventions.specification import Intervention
from floatlens.models.checkpoint import find_checkpoint
from floatlens.models.doctor import Examination, examine
from floatlens.models.language_model import LanguageModel
from floatlens.seeds import refuse_seed
from floatlens.study.engine import Engine, Job, device_type, local_devices
from floatlens.study.in_process import InProcessEngine
from floatlens.study.jobs import ModelChoice, ModelJob, Tracing, fingerprint, questions_job, trace_job
from floatlens.study.local_engine import LocalEngine, default_workers, threads_of_workers
from floatlens.study.one_model import by_longest_prompt
from floatlens.study.outcomes import Outcome, as_table, summarise
from floatlens.study.planning import checkpoint_digest
from floatlens.study.preparing import adapted_task, settings_by_model
from floatlens.study.sealed import unseal
from floatlens.study.settings import Settings
from floatlens.study.settling import interruptions, run_jobs
from floatlens.study.store import FolderStore
from floatlens.study.worker import Worker
from floatlens.tasks.conditions import DRAWS, Condition, as_file_name, condition_of, plan
from floatlens.tasks.contexts import Context, arrange
from floatlens.tasks.likelihood import DRAWS as MASK_SETS
from floatlens.tasks.registry import Task, index_of_file, load_task
from floatlens.tasks.wording import Wording
from floatlens.terminal import counted, progress_bar

Model = str | os.PathLike[str] | LanguageModel
"""A model to evaluate: loaded already, or anything that `floatlens.load` takes by name."""

AnyContext = str | Context | Condition

OF_THE_COMMAND = {"model", "context", "levels", "intervention"}
"""Options of `floatlens eval` that the call names otherwise."""

TRACE_COLUMNS = {"trace": pl.String, "number": pl.Int64, "model": pl.String, "context": pl.String, "sample": pl.String, "gold": pl.String}
"""The columns of `traces.csv`: which question stands where in which trace, and which regions of it hold the evidence."""
TRACES, TRACE = "traces", "trace.zarr"
_TRACING = Tracing("default", (), keep=True, batch_size=4)  # as `lm.trace` does where nothing else is said

SAMPLES = 100
"""How many questions of a task by name are asked where nothing else is said."""


@dataclass(frozen=True)
class Evaluation:
    """The results of an evaluation.

    `rows` has one row per model, condition, sample and draw (columns: `floatlens.study.one_model`); `outcomes` are the numbers they come
    to, and `summary` the same as a table. `traces` says which trace below `folder` holds which question, and which of its regions are gold.
    `passages_from` says where passages come from that the task's file does not give; `left_out` holds, by the id of the sample, why a
    question was left out.
    """

    rows: pl.DataFrame
    outcomes: tuple[Outcome, ...]
    traces: pl.DataFrame
    passages_from: str = ""
    left_out: Mapping[str, str] = field(default_factory=dict)
    folder: Path | None = None

    @property
    def summary(self) -> pl.DataFrame:
        """The outcomes as a table, one row each."""
        return as_table(self.outcomes)

    def save(self, folder: Path) -> None:
        """Write results.parquet, summary.csv and, if there are traces, traces.csv into a folder."""
        self.rows.write_parquet(folder / "results.parquet")
        self.summary.write_csv(folder / "summary.csv")
        if len(self.traces):
            self.traces.write_csv(folder / "traces.csv")


@dataclass(frozen=True)
class _Loading:
    """How models that are given by name are read."""

    dtype: str | None
    device: str | None
    trust_remote_code: bool
    block_lengths: Mapping[str, int]

    def examine(self, model: Model) -> Examination | LanguageModel:
        """What is known of a model without reading its weights."""
        if isinstance(model, LanguageModel):
            return model
        block_length = self.block_lengths.get(os.fspath(model))
        return examine(model, dtype=self.dtype, trust_remote_code=self.trust_remote_code, block_length=block_length)

    def choice(self, model: Model, known: Examination | LanguageModel, identify: bool) -> ModelChoice:
        """A model as a worker takes it; with what tells it from any other, if units are to be kept."""
        if isinstance(model, LanguageModel):
            return ModelChoice(
                model.name, model.name, None, None, None, False, fingerprint(model) if identify else "", socket.gethostname()
            )
        name, trusted = os.fspath(model), self.trust_remote_code
        digest = checkpoint_digest(find_checkpoint(name, trust_remote_code=trusted)) if identify else ""
        return ModelChoice(name, known.name, None, self.dtype, self.block_lengths.get(name), trusted, digest, socket.gethostname())


@dataclass(frozen=True)
class _Plan:
    """What every model is asked: a task, under the conditions that were asked for and those that come with them; how many are traced."""

    task: Task
    asked: list[Condition]
    conditions: list[Condition]
    trace: int


def evaluate(
    models: Model | Sequence[Model],
    task: str | Task = "world",
    contexts: AnyContext | Sequence[AnyContext] = (),
    *,
    interventions: str | Intervention | Sequence[str | Intervention] = (),
    controls: bool = True,
    draws: int = DRAWS,
    brackets: bool = True,
    samples: int | None = None,
    data: str | os.PathLike[str] | None = None,
    corpus: str | os.PathLike[str] | None = None,
    infer_gold: bool = False,
    leave_out: bool = False,
    run_code: bool = False,
    wording: Wording | None = None,
    gen_length: int | None = None,
    steps: int | None = None,
    sampler: str | None = None,
    batch_size: int = 8,
    seed: int = 0,
    likelihood: bool = True,
    mask_sets: int = MASK_SETS,
    chat: bool | None = None,
    allow_unknown: bool = False,
    dtype: str | None = None,
    device: str | None = None,
    trust_remote_code: bool = False,
    block_lengths: Mapping[str, int] | None = None,
    trace: int = 0,
    workers: int | str = 0,
    into: str | os.PathLike[str] | None = None,
    draw: Callable[[Path, Evaluation], object] | None = None,
    tell: Callable[[str], object] | None = None,
    progress: bool = True,
    **options: Any,
) -> Evaluation:
    """Ask models the questions of a task, with and without passages, and summarise what they answer.

    There are many keywords, because they are all that an evaluation can be told; inside they travel as two frozen values, a `Task` and
    `Settings`.

    Parameters
    ----------
    models
        One model or several: names, folders, files, or loaded ones. Models given by name are loaded one after the other.
    task
        The name of a task (`floatlens.tasks.registry.TASKS`), or a `Task`.
    contexts
        What stands before the questions: "closed-book", "gold", "retrieved:5", "noise:.4", "position:3/10", "layout:far", "conflict",
        "masks:64", or `Context`s.
    interventions, controls, draws
        What the models may not look at, such as "mask-anchors:1", in every context given; each with its random controls, each of which
        is drawn `draws` times and averaged per question.
    brackets
        Whether closed-book and gold-only run as well.
    samples
        How many questions at most; 100 by default, and all those of a `Task`.
    data, corpus
        For a task by name: the file with its questions, or the folder it lies in; and a file of passages to search.
    infer_gold, leave_out, run_code
        Call gold what holds an answer, where the file names no gold passages; leave out questions that lack what a context needs, instead
        of refusing; allow running the programs that models write for humaneval.
    wording, gen_length
        How a prompt reads, and how many tokens to write; the task's own by default.
    steps, sampler, options
        The largest number of denoising steps (by default one per token), another decoding loop for the diffusion models, and options of
        the sampler for the models that have them, such as temperature=0.7.
    batch_size, seed, likelihood, mask_sets, chat, allow_unknown
        As in `floatlens.study.settings.Settings`.
    dtype, device, trust_remote_code, block_lengths
        For models given by name, as for `floatlens.load`; `block_lengths` by the name of the model.
    trace
        Record traces of so many of the first questions, in every context given, below `into`.
    workers
        How many processes run models, for models and tasks given by name: "auto" for one per GPU or, on the CPU, as many as cores and
        memory allow. By default this process does.
    into
        The folder to write: results.parquet, summary.csv, traces. If the call is interrupted, the same call resumes. By default
        nothing is written.
    draw
        Called with the folder before it gets its name, and the result: what it writes there is part of the folder. For pictures, use
        `floatlens.report.evaluation.write_pictures`.
    tell
        Called with sentences about what happens, such as `print`. By default they are not shown.
    progress
        Show progress bars.

    Examples
    --------
    >>> import floatlens as fl
    >>> evaluation = fl.evaluate("twin-arm", contexts=["noise:.8"], samples=2, likelihood=False)
    >>> evaluation.rows.select("context", "passages").unique(maintain_order=True).rows()
    [('closed-book', 0), ('gold', 1), ('noise:0.8', 5)]
    >>> evaluation.summary.columns[:4]
    ['quantity', 'outcome', 'model', 'estimate']
    """
    tell = tell or (lambda _sentence: None)
    if into is not None:
        refuse_place(into)
    elif trace:
        raise Refusal("Traces are written to a folder, and none is given. Pass into=FOLDER.")
    seed = refuse_seed(seed)
    given = [models] if isinstance(models, str | os.PathLike | LanguageModel) else list(models)
    _refuse_names(given)
    _refuse_workers(given, task, workers)
    if misnamed := sorted(OF_THE_COMMAND & options.keys()):
        example = 'models=["twin-mdm"], contexts=["noise:0", "noise:.8"], interventions=["mask-anchors:1"]'
        raise Refusal(f"evaluate has no argument {misnamed[0]!r}. It takes lists: {example}.")
    contexts = [contexts] if isinstance(contexts, str | Context | Condition) else contexts
    interventions = [interventions] if isinstance(interventions, str | Intervention) else interventions
    asked = list(dict.fromkeys(condition_of(context) for context in contexts))
    if isinstance(task, Task):
        if data is not None or corpus is not None:
            raise Refusal("A Task holds its questions already; data= and corpus= are for tasks that are given by name.")
        task = replace(task, samples=task.samples[:samples])
    else:
        task = load_task(
            task,
            data,
            conditions=asked,
            count=SAMPLES if samples is None else samples,
            seed=seed,
            corpus=None if corpus is None else index_of_file(corpus),
            infer_gold=infer_gold,
            run_code=run_code,
            leave_out=leave_out,
        )
    task, asked = adapted_task(replace(task, wording=wording or task.wording), asked, leave_out, tell)
    conditions = plan(task.samples, asked, interventions, controls=controls, brackets=brackets, draws=draws)
    loading = _Loading(dtype, device, trust_remote_code, block_lengths or {})
    planned = _Plan(task, asked, conditions, trace)
    settings = Settings(
        wording=task.wording,
        scorer=task.scorer,
        shortcut=task.shortcut,
        gen_length=gen_length or task.gen_length,
        steps=steps,
        batch_size=batch_size,
        seed=seed,
        likelihood=likelihood,
        mask_sets=mask_sets,
        chat=chat,
        allow_unknown=allow_unknown,
        options=options,
    )
    examined = [loading.examine(model) for model in given]
    own = settings_by_model(examined, task, conditions, settings, sampler, tell)
    asking = f"{counted(len(task.samples), 'question')} under {counted(len(conditions), 'condition')}"
    tell(f"{asking} for {counted(len(given), 'model')}.")
    choices = [loading.choice(model, known, identify=into is not None) for model, known in zip(given, examined, strict=True)]
    runs = list(zip(choices, own, strict=True))
    if workers:
        weights = max(known.weight_bytes for known in examined if isinstance(known, Examination))
        engine, kind, threads = _worker_processes(workers, device, len(conditions) * len(given), weights)
    else:
        loaded = {model.name: model for model in given if isinstance(model, LanguageModel)}
        engine, kind, threads = InProcessEngine(Worker(device, loaded)), device_type(device or "auto"), None
    how = {"device": kind, "threads": threads}
    with interruptions(tell) if workers else contextlib.nullcontext(lambda: 0) as told:
        if into is None:
            return _run(planned, _jobs(planned, runs, None, how), engine, told, progress)
        with unfinished_folder(into, "floatlens eval", keeps=True) as unfinished:
            if any(unfinished.kept.iterdir()):
                tell(f"Resuming from what was done when the last run into {into} stopped.")
            jobs, store = _jobs(planned, runs, unfinished.kept, how), FolderStore(unfinished.kept)
            evaluation = replace(_run(planned, jobs, engine, told, progress, store, unfinished.folder), folder=Path(into))
            evaluation.save(unfinished.folder)
            if draw is not None:
                draw(unfinished.folder, evaluation)
    return evaluation


def _refuse_names(models: Sequence[Model]) -> None:
    """Refuse two models of one name, and none at all."""
    names = [model.name if isinstance(model, LanguageModel) else os.fspath(model) for model in models]
    if not names:
        raise Refusal("There is no model to evaluate. Give at least one.")
    if len({Path(name).name for name in names}) < len(names):
        raise Refusal(
            f"Two of the models {', '.join(names)} have the same name, but rows and traces are told apart by name. Give each once, or "
            "copy one."
        )


def _refuse_workers(models: Sequence[Model], task: str | Task, workers: int | str) -> None:
    """Refuse a number of workers below 0, and worker processes for a model or a task that only this process holds."""
    if workers != "auto" and (isinstance(workers, bool) or not isinstance(workers, int) or workers < 0):
        raise Refusal(f'workers={workers!r}: give how many processes run models, "auto", or 0 for this process.')
    if workers and (isinstance(task, Task) or any(isinstance(model, LanguageModel) for model in models)):
        raise Refusal("Loaded models, and a Task, stay in this process. Leave workers= out, or give models and task by name.")


def _worker_processes(workers: int | str, device: str | None, jobs: int, weight_bytes: int) -> tuple[Engine, str, int]:
    """Worker processes, the type of device they run on, and with how many threads each."""
    kind = device_type(device or "auto")
    devices = local_devices(kind) if device is None else [device]
    threads = threads_of_workers(jobs, weight_bytes) if kind == "cpu" else 1
    count = default_workers(devices, threads, weight_bytes) if workers == "auto" else int(workers)
    return LocalEngine(devices, count), kind, threads


def _jobs(planned: _Plan, runs: Sequence[tuple[ModelChoice, Settings]], keep: Path | None, how: dict[str, Any]) -> list[ModelJob]:
    """The jobs of all models: every condition, and the traces, which are left below `keep`."""
    task, jobs = planned.task, list[ModelJob]()
    shown = {condition.context: [arrange(sample, condition.context) for sample in task.samples] for condition in planned.conditions}
    order = by_longest_prompt(task.samples, list(shown.values()), task.wording)  # the same batches in all conditions
    for model, settings in runs:
        about = (task.name, "default", model)
        jobs += [questions_job(*about, task.samples, condition, settings, order=order, **how) for condition in planned.conditions]
        if not planned.trace or keep is None:
            continue
        samples = task.samples[: planned.trace]
        names = [sample.id for sample in samples]
        for condition in planned.asked or [condition for condition in planned.conditions if condition.intervention is None]:
            job = trace_job(*about, settings, _TRACING, names, samples=samples, condition=condition, **how)
            jobs.append(replace(job, folder=keep / f"trace-{job.id}"))
    return jobs


def _run(
    planned: _Plan,
    jobs: Sequence[ModelJob],
    engine: Engine,
    told: Callable[[], int],
    progress: bool,
    store: FolderStore | None = None,
    folder: Path | None = None,
) -> Evaluation:
    """Run the jobs that are not finished yet, and join the results of all of them."""
    files: dict[str, bytes] = {}

    def done(job: Job, content: bytes) -> Iterator[Job]:
        files[job.id] = content
        yield from ()

    names = list(dict.fromkeys(job.holds for job in jobs))
    with progress_bar(sum(job.questions for job in jobs), f"Asking {', '.join(names)}", show=progress) as advance:
        run_jobs(jobs, engine, done, store=store, advance=advance, told=told)
    units = [(job, unseal(files[job.id])) for job in jobs]
    for caution in dict.fromkeys(caution for _, unit in units for caution in unit.run["cautions"]):
        warnings.warn(caution, Caution, stacklevel=3)
    table = pl.concat([unit.rows("results") for job, unit in units if job.tracing is None])
    traces: list[dict[str, Any]] = []
    for job, unit in units:
        if job.tracing is None or job.folder is None or folder is None:
            continue
        path = Path(TRACES) / Path(job.holds).name / f"{as_file_name(job.unit.context)}.zarr"
        shutil.copytree(job.folder / TRACE, folder / path)
        about = {"trace": path.as_posix(), "model": job.holds, "context": job.unit.context}
        traces += [{**about, **row} for row in unit.rows("traces").iter_rows(named=True)]
    told_traces = pl.DataFrame(traces, schema=TRACE_COLUMNS)
    return Evaluation(table, tuple(summarise(table)), told_traces, planned.task.passages_from, planned.task.left_out)
