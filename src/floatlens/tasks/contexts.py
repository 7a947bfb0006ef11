"""What stands before a question: which of a sample's passages, and in which order.

A `Context` is a small frozen value with a text for files and the command line; `arrange` gives the passages. The result depends on the
sample and the context alone, so that the same question in other contexts is the same question: comparisons are paired.

    closed-book            no passages
    gold                   all gold passages, and nothing else
    retrieved:5            the first 5 as they were given, right or wrong; conflicting ones left out
    noise:0.4              of 5 passages, ceil(5 * 0.4) = 2 are distractors, the others gold
    noise:0.4,passages=10  of 10 passages
    noise:0.4,gold=1       2 distractors and one gold passage, 3 in all: for questions that have no more than one
    position:3/10          gold at slot 3 of 10 (slots count from 1), distractors elsewhere
    layout:far             two gold passages far apart (by half of the passages or more), among 5 - 2 distractors;
    layout:one, layout:adjacent    the two joined into one, or side by side
    conflict               gold and a passage that contradicts it, among distractors, 5 passages in all

Decided here:

- **Fewer gold passages than there are** may be shown only where each holds an answer: then they say the same thing, and the first ones
  are taken. Where one of them holds none, they are pieces of one argument (two-hop) and stand together or not at all.
- **Distractors are the first of those given that hold no answer** (normalised containment, title included), so a larger context holds the
  distractors of a smaller one.
- Passages are mixed in a random order that is drawn once from the sample's id, so two passages keep their order from one noise level to
  the next.

Refused, with the sample's id and how many there are: too few gold passages, distractors or conflicting passages; one slot for evidence
that lies in several passages.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import ClassVar

from floatlens.errors import Refusal
from floatlens.tasks.samples import Passage, Sample
from floatlens.tasks.scoring import contains_any

GOLD = "gold passages"
LAYOUTS = ("one", "adjacent", "far")
PASSAGES = 5
"""How many passages stand before a question where the context does not say."""


@dataclass(frozen=True)
class Context:
    """What all contexts share: the kind's name, a number to plot it against where it has one, and a text."""

    kind: ClassVar[str] = ""

    @property
    def level(self) -> float | None:
        """Where it stands among contexts of its kind; None where that is no number."""
        return None

    @property
    def text(self) -> str:
        """As files and the command line have it."""
        return self.kind


@dataclass(frozen=True)
class ClosedBook(Context):
    """No passages.

    Examples
    --------
    >>> arrange(Sample("a", "Where?", ("Oslo",), (Passage("Oslo."),), gold=(0,)), ClosedBook())
    ()
    """

    kind = "closed-book"


@dataclass(frozen=True)
class GoldOnly(Context):
    """All gold passages, as the sample names them, and nothing else.

    Examples
    --------
    >>> GoldOnly().text
    'gold'
    """

    kind = "gold"


@dataclass(frozen=True)
class Retrieved(Context):
    """The first passages as they were given, best first.

    Examples
    --------
    >>> Retrieved(5).text
    'retrieved:5'
    """

    kind = "retrieved"
    count: int = 5

    def __post_init__(self) -> None:
        _refuse_below(self, "count", self.count, 1)

    @property
    def level(self) -> float:
        return float(self.count)

    @property
    def text(self) -> str:
        return f"{self.kind}:{self.count}"


