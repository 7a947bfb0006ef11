"""Keep training and evaluation apart: no sequence of 13 words of an evaluation question or passage occurs in what is trained on.

Words are compared in lower case, without punctuation. `Protected` holds the 13-grams of all evaluation texts and whole evaluation
questions, which are often shorter. `split_by_title` divides one file into questions to train on and questions to hold out so that both
parts share neither a passage title nor a 13-gram: questions that share one are kept together, and those that share one with an evaluation
text are held out.

Refused: a split with fewer questions left to train on than it asks for, and training texts that overlap with the evaluation
(`refuse_overlap`).
"""

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from floatlens.errors import Refusal
from floatlens.tasks.samples import Sample

GRAM = 13
_WORD = re.compile(r"[^\W_]+")


def words_of(text: str) -> list[str]:
    """The words of a text as they are compared.

    Examples
    --------
    >>> words_of("Who won, in 1901?")
    ['who', 'won', 'in', '1901']
    """
    return _WORD.findall(text.lower())


def grams(text: str) -> Iterator[str]:
    """All sequences of 13 words of a text; none if it has fewer words.

    Examples
    --------
    >>> [len(list(grams("word " * count))) for count in (12, 13, 15)]
    [0, 1, 3]
    """
    words = words_of(text)
    for start in range(len(words) - GRAM + 1):
        yield " ".join(words[start : start + GRAM])


def texts_of(sample: Sample, *, gold_only: bool = False) -> list[str]:
    """The question and the passages of a sample, each with its title."""
    passages = sample.evidence if gold_only else sample.passages
    return [sample.question, *(f"{passage.title}\n{passage.text}" for passage in passages)]


@dataclass(frozen=True)
class Protected:
    """What may not be trained on: 13-grams, and whole questions.

    Examples
    --------
    >>> protected = protect([Sample("a", "Who won the prize?", ("Ada",))])
    >>> protected.overlap("Someone asked: who won the prize?"), protected.repeats("who won the PRIZE")
    (None, True)
    """

    grams: frozenset[str]
    questions: frozenset[str]

    def overlap(self, text: str) -> str | None:
        """The first 13-gram of a text that is protected."""
        return next((gram for gram in grams(text) if gram in self.grams), None)

    def repeats(self, question: str) -> bool:
        """Whether a question is one of the evaluation, word for word."""
        return " ".join(words_of(question)) in self.questions

    def touches(self, sample: Sample) -> bool:
        """Whether a question or its gold passages overlap with the evaluation."""
        return self.repeats(sample.question) or any(self.overlap(text) is not None for text in texts_of(sample, gold_only=True))

    def joined(self, other: "Protected") -> "Protected":
        return Protected(self.grams | other.grams, self.questions | other.questions)


def protect(samples: Iterable[Sample], *, gold_only: bool = False) -> Protected:
    """Protect the questions and passages of an evaluation; with `gold_only`, of the passages only the gold ones."""
    protected, questions = set[str](), set[str]()
    for sample in samples:
        questions.add(" ".join(words_of(sample.question)))
        for text in texts_of(sample, gold_only=gold_only):
            protected.update(grams(text))
    return Protected(frozenset(protected), frozenset(questions))


@dataclass(frozen=True)
class Split:
    """The questions to train on and those that are held out, each in the order of the file."""

    train: tuple[Sample, ...]
    held_out: tuple[Sample, ...]


def split_by_title(
    samples: Sequence[Sample], train: int, protected: Protected, *, hold_out_first: int = 0, where: str = "the file"
) -> Split:
    """Divide questions so that the parts share no passage title, question or 13-gram.

    Parameters
    ----------
    samples
        The questions of a file, with gold passages.
    train
        How many to train on, exactly.
    protected
        What is evaluated on besides; questions that overlap with it are held out.
    hold_out_first
        How many of the first questions of the file must be held out.
    where
        The file, for refusals.

    Examples
    --------
    >>> from floatlens.tasks.samples import Passage
    >>> asked = [Sample(str(n), f"Question {n}?", ("a",), (Passage("...", title=f"Town {n // 2}"),), gold=(0,)) for n in range(8)]
    >>> split = split_by_title(asked, 4, protect([]), hold_out_first=1)
    >>> len(split.train), "0" in [sample.id for sample in split.held_out], "1" in [sample.id for sample in split.held_out]
    (4, True, True)
    """
    groups = _groups(samples)
    held = {group for number, group in enumerate(groups) if number < hold_out_first or protected.touches(samples[number])}
    members = defaultdict(list)
    for number, group in enumerate(groups):
        members[group].append(number)
    free = [group for group in members if group not in held]
    free.sort(
        key=lambda group: hashlib.sha256(samples[members[group][0]].id.encode()).hexdigest()
    )  # the order of the file may mean something
    chosen: set[int] = set()
    for group in free:
        if len(chosen) + len(members[group]) <= train:
            chosen.update(members[group])
    if len(chosen) < train:
        raise Refusal(
            f"{where}: only {len(chosen):,} of {len(samples):,} questions can be trained on without sharing a passage with "
            "those that are held out, "
            f"and the recipe asks for {train:,}. Lower train."
        )
    everyone = range(len(samples))
    return Split(tuple(samples[n] for n in everyone if n in chosen), tuple(samples[n] for n in everyone if n not in chosen))


def _groups(samples: Sequence[Sample]) -> list[int]:
    """For each question, the first one it is connected with: by a title, by its words, or by a 13-gram."""
    first = list(range(len(samples)))

    def root(number: int) -> int:
        while first[number] != number:
            first[number] = first[first[number]]
            number = first[number]
        return number

    seen: dict[str, int] = {}
    for number, sample in enumerate(samples):
        titles = {f"title {' '.join(words_of(passage.title))}" for passage in sample.evidence if passage.title}
        own = {gram for text in texts_of(sample, gold_only=True) for gram in grams(text)}
        for key in {*titles, f"question {' '.join(words_of(sample.question))}", *own}:
            known, here = root(seen.setdefault(key, number)), root(number)
            first[max(known, here)] = min(known, here)
    return [root(number) for number in range(len(samples))]


def refuse_overlap(texts: Iterable[str], protected: Protected, where: str) -> None:
    """Refuse training texts that hold a 13-gram of the evaluation.

    Examples
    --------
    >>> text = "one two three four five six seven eight nine ten eleven twelve thirteen"
    >>> refuse_overlap(["And " + text], protect([Sample("a", text, ("x",))]), "stories.txt")
    Traceback (most recent call last):
    floatlens.errors.Refusal: stories.txt holds 13 words that an evaluation text has too: 'one two three four five six seven \
eight nine ten eleven twelve thirteen'. Leave that text out of the training data.
    """
    for text in texts:
        if (gram := protected.overlap(text)) is not None:
            raise Refusal(
                f"{where} holds {GRAM} words that an evaluation text has too: {gram!r}. Leave that text out of the training data."
            )
