"""Gather the evidence: units of work go to several processes, and what comes back is put together.

Decided here: this process judges and writes, and never imports torch; a server imports it once and forks the processes that run models. (A fork of this process would copy locks that its threads hold.)
Every model is loaded before anything runs, so that a mistake is said at once.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from multiprocessing import get_all_start_methods, get_context, parent_process
from multiprocessing.connection import wait as wait_for
from pathlib import Path
from threading import Thread

import polars as pl

from floatlens.claims.evidence import TABLES, TWINS, Evidence
from floatlens.claims.pictures import draw_absorption
from floatlens.claims.sizes import Sizes
from floatlens.claims.units import Tables, Unit, planned_units, short_name
from floatlens.trace.trace import open_trace

MOST_PROCESSES = 3


def gather(
    models: Mapping[str, str], folder: Path, sizes: Sizes, seed: int, advance: Callable[[int], None], *, figures: bool = True
) -> Evidence:
    """Run everything, and put the tables together. `advance` hears of each unit that is done."""
    units = planned_units(models, folder, sizes, seed, figures=figures)
    with _processes() as pool:
        pool.submit(load_models, tuple(models.values())).result()
        found = {}
        for unit, tables in _run_all(pool, units, folder):
            found[unit] = tables
            advance(1)
    # in the order of the plan, whatever was ready first
    joined = {name: pl.concat([found[unit][name] for unit in units if name in found[unit]]) for name in TABLES}
    about = {
        "models": {twin: short_name(model) for twin, model in models.items()},
        "questions": sizes.questions,
        "traced": sizes.traced,
        "seed": seed,
    }
    return Evidence(**joined, about=about)


def run_unit(unit: Unit) -> Tables:
    """One unit of work, in a process that runs models."""
    from floatlens.claims.experiments import run_experiment  # torch takes seconds to import, and this process does without

    return run_experiment(unit)


def load_models(models: Sequence[str]) -> None:
    """Load the models, in a process that runs them."""
    from floatlens.claims.experiments import load_all

    load_all(models)


def end_with_the_demo() -> None:
    """In a process that runs models: end as soon as the one that started it has, also if that was killed; nobody would ever tell it to."""
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
        context.set_forkserver_preload(["floatlens.claims.experiments"])
    pool = ProcessPoolExecutor(min(os.cpu_count() or 1, MOST_PROCESSES), mp_context=context, initializer=end_with_the_demo)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)  # a unit that failed leaves the others nothing to do


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
        if units[0].figures and not untraced and absorption is None:  # while the others go on
            absorption = pool.submit(compare_absorption, folder)
    if absorption is not None:
        absorption.result()
