"""An evaluation in the terminal and as pictures.

The tables show what every condition scores, brackets first; what passages gain; what interventions cost beyond their controls; and
how models differ. Nothing is computed here that `floatlens.study.outcomes` does not offer, except plain means: of the shortcut, of
the removed attention, and of what was cut. Exact match, F1 and damage per removed attention are left out where there is no room; a
sentence then says that `summary.csv` has them.

The pictures are `contexts.svg` and, where there are interventions, `interventions.svg`: interventions in several contexts are one
picture with the contexts along the axis, several interventions in several contexts one picture per context,
`interventions-CONTEXT.svg`. What cannot be drawn, such as six models in one picture, is left out and the reason returned: an
evaluation that took hours is not lost over a picture.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from math import isnan
from pathlib import Path

import polars as pl
from matplotlib.figure import Figure
from rich.console import Console

from floatlens.errors import Refusal
from floatlens.report.figures.contexts import context_curves
from floatlens.report.figures.interventions import intervention_damage
from floatlens.report.figures.style import save_figure
from floatlens.report.tables import Column, note_mark, number, print_fitting, print_notes, short_names, with_interval
from floatlens.study.outcomes import BRACKETS, Outcome
from floatlens.tasks.conditions import as_file_name
from floatlens.terminal import counted, progress_bar

HEADINGS = {"accuracy": "accuracy", "log_likelihood": "log likelihood", "exact_match": "exact match", "f1": "F1"}
ALWAYS = ("accuracy", "log_likelihood")
CONTROLS = {"count": "as many keys", "mass": "as much attention", "heads": "as many heads"}
UNITS = {"noise": "from 0 to 1", "position": "per slot", "retrieved": "per passage", "masks": "per mask"}
REMOVED = {"accuracy": "removed", "log_likelihood": "likelihood_removed"}
AS_MUCH = 0.9
FELL_SHORT = (
    "This control removed less attention than its intervention; other keys often hold no more. Compare damage per removed attention."
)
"""Said where an equal-mass control removed less than `AS_MUCH` of what its intervention removed."""


def print_evaluation(console: Console, table: pl.DataFrame, outcomes: Sequence[Outcome]) -> None:
    """Print the means of every condition, what differs, and what was cut.

    Examples
    --------
    >>> from floatlens.study.outcomes import summarise
    >>> rows = [dict(model="m", sample=str(number), context="gold", kind="gold", level=None, intervention="", control="", accuracy=1.0,
    ...              removed=None, likelihood_removed=None, shortcut=None, passages=1, passages_cut=0, gold_cut=0) for number in range(3)]
    >>> table = pl.DataFrame(rows, schema_overrides={"level": pl.Float64, "removed": pl.Float64, "shortcut": pl.Float64})
    >>> print_evaluation(Console(width=80), table, summarise(table, outcomes=["accuracy"]))  # doctest: +ELLIPSIS
    3 questions. Means with 95 % intervals over questions; accuracies from 0 to 1.
    Closed-book and gold (*) always run, without interventions.
    ...
    No passage was cut.
    """
    _print_head(console, table, {result.outcome for result in outcomes})
    by_model = {str(model): rows for (model,), rows in table.group_by("model", maintain_order=True)}
    names, notes = short_names(by_model), list[str]()
    left_out = print_fitting(console, [(model, _scores(model, rows, outcomes, notes)) for model, rows in by_model.items()])
    print_fitting(console, list(_gains(outcomes, names, notes)))
    left_out += print_fitting(console, list(_damages(by_model, outcomes, names, notes)))
    slopes = [result for result in outcomes if result.quantity in ("slope", "slope difference") and result.outcome in ALWAYS]
    print_fitting(console, [("Change with the level", _slopes(slopes, names, notes))] if slopes else [])
    print_notes(console, notes)
    if left_out:
        console.print(f"Not shown here, but in summary.csv: {', '.join(left_out)}.", style="dim", highlight=False)
    _print_cuts(console, table, names)


def _print_head(console: Console, table: pl.DataFrame, measured: set[str]) -> None:
    questions = table["sample"].n_unique()
    units = "accuracies from 0 to 1" + "; log likelihoods of the answer in nats" * ("log_likelihood" in measured)
    sentences = [
        f"{counted(questions, 'question')}. Means with 95 % intervals over questions; {units}.",
        "Closed-book and gold (*) always run, without interventions.",
        *_about_controls(table),
    ]
    console.print("\n".join(sentences), end="\n\n", highlight=False)


def _about_controls(table: pl.DataFrame) -> list[str]:
    controls = table.filter(pl.col("control") != "")
    if not len(controls):
        return []
    draws = 1 if "draw" not in table.columns else 1 + (controls["draw"].cast(pl.Int64).max() or 0)  # type: ignore[operator]  # polars does not say
    how_often = f", drawn {draws} times and averaged per question" if draws > 1 else ""
    return [f"Below each intervention stand its controls, which hit random others{how_often}."]


def _scores(model: str, rows: pl.DataFrame, outcomes: Sequence[Outcome], notes: list[str]) -> list[Column]:
    means = {(result.outcome, *_condition(result)): result for result in outcomes if result.quantity == "mean" and result.model == model}
    conditions = rows.select("context", "intervention", "control").unique(maintain_order=True).rows()
    columns = [Column("context", [_named(*condition) for condition in conditions])]
    for outcome, heading in HEADINGS.items():
        if any(name == outcome for name, *_ in means):
            cells = [_cell(means.get((outcome, *condition)), notes) for condition in conditions]
            columns.append(Column(heading, cells, optional=outcome not in ALWAYS))
    if rows["shortcut"].is_not_null().any():
        columns.insert(2, Column("shortcut", [_mean(_of(rows, *condition), "shortcut") for condition in conditions], right=True))
    return columns


def _gains(outcomes: Sequence[Outcome], names: Mapping[str, str], notes: list[str]) -> Iterator[tuple[str, list[Column]]]:
    """What each model gains, then how much more one gains than the other: the model-by-context interaction."""
    gains = [result for result in outcomes if result.quantity in ("gain", "interaction") and result.outcome in ALWAYS]
    for model, other in dict.fromkeys((result.model, result.other) for result in gains):
        own = {(result.outcome, result.context): result for result in gains if (result.model, result.other) == (model, other)}
        contexts = list(dict.fromkeys(context for _, context in own))
        columns = [Column("context", [f"{context} *" if context in BRACKETS else context for context in contexts])]
        for outcome in ALWAYS:
            row = [own.get((outcome, context)) for context in contexts]
            if any(row):
                columns.append(Column(HEADINGS[outcome], [_cell(result, notes) for result in row]))
            if any(result and result.p_value is not None for result in row):
                p_values = ["" if result is None or result.p_value is None else number(result.p_value) for result in row]
                columns.append(Column("p", p_values, right=True))
        over = f"over {next(iter(own.values())).reference}"
        if other:
            yield (
                f"How much more {names[model]} gains {over} than {names[other]} (below 0: less; p of no difference)",
                columns,
            )
        else:
            yield f"{names[model]}: gain {over}", columns


def _damages(
    by_model: Mapping[str, pl.DataFrame], outcomes: Sequence[Outcome], names: Mapping[str, str], notes: list[str]
) -> Iterator[tuple[str, list[Column]]]:
    """What each intervention costs in each context, its controls below it."""
    for model, rows in by_model.items():
        for outcome in ALWAYS:
            own = [result for result in outcomes if (result.model, result.outcome) == (model, outcome)]
            damage, beyond, per_removed = (
                {_condition(result): result for result in own if result.quantity == quantity}
                for quantity in ("damage", "damage beyond control", "damage per removed")
            )
            lines: list[tuple[str, ...]] = []
            for context in dict.fromkeys(context for context, *_ in damage):
                lines.append((context, "", "", "", ""))
                for condition in (key for key in damage if key[0] == context):
                    removed = _removed(rows, condition, REMOVED[outcome], notes)
                    numbers = (_cell(results.get(condition), notes) for results in (damage, beyond, per_removed))
                    lines.append((_named(*condition), removed, *numbers))
            if lines:
                called, removed, lost, further, ratio = zip(*lines, strict=True)
                yield (
                    f"{names[model]}: damage to {HEADINGS[outcome]}, unedited minus edited",
                    [
                        Column("intervention", called),
                        Column("removed\nattention", removed, right=True),
                        Column("damage", lost),
                        Column("damage beyond\nthe control", further),
                        Column("damage per\nremoved attention", ratio, optional=True),
                    ],
                )


def _removed(rows: pl.DataFrame, condition: tuple[str, str, str], column: str, notes: list[str]) -> str:
    """The share of the attention that was removed, in per cent; with a note where a control of equal mass fell short of it."""
    context, intervention, control = condition
    share = _of(rows, *condition)[column].mean()
    if not isinstance(share, float) or isnan(share):
        return "-"
    wanted = _of(rows, context, intervention, "")[column].mean()
    short = control == "mass" and isinstance(wanted, float) and share < AS_MUCH * wanted
    return f"{number(100 * share)} %{note_mark(FELL_SHORT * short, notes)}"


def _slopes(slopes: Sequence[Outcome], models: Mapping[str, str], notes: list[str]) -> list[Column]:
    """How outcomes change with the level, by kind of context: each model, then differences between them."""
    cells: dict[str, list[str]] = {outcome: [] for outcome in ALWAYS if any(result.outcome == outcome for result in slopes)}
    names = []
    for series in dict.fromkeys(result.context for result in slopes):
        kind = "masks" if series.endswith(",masks") else series.partition(",")[0].partition("/")[0]
        own = [result for result in slopes if result.context == series]
        rows = list(dict.fromkeys((result.model, result.other) for result in own))
        names.append(f"{series}, {UNITS[kind]}")
        names += [f"  {models[model]}" + (f" minus {models[other]}" if other else "") for model, other in rows]
        for outcome, column in cells.items():
            by_models = {(result.model, result.other): result for result in own if result.outcome == outcome}
            column += ["", *(_cell(by_models.get(pair), notes) for pair in rows)]
    return [Column("", names), *(Column(HEADINGS[outcome], column) for outcome, column in cells.items())]


def _print_cuts(console: Console, table: pl.DataFrame, names: Mapping[str, str]) -> None:
    """What was cut, by context; said even where it is nothing."""
    unedited = table.filter(pl.col("intervention") == "")
    cut = unedited.filter(pl.col("passages_cut") > 0)
    if not len(cut):
        console.print("No passage was cut.", highlight=False)
    for (model, context), own in cut.group_by("model", "context", maintain_order=True):
        asked = len(unedited.filter((pl.col("model") == model) & (pl.col("context") == context)))
        gold = len(own.filter(pl.col("gold_cut") > 0))
        console.print(
            f"{names[str(model)]}, {context}: passages were cut from {len(own)} of {asked} prompts, a gold one from {gold} "
            f"({100 * gold / asked:.1f} %), to fit the model's context.",
            highlight=False,
            markup=False,
        )


def _named(context: str, intervention: str, control: str) -> str:
    if not intervention:
        return f"{context} *" if context in BRACKETS else context
    return f"  {intervention}" if not control else f"    {CONTROLS.get(control, control)}"


def _condition(result: Outcome) -> tuple[str, str, str]:
    return result.context, result.intervention, result.control


def _of(rows: pl.DataFrame, context: str, intervention: str, control: str) -> pl.DataFrame:
    return rows.filter((pl.col("context") == context) & (pl.col("intervention") == intervention) & (pl.col("control") == control))


def _cell(result: Outcome | None, notes: list[str]) -> str:
    """A number with its interval; alone, with a note, where the interval has no width or does not exist."""
    if result is None:
        return ""
    text = number(result.estimate) if result.low == result.high else with_interval(result.estimate, result.low, result.high)
    return text + note_mark(result.reason, notes)


def _mean(rows: pl.DataFrame, column: str) -> str:
    mean = rows[column].mean()
    return number(mean) if isinstance(mean, float) else "-"


FORMATS = ("svg",)


def write_pictures(folder: Path, table: pl.DataFrame, outcomes: Sequence[Outcome]) -> tuple[list[Path], list[str]]:
    """Draw an evaluation into its folder.

    Parameters
    ----------
    folder
        Where the pictures are written; those that stand there are replaced.
    table, outcomes
        Rows of `floatlens.evaluate`, of one model or several, and what `floatlens.study.outcomes.summarise` makes of them.

    Returns
    -------
    tuple
        The files that were written, and a sentence for each picture that could not be drawn.

    Examples
    --------
    >>> import tempfile
    >>> rows = [dict(model="m", sample=str(number), context="gold", intervention="", accuracy=1.0) for number in range(3)]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     [path.name for path in write_pictures(Path(folder), pl.DataFrame(rows), [])[0]]
    ['contexts.svg']
    """
    drawings = _drawings(table, outcomes)
    written, left_out = list[Path](), list[str]()
    with progress_bar(len(drawings), "Drawing") as advance:
        for name, draw in drawings.items():
            try:
                written += save_figure(draw(), folder / name, FORMATS)
            except Refusal as refusal:
                left_out.append(f"{name} was not drawn: {refusal}")
            advance(1)
    return written, left_out


def _drawings(table: pl.DataFrame, outcomes: Sequence[Outcome]) -> dict[str, Callable[[], Figure]]:
    drawings: dict[str, Callable[[], Figure]] = {"contexts": partial(context_curves, table)}
    edited = table.filter(pl.col("intervention") != "")
    contexts = edited["context"].unique(maintain_order=True).to_list()
    if len(contexts) <= 1 or edited["intervention"].n_unique() == 1:
        return drawings | ({"interventions": partial(intervention_damage, table, outcomes)} if contexts else {})
    for context in contexts:
        own = [result for result in outcomes if result.context == context]
        drawings[f"interventions-{as_file_name(context)}"] = partial(intervention_damage, table.filter(pl.col("context") == context), own)
    return drawings
