"""Samples of the world: evidence only where it is said to be, distractors that need the person, the same samples every time, and what
ignoring the person scores.
"""

import re
from collections import Counter
from collections.abc import Callable
from random import Random

import pytest

from floatlens.errors import Refusal
from floatlens.tasks.samples import Passage, Sample
from floatlens.tasks.world import (
    ATTRIBUTES,
    closed_book_samples,
    description_samples,
    make_tokenizer,
    make_world,
    open_book_samples,
    shortcut,
    two_hop_samples,
    values_of,
    vocabulary,
)

WORLD = make_world()
VERBS = {"is": "do", "lives": "live", "keeps": "keep", "plays": "play"}  # of a fact, of its question
SETS = {"open": open_book_samples, "two-hop": two_hop_samples, "description": description_samples, "closed": closed_book_samples}
OPEN = open_book_samples(40, restatements=3)
HOPS = two_hop_samples(40)
DESCRIPTIONS = description_samples(40)


def facts_of(text: str) -> dict[tuple[str, str], dict[str, str]]:
    """Who, what is asked for, value: read off the sentences one by one."""
    facts: dict[tuple[str, str], dict[str, str]] = {}
    for sentence in text.removesuffix(".").split(". "):
        words = sentence.split()
        if len(words) == 5 and words[2] in VERBS:
            facts.setdefault((words[0], words[1]), {})[VERBS[words[2]]] = words[4]
    return facts


def person_and_verb(sample: Sample) -> tuple[tuple[str, str], str]:
    first, last, verb = sample.question.rstrip("?").split()[-3:]
    return (first, last), verb


def words_of(text: str) -> list[str]:
    return re.findall(r"\w+", text)


@pytest.mark.parametrize("kind", SETS)
def test_a_sample_is_the_same_whatever_the_count_and_another_with_another_seed(kind: str) -> None:
    make: Callable[..., list[Sample]] = SETS[kind]
    assert make(4) == make(9)[:4]
    assert [sample.id for sample in make(9)][7] == f"world-{kind}-0007"
    assert len({sample.question for sample in make(9)}) == 9
    assert all(one.question != other.question for one, other in zip(make(9), make(9, seed=1), strict=True))
    assert make(0) == []


def test_restatements_and_fillers_leave_question_and_distractors_as_they_are() -> None:
    for plain, restated, filled in zip(open_book_samples(10), OPEN, open_book_samples(10, fillers=3), strict=False):
        assert (plain.question, plain.answers) == (restated.question, restated.answers) == (filled.question, filled.answers)
        assert (plain.distractors, plain.conflicts, plain.evidence) == (restated.distractors, restated.conflicts, restated.evidence[:1])
        assert [facts_of(passage.text) for passage in plain.passages] == [facts_of(passage.text) for passage in filled.passages]
        assert all(passage.text.count("In the ") == 3 for passage in filled.passages)


@pytest.mark.parametrize("samples", [OPEN, HOPS, DESCRIPTIONS], ids=["open", "two-hop", "description"])
def test_every_passage_is_about_one_test_person_and_holds_every_attribute(samples: list[Sample]) -> None:
    test = {(person.first, person.last) for person in WORLD.test}
    for sample in samples:
        for passage in sample.passages:
            ((person, facts),) = facts_of(passage.text).items()
            assert person in test
            assert set(facts) == set(VERBS.values())
            assert "\n" not in passage.text


@pytest.mark.parametrize("samples", [OPEN, HOPS, DESCRIPTIONS], ids=["open", "two-hop", "description"])
def test_no_value_is_said_of_two_people(samples: list[Sample]) -> None:
    for sample in samples:
        told = [facts_of(passage.text) for passage in (*sample.evidence[-1:], *sample.distractors, *sample.conflicts)]
        for verb in VERBS.values():
            values = [facts[verb] for one in told for facts in one.values()]
            assert len(values) == len(set(values))


