"""An evaluation in the terminal: every condition with its interval, brackets first, and what follows from them.

Nothing is computed here that `floatlens.tasks.outcomes` does not offer, but for plain means of what stands beside a score: its shortcut, what was removed, what was cut.
"""

from collections.abc import Sequence

import polars as pl
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from floatlens.report.tables import _narrow_table, _number, _with_interval
from floatlens.tasks.outcomes import BRACKETS, Outcome

COMPARISONS = {
    "gain": "gain over {reference}",
    "damage": "damage",
    "damage beyond control": "damage beyond the control",
    "interaction": "gain over {reference}, {model} minus {other}",
    "slope": "change with the level",
    "slope difference": "change with the level, {model} minus {other}",
}
"""The quantities of a summary that compare conditions, in words."""


def print_evaluation(console: Console, table: pl.DataFrame, outcomes: Sequence[Outcome]) -> None:
    """Print the means of every condition, what differs, and what was cut.

    Examples
    --------
    >>> from floatlens.tasks.outcomes import summarise
    >>> rows = [dict(model="m", sample=str(at), context="gold", kind="gold", level=None, intervention="", control="", accuracy=1.0, removed=None,
    ...              likelihood_removed=None, shortcut=None, passages=1, passages_cut=0, gold_cut=0) for at in range(3)]
    >>> table = pl.DataFrame(rows, schema_overrides={"level": pl.Float64, "removed": pl.Float64, "shortcut": pl.Float64})
    >>> print_evaluation(Console(width=60), table, summarise(table, outcomes=["accuracy"]))  # doctest: +ELLIPSIS
    3 samples...
    """
    samples = table.n_unique("sample")
    console.print(
        f"{samples} sample{'s' * (samples != 1)}. Means with 95 % intervals over samples; brackets (always run, unedited) are marked *.",
        highlight=False,
    )
    notes: list[str] = []
    for model in table["model"].unique(maintain_order=True):
        console.print(_conditions(model, table.filter(pl.col("model") == model), outcomes, notes))
    for outcome in ("accuracy", "log_likelihood"):
        found = [one for one in outcomes if one.outcome == outcome]
        if any(one.quantity in COMPARISONS for one in found):
            console.print(_comparisons(outcome, found, notes))
    for number, note in enumerate(notes, start=1):
        console.print(f"({number}) {note}", style="dim", markup=False, highlight=False)
    _print_cuts(console, table)


def _conditions(model: str, rows: pl.DataFrame, outcomes: Sequence[Outcome], notes: list[str]) -> Table:
    shown = [name for name in ("accuracy", "exact_match", "f1", "log_likelihood") if any(one.outcome == name for one in outcomes)]
    means = {
        (one.outcome, one.context, one.intervention, one.control): one for one in outcomes if one.quantity == "mean" and one.model == model
    }
    table = _narrow_table(escape(model))
    table.add_column("context", no_wrap=True)
    for name in shown:
        table.add_column(name.replace("_", " "), no_wrap=True)
        if name == "accuracy" and rows["shortcut"].is_not_null().any():
            table.add_column("shortcut", justify="right")
    if rows["removed"].is_not_null().any():
        table.add_column("removed", justify="right")
    for (context, intervention, control), own in rows.group_by("context", "intervention", "control", maintain_order=True):
        cells = [_named(str(context), str(intervention), str(control))]
        for name in shown:
            one = means.get((name, str(context), str(intervention), str(control)))
            cells.append("-" if one is None else _interval(one, notes))
            if name == "accuracy" and rows["shortcut"].is_not_null().any():
                cells.append(_mean(own["shortcut"]))
        if rows["removed"].is_not_null().any():
            cells.append(_mean(own["removed"]))
        table.add_row(*map(escape, cells))
    return table


def _named(context: str, intervention: str, control: str) -> str:
    if not intervention:
        return f"{context} *" if context in BRACKETS else context
    return f"  {intervention}" if not control else f"    control: {_control(control)}"


def _control(control: str) -> str:
    return {"count": "as many keys", "mass": "as much attention", "heads": "as many heads"}.get(control, control)


def _comparisons(outcome: str, found: Sequence[Outcome], notes: list[str]) -> Table:
    compared = [one for one in found if one.quantity in COMPARISONS]
    table = _narrow_table(f"What that comes to: {outcome.replace('_', ' ')}")
    for name in ("model", "what", "context", "under", "difference"):
        table.add_column(name, no_wrap=name == "difference")
    ratios = {_of(one): one for one in found if one.quantity == "damage per removed"}
    if ratios:
        table.add_column("per removed attention", no_wrap=True)
    table.add_column("p", justify="right", no_wrap=True)
    for one in compared:
        what = COMPARISONS[one.quantity].format(reference=one.reference, model=_short(one.model), other=_short(one.other))
        under = f"{one.intervention}{', ' if one.control else ''}{_control(one.control)}" if one.intervention else ""
        cells = ["" if one.other else _short(one.model), what, one.context, under, _interval(one, notes)]
        if ratios:
            cells.append(_interval(ratios[_of(one)], notes) if one.quantity == "damage" else "")
        table.add_row(*map(escape, [*cells, "" if one.p_value is None else _number(one.p_value)]))
    return table


def _of(one: Outcome) -> tuple[str, str, str, str]:
    return one.model, one.context, one.intervention, one.control


def _interval(one: Outcome, notes: list[str]) -> str:
    return _with_interval(one.estimate, one.low, one.high) + _note(one, notes)


def _short(model: str) -> str:
    """The last part of a model's name: folders are long."""
    return model.rstrip("/").rpartition("/")[2]


def _note(one: Outcome, notes: list[str]) -> str:
    if not one.reason:
        return ""
    if one.reason not in notes:
        notes.append(one.reason)
    return f" ({notes.index(one.reason) + 1})"


def _mean(values: pl.Series) -> str:
    mean = values.mean()
    return _number(mean) if isinstance(mean, float) else "-"


def _print_cuts(console: Console, table: pl.DataFrame) -> None:
    """What was cut, by context; said even where it is nothing."""
    cut = table.filter((pl.col("passages_cut") > 0) & (pl.col("intervention") == ""))
    if not len(cut):
        console.print("No passage was cut.", highlight=False)
    for (model, context), own in cut.group_by("model", "context", maintain_order=True):
        everyone = len(table.filter((pl.col("model") == model) & (pl.col("context") == context) & (pl.col("intervention") == "")))
        gold = len(own.filter(pl.col("gold_cut") > 0))
        console.print(
            f"{model}, {context}: passages were cut from {len(own)} of {everyone} prompts, a gold one from {gold} ({100 * gold / everyone:.1f} %), to fit the model's context.",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )
