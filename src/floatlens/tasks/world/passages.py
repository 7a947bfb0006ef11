"""Sets of passages about people, with or without relations between them.

Decided here: every passage of a set holds the same attributes, its sentences stand in any order with fillers among them, and it ends with
a new line. Refused: layouts that do not exist or need more passages than there are.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from floatlens.errors import Refusal
from floatlens.tasks.world.people import Person, Values, Words, draw_people, draw_values, fact, filler, relation_fact
from floatlens.tasks.world.words import ATTRIBUTES, NEWLINE

LAYOUTS = ("one", "adjacent", "far")


def passage(rng: Random, sentences: Sequence[Words], fillers: int) -> Words:
    """Sentences in any order, with fillers among them, and a new line.

    Examples
    --------
    >>> marta = Person("Marta", "Olsen")
    >>> " ".join(passage(Random(1), [fact(marta, ATTRIBUTES[1], "Oslo"), fact(marta, ATTRIBUTES[2], "cat")], fillers=0))
    'Marta Olsen keeps a cat . Marta Olsen lives in Oslo . \\n'
    """
    mixed = [*sentences, *(filler(rng) for _ in range(fillers))]
    rng.shuffle(mixed)
    return [word for sentence in mixed for word in sentence] + [NEWLINE]


@dataclass(frozen=True)
class Reading:
    """A set of passages: whose they are, what they say, and where each stands."""

    people: list[Person]
    values: list[Values]
    words: Words
    spans: list[tuple[int, int]]


def reading(
    rng: Random,
    people: list[Person],
    values: list[Values],
    fillers: int = 1,
    attributes: Sequence[int] = range(len(ATTRIBUTES)),
    extra: Sequence[Sequence[Words]] = (),
) -> Reading:
    """Passages about these people in this order, each with the chosen attributes and its extra sentences.

    Examples
    --------
    >>> people = [Person("Marta", "Olsen"), Person("Ben", "Reed")]
    >>> read = reading(Random(0), people, draw_values(Random(0), 2), fillers=0, attributes=[1])
    >>> read.spans, " ".join(read.words[:6])
    ([(0, 7), (7, 14)], 'Marta Olsen lives in Bern .')
    """
    words: Words = []
    spans = []
    for number, (person, own) in enumerate(zip(people, values, strict=True)):
        sentences = [fact(person, ATTRIBUTES[index], own[index]) for index in attributes] + [*(extra[number] if extra else ())]
        written = passage(rng, sentences, fillers)
        spans.append((len(words), len(words) + len(written)))
        words += written
    return Reading(people, values, words, spans)


@dataclass(frozen=True)
class Linked:
    """Passages with a relation in each. `links` are (whose relation, the slot of the passage about the other); one of them is asked for."""

    read: Reading
    links: list[tuple[Person, int]]
    asked_link: int
    evidence: tuple[int, ...]


def linked_reading(rng: Random, pool: Sequence[Person], passages: int, layout: str, relation: str, fillers: int = 1) -> Linked:
    """Passages for two-hop questions.

    "one": each passage also says whose friend its person is. "adjacent", "far": each passage names its person's friend, the one asked for
    being in a neighbouring passage, or at least half of the passages away.

    Examples
    --------
    >>> from floatlens.tasks.world.people import make_world
    >>> linked = linked_reading(Random(0), make_world().test, 6, "far", "friend")
    >>> abs(linked.evidence[0] - linked.evidence[1]) >= 3
    True
    """
    if layout not in LAYOUTS:
        raise Refusal(f"There is no layout {layout!r}; the layouts are {', '.join(LAYOUTS)}.")
    if layout != "one" and passages < 3:
        raise Refusal(f"Two passages {layout} need at least three passages in all, not {passages}.")
    if passages < 1:
        raise Refusal(f"A two-hop question needs a passage to be answered from, not {passages} passages.")
    values = draw_values(rng, passages)
    if layout == "one":
        drawn = draw_people(rng, pool, 2 * passages)
        people, others = drawn[:passages], drawn[passages:]
        gold = rng.randrange(passages)
        extra = [[relation_fact(other, relation, person)] for other, person in zip(others, people, strict=True)]
        links = [(other, slot) for slot, other in enumerate(others)]
        return Linked(reading(rng, people, values, fillers, extra=extra), links, gold, (gold,))
    people = draw_people(rng, pool, passages)
    start, gold = rng.choice(_pairs_of_slots(passages, layout))
    friends = everybodys_friend(rng, passages, start, gold)
    extra = [[relation_fact(people[own], relation, people[friend])] for own, friend in enumerate(friends)]
    return Linked(reading(rng, people, values, fillers, extra=extra), list(zip(people, friends, strict=True)), start, (start, gold))


def _pairs_of_slots(passages: int, layout: str) -> list[tuple[int, int]]:
    pairs = [(first, second) for first in range(passages) for second in range(passages) if first != second]
    if layout == "adjacent":
        return [(first, second) for first, second in pairs if abs(first - second) == 1]
    return [(first, second) for first, second in pairs if 2 * abs(first - second) >= passages]


def everybodys_friend(rng: Random, people: int, start: int, gold: int) -> list[int]:
    """A friend for each of at least two people, everybody once and nobody their own; that of `start` is `gold`.

    Examples
    --------
    >>> friends = everybodys_friend(Random(0), 4, start=2, gold=0)
    >>> friends[2], sorted(friends), any(friend == own for own, friend in enumerate(friends))
    (0, [0, 1, 2, 3], False)
    """
    while True:
        friends = rng.sample(range(people), people)
        other = friends.index(gold)
        friends[other], friends[start] = friends[start], gold
        if all(friend != own for own, friend in enumerate(friends)):
            return friends