def test_open_book_answers_are_in_gold_and_its_restatements_only() -> None:
    for sample in OPEN:
        person, verb = person_and_verb(sample)
        assert sample.gold == (0, 1, 2, 3)
        assert [slot for slot, passage in enumerate(sample.passages) if sample.answers[0] in words_of(passage.text)] == [0, 1, 2, 3]
        assert all(facts_of(passage.text) == facts_of(sample.evidence[0].text) for passage in sample.evidence)
        assert facts_of(sample.evidence[0].text)[person][verb] == sample.answers[0]
        orders = [tuple(facts_of(passage.text)[person]) for passage in sample.evidence]
        assert len(set(orders)) == 4


def test_every_order_of_the_facts_can_be_told() -> None:
    (sample,) = open_book_samples(1, restatements=23, fillers=0)
    assert len({passage.text for passage in sample.evidence}) == 24


def test_open_book_sets_have_distractors_about_others_and_one_passage_that_conflicts() -> None:
    for sample in OPEN:
        person, _ = person_and_verb(sample)
        others = [next(iter(facts_of(passage.text))) for passage in sample.distractors]
        assert len(others) == 5
        assert len({person, *others}) == 6
        (conflict,) = sample.conflicts
        assert sample.passages[-1] is conflict
        assert all(facts_of(conflict.text)[person][verb] != facts_of(sample.evidence[0].text)[person][verb] for verb in VERBS.values())


def test_namesakes_are_in_half_of_the_sets() -> None:
    shared = 0
    for sample in open_book_samples(300, passages=2):  # among six people one pair in twenty shares a name anyway
        one, other = [next(iter(facts_of(passage.text))) for passage in (*sample.evidence, *sample.distractors)]
        shared += one[0] == other[0] or one[1] == other[1]
    assert 0.4 < shared / 300 < 0.62


def test_two_hop_evidence_leads_from_the_person_to_the_answer() -> None:
    for sample in HOPS:
        person, verb = person_and_verb(sample)
        relation = sample.question.split()[3]
        links = [re.findall(r"The (\w+) of (\w+) (\w+) is (\w+) (\w+)\.", passage.text) for passage in sample.passages]
        assert all(len(found) == 1 and found[0][0] == relation for found in links)
        assert links[0][0][1:3] == person
        other = links[0][0][3:5]
        assert facts_of(sample.passages[1].text)[other][verb] == sample.answers[1]
        said = {"do": "is a", "live": "lives in", "keep": "keeps a", "play": "plays the"}[verb]
        assert sample.answers[0] == f"{other[0]} {other[1]} {said} {sample.answers[1]}."
        assert sample.gold == (0, 1)
        assert [slot for slot, passage in enumerate(sample.passages) if sample.answers[1] in words_of(passage.text)] == [1]
        assert Counter(found[0][1:3] for found in links) == Counter(found[0][3:5] for found in links)
        assert all(found[0][1:3] != found[0][3:5] for found in links)


def test_closed_book_samples_ask_every_known_fact_once() -> None:
    samples = closed_book_samples(256)
    asked = {person_and_verb(sample): sample.answers for sample in samples}
    verbs = [attribute.asked[1] for attribute in ATTRIBUTES]
    known = {
        ((person.first, person.last), verb): (value,)
        for person, values in WORLD.known.items()
        for verb, value in zip(verbs, values, strict=True)
    }
    assert asked == known
    assert not any(sample.passages for sample in samples)


def test_a_description_must_hold_the_four_values_of_its_passage() -> None:
    for sample in DESCRIPTIONS:
        ((_, facts),) = facts_of(sample.evidence[0].text).items()
        assert set(values_of(sample)) == set(facts.values())
        assert set(values_of(sample)) <= set(words_of(sample.answers[0]))
        assert len(re.findall(r"\w+|[^\w\s]", sample.answers[0])) == 29
        first, last = sample.question.removesuffix(".").split()[1:]
        assert (first, last) in facts_of(sample.evidence[0].text)
    assert values_of(OPEN[0]) == OPEN[0].answers
    assert values_of(HOPS[0]) == HOPS[0].answers[1:]


