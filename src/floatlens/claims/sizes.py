"""How much is run: how many prompts are traced, how many questions are asked, how many answers are written under masking.

Everything follows from the number of questions, so that one option makes the whole study larger or smaller. Refused: too few questions for an interval.
"""

from dataclasses import dataclass

from floatlens.errors import Refusal

QUESTIONS = 20
"""By default: what two cores finish in less than a minute and a half. More questions give narrower intervals."""
FEWEST = 4


@dataclass(frozen=True)
class Sizes:
    """How many of each. `questions` are asked in every context; tracing and writing under masks cost more, so there are fewer of those.

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
        """Descriptions whose writing is recorded at every step."""
        return max(2, 3 * self.questions // 16)

    @property
    def two_hop(self) -> int:
        """Two-hop questions in every layout."""
        return max(2, 2 * self.questions // 5)

    @property
    def masked(self) -> int:
        """Questions whose answer's likelihood is taken under masking."""
        return max(2, 2 * self.questions // 5)

    @property
    def described(self) -> int:
        """Descriptions that are written under masking."""
        return max(2, self.questions // 5)
