"""The world as samples for evaluation: questions whose passages a context can arrange, leave out or join.

Decided here: everything is about the world of `make_world()`, in which the bundled twins were trained. Sample number i of a seed is the
same whatever the count, and asks the same question with the same facts whatever `restatements` and `fillers`; another number of
`passages` is another draw under the same id, so do not pair those. Passages are one line each, as people write; a prompt is passages
joined by new lines, a new line and the question, and then has exactly the words on which the twins were trained.

Passages of open-book questions and descriptions: the gold one, its restatements, `passages - 1` distractors about other people with every
attribute and other values, and last a conflicting one about the same person. Two-hop: the passage that names the friend or teacher, the
passage of that other person, then distractors, each with the same kind of relation.

Refused: negative counts, too few passages for a distractor, more than the values allow, more restatements than orders of the facts, more
closed-book questions than there are facts.
"""

from collections.abc import Sequence
from math import factorial
from random import Random

from floatlens.errors import Refusal
from floatlens.tasks.samples import Passage, Sample
from floatlens.tasks.world.people import (
    MOST_PASSAGES,
    Person,
    Values,
    Words,
    asked,
    asked_to_describe,
    description,
    draw_people,
    draw_values,
    everybodys_friend,
    fact,
    make_world,
    passage,
    relation_fact,
)
from floatlens.tasks.world.tokenizer import text_of
from floatlens.tasks.world.words import ATTRIBUTES, RELATIONS

MOST_RESTATEMENTS = factorial(len(ATTRIBUTES)) - 1  # as many other orders of the facts as there are
_EVERY_VALUE = frozenset(value for attribute in ATTRIBUTES for value in attribute.values)


def open_book_samples(count: int, *, passages: int = 6, restatements: int = 0, fillers: int = 1, seed: int = 0) -> list[Sample]:
    """Questions about test people, whose facts stand in the passages only.

    Parameters
    ----------
    count
        How many.
    passages
        The gold passage and its distractors, together. The conflicting passage comes on top.
    restatements
        Further passages with the facts of the gold one in another order, also listed in `gold`: for contexts with several gold passages.
    fillers
        Sentences without facts in each passage.
    seed
        Another seed gives other questions.

    Examples
    --------
    >>> sample = open_book_samples(8, passages=3, restatements=1)[7]
    >>> sample.id, sample.gold, len(sample.distractors), len(sample.conflicts)
    ('world-open-0007', (0, 1), 2, 1)
    >>> sample.question, sample.answers
    ('Where does Pablo Xu live?', ('Madrid',))
    """
    _check(count, passages, fillers, least=2, most=MOST_PASSAGES - 1)
    if not 0 <= restatements <= MOST_RESTATEMENTS:
        raise Refusal(f"{restatements} restatements were asked for; the facts can be told in 0 to {MOST_RESTATEMENTS} other orders.")
    samples, pool = [], make_world().test
    for number in range(count):
        draw = f"world-sets-open-{seed}-{number}"
        people, values = _drawn(draw, pool, passages)
        index = Random(f"{draw}-attribute").randrange(len(ATTRIBUTES))
        question = text_of(asked(people[0], ATTRIBUTES[index]))[0]
        passages_told, gold = _told(draw, people, values, restatements, fillers)
        samples.append(Sample(f"world-open-{number:04d}", question, (values[0][index],), passages_told, gold))
    return samples


def description_samples(count: int, *, passages: int = 6, fillers: int = 1, seed: int = 0) -> list[Sample]:
    """Requests to describe test people, with passages as for open-book questions. The answer is the whole description; `values_of` are
    what must be in it.

    Examples
    --------
    >>> sample = description_samples(1)[0]
    >>> sample.question
    'Describe Julia Olsen.'
    >>> sample.answers[0]
    'Here is Julia Olsen: Julia Olsen is a doctor, Julia Olsen lives in Vienna, \
Julia Olsen keeps a falcon and Julia Olsen plays the fiddle.'
    """
    _check(count, passages, fillers, least=2, most=MOST_PASSAGES - 1)
    samples, pool = [], make_world().test
    for number in range(count):
        draw = f"world-sets-description-{seed}-{number}"
        people, values = _drawn(draw, pool, passages)
        question, answer = text_of(asked_to_describe(people[0]))[0], text_of(description(people[0], values[0]))[0]
        passages_told, gold = _told(draw, people, values, 0, fillers)
        samples.append(Sample(f"world-description-{number:04d}", question, (answer,), passages_told, gold))
    return samples