@dataclass(frozen=True)
class Noise(Context):
    """Of `passages` passages, ceil(passages * share) are distractors and the others gold, or only `gold` of the others.

    Examples
    --------
    >>> Noise(0.4).distractors, Noise(0.5).distractors, Noise(0.4).text
    (2, 3, 'noise:0.4')
    >>> Noise(0.4).evidence, Noise(0.4, gold=1).evidence, Noise(0.4, gold=1).text
    (3, 1, 'noise:0.4,gold=1')
    """

    kind = "noise"
    share: float
    passages: int = PASSAGES
    gold: int | None = None

    def __post_init__(self) -> None:
        _refuse_below(self, "passages", self.passages, 1)
        if not 0 <= self.share < 1:
            raise Refusal(f"noise: {self.share:g} is not the share of distractors; it lies from 0 up to below 1, such as 0.4.")
        if self.distractors == self.passages:
            raise Refusal(f"{self.text}: all {self.passages} passages would be distractors. Choose a smaller share or more passages.")
        if self.gold is not None and not 1 <= self.gold <= self.passages - self.distractors:
            left = self.passages - self.distractors
            raise Refusal(f"{self.text}: {left} of {self.passages} places are left for gold passages, so gold= lies from 1 to {left}.")

    @property
    def evidence(self) -> int:
        """How many of the passages are gold."""
        return self.passages - self.distractors if self.gold is None else self.gold

    @property
    def distractors(self) -> int:
        """How many of the passages are distractors. Decimals count as written: 5 * 0.6 is 3."""
        return math.ceil(round(self.passages * self.share, 9))

    @property
    def level(self) -> float:
        return self.share

    @property
    def text(self) -> str:
        short = f"{self.share:g}"
        share = short if float(short) == self.share else repr(self.share)  # the text says exactly which share it was
        return f"{self.kind}:{share}{_passages_text(self.passages)}{'' if self.gold is None else f',gold={self.gold}'}"


@dataclass(frozen=True)
class Position(Context):
    """Gold at one slot of several; slots count from 1.

    Examples
    --------
    >>> Position(3, 10).text, Position(3, 10).level
    ('position:3/10', 3.0)
    """

    kind = "position"
    slot: int
    passages: int

    def __post_init__(self) -> None:
        if not 1 <= self.slot <= self.passages:
            raise Refusal(f"position: slot {self.slot} of {self.passages} does not exist; slots count from 1, as in position:3/10.")

    @property
    def level(self) -> float:
        return float(self.slot)

    @property
    def text(self) -> str:
        return f"{self.kind}:{self.slot}/{self.passages}"


@dataclass(frozen=True)
class Layout(Context):
    """Two gold passages among `passages` - 2 distractors: joined into "one", "adjacent", or "far" apart, by half of the passages or more.

    Examples
    --------
    >>> Layout("far").text
    'layout:far'
    """

    kind = "layout"
    where: str
    passages: int = PASSAGES

    def __post_init__(self) -> None:
        _refuse_below(self, "passages", self.passages, 3)
        if self.where not in LAYOUTS:
            raise Refusal(f"There is no layout {self.where!r}; the layouts are {', '.join(LAYOUTS)}.")

    @property
    def text(self) -> str:
        return f"{self.kind}:{self.where}{_passages_text(self.passages)}"


@dataclass(frozen=True)
class Conflict(Context):
    """Gold and one passage that contradicts it, among distractors.

    Examples
    --------
    >>> Conflict(8).text
    'conflict,passages=8'
    """

    kind = "conflict"
    passages: int = PASSAGES

    def __post_init__(self) -> None:
        _refuse_below(self, "passages", self.passages, 2)

    @property
    def text(self) -> str:
        return f"{self.kind}{_passages_text(self.passages)}"


def arrange(sample: Sample, context: Context) -> tuple[Passage, ...]:
    """The passages that stand before the question, in order.

    Examples
    --------
    >>> towns = [Passage(f"{name} lives in {town}.") for name, town in (("Ada", "Oslo"), ("Ben", "Rome"), ("Cy", "Bern"))]
    >>> sample = Sample("towns", "Where does Ada live?", ("Oslo",), tuple(towns), gold=(0,))
    >>> [passage.text for passage in arrange(sample, Position(2, 3))]
    ['Ben lives in Rome.', 'Ada lives in Oslo.', 'Cy lives in Bern.']
    """
    match context:
        case ClosedBook():
            return ()
        case GoldOnly():
            return _first(sample.evidence, max(len(sample.gold), 1), sample, context, GOLD)
        case Retrieved(count):
            ranked = [passage for passage in sample.passages if not passage.conflicting]
            return _first(ranked, count, sample, context, "passages")
        case Noise():
            return _mixed(
                sample,
                [*_evidence(sample, context, context.evidence), *_others(sample, context.distractors, context)],
            )
        case Position(slot, passages):
            others = _others(sample, passages - 1, context)
            return (*others[: slot - 1], *_evidence(sample, context, 1), *others[slot - 1 :])
        case Layout():
            return _laid_out(sample, context)
        case Conflict(passages):
            shown = [*_evidence(sample, context), *_first(sample.conflicts, 1, sample, context, "conflicting passages")]
            if len(shown) > passages:
                raise Refusal(
                    f"{context.text}: sample {sample.id} needs {len(shown)} passages for gold and conflict alone. Ask for more passages."
                )
            return _mixed(sample, [*shown, *_others(sample, passages - len(shown), context)])
    raise Refusal(f"{context!r} is not a context that floatlens knows how to arrange.")


