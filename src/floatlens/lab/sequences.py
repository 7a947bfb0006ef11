"""Training sequences of the world: passages and several questions about them, as token ids with the answers marked.

Decided here: a `Shape` fixes the length of its sequences, so that a batch of one shape is a rectangle without padding. Only training
people and people known by heart are drawn; test people never are.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import torch
from torch import Tensor

from floatlens.tasks.world.people import (
    LAYOUTS,
    Linked,
    Person,
    Values,
    Words,
    World,
    asked,
    asked_to_describe,
    asked_who,
    description,
    draw_people,
    draw_values,
    fact,
    linked_reading,
    reading,
)
from floatlens.tasks.world.questions import Question
from floatlens.tasks.world.words import ATTRIBUTES, BOS, EOS, NEWLINE, RELATIONS, vocabulary

TOKEN_ID = {word: number for number, word in enumerate(vocabulary())}
LONGEST = 1024  # tokens that a twin sees
Pieces = list[tuple[Words, bool]]  # words, and whether they answer
Predictor = Callable[..., Any]  # model(input_ids=...).logits: (sequence, position, word)


@dataclass(frozen=True)
class Shape:
    """One kind of sequence. `attributes` is how many attributes each passage gives; all passages give the same ones."""

    kind: str  # "open", "closed", "two-hop", "relation", "description", "closed-description"
    passages: int = 0
    attributes: int = len(ATTRIBUTES)
    fillers: int = 0
    questions: int = 1
    cloze: bool = False
    ends: int = 1  # end tokens after the last answer


@dataclass(frozen=True)
class Batch:
    """tokens: int64 (sequence, position); answers: bool, the same shape."""

    tokens: Tensor
    answers: Tensor


def _question(person: Person, index: int, value: str, cloze: bool) -> Pieces:
    if cloze:
        sentence = fact(person, ATTRIBUTES[index], value)
        return [(sentence[:-2], False), (sentence[-2:], True)]
    return [(asked(person, ATTRIBUTES[index]), False), ([value, "."], True)]


def _several(rng: Random, facts: Sequence[tuple[Person, Values]], indices: Sequence[int], shape: Shape) -> Pieces:
    """Questions in random order, all different as long as there are enough."""
    everything = [(person, index, values[index]) for person, values in facts for index in indices]
    rng.shuffle(everything)
    chosen = (everything * -(-shape.questions // len(everything)))[: shape.questions]
    pieces: Pieces = []
    for number, (person, index, value) in enumerate(chosen):
        pieces += ([([NEWLINE], False)] if number else []) + _question(person, index, value, shape.cloze)
    return pieces


def _open(rng: Random, world: World, shape: Shape) -> Pieces:
    indices = rng.sample(range(len(ATTRIBUTES)), shape.attributes)
    read = reading(rng, draw_people(rng, world.training, shape.passages), draw_values(rng, shape.passages), shape.fillers, indices)
    return [(read.words, False), *_several(rng, list(zip(read.people, read.values, strict=True)), indices, shape)]


def _closed(rng: Random, world: World, shape: Shape) -> Pieces:
    facts = rng.sample(list(world.known.items()), min(shape.questions, len(world.known)))
    return _several(rng, facts, range(len(ATTRIBUTES)), shape)


def _links(rng: Random, world: World, shape: Shape) -> tuple[Linked, str]:
    relation = rng.choice(RELATIONS)
    layout = rng.choice(LAYOUTS if shape.passages >= 3 else LAYOUTS[:1])
    return linked_reading(rng, world.training, shape.passages, layout, relation, shape.fillers), relation


def _two_hop(rng: Random, world: World, shape: Shape) -> Pieces:
    linked, relation = _links(rng, world, shape)
    every = [(person, slot, index) for person, slot in linked.links for index in range(len(ATTRIBUTES))]
    pieces: Pieces = [(linked.read.words, False)]
    for number, (person, slot, index) in enumerate(rng.sample(every, shape.questions)):
        pieces += [([NEWLINE], False)] if number else []
        answer = fact(linked.read.people[slot], ATTRIBUTES[index], linked.read.values[slot][index])
        pieces += [(asked(person, ATTRIBUTES[index], relation), False), (answer, True)]
    return pieces


def _relation(rng: Random, world: World, shape: Shape) -> Pieces:
    linked, relation = _links(rng, world, shape)
    pieces: Pieces = [(linked.read.words, False)]
    for number, (person, slot) in enumerate(rng.sample(linked.links, shape.questions)):
        pieces += [([NEWLINE], False)] if number else []
        pieces += [(asked_who(person, relation), False), ([*linked.read.people[slot], "."], True)]
    return pieces


def _description(rng: Random, world: World, shape: Shape) -> Pieces:
    read = reading(rng, draw_people(rng, world.training, shape.passages), draw_values(rng, shape.passages), shape.fillers)
    slot = rng.randrange(shape.passages)
    person = read.people[slot]
    return [(read.words, False), (asked_to_describe(person), False), (description(person, read.values[slot]), True)]


def _closed_description(rng: Random, world: World, shape: Shape) -> Pieces:
    person = rng.choice(list(world.known))
    return [(asked_to_describe(person), False), (description(person, world.known[person]), True)]


BUILDERS: dict[str, Callable[[Random, World, Shape], Pieces]] = {
    "open": _open,
    "closed": _closed,
    "two-hop": _two_hop,
    "relation": _relation,
    "description": _description,
    "closed-description": _closed_description,
}


def make_batch(rng: Random, world: World, shape: Shape, count: int) -> Batch:
    """Draw `count` sequences of one shape.

    Examples
    --------
    >>> from floatlens.tasks.world.people import make_world
    >>> batch = make_batch(Random(0), make_world(), Shape("open", passages=2, attributes=1, questions=2, cloze=True), 3)
    >>> tuple(batch.tokens.shape), batch.answers.sum(-1).tolist()
    ((3, 29), [5, 5, 5])
    """
    tokens, answers = [], []
    for _ in range(count):
        pieces = [([BOS], False), *BUILDERS[shape.kind](rng, world, shape), ([EOS] * shape.ends, True)]
        tokens.append([TOKEN_ID[word] for words, _ in pieces for word in words])
        answers.append([answer for words, answer in pieces for _ in words])
    return Batch(torch.tensor(tokens), torch.tensor(answers))


def question_batch(questions: Sequence[Question]) -> Batch:
    """Questions of one length, each with its answer and an end token.

    Examples
    --------
    >>> from floatlens.tasks.world.people import make_world
    >>> from floatlens.tasks.world.questions import open_book
    >>> batch = question_batch([open_book(Random(0), make_world().test, passages=2)])
    >>> batch.answers.sum().item()  # the value, a full stop, the end
    3
    """
    rows = [([BOS, *question.prompt], [*question.answer, EOS]) for question in questions]
    tokens = [[TOKEN_ID[word] for word in prompt + answer] for prompt, answer in rows]
    answers = [[False] * len(prompt) + [True] * len(answer) for prompt, answer in rows]
    return Batch(torch.tensor(tokens), torch.tensor(answers))
