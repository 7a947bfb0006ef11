"""The world keeps what its questions rest on: test people are new, ignoring the person pays the shortcut and no more, sizes and streams
are fixed.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from floatlens.errors import Refusal
from floatlens.tasks.world import (
    ATTRIBUTES,
    LAYOUTS,
    RELATIONS,
    Question,
    asked,
    asked_who,
    closed_book,
    conflicting,
    describing,
    draw_people,
    draw_values,
    fact,
    linked_reading,
    make_world,
    open_book,
    reading,
    two_hop,
    vocabulary,
    world_hash,
)
from floatlens.tasks.world import tokenizer as tokenizer_module
from floatlens.tasks.world.words import FIRST_NAMES, LAST_NAMES, NEWLINE

WORLD = make_world()
HASH = "7c7279da78209a52a7032532d799dde5746fc2b6eb539ad52e51518210a9d4e6"


def pairs_of_names(words: Sequence[str]) -> set[tuple[str, str]]:
    firsts, lasts = set(FIRST_NAMES), set(LAST_NAMES)
    return {(one, other) for one, other in pairwise(words) if one in firsts and other in lasts}


def passages_of(question: Question) -> list[list[str]]:
    """Cut at the new lines, whatever the regions say; the last piece is the question."""
    pieces: list[list[str]] = [[]]
    for word in question.prompt:
        pieces[-1].append(word)
        if word == NEWLINE:
            pieces.append([])
    return pieces[:-1]


def training_texts() -> list[list[str]]:
    """Passages as training draws them, of every kind, and all that is asked about the known."""
    texts = []
    for seed in range(150):
        rng = Random(f"training text {seed}")
        texts.append(reading(rng, draw_people(rng, WORLD.training, 6), draw_values(rng, 6)).words)
        texts += [linked_reading(rng, WORLD.training, 4, layout, "friend").read.words for layout in LAYOUTS]
    return texts + [asked(person, attribute) for person in WORLD.known for attribute in ATTRIBUTES]


def test_training_text_never_names_a_test_person_but_has_each_of_their_names() -> None:
    texts = training_texts()
    named = set().union(*map(pairs_of_names, texts))
    assert len(named) > 1000
    assert not named & set(WORLD.test)
    assert {name for person in WORLD.test for name in person} <= {word for text in texts for word in text}


def test_everybody_is_in_one_group() -> None:
    everybody = [*WORLD.known, *WORLD.training, *WORLD.test]
    assert len(everybody) == len(set(everybody)) == len(FIRST_NAMES) * len(LAST_NAMES)


def test_a_word_has_one_meaning() -> None:
    """A value is never also a name, another attribute's value or a word of a template, so that counting words counts facts."""
    values = [value for attribute in ATTRIBUTES for value in attribute.values]
    assert len(values) == len(set(values))
    assert not set(values) & {*FIRST_NAMES, *LAST_NAMES}
    assert not set(FIRST_NAMES) & set(LAST_NAMES)
    assert len(vocabulary()) == len(set(vocabulary()))


def test_verb_and_names_stand_as_far_before_an_answer_as_before_the_value_of_a_fact() -> None:
    person = WORLD.test[0]
    for attribute in ATTRIBUTES:
        sentence, question = fact(person, attribute, attribute.values[0]), [*asked(person, attribute), attribute.values[0]]
        hop = [*asked(person, attribute, "friend"), attribute.values[0]]
        for words, verb in ((sentence[:-1], attribute.said[0]), (question, attribute.asked[1]), (hop, attribute.asked[1])):
            assert words[-5:-2] == [*person, verb]
    assert asked_who(person, "friend")[-3:-1] == [*person]


@given(st.integers(0, 10_000), st.integers(1, 8))
@settings(max_examples=40)
def test_every_passage_holds_every_attribute_with_a_value_of_its_own(seed: int, passages: int) -> None:
    texts = passages_of(open_book(Random(seed), WORLD.test, passages))
    assert len(texts) == passages
    for attribute in ATTRIBUTES:
        held = [[word for word in text if word in attribute.values] for text in texts]
        assert all(len(values) == 1 for values in held)
        assert len({values[0] for values in held}) == passages


