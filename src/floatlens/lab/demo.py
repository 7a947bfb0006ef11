"""A study: gather the evidence in several processes, judge every claim, split every difference, draw, and write it all into a folder.

Decided here: this process judges and writes, and runs no model; a server imports torch once and forks the processes that do. (A fork
of this process would copy locks that its threads hold.) Every model is loaded before anything runs, so that a mistake is reported at
once. What a process has finished is kept beside the folder until this has its name, so that the same call resumes after an interruption.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from multiprocessing import get_all_start_methods, get_context, parent_process
from multiprocessing.connection import wait as wait_for
from pathlib import Path
from queue import Empty
from threading import Thread
from typing import Any

import polars as pl

from floatlens.claims.evidence import TABLES, Evidence
from floatlens.claims.findings import Findings, findings_of
from floatlens.folders import unfinished_folder
from floatlens.lab.units import Preparation, Sizes, Study, Tables, Unit, questions_of, short_name
from floatlens.report.claims import WRITTEN_BY, claims_csv, claims_json, claims_markdown, draw_absorption, draw_contexts
from floatlens.trace.trace import open_trace

MOST_PROCESSES = 3
LOOK = 0.5  # seconds between two looks at what the processes report

_reports: Any = None
"""In a process that runs models: the queue to which it reports."""

Advance = Callable[..., object]
"""Called with how much is done and, as `title`, what is being done."""
Bar = Callable[[int, str], AbstractContextManager[Advance]]
"""A progress bar: from how much there is to do and a title, to a function that is called as it is done."""


def run_unit(unit: Unit) -> Tables:
    """Run a unit, in a process that runs models."""
    from floatlens.lab.experiments import run_experiment  # imports torch, which takes seconds and which this process does without

    return run_experiment(unit, _report)


def prepare_study(study: Study, timed: bool) -> Preparation:
    """Read the task, load the models and time a few questions, in a process that runs models."""
    from floatlens.lab.plan import prepare

    return prepare(study, timed=timed, report=_report)


def planned_lines(units: Sequence[Unit], preparation: Preparation, processes: int) -> list[str]:
    """The plan in words, in a process that runs models."""
    from floatlens.lab.plan import plan_lines

    return plan_lines(units, preparation, processes)


def slots_of_gold(study: Study) -> dict[str, int]:
    """At which slot the gold passage of each traced text stands, in a process that runs models."""
    from floatlens.lab.plan import slots_of

    return slots_of(study)


def _report(count: int, what: str) -> None:
    _reports.put((count, what))


def begin_process(reports: Any) -> None:
    """In a process that runs models: report to a queue, and end as soon as the process that started it has ended, even if it was killed."""
    global _reports
    _reports = reports
    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        wait_for([parent.sentinel])
        os._exit(1)

    Thread(target=watch, daemon=True).start()


def compare_absorption(folder: Path, roles: Sequence[str]) -> None:
    """Draw the figure that needs all traces."""
    draw_absorption({role: open_trace(folder / "traces" / f"{role}.zarr") for role in roles}, folder / "figures")


@dataclass(frozen=True, eq=False)
class Workers:
    """Processes that run models, and the queue to which they report."""

    pool: ProcessPoolExecutor
    reports: Any
    count: int

    def finish(self, futures: Sequence[Future[Any]], advance: Advance) -> Iterator[Future[Any]]:
        """Each of the futures as soon as it is done; meanwhile, what is reported goes to `advance`."""
        waiting = set(futures)
        while waiting:
            done, waiting = wait(waiting, timeout=LOOK, return_when=FIRST_COMPLETED)
            self.pass_on(advance)
            yield from done

    def pass_on(self, advance: Advance) -> None:
        """Hand on what was reported since the last look."""
        while True:
            try:
                count, what = self.reports.get_nowait()
            except Empty:
                return
            advance(count, title=what)


@contextmanager
def _workers(most: int | None) -> Iterator[Workers]:
    method = "forkserver" if "forkserver" in get_all_start_methods() else "spawn"
    context = get_context(method)
    if method == "forkserver":
        context.set_forkserver_preload(["floatlens.lab.experiments"])
    count = most or min(os.cpu_count() or 1, MOST_PROCESSES)
    reports = context.Queue()
    pool = ProcessPoolExecutor(count, mp_context=context, initializer=begin_process, initargs=(reports,))
    try:
        yield Workers(pool, reports, count)
    finally:
        pool.shutdown(cancel_futures=True)  # after a failure, the other units need not run


def _gather(study: Study, preparation: Preparation, units: Sequence[Unit], workers: Workers, folder: Path, advance: Advance) -> Evidence:
    """Run all units and join their tables."""
    slots = workers.pool.submit(slots_of_gold, study)
    running: dict[Future[Tables], Unit] = {workers.pool.submit(run_unit, unit): unit for unit in units}
    untraced = {unit for unit in units if unit.experiment == "trace"}
    absorption: Future[None] | None = None
    tables_of: dict[Unit, Tables] = {}
    for future in workers.finish(list(running), advance):
        unit = running[future]
        tables_of[unit] = future.result()
        untraced.discard(unit)
        if study.figures and not untraced and absorption is None:  # while other units are running
            absorption = workers.pool.submit(compare_absorption, folder, list(study.models))
    if absorption is not None:
        absorption.result()
    # in the order of the plan, whichever was ready first
    joined = {name: pl.concat([tables_of[unit][name] for unit in units if name in tables_of[unit]]) for name in TABLES}
    about = {
        "models": {role: short_name(model) for role, model in study.models.items()},
        "questions": study.sizes.questions,
        "traced": study.sizes.traced,
        "draws": study.draws,
        "seed": study.seed,
        "design": preparation.design.stored(),
        "slots": slots.result(),
    }
    if study.sizes.real:
        about["order"] = f"diffusion models write in the order {study.choice.order}"
    if study.choice.dtype is not None:
        about["dtype"] = study.choice.dtype
    return Evidence(**joined, about=about)


README = """# What a demo wrote

