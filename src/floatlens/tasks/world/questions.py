"""Questions about the world, as tests ask them: one a prompt, with what counts as right and what ignoring the person would score.

Open-book (gold at any slot), closed-book, two-hop (evidence in one passage, two adjacent ones or two far apart), conflicting passages, descriptions. Prompts of one
kind and size have one length. `regions` name the passages (`doc_1`, ...) and the question (`query`) as spans of words; the tokenizer's `text_of` turns them into spans of characters.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from floatlens.errors import Refusal
from floatlens.tasks.world.passages import Reading, Words, asked, description, linked_reading, reading
from floatlens.tasks.world.people import Person, World, draw_people, draw_values
from floatlens.tasks.world.words import ATTRIBUTES, RELATIONS


@dataclass(frozen=True)
class Question:
    """A prompt and its answer, in words. `regions` are spans of words of the prompt."""

    kind: str
    prompt: Words
    answer: Words
    accepted: tuple[str, ...]
    shortcut: float
    regions: dict[str, tuple[int, int]] = field(default_factory=dict)
    gold_slots: tuple[int, ...] = ()


def _with_regions(read: Reading, query: Words) -> tuple[Words, dict[str, tuple[int, int]]]:
    regions = {f"doc_{number + 1}": span for number, span in enumerate(read.spans)}
    return read.words + query, regions | {"query": (len(read.words), len(read.words) + len(query))}


def open_book(rng: Random, pool: Sequence[Person], passages: int = 6, gold: int | None = None, fillers: int = 1) -> Question:
    """A question whose answer stands in one of the passages.

    Examples
    --------
    >>> from floatlens.tasks.world.people import make_world
    >>> question = open_book(Random(0), make_world().test, passages=2, gold=1)
    >>> question.shortcut, question.gold_slots, question.answer[1]
    (0.5, (1,), '.')
    """
    slot = rng.randrange(passages) if gold is None else gold
    if not 0 <= slot < passages:
        raise Refusal(f"Slot {slot} does not exist among {passages} passages, which count from 0.")
    read = reading(rng, draw_people(rng, pool, passages), draw_values(rng, passages), fillers)
    index = rng.randrange(len(ATTRIBUTES))
    prompt, regions = _with_regions(read, asked(read.people[slot], ATTRIBUTES[index]))
    value = read.values[slot][index]
    return Question("open-book", prompt, [value, "."], (value,), 1 / passages, regions, (slot,))


def closed_book(rng: Random, world: World) -> Question:
    """A question about somebody known by heart; its shortcut is the share of the attribute's most frequent value."""
    person = rng.choice(list(world.known))
    index = rng.randrange(len(ATTRIBUTES))
    column = [values[index] for values in world.known.values()]
    query, value = asked(person, ATTRIBUTES[index]), world.known[person][index]
    most = max(map(column.count, column)) / len(column)
    return Question("closed-book", query, [value, "."], (value,), most, {"query": (0, len(query))})


def two_hop(rng: Random, pool: Sequence[Person], passages: int = 6, layout: str = "far", fillers: int = 1) -> Question:
    """A question about somebody's friend or teacher.

    Examples
    --------
    >>> from floatlens.tasks.world.people import make_world
    >>> question = two_hop(Random(0), make_world().test, passages=4, layout="adjacent")
    >>> abs(question.gold_slots[0] - question.gold_slots[1]), question.shortcut
    (1, 0.25)
    """
    relation = rng.choice(RELATIONS)
    linked = linked_reading(rng, pool, passages, layout, relation, fillers)
    person, gold = linked.links[linked.asked_link]
    index = rng.randrange(len(ATTRIBUTES))
    prompt, regions = _with_regions(linked.read, asked(person, ATTRIBUTES[index], relation))
    value = linked.read.values[gold][index]
    return Question(f"two-hop {layout}", prompt, [value, "."], (value,), 1 / passages, regions, linked.evidence)


def conflicting(rng: Random, pool: Sequence[Person], passages: int = 6, fillers: int = 1) -> Question:
    """Two passages about one person contradict each other; either value is accepted, in the order of the passages."""
    people = draw_people(rng, pool, passages)
    first, second = sorted(rng.sample(range(passages), 2))
    people[second] = people[first]
    read = reading(rng, people, draw_values(rng, passages), fillers)
    index = rng.randrange(len(ATTRIBUTES))
    prompt, regions = _with_regions(read, asked(people[first], ATTRIBUTES[index]))
    accepted = (read.values[first][index], read.values[second][index])
    return Question("conflicting", prompt, [accepted[0], "."], accepted, 2 / passages, regions, (first, second))


def describing(rng: Random, pool: Sequence[Person], passages: int = 6, gold: int | None = None, fillers: int = 1) -> Question:
    """A person of one of the passages is to be described, in 27 tokens."""
    slot = rng.randrange(passages) if gold is None else gold
    if not 0 <= slot < passages:
        raise Refusal(f"Slot {slot} does not exist among {passages} passages, which count from 0.")
    read = reading(rng, draw_people(rng, pool, passages), draw_values(rng, passages), fillers)
    prompt, regions = _with_regions(read, ["Describe", *read.people[slot], "."])
    return Question(
        "description", prompt, description(read.people[slot], read.values[slot]), read.values[slot], 1 / passages, regions, (slot,)
    )