@pytest.mark.parametrize("passages", [2, 6])
def test_ignoring_the_person_scores_the_shortcut(passages: int) -> None:
    """A reader who takes the asked attribute's value from the first passage."""
    verbs = {attribute.asked[1]: attribute.values for attribute in ATTRIBUTES}
    right = 0
    for seed in range(900):
        question = open_book(Random(seed), WORLD.test, passages)
        values = verbs[question.prompt[-2]]
        right += next(word for word in question.prompt if word in values) == question.answer[0]
        assert question.shortcut == 1 / passages
    assert abs(right / 900 - 1 / passages) < 0.05


@given(st.integers(0, 10_000))
@settings(max_examples=40)
def test_the_answer_is_said_of_the_person_asked_for(seed: int) -> None:
    question = open_book(Random(seed), WORLD.test, 5)
    gold = passages_of(question)[question.gold_slots[0]]
    at = gold.index(question.answer[0])
    assert gold[at - 4 : at - 2] == question.prompt[-4:-2]


def test_regions_are_the_passages_and_the_question() -> None:
    for question in (open_book(Random(1), WORLD.test, 3), two_hop(Random(1), WORLD.test, 3), describing(Random(1), WORLD.test, 3)):
        texts = passages_of(question)
        assert [question.prompt[slice(*question.regions[f"doc_{number + 1}"])] for number in range(3)] == texts
        assert question.prompt[slice(*question.regions["query"])] == question.prompt[sum(map(len, texts)) :]
        assert len(question.regions) == 4


@pytest.mark.parametrize("slot", range(4))
def test_gold_stands_where_it_is_wanted(slot: int) -> None:
    for make in (open_book, describing):
        question = make(Random(slot), WORLD.test, 4, gold=slot)
        holders = [number for number, text in enumerate(passages_of(question)) if question.accepted[0] in text]
        assert holders == [slot] == [*question.gold_slots]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_two_hop_evidence_lies_where_the_layout_says_and_leads_to_the_answer(layout: str) -> None:
    for seed in range(60):
        question = two_hop(Random(seed), WORLD.test, 6, layout)
        texts = passages_of(question)
        distance = abs(question.gold_slots[-1] - question.gold_slots[0])
        assert {"one": distance == 0, "adjacent": distance == 1, "far": distance >= 3}[layout]
        assert all(text.count("of") == 1 for text in texts)
        holder, gold = texts[question.gold_slots[0]], texts[question.gold_slots[-1]]
        of = holder.index("of")
        assert holder[of + 1 : of + 3] == question.prompt[-4:-2]
        assert holder[of - 1] == question.prompt[-6]
        other, value = holder[of + 4 : of + 6], question.accepted[0]
        at = gold.index(value)
        assert gold[at - 4 : at - 2] == other
        assert question.answer == [*gold[at - 4 : at + 1], "."]
        assert value in next(attribute.values for attribute in ATTRIBUTES if attribute.asked[1] == question.prompt[-2])


def test_in_a_set_with_relations_everybody_is_somebody_elses_friend_once() -> None:
    for seed in range(40):
        linked = linked_reading(Random(seed), WORLD.test, 5, "far", "teacher")
        assert sorted(slot for _, slot in linked.links) == [0, 1, 2, 3, 4]
        assert all(person != linked.read.people[slot] for person, slot in linked.links)


def test_conflicting_passages_give_one_person_two_values() -> None:
    for seed in range(40):
        question = conflicting(Random(seed), WORLD.test, 4)
        texts, person = passages_of(question), question.prompt[-4:-2]
        assert question.accepted[0] != question.accepted[1]
        for slot, value in zip(question.gold_slots, question.accepted, strict=True):
            at = texts[slot].index(value)
            assert texts[slot][at - 4 : at - 2] == person


def test_half_of_the_sets_share_a_name() -> None:
    shared = 0
    for seed in range(400):
        people = draw_people(Random(seed), WORLD.test, 2)
        assert people[0] != people[1]
        shared += people[0].first == people[1].first or people[0].last == people[1].last
    assert 0.4 < shared / 400 < 0.62


def test_closed_book_answers_are_the_known_facts_and_guessing_scores_the_shortcut() -> None:
    verbs = [attribute.asked[1] for attribute in ATTRIBUTES]
    known = {(person.first, person.last): values for person, values in WORLD.known.items()}
    for seed in range(50):
        question = closed_book(Random(seed), WORLD)
        index = verbs.index(question.prompt[-2])
        assert question.answer == [known[question.prompt[2], question.prompt[3]][index], "."]
        guesses = [sum(values[index] == guess for values in known.values()) for guess in ATTRIBUTES[index].values]
        assert question.shortcut == max(guesses) / 64


