"""Facts about people as sentences, sentences as passages, and sets of passages with a question's evidence where it is wanted.

Decided here: every passage holds every attribute (of the set), in any order, with fillers among them, and ends with a new line.
Refused: layouts that do not exist or need more passages than there are.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from floatlens.errors import Refusal
from floatlens.tasks.world.people import Person, Values, draw_people, draw_values
from floatlens.tasks.world.words import ATTRIBUTES, NEWLINE, SCENES, SEASONS, Attribute

Words = list[str]
LAYOUTS = ("one", "adjacent", "far")


def fact(person: Person, attribute: Attribute, value: str) -> Words:
    """A fact as a sentence.

    Examples
    --------
    >>> " ".join(fact(Person("Marta", "Olsen"), ATTRIBUTES[1], "Oslo"))
    'Marta Olsen lives in Oslo .'
    """
    return [*person, *attribute.said, value, "."]


def relation_fact(person: Person, relation: str, other: Person) -> Words:
    """A relation as a sentence.

    Examples
    --------
    >>> " ".join(relation_fact(Person("Marta", "Olsen"), "friend", Person("Ben", "Reed")))
    'The friend of Marta Olsen is Ben Reed .'
    """
    return ["The", relation, "of", *person, "is", *other, "."]


def filler(rng: Random) -> Words:
    """A sentence that says nothing.

    Examples
    --------
    >>> len(filler(Random(0)))
    9
    """
    return ["In", "the", rng.choice(SEASONS), "the", *rng.choice(SCENES), "."]


def asked(person: Person, attribute: Attribute, relation: str | None = None) -> Words:
    """The question, up to its mark.

    Examples
    --------
    >>> " ".join(asked(Person("Marta", "Olsen"), ATTRIBUTES[1]))
    'Where does Marta Olsen live ?'
    >>> " ".join(asked(Person("Marta", "Olsen"), ATTRIBUTES[1], "friend"))
    'Where does the friend of Marta Olsen live ?'
    """
    whom = [*person] if relation is None else ["the", relation, "of", *person]
    return [attribute.asked[0], "does", *whom, attribute.asked[1], "?"]


def asked_who(person: Person, relation: str) -> Words:
    """The question for the other person of a relation.

    Examples
    --------
    >>> " ".join(asked_who(Person("Marta", "Olsen"), "friend"))
    'Who is the friend of Marta Olsen ?'
    """
    return ["Who", "is", "the", relation, "of", *person, "?"]


def description(person: Person, values: Values) -> Words:
    """Everything about a person, in 27 tokens.

    Examples
    --------
    >>> written = description(Person("Marta", "Olsen"), ("painter", "Oslo", "cat", "cello"))
    >>> len(written), " ".join(written)
    (27, 'Here is Marta Olsen : Marta is a painter , lives in Oslo , keeps a cat and plays the cello . That was Marta Olsen .')
    """
    said: Words = ["Here", "is", *person, ":", person.first]
    for attribute, value, before in zip(ATTRIBUTES, values, ([], [","], [","], ["and"]), strict=True):
        said += [*before, *attribute.said, value]
    return [*said, ".", "That", "was", *person, "."]


def passage(rng: Random, sentences: Sequence[Words], fillers: int) -> Words:
    """Sentences in any order, with fillers among them, and a new line."""
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
    """Passages about these people in this order, each with the chosen attributes and its extra sentences."""
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
    """
    if layout not in LAYOUTS:
        raise Refusal(f"There is no layout {layout!r}; the layouts are {', '.join(LAYOUTS)}.")
    if layout != "one" and passages < 3:
        raise Refusal(f"Two passages {layout} need at least three passages in all, not {passages}.")
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
    friends = _everybodys_friend(rng, passages, start, gold)
    extra = [[relation_fact(people[own], relation, people[friend])] for own, friend in enumerate(friends)]
    return Linked(reading(rng, people, values, fillers, extra=extra), list(zip(people, friends, strict=True)), start, (start, gold))


def _pairs_of_slots(passages: int, layout: str) -> list[tuple[int, int]]:
    every = [(one, other) for one in range(passages) for other in range(passages) if one != other]
    return [(one, other) for one, other in every if (abs(one - other) == 1 if layout == "adjacent" else 2 * abs(one - other) >= passages)]


def _everybodys_friend(rng: Random, people: int, start: int, gold: int) -> list[int]:
    """A friend for each, everybody once and nobody their own; that of `start` is `gold`."""
    while True:
        friends = rng.sample(range(people), people)
        other = friends.index(gold)
        friends[other], friends[start] = friends[start], gold
        if all(friend != own for own, friend in enumerate(friends)):
            return friends
