"""The path of the strongest key: where it lies in every layer at every step, and how often it changes, beside what noise would change.

One column per trace, so that models stand side by side. Above, one sample: colour is the position of the strongest key, on the same scale
in all panels, and a tick marks each step at which it is another one than before; the last row is of attention averaged over all layers. A
sink is one colour, a floating anchor many. Grey is a step without one strongest key. Below, all prompts: how often the key changes from
step to step, of all rows, and of one half against the other, beside how often the halves of the same step differ (see
`floatlens.measures.path`). Refuses samples that do not exist, and traces in which nothing has a path.
"""

from collections.abc import Mapping

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from floatlens.errors import Refusal
from floatlens.measures.inputs import Measurable
from floatlens.measures.path import strongest_path
from floatlens.report.figures.style import (
    AMOUNTS,
    BLACK,
    BLUE,
    NOT_KNOWN,
    ORANGE,
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
from floatlens.report.figures.subject import Subject, notes_on_missing, refuse_empty, subject_of

SERIES = {
    "changes": ("changes from step to step", Look(BLUE, "o")),
    "compared": ("half of a step against half of the next", Look(VERMILLION, "s")),
    "noise": ("noise: halves of the same step", Look(ORANGE, "^", "--")),
}
MOST_COLUMNS = 3
WHAT = "the path of the strongest key"


@in_style
def path_by_layer(traces: Measurable | Mapping[str, Measurable], *, sample: int = 0, group: str | None = None, keys: str = "all") -> Figure:
    """The strongest key of every layer and step in one sample, and how often it changes in all of them.

    Parameters
    ----------
    traces
        A trace, or several by name.
    sample
        Which sample the upper panels show.
    group
        Whose rows; "predicting" where there are such rows.
    keys
        Among which keys: "all", or those of the "prompt".

    Examples
    --------
    Four rows look at key 2 at step 0 and at key 5 from step 1 on.

    >>> from floatlens.measures import from_attention
    >>> looks = np.full((3, 1, 1, 4, 10), 0.04)
    >>> looks[0, ..., 2] = looks[1:, ..., 5] = 0.64
    >>> figure = path_by_layer(from_attention(looks))
    >>> figure.axes[0].images[0].get_array()[0].tolist()
    [2.0, 5.0, 5.0]
    """
    named = dict(traces) if isinstance(traces, Mapping) and not isinstance(traces, xr.Dataset) else {"": traces}
    if not named:
        raise Refusal("There are no traces to draw; pass one, or several by name.")
    subjects = {name: subject_of(trace, group, ("predicting",)) for name, trace in named.items()}
    for subject in subjects.values():
        if not 0 <= sample < subject.data.sizes["sample"]:
            raise Refusal(f"There is no sample {sample}; there are {subject.data.sizes['sample']}, counted from 0.")
    paths = {name: strongest_path(subject.data, keys=keys) for name, subject in subjects.items()}
    columns = 2 if len(named) == 4 else min(len(named), MOST_COLUMNS)
    blocks = -(-len(named) // columns)
    figure, grid = panels(PAGE_WIDTH, 0.6 + 3.1 * blocks, 2 * blocks, columns, height_ratios=[1.5, 1] * blocks)
    norm = Normalize(0, max(max(subject.data.sizes["key"] for subject in subjects.values()) - 1, 1))
    notes: list[str] = []
    for number, (name, subject) in enumerate(subjects.items()):
        above, below = grid[2 * (number // columns), number % columns], grid[2 * (number // columns) + 1, number % columns]
        path = paths[name]
        values = {label: path[variable] for variable, (label, _) in SERIES.items()}
        reasons = {label: path["reason" if variable == "changes" else "noise_reason"] for variable, (label, _) in SERIES.items()}
        refuse_empty(WHAT, {"changes": path["changes"]}, {"changes": path["reason"]})
        whole = strongest_path(subject.data.isel(sample=[sample]), keys=keys, pooled=True)["path"].isel(sample=0).sel(depth="all")
        _draw_paths(above, path["path"].isel(sample=sample), whole, norm)
        above.set_title(drawable(name), parse_math=False)
        layers = path["layer"].values
        for variable, (label, look) in SERIES.items():
            if path[variable].notnull().any():
                draw_series(below, layers, subject.over_prompts(path[variable]), look, label)
        below.set_ylim(-0.02, 1.02)
        along_layers(below, layers)
        notes += [f"{name}: {note}" if name else note for note in notes_on_missing(values, reasons)]
    for axes in grid.flat:
        axes.set_visible(bool(axes.images or axes.lines))
    for axes in grid[::2, 0]:
        axes.set_ylabel("layer")
    for axes in grid[1::2, 0]:
        axes.set_ylabel("share of steps")
    bar = figure.colorbar(grid[0, 0].images[0], ax=grid[::2].ravel().tolist(), aspect=25, pad=0.01)
    bar.set_label("position of the strongest key")
    handles: list[Line2D | Patch] = [
        Line2D([], [], color=look.colour, marker=look.marker, linestyle=look.line, label=label) for label, look in SERIES.values()
    ]
    handles.append(Line2D([], [], color=BLACK, marker="|", linestyle="", markersize=6, label="another key than before"))
    handles.append(Patch(facecolor=NOT_KNOWN, label="no strongest key"))
    add_legend(figure, handles, 3)
    add_footer(figure, [*_small_print(subjects, paths, sample, keys), *notes])
    return figure


def _draw_paths(axes: Axes, path: xr.DataArray, whole: xr.DataArray, norm: Normalize) -> None:
    """Layers by steps, and below them, apart, all layers averaged; steps that the sample does not have are left off."""
    of_layers = path.transpose("layer", "step").values
    steps = max(int(np.flatnonzero((of_layers >= 0).any(0)).max(initial=0)) + 1, 1)
    layers, thick = len(of_layers), max(1, round(len(of_layers) / 10))  # rows of the gap and of the mean: they have to be seen
    rows = np.concatenate([of_layers[:, :steps], np.full((thick, steps), -1), np.repeat(whole.values[None, :steps], thick, axis=0)])
    axes.set_facecolor(NOT_KNOWN)
    axes.imshow(np.ma.masked_less(rows.astype(float), 0), cmap=AMOUNTS, norm=norm, aspect="auto", interpolation="nearest")
    axes.axhspan(layers - 0.5, layers + thick - 0.5, color="white")
    row, step = np.nonzero((rows[:, 1:] != rows[:, :-1]) & (rows[:, 1:] >= 0) & (rows[:, :-1] >= 0))
    for colour, width, name in (("white", 1.6, "outline of changes"), (BLACK, 0.8, "changes")):
        axes.vlines(step + 0.5, row - 0.42, row + 0.42, color=colour, linewidth=width).set_gid(name)
    labelled = range(0, layers, -(-layers // 6))
    numbers = path["layer"].values[labelled.start : labelled.stop : labelled.step]
    axes.set_yticks([*labelled, layers + 1.5 * thick - 0.5], [*map(str, numbers), "all"])
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True, min_n_ticks=1))
    axes.set_xlabel("step")


def _small_print(subjects: Mapping[str, Subject], paths: Mapping[str, xr.Dataset], sample: int, keys: str) -> list[str]:
    first = next(iter(subjects.values()))
    halves = {name: " and ".join(sorted(set(path["method"].values.ravel().tolist()) - {""})) for name, path in paths.items()}
    how = [
        "strongest key of attention averaged over heads",
        "keys of the prompt only" if keys == "prompt" else "all keys",
        f"above: sample {sample}",
    ]
    if len(subjects) == 1:
        said = halves[next(iter(halves))]
        return first.small_print(*how, f"halves of {said}" if said else "")
    each = [
        f"{name}: {subject.model}, {subject.group} rows{f', halves of {halves[name]}' if halves[name] else ''}, "
        f"{subject.prompts} prompt{'' if subject.prompts == 1 else 's'}"
        for name, subject in subjects.items()
    ]
    some = any(subject.prompts > 1 for subject in subjects.values())
    return [*each, *how, "bands: 95 % intervals over prompts" if some else "1 prompt each, so no intervals"]
