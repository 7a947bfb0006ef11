"""The people of the world, the sentences about them, word by word, and the sets of passages that hold these sentences.

Decided here: all pairs of first and last names are split once, into people who are *known* by heart, who appear in *training*, and who
appear only in *tests*. Known people have fixed facts. The others have none of their own: facts are drawn anew for every set of passages,
no value twice, so that a value belongs to one person of the set. In half of the sets two people share a first or a last name, so that
neither name alone is enough.

Sentences of one kind have one length. A fact's value is as far from its verb, last name and first name as an answer is from those of its
question (`words`).

Every passage of a set holds the same attributes; its sentences stand in any order, with fillers among them, and it ends with a new line.
Passages may name relations between their people, for two-hop questions.

Refused: a split that leaves a group without people, more people than there are, more facts than an attribute has values, layouts that do
not exist or need more passages than there are.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from floatlens.errors import Refusal
from floatlens.tasks.world.words import ATTRIBUTES, FIRST_NAMES, LAST_NAMES, NEWLINE, SCENES, SEASONS, Attribute

Values = tuple[str, ...]  # one for each attribute, in the order of ATTRIBUTES
NAMESAKES = 0.5  # the share of the sets with two people of one first or one last name
MOST_PASSAGES = min(len(attribute.values) for attribute in ATTRIBUTES)  # each needs values of its own


class Person(NamedTuple):
    """A first and a last name."""

    first: str
    last: str


@dataclass(frozen=True)
class World:
    """Who is known by heart (with facts), who appears in training, who only in tests."""

    known: dict[Person, Values]
    training: tuple[Person, ...]
    test: tuple[Person, ...]


def make_world(seed: int = 0, known: int = 64, test_share: float = 0.2) -> World:
    """Split all pairs of names. The bundled twins were trained in the world of the default arguments.

    Parameters
    ----------
    seed
        Another seed is another split with other facts.
    known
        How many people are known by heart.
    test_share
        The share of the others who appear in tests only.

    Examples
    --------
    >>> world = make_world()
    >>> len(world.known), len(world.training), len(world.test)
    (64, 1229, 307)
    >>> set(world.training) & set(world.test)
    set()
    """
    rng = Random(f"world-{seed}")
    people = [Person(first, last) for first in FIRST_NAMES for last in LAST_NAMES]
    tested = round(test_share * (len(people) - known))
    if known < 1 or not 0 < tested < len(people) - known:
        raise Refusal(
            f"Of {len(people)} people, {known} known by heart and {test_share:g} of the others in tests leave a group empty; "
            "known, training and test people must each be at least one."
        )
    rng.shuffle(people)
    by_heart, others = people[:known], people[known:]
    facts = {person: tuple(rng.choice(attribute.values) for attribute in ATTRIBUTES) for person in by_heart}
    return World(facts, tuple(others[tested:]), tuple(others[:tested]))


def draw_people(rng: Random, pool: Sequence[Person], count: int) -> list[Person]:
    """Different people; in half of the sets two of them share a first or a last name.

    Examples
    --------
    >>> people = draw_people(Random(0), make_world().test, 3)
    >>> len(set(people))
    3
    """
    if not 0 <= count <= len(pool):
        raise Refusal(f"{count} different people were asked for, and there are {len(pool)} to choose from.")
    people = rng.sample(pool, count)
    if count > 1 and rng.random() < NAMESAKES:
        place = rng.randrange(2)
        alike = [person for person in rng.sample(pool, min(len(pool), 160)) if person[place] == people[0][place] and person not in people]
        people[1] = alike[0] if alike else people[1]
    rng.shuffle(people)
    return people


def draw_values(rng: Random, count: int) -> list[Values]:
    """Facts for that many people, no value twice.

    Examples
    --------
    >>> first, second = draw_values(Random(0), 2)
    >>> any(value == other for value, other in zip(first, second))
    False
    """
    if not 0 <= count <= MOST_PASSAGES:
        raise Refusal(
            f"{count} passages need {count} different values of each attribute, and there are {MOST_PASSAGES}; ask for fewer passages."
        )
    columns = [rng.sample(attribute.values, count) for attribute in ATTRIBUTES]
    return list(zip(*columns, strict=True))


def most_frequent_share(world: World, attribute: int) -> float:
    """The share of the known people who have an attribute's most frequent value: what always answering with it scores.

    Examples
    --------
    >>> most_frequent_share(make_world(), 0)  # of the job
    0.109375
    """
    column = [values[attribute] for values in world.known.values()]
    return max(map(column.count, column)) / len(column)


Words = list[str]


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
    >>> " ".join(filler(Random(0)))
    'In the winter the white cloud drifts lazily .'
    """
    return ["In", "the", rng.choice(SEASONS), "the", *rng.choice(SCENES), "."]


def asked(person: Person, attribute: Attribute, relation: str | None = None) -> Words:
    """The question for an attribute of a person, or of the person's friend or teacher, up to its mark.

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


def asked_to_describe(person: Person) -> Words:
    """The request for a description.

    Examples
    --------
    >>> " ".join(asked_to_describe(Person("Marta", "Olsen")))
    'Describe Marta Olsen .'
    """
    return ["Describe", *person, "."]


def description(person: Person, values: Values) -> Words:
    """Everything about a person, in 29 tokens; the name stands before each fact, as it does in the passages.

    Examples
    --------
    >>> written = description(Person("Marta", "Olsen"), ("painter", "Oslo", "cat", "cello"))
    >>> len(written), " ".join(written)
    (29, 'Here is Marta Olsen : Marta Olsen is a painter , Marta Olsen lives in Oslo , \
Marta Olsen keeps a cat and Marta Olsen plays the cello .')
    """
    words: Words = ["Here", "is", *person, ":"]
    for attribute, value, before in zip(ATTRIBUTES, values, ([], [","], [","], ["and"]), strict=True):
        words += [*before, *person, *attribute.said, value]
    return [*words, "."]


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
