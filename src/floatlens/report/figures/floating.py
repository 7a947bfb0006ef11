"""The float index by layer: how much of the anchors is replaced from step to step, and what chance and noise would replace.

The first panel has the index of all rows and *no memory* (as many anchors anywhere). The second separates movement from noise: the
same index between rows of neighbouring steps, and *no movement*. What is compared with what depends on the rows that a step has, and
the panel says which (see `floatlens.measures.floating`). Their difference, `movement`, has a panel of its own where it exists: anchors
float where its interval lies above 0.
"""

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from floatlens.measures.floating import ONE_ROW, float_index
from floatlens.measures.inputs import Measurable, one_sample_at_a_time
from floatlens.report.figures.style import (
    BLACK,
    BLUE,
    GREY,
    ORANGE,
    PAGE_WIDTH,
    PURPLE,
    VERMILLION,
    Look,
    add_footer,
    along_layers,
    draw_series,
    in_style,
    panels,
    wrapped,
)
from floatlens.report.figures.subject import joined, mean_by, notes_on_missing, reasons_in, refuse_empty, said_of_rule, subject_of

LOOKS = {
    "float_index": Look(BLUE, "o"),
    "no_memory": Look(GREY, "v", "--"),
    "compared": Look(VERMILLION, "s"),
    "no_movement": Look(ORANGE, "^", "--"),
    "movement": Look(PURPLE, "D"),
}
PANELS = (("float_index", "no_memory"), ("compared", "no_movement"), ("movement",))
METHODS = {
    "halves": ("half of the rows against the other", "a step and the next", "no movement: within a step"),
    "order": ("one row per step, keys that all rows see", "neighbouring steps", "no movement: steps in any order"),
    "mixed": ("samples with one row per step, and with several", "compared", "no movement"),
    "": ("noise cannot be told from movement", "compared", "no movement"),
}


@in_style
def float_index_by_layer(trace: Measurable, *, group: str | None = None, rule: str = "lift", eps: float | None = None) -> Figure:
    """The float index with both of its nulls, by layer.

    Parameters
    ----------
    trace
        A trace, or a dataset with mass, visible, null and rows; with halves, movement is told from noise.
    group
        Whose rows; "masked" where there are such rows, otherwise "predicting".
    rule, eps
        How anchors are found, per head where mass was kept per head.

    Examples
    --------
    Four rows look at key 2 at step 0 and at key 5 from step 1 on.

    >>> from floatlens.measures import from_attention
    >>> looks = np.full((3, 1, 1, 4, 10), 0.04)
    >>> looks[0, ..., 2] = looks[1:, ..., 5] = 0.64
    >>> figure = float_index_by_layer(from_attention(looks))
    >>> figure.axes[0].lines[0].get_ydata().tolist()
    [0.5]
    """
    subject = subject_of(trace, group)
    indices = _indices(subject.data, rule=rule, eps=eps)
    series = {name: indices[name] for name in LOOKS}
    refuse_empty("the float index", {"float index": series["float_index"]}, {"float index": indices["reason"]})
    methods = np.unique(indices["method"].values.astype(str))
    method = str(methods[0]) if len(methods) == 1 else "mixed"
    labels = {
        "float_index": "float index",
        "no_memory": "no memory: as many anchors anywhere",
        "compared": METHODS[method][1],
        "no_movement": METHODS[method][2],
        "movement": "movement",
    }
    drawn = PANELS[: 3 if series["movement"].notnull().any() else 2]
    figure, grid = panels(PAGE_WIDTH, 2.4, 1, len(drawn))
    layers = indices["layer"].values
    for axes, names in zip(grid[0], drawn, strict=True):
        for name in names:
            draw_series(axes, layers, subject.over_prompts(series[name]), LOOKS[name], labels[name])
        axes.set_ylim(*((-0.02, 1.02) if "movement" not in names else (None, None)))
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.25), ncols=1)
        along_layers(axes, layers)
    grid[0, 0].set_ylabel("anchors replaced from\nstep to step (0 none, 1 all)")
    for axes, title in zip(grid[0], ("all rows of a step", METHODS[method][0], "difference of the two"), strict=False):
        axes.set_title(title)
    if len(drawn) > 2:
        grid[0, 2].axhline(0, color=BLACK, linewidth=0.7)
    if not series["compared"].notnull().any():
        lines = wrapped(joined(indices["reason"].values), 130, 6.5)
        grid[0, 1].text(0.5, 0.5, "\n".join(lines), transform=grid[0, 1].transAxes, ha="center", va="center", fontsize=6.5)
        grid[0, 1].get_legend().remove()
    short = {labels[name].split(":")[0]: series[name] for name in LOOKS if name != "movement"}
    notes = notes_on_missing(short, dict.fromkeys(short, indices["reason"]))
    if method in ("order", "mixed"):
        notes.append(ONE_ROW)
    add_footer(figure, [*subject.small_print(said_of_rule(rule, eps), "at each step", "mean over heads"), *notes])
    return figure


@one_sample_at_a_time
def _indices(data: xr.Dataset, *, rule: str, eps: float | None) -> xr.Dataset:
    index = float_index(data, rule=rule, eps=eps)
    means = {name: mean_by(index[name], "layer") for name in LOOKS}
    return xr.Dataset(means).assign(reason=reasons_in(index), method=index["method"])
