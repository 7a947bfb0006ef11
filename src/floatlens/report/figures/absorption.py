"""Absorption by layer: how much attention lies on the anchors, on the strongest key and on the first token, each with its null.

One panel per trace, all on the same scale and of the same kind of sets: those of each step, averaged over steps; or, if a trace has
no step with more than one row of the group, those of all steps pooled, in every panel. To compare models of different kinds, use the
rectangle that they share (`rectangle=True`): predicting rows and prompt keys.

Without the rows at even positions the strongest key is left out, and the small print says why.
"""

from collections.abc import Mapping
from dataclasses import replace

import xarray as xr
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from floatlens.errors import Refusal
from floatlens.measures.absorption import absorption_of_anchors, absorption_of_first_token, absorption_of_strongest_key
from floatlens.measures.anchors import find_anchors
from floatlens.measures.inputs import Measurable, as_dataset, one_sample_at_a_time
from floatlens.measures.received_attention import pool_steps, shared_rectangle
from floatlens.report.figures.style import (
    BLUE,
    COLUMN_WIDTH,
    GREEN,
    GREY,
    PAGE_WIDTH,
    VERMILLION,
    Look,
    add_footer,
    add_legend,
    along_layers,
    draw_series,
    drawable,
    in_style,
    panels,
)
from floatlens.report.figures.subject import (
    Subject,
    mean_by,
    notes_on_missing,
    reasons_in,
    refuse_empty,
    said_of_rule,
    subject_of,
    with_samples,
)

SERIES = {
    "anchors": Look(BLUE, "o"),
    "strongest key (split rows)": Look(VERMILLION, "s"),
    "first token": Look(GREEN, "^"),
}
MOST_COLUMNS = 3


@in_style
def absorption_by_layer(
    traces: Measurable | Mapping[str, Measurable],
    *,
    group: str | None = None,
    rule: str = "lift",
    eps: float | None = None,
    rectangle: bool = False,
) -> Figure:
    """The percentage of attention on anchors, strongest key and first token, by layer, with nulls dashed.

    Parameters
    ----------
    traces
        A trace, or several by name.
    group
        Whose rows; "masked" where there are such rows, otherwise "predicting". On the rectangle "predicting" unless given.
    rule, eps
        How anchors are found.
    rectangle
        Only attention from the predicting rows to the prompt, which models of all kinds share.

    Examples
    --------
    >>> import numpy as np
    >>> from floatlens.measures import from_attention
    >>> figure = absorption_by_layer(from_attention(np.full((2, 4, 4), 0.25)))
    >>> first_token = next(line for line in figure.axes[0].lines if line.get_label() == "first token")
    >>> first_token.get_ydata().tolist()
    [25.0]
    """
    named = dict(traces) if isinstance(traces, Mapping) and not isinstance(traces, xr.Dataset) else {"": traces}
    if not named:
        raise Refusal("There are no traces to draw; pass one, or several by name.")
    subjects = {name: _subject(trace, group, rectangle) for name, trace in named.items()}
    pooled = any(subject.one_row_per_step for subject in subjects.values())
    measured = {name: _by_layer(subject.data, pooled=pooled, rule=rule, eps=eps) for name, subject in subjects.items()}
    columns = 2 if len(named) == 4 else min(len(named), MOST_COLUMNS)
    rows = -(-len(named) // columns)
    width = COLUMN_WIDTH if columns == 1 else PAGE_WIDTH
    figure, grid = panels(width, 0.5 + 1.9 * rows, rows, columns, sharey=True)
    for axes in grid.flat[len(named) :]:
        axes.set_visible(False)
    notes: list[str] = []
    for axes, (name, subject) in zip(grid.flat, subjects.items(), strict=False):
        absorption = measured[name]
        values, reasons = _series(absorption, "share"), _series(absorption, "reason")
        refuse_empty("absorption by layer", values, reasons)
        layers = absorption["layer"].values
        for label, look in SERIES.items():
            if label in values:
                draw_series(axes, layers, subject.over_prompts(values[label]), look, label)
                null = subject.over_prompts(_series(absorption, "null")[label])
                axes.plot(layers, null["estimate"].values, "--", color=look.colour, linewidth=0.8, label=f"null of {label}")
        axes.set_title(drawable(name), parse_math=False)
        along_layers(axes, layers)
        missing = [*notes_on_missing(values, reasons), absorption.attrs["left_out"]]
        notes += [f"{name}: {note}" if name else note for note in missing if note]
    grid[0, 0].set_ylim(0, min(100, grid[0, 0].get_ylim()[1]))  # once all are drawn: the panels share it
    for axes in grid[:, 0]:
        axes.set_ylabel("share of attention (%)")
    handles: list[Line2D] = [Line2D([], [], color=look.colour, marker=look.marker, label=label) for label, look in SERIES.items()]
    handles.append(Line2D([], [], color=GREY, linestyle="--", linewidth=0.8, label="if every row looked evenly"))
    add_legend(figure, handles, 2 if columns == 1 else 4)
    add_footer(figure, [*_small_print(subjects, rule, eps, rectangle, pooled), *notes])
    return figure


def _subject(trace: Measurable, group: str | None, rectangle: bool) -> Subject:
    if not rectangle:
        return subject_of(trace, group)
    whole = subject_of(trace, group or "predicting")
    shared = shared_rectangle(as_dataset(trace), group=whole.group)
    return replace(whole, data=with_samples(shared.isel(group=0, drop=True)))


@one_sample_at_a_time
def _by_layer(data: xr.Dataset, *, pooled: bool, rule: str, eps: float | None) -> xr.Dataset:
    """Shares, nulls and reasons of one sample along an axis `what`; the attribute `left_out` says what is not there."""
    data = pool_steps(data) if pooled else data
    shares = [
        absorption_of_anchors(data, find_anchors(data, rule=rule, eps=eps)),
        absorption_of_first_token(data),
    ]
    names, left_out = ["anchors", "first token"], ""
    try:
        shares.append(absorption_of_strongest_key(data))
        names.append("strongest key (split rows)")
    except Refusal as refusal:
        left_out = f"left out: {refusal}"
    means = [
        xr.Dataset({name: mean_by(share[name], "layer") for name in ("share", "null")}).assign(reason=reasons_in(share)) for share in shares
    ]
    return xr.concat(means, "what").assign_coords(what=names).assign_attrs(left_out=left_out)


def _series(absorption: xr.Dataset, variable: str) -> dict[str, xr.DataArray]:
    return {str(name): absorption[variable].sel(what=name, drop=True) for name in absorption["what"].values}


def _small_print(subjects: Mapping[str, Subject], rule: str, eps: float | None, rectangle: bool, pooled: bool) -> list[str]:
    first = next(iter(subjects.values()))
    how = [
        said_of_rule(rule, eps),
        "rows of all steps pooled, mean over heads" if pooled else "sets of each step, mean over steps and heads",
        "keys of the prompt only, attention rescaled to them" if rectangle else "",
    ]
    if len(subjects) == 1:
        return first.small_print(*how)
    each = [
        f"{name}: {subject.model}, {subject.group} rows, {subject.prompts} prompt{'' if subject.prompts == 1 else 's'}"
        for name, subject in subjects.items()
    ]
    some = any(subject.prompts > 1 for subject in subjects.values())
    return [*each, *how, "bands: 95 % intervals over prompts" if some else "1 prompt each, so no intervals"]
