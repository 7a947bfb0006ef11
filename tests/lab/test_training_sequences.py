"""What the twins see in training: nobody they are tested on, rectangles with marked answers, and the same at every run."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest
import torch
from micro_recipe import MICRO

from floatlens.lab.recipe import bundled_recipe
from floatlens.lab.sequences import BUILDERS, Batch, Shape, make_batch
from floatlens.lab.updates import data_hash, draw_batches
from floatlens.tasks.world.people import make_world
from floatlens.tasks.world.words import BOS, EOS, FIRST_NAMES, LAST_NAMES, vocabulary

WORLD = make_world()
TWINS = bundled_recipe()
UPDATES_OF_A_STAGE = 12


def stage_batches() -> Iterator[Batch]:
    """The first updates of every stage of the twins' recipe."""
    first = 1
    for stage in TWINS.stages:
        for update in range(first, first + UPDATES_OF_A_STAGE):
            yield from draw_batches(TWINS, WORLD, update)
        first += stage.updates


def test_no_pair_of_names_of_a_test_person_is_in_the_training_text_but_every_name_is() -> None:
    words, firsts, lasts = vocabulary(), set(FIRST_NAMES), set(LAST_NAMES)
    pairs: set[tuple[str, str]] = set()
    sequences = 0
    for batch in stage_batches():
        for row in batch.tokens.tolist():
            sequences += 1
            said = [words[token] for token in row]
            pairs |= {(one, other) for one, other in pairwise(said) if one in firsts and other in lasts}
    assert sequences > 2000
    assert not pairs & set(WORLD.test)
    assert len(pairs & set(WORLD.training)) > 1000
    assert len(pairs & set(WORLD.known)) == 64
    assert {name for pair in pairs for name in pair} == firsts | lasts


@pytest.mark.parametrize("kind", list(BUILDERS))
def test_sequences_of_a_shape_have_one_length_begin_and_end_alike_and_mark_their_answers(kind: str) -> None:
    shape = Shape(kind, passages=0 if kind.startswith("closed") else 3, fillers=1, questions=2, ends=3)
    batch = make_batch(Random(0), WORLD, shape, 20)
    words = vocabulary()
    for row, answers in zip(batch.tokens.tolist(), batch.answers.tolist(), strict=True):
        said = [words[token] for token in row]
        assert said[0] == BOS
        assert said[-3:] == [EOS] * 3
        assert answers[-3:] == [True] * 3
        assert not answers[0]
        starts = [at for at in range(1, len(row) - 3) if answers[at] and not answers[at - 1]]
        for start in starts:  # what is asked stands before each answer
            assert said[start - 1] in ("?", ".")
        assert len(starts) == (1 if "description" in kind else 2)


def test_answers_are_what_the_passages_say() -> None:
    """Every answered question is looked up in the passages of its own sequence, word by word."""
    words, verbs = vocabulary(), {"do": "is", "live": "lives", "keep": "keeps", "play": "plays"}
    batch = make_batch(Random(1), WORLD, Shape("open", passages=4, fillers=2, questions=6), 30)
    for row, answers in zip(batch.tokens.tolist(), batch.answers.tolist(), strict=True):
        said = [words[token] for token in row]
        facts = {
            tuple(said[at : at + 3]): said[at + 4]
            for at in range(len(said) - 5)
            if said[at] in FIRST_NAMES and said[at + 2] in verbs.values()
        }
        asked = [at for at in range(1, len(row)) if answers[at] and not answers[at - 1] and said[at] != EOS]
        assert len(asked) == 6
        for at in asked:
            first, last, verb, mark = said[at - 4 : at]
            assert mark == "?"
            assert said[at] == facts[first, last, verbs[verb]]


def test_an_update_is_the_same_whatever_came_before_it() -> None:
    later = draw_batches(MICRO, WORLD, 20)
    for update in range(1, 20):
        draw_batches(MICRO, WORLD, update)
    again = draw_batches(MICRO, make_world(), 20)
    assert all(torch.equal(one.tokens, other.tokens) for one, other in zip(later, again, strict=True))
    assert not torch.equal(later[0].tokens, draw_batches(MICRO, WORLD, 21)[0].tokens)


def test_the_data_hash_follows_the_data_and_nothing_else() -> None:
    own = data_hash(MICRO)
    assert own == data_hash(MICRO)
    assert own == data_hash(replace(MICRO, optimizer=replace(MICRO.optimizer, rate=1.0), model=replace(MICRO.model, layers=5)))
    assert own != data_hash(replace(MICRO, seed=4))
    longer, last = MICRO.stages[0], MICRO.stages[1]
    assert own != data_hash(replace(MICRO, stages=(longer, replace(last, mixture=last.mixture[:1]))))
    assert own != data_hash(replace(MICRO, stages=(replace(longer, updates=13), last)))  # the last stage begins elsewhere
