"""From a study file to its units: read the questions, examine the models, and write down every unit with all it depends on.

Decided here: units come in the order of the tables: task by task, model by model, condition by condition, shard by shard. Two entries of
a plan may be one unit, such as those of an autoregressive model under two samplers that differ in an option which it does not have; it
runs once, and its rows stand under both. The digest of a checkpoint is that of its files' content (config, tokenizer, weights, adapter),
or the commit of a hub repository. A trace has no intervention: it says where an undisturbed model looks.

Everything is checked before any weights are read, as in `fl.evaluate`; refused is what that refuses.
"""

import hashlib
import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from floatlens.decoding.prompts import Prompt
from floatlens.errors import Refusal
from floatlens.models.checkpoint import Checkpoint, bundled_names, find_checkpoint
from floatlens.models.doctor import Examination, examine
from floatlens.study.jobs import ModelChoice, ModelJob, Tracing, questions_digest, questions_job, trace_job
from floatlens.study.preparing import adapted_task, settings_by_model
from floatlens.study.settings import Settings
from floatlens.study.study_file import ModelTable, PromptTable, SamplerTable, StudyFile, TaskTable, TracesTable
from floatlens.study.units import Unit
from floatlens.tasks.conditions import Condition, condition_of, plan
from floatlens.tasks.contexts import Context
from floatlens.tasks.readers.own import read_prompts
from floatlens.tasks.registry import WORLD_TASKS, Task, find_data, index_of_file, load_task
from floatlens.tasks.samples import Sample
from floatlens.terminal import progress_bar

_TEXTS = (".json", ".txt", ".model", ".jinja", ".tiktoken", ".py")
_CHUNK = 1 << 24


@dataclass(frozen=True)
class KnownModel:
    """A model of a study: how it is loaded, and what is known of it without its weights."""

    choice: ModelChoice
    examined: Examination
    weights_here: bool


@dataclass(frozen=True, eq=False)
class Plan:
    """All jobs of a study in the order of its tables; the text of its file, the folder of paths in it, digests of data."""

    study: StudyFile
    text: str
    folder: Path
    jobs: tuple[ModelJob, ...]
    models: tuple[KnownModel, ...]
    data: Mapping[str, str]
    device: str

    @property
    def units(self) -> list[Unit]:
        return [job.unit for job in self.jobs]


def make_plan(
    study: StudyFile,
    text: str,
    folder: Path,
    *,
    device: str = "cpu",
    weights: bool = True,
    tell: Callable[[str], object] = lambda _sentence: None,
    progress: bool = True,
) -> Plan:
    """Every unit of a study.

    Parameters
    ----------
    study, text, folder
        The study, the text of its file, and the folder that paths in it are relative to.
    device
        The type of device on which units run.
    weights
        Fetch weights too; without, a model of the hub is only described.
    tell
        Called with sentences about questions that were adapted or left out.
    progress
        Show a progress bar while checkpoints are read.
    """
    models = known_models(study, folder, weights=weights, progress=progress)
    jobs: list[ModelJob] = []
    data: dict[str, str] = {}
    for table in study.tasks:
        asked_of = [model for model in models if table.models is None or model.choice.name in _located(table.models, folder)]
        others = [model.examined for model in models if model not in asked_of]
        jobs += _jobs_of_task(study, table, asked_of, others, folder, device, data, tell)
    for prompts in study.prompts:
        jobs += _jobs_of_prompts(study, prompts, models, folder, device, data)
    return Plan(study, text, folder, tuple(jobs), tuple(models), data, device)


def known_models(study: StudyFile, folder: Path, *, weights: bool, progress: bool) -> list[KnownModel]:
    """The models of a study, examined, with the digests of their checkpoints."""
    known = []
    with progress_bar(len(study.models), "Reading checkpoints", show=progress) as advance:
        for table in study.models:
            name = _located([table.name], folder)[0]
            how: dict[str, Any] = {"trust_remote_code": table.trust_remote_code}
            examined = examine(name, revision=table.revision, dtype=table.dtype, block_length=table.block_length, **how)
            checkpoint = find_checkpoint(name, table.revision, weights=weights, **how)
            label = Path(name).name if Path(name).is_absolute() else examined.name  # where a folder lies says nothing about the model
            known.append(KnownModel(_choice(table, name, label, checkpoint), examined, bool(checkpoint.weight_files)))
            advance(1, title=f"Reading checkpoints, {label}")
    return known


