"""Run units in worker processes of this machine, one per device or, on the CPU, as many as there are cores for.

Decided here: a server imports torch once and forks the workers. Each holds one model and gets one job at a time over a pipe of its own,
so that a worker that is killed takes nothing with it but its job; another one takes its place. A worker ends when the process that started
it has ended, even if that was killed, and does not listen to Ctrl-C, which is the runner's. Results go back over the pipe and are written
by the runner alone, which owns the folder.
"""

import contextlib
import os
import signal
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import get_all_start_methods, get_context, parent_process
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_for
from threading import Thread
from typing import Any

import psutil

from floatlens.errors import is_failure
from floatlens.study.engine import DROP, GO_ON, Failure, Outcome, Queue, failure_of
from floatlens.study.units import Job

LOOK = 0.5  # seconds between two looks at what the runner says
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
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    room = psutil.virtual_memory().available // int(MEMORY_PER_WEIGHTS * weight_bytes + OVERHEAD)
    return max(1, min(cores // threads, room))


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

    def __init__(self, devices: Sequence[str], workers: int) -> None:
        self.devices, self.workers = list(devices), workers
        self.title = f"{workers} worker{'s' * (workers != 1)} on {', '.join(self.devices)}"
        self._context: Any = get_context("forkserver" if "forkserver" in get_all_start_methods() else "spawn")
        if "forkserver" in get_all_start_methods():
            self._context.set_forkserver_preload(["floatlens.study.worker"])
        self._running: list[_Running] = []

    @property
    def processes(self) -> list[int]:
        """The process numbers of the workers."""
        return [worker.process.pid for worker in self._running]

    def outcomes(self, queue: Queue, told: Callable[[], int]) -> Generator[Outcome, None, None]:
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
                yield from self._ended(busy)
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
            worker.job, worker.model = job, job.model.label
            with contextlib.suppress(OSError):  # it has just been killed: noticed when we wait for it
                worker.pipe.send(job)

    def _ended(self, busy: Sequence[_Running]) -> Iterator[Outcome]:
        """Wait a little; the jobs that ended meanwhile."""
        ready = set(wait_for([worker.pipe for worker in busy], timeout=LOOK))
        for worker in busy:
            if worker.pipe not in ready or worker.job is None:
                continue
            job, worker.job = worker.job, None
            try:
                content, failure = worker.pipe.recv()
            except (EOFError, OSError):  # the pipe ends with its process
                worker.process.join()
                why = f"The worker process ended with exit code {worker.process.exitcode} while it ran this unit"
                hint = " (killed, perhaps for lack of memory)" if worker.process.exitcode == -signal.SIGKILL else ""
                self._running[self._running.index(worker)] = self._replaced(worker)
                content, failure = None, Failure(f"{why}{hint}.", lost=True)
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
            worker.process.kill()
        for worker in self._running:
            worker.process.join()
        self._running = []


def serve(pipe: Connection, device: str) -> None:
    """In a worker process: run the jobs that arrive, until the pipe or the process at its other end is gone."""
    from floatlens.study.worker import Worker

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        wait_for([parent.sentinel])
        os._exit(1)

    Thread(target=watch, daemon=True).start()
    worker = Worker(device)
    while True:
        try:
            job: Job = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            answer = worker.run(job), None
        except BaseException as error:
            if not is_failure(error):
                raise
            answer = None, failure_of(error)
        try:
            pipe.send(answer)
        except OSError:
            return
