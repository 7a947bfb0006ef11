"""Context curves: how often each model is right without passages, with gold ones, and as noise, position and layout of the evidence change.

The table is one of `floatlens.tasks.evaluation`, or several below each other. A panel for the brackets (closed-book, gold) and one for each kind of context that was asked; bars are 95 % intervals over
questions; grey dashes are the shortcut, what ignoring the point of the question scores, where the table has one. Rows under an intervention are left out. Refuses a table without contexts.
"""

from collections.abc import Sequence

import numpy as np
import polars as pl
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from floatlens.errors import Refusal
from floatlens.measures.resampling import bootstrap
from floatlens.report.figures.style import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PAGE_WIDTH,
    PURPLE,
    SKY,
    Look,
    add_footer,
    add_legend,
    in_style,
    panels,
)

LOOKS = (Look(BLUE, "o"), Look(ORANGE, "s", "--"), Look(GREEN, "^", ":"), Look(PURPLE, "D", "-."), Look(SKY, "v"))
KINDS = {"brackets": "brackets", "noise": "share of distractors", "position": "slot of the evidence", "layout": "evidence in"}
APART = 0.12  # between models, in places along the axis


@in_style
def context_curves(table: pl.DataFrame) -> Figure:
    """Accuracy of every model by context, with intervals over questions and the shortcut.

    Parameters
    ----------
    table
        Rows of `floatlens.tasks.evaluation.evaluate`: model, sample, context, kind, level, intervention, accuracy, shortcut.

    Examples
    --------
    >>> rows = [("m", str(number), "closed-book", "closed-book", None, "", 0.0, 0.1) for number in range(3)]
    >>> columns = ["model", "sample", "context", "kind", "level", "intervention", "accuracy", "shortcut"]
    >>> figure = context_curves(pl.DataFrame(rows, schema=columns, orient="row"))
    >>> figure.axes[0].lines[0].get_ydata().tolist()
    [0.0]
    """
    untouched = table.filter(pl.col("intervention") == "")
    kind = pl.col("kind").replace({"closed-book": "brackets", "gold": "brackets"})
    untouched = untouched.with_columns(kind=kind).filter(kind.is_in(list(KINDS)))
    shown = [one for one in KINDS if one in untouched["kind"].to_list()]
    if not shown:
        raise Refusal(f"There is nothing to draw in the context curves: no row is of {', '.join(KINDS)}.")
    models = untouched["model"].unique(maintain_order=True).to_list()
    if len(models) > len(LOOKS):
        raise Refusal(f"There are {len(models)} models, and the context curves tell {len(LOOKS)} apart. Draw fewer at a time.")
    figure, (row,) = panels(PAGE_WIDTH, 2.4, 1, len(shown), sharey=True)
    for axes, name in zip(row, shown, strict=True):
        _draw_kind(axes, untouched.filter(pl.col("kind") == name), models)
        axes.set_xlabel(KINDS[name])
    row[0].set_ylabel("accuracy")
    row[0].set_ylim(-0.04, 1.04)
    handles = [
        Line2D([], [], color=look.colour, marker=look.marker, linestyle=look.line, label=model)
        for model, look in zip(models, LOOKS, strict=False)
    ]
    add_legend(figure, [*handles, Line2D([], [], color=GREY, linestyle=(0, (2, 2)), label="shortcut")], 4)
    asked = untouched.group_by("kind", maintain_order=True).agg(pl.col("sample").n_unique())
    counts = ", ".join(f"{name} {count}" for name, count in asked.rows())
    add_footer(
        figure,
        [f"questions: {counts}", "bars: 95 % intervals over questions; none where all answers agree, which does not make them certain"],
    )
    return figure


def _draw_kind(axes: Axes, rows: pl.DataFrame, models: Sequence[str]) -> None:
    """One line a model over the contexts, in the order in which they were asked, with the shortcut below."""
    contexts = rows["context"].unique(maintain_order=True).to_list()
    places = np.arange(len(contexts))
    for number, (model, look) in enumerate(zip(models, LOOKS, strict=False)):
        own = [rows.filter((pl.col("model") == model) & (pl.col("context") == context)) for context in contexts]
        found = [None if one.is_empty() else bootstrap(xr.DataArray(one["accuracy"].to_numpy(), dims="sample")) for one in own]
        known = [at for at, one in enumerate(found) if one is not None]
        if not known:
            continue
        estimate, low, high = (np.array([one[name].item() for one in found if one is not None]) for name in ("estimate", "low", "high"))
        at = places[known] + APART * (number - (len(models) - 1) / 2)
        low, high = np.clip(low, 0, 1), np.clip(high, 0, 1)  # an accuracy ends there, whatever the bootstrap of few questions says
        reach = np.nan_to_num(np.stack([estimate - low, high - estimate])).clip(min=0)
        axes.plot(at, estimate, look.line, color=look.colour, marker=look.marker, linewidth=0.8, label=model)
        axes.errorbar(at, estimate, yerr=reach, fmt="none", color=look.colour, elinewidth=0.8, capsize=1.5)
    shortcuts = [rows.filter(pl.col("context") == context)["shortcut"].mean() for context in contexts]
    heights = np.array([np.nan if one is None else one for one in shortcuts], float)
    axes.hlines(heights, places - 0.3, places + 0.3, colors=GREY, linestyles=(0, (2, 2)), linewidth=0.8)
    axes.set_xticks(places, [_short(context) for context in contexts])


def _short(context: str) -> str:
    """A context without its kind and options: "noise:0.4" is "0.4", "position:3/6" is "3"."""
    head = context.partition(",")[0]
    return (head.partition(":")[2] or head).partition("/")[0]