def checkpoint_digest(checkpoint: Checkpoint) -> str:
    """A hash of all that decides what a checkpoint does; the commit, where it comes from the hub."""
    if checkpoint.revision is not None and checkpoint.adapter is None:
        return f"{checkpoint.name}@{checkpoint.revision}"
    texts = [file for file in checkpoint.folder.iterdir() if file.suffix in _TEXTS and file.is_file()]
    digest = hashlib.sha256()
    for file in [*sorted(texts), *checkpoint.weight_files, *([checkpoint.adapter] if checkpoint.adapter else [])]:
        digest.update(f"{file.name} {file.stat().st_size}\n".encode())
        with file.open("rb") as opened:
            while chunk := opened.read(_CHUNK):
                digest.update(chunk)
    return digest.hexdigest()[:32]


def _choice(table: ModelTable, name: str, label: str, checkpoint: Checkpoint) -> ModelChoice:
    shared = (table.revision, table.dtype, table.block_length, table.trust_remote_code)
    return ModelChoice(name, label, *shared, checkpoint_digest(checkpoint), socket.gethostname())


def _located(names: Sequence[str], folder: Path) -> list[str]:
    """Names of models, those of folders and files relative to the study's folder as paths that hold anywhere."""
    paths = [folder / Path(name).expanduser() for name in names]
    bundled = bundled_names()
    return [str(path.resolve()) if path.exists() and name.lower() not in bundled else name for name, path in zip(names, paths, strict=True)]


def _jobs_of_task(
    study: StudyFile,
    table: TaskTable,
    models: Sequence[KnownModel],
    others: Sequence[Examination],
    folder: Path,
    device: str,
    data: dict[str, str],
    tell: Callable[[str], object],
) -> Iterator[ModelJob]:
    asked = [condition_of(text) for text in (study.contexts if table.contexts is None else table.contexts)]
    traces = study.traces
    to_trace = () if traces is None else traces.contexts if table.traced is None else table.traced
    traced = [condition_of(text) for text in to_trace or ()]
    task, adapted = adapted_task(_read_task(table, [*asked, *traced], folder, data), [*asked, *traced], table.leave_out, tell)
    asked, traced = adapted[: len(asked)], adapted[len(asked) :]
    edits = study.interventions if table.interventions is None else table.interventions
    conditions = plan(task.samples, asked, edits, controls=study.controls, brackets=study.brackets, draws=study.draws)
    if to_trace is None:
        traced = asked or [condition for condition in conditions if condition.intervention is None]
    digests = _Digests()
    how: dict[str, Any] = {"device": device, "threads": study.run.threads}
    length = table.gen_length or task.gen_length
    for sampler, model, settings in _ways(study, models, task, [*conditions, *traced], length, tell, others):
        about = (table.label, sampler, model)
        for condition in conditions:
            for first, samples in _shards(task.samples, study.run.shard):
                yield questions_job(*about, samples, condition, settings, first=first, digest=digests(samples, condition), **how)
        if traces is None:
            continue
        for condition in traced:
            for first, samples in _shards(task.samples[: traces.samples], study.run.shard):
                names = [sample.id for sample in samples]
                shown = {"samples": samples, "condition": condition, "digest": digests(samples, condition)}
                yield trace_job(*about, settings, _tracing(traces), names, first=first, **shown, **how)