def two_hop_samples(count: int, *, passages: int = 6, fillers: int = 1, seed: int = 0) -> list[Sample]:
    """Questions about the friend or teacher of a test person. Gold are two passages: the one that names the other person, and that
    person's own.

    The first answer is the sentence that the twins learned to write, which says who it is before it says the value; the value alone is
    right as well. Everybody of the set is named once as somebody's friend, so a context with fewer distractors can name people it says
    nothing else about.

    Examples
    --------
    >>> sample = two_hop_samples(1)[0]
    >>> sample.question, sample.answers, sample.gold, len(sample.distractors)
    ('Where does the teacher of Rosa Engel live?', ('Felix Ellis lives in Cairo.', 'Cairo'), (0, 1), 4)
    """
    _check(count, passages, fillers, least=3, most=MOST_PASSAGES)
    samples, pool = [], make_world().test
    for number in range(count):
        draw = f"world-sets-two-hop-{seed}-{number}"
        rng = Random(draw)
        people, values = draw_people(rng, pool, passages), draw_values(rng, passages)
        relation, index = rng.choice(RELATIONS), rng.randrange(len(ATTRIBUTES))
        friends = everybodys_friend(rng, passages, start=0, gold=1)
        links = [relation_fact(person, relation, people[friend]) for person, friend in zip(people, friends, strict=True)]
        passages_told = tuple(
            Passage(_written(Random(f"{draw}-passage-{slot}"), [*_facts(people[slot], values[slot]), links[slot]], fillers))
            for slot in range(passages)
        )
        question = text_of(asked(people[0], ATTRIBUTES[index], relation))[0]
        answer = text_of(fact(people[1], ATTRIBUTES[index], values[1][index]))[0]
        samples.append(Sample(f"world-two-hop-{number:04d}", question, (answer, values[1][index]), passages_told, (0, 1)))
    return samples


def closed_book_samples(count: int, *, seed: int = 0) -> list[Sample]:
    """Questions about the known people, without passages; no question twice.

    Examples
    --------
    >>> sample = closed_book_samples(1)[0]
    >>> sample.question, sample.answers, sample.passages
    ('What does Nora Reed play?', ('harp',), ())
    """
    known = make_world().known
    every = [(person, index) for person in known for index in range(len(ATTRIBUTES))]
    if not 0 <= count <= len(every):
        raise Refusal(
            f"{count} closed-book questions were asked for; the known people have {len(every)} facts, so ask for 0 to {len(every)}."
        )
    Random(f"world-sets-closed-{seed}").shuffle(every)
    return [
        Sample(f"world-closed-{number:04d}", text_of(asked(person, ATTRIBUTES[index]))[0], (known[person][index],))
        for number, (person, index) in enumerate(every[:count])
    ]


def values_of(sample: Sample) -> tuple[str, ...]:
    """The values that an answer must hold: one, or the four of a description.

    Examples
    --------
    >>> values_of(description_samples(1)[0])
    ('doctor', 'Vienna', 'falcon', 'fiddle')
    """
    words = sample.answers[0].replace(",", " ").replace(".", " ").split()
    values = tuple(word for word in words if word in _EVERY_VALUE)
    if not values:
        raise Refusal(f"The answer of sample {sample.id} holds no value of the world; take samples from floatlens.tasks.world.")
    return values


def _check(count: int, passages: int, fillers: int, *, least: int, most: int) -> None:
    if count < 0 or fillers < 0:
        raise Refusal(f"{count} samples with {fillers} fillers per passage were asked for; neither can be negative.")
    if not least <= passages <= most:
        raise Refusal(
            f"{passages} passages were asked for; these questions need {least} to {most}, "
            "so that there is a distractor and every passage has values of its own."
        )


def _drawn(draw: str, pool: Sequence[Person], passages: int) -> tuple[list[Person], list[Values]]:
    """People, the first to be asked about; their values and, last, those of the conflicting passage."""
    rng = Random(draw)
    return draw_people(rng, pool, passages), draw_values(rng, passages + 1)


def _told(
    draw: str, people: Sequence[Person], values: Sequence[Values], restatements: int, fillers: int
) -> tuple[tuple[Passage, ...], tuple[int, ...]]:
    """Gold, restatements, distractors, the conflicting passage; and which of them are gold.

    Each is drawn by itself, so that none depends on how many others there are.
    """
    gold = _retold(Random(f"{draw}-gold"), people[0], values[0], 1 + restatements, fillers)
    others = [_written(Random(f"{draw}-distractor-{slot}"), _facts(people[slot], values[slot]), fillers) for slot in range(1, len(people))]
    conflict = _written(Random(f"{draw}-conflict"), _facts(people[0], values[-1]), fillers)
    return (*map(Passage, [*gold, *others]), Passage(conflict, conflicting=True)), tuple(range(len(gold)))


def _retold(rng: Random, person: Person, values: Values, times: int, fillers: int) -> list[str]:
    """One person's facts, each time in another order."""
    texts: dict[tuple[str, ...], str] = {}
    while len(texts) < times:
        text = _written(rng, _facts(person, values), fillers)
        order = tuple(sorted(values, key=lambda value: text.index(f" {value}.")))  # whole words: "harp" is also in "sharply"
        texts.setdefault(order, text)
    return list(texts.values())


def _facts(person: Person, values: Values) -> list[Words]:
    return [fact(person, attribute, value) for attribute, value in zip(ATTRIBUTES, values, strict=True)]


def _written(rng: Random, sentences: Sequence[Words], fillers: int) -> str:
    return text_of(passage(rng, sentences, fillers)[:-1])[0]  # a sample's passage is a line without its end
