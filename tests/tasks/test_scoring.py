"""Scores against the published SQuAD v1.1 definitions, written here anew, and against cases decided by hand."""

import re
import string
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from floatlens.errors import Refusal
from floatlens.tasks.samples import Sample
from floatlens.tasks.scoring import (
    contains,
    contains_any,
    exact_match,
    f1,
    final_number,
    first_line,
    normalise,
    score_number,
    score_text,
)


def squad_normal_form(text: str) -> list[str]:
    """SQuAD v1.1 by its definition: lower case; drop ASCII punctuation; articles become blanks; split at white space."""
    kept = "".join(character for character in text.lower() if character not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", kept).split()


def squad_f1(prediction: str, answer: str) -> float:
    written, right = squad_normal_form(prediction), squad_normal_form(answer)
    both = sum((Counter(written) & Counter(right)).values())
    if both == 0:
        return 0.0
    precision, recall = both / len(written), both / len(right)
    return 2 * precision * recall / (precision + recall)


TRICKY = [
    "The Beatles",
    "a",
    "an apple a day",
    "U.S.A.",
    "it's",
    "Ångström-unit",
    "“quoted”",
    "theory",
    "A-team",
    "  two\tblanks \n",
    "",
    "?!",
    "İstanbul",
    "naïve café",
]


@pytest.mark.parametrize("prediction", TRICKY)
@pytest.mark.parametrize("answer", TRICKY)
def test_normal_form_and_f1_are_those_of_squad(prediction: str, answer: str) -> None:
    assert normalise(prediction) == " ".join(squad_normal_form(prediction))
    assert f1(prediction, answer) == pytest.approx(squad_f1(prediction, answer))


@given(st.text(max_size=30), st.text(max_size=30))
def test_f1_is_that_of_squad_for_any_text(prediction: str, answer: str) -> None:
    assert f1(prediction, answer) == pytest.approx(squad_f1(prediction, answer))


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("The.", ""),
        ("“The” end", "“ ” end"),
        ("Theatre, an ART", "theatre art"),
        ("half-a-loaf", "halfaloaf"),
        ("\u00c9cole", "\u00e9cole"),
    ],
)
def test_normal_forms_decided_by_hand(text: str, normal: str) -> None:
    assert normalise(text) == normal


@pytest.mark.parametrize(
    ("text", "answer", "whole", "anywhere"),
    [
        ("It was Oslo.", "oslo", True, True),
        ("a party", "art", False, True),
        ("in 1914", "1", False, True),
        ("the U.S. of A.", "US", True, True),
        ("New York City", "york city", True, True),
        ("New Yorkers", "New York", False, True),
        ("他住在奥斯陆。", "奥斯陆", True, True),
        ("Oslo市に住む", "Oslo", True, True),
        ("서울은 수도", "서울", True, True),
        ("naïve", "na", False, True),
        ("anything", "The", False, False),
        ("", "Oslo", False, False),
        ("C++ (sort of)", "c++", True, True),
    ],
)
def test_containment_ends_at_words(text: str, answer: str, whole: bool, anywhere: bool) -> None:
    assert contains(text, answer) is whole
    assert contains(text, answer, whole_words=False) is anywhere
    assert contains_any(text, ["nowhere", answer]) is whole


def test_nothing_is_never_right() -> None:
    assert not exact_match("", "The")
    assert not exact_match("a", "the")
    found = score_text("The", Sample("a", "What?", ("?!", "the")))
    assert (found.accuracy, found.exact_match, found.f1) == (0.0, 0.0, 0.0)


def test_each_score_is_the_best_over_all_answers() -> None:
    found = score_text("the city of Oslo", Sample("a", "Where?", ("Bergen", "City of Oslo", "Oslo")))
    assert (found.accuracy, found.exact_match, found.f1) == (1.0, 1.0, 1.0)
    found = score_text("Oslo or Bergen", Sample("a", "Where?", ("Rome", "Bergen, Norway")))
    assert (found.accuracy, found.exact_match) == (0.0, 0.0)
    assert found.f1 == pytest.approx(2 * (1 / 3) * (1 / 2) / (1 / 3 + 1 / 2))


def test_only_the_first_line_with_text_counts() -> None:
    assert first_line("\n\n  Oslo  \nRome") == "Oslo"
    assert first_line(" \n ") == ""
    assert score_text("I do not know\nOslo", Sample("a", "Where?", ("Oslo",))).accuracy == 0


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("so 3 x 4 = 12.", 12.0),
        ("$1,250.50 in all", 1250.5),
        ("first 7\n#### 1,024 and 9", 1024.0),
        ("#### none, but 5 before? ", 5.0),
        ("7 #### ", 7.0),
        ("it fell to -3", -3.0),
        ("pages 3-4", 4.0),
        (".5 of it", 0.5),
        ("x2 and y3", None),
        ("none", None),
    ],
)
def test_the_final_number_is_the_last_or_the_marked_one(text: str, number: float | None) -> None:
    assert final_number(text) == number


def test_a_final_number_is_compared_as_a_number() -> None:
    sample = Sample("g", "How many?", ("5 * 200 = 1000\n#### 1,000",))
    assert score_number("So there are 1000.00 of them.", sample).accuracy == 1
    wrong = score_number("1000 of 1001", sample)
    assert (wrong.prediction, wrong.accuracy, wrong.exact_match, wrong.f1) == ("1001", 0.0, 0.0, None)
    assert score_number("no idea", sample).accuracy == 0
    with pytest.raises(Refusal, match="'many' of sample g holds no number"):
        score_number("3", Sample("g", "How many?", ("many",)))
