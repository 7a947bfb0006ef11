"""The demo: gather the evidence in several processes, judge every claim, split every difference, draw, and write it all into a folder.

Decided here: this process judges and writes, and runs no model; a server imports torch once and forks the processes that do. (A fork
of this process would copy locks that its threads hold.) Every model is loaded before anything runs, so that a mistake is reported at
once.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager
from multiprocessing import get_all_start_methods, get_context, parent_process
from multiprocessing.connection import wait as wait_for
from pathlib import Path
from threading import Thread

import polars as pl

from floatlens.claims.evidence import TABLES, TWINS, Evidence
from floatlens.claims.findings import Findings, findings_of
from floatlens.folders import unfinished_folder
from floatlens.lab.units import Sizes, Tables, Unit, planned_units, short_name
from floatlens.report.claims import WRITTEN_BY, claims_csv, claims_json, claims_markdown, draw_absorption, draw_contexts
from floatlens.trace.trace import open_trace

MOST_PROCESSES = 3


def gather(
    models: Mapping[str, str], folder: Path, sizes: Sizes, seed: int, advance: Callable[[int], None], *, figures: bool = True
) -> Evidence:
    """Run all units and join their tables. `advance` is called after each unit."""
    units = planned_units(models, folder, sizes, seed, figures=figures)
    with _processes() as pool:
        pool.submit(load_models, tuple(models.values())).result()
        tables_of = {}
        for unit, tables in _run_all(pool, units, folder):
            tables_of[unit] = tables
            advance(1)
    # in the order of the plan, whichever was ready first
    joined = {name: pl.concat([tables_of[unit][name] for unit in units if name in tables_of[unit]]) for name in TABLES}
    about = {
        "models": {twin: short_name(model) for twin, model in models.items()},
        "questions": sizes.questions,
        "traced": sizes.traced,
        "seed": seed,
    }
    return Evidence(**joined, about=about)


def run_unit(unit: Unit) -> Tables:
    """Run a unit, in a process that runs models."""
    from floatlens.lab.experiments import run_experiment  # imports torch, which takes seconds and which this process does without

    return run_experiment(unit)


def load_models(models: Sequence[str]) -> None:
    """Load the models, in a process that runs them."""
    from floatlens.lab.experiments import load_all

    load_all(models)


def end_with_the_demo() -> None:
    """In a process that runs models: end as soon as the process that started it has ended, even if that one was killed."""
    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        wait_for([parent.sentinel])
        os._exit(1)

    Thread(target=watch, daemon=True).start()


def compare_absorption(folder: Path) -> None:
    """Draw the figure that needs all traces."""
    draw_absorption({twin: open_trace(folder / "traces" / f"{twin}.zarr") for twin in TWINS}, folder / "figures")


@contextmanager
def _processes() -> Iterator[ProcessPoolExecutor]:
    method = "forkserver" if "forkserver" in get_all_start_methods() else "spawn"
    context = get_context(method)
    if method == "forkserver":
        context.set_forkserver_preload(["floatlens.lab.experiments"])
    pool = ProcessPoolExecutor(min(os.cpu_count() or 1, MOST_PROCESSES), mp_context=context, initializer=end_with_the_demo)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)  # after a failure, the other units need not run


def _run_all(pool: ProcessPoolExecutor, units: Sequence[Unit], folder: Path) -> Iterator[tuple[Unit, Tables]]:
    running: dict[Future[Tables], Unit] = {pool.submit(run_unit, unit): unit for unit in units}
    untraced = {unit for unit in units if unit.experiment == "trace"}
    waiting: set[Future[Tables]] = set(running)
    absorption: Future[None] | None = None
    while waiting:
        done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
        for future in done:
            yield running[future], future.result()
            untraced.discard(running[future])
        if units[0].figures and not untraced and absorption is None:  # while other units are running
            absorption = pool.submit(compare_absorption, folder)
    if absorption is not None:
        absorption.result()


README = """# What a demo wrote

| file | what |
|---|---|
| `claims.md` | every claim with its verdict, numbers and rule; which differences follow the mask and which the objective; accuracies |
| `claims.csv`, `claims.json` | the same for programs |
| `figures/` | figures of each twin's trace, masking against its controls, context curves; `left_out-*.txt` says why one is missing |
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

Bar = Callable[[int, str], AbstractContextManager[Callable[[int], None]]]
"""A progress bar: from the number of units and a title to a function that is called with the number of units done."""


def run_study(models: Mapping[str, str], into: Path, sizes: Sizes, seed: int, bar: Bar, *, figures: bool = True) -> Findings:
    """Run everything and write it into a folder; nothing is left there if it fails.

    The folder of an earlier demo is replaced if it holds nothing else.
    """
    with unfinished_folder(into, WRITTEN_BY, replacing=WRITTEN_BY) as unfinished:
        folder = unfinished.folder
        for name in ("traces", "tables", "figures"):
            (folder / name).mkdir()
        with bar(len(planned_units(models, folder, sizes, seed)) + 1, "Studying the twins") as advance:
            evidence = gather(models, folder, sizes, seed, advance, figures=figures)
            findings = findings_of(evidence)
            if figures:
                draw_contexts(evidence, folder / "figures")
            advance(1)
        evidence.save(folder / "tables")
        (folder / "claims.md").write_text(claims_markdown(findings), encoding="utf-8")
        (folder / "claims.csv").write_text(claims_csv(findings), encoding="utf-8")
        (folder / "claims.json").write_text(claims_json(findings), encoding="utf-8")
        (folder / "README.md").write_text(README, encoding="utf-8")
    return findings
