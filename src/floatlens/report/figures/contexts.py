"""Context curves: how often each model is right, and how likely the answers are, as the context of the evidence changes.

The table is one of `floatlens.study.evaluation`, or several stacked. There is a panel for the brackets (closed-book, gold) and one for
each series of contexts that was asked (retrieved, noise, position, layout, conflict, masks), at most four in a row: accuracy, and
below it log-likelihoods where any were measured. Contexts belong to one series if they differ only in their level: `position:1/10`
and `position:10/10` do, slots of 20 are another series, and so are noise among 5 passages and among 10.

Bars are 95 % intervals over questions. Thin lines are the brackets of the same questions, so that each curve is seen between them;
grey dashes are the shortcut, where the table has one: what ignoring the point of the question scores. Rows under an intervention are
left out. Refuses a table without contexts, and more models than can be told apart.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np
import polars as pl
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from floatlens.errors import Refusal
from floatlens.report.figures.style import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PAGE_WIDTH,
    POINTS,
    PURPLE,
    SKY,
    Look,
    add_footer,
    add_legend,
    columns_that_fit,
    draw_points,
    in_style,
    panels,
    text_width,
    wrapped,
)
from floatlens.report.tables import short_names
from floatlens.statistics.proportions import bounded_mean
from floatlens.statistics.resampling import bootstrap
from floatlens.study.outcomes import BRACKETS

KINDS = {
    "brackets": "brackets",
    "retrieved": "passages retrieved",
    "noise": "share of distractors",
    "position": "slot of the evidence",
    "layout": "evidence in",
    "conflict": "beside a conflicting passage",
    "masks": "masks to write",
}
"""What is varied, in words, by the kind of context, in the order of panels."""
TICKS, LABELS = 6.5, 7.0  # points


@dataclass(frozen=True, order=True)
class Series:
    """Contexts that differ in their level alone: their kind, and what they share, such as "of 10"."""

    kind: str
    shared: str = ""

    @property
    def says(self) -> str:
        """What is varied, in words."""
        return f"{KINDS[self.kind]}\n({self.shared})" if self.shared else KINDS[self.kind]


def place_of(context: str) -> tuple[Series, str]:
    """The series that a context is of, and its level, as it is written below a point.

    Examples
    --------
    >>> place_of("position:3/10")
    (Series(kind='position', shared='of 10'), '3')
    >>> place_of("noise:0.4,passages=10"), place_of("gold,masks=16")
    ((Series(kind='noise', shared='passages=10'), '0.4'), (Series(kind='masks', shared='gold'), '16'))
    >>> place_of("gold")
    (Series(kind='brackets', shared=''), 'gold')
    """
    head, masks, count = context.rpartition(",masks=")
    if masks:
        return Series("masks", head), count
    head, _, options = context.partition(",")
    kind, _, value = head.partition(":")
    level, _, of = value.partition("/")
    shared = ", ".join(filter(None, (f"of {of}" if of else "", *options.split(","))))
    return Series("brackets" if kind in BRACKETS else kind, shared), level or kind


def label_places(axes: Axes, labels: Sequence[str], says: str) -> None:
    """Label the places 0, 1, ... of a panel, and below them the axis. If they would touch, names are wrapped and numbers thinned out."""
    figure = axes.get_figure()
    assert isinstance(figure, Figure)
    width = 1.1 * axes.get_position().width * figure.get_size_inches()[0] * POINTS  # before the layout, which gives panels a little more
    if all(label.replace(".", "").isdecimal() for label in labels):
        room = max(text_width(label, TICKS) for label in labels) + 4
        every = int(np.ceil(room * len(labels) / width))
        texts = ["" if place % every else label for place, label in enumerate(labels)]
    else:
        texts = ["\n".join(wrapped(label, 1.25 * width / len(labels) - 3, TICKS)) for label in labels]
    axes.set_xticks(range(len(labels)), texts, parse_math=False)
    axes.set_xlim(-0.6, len(labels) - 0.4)
    axes.set_xlabel("\n".join(line for part in says.split("\n") for line in wrapped(part, width, LABELS)), parse_math=False)


LOOKS = (Look(BLUE, "o"), Look(ORANGE, "s", "--"), Look(GREEN, "^", ":"), Look(PURPLE, "D", "-."), Look(SKY, "v"))
DASHES: dict[str, tuple[float, tuple[float, float]]] = dict(zip(BRACKETS, ((0, (1, 1.5)), (0, (7, 2))), strict=True))
"""How the brackets are drawn in other panels."""
OUTCOMES = {"accuracy": "accuracy", "log_likelihood": "log likelihood\nof the answer (nats)"}
INTERVAL = ("estimate", "low", "high")
SHORTCUT = (0, (2, 2))
APART = 0.12  # between models, in places along the axis
BESIDE = 4  # panels


@in_style
def context_curves(table: pl.DataFrame) -> Figure:
    """Accuracy and log-likelihood of every model by context, with intervals over questions, between the brackets.

    Parameters
    ----------
    table
        Rows of `floatlens.evaluate`: model, sample, context, kind, intervention, accuracy, log_likelihood, shortcut;
        the last two may be missing.

    Examples
    --------
    >>> rows = [("m", str(number), "closed-book", "closed-book", "", 0.0, 0.1) for number in range(3)]
    >>> columns = ["model", "sample", "context", "kind", "intervention", "accuracy", "shortcut"]
    >>> figure = context_curves(pl.DataFrame(rows, schema=columns, orient="row"))
    >>> figure.axes[0].lines[0].get_ydata().tolist()
    [0.0]
    """
    unedited = table.filter(pl.col("intervention") == "")
    contexts: dict[Series, list[str]] = {}
    for context in unedited["context"].unique(maintain_order=True):
        contexts.setdefault(place_of(context)[0], []).append(context)
    shown = {series: contexts[series] for kind in KINDS for series in contexts if series.kind == kind}
    if not shown:
        raise Refusal(f"There is nothing to draw in the context curves: no row without an intervention is of {', '.join(KINDS)}.")
    models = unedited["model"].unique(maintain_order=True).to_list()
    if len(models) > len(LOOKS):
        raise Refusal(f"There are {len(models)} models, and the context curves tell {len(LOOKS)} apart. Draw fewer at a time.")
    outcomes = [name for name in OUTCOMES if name in unedited.columns and unedited[name].is_not_null().any()]
    figure, grid = _grid(shown, outcomes)
    for outcome in outcomes:
        for series, own in shown.items():
            _draw_series(grid[outcome, series], unedited, series, own, outcome, models)
    brackets = [bracket for bracket in BRACKETS if bracket in unedited["context"].to_list() and len(shown) > 1]
    shortcut = "shortcut" in unedited.columns and unedited["shortcut"].is_not_null().any()
    _add_legend(figure, models, brackets, shortcut)
    add_footer(
        figure,
        [
            _questions(unedited, shown),
            "bars: 95 % intervals over questions",
            "log likelihoods of different kinds of model are not the same thing: compare differences"
            if "log_likelihood" in outcomes and len(models) > 1
            else "",
        ],
    )
    return figure


def _questions(rows: pl.DataFrame, shown: Mapping[Series, Sequence[str]]) -> str:
    counts = {series: rows.filter(pl.col("context").is_in(own))["sample"].n_unique() for series, own in shown.items()}
    if len(set(counts.values())) == 1:
        return f"questions: {next(iter(counts.values()))}"
    return "questions: " + ", ".join(f"{series.kind} {count}" for series, count in counts.items())


def _grid(shown: Mapping[Series, Sequence[str]], outcomes: Sequence[str]) -> tuple[Figure, dict[tuple[str, Series], Axes]]:
    """The panels by outcome and series: those of one series below each other, the same bounds for one outcome."""
    beside, blocks = min(len(shown), BESIDE), ceil(len(shown) / BESIDE)
    ratios = [float(np.clip(len(own), 2.5, 8)) for own in shown.values()] if blocks == 1 else [1.0] * beside
    width = PAGE_WIDTH if len(shown) > 1 else PAGE_WIDTH / 2
    figure, axes = panels(width, 0.5 + 1.75 * blocks * len(outcomes), blocks * len(outcomes), beside, width_ratios=ratios)
    grid: dict[tuple[str, Series], Axes] = {}
    for place, series in enumerate(shown):
        block, column = divmod(place, beside)
        for row, outcome in enumerate(outcomes):
            grid[outcome, series] = own = axes[block * len(outcomes) + row, column]
            if place:
                own.sharey(grid[outcome, next(iter(shown))])
            if column:
                own.tick_params(labelleft=False)
            else:
                own.set_ylabel(OUTCOMES[outcome])
            if outcome == "accuracy":
                own.set_ylim(-0.04, 1.04)
    for own in axes.flat:
        if own not in grid.values():
            figure.delaxes(own)
    return figure, grid


def _draw_series(axes: Axes, rows: pl.DataFrame, series: Series, contexts: Sequence[str], outcome: str, models: Sequence[str]) -> None:
    """One line per model over the contexts, in the order in which they were asked, between the brackets of the same questions."""
    label_places(axes, [place_of(context)[1] for context in contexts], series.says)
    here = rows.filter(pl.col("context").is_in(contexts))
    if here[outcome].is_null().all():
        axes.text(0.5, 0.5, "not taken", transform=axes.transAxes, ha="center", va="center", color=GREY)
        return
    for number, (model, look) in enumerate(zip(models, LOOKS, strict=False)):
        own = here.filter(pl.col("model") == model)
        values = {place: own.filter(pl.col("context") == context)[outcome].drop_nulls() for place, context in enumerate(contexts)}
        estimates = {place: _estimate(scores, outcome) for place, scores in values.items() if len(scores)}
        if estimates:
            places = np.array(list(estimates), float) + APART * (number - (len(models) - 1) / 2)
            drawn = xr.Dataset({name: ("place", [estimate[name] for estimate in estimates.values()]) for name in INTERVAL})
            draw_points(axes, places, drawn, look, model)
        if series.kind != "brackets":
            _draw_brackets(axes, rows.filter(pl.col("model") == model), own["sample"].unique().to_list(), outcome, look)
    if outcome == "accuracy" and "shortcut" in here.columns and here["shortcut"].is_not_null().any():
        shortcuts = [here.filter(pl.col("context") == context)["shortcut"].mean() for context in contexts]
        heights, places = np.array([np.nan if shortcut is None else shortcut for shortcut in shortcuts], float), np.arange(len(contexts))
        axes.hlines(heights, places - 0.3, places + 0.3, colors=GREY, linestyles=SHORTCUT, linewidth=0.8, label="shortcut")


def _estimate(values: pl.Series, outcome: str) -> dict[str, float]:
    along = xr.DataArray(values.to_numpy(), dims="sample")
    estimate = bounded_mean(along) if outcome == "accuracy" else bootstrap(along)[list(INTERVAL)].clip(max=0)  # no likelihood exceeds 1
    return {name: estimate[name].item() for name in INTERVAL}


def _draw_brackets(axes: Axes, rows: pl.DataFrame, samples: Sequence[str], outcome: str, look: Look) -> None:
    """The brackets of the questions that were asked here, where there are any."""
    asked = rows.filter(pl.col("sample").is_in(samples))
    for context, dashes in DASHES.items():
        mean = asked.filter(pl.col("context") == context)[outcome].mean()
        if isinstance(mean, float):
            axes.axhline(mean, color=look.colour, linestyle=dashes, linewidth=0.6, alpha=0.8, zorder=1, label=f"_{context}")


def _add_legend(figure: Figure, models: Sequence[str], brackets: Sequence[str], shortcut: bool) -> None:
    width = figure.get_size_inches()[0]
    names = ["\n".join(wrapped(name, 0.9 * width * POINTS - 40, 6.5)) for name in short_names(models).values()]
    handles = [
        Line2D([], [], color=look.colour, marker=look.marker, linestyle=look.line, label=name)
        for name, look in zip(names, LOOKS, strict=False)
    ]
    handles += [
        Line2D([], [], color=GREY, linestyle=DASHES[bracket], linewidth=0.6, label=f"{bracket}, of the same model") for bracket in brackets
    ]
    handles += [Line2D([], [], color=GREY, linestyle=SHORTCUT, linewidth=0.8, label="shortcut")] * shortcut
    labels = [line for handle in handles for line in str(handle.get_label()).split("\n")]
    add_legend(figure, handles, columns_that_fit(labels, 6, width))