@pytest.mark.parametrize("samples", [OPEN, HOPS, DESCRIPTIONS, closed_book_samples(40)], ids=["open", "two-hop", "description", "closed"])
def test_a_prompt_of_lines_has_the_worlds_words_and_no_other(samples: list[Sample]) -> None:
    tokenizer, ids = make_tokenizer(), {word: number for number, word in enumerate(vocabulary())}
    for sample in samples:
        text = "\n".join([*(passage.text for passage in sample.passages), sample.question])
        words = text.replace("\n", " \n ").replace(".", " .").replace("?", " ?").split(" ")
        assert tokenizer(text)["input_ids"] == [ids["[BOS]"], *(ids[word] for word in words if word)]


@pytest.mark.parametrize("passages", [2, 6])
def test_a_reader_who_ignores_the_person_scores_one_in_as_many_as_there_are_passages(passages: int) -> None:
    right = 0
    samples = open_book_samples(300, passages=passages)
    for sample in samples:
        shown = [*sample.evidence, *sample.distractors]
        ((_, facts),) = facts_of(Random(sample.id).choice(shown).text).items()
        right += facts[person_and_verb(sample)[1]] == sample.answers[0]
        assert shortcut(sample, shown) == 1 / passages
    assert abs(right / 300 - 1 / passages) < 0.06


def test_the_shortcut_is_what_is_said_most_often_by_lot_among_equals() -> None:
    sample = OPEN[0]
    gold, others, conflict = sample.evidence, sample.distractors, sample.conflicts
    assert shortcut(sample, [*gold[:1], *others[:3], *conflict]) == 1 / 5
    assert shortcut(sample, [*gold[:3], *others[:2]]) == 1
    assert shortcut(sample, [*gold[:2], *others[:1], *others[:1], *others[1:2]]) == 1 / 2
    assert shortcut(sample, others) == 0
    assert shortcut(sample, gold[:1]) == 1


def test_joining_two_passages_leaves_the_shortcut_of_a_two_hop_question_as_it_is() -> None:
    for sample in HOPS:
        apart = [*sample.evidence, *sample.distractors]
        joined = [Passage(" ".join(passage.text for passage in sample.evidence)), *sample.distractors]
        assert shortcut(sample, apart) == shortcut(sample, joined) == 1 / 6


def test_without_passages_the_shortcut_is_the_best_guess() -> None:
    assert shortcut(OPEN[0], []) == shortcut(HOPS[0], []) == 1 / 20
    assert shortcut(DESCRIPTIONS[0], []) == pytest.approx(1 / 20**4)
    assert shortcut(DESCRIPTIONS[0], [*DESCRIPTIONS[0].evidence, *DESCRIPTIONS[0].distractors]) == 1 / 6
    samples = closed_book_samples(256)
    for sample in samples[:20]:
        verb = person_and_verb(sample)[1]
        answers = [other.answers[0] for other in samples if person_and_verb(other)[1] == verb]
        assert shortcut(sample, []) == Counter(answers).most_common(1)[0][1] / 64


def test_what_the_world_cannot_tell_is_refused() -> None:
    for make in (open_book_samples, description_samples):
        with pytest.raises(Refusal, match="1 passages were asked for; these questions need 2 to 19"):
            make(1, passages=1)
        with pytest.raises(Refusal, match="20 passages"):
            make(1, passages=20)
        assert len(make(1, passages=19)[0].passages) == 20
    with pytest.raises(Refusal, match="need 3 to 20"):
        two_hop_samples(1, passages=2)
    with pytest.raises(Refusal, match="neither can be negative"):
        open_book_samples(-1)
    with pytest.raises(Refusal, match="0 to 23 other orders"):
        open_book_samples(1, restatements=24)
    with pytest.raises(Refusal, match=r"257 closed-book questions .* 256 facts"):
        closed_book_samples(257)
    foreign = Sample("nq-1", "Who?", ("Nobody",))
    with pytest.raises(Refusal, match="sample nq-1 holds no value of the world"):
        values_of(foreign)
    with pytest.raises(Refusal, match="world-open-0000 hold no facts of the world"):
        shortcut(OPEN[0], [Passage("The tower is tall.")])
