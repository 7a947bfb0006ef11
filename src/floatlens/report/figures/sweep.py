"""Threshold sweep: how many keys each rule calls anchors, and how much attention lies on them, as its threshold moves.

Above, the share of measured keys that are kept, on a log scale, on which a line ends where nothing is kept; below, the share of
attention that they hold. Dotted lines mark the rules' own thresholds. Layers, steps and heads are taken together.
"""

import xarray as xr
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from floatlens.anchor_rules import RULES
from floatlens.measures.anchors import threshold_sweep as share_above
from floatlens.measures.inputs import RECEIVED, Measurable, one_sample_at_a_time, refuse_missing
from floatlens.measures.received_attention import pool_steps
from floatlens.report.figures.style import (
    BLACK,
    BLUE,
    GREEN,
    ORANGE,
    PAGE_WIDTH,
    PURPLE,
    VERMILLION,
    Look,
    add_footer,
    add_legend,
    draw_series,
    in_style,
    panels,
)
from floatlens.report.figures.subject import mean_by, notes_on_missing, refuse_empty, subject_of

LOOKS = {
    "lift": Look(BLUE, "", "-"),
    "additive": Look(VERMILLION, "", "--"),
    "zscore": Look(GREEN, "", "-."),
    "rate": Look(ORANGE, "", "-"),
    "top": Look(PURPLE, "o", "-"),
}
PANELS = {
    "eps of the rules lift, additive, zscore": ("lift", "additive", "zscore"),
    "eps of the rule rate": ("rate",),
    "K of the rule top": ("top",),
}
ROWS = {"kept": "keys kept (%, log)", "absorbed": "attention on them (%)"}
LEAST_KEPT = 0.01  # percent: one key in ten thousand is where curves end that are worth looking at


@in_style
def threshold_sweep(trace: Measurable, *, group: str | None = None) -> Figure:
    """Share of keys kept, and of attention on them, against the threshold of each rule.

    Parameters
    ----------
    trace
        A trace, or a dataset with mass, visible, null and rows.
    group
        Whose rows; "masked" where there are such rows, otherwise "predicting".

    Examples
    --------
    >>> import numpy as np
    >>> from floatlens.measures import from_attention
    >>> looks = np.full((4, 10), 0.04)
    >>> looks[:, 7] = 0.64
    >>> figure = threshold_sweep(from_attention(looks))
    >>> lift = next(line for line in figure.axes[0].lines if line.get_label() == "lift")
    >>> lift.get_ydata()[0].round(6).item()  # one of ten keys has more than its share
    10.0
    """
    subject = subject_of(trace, group)
    swept = _swept(subject.data, pooled=subject.one_row_per_step)
    kept = {rule: swept[f"kept {rule}"] for rule in LOOKS}
    why = xr.DataArray(["too few rows of the group see any key"] * subject.data.sizes["sample"], dims="sample")
    refuse_empty("the threshold sweep", kept, {"all": why})
    figure, grid = panels(PAGE_WIDTH, 3.4, 2, 3, sharex="col", sharey="row", width_ratios=[2, 1, 1])
    for row, (variable, label) in zip(grid, ROWS.items(), strict=True):
        for axes, (title, rules) in zip(row, PANELS.items(), strict=True):
            for rule in rules:
                estimates = subject.over_prompts(100 * swept[f"{variable} {rule}"])
                shown = estimates if variable == "absorbed" else _above_zero(estimates)
                draw_series(axes, estimates[f"eps {rule}"].values, shown, LOOKS[rule], rule)
                axes.axvline(RULES[rule], color=BLACK, linestyle=":", linewidth=0.7)
            if variable == "absorbed":
                axes.set_xlabel(title)
        row[0].set_ylabel(label)
    grid[0, 0].set_yscale("log")
    grid[0, 0].set_ylim(max(LEAST_KEPT, grid[0, 0].get_ylim()[0]), 100)
    grid[0, 0].yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    grid[1, 0].set_ylim(0, 100)
    lines = {line.get_label(): line for axes in grid[0] for line in axes.lines}
    add_legend(figure, [lines[rule] for rule in LOOKS], 5)
    heads = "heads one by one" if "head" in subject.data["mass"].dims else "attention kept as its mean over heads"
    pooled = "all steps pooled" if subject.one_row_per_step else "all steps together"
    notes = notes_on_missing({"all rules": kept["lift"]}, {"all rules": why})
    add_footer(
        figure,
        [
            *subject.small_print(heads, pooled, "mean over layers", "dotted: the rules' own thresholds", "lines end where no key is kept"),
            *notes,
        ],
    )
    return figure


@one_sample_at_a_time
def _swept(data: xr.Dataset, *, pooled: bool) -> xr.Dataset:
    """`kept` and `absorbed` of every rule, each along the thresholds of the rule."""
    refuse_missing(data, RECEIVED, "A threshold sweep")
    received = data[list(RECEIVED)].load()
    received = pool_steps(received) if pooled else received
    by_rule = {rule: share_above(received, rule=rule).rename(eps=f"eps {rule}") for rule in LOOKS}
    return xr.Dataset({f"{name} {rule}": mean_by(sweep[name], f"eps {rule}") for rule, sweep in by_rule.items() for name in ROWS})


def _above_zero(estimates: xr.Dataset) -> xr.Dataset:
    """Only what a log scale can show; a band that reaches 0 ends at a tenth of its line."""
    there = estimates["estimate"] > 0
    low = xr.where(estimates["low"] < estimates["estimate"] / 10, estimates["estimate"] / 10, estimates["low"])
    return estimates.assign(estimate=estimates["estimate"].where(there), low=low.where(there), high=estimates["high"].where(there))
