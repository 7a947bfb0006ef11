"""Verdicts for people: lines and tables in the terminal, readable at 80 columns, and the same as a page of Markdown.

The claims, one line a number, with its interval and the null or control beside it; a table of differences, split into objective and mask; a table of accuracies with the shortcut beside each. The page also has masking,
condition by condition, and all rules.
"""

import math
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from floatlens.claims.estimates import Estimate
from floatlens.claims.evidence import TWINS
from floatlens.claims.findings import Findings
from floatlens.claims.verdicts import Part, Verdict, outcome_of
from floatlens.report.tables import narrow_table, number, with_interval

ONE_RUN = "One training run of each twin: intervals are over prompts, not over trainings. Another training could differ by more than the intervals say."
STYLES = {"holds": "green", "fails": "red", "cannot be said": "yellow"}
DAMAGE = "Damage is what the untouched twin has more; per removed attention it is that over the share of attention that was removed."


def print_claims(console: Console, found: Findings) -> None:
    """Every claim with its verdict, and below it its numbers, one a line."""
    for verdict in found.verdicts:
        said = Text(f"{verdict.outcome:<15}", style=STYLES[verdict.outcome])
        console.print(said, Text(verdict.claim.statement, style="bold"), Text(f" ({verdict.claim.paper})", style="dim"), sep="")
        for part in verdict.parts:
            value, interval, beside, prompts = _numbers(part)
            outcome, _ = outcome_of(part)
            mark = "" if len(verdict.parts) == 1 else f"; {outcome}"
            line = f"  {part.says}: {value} {interval}, beside {beside}, n = {prompts}{mark}"
            console.print(Text(line), highlight=False)
        if verdict.reason:
            console.print(Text(f"  {verdict.reason}", style="dim"))
    console.print()


def print_splits(console: Console, found: Findings) -> None:
    """Every difference between ARM and MDM, with what it follows."""
    table = _table("ARM minus MDM", "whole", "objective", "mask", "follows")
    for split in found.splits:
        table.add_row(Text(split.quantity), *map(_estimate, (split.whole, split.objective, split.mask)), Text(split.follows))
    console.print(table)


def print_accuracies(console: Console, found: Findings) -> None:
    """How often each twin is right in every context, with the shortcut beside it."""
    table = _table("right in", *TWINS, "shortcut", "n")
    for row in found.accuracies:
        table.add_row(Text(row.context), *(_estimate(row.by_twin[twin]) for twin in TWINS), number(row.shortcut), str(row.questions))
    console.print(table)


def claims_markdown(found: Findings) -> str:
    """All tables as a page."""
    about = found.about
    models = ", ".join(f"{twin}: {model}" for twin, model in about["models"].items())
    asked = f"{about['questions']} questions in each context, {about['traced']} traced texts, seed {about['seed']}"
    judged = [
        [*_head(verdict, place), f"{part.says}, {part.side} {number(part.line)}", *_numbers(part)]
        for verdict in found.verdicts
        for place, part in enumerate(verdict.parts)
    ]
    split = [[one.quantity, *map(_estimate, (one.whole, one.objective, one.mask)), one.follows] for one in found.splits]
    masked = [
        [
            row.experiment,
            row.twin,
            str(row.keys),
            row.what,
            *map(_estimate, (row.outcome, row.removed, row.damage, row.damage_per_removed)),
        ]
        for row in found.masking
    ]
    right = [
        [row.context, *(_estimate(row.by_twin[twin]) for twin in TWINS), number(row.shortcut), str(row.questions)]
        for row in found.accuracies
    ]
    return "\n".join(
        [
            f"# What holds for the twins\n\n{models}. {asked}. {ONE_RUN}\n",
            *_markdown(["claim", "paper", "verdict", "number", "value", "95 % interval", "null or control", "n"], judged),
            "\n## Mask or objective?\n",
            *_markdown(["ARM minus MDM", "whole", "objective", "mask", "follows"], split),
            f"\n## Masking\n\n{DAMAGE}\n",
            *_markdown(["experiment", "twin", "keys", "masked", "outcome", "removed", "damage", "damage per removed"], masked),
            "\n## Accuracies\n",
            *_markdown(["right in", *TWINS, "shortcut", "n"], right),
            "\n## The rules\n",
            *(f"- *{verdict.claim.statement}* holds if {verdict.claim.rule}." for verdict in found.verdicts),
            "",
        ]
    )


def _estimate(found: Estimate) -> str:
    return with_interval(found.value, found.low, found.high)


def _table(*headings: str) -> Table:
    table = narrow_table()
    for place, heading in enumerate(headings):
        table.add_column(heading, min_width=16 if place == 0 else None, overflow="fold", justify="right" if place else "left")
    return table


def _markdown(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return ["| " + " | ".join(cells) + " |" for cells in (headings, ["---"] * len(headings), *rows)]


def _head(verdict: Verdict, place: int) -> tuple[str, str, str]:
    """What stands before the first number of a claim, and is empty before the others."""
    because = f" ({verdict.reason})" if verdict.reason else ""
    return (verdict.claim.statement, verdict.claim.paper, f"**{verdict.outcome}**{because}") if not place else ("", "", "")


def _numbers(part: Part) -> list[str]:
    found = part.estimate
    beside = "-" if math.isnan(part.beside) else f"{number(part.beside)} {part.beside_says}".strip()
    return [f"{number(found.value)} {part.unit}".strip(), _interval(found), beside, str(found.prompts)]


def _interval(found: Estimate) -> str:
    return "-" if math.isnan(found.low) else f"[{number(found.low)}, {number(found.high)}]"
