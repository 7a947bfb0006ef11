"""What a study asks of its models, whichever they are: a task, its contexts, how masking is judged, and what it cannot ask.

A `Design` is shared by experiments, claims and figures; a study stores it with its tables, so that these can be judged again. The world of
the twins (`WORLD`) is one, questions with passages are others (`one_piece`, `two_pieces`). Nothing here needs torch.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

ROLES = ("arm", "mdm", "causal-mdm")
"""The parts that models play: autoregressive, masked diffusion, and masked diffusion with the attention mask of the first."""

CLOSED_BOOK, GOLD = "closed-book", "gold"
FEWEST = 12
"""From fewer prompts no verdict follows."""


@dataclass(frozen=True)
class Masking:
    """What is looked at under masking: the experiment, the columns of its outcome and of the removed attention, and how many keys."""

    experiment: str
    outcome: str
    removed: str
    says: str
    counts: tuple[int, ...]


LIKELIHOOD = ("log_likelihood", "likelihood_removed", "log-likelihood of the answer (nats)")


@dataclass(frozen=True)
class Design:
    """What is asked, in which contexts. `noise` and `positions` go from one end to the other; `masked_context` is that of interventions.

    `masking` says by name what is looked at under masking; `written` names the one by which what a model writes is judged, and `right` is
    what that counts. A model has something to lose where it scores more than `floor`: the shortcut, or the same questions without passages.
    `not_asked` says by experiment why the task does not have it. A verdict needs `fewest` prompts.

    Examples
    --------
    >>> WORLD.noise[-1], WORLD.masking[WORLD.written].experiment
    ('noise:0.9,passages=15,gold=1', 'masked descriptions')
    >>> Design.read(WORLD.stored()) == WORLD
    True
    """

    task: str
    noise: tuple[str, ...]
    positions: tuple[str, ...]
    layouts: tuple[str, ...]
    masked_context: str
    masking: Mapping[str, Masking]
    written: str
    right: str
    floor: str
    slots: int
    needle: str
    not_asked: Mapping[str, str] = field(default_factory=dict)
    fewest: int = 0

    @property
    def levels(self) -> list[float]:
        """The share of distractors in each context of `noise`."""
        return [float(context.partition(":")[2].partition(",")[0]) for context in self.noise]

    def stored(self) -> dict[str, Any]:
        """As a file holds it."""
        return asdict(self)

    @classmethod
    def read(cls, stored: Mapping[str, Any]) -> "Design":
        """The design that a file holds."""
        values = {name: tuple(value) if isinstance(value, list) else value for name, value in stored.items()}
        masking = {name: Masking(**{**given, "counts": tuple(given["counts"])}) for name, given in stored["masking"].items()}
        return cls(**{**values, "masking": masking})


WORLD = Design(
    task="world",
    noise=tuple(f"noise:{share},passages=15,gold=1" for share in ("0", "0.4", "0.9")),  # 0, 6 and 14 distractors
    positions=("position:1/10", "position:5/10", "position:10/10"),
    layouts=("layout:one,passages=4", "layout:adjacent,passages=4", "layout:far,passages=4"),
    masked_context="position:2/3",  # shorter than the others, because finding the strongest keys takes time
    masking={
        # fewer counts for descriptions, because writing takes many passes and a likelihood one
        "masked descriptions": Masking("masked descriptions", "accuracy", "removed", "share of right values in a description", (1,)),
        "masked answers": Masking("masked answers", *LIKELIHOOD, (1, 5, 10)),
    },
    written="masked descriptions",
    right="right values",
    floor="shortcut",
    slots=3,
    needle="gold",
    fewest=FEWEST,
)
"""The made-up world: what a twin writes is judged on descriptions, how sure it is on short answers.

Which contexts are asked follows from rules that were fixed before they were looked at (docs/results/twins.md): a reader who ignores the
person must fail in them, and so must a twin now and then. That is why noise takes fifteen passages and position ten.
"""

OF_THE_WORLD = {
    "masked descriptions": "descriptions exist only in the world; answers are masked instead",
}


def one_piece(task: str) -> Design:
    """Questions whose evidence is one passage: noise and position, among at most five."""
    reason = f"the evidence of {task} is one passage, and a layout places two; ask hotpotqa"
    noise = tuple(f"noise:{share},gold=1" for share in ("0", "0.4", "0.8"))
    return _questions(task, noise, ("position:1/5", "position:3/5", "position:5/5"), (), {"layout": reason})


def two_pieces(task: str) -> Design:
    """Questions whose evidence is two passages that are needed together: noise and layout, among at most five."""
    reason = f"the evidence of {task} is two passages that are needed together, so it has no single place"
    noise = tuple(f"noise:{share},gold=2" for share in ("0", "0.4", "0.6"))
    return _questions(task, noise, (), ("layout:one", "layout:adjacent", "layout:far"), {"position": reason})


def _questions(
    task: str, noise: tuple[str, ...], positions: tuple[str, ...], layouts: tuple[str, ...], not_asked: Mapping[str, str]
) -> Design:
    masking = {
        "accuracy of masked answers": Masking("masked answers", "accuracy", "removed", "accuracy", (1, 5, 10)),
        "likelihood of masked answers": Masking("masked answers", *LIKELIHOOD, (1, 5, 10)),
    }
    return Design(
        task=task,
        noise=noise,
        positions=positions,
        layouts=layouts,
        masked_context=GOLD,
        masking=masking,
        written="accuracy of masked answers",
        right="right answers",
        floor=CLOSED_BOOK,
        slots=3,
        needle="needle",
        not_asked=OF_THE_WORLD | dict(not_asked),
        fewest=FEWEST,
    )
