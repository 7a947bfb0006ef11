"""Demos and evaluations as documents of the page: claims with their verdicts, and summaries in which every point leads to its questions.

Verdicts and numbers are read as the demo wrote them; summaries are those of `floatlens.study.outcomes`. An experiment of a demo that cannot
be summarised (its conditions were asked of different questions) is left out with the reason.
"""

import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import polars as pl

from floatlens.errors import Refusal
from floatlens.report.page.group import Sink, write_group
from floatlens.report.page.schema import AnswerDocument, ClaimDocument, ClaimsDocument, EvaluationDocument, Number, Point
from floatlens.study.outcomes import SCHEMA, Outcome, summarise

SEEN_IN = {
    "fixed-sink": "run",
    "sink-stays": "run",
    "absorbs-less": "run",
    "floats": "run",
    "floats-more": "run",
    "variances": "run",
    "frontier": "run",
    "threshold-keeps-few": "run",
    "strongest-key-moves": "run",
    "flows-to-gold": "why",
    "small-values-arm": "why",
    "small-values-mdm": "why",
    "sinks-on-structure": "why",
    "structure-then-content": "why",
    "geometry": "why",
    "retrieval-heads": "heads",
    "retrieval-when-deep": "heads",
}
"""The view that shows a claim's numbers; claims about masking and passages are seen in "contexts"."""


SHOWN_FIRST = ("noise", "position", "layout", "known people", "masked answers", "masked descriptions")
"""The order of a demo's experiments; others follow."""


def read_claims(file: Path, source: str, runs: Mapping[str, str] | None = None) -> ClaimsDocument:
    """The claims of a demo, from its claims.json. `runs`: the runs of the page that show them, by role; the roles by default."""
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
        models = {str(role): str(model) for role, model in document["about"].get("models", {}).items()}
        claims = [_claim(claim, {role: role for role in models} if runs is None else runs) for claim in document["claims"]]
        about = {str(name): str(value) for name, value in document["about"].items() if not isinstance(value, dict)}
        return ClaimsDocument(source, str(document.get("caution", "")), list(models.values()), about, claims)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Refusal(f"{file} cannot be read as the claims of a demo ({type(error).__name__}: {error}). Run the demo again.") from None


def _claim(claim: Mapping[str, Any], runs: Mapping[str, str]) -> ClaimDocument:
    numbers = [
        Number(
            says=str(number["says"]),
            **{name: _number(number["estimate"][name]) for name in ("value", "low", "high")},
            prompts=int(number["estimate"]["prompts"]),
            side=str(number["side"]),
            line=float(number["line"] if number["line"] is not None else "nan"),
            beside=_number(number["beside"]),
            beside_says=str(number["beside_says"]),
            unit=str(number["unit"]),
            verdict=str(number["verdict_of_number"]),
            reason=str(number["reason"]),
        )
        for number in claim["numbers"]
    ]
    texts = {name: str(claim[name]) for name in ("name", "paper", "statement", "rule", "verdict", "reason")}
    words = f" {claim['statement']} "
    role = "arm" if " ARM" in words and " MDM" not in words else "mdm"
    return ClaimDocument(**texts, numbers=numbers, view=SEEN_IN.get(claim["name"], "contexts"), models=[runs[role]] if role in runs else [])


def _number(value: Any) -> float | None:
    return None if value is None or math.isnan(float(value)) else float(value)


def read_answers(file: Path) -> pl.DataFrame:
    """The table of answers that an evaluation or a demo has written."""
    again = "Run the command again that wrote it."
    try:
        table = pl.read_parquet(io.BytesIO(file.read_bytes()))  # a path would be taken for a pattern
    except (OSError, pl.exceptions.PolarsError) as error:
        raise Refusal(f"{file} cannot be read ({error}). {again}") from None
    for name, kind in SCHEMA.items():
        if name not in table.columns:
            if name in _ALWAYS:
                raise Refusal(f"{file} has no column {name!r}. Pass a folder that `floatlens eval` or `floatlens demo` wrote.")
        elif not _is_kind(table[name].dtype, kind):
            raise Refusal(f"{file} holds something else than it should in the column {name!r}. {again}")
    if table.is_empty():
        raise Refusal(f"{file} holds no rows. {again}")
    return table


_ALWAYS = ("model", "sample", "context", "kind", "level", "intervention", "control", "prompt", "prediction", "answer", "accuracy")
"""Columns that tables of every version have."""


