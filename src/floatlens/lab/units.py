"""Units of work of the demo, one experiment with one twin each, and how much each of them does.

What a unit gives depends on nothing but the unit, so it does not matter which process runs it, or when. Everything follows from the
number of questions, so that one option makes the whole study larger or smaller. Refused: too few questions for an interval.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from floatlens.claims.evidence import EXPERIMENTS
from floatlens.errors import Refusal

QUESTIONS = 20
"""The default, which two cores finish in about a minute and a half. More questions give narrower intervals."""
FEWEST = 4


@dataclass(frozen=True)
class Sizes:
    """How much is run. `questions` are asked in every context; tracing and writing under masking cost more, so there are fewer of those.

    Examples
    --------
    >>> Sizes(32)
    Sizes(questions=32)
    >>> Sizes(32).traced, Sizes(32).two_hop, Sizes(32).masked, Sizes(32).described
    (6, 12, 12, 6)
    """

    questions: int = QUESTIONS

    def __post_init__(self) -> None:
        if self.questions < FEWEST:
            raise Refusal(f"{self.questions} questions give no interval; ask at least {FEWEST}.")

    @property
    def traced(self) -> int:
        """Descriptions that are traced while they are written."""
        return max(2, 3 * self.questions // 16)

    @property
    def two_hop(self) -> int:
        """Two-hop questions in every layout."""
        return max(2, 2 * self.questions // 5)

    @property
    def masked(self) -> int:
        """Questions whose answer's likelihood is measured under masking."""
        return max(2, 2 * self.questions // 5)

    @property
    def described(self) -> int:
        """Descriptions that are written under masking."""
        return max(2, self.questions // 5)


Tables = Mapping[str, pl.DataFrame]
"""Rows for the tables of the evidence, by name of the table."""


@dataclass(frozen=True)
class Unit:
    """One experiment with one twin. It writes its trace into the folder, and its figures if `figures` is set."""

    twin: str
    model: str
    experiment: str
    folder: Path
    sizes: Sizes
    seed: int
    figures: bool


def planned_units(models: Mapping[str, str], folder: Path, sizes: Sizes, seed: int, *, figures: bool = True) -> list[Unit]:
    """All units, the longest first, so that the processes finish at about the same time.

    Examples
    --------
    >>> models = {"arm": "twin-arm", "mdm": "twin-mdm", "causal-mdm": "twin-causal-mdm"}
    >>> units = planned_units(models, Path("floatlens-demo"), Sizes(), seed=0)
    >>> units[0].experiment, units[0].twin, len(units)
    ('trace', 'mdm', 21)
    """
    slowest_first = sorted(models, key=lambda twin: (twin == "arm", twin != "mdm"))
    return [Unit(twin, models[twin], experiment, folder, sizes, seed, figures) for experiment in EXPERIMENTS for twin in slowest_first]


def short_name(model: str) -> str:
    """The name of a model, or the last part of its folder: where a folder is stored says nothing about the model.

    Examples
    --------
    >>> short_name("runs/today/twin-arm"), short_name("twin-arm")
    ('twin-arm', 'twin-arm')
    """
    return Path(model).name
