"""Jobs that a process without torch can make or hold.

An `Errand` is what a worker does on the side and is no unit of a study: prepare one, draw a figure. What it gives is not stored. A `Packed`
job is one of a unit, as bytes.
"""

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from floatlens.study.engine import Report
from floatlens.study.units import OfUnit, Unit

if TYPE_CHECKING:
    from floatlens.study.worker import Worker


@dataclass(frozen=True, eq=False)
class Errand:
    """A call of a function in a worker: with `arguments`, and a function that reports how far it is.

    `holds` is the model of whose jobs it is one, for the order in which jobs are handed out.

    Examples
    --------
    >>> pickle.loads(Errand("add", lambda first, second, report: first + second, (1, 2)).run(None, print))
    3
    """

    name: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()
    holds: str = ""
    questions: int = 0
    unit: None = None

    @property
    def id(self) -> str:
        """Its name."""
        return self.name

    def run(self, worker: "Worker", report: Report) -> bytes:
        """What the function gives, pickled."""
        return pickle.dumps(self.function(*self.arguments, report))


@dataclass(frozen=True, eq=False)
class Packed(OfUnit):
    """A job as the bytes that a worker unpacks: a process without torch can hold it and hand it out.

    Examples
    --------
    >>> Packed.of(Errand("add", lambda report: 3)).name
    Traceback (most recent call last):
    AssertionError: only jobs of units are packed
    """

    unit: Unit
    folder: Path | None
    content: bytes

    @staticmethod
    def of(job: Any) -> "Packed":
        """Pack a job of a unit."""
        assert job.unit is not None, "only jobs of units are packed"
        return Packed(job.unit, job.folder, pickle.dumps(job))

    def run(self, worker: "Worker", report: Report) -> bytes:
        """The file of its unit."""
        return pickle.loads(self.content).run(worker, report)
