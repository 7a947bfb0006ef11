"""What runs a unit: it loads the model of a job, keeps it for the jobs that follow, and gives back the file of the finished unit.

All engines run units through `Worker`, with the threads that the study fixes, so that a result does not depend on the engine. Rows are
those of `floatlens.study.one_model`; a trace is recorded into a temporary folder, measured there, and put into the unit's file if it is to
be kept.

Refused: a model that is not the one of the plan, where a worker runs on another machine.
"""

import gc
import os
import platform
import socket
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import torch
import transformers

from floatlens._version import __version__
from floatlens.errors import Caution, Refusal
from floatlens.folders import folder_once
from floatlens.measures.catalogue import CATALOGUE
from floatlens.measures.summary import measure_trace
from floatlens.models.checkpoint import find_checkpoint
from floatlens.models.language_model import LanguageModel
from floatlens.models.loading import load
from floatlens.study.engine import Report
from floatlens.study.jobs import ModelChoice, ModelJob
from floatlens.study.measured import MEASUREMENTS, measurement_rows
from floatlens.study.one_model import ask_model
from floatlens.study.planning import checkpoint_digest
from floatlens.study.sealed import TRACE_FOLDER, seal
from floatlens.study.store import WRITTEN_BY
from floatlens.study.units import Unit
from floatlens.tasks.contexts import arrange, holds_evidence
from floatlens.tasks.wording import fit
from floatlens.trace.trace import Trace

GOLD = "gold"
Made = tuple[dict[str, pl.DataFrame], dict[str, bytes]]
"""Tables by name, and files by theirs, which a unit's file is to hold."""


class Worker:
    """Runs jobs on one device, with one model in memory."""

    def __init__(self, device: str | None, given: Mapping[str, LanguageModel] | None = None) -> None:
        """`device` is where models are loaded, by default where `floatlens.load` does; `given` are models that are loaded already."""
        self.device = device
        self._given = given or {}
        self._choice: ModelChoice | None = None
        self._lm: LanguageModel | None = None

    def run(self, job: ModelJob, report: Report = lambda _count, _what: None) -> bytes:
        """The file of a unit."""
        return self.sealed(job.unit, job.model, job.threads, lambda lm: _traced(lm, job) if job.tracing else (_asked(lm, job, report), {}))

    def sealed(self, unit: Unit, choice: ModelChoice, threads: int | None, make: Callable[[LanguageModel], Made]) -> bytes:
        """The file of a unit: the tables and files that are made with a model, and how that went."""
        if threads is not None:
            torch.set_num_threads(threads)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            lm = self._loaded(choice)
            began, started = time.perf_counter(), datetime.now(UTC)
            tables, files = make(lm)
        seconds = time.perf_counter() - began
        for warning in caught:
            if not issubclass(warning.category, Caution):
                warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
        cautions = list(dict.fromkeys(str(warning.message) for warning in caught if issubclass(warning.category, Caution)))
        about = {"began": started.isoformat(), "seconds": round(seconds, 4), "cautions": cautions}
        return seal(unit, {**_surroundings(self.device or str(lm.device)), **about}, tables, files)

    def _loaded(self, choice: ModelChoice) -> LanguageModel:
        """The model of a job: the one in memory, or another one in its place."""
        if choice.name in self._given:
            return self._given[choice.name]
        if self._lm is not None and choice == self._choice:
            return self._lm
        self._lm = self._choice = None
        gc.collect()  # the old one goes before the new one comes
        if choice.host != socket.gethostname():
            _refuse_other_model(choice)
        lm = load(
            choice.name,
            revision=choice.revision,
            dtype=choice.dtype,
            device=self.device,
            trust_remote_code=choice.trust_remote_code,
            block_length=choice.block_length,
        )
        self._lm, self._choice = replace(lm, name=choice.label), choice
        return self._lm


def _refuse_other_model(choice: ModelChoice) -> None:
    here = checkpoint_digest(find_checkpoint(choice.name, choice.revision, trust_remote_code=choice.trust_remote_code))
    if here != choice.digest:
        raise Refusal(
            f"{choice.name} on {socket.gethostname()} is not the model of the plan, made on {choice.host}: the checkpoint differs "
            f"({here} instead of {choice.digest}). Copy the same one to all machines."
        )


