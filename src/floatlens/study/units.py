"""Units of a study: what is run at once, kept at once, and never run twice.

A unit is one model, one condition, one seed, one sampler and a shard of the samples of a task; or a trace of a shard, with what is
measured on it. Its `id` is a hash of exactly what its result depends on: the checkpoint's content, the questions as they are asked, the
settings, the seed, the type of device, threads and batch size (which decide the last bits), and the version of floatlens and of the
format of results. Where a file lies, what else is in the study, and which worker runs the unit are not part of it. So the same unit of
another study has the same id, and a unit whose id is known need not be run.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from floatlens._version import __version__
from floatlens.decoding.prompts import Prompt
from floatlens.study.settings import Settings
from floatlens.tasks.conditions import Condition
from floatlens.tasks.contexts import arrange
from floatlens.tasks.samples import Sample

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


def unit_of(stored: Mapping[str, Any]) -> Unit:
    """A unit from what a file holds.

    Examples
    --------
    >>> unit = Unit(TRACE, "world", "twin-arm", "gold", "", "", None, 0, "default", 0, 2, {"model": "abc"})
    >>> unit_of(unit.as_dict()) == unit
    True
    """
    return Unit(**{name: value for name, value in stored.items() if name != "id"})


@dataclass(frozen=True)
class ModelChoice:
    """A model as a worker loads it; `digest` is that of its checkpoint, `host` the machine on which it was taken."""

    name: str
    label: str
    revision: str | None
    dtype: str | None
    block_length: int | None
    trust_remote_code: bool
    digest: str
    host: str


@dataclass(frozen=True)
class Tracing:
    """What a trace keeps, what is measured on it, and whether it is stored itself."""

    detail: str
    measures: tuple[str, ...]
    keep: bool


@dataclass(frozen=True, eq=False)
class Job:
    """A unit with everything that a worker needs to run it; it can be sent to another process, or to another machine."""

    unit: Unit
    model: ModelChoice
    settings: Settings
    threads: int
    samples: tuple[Sample, ...] = ()
    condition: Condition | None = None
    prompts: tuple[Prompt, ...] = ()
    tracing: Tracing | None = None
    names: tuple[str, ...] = field(default=())

    @property
    def questions(self) -> int:
        """How many samples it asks, or traces."""
        return self.unit.count


def digest_of(*values: Any) -> str:
    """A short hash of values, by their JSON.

    Examples
    --------
    >>> digest_of("a", [1, 2]) == digest_of("a", (1, 2)), digest_of("a") == digest_of("b")
    (True, False)
    """
    return hashlib.sha256(json.dumps(values, default=repr).encode()).hexdigest()[:32]


def questions_digest(samples: Sequence[Sample], condition: Condition) -> str:
    """A hash of the questions as they are asked under a condition: ids, words, answers, and the passages that are shown.

    Examples
    --------
    >>> from floatlens.tasks.conditions import condition_of
    >>> asked = Sample("a", "Where?", ("Oslo",))
    >>> questions_digest([asked], condition_of("closed-book")) == questions_digest([asked, asked], condition_of("closed-book"))
    False
    """
    shown = []
    for sample in samples:
        passages = [
            (passage.title, passage.text, passage.conflicting, passage in sample.evidence) for passage in arrange(sample, condition.context)
        ]
        shown.append((sample.id, sample.question, sample.answers, passages))
    return digest_of(shown)


def settings_digests(settings: Settings) -> dict[str, str]:
    """Every setting that a result depends on, as text; those whose text is long by their hash."""
    values = {**settings.decisive, "options": sorted(settings.options.items()), "batch_size": settings.batch_size}
    values.pop("seed")
    texts = {f"settings.{name}": str(value) for name, value in values.items()}
    return {name: text if len(text) <= 80 else digest_of(text) for name, text in texts.items()}


def version_of_results() -> dict[str, str]:
    """What every unit depends on."""
    return {"floatlens": __version__, "format": RESULTS_FORMAT}
