"""A claim, the rule by which it is judged, and the verdict.

A claim says what a paper says, in plain words, and by which rule it holds; the rule is written down with the claim, before any number is seen. What was measured comes as `Part`s: an
estimate with its interval over prompts, the null or control beside it, and a line. `judge` reads nothing else, so a verdict is computed and never written.

Decided here: a part holds if its whole interval lies on the claimed side of the line, fails if the whole interval lies on the other side, and cannot be said where the interval includes the line, where there is no
interval, or where something bars the question (a model at the shortcut, two models at the ceiling). A claim fails if one of its parts fails, holds if all hold, and cannot be said otherwise.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from floatlens.claims.estimates import Estimate

Outcome = Literal["holds", "fails", "cannot be said"]
Side = Literal["above", "below", "within"]

INCLUDES = "the interval includes the line"


@dataclass(frozen=True)
class Claim:
    """What a paper claims, and by which rule it holds for the twins. The rule is fixed before anything is measured."""

    name: str
    paper: str
    statement: str
    rule: str


@dataclass(frozen=True)
class Part:
    """One number of a claim: what it is, its estimate, and on which side of a line it has to lie ("within": between minus and plus the line).

    `beside` is the null or the control, and `beside_says` which; `barred` says why the question cannot be asked of these models, or "".
    """

    says: str
    estimate: Estimate
    side: Side
    line: float
    beside: float = math.nan
    beside_says: str = ""
    unit: str = ""
    barred: str = ""


@dataclass(frozen=True)
class Verdict:
    """What came out for a claim: the outcome, why it cannot be said where it cannot, and the parts it follows from."""

    claim: Claim
    outcome: Outcome
    reason: str
    parts: tuple[Part, ...]


def outcome_of(part: Part) -> tuple[Outcome, str]:
    """Whether a part holds, and why that cannot be said where it cannot.

    Examples
    --------
    >>> outcome_of(Part("gain", Estimate(0.2, 0.1, 0.3, 40), "above", 0.0))
    ('holds', '')
    >>> outcome_of(Part("gain", Estimate(0.2, -0.1, 0.5, 40), "above", 0.0))
    ('cannot be said', 'the interval includes the line')
    """
    found = part.estimate
    if part.barred:
        return "cannot be said", part.barred
    if math.isnan(found.value) or math.isnan(found.low) or math.isnan(found.high):
        return "cannot be said", found.reason or "there is no interval"
    low, high, line = found.low, found.high, part.line
    if part.side == "within":
        holds, fails = -line < low and high < line, low > line or high < -line
    else:
        holds, fails = (low > line, high < line) if part.side == "above" else (high < line, low > line)
    return ("holds", "") if holds else ("fails", "") if fails else ("cannot be said", INCLUDES)


def judge(claim: Claim, parts: Sequence[Part]) -> Verdict:
    """The verdict that follows from the parts.

    Examples
    --------
    >>> claim = Claim("gain", "a paper", "A gains more than B.", "the interval of the difference lies above 0")
    >>> above, below = (Part("gain", Estimate(value, value - 0.1, value + 0.1, 40), "above", 0.0) for value in (0.2, -0.2))
    >>> judge(claim, [above]).outcome, judge(claim, [above, below]).outcome
    ('holds', 'fails')
    """
    if not parts:
        raise ValueError(f"the claim {claim.name} has no parts")
    found = [outcome_of(part) for part in parts]
    outcomes = [outcome for outcome, _ in found]
    if "fails" in outcomes:
        return Verdict(claim, "fails", "", tuple(parts))
    if "cannot be said" in outcomes:
        return Verdict(claim, "cannot be said", "; ".join(dict.fromkeys(reason for _, reason in found if reason)), tuple(parts))
    return Verdict(claim, "holds", "", tuple(parts))
