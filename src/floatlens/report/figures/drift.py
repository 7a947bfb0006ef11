"""Temporal drift: what the positions of a text receive, step by step, in a shallow, a middle and a deep layer.

Colour is lift on a log scale, the same for all panels; anchors are hatched; dots mark what each step commits, the unmasking frontier.
Attention is averaged over heads, and anchors are those of the average. Grey is what is not measured: no rows, or too few rows that
see the key. Refuses layers and samples that do not exist.
"""

from collections.abc import Sequence

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, PathPatch
from matplotlib.path import Path
from matplotlib.ticker import FuncFormatter, MaxNLocator

from floatlens.errors import Refusal
from floatlens.measures.anchors import find_anchors
from floatlens.measures.inputs import RECEIVED, Measurable, depths, refuse_missing
from floatlens.measures.received_attention import lift, mean_over_heads
from floatlens.report.figures.style import (
    AMOUNTS,
    NOT_KNOWN,
    PAGE_WIDTH,
    POINTS,
    VERMILLION,
    add_footer,
    add_legend,
    drawable,
    in_style,
    panels,
)
from floatlens.report.figures.subject import Subject, said_of_rule, subject_of, with_samples
from floatlens.trace.schema import COMMITTED_NOW, PROMPT
from floatlens.trace.trace import Trace

LEAST_LIFT, MOST_LIFT = 0.1, 10.0  # of the colours; the upper one grows with the data
TOKEN_SIZE, LONGEST_TOKEN = 5.0, 10
HATCH = "//////"
PANEL_WIDTH, PANEL_HEIGHT = PAGE_WIDTH - 1.1, 1.1  # inches, about


@in_style
def temporal_drift(
    trace: Measurable,
    *,
    sample: int = 0,
    group: str | None = None,
    layers: Sequence[int] | None = None,
    rule: str = "lift",
    eps: float | None = None,
) -> Figure:
    """Steps by positions: received attention as lift, with the anchors hatched.

    Parameters
    ----------
    trace
        A trace, or a dataset with mass, visible, null and rows; with `state` the frontier and the end of the prompt are marked, and
        with `token` the texts of tokens.
    sample
        Which sample.
    group
        Whose rows; "masked" where there are such rows, otherwise "predicting".
    layers
        Which layers, by their numbers; by default one from the middle of each third.
    rule, eps
        How anchors are found.

    Examples
    --------
    >>> from floatlens.measures import from_attention
    >>> figure = temporal_drift(from_attention(np.full((3, 2, 1, 4, 4), 0.25)))
    >>> [axes.get_title() for axes in figure.axes[:2]]
    ['layer 0', 'layer 1']
    """
    subject = subject_of(_one_sample(trace, sample), group)
    data = subject.data.isel(sample=0)
    refuse_missing(data, RECEIVED, "Temporal drift")
    if "step" not in data["mass"].dims:
        raise Refusal("Temporal drift is drawn along steps, and these data have none; pass the trace, not pooled steps.")
    looked_at = [*RECEIVED, *(name for name in ("state",) if name in data)]
    data = mean_over_heads(data[looked_at].isel(layer=_chosen_layers(data, layers)).load())
    anchors = find_anchors(data, rule=rule, eps=eps)
    shown = lift(data).where(anchors["measured"]).transpose("layer", "step", "key")
    hatched = anchors["anchor"].transpose("layer", "step", "key").values
    figure, grid = panels(PAGE_WIDTH, 0.75 + 1.35 * len(shown), len(shown), 1, sharex=True, sharey=True)
    most = max(MOST_LIFT, float(shown.max())) if shown.notnull().any() else MOST_LIFT
    norm = LogNorm(LEAST_LIFT, most)
    for axes, of_layer, marked in zip(grid[:, 0], shown, hatched, strict=True):
        axes.imshow(_colours(of_layer), cmap=AMOUNTS, norm=norm, aspect="auto", interpolation="nearest")
        axes.add_patch(_hatching(marked))
        axes.set_title(f"layer {of_layer['layer'].item()}")
        axes.set_ylabel("step")
        axes.yaxis.set_major_locator(MaxNLocator(nbins=5, integer=True, min_n_ticks=1))
        axes.set_facecolor(NOT_KNOWN)
        for side in ("top", "right"):
            axes.spines[side].set_visible(True)
        _mark_canvas(axes, data)
    bar = figure.colorbar(grid[0, 0].images[0], ax=grid[:, 0].tolist(), extend="min", aspect=40, pad=0.01)
    bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    bar.set_label("lift: received attention / fair share (log)")
    labelled = _label_tokens(grid[-1, 0], data, np.asarray(hatched.sum(axis=(0, 1))))
    grid[-1, 0].set_xlabel(
        "position in the text" + (" and token of the finished text, bold where it is ever an anchor" if labelled else "")
    )
    add_legend(figure, _legend(data, rule), 4)
    add_footer(figure, _small_print(subject, data, sample, rule, eps))
    return figure


def _one_sample(trace: Measurable, sample: int) -> xr.Dataset:
    """One sample of a trace, or of a dataset that has several."""
    if isinstance(trace, Trace):
        return trace.sample(sample)
    samples = with_samples(trace)
    if not 0 <= sample < samples.sizes["sample"]:
        raise Refusal(f"There is no sample {sample}; there are {samples.sizes['sample']}, counted from 0.")
    return samples.isel(sample=sample)