def _is_kind(found: pl.DataType, kind: Any) -> bool:
    return found == kind or found == pl.Null or (kind != pl.String and found.is_numeric())


def evaluations_of(sink: Sink, table: pl.DataFrame, name: str, first: int) -> tuple[list[EvaluationDocument], dict[str, str]]:
    """The summaries of a table of answers, one for each experiment, whose questions are written to the sink; and what is left out."""
    documents: list[EvaluationDocument] = []
    left_out: dict[str, str] = {}
    parts = table.partition_by("experiment", as_dict=True, maintain_order=True) if "experiment" in table.columns else {(name,): table}
    for (experiment,), rows in sorted(parts.items(), key=lambda part: _place_of(str(part[0][0]))):
        role = next((column for column in ("role", "twin") if column in rows.columns), None)  # earlier demos called it so
        named = rows if role is None else rows.with_columns(model=pl.col(role))
        try:
            outcomes = summarise(named)
        except Refusal as refusal:
            left_out[str(experiment)] = str(refusal)
            continue
        path = f"evaluations/{first + len(documents)}"
        answers = _write_answers(sink, named, path)
        points = list(_points(named, outcomes, answers))
        title = str(experiment) if experiment == name else f"{name}: {experiment}"
        documents.append(EvaluationDocument(title, [str(model) for model in named["model"].unique(maintain_order=True)], points))
        write_group(sink, path, {})
    return documents, left_out


def _place_of(experiment: str) -> int:
    """Contexts before masking, as the page's title says."""
    return SHOWN_FIRST.index(experiment) if experiment in SHOWN_FIRST else len(SHOWN_FIRST)


Condition = tuple[str, str, str, str]


def _write_answers(sink: Sink, rows: pl.DataFrame, path: str) -> dict[Condition, str]:
    """One group for each model and condition, with its questions as attributes; where each is."""
    places: dict[Condition, str] = {}
    columns = ("model", "context", "intervention", "control")
    for number, (condition, own) in enumerate(rows.group_by(columns, maintain_order=True)):
        place = f"{path}/{number}"
        model, context, intervention, control = map(str, condition)
        places[model, context, intervention, control] = place
        draws = own["draw"].n_unique() if "draw" in own.columns else 1
        answers = [
            AnswerDocument(
                sample=str(row["sample"]) if draws == 1 else f"{row['sample']}, draw {row['draw'] + 1} of {draws}",
                prompt=str(row["prompt"]),
                prediction=str(row["prediction"]),
                answer=str(row["answer"]),
                accuracy=_number(row["accuracy"]),
                log_likelihood=_number(row.get("log_likelihood")),
            )
            for row in own.iter_rows(named=True)
        ]
        write_group(sink, place, {"answers": [asdict(answer) for answer in answers]})
    return places


def _points(rows: pl.DataFrame, outcomes: Sequence[Outcome], answers: Mapping[Condition, str]) -> Iterator[Point]:
    kinds = dict(rows.select("context", "kind").unique().rows())
    for outcome in outcomes:
        condition = (outcome.model, outcome.context, outcome.intervention, outcome.control)
        own = rows.filter(
            (pl.col("model") == outcome.model)
            & (pl.col("context") == outcome.context)
            & (pl.col("intervention") == outcome.intervention)
            & (pl.col("control") == outcome.control)
        )
        removed = "likelihood_removed" if outcome.outcome == "log_likelihood" else "removed"
        yield Point(
            quantity=outcome.quantity,
            outcome=outcome.outcome,
            model=outcome.model,
            other=outcome.other,
            context=outcome.context,
            intervention=outcome.intervention,
            control=outcome.control,
            level=_number(outcome.level),
            estimate=_number(outcome.estimate),
            low=_number(outcome.low),
            high=_number(outcome.high),
            p_value=_number(outcome.p_value),
            kind=kinds.get(outcome.context, ""),
            reference=outcome.reference,
            samples=outcome.samples,
            reason=outcome.reason,
            shortcut=_mean(own, "shortcut"),
            removed=_mean(own, removed),
            answers=answers.get(condition),
        )


def _mean(rows: pl.DataFrame, column: str) -> float | None:
    if rows.is_empty() or column not in rows.columns:
        return None
    mean = rows[column].cast(pl.Float64).drop_nulls().drop_nans().mean()
    return None if mean is None else float(mean)  # type: ignore[arg-type]  # polars types a mean as any Python value