def _asked(lm: LanguageModel, job: ModelJob, report: Report) -> dict[str, pl.DataFrame]:
    assert job.condition is not None
    how: dict[str, Any] = {"first": job.unit.first, "order": job.order or None}
    rows = ask_model(lm, job.samples, [job.condition], job.settings, **how, progress=lambda done, what: report(done, f"{lm.name}, {what}"))
    return {"results": rows}


def _traced(lm: LanguageModel, job: ModelJob) -> Made:
    """Record the samples of a job, measure the trace, and give back its files if it is kept in the unit's."""
    assert job.tracing is not None
    prompts, gold = _prompts(lm, job)
    length = job.settings.gen_length if job.condition is None else job.settings.length_for(job.condition)
    how: dict[str, Any] = {"gen_length": length, "detail": job.tracing.detail, "chat": job.settings.chat, "progress": False}
    how |= {"seed": job.settings.seed + job.unit.first, "batch_size": job.tracing.batch_size or job.settings.batch_size}
    if job.condition is not None:
        how["steps"] = job.settings.steps_for(lm, job.condition)
    elif lm.sampler != "autoregressive" and job.settings.steps is not None:
        how["steps"] = min(job.settings.steps, length)
    about = pl.DataFrame({"sample": list(job.names), "number": list(range(len(job.names))), "gold": gold})

    def record(folder: Path) -> Trace:
        return lm.trace(prompts, path=folder / TRACE_FOLDER.rstrip("/"), **how, **job.settings.options)

    if job.folder is not None:
        folder_once(job.folder, WRITTEN_BY, record)
        return {"traces": about}, {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        measured = _measured(record(folder), job)
        kept = [file for file in sorted(folder.rglob("*")) if file.is_file() and job.tracing.keep]
        return {"measurements": measured, "traces": about}, {file.relative_to(folder).as_posix(): file.read_bytes() for file in kept}


def _prompts(lm: LanguageModel, job: ModelJob) -> tuple[list[Any], list[str]]:
    """The prompts to trace, and which of their regions hold the evidence."""
    if job.condition is None:
        return list(job.prompts), [""] * len(job.prompts)
    length, wording = job.settings.length_for(job.condition), job.settings.wording
    shown = [arrange(sample, job.condition.context) for sample in job.samples]
    fitted = [fit(lm, sample, passages, wording, length, job.settings.chat) for sample, passages in zip(job.samples, shown, strict=True)]
    gold = [
        " ".join(f"doc_{slot}" for slot, passage in enumerate(prompt.passages, start=1) if holds_evidence(sample, passage))
        for sample, prompt in zip(job.samples, fitted, strict=True)
    ]
    return [prompt.prompt for prompt in fitted], gold


def _measured(trace: Trace, job: ModelJob) -> pl.DataFrame:
    """The measures of a job on its trace; those that need a gold region where there is one of that name."""
    assert job.tracing is not None
    lines = [line for line in CATALOGUE if line.name in job.tracing.measures]
    gold = GOLD if GOLD in trace.attributes["regions"] else None
    summary = measure_trace(trace, lines=lines, gold=gold, progress=False)
    without_gold = {line.name: f"the prompts have no region called {GOLD}" for line in lines if line.needs_gold and gold is None}
    labels = {"model": job.unit.model, "context": job.unit.context}
    tables = measurement_rows(summary, job.names, **labels)
    skipped = [{**labels, "measure": name, "reason": why} for name, why in {**summary.skipped, **without_gold}.items()]
    return pl.concat([pl.DataFrame(schema=MEASUREMENTS), *tables, *([pl.DataFrame(skipped)] if skipped else [])], how="diagonal")


def _surroundings(device: str) -> dict[str, Any]:
    """Where a unit ran."""
    versions = {"floatlens": __version__, "torch": torch.__version__, "transformers": transformers.__version__, "polars": pl.__version__}
    kind = torch.cuda.get_device_name(device.split(",")[0]) if device.startswith("cuda") else platform.processor() or platform.machine()
    return {"host": socket.gethostname(), "process": os.getpid(), "device": device, "hardware": kind, "versions": versions}
