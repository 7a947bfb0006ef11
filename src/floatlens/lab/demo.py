"""The demo: gather the evidence in worker processes, judge every claim, split every difference, draw, and write it all into a folder.

Decided here: this process judges and writes, and runs no model; the workers of the study engine do (`floatlens.study.local_engine`). Every
model is loaded before anything runs, so that a mistake is reported at once. Every condition and every trace is a unit, kept beside the
folder until this has its name, so that the same call resumes after an interruption. Figures are drawn while other units run.
"""

import os
import pickle
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import polars as pl

from floatlens.claims.evidence import Evidence
from floatlens.claims.findings import Findings, findings_of
from floatlens.folders import unfinished_folder
from floatlens.lab.units import SILENCED, Preparation, Sizes, Study, questions_of, short_name
from floatlens.report.claims import WRITTEN_BY, claims_csv, claims_json, claims_markdown, draw_absorption, draw_contexts
from floatlens.study.engine import Engine, Job, Report
from floatlens.study.errand import Errand, Packed
from floatlens.study.local_engine import LocalEngine
from floatlens.study.sealed import unseal
from floatlens.study.settling import Advance, interruptions, run_jobs
from floatlens.study.store import FolderStore, Store
from floatlens.trace.trace import open_trace

MOST_PROCESSES = 3

Bar = Callable[[int, str], AbstractContextManager[Advance]]
"""A progress bar: from how much there is to do and a title, to a function that is called as it is done."""


def prepare_study(study: Study, timed: bool, processes: int, kept: Path, report: Report) -> Preparation:
    """What is known before anything runs. An errand of a worker: it imports torch, which this process does without."""
    from floatlens.lab.plan import prepare

    return prepare(study, timed, processes, kept, report)


def plan_silencing(study: Study, role: str, heads: Sequence[tuple[int, int]], report: Report) -> tuple[Packed, ...]:
    """The jobs that silence the best heads of a model. An errand of a worker."""
    from floatlens.lab.experiments import silencing_jobs

    return silencing_jobs(study, role, heads, report)


def draw_masked(*arguments: Any) -> None:
    """Draw the figure of a masking experiment. An errand of a worker."""
    from floatlens.lab.experiments import draw_masked

    draw_masked(*arguments)


def draw_traced(*arguments: Any) -> None:
    """Draw the figures of a trace. An errand of a worker."""
    from floatlens.lab.experiments import draw_traced

    draw_traced(*arguments)


def compare_absorption(folder: Path, roles: Sequence[str], _report: Report) -> None:
    """Draw the figure that needs all traces. An errand of a worker."""
    draw_absorption({role: open_trace(folder / "traces" / f"{role}.zarr") for role in roles}, folder / "figures")


@dataclass
class _Gathering:
    """What is known while jobs run: those of each role and experiment, and the files of the units that are finished, by id."""

    study: Study
    preparation: Preparation
    folder: Path
    jobs: dict[tuple[str, str], tuple[Packed, ...]] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    complete: set[tuple[str, str]] = field(default_factory=set)

    def done(self, job: Job, content: bytes) -> Iterator[Job]:
        """Note what a job gave; the jobs that can be run now."""
        if job.unit is not None:
            self.files[job.id] = content
        elif job.name.startswith(SILENCED):
            self.jobs[job.name.removeprefix(f"{SILENCED} of "), SILENCED] = silencing = pickle.loads(content)
            yield from silencing
        for key, own in list(self.jobs.items()):
            if key not in self.complete and all(each.id in self.files for each in own):
                self.complete.add(key)
                yield from self._after(*key)

    def _after(self, role: str, experiment: str) -> Iterator[Job]:
        """What follows an experiment with a model: jobs that need its numbers, and figures of them."""
        study, figures, holds = self.study, self.folder / "figures", short_name(self.study.models[role])
        if experiment == "trace":
            [job] = self.jobs[role, experiment]
            stored = self.folder / "traces" / f"{role}.zarr"
            assert job.folder is not None
            shutil.copytree(job.folder / "trace.zarr", stored)
            if heads := unseal(self.files[job.id]).rows("silenced").rows():
                yield Errand(f"{SILENCED} of {role}", plan_silencing, (study, role, heads), holds)
            if study.figures:
                yield Errand(f"figures of {role}", draw_traced, (role, stored, study.choice, figures), holds)
            if study.figures and all((other, experiment) in self.complete for other in study.models):
                yield Errand("figure of absorption", compare_absorption, (self.folder, list(study.models)))
        design = self.preparation.design
        for name in [name for name, masking in design.masking.items() if study.figures and masking.experiment == experiment]:
            about = {"models": {role: holds}, "design": design.stored()}
            yield Errand(f"{name} of {role}", draw_masked, (role, name, about, self.answers(role, experiment), figures), holds)

    def answers(self, role: str, experiment: str) -> pl.DataFrame:
        """The answers of one experiment with one model."""
        rows = pl.concat([unseal(self.files[job.id]).rows("results") for job in self.jobs[role, experiment]])
        if experiment == SILENCED:
            # which heads were silenced differs between models, and claims look rows up by the intervention
            rows = rows.with_columns(
                pl.when(pl.col("intervention") == "").then(pl.lit("")).otherwise(pl.lit("mask-heads")).alias("intervention")
            )
        return rows.with_columns(role=pl.lit(role), experiment=pl.lit(experiment))

    def evidence(self) -> Evidence:
        """Everything that was gathered, in the order of the plan, whichever was ready first."""
        study, tables = self.study, dict[str, list[pl.DataFrame]]()
        for role, experiment in self.preparation.jobs:
            if experiment == "trace":
                traced = unseal(self.files[self.jobs[role, experiment][0].id])
                for name in ("measurements", "heads"):
                    tables.setdefault(name, []).append(traced.rows(name))
                if (role, SILENCED) in self.jobs:
                    tables.setdefault("answers", []).append(self.answers(role, SILENCED))
            else:
                tables.setdefault("answers", []).append(self.answers(role, experiment))
        joined = {name: pl.concat(own) for name, own in tables.items()}
        about: dict[str, Any] = {
            "models": {role: short_name(model) for role, model in study.models.items()},
            "questions": study.sizes.questions,
            "traced": study.sizes.traced,
            "draws": study.draws,
            "seed": study.seed,
            "design": self.preparation.design.stored(),
            "slots": dict(self.preparation.slots),
        }
        if study.sizes.real:
            about["order"] = f"diffusion models write in the order {study.choice.order}"
        if study.choice.dtype is not None:
            about["dtype"] = study.choice.dtype
        return Evidence(**joined, about=about)


