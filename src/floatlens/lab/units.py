"""What the demo studies: experiments, one with one model each, what is asked, how much of it, and what is known before it starts.

An experiment is run as units of the study engine (`floatlens.study`), one per condition. Everything follows from the number of questions,
so that one option makes the whole study larger or smaller. Refused: too few questions for an interval.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from floatlens.claims.design import FEWEST as FEWEST_PROMPTS
from floatlens.claims.design import Design
from floatlens.errors import Refusal
from floatlens.study.errand import Packed

QUESTIONS, QUESTIONS_OF_A_FILE = 100, 100
"""The defaults: of the world, which takes two cores about two minutes, and of a real task. More give narrower intervals."""
FEWEST = 4

EXPERIMENTS = ("trace", "masked descriptions", "masked answers", "noise", "layout", "position")
"""What is done with every model, as far as the task has it, the longest first."""
SILENCED = "retrieval heads"
"""The experiment that silences the best retrieval heads of a model, which are known when it is traced."""
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
    >>> Sizes(100).traced, Sizes(100).two_hop, Sizes(100).masked, Sizes(100).described
    (24, 40, 40, 40)
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
        return max(2, 6 * self.questions // 25)

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
        return max(2, 2 * self.questions // 5)


@dataclass(frozen=True)
class Experiment:
    """One experiment with one model: its name, how much of it is run, and how often random controls are drawn."""

    role: str
    model: str
    name: str
    sizes: Sizes
    draws: int


@dataclass(frozen=True)
class Study:
    """What is run: models by role, the task, how much of it, how often random controls are drawn, and the seed."""

    models: Mapping[str, str]
    choice: Choice
    sizes: Sizes
    draws: int
    seed: int
    figures: bool = True

    def experiments(self, design: Design) -> list[Experiment]:
        """All experiments, the longest first, so that the processes finish at about the same time.

        Examples
        --------
        >>> from floatlens.claims.design import WORLD
        >>> models = {"arm": "twin-arm", "mdm": "twin-mdm", "causal-mdm": "twin-causal-mdm"}
        >>> experiments = Study(models, Choice(), Sizes(), draws=1, seed=0).experiments(WORLD)
        >>> experiments[0].name, experiments[0].role, len(experiments)
        ('trace', 'mdm', 18)
        """
        slowest_first = sorted(self.models, key=lambda role: (role == "arm", role != "mdm"))
        names = [name for name in EXPERIMENTS if name not in design.not_asked]
        return [Experiment(role, self.models[role], name, self.sizes, self.draws) for name in names for role in slowest_first]


def questions_of(experiment: Experiment, design: Design) -> int:
    """How many questions an experiment asks in all its conditions, a traced text counting as one.

    Examples
    --------
    >>> from floatlens.claims.design import WORLD
    >>> questions_of(Experiment("mdm", "twin-mdm", "noise", Sizes(20), 1), WORLD)  # without passages, and at three levels
    80
    """
    sizes, draws = experiment.sizes, experiment.draws
    if experiment.name == "trace":
        return sizes.traced + sizes.masked * (2 + draws)
    if experiment.name.startswith("masked"):
        keys = next(masking.counts for masking in design.masking.values() if masking.experiment == experiment.name)
        asked = sizes.described if experiment.name == "masked descriptions" else sizes.masked
        return asked * (1 + len(keys) * (1 + 2 * draws))
    contexts = {"noise": 1 + len(design.noise), "position": len(design.positions) + sizes.real, "layout": len(design.layouts) + sizes.real}
    asked = sizes.two_hop if experiment.name == "layout" and not sizes.real else sizes.questions
    return asked * contexts[experiment.name]


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
    """What is known before a study starts: its design, how many questions there are, sentences about them and about the time it takes.

    `slots` says at which slot the gold passage of each traced text stands; `jobs` are those of all units by role and experiment, but for
    those that silence heads, which are known when a model is traced.
    """

    design: Design
    questions: int
    said: tuple[str, ...]
    lines: tuple[str, ...]
    slots: Mapping[str, int]
    jobs: Mapping[tuple[str, str], tuple[Packed, ...]]


def short_name(model: str) -> str:
    """The name of a model, or the last part of its folder: where a folder is stored says nothing about the model.

    Examples
    --------
    >>> short_name("runs/today/twin-arm"), short_name("twin-arm")
    ('twin-arm', 'twin-arm')
    """
    return Path(model).name
