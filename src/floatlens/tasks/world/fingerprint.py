"""The fingerprint of a world: one hash of everything that it can say, so that weights can name the data they were trained on.

Decided here: the hash covers the vocabulary in its order (token ids), who is known, trained and tested in their order (draws depend on it), the facts of the known, and how each kind of sentence is
worded. It does not cover how sequences are drawn from these; that belongs to a training recipe. It is taken from text, so it is the same in every process and on every platform.
"""

import json
from hashlib import sha256

from floatlens.tasks.world.people import Person, World
from floatlens.tasks.world.sentences import asked, asked_to_describe, asked_who, description, fact, relation_fact
from floatlens.tasks.world.words import ATTRIBUTES, RELATIONS, SCENES, SEASONS, vocabulary


def world_hash(world: World) -> str:
    """The sha256 of what a world can say, in hexadecimal.

    Examples
    --------
    >>> from floatlens.tasks.world.people import make_world
    >>> world_hash(make_world())[:12]
    '7c7279da7820'
    >>> world_hash(make_world(seed=1)) == world_hash(make_world())
    False
    """
    content = {
        "vocabulary": vocabulary(),
        "known": [[*person, *values] for person, values in world.known.items()],
        "training": world.training,
        "test": world.test,
        "attributes": [[attribute.name, attribute.values] for attribute in ATTRIBUTES],
        "relations": RELATIONS,
        "fillers": [SEASONS, SCENES],
        "sentences": _sentences(),
    }
    return sha256(json.dumps(content, sort_keys=True).encode("ascii")).hexdigest()


def _sentences() -> list[list[str]]:
    """Each kind of sentence once, with marks where names and values go."""
    person, other = Person("<first>", "<last>"), Person("<other first>", "<other last>")
    said = [fact(person, attribute, "<value>") for attribute in ATTRIBUTES]
    questions = [asked(person, attribute, relation) for attribute in ATTRIBUTES for relation in (None, *RELATIONS)]
    relations = [sentence for relation in RELATIONS for sentence in (relation_fact(person, relation, other), asked_who(person, relation))]
    return [*said, *questions, *relations, asked_to_describe(person), description(person, tuple(f"<{one.name}>" for one in ATTRIBUTES))]
