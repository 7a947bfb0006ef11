"""Run units in worker processes of this machine, one per device or, on the CPU, as many as there are cores for.

Decided here: a server imports torch once and forks the workers. Each holds one model and gets one job at a time over a pipe of its own,
so that a worker that is killed takes nothing with it but its job; another one takes its place. A worker ends when the process that started
it has ended, even if that was killed, and does not listen to Ctrl-C, which is the runner's. Results go back over the pipe and are written
by the runner alone, which owns the folder.
"""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import get_all_start_methods, get_context, parent_process
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_for
from threading import Thread
from typing import Any

import psutil

from floatlens.errors import is_failure
from floatlens.study.engine import DROP, GO_ON, Failure, Job, Outcome, Queue, ReportOf, failure_of, unheard

LOOK = 0.5  # seconds between two looks at what the runner says
GRACE = 10  # seconds that a worker without a job has to end by itself
TOLD_EVERY = 0.2  # seconds between two reports of a worker
MEMORY_PER_WEIGHTS = 1.5
"""How much memory a worker takes, in sizes of its model's weights: those, and what it computes with."""
OVERHEAD = 400_000_000  # bytes of a worker besides: Python, torch, transformers


def default_workers(devices: Sequence[str], threads: int, weight_bytes: int) -> int:
    """How many workers run at once where nothing else is said: one per GPU; on the CPU, as cores and memory allow.

    Examples
    --------
    >>> default_workers(["cuda:0", "cuda:1"], 1, 16 * 10**9)
    2
    >>> default_workers(["cpu"], 10**6, 1)
    1
    """
    if list(devices) != ["cpu"]:
        return len(devices)
    room = psutil.virtual_memory().available // int(MEMORY_PER_WEIGHTS * weight_bytes + OVERHEAD)
    return max(1, min(_cores() // threads, room))


def threads_of_workers(jobs: int, weight_bytes: int) -> int:
    """With how many threads each worker computes on the CPU, so that all cores have work.

    It follows from the machine, the jobs and the model, not from what is free at the moment: the last bits of a result depend on it.

    Examples
    --------
    >>> threads_of_workers(10**6, 1)
    1
    """
    cores = _cores()
    room = psutil.virtual_memory().total // int(MEMORY_PER_WEIGHTS * weight_bytes + OVERHEAD)
    return max(1, cores // max(1, min(cores, jobs, room)))


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(eq=False)
class _Running:
    """A worker process: the pipe to it, its device, the model it holds and the job it has."""

    process: Any
    pipe: Connection
    device: str
    model: str | None = None
    job: Job | None = None


class LocalEngine:
    """Worker processes of this machine; devices are dealt out to them in turn."""

    def __init__(self, devices: Sequence[str], workers: int, preload: str = "floatlens.study.worker") -> None:
        """`preload` is the module that the server imports once, before it forks workers."""
        self.devices, self.workers = list(devices), workers
        self.title = f"{workers} worker{'s' * (workers != 1)} on {', '.join(self.devices)}"
        self._context: Any = get_context("forkserver" if "forkserver" in get_all_start_methods() else "spawn")
        if "forkserver" in get_all_start_methods():
            self._context.set_forkserver_preload([preload])
        self._running: list[_Running] = []

    @property
    def processes(self) -> list[int]:
        """The process numbers of the workers."""
        return [worker.process.pid for worker in self._running]

    def outcomes(self, queue: Queue, told: Callable[[], int], report: ReportOf = unheard) -> Generator[Outcome, None, None]:
        """Each job as it ends."""
        try:
            self._running = [self._started(self.devices[number % len(self.devices)]) for number in range(min(self.workers, len(queue)))]
            while True:
                if told() == DROP:
                    return
                if told() == GO_ON:
                    self._hand_out(queue)
                busy = [worker for worker in self._running if worker.job is not None]
                if not busy and (told() != GO_ON or not len(queue)):
                    return
                yield from self._ended(busy, report)
        finally:
            self._end_all()

    def _hand_out(self, queue: Queue) -> None:
        for number, worker in enumerate(self._running):
            if worker.job is not None:
                continue
            job = queue.take(worker.model)
            if job is None:
                return
            if not worker.process.is_alive():  # killed while it had nothing to do
                worker = self._running[number] = self._replaced(worker)
            worker.job, worker.model = job, job.holds
            with contextlib.suppress(OSError):  # it has just been killed: noticed when we wait for it
                worker.pipe.send(job)

    def _ended(self, busy: Sequence[_Running], report: ReportOf) -> Iterator[Outcome]:
        """Wait a little; the jobs that ended meanwhile. What the others report is passed on."""
        ready = set(wait_for([worker.pipe for worker in busy], timeout=LOOK))
        for worker in busy:
            if worker.pipe not in ready or worker.job is None:
                continue
            job = worker.job
            try:
                count, what, *ended = worker.pipe.recv()
                if not ended:
                    report(job, count, what)
                    continue
                content, failure = ended
            except (EOFError, OSError):  # the pipe ends with its process
                worker.process.join()
                why = f"The worker process ended with exit code {worker.process.exitcode} while it ran this unit"
                hint = " (killed, perhaps for lack of memory)" if worker.process.exitcode == -signal.SIGKILL else ""
                self._running[self._running.index(worker)] = self._replaced(worker)
                content, failure = None, Failure(f"{why}{hint}.", lost=True)
            worker.job = None
            yield Outcome(job, content, failure=failure)

    def _started(self, device: str) -> _Running:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=serve, args=(theirs, device), daemon=True)
        process.start()
        theirs.close()
        return _Running(process, ours, device)

    def _replaced(self, worker: _Running) -> _Running:
        worker.pipe.close()
        return self._started(worker.device)

    def _end_all(self) -> None:
        for worker in self._running:
            worker.pipe.close()  # a worker that waits for a job ends at this
            if worker.job is not None:
                worker.process.kill()
        for worker in self._running:
            worker.process.join(GRACE)
            worker.process.kill()
            worker.process.join()
        self._running = []


def serve(pipe: Connection, device: str) -> None:
    """In a worker process: run the jobs that arrive, until the pipe or the process at its other end is gone.

    The device "auto" is the one on which `floatlens.load` puts models.
    """
    from floatlens.study.worker import Worker

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        wait_for([parent.sentinel])
        os._exit(1)

    Thread(target=watch, daemon=True).start()
    worker = Worker(None if device == "auto" else device)
    while True:
        try:
            job: Job = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            answer = job.run(worker, _Telling(pipe)), None
        except BaseException as error:
            if not is_failure(error):
                raise
            answer = None, failure_of(error)
        try:
            pipe.send((0, "", *answer))
        except OSError:
            return


class _Telling:
    """Tells the runner over a pipe how far a job is, a few times per second at most."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe, self._told, self._count = pipe, time.monotonic(), 0

    def __call__(self, count: int, what: str) -> None:
        self._count += count
        if time.monotonic() - self._told > TOLD_EVERY:
            with contextlib.suppress(OSError):  # the runner has ended, and so do we
                self._pipe.send((self._count, what))
            self._count, self._told = 0, time.monotonic()
