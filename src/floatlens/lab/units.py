"""Units of work of a study, one experiment with one model each, what is asked, and how much of it.

What a unit gives depends on nothing but the unit, so it does not matter which process runs it, or when. Everything follows from the
number of questions, so that one option makes the whole study larger or smaller. Refused: too few questions for an interval.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from floatlens.claims.design import FEWEST as FEWEST_PROMPTS
from floatlens.claims.design import Design
from floatlens.errors import Refusal

QUESTIONS, QUESTIONS_OF_A_FILE = 20, 100
"""The defaults: of the world, which two cores finish in about a minute and a half, and of a real task. More give narrower intervals."""
FEWEST = 4

EXPERIMENTS = ("trace", "masked descriptions", "masked answers", "noise", "layout", "position", "known people")
"""What is done with every model, as far as the task has it, the longest first."""
ORDERS: Mapping[str, Mapping[str, object]] = {"left-to-right": {"block_length": 1}, "confidence": {"eos_last": True}}
"""In which order diffusion models write answers to questions, and the options of LLaDA's loop that this means."""


@dataclass(frozen=True)
class Choice:
    """Which task a study asks: the world, or the first questions of a file, `most` at most; and how its answers are written.

    `order` is one of `ORDERS` and applies to questions; `chat` says whether prompts go through the chat template, by default where there
    is one. `dtype` is the type in which models compute, by default their own.
    """

    task: str = "world"
    most: int = QUESTIONS
    data: str | None = None
    corpus: str | None = None
    infer_gold: bool = False
    order: str = "left-to-right"
    chat: bool | None = None
    dtype: str | None = None


@dataclass(frozen=True)
class Sizes:
    """How much is run. `questions` are asked in every context; tracing and writing under masking cost more, so there are fewer of those.

    Of a real task, at least as many are traced and masked as a verdict needs, if there are so many questions.

    Examples
    --------
    >>> Sizes(32).traced, Sizes(32).two_hop, Sizes(32).masked, Sizes(32).described
    (6, 12, 12, 6)
    >>> Sizes(100, real=True).traced, Sizes(100, real=True).masked, Sizes(20, real=True).traced
    (36, 40, 12)
    """

    questions: int = QUESTIONS
    real: bool = False

    def __post_init__(self) -> None:
        if self.questions < FEWEST:
            raise Refusal(f"{self.questions} questions give no interval; ask at least {FEWEST}.")

    @property
    def traced(self) -> int:
        """Texts that are traced while they are written: of a real task more, so that each slot of the gold passage has enough."""
        if self.real:
            return min(self.questions, max(FEWEST_PROMPTS, 9 * self.questions // 25))
        return max(2, 3 * self.questions // 16)

    @property
    def two_hop(self) -> int:
        """Two-hop questions in every layout of the world."""
        return max(2, 2 * self.questions // 5)

    @property
    def masked(self) -> int:
        """Questions that are asked under masking."""
        masked = max(2, 2 * self.questions // 5)
        return min(self.questions, max(FEWEST_PROMPTS, masked)) if self.real else masked

    @property
    def described(self) -> int:
        """Descriptions that are written under masking."""
        return max(2, self.questions // 5)


Tables = Mapping[str, pl.DataFrame]
"""Rows for the tables of the evidence, by name of the table."""


@dataclass(frozen=True)
class Unit:
    """One experiment with one model. Its trace goes into `folder`, and its figures if `figures` is set; `kept` holds what was finished."""

    role: str
    model: str
    experiment: str
    folder: Path
    kept: Path
    choice: Choice
    sizes: Sizes
    draws: int
    seed: int
    figures: bool


@dataclass(frozen=True)
class Study:
    """What is run: models by role, the task, how much of it, how often random controls are drawn, and the seed."""

    models: Mapping[str, str]
    choice: Choice
    sizes: Sizes
    draws: int
    seed: int
    figures: bool = True

    def units(self, design: Design, folder: Path, kept: Path) -> list[Unit]:
        """All units, the longest first, so that the processes finish at about the same time.

        Examples
        --------
        >>> from floatlens.claims.design import WORLD
        >>> models = {"arm": "twin-arm", "mdm": "twin-mdm", "causal-mdm": "twin-causal-mdm"}
        >>> units = Study(models, Choice(), Sizes(), draws=1, seed=0).units(WORLD, Path("new"), Path("kept"))
        >>> units[0].experiment, units[0].role, len(units)
        ('trace', 'mdm', 21)
        """
        slowest_first = sorted(self.models, key=lambda role: (role == "arm", role != "mdm"))
        experiments = [name for name in EXPERIMENTS if name not in design.not_asked]
        shared = (folder, kept, self.choice, self.sizes, self.draws, self.seed, self.figures)
        return [Unit(role, self.models[role], experiment, *shared) for experiment in experiments for role in slowest_first]


def questions_of(unit: Unit, design: Design) -> int:
    """How many questions a unit asks in all its conditions, a traced text counting as one.

    Examples
    --------
    >>> from floatlens.claims.design import WORLD
    >>> unit = Unit("mdm", "twin-mdm", "noise", Path("new"), Path("kept"), Choice(), Sizes(20), 1, 0, False)
    >>> questions_of(unit, WORLD)  # without passages, and at five levels
    120
    """
    sizes, draws = unit.sizes, unit.draws
    if unit.experiment == "trace":
        return sizes.traced + sizes.masked * (2 + draws)
    if unit.experiment.startswith("masked"):
        keys = next(masking.counts for masking in design.masking.values() if masking.experiment == unit.experiment)
        asked = sizes.described if unit.experiment == "masked descriptions" else sizes.masked
        return asked * (1 + len(keys) * (1 + 2 * draws))
    contexts = {"noise": 1 + len(design.noise), "position": 1 + len(design.positions), "layout": len(design.layouts) + unit.sizes.real}
    asked = sizes.two_hop if unit.experiment == "layout" and not sizes.real else sizes.questions
    return asked * contexts.get(unit.experiment, 1)


@dataclass(frozen=True)
class Prices:
    """Seconds per question with few passages, with the most and under an intervention, and per traced text; `passages`: few, and most."""

    few: float
    most: float
    edited: float
    traced: float
    passages: tuple[float, float]

    def of(self, passages: float) -> float:
        """Seconds for a question with so many passages."""
        few, most = self.passages
        return max(0.0, self.few + (self.most - self.few) * (passages - few) / max(most - few, 1))


@dataclass(frozen=True)
class Preparation:
    """What is known before a study starts: its design, how many questions there are, sentences about them, and prices by role."""

    design: Design
    questions: int
    said: tuple[str, ...]
    prices: Mapping[str, Prices]


def short_name(model: str) -> str:
    """The name of a model, or the last part of its folder: where a folder is stored says nothing about the model.

    Examples
    --------
    >>> short_name("runs/today/twin-arm"), short_name("twin-arm")
    ('twin-arm', 'twin-arm')
    """
    return Path(model).name