def _chosen_layers(data: xr.Dataset, layers: Sequence[int] | None) -> list[int]:
    """Places along the axis `layer`."""
    if layers is None:
        thirds = depths(data["layer"].values).sel(depth=["shallow", "middle", "deep"]).values
        return [int(places[len(places) // 2]) for places in map(np.flatnonzero, thirds) if len(places)]
    numbers = data["layer"].values.tolist()
    for layer in layers:
        if layer not in numbers:
            raise Refusal(f"There is no layer {layer} in this trace; its layers are {numbers[0]} to {numbers[-1]}.")
    if not layers:
        raise Refusal("No layer is named to be drawn; leave layers out for a shallow, a middle and a deep one.")
    return [numbers.index(layer) for layer in layers]


def _colours(of_layer: xr.DataArray) -> np.ma.MaskedArray:
    """Lift for a log scale: 0 is the least there is, and what is not known is left out."""
    return np.ma.masked_invalid(np.maximum(of_layer.values, LEAST_LIFT / 1e3))


def _hatching(marked: np.ndarray) -> PathPatch:
    """Hatched boxes around the anchors, (step, key): one for each unbroken run of steps."""
    edges = np.diff(marked.astype(np.int8), axis=0, prepend=0, append=0)
    key, began = np.nonzero(edges.T == 1)
    _, ended = np.nonzero(edges.T == -1)
    boxes = [
        Path([(x - 0.5, top - 0.5), (x + 0.5, top - 0.5), (x + 0.5, end - 0.5), (x - 0.5, end - 0.5), (x - 0.5, top - 0.5)], closed=True)
        for x, top, end in zip(key.tolist(), began.tolist(), ended.tolist(), strict=True)
    ]
    patch = PathPatch(Path.make_compound_path(*boxes), facecolor="none", edgecolor="black", hatch=HATCH, linewidth=0.4)
    patch.set_gid("anchors")
    return patch


def _mark_canvas(axes: Axes, data: xr.Dataset) -> None:
    """Dots where a step commits, and a line where the prompt ends or begins."""
    if "state" not in data:
        return
    state = data["state"].transpose("step", "position").values
    step, position = np.nonzero(state == COMMITTED_NOW)
    cell = min(PANEL_WIDTH / state.shape[1], PANEL_HEIGHT / state.shape[0]) * POINTS
    size = min(2.3, max(0.9, 0.6 * cell))  # points across: smaller than a cell, so that it shows whether the cell is an anchor
    dots = axes.scatter(position, step, s=size**2, marker="o", facecolor="white", edgecolor=VERMILLION, linewidth=size / 5, zorder=3)
    dots.set_gid("committed")
    prompt = (state == PROMPT).any(0)
    for edge in np.flatnonzero(np.diff(prompt.astype(np.int8))):
        line = axes.axvline(edge + 0.5, color="white", linewidth=1.1)
        axes.axvline(edge + 0.5, color="black", linewidth=1.1, linestyle=(0, (3, 3)))
        line.set_gid("end of the prompt")


def _label_tokens(axes: Axes, data: xr.Dataset, times: np.ndarray) -> bool:
    """Texts of tokens along the axis where they fit: those most often anchors first, then others evenly. Whether there are any."""
    if "token" not in data.coords:
        return False
    texts = [str(text) for text in data["token"].values]
    room = PANEL_WIDTH * POINTS / max(len(texts), 1)  # points per position
    apart = int(np.ceil(TOKEN_SIZE * 1.15 / room))
    wanted = [*np.argsort(-times, kind="stable")[: np.count_nonzero(times)].tolist(), *range(0, len(texts), apart), *range(len(texts))]
    placed: list[int] = []
    for position in wanted:
        if texts[position] and all(abs(position - other) >= apart for other in placed):
            placed.append(position)
    placed.sort()
    axes.set_xticks(placed, [f"{_short(texts[position])} {position}" for position in placed], rotation=90, fontsize=TOKEN_SIZE)
    axes.tick_params(axis="x", length=1.5, pad=1)
    for position, label in zip(placed, axes.get_xticklabels(), strict=True):
        label.set_parse_math(False)
        label.set_fontweight("bold" if times[position] else "normal")
        label.set_color("black" if times[position] else "0.45")
    return bool(placed)


def _short(text: str) -> str:
    shown = drawable(text).strip() or "␣"
    return shown if len(shown) <= LONGEST_TOKEN else f"{shown[: LONGEST_TOKEN - 1]}…"


def _legend(data: xr.Dataset, rule: str) -> list[Patch | Line2D]:
    handles: list[Patch | Line2D] = [
        Patch(facecolor="none", edgecolor="black", hatch=HATCH, linewidth=0.4, label="top keys" if rule == "top" else "anchors")
    ]
    if "state" in data:
        dot = Line2D([], [], linestyle="", marker="o", markerfacecolor="white", markeredgecolor=VERMILLION, label="committed at this step")
        handles.append(dot)
        handles.append(Line2D([], [], color="black", linestyle=(0, (3, 3)), label="end of the prompt"))
    return [*handles, Patch(facecolor=NOT_KNOWN, label="not measured")]


def _small_print(subject: Subject, data: xr.Dataset, sample: int, rule: str, eps: float | None) -> list[str]:
    """What this is of: one sample, every step by itself, whatever other figures pool."""
    heads = "attention averaged over heads" if "head" in subject.data["mass"].dims else "attention kept as its mean over heads"
    empty = int((data["rows"].fillna(0) == 0).all([axis for axis in data["rows"].dims if axis != "step"]).sum())
    return [
        subject.model,
        f"{subject.group} rows",
        f"{said_of_rule(rule, eps)}, at each step",
        heads,
        f"sample {sample}, 1 prompt",
        f"{empty} of {data.sizes['step']} steps have no {subject.group} rows" if empty else "",
        "" if "state" in data else "no canvas was recorded, so commits and the prompt are not marked",
    ]
