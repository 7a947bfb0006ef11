"""Run a study: hand the units that are missing to an engine, store each as it comes, record what fails, and sum up.

Decided here: finished units are never run again, whoever ran them. A unit that fails is tried again as the file says; one that is refused
is not, because it would be refused again; one whose worker was lost is handed out again up to three times. The run goes on in all cases.
Ctrl-C lets the running units finish; pressed twice, it drops them. The tables are written when the run has ended.
"""

import json
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from floatlens.errors import Refusal
from floatlens.study.engine import Engine, Failure, Job, Queue
from floatlens.study.jobs import ModelJob
from floatlens.study.planning import Plan
from floatlens.study.records import Found, differences, look_through, provenance, write_index, write_plan, write_run
from floatlens.study.settling import Tell, interruptions, settled
from floatlens.study.store import Store
from floatlens.study.tables import write_tables
from floatlens.study.units import Unit, unit_file
from floatlens.terminal import counted, progress_bar

NAMED = 3  # units that a sentence names; the others are counted


@dataclass
class Report:
    """How a run ended: units of the plan, those finished before, those it ran, those that failed for good, those that another runner
    stored meanwhile (`elsewhere`), and whether it stopped early."""

    units: int
    before: int
    ran: int = 0
    failed: list[str] = field(default_factory=list)
    elsewhere: int = 0
    interrupted: bool = False
    seconds: float = 0.0

    @property
    def sentence(self) -> str:
        """For people."""
        done = self.before + self.ran + self.elsewhere
        left = self.units - done - len(self.failed)
        parts = [f"{counted(self.ran, 'unit')} ran in {self.seconds:.1f} s", f"{self.before} were finished before"]
        parts += [f"{self.elsewhere} were stored by another runner"] * bool(self.elsewhere)
        parts += [f"{len(self.failed)} failed"] * bool(self.failed) + [f"{left} are left"] * bool(left)
        return f"{', '.join(parts)}: {done} of {self.units} are finished."


def run_study(
    plan: Plan,
    store: Store,
    engine: Engine,
    *,
    command: Sequence[str] = (),
    retry: bool = False,
    tell: Tell = lambda _sentence: None,
    progress: bool = True,
) -> Report:
    """Run the units of a plan that are not finished, and write the tables.

    Parameters
    ----------
    plan, store, engine
        What to run, where results are kept, and what runs it.
    command
        For the record: the command line.
    retry
        Try units again that had failed for good.
    tell
        Called with sentences about what was found and what happens.
    progress
        Show progress bars.
    """
    with store.running() as about_another:
        if about_another:
            tell(about_another)
        found = look_through(store, plan.units, progress=progress)
        _mend(store, found, tell)
        for sentence in changes(found, plan.units):
            tell(sentence)
        if retry:
            _forget_failures(store, plan, found)
            found = look_through(store, plan.units, progress=progress)
        write_plan(store, plan)
        jobs = {job.unit.id: job for job in plan.jobs}
        gave_up = [unit_id for unit_id in jobs if found.gave_up(unit_id, plan.study.run.retries)]
        waiting = [job for unit_id, job in jobs.items() if unit_id not in found.finished and unit_id not in gave_up]
        report = Report(len(jobs), len([unit_id for unit_id in jobs if unit_id in found.finished]), failed=list(gave_up))
        if about_another:
            waiting.reverse()  # the other one begins at the beginning
        if gave_up:
            tell(f"{counted(len(gave_up), 'unit')} failed before. To try again: floatlens study retry {store.address}")
        if waiting:
            write_run(store, plan, {**provenance(plan, command, engine.title), "units": len(waiting)})
            began = time.monotonic()
            attempts = Counter({unit_id: len(tries) for unit_id, tries in found.failures.items()})
            with interruptions(tell) as told:
                _run(waiting, plan, store, engine, report, attempts, told, progress)
                done = report.before + report.ran + report.elsewhere + len(report.failed)
                report.interrupted = told() != 0 and done < report.units
            report.seconds = time.monotonic() - began
        found = look_through(store, plan.units, progress=progress)
        write_index(store, found)
        if not report.interrupted:
            for sentence in write_tables(store, plan.units, found):
                tell(sentence)
        return report


def changes(found: Found, units: Sequence[Unit]) -> Iterator[str]:
    """Sentences about what an earlier run left: damaged, lost and stale units."""
    if found.lost:
        yield f"{counted(len(found.lost), 'finished unit')} of the index {'is' if len(found.lost) == 1 else 'are'} gone and will run again."
    for why, stale in differences(found.stale, units).items():
        names = "; ".join(unit.name for unit in stale[:NAMED]) + (f" and {len(stale) - NAMED} more" if len(stale) > NAMED else "")
        yield (
            f"{counted(len(stale), 'finished unit')} {'is' if len(stale) == 1 else 'are'} stale ({why}): {names}. "
            "The old results are kept and are in no table."
        )


def _mend(store: Store, found: Found, tell: Tell) -> None:
    """Remove damaged files, so that their units run again."""
    for unit_id, why in found.damaged.items():
        tell(f"{store.address}/{unit_file(unit_id)} is damaged: {why}. It is removed, and the unit runs again.")
        store.remove(unit_file(unit_id))


def _forget_failures(store: Store, plan: Plan, found: Found) -> None:
    for unit in plan.units:
        for number in range(len(found.failures.get(unit.id, ()))):
            store.remove(f"failures/{unit.id}.{number + 1}.json")


def _run(
    waiting: Sequence[ModelJob],
    plan: Plan,
    store: Store,
    engine: Engine,
    report: Report,
    attempts: Counter[str],
    told: Callable[[], int],
    progress: bool,
) -> None:
    """Run jobs until none is left, or until interrupted."""

    def stored(job: Job) -> bool:
        return not store.owned and store.read(unit_file(job.id)) is not None

    queue = Queue(waiting, stored)
    total = sum(job.questions for job in waiting)
    with progress_bar(total, f"Running {counted(len(waiting), 'unit')}", show=progress) as advance:
        for outcome in settled(queue, store, engine, told, advance):
            job = outcome.job
            if outcome.failure is None:
                report.ran += 1
                continue
            attempts[job.id] += 1
            _record(store, job.unit, attempts[job.id], outcome.failure)
            if attempts[job.id] > plan.study.run.retries or outcome.failure.refused:
                report.failed.append(job.id)
                advance(job.questions, title=f"failed: {job.name}")
            else:
                queue.put(job)
    report.elsewhere = queue.stored_elsewhere


def _record(store: Store, unit: Unit, attempt: int, failure: Failure) -> None:
    content = {
        "unit": unit.as_dict(),
        "name": unit.name,
        "attempt": attempt,
        "when": datetime.now(UTC).isoformat(),
        "host": socket.gethostname(),
        "error": failure.error,
        "refused": failure.refused,
        "traceback": failure.traceback,
    }
    store.replace(f"failures/{unit.id}.{attempt}.json", (json.dumps(content, indent=1) + "\n").encode())


def refuse_plan(plan: Plan, *, weights: bool = True) -> None:
    """Refuse a plan without a unit and, if models are to run, one of whose models has no weights here."""
    if not plan.jobs:
        raise Refusal("The study has no unit to run: no task is asked of any model, and nothing is traced.")
    if weights and (lacking := [model.choice.name for model in plan.models if not model.weights_here]):
        raise Refusal(f"{lacking[0]} has no weights here, only what describes it. Download it whole.")