def gather(
    study: Study,
    preparation: Preparation,
    folder: Path,
    engine: Engine,
    store: Store,
    advance: Advance,
    told: Callable[[], int] = lambda: 0,
) -> Evidence:
    """Run all units, with what an engine runs; traces and figures go into a folder, and the units into a store."""
    for name in ("traces", "figures"):
        (folder / name).mkdir()
    gathering = _Gathering(study, preparation, folder, dict(preparation.jobs))
    jobs = [job for own in preparation.jobs.values() for job in own]
    run_jobs(jobs, engine, gathering.done, store=store, advance=advance, told=told)
    return gathering.evidence()


README = """# What a demo wrote

| file | what |
|---|---|
| `index.html` | the page: what came out, and the first two texts of every model step by step; open it in a browser |
| `claims.md` | every claim with its verdict, numbers and rule; which differences follow the mask and which the objective; accuracies |
| `claims.csv`, `claims.json` | the same for programs |
| `figures/` | figures of each model's trace, masking against its controls, context curves; `left_out-*.txt` says why one is missing |
| `tables/measurements.parquet` | every measure that a claim reads, of every traced text |
| `tables/heads.parquet` | the retrieval score of every head in every traced text |
| `tables/answers.parquet` | every question in every condition: the exact prompt, what was written, how it was scored |
| `tables/about.json` | which models, how many questions, which seed |
| `traces/*.zarr` | the traces, to look at more closely |
| `manifest.json` | every file that was written, with its size and SHA-256; `floatlens verify` checks them |

```sh
floatlens show traces/mdm.zarr                                  # one text, step by step
floatlens measure traces/mdm.zarr traces/arm.zarr --compare     # every measure of both
floatlens figures traces/*.zarr -o more-figures                 # every figure
```
"""


def run_study(
    study: Study,
    into: Path,
    bar: Bar,
    *,
    processes: int | None = None,
    tell: Callable[[str], object] = lambda _sentence: None,
    finish: Callable[[Path], object] = lambda _folder: None,
) -> Findings:
    """Run everything and write it into a folder, which gets its name when it is whole; if it is interrupted, the same call resumes.

    The folder of an earlier study is replaced if it holds nothing else. `tell` is called with sentences about what is going to happen, and
    `finish` with the folder before it gets its name, to add to it.
    """
    count = processes or min(os.cpu_count() or 1, MOST_PROCESSES)
    engine = LocalEngine(["auto"], count, preload="floatlens.lab.experiments")
    with unfinished_folder(into, WRITTEN_BY, replacing=WRITTEN_BY, keeps=True) as unfinished, interruptions(tell) as told:
        if any(unfinished.kept.iterdir()):
            tell(f"Resuming from what was done when the last run into {into} stopped.")
        folder, kept = unfinished.folder, unfinished.kept
        with bar(len(study.models), "Loading models") as advance:
            preparation = prepared(study, engine, count, kept, advance, told)
        for sentence in (*preparation.said, *preparation.lines):
            tell(sentence)
        study = replace(study, sizes=Sizes(preparation.questions, study.sizes.real))
        total = sum(questions_of(experiment, preparation.design) for experiment in study.experiments(preparation.design))
        with bar(total, "Studying the models") as advance:
            evidence = gather(study, preparation, folder, engine, FolderStore(kept), advance, told)
            findings = findings_of(evidence)
            if study.figures:
                draw_contexts(evidence, folder / "figures")
        (folder / "tables").mkdir()
        evidence.save(folder / "tables")
        (folder / "claims.md").write_text(claims_markdown(findings), encoding="utf-8")
        (folder / "claims.csv").write_text(claims_csv(findings), encoding="utf-8")
        (folder / "claims.json").write_text(claims_json(findings), encoding="utf-8")
        (folder / "README.md").write_text(README, encoding="utf-8")
        finish(folder)
    return findings


def prepared(
    study: Study, engine: Engine, processes: int, kept: Path, advance: Advance, told: Callable[[], int] = lambda: 0
) -> Preparation:
    """What is known before anything runs; the models of a real task are timed."""
    given: list[Preparation] = []

    def done(_job: Job, content: bytes) -> Iterator[Job]:
        given.append(pickle.loads(content))
        yield from ()

    errand = Errand("preparing", prepare_study, (study, study.sizes.real, processes, kept), questions=len(study.models))
    run_jobs([errand], engine, done, advance=advance, told=told)
    return given[0]
