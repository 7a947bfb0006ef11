"""A synthetic world of people, told in passages and asked about: what the twins learn and are tested on.

Everything follows from a seed. *Known* people have fixed facts that a model can learn by heart; *training* and *test* people get theirs
anew in every set of passages, and the pairs of names of test people never occur in training, though each name does. Every passage of a
set holds every attribute, so that whoever ignores the person scores 1 / passages. docs/reference/world.md shows an example of each thing.
"""

from floatlens.tasks.world.people import (
    LAYOUTS,
    Linked,
    Person,
    Reading,
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
    filler,
    linked_reading,
    make_world,
    passage,
    reading,
    relation_fact,
)
from floatlens.tasks.world.questions import Question, closed_book, conflicting, describing, open_book, prompt_of, shortcut, two_hop
from floatlens.tasks.world.sets import closed_book_samples, description_samples, open_book_samples, two_hop_samples, values_of
from floatlens.tasks.world.tokenizer import make_tokenizer, text_of, world_hash
from floatlens.tasks.world.words import ATTRIBUTES, RELATIONS, Attribute, vocabulary

__all__ = [
    "ATTRIBUTES",
    "LAYOUTS",
    "RELATIONS",
    "Attribute",
    "Linked",
    "Person",
    "Question",
    "Reading",
    "Values",
    "Words",
    "World",
    "asked",
    "asked_to_describe",
    "asked_who",
    "closed_book",
    "closed_book_samples",
    "conflicting",
    "describing",
    "description",
    "description_samples",
    "draw_people",
    "draw_values",
    "fact",
    "filler",
    "linked_reading",
    "make_tokenizer",
    "make_world",
    "open_book",
    "open_book_samples",
    "passage",
    "prompt_of",
    "reading",
    "relation_fact",
    "shortcut",
    "text_of",
    "two_hop",
    "two_hop_samples",
    "values_of",
    "vocabulary",
    "world_hash",
]
