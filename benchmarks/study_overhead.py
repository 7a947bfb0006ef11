"""What the runner of a study costs: its overhead per unit, units per second with one and two workers, and the time to the first unit.

The same units of twin-arm (one question each, without likelihood) run directly, one after the other in this process, and as a study with
one and with two worker processes, in turns. Overhead per unit is the processor time that the runner's own process spends on a unit (to
hand it out, and to receive, check and store it), which does not depend on what else the machine does. `--write` also writes
docs/benchmarks/study-overhead.md.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Generator
from pathlib import Path

from rich.console import Console

from floatlens.study.engine import Outcome, Queue, ReportOf, unheard
from floatlens.study.local_engine import LocalEngine
from floatlens.study.planning import make_plan
from floatlens.study.running import run_study
from floatlens.study.store import open_store
from floatlens.study.study_file import parse_study
from floatlens.study.worker import Worker
from page import write_table

STUDY = """
name = "overhead"
contexts = ["closed-book"]
brackets = false
likelihood = false
[[models]]
name = "twin-arm"
[[tasks]]
task = "world"
samples = {units}
[run]
shard = 1
device = "cpu"
"""
GOAL = 0.02  # seconds of a unit that takes one


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--units", type=int, default=200)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    text = STUDY.format(units=given.units)
    plan = make_plan(parse_study(text, "overhead.toml"), text, Path(), progress=False)
    worker = Worker("cpu")
    worker.run(plan.jobs[0])
    began = time.perf_counter()
    for job in plan.jobs:
        worker.run(job)
    alone = (time.perf_counter() - began) / given.units
    lines = [
        "| workers | overhead per unit | share of a unit of 1 s | units per second | seconds to the first unit |",
        "|---|---|---|---|---|",
    ]
    for count in (1, 2):
        with tempfile.TemporaryDirectory() as folder:
            first: list[float] = []
            engine = _Watched(LocalEngine(["cpu"], count), first)
            cpu, began = time.process_time(), time.perf_counter()
            run_study(plan, open_store(Path(folder) / "out", new=True), engine, progress=False)
            overhead = (time.process_time() - cpu) / given.units
            rate = (given.units - 1) / (engine.last - first[0])
            shares = f"{1000 * overhead:.2f} ms | {100 * overhead:.2f} % (goal < {100 * GOAL:.0f} %)"
            lines.append(f"| {count} | {shares} | {rate:.0f} | {first[0] - began:.1f} |")
    lines += ["", f"A unit run directly, without a study, took {1000 * alone:.1f} ms; {given.units} units of one question."]
    Console().print("\n".join(lines), highlight=False)
    if given.write:
        write_table("study-overhead.md", "study_overhead.py", lines)


class _Watched:
    """An engine that notes when the first and the last unit ended."""

    def __init__(self, engine: LocalEngine, first: list[float]) -> None:
        self.engine, self.first, self.last = engine, first, 0.0
        self.workers, self.title = engine.workers, engine.title

    def outcomes(self, queue: Queue, told: Callable[[], int], report: ReportOf = unheard) -> Generator[Outcome, None, None]:
        for outcome in self.engine.outcomes(queue, told, report):
            self.last = time.perf_counter()
            if not self.first:
                self.first.append(self.last)
            yield outcome


if __name__ == "__main__":
    main()
