"""Run jobs until each is settled: its result is stored, or it failed. Studies, `fl.evaluate` and the demo run theirs through here.

Decided here: a job whose worker was lost is handed out again, up to three times in all. Ctrl-C lets the running jobs finish; pressed twice,
it drops them. Where a job may not fail (`run_jobs`), the first failure ends the run, and what was finished before stays stored.

Nothing in here imports torch: the process that judges claims runs its jobs so, too.
"""

import contextlib
import shutil
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from floatlens.folders import damage, say
from floatlens.study.engine import DROP, FINISH, Engine, Job, Outcome, Queue
from floatlens.study.sealed import Damaged, unseal
from floatlens.study.store import FolderStore, Store
from floatlens.study.units import unit_file

LOST_AT_MOST = 3
Tell = Callable[[str], object]
Advance = Callable[..., object]
"""A progress bar: called with how many questions are done and, as `title`, what is being done."""


def settled(queue: Queue, store: Store | None, engine: Engine, told: Callable[[], int], advance: Advance) -> Iterator[Outcome]:
    """Each job when it is settled; its result is stored by then. What is put into the queue meanwhile is run, too."""
    lost, reported = Counter[str](), Counter[str]()

    def report(job: Job, count: int, what: str) -> None:
        count = min(count, job.questions - reported[job.id])  # a job that was lost begins anew
        reported[job.id] += count
        advance(count, title=what)

    with contextlib.closing(engine.outcomes(queue, told, report)) as outcomes:
        for outcome in outcomes:
            job = outcome.job
            if outcome.failure is not None and outcome.failure.lost and lost[job.id] < LOST_AT_MOST - 1:
                lost[job.id] += 1
                queue.put(job)
                continue
            if outcome.failure is None and job.unit is not None and store is not None and not outcome.stored:
                assert outcome.content is not None
                store.create(unit_file(job.id), outcome.content)  # where another runner was quicker, its result stays
            yield outcome
            if outcome.failure is None:
                report(job, job.questions, job.name)


def run_jobs(
    jobs: Iterable[Job],
    engine: Engine,
    done: Callable[[Any, bytes], Iterable[Job]],
    *,
    store: Store | None = None,
    advance: Advance,
    told: Callable[[], int] = lambda: 0,
) -> None:
    """Run jobs, none of which may fail. A unit that is stored already is not run again, and one that occurs twice runs once.

    Parameters
    ----------
    jobs, engine
        What to run, and what runs it.
    done
        Called with each job and what it gave; gives the jobs that can be run now.
    store
        Where results are kept, and looked for; by default nowhere.
    advance
        A progress bar.
    told
        What the engine is told (`interruptions`). If it was told to stop, the run ends as by Ctrl-C.
    """
    queue, seen = Queue(), set[str]()

    def offer(job: Job) -> None:
        if job.id in seen:
            advance(job.questions, title=job.name)
            return
        seen.add(job.id)
        content = None if store is None or job.unit is None else stored_result(store, job)
        if content is None:
            queue.put(job)
            return
        advance(job.questions, title=job.name)
        for following in done(job, content):
            offer(following)

    for job in jobs:
        offer(job)
    for outcome in settled(queue, store, engine, told, advance) if len(queue) else ():
        if outcome.failure is not None:
            raise outcome.failure.exception(outcome.job.name)
        for following in done(outcome.job, outcome.content or b""):
            offer(following)
    if told():
        raise KeyboardInterrupt


def stored_result(store: Store, job: Job) -> bytes | None:
    """The file of a job's unit, if it is there and whole, and so is the folder it left; what is damaged is named and removed."""
    file = unit_file(job.id)
    content, folder = store.read(file), getattr(job, "folder", None)
    if content is not None:
        try:
            unseal(content)
        except Damaged as why:
            place = store.place / file if isinstance(store, FolderStore) else f"{store.address}/{file}"
            say(f"{place} is damaged ({why}): it is removed, and what it held is computed again.")
            content = None
            store.remove(file)
    if isinstance(folder, Path) and folder.is_dir() and (broken := damage(folder)):
        say(f"{folder} is damaged ({broken[0]}): it is removed, and what it held is computed again.")
        shutil.rmtree(folder)
    if content is not None and isinstance(folder, Path) and not folder.is_dir():
        store.remove(file)
        return None
    return content


@contextmanager
def interruptions(tell: Tell) -> Iterator[Callable[[], int]]:
    """What the engine is told: to finish what runs after the first Ctrl-C, and to drop it after the second."""
    presses = 0

    def press(_signal: int, _frame: object) -> None:
        nonlocal presses
        presses += 1
        if presses == FINISH:
            tell("Interrupted: the running units are finished first. Press Ctrl-C again to drop them.")

    if threading.current_thread() is not threading.main_thread():
        yield lambda: presses
        return
    before = signal.signal(signal.SIGINT, press)
    try:
        yield lambda: min(presses, DROP)
    finally:
        signal.signal(signal.SIGINT, before)
