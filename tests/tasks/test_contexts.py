"""Which passages stand where: counted and looked up by hand."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from floatlens.errors import Refusal
from floatlens.tasks.contexts import ClosedBook, Conflict, Context, GoldOnly, Layout, Noise, Position, Retrieved, arrange, holds_evidence
from floatlens.tasks.samples import Passage, Sample

GOLD = [Passage(f"Ada lives in Oslo, says witness {number}.", title="Ada") for number in range(5)]
OTHERS = [Passage(f"Person {number} lives in town {number}.") for number in range(12)]
GIVEAWAY = Passage("Ben moved to Oslo.", title="Ben")
TITLED = Passage("It is a city.", title="Oslo")
CONFLICT = Passage("Ada lives in Rome.", conflicting=True)


def restated(name: str = "s-1") -> Sample:
    """Five gold passages that each hold the answer, two distractors that give it away, twelve that do not, one conflict."""
    passages = (OTHERS[0], GIVEAWAY, *GOLD, CONFLICT, TITLED, *OTHERS[1:])
    return Sample(name, "Where does Ada live?", ("Oslo",), passages, gold=tuple(range(2, 7)))


def two_hop(name: str = "h-1") -> Sample:
    first, second = Passage("The friend of Ada is Ben.", title="Ada"), Passage("Ben lives in Oslo.", title="Ben")
    return Sample(name, "Where does the friend of Ada live?", ("Oslo",), (first, second, *OTHERS), gold=(0, 1))


def test_closed_book_gold_and_retrieved_are_what_they_say() -> None:
    sample = restated()
    assert arrange(sample, ClosedBook()) == ()
    assert arrange(sample, GoldOnly()) == tuple(GOLD)
    assert arrange(sample, Retrieved(7)) == sample.passages[:7]
    assert CONFLICT not in arrange(sample, Retrieved(16))


@given(st.integers(1, 5), st.integers(0, 99))
def test_noise_has_as_many_distractors_as_its_definition(passages: int, percent: int) -> None:
    share, wanted = percent / 100, -(-passages * percent // 100)  # rounded up, in whole numbers
    if wanted == passages:
        with pytest.raises(Refusal, match="all"):
            Noise(share, passages)
        return
    shown = arrange(restated(), Noise(share, passages))
    assert len(shown) == passages
    assert sum(passage in GOLD for passage in shown) == passages - wanted
    assert sum(passage in OTHERS for passage in shown) == wanted


def test_decimals_count_as_written() -> None:
    assert [Noise(share, 10).distractors for share in (0, 0.1, 0.3, 0.6, 0.7, 0.8)] == [0, 1, 3, 6, 7, 8]


def test_larger_contexts_hold_the_distractors_of_smaller_ones_in_the_same_order() -> None:
    for name in ("a", "b", "c", "d"):
        sample = restated(name)
        before: tuple[Passage, ...] = ()
        for share in (0, 0.2, 0.4, 0.6, 0.8):
            shown = arrange(sample, Noise(share))
            assert set(before) & set(OTHERS) <= set(shown)
            shared = [passage for passage in before if passage in shown]
            assert shared == [passage for passage in shown if passage in shared]
            before = shown
        fewer, more = arrange(sample, Conflict(4)), arrange(sample, Conflict(9))
        assert list(fewer) == [passage for passage in more if passage in fewer]
        few, many = arrange(sample, Position(2, 4)), arrange(sample, Position(2, 9))
        assert set(few) <= set(many)


def test_no_distractor_holds_an_answer() -> None:
    for context in (Noise(0.8), Position(3, 12), Conflict(8)):
        shown = arrange(restated(), context)
        assert GIVEAWAY not in shown
        assert TITLED not in shown  # its title does


def test_gold_stands_at_its_slot_counted_from_one() -> None:
    for slot in range(1, 11):
        shown = arrange(restated(), Position(slot, 10))
        assert len(shown) == 10
        assert [number for number, passage in enumerate(shown, start=1) if passage in GOLD] == [slot]
        assert [passage for passage in shown if passage not in GOLD] == OTHERS[:9]


@pytest.mark.parametrize("passages", [3, 4, 5, 6, 9])
def test_layouts_join_neighbour_or_part_the_evidence(passages: int) -> None:
    slots = set()
    for number in range(24):
        sample = two_hop(f"h-{number}")
        one, adjacent, far = (arrange(sample, Layout(where, passages)) for where in ("one", "adjacent", "far"))
        assert len(adjacent) == len(far) == passages
        assert len(one) == passages - 1
        joined = next(passage for passage in one if passage not in OTHERS)
        assert "Ben lives in Oslo." in joined.text
        assert "The friend of Ada is Ben." in joined.text
        assert set(joined.title.split(" / ")) == {"Ada", "Ben"}
        first, second = (sorted(shown.index(passage) for passage in sample.evidence) for shown in (adjacent, far))
        assert first[1] - first[0] == 1
        assert 2 * (second[1] - second[0]) >= passages
        assert (
            {passage for passage in one if passage in OTHERS}
            == {passage for passage in far if passage in OTHERS}
            == set(OTHERS[: passages - 2])
        )
        assert [holds_evidence(sample, passage) for passage in one] == [passage == joined for passage in one]
        slots.add(first[0])
    assert slots == set(range(passages - 1))  # anywhere


def test_a_conflict_stands_beside_gold_among_distractors() -> None:
    before = []
    for number in range(24):
        shown = arrange(restated(f"c-{number}"), Conflict(5))
        assert len(shown) == 5
        assert shown.count(CONFLICT) == 1
        assert sum(passage in GOLD for passage in shown) == 1
        before.append(shown.index(CONFLICT) < shown.index(GOLD[0]))
    assert 4 < sum(before) < 20  # either comes first


@pytest.mark.parametrize("context", [Noise(0.4), Position(3, 10), Conflict()])
def test_the_same_sample_is_arranged_the_same_way_and_others_differently(context: Context) -> None:
    assert arrange(restated(), context) == arrange(restated(), context)
    assert holds_evidence(restated(), arrange(restated(), GoldOnly())[0])
    if not isinstance(context, Position):
        assert len({arrange(restated(f"s-{number}"), context) for number in range(12)}) > 3


@pytest.mark.parametrize(
    ("sample", "context", "sentence"),
    [
        (restated(), Noise(0, 6), "noise:0,passages=6 needs 6 gold passages, and sample s-1 has 5"),
        (restated(), Position(1, 14), "needs 13 distractors without an answer, and sample s-1 has 12"),
        (restated(), Retrieved(99), "retrieved:99 needs 99 passages, and sample s-1 has 19"),
        (restated(), Layout("far"), "places two gold passages, and sample s-1 has 5"),
        (two_hop(), Conflict(), "needs 1 conflicting passages, and sample h-1 has 0"),
        (two_hop(), Position(1, 4), "places 1 of the 2 gold passages of sample h-1, and they are needed together"),
        (two_hop(), Noise(0.8), "places 1 of the 2 gold passages of sample h-1"),
        (Sample("n-1", "Who?", ("Ben",)), GoldOnly(), "needs 1 gold passages, and sample n-1 has 0"),
        (Sample("n-1", "Who?", ("Ben",)), Position(1, 1), "needs 1 gold passages, and sample n-1 has 0"),
    ],
)
def test_what_a_sample_does_not_have_is_refused_with_its_id(sample: Sample, context: Context, sentence: str) -> None:
    with pytest.raises(Refusal) as refused:
        arrange(sample, context)
    assert sentence in str(refused.value)


def test_pieces_of_one_argument_stand_together() -> None:
    shown = arrange(two_hop(), Noise(0.6))
    assert {passage for passage in shown if holds_evidence(two_hop(), passage)} == set(two_hop().evidence)
    with_conflict = replace(two_hop(), passages=(*two_hop().passages, CONFLICT))
    assert len([passage for passage in arrange(with_conflict, Conflict()) if holds_evidence(with_conflict, passage)]) == 2


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Noise(1.0), "not the share of distractors"),
        (lambda: Noise(-0.1), "not the share of distractors"),
        (lambda: Noise(float("nan")), "not the share of distractors"),
        (lambda: Noise(0.9), "all 5 passages would be distractors"),
        (lambda: Position(0, 10), "slots count from 1"),
        (lambda: Position(11, 10), "slot 11 of 10 does not exist"),
        (lambda: Layout("near"), "the layouts are one, adjacent, far"),
        (lambda: Layout("far", 2), "passages=2 must be at least 3"),
        (lambda: Retrieved(0), "count=0 must be at least 1"),
        (lambda: Conflict(1), "passages=1 must be at least 2"),
    ],
)
def test_contexts_that_cannot_be_are_refused(make, sentence: str) -> None:
    with pytest.raises(Refusal) as refused:
        make()
    assert sentence in str(refused.value)
