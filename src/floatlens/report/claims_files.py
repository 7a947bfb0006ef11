"""Verdicts for programs: one JSON with everything, and one CSV with a line a number. What does not exist is null, or empty."""

import csv
import io
import json
import math
from dataclasses import asdict
from typing import Any

from floatlens.claims.findings import Findings
from floatlens.claims.verdicts import Part, outcome_of
from floatlens.report.claims_table import ONE_RUN

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
