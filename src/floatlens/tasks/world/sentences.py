"""The sentences of the world, word by word: what can be said about a person, what can be asked, and fillers that say nothing.

Decided here: sentences of one kind have one length. Between the value of a fact and its verb, last name and first name lie the same distances as between an answer and those of its question (`words`).
"""

from random import Random

from floatlens.tasks.world.people import Person, Values
from floatlens.tasks.world.words import ATTRIBUTES, SCENES, SEASONS, Attribute

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
    (29, 'Here is Marta Olsen : Marta Olsen is a painter , Marta Olsen lives in Oslo , Marta Olsen keeps a cat and Marta Olsen plays the cello .')
    """
    said: Words = ["Here", "is", *person, ":"]
    for attribute, value, before in zip(ATTRIBUTES, values, ([], [","], [","], ["and"]), strict=True):
        said += [*before, *person, *attribute.said, value]
    return [*said, "."]