def _ways(
    study: StudyFile,
    models: Sequence[KnownModel],
    task: Task,
    conditions: Sequence[Condition],
    gen_length: int,
    tell: Callable[[str], object] = lambda _sentence: None,
    others: Sequence[Examination] = (),
) -> Iterator[tuple[str, ModelChoice, Settings]]:
    """Every way in which a task is put: the name of a sampler, a model, and how that model is asked, with each seed."""
    for sampler in study.samplers:
        settings = _settings(study, sampler, task, gen_length)
        own = settings_by_model([model.examined for model in models], task, conditions, settings, sampler.sampler, tell, others)
        for model, of_model in zip(models, own, strict=True):
            for seed in study.seeds:
                yield sampler.name, model.choice, replace(of_model, seed=seed)


def _read_task(table: TaskTable, conditions: Sequence[Condition], folder: Path, data: dict[str, str]) -> Task:
    """The questions of a task; the digests of the files they come from are noted."""
    file = None
    if table.task not in WORLD_TASKS:
        file = find_data(table.task, table.data, folder)
        _note_digest(file, data)
    elif table.data is not None:
        file = table.data
    corpus = None
    if table.corpus is not None:
        corpus = index_of_file(folder / Path(table.corpus).expanduser())
        _note_digest(str(folder / table.corpus), data)
    return load_task(
        table.task,
        file,
        conditions=conditions,
        count=table.samples,
        seed=table.seed,
        corpus=corpus,
        infer_gold=table.infer_gold,
        run_code=table.run_code,
        leave_out=table.leave_out,
    )


def _note_digest(file: str, data: dict[str, str]) -> None:
    if os.path.isfile(file):
        with open(file, "rb") as opened:
            data[file] = hashlib.file_digest(opened, "sha256").hexdigest()


def _settings(study: StudyFile, sampler: SamplerTable, task: Task, gen_length: int) -> Settings:
    return Settings(
        wording=task.wording,
        scorer=task.scorer,
        shortcut=task.shortcut,
        gen_length=sampler.gen_length or gen_length,
        steps=sampler.steps,
        batch_size=study.run.batch_size,
        likelihood=study.likelihood and bool(task.samples),  # prompts have no answers
        mask_sets=study.mask_sets,
        chat=study.chat,
        allow_unknown=study.allow_unknown,
        options=dict(sampler.options),
    )


def _tracing(traces: TracesTable) -> Tracing:
    return Tracing(traces.detail, traces.measures, traces.keep)


def _shards(all_of_them: Sequence[Any], size: int) -> list[tuple[int, Sequence[Any]]]:
    """Shards of samples or prompts, each with the number of its first one."""
    return [(first, all_of_them[first : first + size]) for first in range(0, len(all_of_them), size)]


class _Digests:
    """Digests of shards as they are asked, each taken once: models, samplers, seeds and draws share them."""

    def __init__(self) -> None:
        self._known: dict[tuple[Context, str, int], str] = {}

    def __call__(self, samples: Sequence[Sample], condition: Condition) -> str:
        key = (condition.context, samples[0].id, len(samples))
        if key not in self._known:
            self._known[key] = questions_digest(samples, condition)
        return self._known[key]


def _jobs_of_prompts(
    study: StudyFile, table: PromptTable, models: Sequence[KnownModel], folder: Path, device: str, data: dict[str, str]
) -> Iterator[ModelJob]:
    if study.traces is None:
        return
    if table.file is None:
        prompts = [Prompt(table.text or "")]
    else:
        file = folder / Path(table.file).expanduser()
        prompts = read_prompts(file)
        _note_digest(str(file), data)
    if not prompts:
        raise Refusal(f"{table.file} holds no prompt.")
    names = [table.name if table.file is None else f"{table.name}-{number:04d}" for number in range(len(prompts))]
    how: dict[str, Any] = {"device": device, "threads": study.run.threads}
    task = Task(table.name, ())
    for sampler, model, settings in _ways(study, models, task, [], task.gen_length):
        for first, shard in _shards(prompts, study.run.shard):
            about = (table.name, sampler, model, settings, _tracing(study.traces), names[first : first + len(shard)])
            yield trace_job(*about, first=first, prompts=shard, **how)
