"""The small interface behind which units are run: a queue of jobs goes in, outcomes come out, in whatever order they are done.

There are two engines: worker processes on this machine (`floatlens.study.local_engine`, the default) and Ray
(`floatlens.study.ray_engine`). An engine hands a worker jobs of the model that the worker holds, as long as there are any; it replaces
workers that end, and reports the job that was lost with them. Storing, retrying and counting are the runner's business
(`floatlens.study.running`).
"""

import traceback
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Protocol

from floatlens.errors import Refusal, shown
from floatlens.study.units import Job

GO_ON, FINISH, DROP = 0, 1, 2
"""What a runner tells its engine: hand out jobs; hand out nothing more and finish what runs; drop what runs."""


@dataclass(frozen=True)
class Failure:
    """Why a unit has no result. `refused`: it would be refused again; `lost`: its worker ended."""

    error: str
    traceback: str = ""
    refused: bool = False
    lost: bool = False


@dataclass(frozen=True, eq=False)
class Outcome:
    """A job that ended: the file of its unit, or that its worker has `stored` it, or why there is none."""

    job: Job
    content: bytes | None = None
    stored: bool = False
    failure: Failure | None = None


class Queue:
    """The jobs that wait, by the model they need; `stored` says whether another runner has stored the result of one.

    Examples
    --------
    >>> from floatlens.study.settings import Settings
    >>> from floatlens.study.units import ModelChoice, Unit
    >>> def job(model, first):
    ...     unit = Unit("questions", "world", model, "gold", "", "", None, 0, "default", first, 1, {"first": str(first)})
    ...     return Job(unit, ModelChoice(model, model, None, None, None, False, "", ""), Settings(), 1)
    >>> queue = Queue([job("a", 0), job("b", 1), job("b", 2), job("a", 3)])
    >>> [queue.take("a").unit.first, queue.take("a").unit.first, queue.take("a").unit.first], len(queue)
    ([0, 3, 1], 1)
    """

    def __init__(self, jobs: Sequence[Job], stored: Callable[[Job], bool] = lambda job: False) -> None:
        self._waiting: dict[str, list[Job]] = {}
        self._stored, self.stored_elsewhere = stored, 0
        for job in jobs:
            self._waiting.setdefault(job.model.label, []).append(job)

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

    def put_back(self, job: Job) -> None:
        """A job that is to be tried again, after the others of its model."""
        self._waiting.setdefault(job.model.label, []).append(job)


class Engine(Protocol):
    """Runs jobs; `workers` is how many at once, `title` what a person reads."""

    @property
    def workers(self) -> int: ...

    @property
    def title(self) -> str: ...

    def outcomes(self, queue: Queue, told: Callable[[], int]) -> Generator[Outcome, None, None]:
        """Each job as it ends, until the queue is empty and nothing runs, or until told to stop. What is put back is run again."""
        ...


def failure_of(error: BaseException) -> Failure:
    """What is recorded of an exception.

    Examples
    --------
    >>> failure_of(Refusal("It is too long.")).error, failure_of(KeyError("a")).error
    ('It is too long.', "KeyError: 'a'")
    """
    refused = isinstance(error, Refusal)
    said = str(error) if refused else f"{type(error).__name__}: {shown(error)}"
    return Failure(said, "".join(traceback.format_exception(error)), refused=refused)


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


def local_devices(kind: str) -> list[str]:
    """The devices of that type on this machine; refused if there are none.

    Examples
    --------
    >>> local_devices("cpu")
    ['cpu']
    """
    import torch

    if kind == "cuda":
        if not torch.cuda.is_available():
            raise Refusal('The study runs on GPUs (device), and torch finds none here. Set device = "cpu" under [run].')
        return [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    return [kind]