| file | what |
|---|---|
| `claims.md` | every claim with its verdict, numbers and rule; which differences follow the mask and which the objective; accuracies |
| `claims.csv`, `claims.json` | the same for programs |
| `figures/` | figures of each model's trace, masking against its controls, context curves; `left_out-*.txt` says why one is missing |
| `tables/measurements.parquet` | every measure of every traced text |
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
    study: Study, into: Path, bar: Bar, *, processes: int | None = None, tell: Callable[[str], object] = lambda _sentence: None
) -> Findings:
    """Run everything and write it into a folder, which gets its name when it is whole; if it is interrupted, the same call resumes.

    The folder of an earlier study is replaced if it holds nothing else. `tell` is called with sentences about what is going to happen.
    """
    with unfinished_folder(into, WRITTEN_BY, replacing=WRITTEN_BY, keeps=True) as unfinished, _workers(processes) as workers:
        if any(unfinished.kept.iterdir()):
            tell(f"Resuming from what was done when the last run into {into} stopped.")
        folder = unfinished.folder
        for name in ("traces", "tables", "figures"):
            (folder / name).mkdir()
        preparation, study = _prepared(study, workers, bar, tell)
        units = study.units(preparation.design, folder, unfinished.kept)
        if preparation.prices:
            for line in workers.pool.submit(planned_lines, units, preparation, workers.count).result():
                tell(line)
        with bar(sum(questions_of(unit, preparation.design) for unit in units), "Studying the models") as advance:
            evidence = _gather(study, preparation, units, workers, folder, advance)
            findings = findings_of(evidence)
            if study.figures:
                draw_contexts(evidence, folder / "figures")
        evidence.save(folder / "tables")
        (folder / "claims.md").write_text(claims_markdown(findings), encoding="utf-8")
        (folder / "claims.csv").write_text(claims_csv(findings), encoding="utf-8")
        (folder / "claims.json").write_text(claims_json(findings), encoding="utf-8")
        (folder / "README.md").write_text(README, encoding="utf-8")
    return findings


def _prepared(study: Study, workers: Workers, bar: Bar, tell: Callable[[str], object]) -> tuple[Preparation, Study]:
    """What is known before anything runs, and the study with as many questions as there are."""
    with bar(len(study.models), "Loading models") as advance:
        future = workers.pool.submit(prepare_study, study, study.sizes.real)
        for _ in workers.finish([future], advance):
            pass
    preparation: Preparation = future.result()
    for sentence in preparation.said:
        tell(sentence)
    if preparation.questions < study.sizes.questions:
        tell(f"There are {preparation.questions} questions to ask, not {study.sizes.questions}.")
        study = replace(study, sizes=Sizes(preparation.questions, study.sizes.real))
    return preparation, study
