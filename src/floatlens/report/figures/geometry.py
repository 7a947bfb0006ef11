"""QK geometry by layer: score, cosine and norm product of anchors and of the other keys, and where the anchors' advantage comes from.

The fourth panel splits the advantage of the anchors' scores exactly into direction and norm. That is a product within a head, so it
is drawn only where geometry was kept per head; otherwise the small print says so. Steps and heads are averaged.
"""

import numpy as np
import xarray as xr
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from floatlens.errors import Refusal
from floatlens.measures.geometry import GEOMETRY, advantage_split, anchor_geometry
from floatlens.measures.inputs import RECEIVED, Measurable, one_sample_at_a_time, refuse_missing
from floatlens.report.figures.style import (
    BLACK,
    BLUE,
    GREY,
    ORANGE,
    PAGE_WIDTH,
    SKY,
    Look,
    add_footer,
    add_legend,
    along_layers,
    draw_series,
    in_style,
    panels,
)
from floatlens.report.figures.subject import Subject, find_own_anchors, mean_by, notes_on_missing, refuse_empty, subject_of

PANELS = {"score": "score  q · k  (unscaled)", "cosine": "cosine of q and k", "norm_product": "norm product  |q| |k|"}
KINDS = {"anchor": ("anchors", Look(BLUE, "o")), "rest": ("all other keys", Look(GREY, "s", "--"))}
PARTS = {"direction": (ORANGE, "////"), "norm": (SKY, "....")}


@in_style
def qk_geometry(trace: Measurable, *, group: str | None = None, rule: str = "lift", eps: float | None = None) -> Figure:
    """Score, cosine and norm product of anchors and of the rest by layer, and the split of the anchors' advantage.

    Parameters
    ----------
    trace
        A trace, or a dataset, with geometry and norms.
    group
        Whose rows; "masked" where there are such rows, otherwise "predicting".
    rule, eps
        How anchors are found: per head where geometry was kept per head, otherwise on the mean over heads.

    Examples
    --------
    >>> from floatlens.measures import from_attention
    >>> qk_geometry(from_attention(np.full((4, 4), 0.25)))
    Traceback (most recent call last):
    floatlens.errors.Refusal: Geometry needs score, which this trace does not hold. Record it with \
detail={'geometry': 'head'} (--detail geometry=head).
    """
    subject = subject_of(trace, group)
    refuse_missing(subject.data, (*RECEIVED, *GEOMETRY), "Geometry")
    per_head = all("head" in subject.data[name].dims for name in ("mass", *GEOMETRY))
    means = _means(subject.data, rule=rule, eps=eps, per_head=per_head, pooled=subject.one_row_per_step)
    scores = {label: means["score"].sel(kind=kind, drop=True) for kind, (label, _) in KINDS.items()}
    reasons = {label: xr.full_like(scores[label].isel(layer=0), f"no {label} in some layers", dtype=object) for label in scores}
    refuse_empty("QK geometry", {"anchors": scores["anchors"]}, {"anchors": xr.DataArray(["there are no anchors"])})
    split, left_out = _split(subject, rule, eps)
    rows, columns = (1, 3) if split is None else (2, 2)
    figure, grid = panels(PAGE_WIDTH, 0.3 + 1.8 * rows, rows, columns)
    layers = means["layer"].values
    for axes, (name, title) in zip(grid.flat, PANELS.items(), strict=False):
        for kind, (label, look) in KINDS.items():
            draw_series(axes, layers, subject.over_prompts(means[name].sel(kind=kind, drop=True)), look, label)
        axes.set_title(title)
        axes.axhline(0, color="0.8", linewidth=0.5, zorder=0)
        along_layers(axes, layers)
    handles: list[Artist] = [line for line in grid.flat[0].lines if line.get_label() in scores]
    if split is not None:
        handles += _draw_split(grid.flat[3], layers, subject, split)
    add_legend(figure, handles, 5)
    heads = "per head, then averaged" if per_head else "anchors of head-averaged attention"
    notes = notes_on_missing(scores, reasons)
    add_footer(figure, [*subject.small_print(subject.said_of_anchors(rule, eps), heads, "mean over steps"), *notes, left_out])
    return figure


@one_sample_at_a_time
def _means(data: xr.Dataset, *, rule: str, eps: float | None, per_head: bool, pooled: bool) -> xr.Dataset:
    data = data[[*RECEIVED, *GEOMETRY]].load()
    geometry = anchor_geometry(data, find_own_anchors(data, rule, eps, per_head=per_head, pooled=pooled))
    return xr.Dataset({name: mean_by(geometry[name], "layer", "kind") for name in PANELS})


@one_sample_at_a_time
def _parts(data: xr.Dataset, *, rule: str, eps: float | None, pooled: bool) -> xr.Dataset:
    data = data[[*RECEIVED, "score", "key_norm"]].load()
    split = advantage_split(data, find_own_anchors(data, rule, eps, pooled=pooled))
    return xr.Dataset({name: mean_by(split[name], "layer") for name in ("advantage", *PARTS)})


def _split(subject: Subject, rule: str, eps: float | None) -> tuple[xr.Dataset | None, str]:
    """The parts of the advantage by sample and layer; or none, and why."""
    try:
        return _parts(subject.data, rule=rule, eps=eps, pooled=subject.one_row_per_step), ""
    except Refusal as refusal:
        return None, f"left out: {refusal}"


def _draw_split(axes: Axes, layers: np.ndarray, subject: Subject, split: xr.Dataset) -> list[Artist]:
    """Stacked bars, up where a part helps the anchors and down where it hurts them, and their sum; returns the handles of a legend."""
    up, down = np.zeros(len(layers)), np.zeros(len(layers))
    for part, (colour, hatch) in PARTS.items():
        height = subject.over_prompts(split[part])["estimate"].fillna(0).values
        base = np.where(height >= 0, up, down)
        axes.bar(layers, height, 0.8, bottom=base, color=colour, hatch=hatch, edgecolor="black", linewidth=0.3, label=part)
        up, down = up + np.maximum(height, 0), down + np.minimum(height, 0)
    whole = subject.over_prompts(split["advantage"])
    estimate, low, high = (whole[name].values for name in ("estimate", "low", "high"))
    (points,) = axes.plot(layers, estimate, "D", color=BLACK, markersize=2.5, label="advantage: sum of both")
    axes.errorbar(
        layers, estimate, yerr=np.nan_to_num(np.stack([estimate - low, high - estimate])), fmt="none", color=BLACK, elinewidth=0.7
    )
    axes.axhline(0, color=BLACK, linewidth=0.5)
    axes.set_title("anchors' score minus the others'")
    along_layers(axes, layers)
    bars = [Patch(facecolor=colour, hatch=hatch, edgecolor="black", linewidth=0.4, label=part) for part, (colour, hatch) in PARTS.items()]
    return [*bars, points]
