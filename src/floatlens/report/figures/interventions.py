"""What interventions cost: damage next to that of the controls, and against the attention that was removed, for every model.

The table is one of `floatlens.study.evaluation`, or several stacked; damage and its intervals are those of
`floatlens.study.outcomes.summarise`. The axis has either the interventions, in one context (a curve over K where they differ only in
that, such as mask-anchors:1, :5, :10), or the contexts, under one intervention. Models are next to each other; a single model has its
two kinds of panels next to each other. Panels of one outcome have the same bounds.

Damage to accuracy is drawn against what was removed while the model wrote, damage to log-likelihoods against what was removed while
they were measured. Refuses a table without interventions, one with several contexts and several interventions (draw one context at a
time), and more models than fit next to each other.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from floatlens.errors import Refusal
from floatlens.report.figures.contexts import label_places, place_of
from floatlens.report.figures.masking import KINDS
from floatlens.report.figures.style import (
    BLACK,
    PAGE_WIDTH,
    POINTS,
    add_footer,
    add_legend,
    columns_that_fit,
    draw_points,
    in_style,
    panels,
    wrapped,
)
from floatlens.report.tables import short_names
from floatlens.statistics.resampling import bootstrap
from floatlens.study.outcomes import Outcome, average_draws

CONTROLS = {
    "": KINDS["anchors"],
    "count": KINDS["count"],
    "mass": KINDS["mass"],
    "heads": ("control: as many random heads", KINDS["count"][1]),
}
"""The intervention and its controls: labels (that of the intervention is its name) and looks."""
OUTCOMES = {"accuracy": ("accuracy", "removed"), "log_likelihood": ("log likelihood (nats)", "likelihood_removed")}
"""Outcomes in words, and the removed attention that counts for each."""
INTERVAL = ("estimate", "low", "high")
MODELS = 5
APART = 0.2  # between the intervention and its controls, in places along the axis


@dataclass(frozen=True)
class _Line:
    """What a line goes through: conditions and the texts below them.

    `joined` if they differ only in a level; `over_k` if that is the K of an intervention, with which the removed attention grows.
    """

    conditions: Sequence[tuple[str, str]]  # context, intervention
    labels: Sequence[str]
    says: str
    joined: bool = False
    over_k: bool = False


@in_style
def intervention_damage(table: pl.DataFrame, outcomes: Sequence[Outcome]) -> Figure:
    """Damage of interventions and of their controls, and the attention that each removed, by model.

    Parameters
    ----------
    table
        Rows of `floatlens.evaluate`, with interventions: model, sample, context, intervention, control, removed,
        likelihood_removed.
    outcomes
        What `floatlens.study.outcomes.summarise` makes of it.

    Examples
    --------
    >>> from floatlens.study.outcomes import summarise
    >>> def rows(intervention, right, removed):
    ...     return [dict(model="m", sample=str(number), context="gold", kind="gold", level=None, intervention=intervention, control="",
    ...                  accuracy=score, removed=removed, likelihood_removed=removed) for number, score in enumerate(right)]
    >>> kinds = dict.fromkeys(["level", "removed", "likelihood_removed"], pl.Float64)
    >>> table = pl.DataFrame(rows("", [1.0, 1.0], None) + rows("mask-anchors:1", [1.0, 0.0], 0.25), schema_overrides=kinds)
    >>> figure = intervention_damage(table, summarise(table, outcomes=["accuracy"]))
    >>> figure.axes[0].lines[0].get_ydata().tolist()
    [0.5]
    """
    edited = average_draws(table.filter(pl.col("intervention") != ""))
    line = _line(edited)
    models = edited["model"].unique(maintain_order=True).to_list()
    if len(models) > MODELS:
        raise Refusal(f"There are {len(models)} models, and {MODELS} fit beside each other. Draw fewer at a time.")
    shown = [name for name in OUTCOMES if any((result.quantity, result.outcome) == ("damage", name) for result in outcomes)]
    if not shown:
        raise Refusal("There is no damage to draw: the outcomes are not of this table, or of neither accuracy nor log_likelihood.")
    figure, grid = _grid(models, shown)
    controls = [control for control in CONTROLS if control in edited["control"].to_list()]
    for (outcome, model, against), axes in grid.items():
        damage = {
            (result.context, result.intervention, result.control): result
            for result in outcomes
            if (result.quantity, result.outcome, result.model) == ("damage", outcome, model)
        }
        for number, control in enumerate(controls):
            points = _points(edited.filter(pl.col("model") == model), line, damage, control, OUTCOMES[outcome][1])
            _draw(axes, line, points, control, APART * (number - (len(controls) - 1) / 2), against)
        axes.axhline(0, color=BLACK, linewidth=0.5)
        if against:
            axes.set_xlabel("removed attention (%)")
        else:
            label_places(axes, line.labels, line.says)
    for (_, _, against), axes in grid.items():
        if against:
            axes.set_xlim(left=0)  # once everything is drawn: the bounds are shared, and this ends their growing
    _add_legend(figure, controls, line)
    add_footer(figure, _small_print(edited, line))
    return figure


def _line(edited: pl.DataFrame) -> _Line:
    contexts, interventions = (edited[name].unique(maintain_order=True).to_list() for name in ("context", "intervention"))
    if not interventions:
        raise Refusal("There is no intervention to draw: every row of the table is unedited.")
    if len(contexts) > 1 and len(interventions) > 1:
        raise Refusal(
            f"There are {len(contexts)} contexts and {len(interventions)} interventions, too many for one axis. Draw one context at a time."
        )
    if len(contexts) > 1:
        places = [place_of(context) for context in contexts]
        conditions = [(context, interventions[0]) for context in contexts]
        series = {series for series, _ in places}
        if len(series) == 1:
            return _Line(conditions, [level for _, level in places], series.pop().says, joined=True)
        return _Line(conditions, contexts, "context")
    conditions = [(contexts[0], intervention) for intervention in interventions]
    kinds, values = ({name.partition(":")[part] for name in interventions} for part in (0, 2))
    if len(kinds) == 1 and all(value.isdecimal() for value in values):
        return _Line(conditions, [name.partition(":")[2] for name in interventions], f"K of {kinds.pop()}", joined=True, over_k=True)
    return _Line(conditions, interventions, "intervention")


def _grid(models: Sequence[str], shown: Sequence[str]) -> tuple[Figure, dict[tuple[str, str, bool], Axes]]:
    """Panels by outcome, model, and whether damage is drawn against removed attention: models in a row or, for one, both kinds."""
    alone = len(models) == 1
    columns = 2 if alone else len(models)
    figure, axes = panels(
        PAGE_WIDTH, 0.6 + (1.9 if alone else 1.6) * len(shown) * (1 if alone else 2), len(shown) * (1 if alone else 2), columns
    )
    grid: dict[tuple[str, str, bool], Axes] = {}
    names = short_names(models)
    for row, outcome in enumerate(shown):
        for column, model in enumerate(models):
            for against in (False, True):
                own = axes[row, int(against)] if alone else axes[2 * row + against, column]
                first = grid.setdefault((outcome, models[0], False), own)
                if own is not first:
                    own.sharey(first)
                if against and column:
                    own.sharex(grid[outcome, models[0], True])
                grid[outcome, model, against] = own
                if not column and not (alone and against):
                    own.set_ylabel(f"damage to\n{OUTCOMES[outcome][0]}")
                else:
                    own.tick_params(labelleft=False)
                if not row and not against:
                    width = own.get_position().width * PAGE_WIDTH * POINTS
                    own.set_title("\n".join(wrapped(names[model], width, 7.5)), parse_math=False)
    return figure, grid


def _points(
    rows: pl.DataFrame, line: _Line, damage: Mapping[tuple[str, str, str], Outcome], control: str, share: str
) -> tuple[np.ndarray, xr.Dataset, xr.Dataset]:
    """The places of the points of one control along the line, their damage, and what was removed (%); only conditions that ran."""
    outcomes = {place: damage[*condition, control] for place, condition in enumerate(line.conditions) if (*condition, control) in damage}
    removed = []
    for context, intervention in (line.conditions[place] for place in outcomes):
        of = (pl.col("context") == context) & (pl.col("intervention") == intervention) & (pl.col("control") == control)
        values = rows.filter(of)[share].cast(pl.Float64).fill_null(np.nan)
        removed.append(bootstrap(100 * xr.DataArray(values.to_numpy(), dims="sample")))
    lost = {name: ("place", [getattr(outcome, name) for outcome in outcomes.values()]) for name in INTERVAL}
    gone = {name: ("place", [interval[name].item() for interval in removed]) for name in INTERVAL}
    return np.array(list(outcomes), int), xr.Dataset(lost), xr.Dataset(gone)


def _draw(axes: Axes, line: _Line, points: tuple[np.ndarray, xr.Dataset, xr.Dataset], control: str, away: float, against: bool) -> None:
    places, damage, removed = points
    label, look = CONTROLS[control]
    if not against:
        draw_points(axes, places + away, damage, look if line.joined else replace(look, line=""), label)
        return
    draw_points(axes, removed["estimate"].values, damage, look if line.over_k else replace(look, line=""), label, across=removed)
    if line.over_k and len(line.labels) > 1:
        for place, x, y in zip(places, removed["estimate"].values, damage["estimate"].values, strict=True):
            if np.isfinite(x + y):
                text = line.labels[int(place)]
                axes.annotate(text, (x, y), xytext=(2.5, 2.5), textcoords="offset points", fontsize=5.5, color=look.colour)


def _add_legend(figure: Figure, controls: Sequence[str], line: _Line) -> None:
    interventions = list(dict.fromkeys(intervention for _, intervention in line.conditions))
    name = interventions[0] if len(interventions) == 1 else interventions[0].partition(":")[0] if line.over_k else "intervention"
    handles = [
        Line2D([], [], color=look.colour, marker=look.marker, linestyle=look.line if line.joined else "", label=label if control else name)
        for control, (label, look) in ((control, CONTROLS[control]) for control in controls)
    ]
    add_legend(figure, handles, columns_that_fit([str(handle.get_label()) for handle in handles], 4))


def _small_print(edited: pl.DataFrame, line: _Line) -> list[str]:
    contexts = list(dict.fromkeys(context for context, _ in line.conditions))
    return [
        f"in {contexts[0]}" if len(contexts) == 1 else "",
        f"questions: {edited['sample'].n_unique()}",
        "damage: unedited minus edited; bars: 95 % intervals over questions, of paired differences",
        "removed attention: while the model wrote, for accuracy; while likelihoods were taken, for these",
        "numbers at points: K" if line.over_k and len(line.labels) > 1 else "",
    ]
