"""A seeded world of people, told in passages and asked about: what the twins learn and are tested on.

Decided here: all pairs of first and last names are split once into *known* people (fixed facts, learned by heart, asked without passages), *training* people
and *test* people, whose pairs never occur in training though each of their names does. Facts of training and test people are drawn anew for every set of
passages. **Every passage holds every attribute** (of the set), with values that differ between passages: whoever ignores the person scores 1 / passages, and each
question says so (`shortcut`). People of a set often share a first or a last name, so that neither alone is enough.

Refused: more passages than an attribute has values, a gold slot that does not exist, layouts that need more passages than there are.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from floatlens.errors import Refusal
from floatlens.tasks.world.words import ATTRIBUTES, FIRST_NAMES, LAST_NAMES

Values = tuple[str, ...]  # one for each attribute, in the order of ATTRIBUTES
NAMESAKES = 0.5  # the share of the sets with two people of one first or one last name


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
    """Split all pairs of names.

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
    rng.shuffle(people)
    by_heart, others = people[:known], people[known:]
    tested = round(test_share * len(others))
    facts = {person: tuple(rng.choice(attribute.values) for attribute in ATTRIBUTES) for person in by_heart}
    return World(facts, tuple(others[tested:]), tuple(others[:tested]))


def draw_people(rng: Random, pool: Sequence[Person], count: int) -> list[Person]:
    """Different people; in half of the sets the second shares a name with the first.

    Examples
    --------
    >>> people = draw_people(Random(0), make_world().test, 3)
    >>> len(set(people))
    3
    """
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
    >>> any(one == other for one, other in zip(first, second))
    False
    """
    if count > min(len(attribute.values) for attribute in ATTRIBUTES):
        raise Refusal(f"{count} passages need {count} different values of each attribute, and there are fewer; ask for fewer passages.")
    columns = [rng.sample(attribute.values, count) for attribute in ATTRIBUTES]
    return list(zip(*columns, strict=True))
