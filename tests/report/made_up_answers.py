"""A made-up evaluation of which everything is known: every answer, likelihood and removed share follows from the number of the question."""

import re
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import polars as pl

from floatlens.study.outcomes import Outcome

QUESTIONS = 8
EVERY_KIND = (
    "closed-book",
    "gold",
    "retrieved:1",
    "retrieved:5",
    "noise:0",
    "noise:0.4",
    "position:1/10",
    "position:10/10",
    "position:1/20",
    "layout:one",
    "layout:adjacent",
    "layout:far",
    "conflict",
    "gold,masks=4",
    "gold,masks=64",
)
REMOVES = {"": 0.3, "count": 0.1, "mass": 0.25, "heads": 0.05}


def answers(
    models: Sequence[str] = ("mdm", "arm"),
    contexts: Sequence[str] = ("closed-book", "gold", "noise:0", "noise:0.5"),
    interventions: Sequence[str] = (),
    controls: Sequence[str] = ("count", "mass"),
    *,
    likelihood: bool = True,
    shortcut: bool = True,
) -> pl.DataFrame:
    """One row for each model, question and condition; interventions act in every context but the brackets."""
    conditions = [(context, "", "") for context in contexts]
    conditions += [
        (context, intervention, control)
        for context in contexts
        if context not in ("closed-book", "gold")
        for intervention in interventions
        for control in ("", *controls)
    ]
    rows = [
        _row(model, question, condition, place, likelihood=likelihood, shortcut=shortcut)
        for model in models
        for place, condition in enumerate(conditions)
        for question in range(QUESTIONS)
    ]
    numbers = ("level", "log_likelihood", "removed", "likelihood_removed", "shortcut")
    return pl.DataFrame(rows, schema_overrides=dict.fromkeys(numbers, pl.Float64))


def _row(model: str, question: int, condition: tuple[str, str, str], place: int, *, likelihood: bool, shortcut: bool) -> dict[str, Any]:
    context, intervention, control = condition
    kind = "masks" if "masks=" in context else context.partition(":")[0]
    level = re.split("[:/,]", context)[1] if kind in ("noise", "position", "retrieved") else context.partition("=")[2]
    mixed = (7 * question + question**2 * (place + 1) // 2 + 3 * place + 3 * ord(model[0])) % 8
    removed = REMOVES[control] + 0.01 * question + 0.005 * place + 0.05 * (ord(model[0]) % 7) if intervention else None
    return {
        "model": model,
        "sample": f"question-{question}",
        "context": context,
        "kind": kind,
        "level": float(level) if level else None,
        "intervention": intervention,
        "control": control,
        "accuracy": float(mixed < (2 if context == "closed-book" else 7 if context == "gold" else 5)),
        "exact_match": float(mixed < 3),
        "f1": mixed / 8,
        "log_likelihood": -0.5 - 0.3 * mixed - (1.5 if intervention and not control else 0.0) if likelihood else None,
        "removed": removed,
        "likelihood_removed": None if removed is None or not likelihood else 1.5 * removed,
        "shortcut": 0.25 if shortcut else None,
        "passages": 5,
        "passages_cut": 0,
        "gold_cut": 0,
    }


def made_up_outcomes(table: pl.DataFrame, taken: Sequence[str]) -> list[Outcome]:
    """Every quantity of a summary, each with numbers that no other has: as wide as numbers get, and quicker than a bootstrap."""
    models = table["model"].unique(maintain_order=True).to_list()
    conditions = table.select("context", "intervention", "control").unique(maintain_order=True).rows()
    found: list[Outcome] = []

    def add(quantity: str, outcome: str, model: str, **about: Any) -> None:
        value = -10.0 - 0.1 * (len(found) % 400)
        found.append(Outcome(quantity, outcome, model, value, value - 40, value + 80 + len(found) // 400, 8, **about))

    for outcome in taken:
        for model in models:
            for context, intervention, control in conditions:
                where = {"context": context, "intervention": intervention, "control": control}
                add("mean", outcome, model, **where)
                if intervention:
                    for quantity in ("damage", "damage per removed", *(["damage beyond control"] if control else [])):
                        add(quantity, outcome, model, **where)
                elif context != "closed-book":
                    add("gain", outcome, model, context=context, reference="closed-book")
            add("slope", outcome, model, context="position/10")
        for first, second in combinations(models, 2):
            add("slope difference", outcome, first, other=second, context="position/10")
            for context in (context for context, intervention, _ in conditions if not intervention and context != "closed-book"):
                add("interaction", outcome, first, other=second, context=context, reference="closed-book", p_value=0.123)
    return found
