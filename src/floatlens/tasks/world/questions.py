"""Questions about the world, one per prompt, with what counts as right and what ignoring the person would score.

The kinds: open-book (gold at any slot), closed-book, two-hop (evidence in one passage, two adjacent ones or two far apart), conflicting
passages, descriptions. Prompts of one kind and size have one length. `regions` name the passages (`doc_1`, ...) and the question
(`query`) as spans of words; `prompt_of` turns them into spans of characters. For evaluation with contexts, `sets` gives such questions as
samples whose passages can be arranged.

Decided here: `shortcut`, the number to print beside every accuracy on the world, is the score of the best reader who knows what is asked
for and ignores about whom. It answers with what the shown passages say most often about the asked attribute, drawing among equals. If every
passage is about somebody else, that scores 1 / passages; if the gold passage is restated, the reader can be right every time, and such a
context does not show that a model binds facts to people. Without passages it answers with the most frequent value of those learned by
heart, or with any value where values are drawn anew.

Refused: a gold slot that does not exist, fewer passages than the kind of question needs, passages that say nothing about the asked
attribute.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from random import Random

from floatlens.decoding.prompts import Prompt
from floatlens.errors import Refusal
from floatlens.tasks.samples import Passage, Sample
from floatlens.tasks.world.people import (
    Person,
    Reading,
    Words,
    World,
    asked,
    asked_to_describe,
    description,
    draw_people,
    draw_values,
    fact,
    linked_reading,
    make_world,
    most_frequent_share,
    reading,
)
from floatlens.tasks.world.sets import values_of
from floatlens.tasks.world.tokenizer import text_of
from floatlens.tasks.world.words import ATTRIBUTES, RELATIONS


@dataclass(frozen=True)
class Question:
    """A prompt and its answer, in words.

    `accepted` are the values that count: any of them for conflicting passages, all of them for a description. `regions` are spans of
    words of the prompt; `gold_slots` are the passages with the evidence, counted from 0 (slot 0 is region `doc_1`).
    """

    kind: str
    prompt: Words
    answer: Words
    accepted: tuple[str, ...]
    shortcut: float
    regions: dict[str, tuple[int, int]] = field(default_factory=dict)
    gold_slots: tuple[int, ...] = ()


def prompt_of(question: Question) -> Prompt:
    """The question as a prompt for `generate` and `trace`, with its passages and the question as regions.

    Examples
    --------
    >>> from floatlens.tasks.world.people import make_world
    >>> question = open_book(Random(0), make_world().test, passages=2, gold=1)
    >>> prompt = prompt_of(question)
    >>> sorted(prompt.regions), prompt.text[slice(*prompt.regions["query"])]
    (['doc_1', 'doc_2', 'query'], 'What does Igor Marsh play?')
    """
    return Prompt(*text_of(question.prompt, question.regions))


def open_book(rng: Random, pool: Sequence[Person], passages: int = 6, gold: int | None = None, fillers: int = 1) -> Question:
    """A question whose answer stands in one of the passages.

    Examples
    --------
    >>> from floatlens.tasks.world.people import make_world
    >>> question = open_book(Random(0), make_world().test, passages=2, gold=1)
    >>> question.shortcut, question.gold_slots, question.answer[1]
    (0.5, (1,), '.')
    """
    slot, read = _one_gold(rng, pool, passages, gold, fillers)
    index = rng.randrange(len(ATTRIBUTES))
    prompt, regions = _with_regions(read, asked(read.people[slot], ATTRIBUTES[index]))
    value = read.values[slot][index]
    return Question("open-book", prompt, [value, "."], (value,), 1 / passages, regions, (slot,))


def closed_book(rng: Random, world: World) -> Question:
    """A question about somebody known by heart; its shortcut is the share of the attribute's most frequent value.

    Examples
    --------
    >>> from floatlens.tasks.world.people import make_world
    >>> question = closed_book(Random(0), make_world())
    >>> " ".join(question.prompt), question.accepted, question.regions
    ('What does Doris Olsen play ?', ('piano',), {'query': (0, 6)})
    """
    person = rng.choice(list(world.known))
    index = rng.randrange(len(ATTRIBUTES))
    query, value = asked(person, ATTRIBUTES[index]), world.known[person][index]
    return Question("closed-book", query, [value, "."], (value,), most_frequent_share(world, index), {"query": (0, len(query))})


def two_hop(rng: Random, pool: Sequence[Person], passages: int = 6, layout: str = "far", fillers: int = 1) -> Question:
    """A question about somebody's friend or teacher; the answer says who that is before it says the value.

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
    answer = fact(linked.read.people[gold], ATTRIBUTES[index], value)
    return Question(f"two-hop {layout}", prompt, answer, (value,), 1 / passages, regions, linked.evidence)


