"""Units of a study: what is run at once, kept at once, and never run twice.

A unit is one model, one condition, one seed, one sampler and a shard of the samples of a task; or a trace of a shard, with what is
measured on it. Its `id` is a hash of exactly what its result depends on: the checkpoint's content, the questions as they are asked, the
settings, the seed, the type of device, threads and batch size (which decide the last bits), and the version of floatlens and of the
format of results. Where a file lies, what else is in the study, and which worker runs the unit are not part of it. So the same unit of
another study has the same id, and a unit whose id is known need not be run.

Nothing in here imports torch: whoever hands out units, stores them and reads them does without. What runs one is a job
(`floatlens.study.jobs`).
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from floatlens._version import __version__

RESULTS_FORMAT = "1"
"""Raised when what a unit stores changes its meaning: units of another format are run again."""
QUESTIONS, TRACE = "questions", "trace"
PLACE = ("kind", "task", "model", "context", "intervention", "control", "draw", "seed", "sampler", "first")
"""What tells the units of one study apart."""


@dataclass(frozen=True)
class Unit:
    """One unit: what it is, in words, and what its result `depends` on, by name.

    Examples
    --------
    >>> unit = Unit(QUESTIONS, "world", "twin-arm", "gold", "", "", None, 0, "default", 0, 25, {"model": "abc", "seed": "0"})
    >>> unit.name
    'twin-arm, world, gold, samples 1 to 25'
    >>> len(unit.id), unit.id == Unit(*list(vars(unit).values())[:-1], {"model": "abd", "seed": "0"}).id
    (32, False)
    """

    kind: str
    task: str
    model: str
    context: str
    intervention: str
    control: str
    draw: int | None
    seed: int
    sampler: str
    first: int
    count: int
    depends: Mapping[str, str]

    @property
    def id(self) -> str:
        """A hash of what the result depends on."""
        return hashlib.sha256(json.dumps([self.kind, sorted(self.depends.items())]).encode()).hexdigest()[:32]

    @property
    def place(self) -> tuple[Any, ...]:
        """Where it stands in a study: the same for a unit and for what became of it after the file was changed."""
        return tuple(getattr(self, name) for name in PLACE)

    @property
    def name(self) -> str:
        """The unit in words."""
        edit = f" under {self.intervention}" if self.intervention else ""
        control = f", control {self.control}, draw {self.draw}" if self.control else ""
        seed = f", seed {self.seed}" if self.seed else ""
        sampler = f", {self.sampler}" if self.sampler != "default" else ""
        asked = f", {self.context}" if self.context else ""
        traced = ", traced" if self.kind == TRACE else ""
        numbers = f"samples {self.first + 1} to {self.first + self.count}"
        return f"{self.model}, {self.task}{asked}{edit}{control}{traced}{sampler}{seed}, {numbers}"

    def as_dict(self) -> dict[str, Any]:
        """As files hold it."""
        return {"id": self.id, **asdict(self), "depends": dict(self.depends)}


class OfUnit:
    """What every job of a unit says of itself (`floatlens.study.engine.Job`); `unit` is a field of the job.

    Examples
    --------
    >>> job = OfUnit()
    >>> job.unit = Unit(TRACE, "world", "twin-arm", "gold", "", "", None, 0, "default", 0, 2, {"model": "abc"})
    >>> job.holds, job.questions, job.id == job.unit.id
    ('twin-arm', 2, True)
    """

    unit: Unit

    @property
    def id(self) -> str:
        """That of its unit."""
        return self.unit.id

    @property
    def name(self) -> str:
        """That of its unit."""
        return self.unit.name

    @property
    def holds(self) -> str:
        """The model that a worker must hold for it."""
        return self.unit.model

    @property
    def questions(self) -> int:
        """How many samples it asks, or traces."""
        return self.unit.count


def unit_of(stored: Mapping[str, Any]) -> Unit:
    """A unit from what a file holds.

    Examples
    --------
    >>> unit = Unit(TRACE, "world", "twin-arm", "gold", "", "", None, 0, "default", 0, 2, {"model": "abc"})
    >>> unit_of(unit.as_dict()) == unit
    True
    """
    return Unit(**{name: value for name, value in stored.items() if name != "id"})


def unit_file(unit_id: str) -> str:
    """Where the file of a unit lies.

    Examples
    --------
    >>> unit_file("abc")
    'units/abc.zip'
    """
    return f"units/{unit_id}.zip"


def digest_of(*values: Any) -> str:
    """A short hash of values, by their JSON.

    Examples
    --------
    >>> digest_of("a", [1, 2]) == digest_of("a", (1, 2)), digest_of("a") == digest_of("b")
    (True, False)
    """
    return hashlib.sha256(json.dumps(values, default=repr).encode()).hexdigest()[:32]


def version_of_results() -> dict[str, str]:
    """What every unit depends on."""
    return {"floatlens": __version__, "format": RESULTS_FORMAT}
