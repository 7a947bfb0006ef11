"""The small interface behind which units are run: a queue of jobs goes in, outcomes come out, in whatever order they are done.

There are three engines: worker processes on this machine (`floatlens.study.local_engine`, the default), Ray
(`floatlens.study.ray_engine`), and this very process (`floatlens.study.in_process`). An engine hands a worker jobs of the model that the
worker holds, as long as there are any; it replaces workers that end, and reports the job that was lost with them. Storing, retrying and
counting are the business of `floatlens.study.settling` and its callers. Nothing in here imports torch before it is needed.
"""

import traceback
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from floatlens.errors import BrokenPromise, Refusal, shown

if TYPE_CHECKING:
    from floatlens.study.units import Unit
    from floatlens.study.worker import Worker

GO_ON, FINISH, DROP = 0, 1, 2
"""What a runner tells its engine: hand out jobs; hand out nothing more and finish what runs; drop what runs."""


Report = Callable[[int, str], object]
"""Called in a worker with the number of questions that are done, and what is being done."""


class Job(Protocol):
    """Work for a worker. `unit` is the unit whose file it makes, None if what it gives is not kept; `holds` the model that it needs."""

    @property
    def id(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def unit(self) -> "Unit | None": ...

    @property
    def holds(self) -> str: ...

    @property
    def questions(self) -> int: ...

    def run(self, worker: "Worker", report: Report) -> bytes:
        """The file of its unit, or what it gives otherwise."""
        ...


@dataclass(frozen=True)
class Failure:
    """Why a job gave nothing. `refused`: it would be refused again; `lost`: its worker ended. `cause` is known within one process."""

    error: str
    traceback: str = ""
    refused: bool = False
    lost: bool = False
    broken: bool = False
    cause: BaseException | None = field(default=None, compare=False)

    def exception(self, job: str) -> BaseException:
        """What to raise where a job must not fail."""
        if self.cause is not None:
            return self.cause
        if self.refused or self.lost:
            return Refusal(self.error)
        error = BrokenPromise(self.error) if self.broken else RuntimeError(f"{job}: {self.error}")
        error.add_note(self.traceback)
        return error


@dataclass(frozen=True, eq=False)
class Outcome:
    """A job that ended: what it gave, or that its worker has `stored` it, or why there is nothing."""

    job: Any  # a Job; not typed as one, so that whoever makes jobs of one kind gets these back
    content: bytes | None = None
    stored: bool = False
    failure: Failure | None = None


class Queue:
    """The jobs that wait, by the model they need; `stored` says whether another runner has stored the result of one.

    Examples
    --------
    >>> from floatlens.study.errand import Errand
    >>> queue = Queue([Errand(name, print, holds=model) for name, model in (("0", "a"), ("1", "b"), ("2", "b"), ("3", "a"))])
    >>> [queue.take("a").name, queue.take("a").name, queue.take("a").name], len(queue)
    (['0', '3', '1'], 1)
    """

    def __init__(self, jobs: Sequence[Job] = (), stored: Callable[[Job], bool] = lambda job: False) -> None:
        self._waiting: dict[str, list[Job]] = {}
        self._stored, self.stored_elsewhere = stored, 0
        for job in jobs:
            self.put(job)

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def take(self, model: str | None) -> Job | None:
        """The next job of the model that a worker holds; if there is none, one of the model with most jobs.

        A job whose result another runner has stored meanwhile is counted and passed over.
        """
        while len(self):
            label = (
                model if model is not None and self._waiting.get(model) else max(self._waiting, key=lambda name: len(self._waiting[name]))
            )
            job = self._waiting[label].pop(0)
            if not self._stored(job):
                return job
            self.stored_elsewhere += 1
        return None

    def put(self, job: Job) -> None:
        """A job that is new or to be tried again, after the others of its model."""
        self._waiting.setdefault(job.holds, []).append(job)


class Engine(Protocol):
    """Runs jobs; `workers` is how many at once, `title` what a person reads."""

    @property
    def workers(self) -> int: ...

    @property
    def title(self) -> str: ...

    def outcomes(self, queue: Queue, told: Callable[[], int], report: "ReportOf" = ...) -> Generator[Outcome, None, None]:
        """Each job as it ends, until the queue is empty and nothing runs, or until told to stop. What is put meanwhile is run, too.

        `report` is called with a job, the number of its questions that are done, and what is being done, if the engine knows.
        """
        ...


ReportOf = Callable[[Job, int, str], object]
"""Called with a job that runs, the number of its questions that are done, and what is being done."""


def unheard(_job: Job, _count: int, _what: str) -> None:
    """Where nobody wants to know how far a job is."""


def failure_of(error: BaseException) -> Failure:
    """What is recorded of an exception.

    Examples
    --------
    >>> failure_of(Refusal("It is too long.")).error, failure_of(KeyError("a")).error
    ('It is too long.', "KeyError: 'a'")
    """
    refused = isinstance(error, Refusal)
    said = str(error) if isinstance(error, Refusal | BrokenPromise) else f"{type(error).__name__}: {shown(error)}"
    return Failure(said, "".join(traceback.format_exception(error)), refused=refused, broken=isinstance(error, BrokenPromise))


def device_type(wanted: str) -> str:
    """The type of device on which units run: the one that the file names, or a GPU if this machine has one.

    Examples
    --------
    >>> device_type("cpu")
    'cpu'
    """
    import torch

    if wanted != "auto":
        return wanted
    return "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"


def local_devices(kind: str, per_worker: int = 1) -> list[str]:
    """The devices of that type on this machine, as many together as a worker gets; refused if there are too few.

    Examples
    --------
    >>> local_devices("cpu")
    ['cpu']
    """
    import torch

    if kind == "cuda":
        if not torch.cuda.is_available():
            raise Refusal('The study runs on GPUs (device), and torch finds none here. Set device = "cpu" under [run].')
        return dealt_out([f"cuda:{number}" for number in range(torch.cuda.device_count())], per_worker)
    return dealt_out([kind], per_worker)


def dealt_out(devices: Sequence[str], per_worker: int) -> list[str]:
    """What each worker gets, as `floatlens.load` takes it. Devices that are too few for another worker stay idle.

    Examples
    --------
    >>> dealt_out(["cuda:0", "cuda:1", "cuda:2", "cuda:3", "cuda:4"], 2)
    ['cuda:0,cuda:1', 'cuda:2,cuda:3']
    >>> dealt_out(["cpu"], 2)
    Traceback (most recent call last):
    floatlens.errors.Refusal: The study gives each worker 2 devices (devices_per_worker under [run]), and this machine has 1: cpu. \
Lower it, or run the study elsewhere.
    """
    if per_worker > len(devices):
        raise Refusal(
            f"The study gives each worker {per_worker} devices (devices_per_worker under [run]), and this machine has {len(devices)}: "
            f"{', '.join(devices)}. Lower it, or run the study elsewhere."
        )
    return [",".join(devices[first : first + per_worker]) for first in range(0, len(devices) - per_worker + 1, per_worker)]
