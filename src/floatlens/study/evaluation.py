"""Evaluate models on a task: everything that `floatlens eval` does, as one call that returns tables and saves them if asked to.

`evaluate` finds the questions, plans the conditions, loads one model after the other, asks it, records traces of the first questions
and summarises. `floatlens.study.one_model` asks one model; `floatlens.report.evaluation` draws and prints what comes out.

Decided here: everything that can be checked without weights is checked before any are read: the place to write to, the contexts, the
questions, the sampler options, and whether each tokenizer knows the words. Sampler options go to the models whose loop has them. A folder
is written beside its place and renamed when it is whole; conditions that are done are kept meanwhile, so that the same call after an
interruption resumes from them.

Refused: two models of one name, an option that no model has, traces without a folder to write them to, and whatever the tasks, the
contexts and the models refuse.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import polars as pl

from floatlens.errors import Refusal
from floatlens.folders import refuse_place, unfinished_folder
from floatlens.interventions.specification import Intervention
from floatlens.models.doctor import Examination, examine
from floatlens.models.language_model import LanguageModel
from floatlens.models.loading import load
from floatlens.seeds import refuse_seed
from floatlens.study.one_model import ask_model
from floatlens.study.outcomes import Outcome, as_table, summarise
from floatlens.study.preparing import adapted_task, settings_by_model
from floatlens.study.settings import Settings
from floatlens.study.traces import TRACE_COLUMNS, record_traces
from floatlens.tasks.conditions import DRAWS, Condition, condition_of, plan
from floatlens.tasks.contexts import Context
from floatlens.tasks.likelihood import DRAWS as MASK_SETS
from floatlens.tasks.registry import Task, index_of_file, load_task
from floatlens.tasks.wording import Wording
from floatlens.terminal import counted

Model = str | os.PathLike[str] | LanguageModel
"""A model to evaluate: loaded already, or anything that `floatlens.load` takes by name."""

AnyContext = str | Context | Condition

OF_THE_COMMAND = {"model", "context", "levels", "intervention"}
"""Options of `floatlens eval` that the call names otherwise."""

SAMPLES = 100
"""How many questions of a task by name are asked where nothing else is said."""


@dataclass(frozen=True)
class Evaluation:
    """What an evaluation gave.

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

    def load(self, model: Model) -> LanguageModel:
        if isinstance(model, LanguageModel):
            return model
        how = {"dtype": self.dtype, "device": self.device, "trust_remote_code": self.trust_remote_code}
        return load(model, **how, block_length=self.block_lengths.get(os.fspath(model)))


@dataclass(frozen=True)
class _Plan:
    """What every model is asked: a task, under the conditions that were asked for and those that come with them; how many are traced."""

    task: Task
    asked: list[Condition]
    conditions: list[Condition]
    loading: _Loading
    trace: int
    progress: bool


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
    planned = _Plan(task, asked, conditions, loading, trace, progress)
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
    runs = _settings_by_model(given, planned, settings, sampler, tell)
    asking = f"{counted(len(task.samples), 'question')} under {counted(len(conditions), 'condition')}"
    tell(f"{asking} for {counted(len(given), 'model')}.")
    if into is None:
        return _ask_all(planned, runs)
    with unfinished_folder(into, "floatlens eval", keeps=True) as unfinished:
        if any(unfinished.kept.iterdir()):
            tell(f"Resuming from what was done when the last run into {into} stopped.")
        evaluation = replace(_ask_all(planned, runs, unfinished.kept, unfinished.folder), folder=Path(into))
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
            f"Two of the models {', '.join(names)} have one name, by which rows and traces are told apart. Give each once, or copy one."
        )


def _settings_by_model(
    models: Sequence[Model], planned: _Plan, settings: Settings, sampler: str | None, tell: Callable[[str], object]
) -> list[tuple[Model, Settings]]:
    """Each model with its settings. Refused before any weights are read: what a model cannot be asked."""
    examined = [planned.loading.examine(model) for model in models]
    own = settings_by_model(examined, planned.task, planned.conditions, settings, sampler, tell)
    return list(zip(models, own, strict=True))


def _ask_all(planned: _Plan, runs: Sequence[tuple[Model, Settings]], keep: Path | None = None, folder: Path | None = None) -> Evaluation:
    """Ask one model after the other; only one is held in memory."""
    asked = [_ask_and_record(planned, model, settings, keep, folder) for model, settings in runs]
    table = pl.concat([rows for rows, _ in asked])
    traces = pl.DataFrame([row for _, recorded in asked for row in recorded], schema=TRACE_COLUMNS)
    return Evaluation(table, tuple(summarise(table)), traces, planned.task.passages_from, planned.task.left_out)


def _ask_and_record(
    planned: _Plan, model: Model, settings: Settings, keep: Path | None, folder: Path | None
) -> tuple[pl.DataFrame, list[dict[str, Any]]]:
    """The rows of one model, and those of its traces."""
    lm, samples = planned.loading.load(model), planned.task.samples
    rows = ask_model(lm, samples, planned.conditions, settings, keep=keep, progress=planned.progress)
    if not planned.trace or folder is None:
        return rows, []
    conditions = planned.asked or [condition for condition in planned.conditions if condition.intervention is None]
    return rows, record_traces(lm, samples[: planned.trace], conditions, settings, folder, progress=planned.progress)
