"""Verdicts follow from intervals and thresholds, by rule."""

import math

import pytest

from floatlens.claims.findings import followed
from floatlens.claims.verdicts import Claim, Estimate, Part, judge, outcome_of

CLAIM = Claim("gain", "a paper", "A gains more than B.", "the difference lies above 0")
NOTHING = Estimate(math.nan, math.nan, math.nan, 0, "no anchors")


def part(low: float, high: float, side: str = "above", line: float = 0.0, barred: str = "") -> Part:
    return Part("gain", Estimate((low + high) / 2, low, high, 20), side, line, barred=barred)  # type: ignore[arg-type]  # sides are made up from texts here


@pytest.mark.parametrize(
    ("side", "line", "low", "high", "outcome"),
    [
        ("above", 0.0, 0.1, 0.3, "holds"),
        ("above", 0.0, -0.3, -0.1, "fails"),
        ("above", 0.0, -0.1, 0.3, "inconclusive"),
        ("above", 0.0, 0.0, 0.3, "inconclusive"),
        ("above", 0.0, -0.3, 0.0, "inconclusive"),
        ("above", 0.2, 0.1, 0.3, "inconclusive"),
        ("above", 0.2, 0.0, 0.1, "fails"),
        ("below", 0.05, -0.02, 0.04, "holds"),
        ("below", 0.05, 0.06, 0.2, "fails"),
        ("below", 0.05, 0.04, 0.06, "inconclusive"),
        ("below", 0.05, 0.0, 0.05, "inconclusive"),
        ("within", 0.05, -0.04, 0.04, "holds"),
        ("within", 0.05, 0.06, 0.2, "fails"),
        ("within", 0.05, -0.2, -0.06, "fails"),
        ("within", 0.05, -0.04, 0.06, "inconclusive"),
        ("within", 0.05, -0.05, 0.04, "inconclusive"),
        ("within", 0.05, -0.2, 0.2, "inconclusive"),
    ],
)
def test_a_part_holds_only_with_its_whole_interval_on_the_claimed_side(
    side: str, line: float, low: float, high: float, outcome: str
) -> None:
    found, reason = outcome_of(part(low, high, side, line))
    assert found == outcome
    assert reason == ("the interval includes the threshold" if outcome == "inconclusive" else "")


def test_what_bars_the_question_is_the_reason_whatever_the_interval() -> None:
    assert outcome_of(part(0.1, 0.3, barred="both are at the ceiling")) == ("not asked", "both are at the ceiling")


def test_a_number_that_does_not_exist_was_not_asked_and_one_without_interval_is_inconclusive() -> None:
    assert outcome_of(Part("gain", NOTHING, "above", 0.0)) == ("not asked", "no anchors")
    one_prompt = Estimate(0.5, math.nan, math.nan, 1, "one prompt, so no interval")
    assert outcome_of(Part("gain", one_prompt, "above", 0.0)) == ("inconclusive", "one prompt, so no interval")


def test_one_failing_part_fails_the_claim_and_one_open_part_leaves_it_open() -> None:
    holds, fails, is_open = part(0.1, 0.3), part(-0.3, -0.1), part(-0.1, 0.1)
    assert judge(CLAIM, [holds, holds]).outcome == "holds"
    assert judge(CLAIM, [holds, fails, is_open]).outcome == "fails"
    verdict = judge(CLAIM, [holds, is_open, Part("gain", NOTHING, "above", 0.0)])
    assert (verdict.outcome, verdict.reason) == ("inconclusive", "the interval includes the threshold; no anchors")


def test_a_claim_is_not_asked_only_if_none_of_its_parts_was() -> None:
    missing, barred = Part("gain", NOTHING, "above", 0.0), part(0.1, 0.3, barred="both are at the ceiling")
    verdict = judge(CLAIM, [missing, barred])
    assert (verdict.outcome, verdict.reason) == ("not asked", "no anchors; both are at the ceiling")
    verdict = judge(CLAIM, [missing, part(0.1, 0.3)])
    assert (verdict.outcome, verdict.reason) == ("inconclusive", "no anchors")
    assert judge(CLAIM, [missing, part(-0.3, -0.1)]).outcome == "fails"


def test_a_claim_without_numbers_is_no_verdict() -> None:
    with pytest.raises(ValueError, match="has no parts"):
        judge(CLAIM, [])


@pytest.mark.parametrize(
    ("objective", "mask", "follows"),
    [
        ((1.0, 2.0), (-0.5, 0.5), "objective"),
        ((-0.5, 0.5), (1.0, 2.0), "mask"),
        ((1.0, 2.0), (0.5, 1.0), "both"),
        ((1.0, 2.0), (-1.0, -0.5), "opposed"),
        ((-0.5, 0.5), (-0.5, 0.5), "inconclusive"),
    ],
)
def test_a_difference_follows_what_alone_is_there(objective: tuple[float, float], mask: tuple[float, float], follows: str) -> None:
    first, second = (Estimate(sum(ends) / 2, *ends, 20) for ends in (objective, mask))
    whole = Estimate(first.value + second.value, objective[0] + mask[0], objective[1] + mask[1], 20)
    found, reason = followed(whole, first, second)
    assert found == follows
    assert bool(reason) == (follows == "inconclusive"), "what is open has a reason"


def test_a_difference_that_is_not_there_follows_nothing() -> None:
    nothing, something = Estimate(0.1, -1.0, 1.2, 20), Estimate(0.5, 0.2, 0.8, 20)
    assert followed(nothing, something, nothing) == ("inconclusive", "the interval of the difference includes 0")
    assert followed(something, nothing, nothing) == ("inconclusive", "the intervals of both effects include 0")
    assert followed(NOTHING, NOTHING, something) == ("not asked", "no anchors")
