"""Verdicts for people: lines and tables in the terminal, readable at 80 columns, and the same as a page of Markdown.

The claims, one line a number, with its interval and the null or control beside it; a table of differences, split into objective and mask; a table of accuracies with the shortcut beside each. The page also has masking,
condition by condition, and all rules.

Verdicts for programs: one JSON with everything, and one CSV with a line a number. What does not exist is null, or empty.

The figures of a demo: every figure of a twin's trace, masking against its controls, and, for all twins together, absorption and the context curves.

A figure that cannot be drawn is left out, and `left_out-....txt` beside the others says why.
"""

import csv
import io
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table
from rich.text import Text

from floatlens.claims.evidence import TWINS, Evidence
from floatlens.claims.findings import Findings
from floatlens.claims.masking import masking_table
from floatlens.claims.verdicts import Estimate, Part, Verdict, outcome_of
from floatlens.errors import Refusal
from floatlens.report import figures
from floatlens.report.figures.contexts import context_curves
from floatlens.report.tables import narrow_table, number, with_interval
from floatlens.trace.trace import Trace

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


WRITTEN_BY = "floatlens demo"


def claims_json(found: Findings) -> str:
    """Every claim with its numbers, every split difference, masking condition by condition, all accuracies."""
    said = {
        "written_by": WRITTEN_BY,
        "about": found.about,
        "caution": ONE_RUN,
        "claims": [
            {**asdict(one.claim), "verdict": one.outcome, "reason": one.reason, "numbers": [_of_part(part) for part in one.parts]}
            for one in found.verdicts
        ],
        "mask_or_objective": [asdict(split) for split in found.splits],
        "masking": [asdict(row) for row in found.masking],
        "accuracies": [asdict(row) for row in found.accuracies],
    }
    return json.dumps(_without_nan(said), indent=1, ensure_ascii=False) + "\n"


def claims_csv(found: Findings) -> str:
    """One line a number."""
    text = io.StringIO()
    rows = [
        {
            "claim": one.claim.name,
            "paper": one.claim.paper,
            "statement": one.claim.statement,
            "verdict": one.outcome,
            **{name: value for name, value in _of_part(part).items() if name != "estimate"},
            **asdict(part.estimate),
            "reason": one.reason,
            "verdict_of_number": outcome_of(part)[0],
        }
        for one in found.verdicts
        for part in one.parts
    ]
    writer = csv.DictWriter(text, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: "" if _is_nan(value) else value for name, value in row.items()} for row in rows)
    return text.getvalue()


def _of_part(part: Part) -> dict[str, Any]:
    outcome, reason = outcome_of(part)
    return {**asdict(part), "verdict_of_number": outcome, "reason": reason}


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nan(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(one) for one in value]
    return None if _is_nan(value) else value


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


FORMATS = ("svg",)
OF_EVERY_TWIN: dict[str, Callable[[Trace], Figure]] = {
    "temporal_drift": figures.temporal_drift,
    "float_index_by_layer": figures.float_index_by_layer,
    "retrieval_heads": figures.retrieval_heads,
}
OF_THE_MDM: dict[str, Callable[[Trace], Figure]] = {"qk_geometry": figures.qk_geometry, "roles_by_depth": figures.roles_by_depth}
"""What claims are about the MDM alone; `floatlens figures` draws everything from the stored traces."""


def draw_trace(twin: str, trace: Trace, folder: Path) -> None:
    """The figures of one twin's trace."""
    wanted = OF_EVERY_TWIN | (OF_THE_MDM if twin == "mdm" else {})
    save_drawn({f"{name}-{twin}": partial(draw, trace) for name, draw in wanted.items()}, folder, f"traces-{twin}")


def draw_masking(twin: str, experiment: str, evidence: Evidence, folder: Path) -> None:
    """One twin under masking, beside both controls."""
    name = f"{experiment.replace(' ', '_')}-{twin}"
    save_drawn({name: lambda: figures.masking_against_controls(masking_table(evidence, experiment, twin))}, folder, name)


def draw_absorption(traces: Mapping[str, Trace], folder: Path) -> None:
    """Absorption of all twins on the rectangle they share."""
    draw = partial(figures.absorption_by_layer, dict(traces), rectangle=True)
    save_drawn({"absorption_on_shared_rectangle": draw}, folder, "absorption")


def draw_contexts(evidence: Evidence, folder: Path) -> None:
    """The context curves of all twins."""
    asked = evidence.answers.filter(pl.col("experiment").is_in(["noise", "position", "layout"])).with_columns(model=pl.col("twin"))
    save_drawn({"contexts": partial(context_curves, asked)}, folder, "contexts")


def save_drawn(drawings: Mapping[str, Callable[[], Figure]], folder: Path, of: str) -> None:
    """Draw and save figures by name; those that cannot be drawn are listed with the reason."""
    left_out = []
    for name, draw in drawings.items():
        try:
            figures.save_figure(draw(), folder / name, FORMATS)
        except Refusal as refusal:
            left_out.append(f"{name}: {refusal}\n")
    if left_out:
        (folder / f"left_out-{of}.txt").write_text("".join(left_out), encoding="utf-8")
