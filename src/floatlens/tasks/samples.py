"""A question with its answers and what can be read about it.

All readers and the synthetic world give `Sample`s; contexts arrange their passages, and never change the id: variants of one question are
compared pairwise. Refused: a sample without question or answers, empty passages, gold that names no passage.
"""

from dataclasses import dataclass

from floatlens.errors import Refusal


@dataclass(frozen=True)
class Passage:
    """A text to read. `conflicting`: it contradicts the gold passages."""

    text: str
    title: str = ""
    conflicting: bool = False


@dataclass(frozen=True)
class Sample:
    """A question, every answer that counts as right, and passages: as they were given, best first. `gold` are the indices of those that
    hold the evidence.

    Examples
    --------
    >>> passages = (Passage("Ben lives in Rome."), Passage("Marta lives in Oslo."))
    >>> sample = Sample("nq-1", "Where does Marta live?", ("Oslo",), passages, gold=(1,))
    >>> sample.evidence[0].text, sample.distractors[0].text
    ('Marta lives in Oslo.', 'Ben lives in Rome.')
    """

    id: str
    question: str
    answers: tuple[str, ...]
    passages: tuple[Passage, ...] = ()
    gold: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not self.question.strip():
            raise Refusal(f"Sample {self.id} has no question.")
        if not any(answer.strip() for answer in self.answers):
            raise Refusal(f"Sample {self.id} has no answer, so nothing it is given could be scored.")
        for number, passage in enumerate(self.passages):
            if not passage.text.strip():
                raise Refusal(f"Passage {number} of sample {self.id} is empty (passages count from 0).")
        for slot in self.gold:
            if not 0 <= slot < len(self.passages):
                raise Refusal(
                    f"Sample {self.id} says that passage {slot} is gold, but it has {len(self.passages)} passages, which count from 0."
                )

    @property
    def evidence(self) -> tuple[Passage, ...]:
        """The gold passages, in the order in which the sample names them."""
        return tuple(self.passages[slot] for slot in self.gold)

    @property
    def distractors(self) -> tuple[Passage, ...]:
        """The passages that are neither gold nor conflicting."""
        return tuple(passage for slot, passage in enumerate(self.passages) if slot not in self.gold and not passage.conflicting)

    @property
    def conflicts(self) -> tuple[Passage, ...]:
        """The passages that contradict the gold ones."""
        return tuple(passage for passage in self.passages if passage.conflicting)