def conflicting(rng: Random, pool: Sequence[Person], passages: int = 6, fillers: int = 1) -> Question:
    """Two passages about one person contradict each other; either value is accepted, in the order of the passages.

    Examples
    --------
    >>> from floatlens.tasks.world.people import make_world
    >>> question = conflicting(Random(0), make_world().test, passages=4)
    >>> len(question.gold_slots), len(set(question.accepted)), question.shortcut
    (2, 2, 0.5)
    """
    if passages < 2:
        raise Refusal(f"Passages that contradict each other are at least two, not {passages}.")
    people = draw_people(rng, pool, passages)
    first, second = sorted(rng.sample(range(passages), 2))
    people[second] = people[first]
    read = reading(rng, people, draw_values(rng, passages), fillers)
    index = rng.randrange(len(ATTRIBUTES))
    prompt, regions = _with_regions(read, asked(people[first], ATTRIBUTES[index]))
    accepted = (read.values[first][index], read.values[second][index])
    return Question("conflicting", prompt, [accepted[0], "."], accepted, 2 / passages, regions, (first, second))


def describing(rng: Random, pool: Sequence[Person], passages: int = 6, gold: int | None = None, fillers: int = 1) -> Question:
    """A person of one of the passages is to be described, in 29 tokens.

    Examples
    --------
    >>> from floatlens.tasks.world.people import make_world
    >>> question = describing(Random(0), make_world().test, passages=2)
    >>> len(question.answer), len(question.accepted)
    (29, 4)
    """
    slot, read = _one_gold(rng, pool, passages, gold, fillers)
    person, values = read.people[slot], read.values[slot]
    prompt, regions = _with_regions(read, asked_to_describe(person))
    return Question("description", prompt, description(person, values), values, 1 / passages, regions, (slot,))


def _one_gold(rng: Random, pool: Sequence[Person], passages: int, gold: int | None, fillers: int) -> tuple[int, Reading]:
    """The slot of the gold passage and a set of passages."""
    if passages < 1:
        raise Refusal(f"The answer must stand in a passage, so there is at least one, not {passages}.")
    slot = rng.randrange(passages) if gold is None else gold
    if not 0 <= slot < passages:
        raise Refusal(f"Slot {slot} does not exist among {passages} passages, which count from 0.")
    return slot, reading(rng, draw_people(rng, pool, passages), draw_values(rng, passages), fillers)


def _with_regions(read: Reading, query: Words) -> tuple[Words, dict[str, tuple[int, int]]]:
    regions = {f"doc_{number + 1}": span for number, span in enumerate(read.spans)}
    return read.words + query, regions | {"query": (len(read.words), len(read.words) + len(query))}


_FACTS = [re.compile(rf"(\w+ \w+) {' '.join(attribute.said)} (\w+)\.") for attribute in ATTRIBUTES]


def shortcut(sample: Sample, passages: Sequence[Passage]) -> float:
    """The score to expect from ignoring the person, when these passages are shown.

    Parameters
    ----------
    sample
        One of the world's samples.
    passages
        The passages as a context arranged them, joined or not; none for closed-book.

    Examples
    --------
    >>> from floatlens.tasks.world.sets import closed_book_samples, open_book_samples
    >>> sample = open_book_samples(1, passages=4)[0]
    >>> shortcut(sample, [*sample.evidence, *sample.distractors]), shortcut(sample, sample.evidence), shortcut(sample, [])
    (0.25, 1.0, 0.05)
    >>> round(shortcut(closed_book_samples(1)[0], []), 3)
    0.109
    """
    wanted = values_of(sample)
    attributes = [next(index for index, attribute in enumerate(ATTRIBUTES) if value in attribute.values) for value in wanted]
    if not passages and not sample.passages:
        return prod(most_frequent_share(make_world(), index) for index in attributes)
    if not passages:
        return prod(1 / len(ATTRIBUTES[index].values) for index in attributes)
    stated = Counter(values for passage in passages for values in _stated(passage.text, attributes))
    if not stated:
        raise Refusal(
            f"The passages shown with sample {sample.id} hold no facts of the world, so what ignoring the person scores is not known."
        )
    most = max(stated.values())
    favourites = [values for values, times in stated.items() if times == most]
    return (wanted in favourites) / len(favourites)


def _stated(text: str, attributes: Sequence[int]) -> list[tuple[str, ...]]:
    """The values of these attributes for each person about whom the text says them all."""
    by_person = [dict(_FACTS[index].findall(text)) for index in attributes]
    return [tuple(facts[person] for facts in by_person) for person in by_person[0] if all(person in facts for facts in by_person)]