def test_a_description_says_the_four_values_of_the_gold_passage() -> None:
    for seed in range(20):
        question = describing(Random(seed), WORLD.test, 6)
        person, gold = question.prompt[-3:-1], passages_of(question)[question.gold_slots[0]]
        assert len(question.answer) == 29
        for attribute, value in zip(ATTRIBUTES, question.accepted, strict=True):
            said = [*person, *attribute.said, value]
            for text in (question.answer, gold):
                assert said in [text[at : at + 5] for at in range(len(text))]


def test_questions_of_one_kind_and_size_have_one_length() -> None:
    for make in (open_book, conflicting, describing, two_hop):
        assert (
            len({(len(question.prompt), len(question.answer)) for question in (make(Random(seed), WORLD.test, 4) for seed in range(25))})
            == 1
        )


def test_the_world_is_the_one_the_twins_were_trained_in() -> None:
    assert world_hash(WORLD) == world_hash(make_world(0)) == HASH


def test_the_draws_are_those_the_twins_were_trained_on() -> None:
    digest = hashlib.sha256()
    for seed in range(20):
        rng = Random(f"draws-{seed}")
        linked = [linked_reading(rng, WORLD.training, 4, layout, relation) for layout in LAYOUTS for relation in RELATIONS]
        made = [make(rng, WORLD.test, 5) for make in (open_book, two_hop, conflicting, describing)] + [closed_book(rng, WORLD)]
        content = ([one.read.words for one in linked], [one.links for one in linked], [[one.prompt, one.answer] for one in made])
        digest.update(repr(content).encode())
    assert digest.hexdigest()[:16] == "260e3b6f5edae14b"


def test_the_hash_sees_facts_order_and_wording(monkeypatch: pytest.MonkeyPatch) -> None:
    person, values = next(iter(WORLD.known.items()))
    other_fact = replace(WORLD, known=WORLD.known | {person: (*values[:3], "cello" if values[3] != "cello" else "harp")})
    other_order = replace(WORLD, training=WORLD.training[::-1])
    moved = replace(WORLD, training=WORLD.training[1:], test=(*WORLD.test, WORLD.training[0]))
    hashes = {HASH, world_hash(make_world(1)), world_hash(other_fact), world_hash(other_order), world_hash(moved)}
    for name, changed in (
        ("vocabulary", lambda: (*vocabulary()[::-1],)),
        ("asked", lambda person, attribute, relation: ["What", *asked(person, attribute, relation)]),
        ("SEASONS", ("spring", "autumn")),
    ):
        with monkeypatch.context() as patched:
            patched.setattr(tokenizer_module, name, changed)
            hashes.add(world_hash(WORLD))
    assert len(hashes) == 8


def test_impossible_questions_are_refused() -> None:
    rng, pool = Random(0), WORLD.test
    with pytest.raises(Refusal, match="Slot 2 does not exist among 2 passages"):
        open_book(rng, pool, 2, gold=2)
    with pytest.raises(Refusal, match="at least one, not 0"):
        describing(rng, pool, 0)
    with pytest.raises(Refusal, match="need at least three passages in all, not 2"):
        two_hop(rng, pool, 2, "far")
    with pytest.raises(Refusal, match="not 0 passages"):
        two_hop(rng, pool, 0, "one")
    with pytest.raises(Refusal, match="no layout 'near'; the layouts are one, adjacent, far"):
        two_hop(rng, pool, 4, "near")
    with pytest.raises(Refusal, match="there are 20; ask for fewer passages"):
        open_book(rng, pool, 21)
    with pytest.raises(Refusal, match="at least two, not 1"):
        conflicting(rng, pool, 1)
    with pytest.raises(Refusal, match="6 different people were asked for, and there are 5"):
        draw_people(rng, pool[:5], 6)
    for known, share in ((0, 0.2), (1600, 0.2), (64, 0.0), (64, 1.0)):
        with pytest.raises(Refusal, match="leave a group empty"):
            make_world(known=known, test_share=share)
