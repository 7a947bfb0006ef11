"""Run units on a Ray cluster: one actor per device, each holding its model (`pip install 'floatlens[ray]'`).

Decided here: an actor asks for one GPU (or `devices_per_worker`), or for as many CPUs as a unit has threads; Ray places it. The runner
hands each actor one job at a time, of the model that it holds, as actors come free. An actor that is lost with its node gives its job
back, and another one is asked for; as nodes join, actors are added. Where all nodes see the place of the results (S3, GCS, ...), an actor
stores its result itself, in one PUT under the unit's id; into a folder, results go through the runner, which owns it.

Nodes need floatlens, and the models under the same names; a checkpoint that differs from the one of the plan is refused
(`floatlens.study.worker`). The type of device is that of the file, or of the machine that runs the command: name it in the file
(`device = "cuda"`) if that machine has no GPU. Refused: Ray that is not installed, a cluster that cannot be reached.
"""

import logging
import math
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from floatlens.errors import Refusal, is_failure, reason
from floatlens.study.engine import DROP, GO_ON, Failure, Job, Outcome, Queue, ReportOf, dealt_out, failure_of, unheard
from floatlens.study.planning import Plan
from floatlens.study.store import Store
from floatlens.study.units import unit_file

LOOK = 0.5  # seconds between two looks at the cluster and at what the runner says
MISSING = "Ray is not installed. Install it: pip install 'floatlens[ray]'"


class UnitActor:
    """What runs in an actor: a worker, and the store if it is one that all nodes see."""

    def __init__(self, device: str, store: Store | None) -> None:
        from floatlens.study.worker import Worker

        self._worker, self._store = Worker(device), store

    def ready(self) -> bool:
        """Answered as soon as the actor has a place."""
        return True

    def run(self, job: Job) -> tuple[bytes | None, bool, Failure | None]:
        """The file of a unit, whether it was stored here, or why there is none."""
        try:
            content = job.run(self._worker, lambda _count, _what: None)
            if self._store is None:
                return content, False, None
            self._store.create(unit_file(job.id), content)
            return None, True, None
        except BaseException as error:
            if not is_failure(error):
                raise
            return None, False, failure_of(error)


@dataclass(eq=False)
class _Placed:
    """An actor: the answer that is waited for, whether it is ready, the model it holds and the job it has."""

    actor: Any
    answer: Any
    ready: bool = False
    model: str | None = None
    job: Job | None = None


class RayEngine:
    """Actors of a Ray cluster. Without an address, and if none is connected, a cluster of this machine alone is started."""

    def __init__(self, plan: Plan, store: Store, address: str | None = None, workers: int | None = None) -> None:
        try:
            ray: Any = import_module("ray")  # an extra, so that neither imports nor types may take it for granted
            self._ray_error = import_module("ray.exceptions").RayError
        except ImportError:
            raise Refusal(MISSING) from None
        self._ray = ray
        self._started = False
        if not ray.is_initialized():
            try:
                how: dict[str, Any] = {} if address else {"include_dashboard": False}
                ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **how)
            except (ConnectionError, RuntimeError, ValueError, OSError) as error:
                raise Refusal(f"The Ray cluster {address or 'of this machine'} cannot be reached: {reason(error)}.") from None
            self._started = True
        run = plan.study.run
        self._needs = {"num_gpus": float(run.devices_per_worker)} if plan.device == "cuda" else {"num_cpus": float(run.threads)}
        own = [f"cuda:{number}" for number in range(run.devices_per_worker)]  # Ray shows an actor its own devices only
        [self._device] = dealt_out(own if plan.device == "cuda" else [plan.device], run.devices_per_worker)
        self._store, self._most = store if store.shared else None, workers
        self._placed: list[_Placed] = []

    @property
    def workers(self) -> int:
        """How many actors the cluster has room for now."""
        resources = self._ray.cluster_resources()
        [(kind, wanted)] = self._needs.items()
        room = math.floor(resources.get({"num_gpus": "GPU", "num_cpus": "CPU"}[kind], 0) / wanted)
        return room if self._most is None else min(room, self._most)

    @property
    def title(self) -> str:
        """For people."""
        nodes = sum(node["Alive"] for node in self._ray.nodes())
        return f"{self.workers} actors on {nodes} Ray node{'s' * (nodes != 1)} ({self._device})"

    def outcomes(self, queue: Queue, told: Callable[[], int], report: ReportOf = unheard) -> Generator[Outcome, None, None]:
        """Each job as it ends; how far one is meanwhile is not known."""
        try:
            while True:
                if told() == DROP:
                    return
                if told() == GO_ON:
                    self._place(len(queue))
                    self._hand_out(queue)
                busy = [placed for placed in self._placed if placed.job is not None]
                if not busy and (told() != GO_ON or not len(queue)):
                    return
                yield from self._ended()
        finally:
            for placed in self._placed:
                self._ray.kill(placed.actor)
            self._placed = []
            if self._started:
                self._ray.shutdown()

    def _place(self, waiting: int) -> None:
        """Ask for actors, as many as the cluster has room for and as there are jobs."""
        busy = sum(placed.job is not None for placed in self._placed)
        while len(self._placed) < min(self.workers, busy + waiting):
            actor = self._ray.remote(**self._needs, max_restarts=0)(UnitActor).remote(self._device, self._store)
            self._placed.append(_Placed(actor, actor.ready.remote()))

    def _hand_out(self, queue: Queue) -> None:
        for placed in self._placed:
            if placed.ready and placed.job is None and (job := queue.take(placed.model)) is not None:
                placed.job, placed.model = job, job.holds
                placed.answer = placed.actor.run.remote(job)

    def _ended(self) -> Iterator[Outcome]:
        """Wait a little; the jobs that ended meanwhile. Actors that were lost are forgotten: others are asked for in their place."""
        waited = [placed for placed in self._placed if placed.job is not None or not placed.ready]
        answers = [placed.answer for placed in waited]
        done: list[Any] = []
        if answers and self._ray.wait(answers, timeout=LOOK)[0]:
            done, _ = self._ray.wait(answers, num_returns=len(answers), timeout=0)  # all that are there
        for placed in waited:
            if placed.answer not in done:
                continue
            job, placed.job = placed.job, None
            try:
                answer = self._ray.get(placed.answer)
            except self._ray_error as error:
                self._placed.remove(placed)
                self._ray.kill(placed.actor)
                if job is not None:
                    yield Outcome(job, failure=Failure(f"The actor was lost: {reason(error)}.", lost=True))
                continue
            if job is None:
                placed.ready = True
                continue
            content, stored, failure = answer
            yield Outcome(job, content, stored, failure)
