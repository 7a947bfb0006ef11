"""The findings of a demo: as a page of Markdown, for programs, and as figures (`verdict_table.py` prints them in short).

On the page every claim has its verdict and its numbers, each with its interval and the null or control to compare it with; then come
a table of differences, split into objective and mask, masking, condition by condition, a table of accuracies with their shortcut, and
all rules. For programs there are one JSON with everything and one CSV with a line per number; what does not exist is null, or empty.

The figures are those of each model's trace, masking against its controls and, for all models together, absorption and the context
curves. A figure that cannot be drawn is left out, and `left_out-....txt` in the same folder says why.
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

from floatlens.claims.design import Design
from floatlens.claims.evidence import Evidence
from floatlens.claims.findings import Findings
from floatlens.claims.masking import masking_table
from floatlens.claims.verdicts import Estimate, Part, Verdict, outcome_of
from floatlens.errors import Refusal
from floatlens.report import figures
from floatlens.report.figures.contexts import context_curves
from floatlens.report.tables import number, with_interval
from floatlens.terminal import counted
from floatlens.trace.trace import Trace

ONE_RUN = (
    "Each model was trained once: intervals are over prompts, not over trainings. Another training could differ by more than the "
    "intervals say."
)
DAMAGE = (
    "Damage is the outcome of the unedited model minus that of the masked one; damage per removed attention divides it by the share "
    "of attention that was removed."
)
SPLIT = "Mask or objective? ARM - MDM is the effect of the objective (ARM - causal MDM) plus that of the mask (causal MDM - MDM)."
ACCURACY = "Accuracy by context, with 95 % intervals"
SHORTCUT = "; shortcut: what ignoring the person scores"
SPLIT_HEADINGS = ("quantity", "ARM - MDM", "objective", "mask", "follows")
MASKING_HEADINGS = ("experiment", "model", "keys", "masked", "outcome", "removed", "damage", "damage per removed attention")
CLAIM_HEADINGS = ("claim", "paper", "verdict", "number", "value", "95 % interval", "null or control", "n")


def claims_markdown(findings: Findings) -> str:
    """All claims, tables and rules as a page."""
    about = findings.about
    models = ", ".join(f"{role}: {model}" for role, model in about["models"].items())
    task = f"Task: {findings.design.task}. " if findings.design.task != "world" else ""
    order = f", {about['order']}" if about.get("order") else ""
    order += f", models compute in {about['dtype']}" if about.get("dtype") else ""
    draws = about.get("draws", 1)
    asked = f"{task}{about['questions']} questions in each context, {about['traced']} traced texts, seed {about['seed']}{order}"
    asked += f", {counted(draws, 'draw')} of each random control"
    headings, accuracies = _accuracy_table(findings)
    judged = [
        [*_head(verdict, place), f"{part.says}, {part.side} {number(part.line)}", *_numbers(part)]
        for verdict in findings.verdicts
        for place, part in enumerate(verdict.parts)
    ]
    splits = [
        [split.quantity, *map(_estimate, (split.whole, split.objective, split.mask)), _with_reason(split.follows, split.reason)]
        for split in findings.splits
    ]
    masked = [
        [row.experiment, row.role, str(row.keys), row.what]
        + [_estimate(estimate) for estimate in (row.outcome, row.removed, row.damage, row.damage_per_removed)]
        for row in findings.masking
    ]
    return "\n".join(
        [
            f"# Which claims hold for these models\n\n{models}. {asked}. {ONE_RUN}\n",
            *_markdown(CLAIM_HEADINGS, judged),
            f"\n## Mask or objective?\n\n{SPLIT.partition('? ')[2]}\n",
            *_markdown(SPLIT_HEADINGS, splits),
            f"\n## Masking\n\n{DAMAGE}\n",
            *_markdown(MASKING_HEADINGS, masked),
            f"\n## Accuracy\n\n{_about_accuracy(headings)}\n",
            *_markdown(headings, accuracies),
            "\n## The rules\n",
            *(f"- `{verdict.claim.name}`: *{verdict.claim.statement}* holds if {verdict.claim.rule}." for verdict in findings.verdicts),
            "",
        ]
    )


def _accuracy_table(findings: Findings) -> tuple[tuple[str, ...], list[list[str]]]:
    """The headings, and a row per context; the shortcut only where the task has one."""
    roles = list(findings.about["models"])
    shortcut = ["shortcut"] if any(not math.isnan(row.shortcut) for row in findings.accuracies) else []
    rows = [
        [row.context, *(_estimate(row.by_role[role]) for role in roles), *[number(row.shortcut)] * len(shortcut), str(row.questions)]
        for row in findings.accuracies
    ]
    return ("context", *roles, *shortcut, "n"), rows


def _about_accuracy(headings: Sequence[str]) -> str:
    return f"{ACCURACY}{SHORTCUT * ('shortcut' in headings)}."


def _estimate(estimate: Estimate) -> str:
    return with_interval(estimate.value, estimate.low, estimate.high)


def _markdown(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return ["| " + " | ".join(cells) + " |" for cells in (headings, ["---"] * len(headings), *rows)]


def _head(verdict: Verdict, place: int) -> tuple[str, str, str]:
    """What precedes the first number of a claim; empty before the others."""
    if place:
        return "", "", ""
    return verdict.claim.statement, verdict.claim.paper, _with_reason(f"**{verdict.outcome}**", verdict.reason)


def _with_reason(word: str, reason: str) -> str:
    return f"{word} ({reason})" if reason else word


def _numbers(part: Part) -> list[str]:
    """Value, interval, null or control, and number of prompts; a dash for what does not exist."""
    estimate = part.estimate
    interval = "-" if math.isnan(estimate.low) else f"[{number(estimate.low)}, {number(estimate.high)}]"
    beside = "-" if math.isnan(part.beside) else f"{part.beside_says}: {_in_unit(part.beside, part.unit)}"
    return [_in_unit(estimate.value, part.unit), interval, beside, str(estimate.prompts)]


def _in_unit(value: float, unit: str) -> str:
    return number(value) if math.isnan(value) else f"{number(value)} {unit}".rstrip()


WRITTEN_BY = "floatlens demo"


def claims_json(findings: Findings) -> str:
    """Every claim with its numbers, every split difference, masking condition by condition, all accuracies."""
    document = {
        "written_by": WRITTEN_BY,
        "about": findings.about,
        "caution": ONE_RUN,
        "claims": [
            {
                **asdict(verdict.claim),
                "verdict": verdict.outcome,
                "reason": verdict.reason,
                "numbers": [_of_part(part) for part in verdict.parts],
            }
            for verdict in findings.verdicts
        ],
        "mask_or_objective": [asdict(split) for split in findings.splits],
        "masking": [asdict(row) for row in findings.masking],
        "accuracies": [asdict(row) for row in findings.accuracies],
    }
    return json.dumps(_without_nan(document), indent=1, ensure_ascii=False) + "\n"


def claims_csv(findings: Findings) -> str:
    """One line per number."""
    text = io.StringIO()
    rows = [
        {
            "claim": verdict.claim.name,
            "paper": verdict.claim.paper,
            "statement": verdict.claim.statement,
            "verdict": verdict.outcome,
            **{name: value for name, value in _of_part(part).items() if name != "estimate"},
            **asdict(part.estimate),
            "reason": verdict.reason,
            "verdict_of_number": outcome_of(part)[0],
        }
        for verdict in findings.verdicts
        for part in verdict.parts
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
        return {name: _without_nan(own) for name, own in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(own) for own in value]
    return None if _is_nan(value) else value


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


FORMATS = ("svg",)
OF_EVERY_MODEL: dict[str, Callable[[Trace], Figure]] = {
    "temporal_drift": figures.temporal_drift,
    "float_index_by_layer": figures.float_index_by_layer,
}
OF_THE_MDM: dict[str, Callable[[Trace], Figure]] = {"qk_geometry": figures.qk_geometry, "roles_by_depth": figures.roles_by_depth}
"""For claims that are about the MDM alone; `floatlens figures` draws every figure from the stored traces."""


def draw_trace(role: str, trace: Trace, design: Design, folder: Path) -> None:
    """Draw the figures of one model's trace."""
    retrieval = {"retrieval_heads": partial(figures.retrieval_heads, gold=design.needle)}
    wanted = OF_EVERY_MODEL | retrieval | (OF_THE_MDM if role == "mdm" else {})
    save_drawn({f"{name}-{role}": partial(draw, trace) for name, draw in wanted.items()}, folder, f"traces-{role}")


def draw_masking(role: str, looked_at: str, evidence: Evidence, folder: Path) -> None:
    """Draw one model under masking and under both controls; `looked_at` is a name of the design's masking."""
    name = f"{looked_at.replace(' ', '_')}-{role}"
    save_drawn({name: lambda: figures.masking_against_controls(masking_table(evidence, looked_at, role))}, folder, name)


def draw_absorption(traces: Mapping[str, Trace], folder: Path) -> None:
    """Draw absorption of all models on the shared rectangle."""
    draw = partial(figures.absorption_by_layer, dict(traces), rectangle=True)
    save_drawn({"absorption_on_shared_rectangle": draw}, folder, "absorption")


def draw_contexts(evidence: Evidence, folder: Path) -> None:
    """Draw the context curves of all models."""
    asked = evidence.answers.filter(pl.col("experiment").is_in(["noise", "position", "layout"])).with_columns(model=pl.col("role"))
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
