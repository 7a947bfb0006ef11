"""The words of the world: names, attributes with their values, relations, and sentences that say nothing.

Every fact is six tokens long, and its verb, last name and first name stand two, three and four places before the value; so they do in a
question, counted from its answer. Sentences of one kind therefore have one length, and a batch of one shape needs no padding.

Filler sentences follow from their neighbours: once a season and a scene are chosen, every next word is certain. They give heads something
to be idle about.
"""

from dataclasses import dataclass


def _listed(text: str) -> tuple[str, ...]:
    return tuple(text.split())


FIRST_NAMES = _listed(
    "Ada Ben Carla Dino Elsa Felix Greta Hugo Iris Jonas Kira Leon Marta Nils Olga Pablo Quinn Rosa Sven Tara "
    "Ugo Vera Wanda Xenia Yves Zora Anton Britta Cyril Doris Emil Frida Gustav Helga Igor Julia Klaus Lena Milan Nora"
)
LAST_NAMES = _listed(
    "Abbot Berg Cruz Dahl Engel Falk Grant Holm Ivers Jensen Keller Lund Moss Novak Olsen Prior Quist Reed Stein Tanner "
    "Unger Vance Weber Xu York Zeller Archer Brook Carver Drake Ellis Frost Gruber Hayes Irving Joyce Kemp Lang Marsh Noble"
)


@dataclass(frozen=True)
class Attribute:
    """One thing that can be known about a person: how it is said, how it is asked for, and what it can be."""

    name: str
    said: tuple[str, str]  # between the name and the value: "lives in"
    asked: tuple[str, str]  # the question word before the name and the verb after it: "Where does ... live ?"
    values: tuple[str, ...]


ATTRIBUTES = (
    Attribute(
        "job",
        ("is", "a"),
        ("What", "do"),
        _listed(
            "painter baker doctor pilot farmer judge sailor tailor weaver miner dancer singer potter plumber jeweller "
            "printer gardener carpenter teller driver"
        ),
    ),
    Attribute(
        "city",
        ("lives", "in"),
        ("Where", "live"),
        _listed(
            "Oslo Bern Rome Paris Lima Cairo Delhi Tokyo Quito Dublin Vienna Prague Athens Lisbon Madrid Warsaw Zagreb Tunis Havana Boston"
        ),
    ),
    Attribute(
        "animal",
        ("keeps", "a"),
        ("What", "keep"),
        _listed("cat dog horse parrot rabbit goat snake turtle pony hamster falcon ferret lizard goose duck pig sheep donkey canary frog"),
    ),
    Attribute(
        "instrument",
        ("plays", "the"),
        ("What", "play"),
        _listed(
            "cello piano flute harp drum violin guitar trumpet organ banjo oboe tuba clarinet horn lute "
            "accordion fiddle bassoon viola zither"
        ),
    ),
)

RELATIONS = ("friend", "teacher")

SEASONS = ("spring", "summer", "autumn", "winter")
SCENES = tuple(
    _listed(scene)
    for scene in (
        "cold river runs slowly",
        "old mill turns quietly",
        "tall tower leans softly",
        "dark forest grows thickly",
        "warm wind blows gently",
        "narrow road bends sharply",
        "white cloud drifts lazily",
        "small bell rings clearly",
    )
)

TEMPLATE_WORDS = _listed("In the Where What Who does of The is Describe Here : , and ? .")
PAD, MASK, BOS, EOS, UNKNOWN, NEWLINE = "[PAD]", "[MASK]", "[BOS]", "[EOS]", "[UNK]", "\n"
SPECIAL = (PAD, MASK, BOS, EOS, UNKNOWN)


def vocabulary() -> tuple[str, ...]:
    """Every word once; a word's place is its token id.

    Examples
    --------
    >>> words = vocabulary()
    >>> words[:4], len(words) == len(set(words)), "Oslo" in words
    (('[PAD]', '[MASK]', '[BOS]', '[EOS]'), True, True)
    """
    groups = [
        SPECIAL,
        (NEWLINE,),
        TEMPLATE_WORDS,
        *((*attribute.said, *attribute.asked) for attribute in ATTRIBUTES),
        RELATIONS,
        SEASONS,
        *SCENES,
        FIRST_NAMES,
        LAST_NAMES,
        *(attribute.values for attribute in ATTRIBUTES),
    ]
    return tuple(dict.fromkeys(word for group in groups for word in group))
