"""The end of a demo in the terminal: one line per claim, with what was recorded of real models beside it, and a few sentences.

A line shows one number of its claim, the one that decided: the first with the verdict of the claim. `claims.md` has all of them, with
intervals, and so has the page. Two verdicts disagree where one holds and the other fails; neither inconclusive nor not asked is an answer.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from floatlens.claims.findings import Findings
from floatlens.claims.verdicts import Part, Verdict, outcome_of
from floatlens.report.demo_page import PAGE
from floatlens.report.recorded import Recorded
from floatlens.report.tables import Column, number, print_fitting
from floatlens.terminal import counted, say

TITLE = "What five papers claim, and what came out"
DISAGREE = "\N{NOT EQUAL TO}"
WORDS = {"holds": "hold", "fails": "fail", "inconclusive": "inconclusive", "not asked": "not asked"}


def deciding_part(verdict: Verdict) -> Part:
    """The first number with the verdict of the claim.

    Examples
    --------
    >>> from floatlens.claims.verdicts import Claim, Estimate, judge
    >>> parts = [Part(f"gain {value}", Estimate(value, value - 0.1, value + 0.1, 40), "above", 0.0) for value in (0.2, -0.2)]
    >>> deciding_part(judge(Claim("gain", "a paper", "Both gain.", "both lie above 0"), parts)).says
    'gain -0.2'
    """
    outcomes = [outcome_of(part)[0] for part in verdict.parts]
    return verdict.parts[outcomes.index(verdict.outcome)] if verdict.outcome in outcomes else verdict.parts[0]


def disagreeing(findings: Findings, recorded: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The claims of which one side says that they hold, and the other that they fail."""
    own = {verdict.claim.name: verdict.outcome for verdict in findings.verdicts}
    return [name for name, outcome in own.items() if name in recorded and {outcome, recorded[name]["verdict"]} == {"holds", "fails"}]


def title_of(models: Mapping[str, str]) -> str:
    """What a table calls the models that ran.

    Examples
    --------
    >>> title_of({"arm": "twin-arm", "mdm": "twin-mdm"}), title_of({"arm": "twin-arm", "mdm": "my-mdm"})
    ('twins', 'these models')
    """
    return "twins" if all(model.startswith("twin-") for model in models.values()) else "these models"


def print_demo(console: Console, findings: Findings, recorded: Recorded | None, asked: str, into: Path, *, opened: bool) -> None:
    """Print all that a demo prints when it is done: the table, what it adds up to, and where to look."""
    print_verdicts(console, findings, recorded)
    print_totals(console, findings, recorded, asked)
    say(console, f"{into}/claims.md has all numbers, intervals and rules.")
    page = into / PAGE
    say(console, f"Wrote {page} ({page.stat().st_size / 1e6:.1f} MB){', which opens now.' if opened else '. Open it in a browser.'}")


def print_verdicts(console: Console, findings: Findings, recorded: Recorded | None) -> None:
    """Print every claim with its verdict, the recorded one beside it, and the number that decided."""
    apart = disagreeing(findings, recorded.claims) if recorded else []
    verdicts, parts = findings.verdicts, [deciding_part(verdict) for verdict in findings.verdicts]
    columns = [Column("claim", [verdict.claim.name for verdict in verdicts])]
    columns.append(Column(title_of(findings.about["models"]), [verdict.outcome for verdict in verdicts]))
    if recorded:
        columns.append(Column(recorded.title, [_beside(verdict.claim.name, recorded, apart) for verdict in verdicts]))
    columns.append(Column("number", [_with_unit(part.estimate.value, part.unit) for part in parts], right=True))
    columns.append(Column("control", [_with_unit(part.beside, part.unit) for part in parts], optional=True, right=True))
    columns.append(Column("arXiv", [verdict.claim.paper.removeprefix("arXiv:") for verdict in verdicts], optional=True))
    own = title_of(findings.about["models"])
    print_fitting(console, [(f"{TITLE}; the numbers are those of {'the ' * (own == 'twins')}{own}", columns)])


def _beside(name: str, recorded: Recorded, apart: Sequence[str]) -> str:
    outcome = recorded.claims[name]["verdict"] if name in recorded.claims else "-"
    return f"{outcome} {DISAGREE}" if name in apart else outcome


def _with_unit(value: float, unit: str) -> str:
    return number(value) if math.isnan(value) else f"{number(value)} {unit}".rstrip()


def print_totals(console: Console, findings: Findings, recorded: Recorded | None, asked: str) -> None:
    """Print what the table adds up to, on how much it rests, and what its columns mean."""
    own = title_of(findings.about["models"])
    say(console, f"{own.capitalize()}: {_totals([verdict.outcome for verdict in findings.verdicts])}. {asked}")
    if recorded:
        apart = disagreeing(findings, recorded.claims)
        which = f"{counted(len(apart), 'claim')} ({DISAGREE})" if apart else "no claim"
        totals = _totals([claim["verdict"] for claim in recorded.claims.values()])
        say(console, f"{recorded.title}, recorded: {totals}. {recorded.said} The two disagree on {which}.")
        say(console, f"To make the recorded part again: {recorded.again}")
    say(console, "Each model was trained once: intervals are over prompts, not over trainings.")


def _totals(outcomes: Sequence[str]) -> str:
    """How many claims have each verdict.

    Examples
    --------
    >>> _totals(["holds", "fails", "holds"])
    '2 hold, 1 fails'
    """
    counts = Counter(outcomes)
    said = [(counts[outcome], word if counts[outcome] > 1 else outcome) for outcome, word in WORDS.items() if counts[outcome]]
    return ", ".join(f"{count} {word}" for count, word in said)