def holds_evidence(sample: Sample, passage: Passage) -> bool:
    """Whether a passage that `arrange` placed is gold, or gold passages joined.

    Examples
    --------
    >>> sample = Sample("a", "Where?", ("Oslo",), (Passage("In Rome."), Passage("In Oslo.")), gold=(1,))
    >>> [holds_evidence(sample, passage) for passage in sample.passages]
    [False, True]
    """
    return passage in sample.evidence or (len(sample.gold) == 2 and passage in (_joined(sample.evidence), _joined(sample.evidence[::-1])))


def _holds_answer(sample: Sample, passage: Passage) -> bool:
    return contains_any(f"{passage.title} {passage.text}", sample.answers)


def _evidence(sample: Sample, context: Context, count: int | None = None) -> tuple[Passage, ...]:
    """The first gold passages, where each of them is enough; otherwise all. Without a count, as few as that allows."""
    together = not all(_holds_answer(sample, passage) for passage in sample.evidence) and len(sample.gold) > 1
    count = count or (len(sample.gold) if together else 1)
    if together and count != len(sample.gold):
        raise Refusal(
            f"{context.text} places {count} of the {len(sample.gold)} gold passages of sample {sample.id}, "
            "and they are needed together: not each holds an answer."
        )
    return _first(sample.evidence, count, sample, context, GOLD)


def _others(sample: Sample, count: int, context: Context) -> tuple[Passage, ...]:
    """The first distractors that hold no answer."""
    return _first(
        [passage for passage in sample.distractors if not _holds_answer(sample, passage)],
        count,
        sample,
        context,
        "distractors without an answer",
    )


def _first(passages: Sequence[Passage], count: int, sample: Sample, context: Context, what: str) -> tuple[Passage, ...]:
    if len(passages) < count:
        fewer = "show fewer gold ones with gold=1" if isinstance(context, Noise) and what == GOLD else "ask for fewer passages"
        raise Refusal(
            f"{context.text} needs {count} {what}, and sample {sample.id} has {len(passages)}. Find more of them in a corpus, "
            f"{fewer}, or leave such samples out."
        )
    return tuple(passages[:count])


def _mixed(sample: Sample, passages: Sequence[Passage]) -> tuple[Passage, ...]:
    """Passages of a sample in their random order."""
    ranks = Random(f"order of passages of {sample.id}").sample(range(len(sample.passages)), len(sample.passages))
    return tuple(sorted(passages, key=lambda passage: ranks[sample.passages.index(passage)]))


def _laid_out(sample: Sample, context: Layout) -> tuple[Passage, ...]:
    if len(sample.gold) != 2:
        raise Refusal(f"{context.text} places two gold passages, and sample {sample.id} has {len(sample.gold)}. Use two-hop questions.")
    others = list(_mixed(sample, _others(sample, context.passages - 2, context)))
    random = Random(f"layout of {sample.id}")
    first, second = sample.evidence if random.random() < 0.5 else sample.evidence[::-1]
    start = random.randrange(context.passages - 1)
    if context.where == "one":
        return (*others[:start], _joined((first, second)), *others[start:])
    if context.where == "adjacent":
        return (*others[:start], first, second, *others[start:])
    reach = range(math.ceil(context.passages / 2), context.passages)
    before, behind = random.choice([(slot, slot + apart) for apart in reach for slot in range(context.passages - apart)])
    others.insert(before, first)
    others.insert(behind, second)
    return tuple(others)


def _joined(passages: Sequence[Passage]) -> Passage:
    titles = " / ".join(passage.title for passage in passages if passage.title)
    return replace(passages[0], text=" ".join(passage.text for passage in passages), title=titles)


def _refuse_below(context: Context, name: str, value: int, least: int) -> None:
    if value < least:
        raise Refusal(f"{context.kind}: {name}={value} must be at least {least}.")


def _passages_text(passages: int) -> str:
    return "" if passages == PASSAGES else f",passages={passages}"
