"""Masking against controls: what the outcome loses when anchors are masked, and under two random controls, for how much attention.

The table is an `xarray.Dataset` with

| variable | axes | meaning |
|---|---|---|
| `outcome` | sample, kind, k | accuracy, answer log-likelihood, or whatever is better when larger |
| `removed` | sample, kind, k | the share of attention that was removed, 0 to 1 |
| `unedited` | sample | the outcome of the same sample without an intervention |

with the kinds "anchors", "count" (as many random keys) and "mass" (random keys until the same mass is gone), and k the number of
anchors. Its attributes `outcome` (what it is, in words) and `model`, and a coordinate `prompt` along `sample` (samples of one prompt
are drawn together), are used where they exist. The attributes `least` and `most` of the variable `outcome` say what one sample can
score, for accuracies: intervals are then those of `floatlens.statistics.proportions`, inside that range.

First the outcome: points are the unedited mean plus the mean paired difference, and bars are intervals of that difference. Then
damage against removed mass; then damage per removed mass, where no interval is drawn if the removed mass may be 0. A table that lacks
a variable, a kind or an axis is refused.
"""

import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from floatlens.errors import Refusal
from floatlens.report.figures.style import (
    BLACK,
    BLUE,
    GREEN,
    ORANGE,
    PAGE_WIDTH,
    Look,
    add_footer,
    add_legend,
    draw_points,
    drawable,
    in_style,
    panels,
)
from floatlens.report.figures.subject import joined
from floatlens.statistics.by_prompt import Labels
from floatlens.statistics.proportions import Range, bounded_difference, bounded_mean, bounded_ratio
from floatlens.statistics.resampling import bootstrap, bootstrap_difference, bootstrap_ratio

KINDS = {
    "anchors": ("anchors masked", Look(BLUE, "o")),
    "count": ("control: as many random keys", Look(ORANGE, "s", "--")),
    "mass": ("control: random keys of equal mass", Look(GREEN, "^", ":")),
}
APART = 0.2  # between kinds, in places along the axis of k


@in_style
def masking_against_controls(table: xr.Dataset) -> Figure:
    """The outcome without an intervention, with K anchors masked and with both controls, and the damage against the mass removed.

    Parameters
    ----------
    table
        `outcome` and `removed` by sample, kind and k, and `unedited` by sample; see the top of this module.

    Examples
    --------
    >>> axes = ("sample", "kind", "k")
    >>> table = xr.Dataset(
    ...     {"outcome": (axes, np.full((2, 3, 1), 0.5)), "removed": (axes, np.full((2, 3, 1), 0.2)), "unedited": ("sample", [0.75, 0.75])},
    ...     coords={"kind": ["anchors", "count", "mass"], "k": [1]},
    ... )
    >>> figure = masking_against_controls(table)
    >>> figure.axes[0].lines[0].get_ydata().tolist()  # anchors masked
    [0.5]
    """
    _refuse_other_tables(table)
    clusters: Labels | None = table["prompt"].values if "prompt" in table.coords else None
    table = table.transpose("sample", "kind", "k", missing_dims="ignore")
    removed = bootstrap(100 * table["removed"], clusters=clusters)
    lost, within = (table["unedited"] - table["outcome"]) / 10, _range(table)
    if within is None:
        damage = bootstrap_difference(table["unedited"], table["outcome"], clusters=clusters)
        per_mass = bootstrap_ratio(lost, table["removed"], clusters=clusters)
        unedited = bootstrap(table["unedited"], clusters=clusters)
    else:
        most = (within[1] - within[0]) / 10
        damage = bounded_difference(table["unedited"], table["outcome"], within=within, clusters=clusters)
        per_mass = bounded_ratio(lost, table["removed"], within=(-most, most), clusters=clusters)
        unedited = bounded_mean(table["unedited"], within=within, clusters=clusters)
    figure, ((first, second, third),) = panels(PAGE_WIDTH, 2.5, 1, 3)
    counts = table["k"].values
    for number, (kind, (label, look)) in enumerate(KINDS.items()):
        hurt, gone = damage.sel(kind=kind), removed.sel(kind=kind)
        places = np.arange(len(counts)) + APART * (number - 1)
        outcome = unedited["estimate"] - hurt.rename(low="high", high="low")[["estimate", "low", "high"]]
        draw_points(first, places, outcome if within is None else outcome.clip(*within), look, label)
        draw_points(second, gone["estimate"].values, hurt, look, label, across=gone)
        draw_points(third, places, per_mass.sel(kind=kind), look, label)
        for k, x, y in zip(counts, gone["estimate"].values, hurt["estimate"].values, strict=True):
            second.annotate(f"{k}", (x, y), xytext=(2.5, 2.5), textcoords="offset points", fontsize=5.5, color=look.colour)
    first.axhline(unedited["estimate"].item(), color=BLACK, linewidth=0.8, linestyle=(0, (5, 1)))
    if np.isfinite(unedited["low"].item()):
        first.axhspan(unedited["low"].item(), unedited["high"].item(), color="0.9", zorder=0)
    what = str(table.attrs.get("outcome", "outcome"))
    first.set_ylabel(drawable(what), parse_math=False)
    second.set_xlabel("removed attention (%)")
    second.set_ylabel("damage (unedited - masked)")
    third.set_ylabel("damage per 10 % of attention")
    for axes, title in ((first, "outcome"), (second, "damage against removed attention"), (third, "damage per removed attention")):
        axes.set_title(title)
        if axes is not second:
            axes.set_xticks(range(len(counts)), [str(k) for k in counts])
            axes.set_xlabel("K: anchors masked")
        if axes is not first:
            axes.axhline(0, color=BLACK, linewidth=0.5)
    looks = [Line2D([], [], color=look.colour, marker=look.marker, linestyle=look.line, label=label) for label, look in KINDS.values()]
    add_legend(figure, [*looks, Line2D([], [], color=BLACK, linestyle=(0, (5, 1)), linewidth=0.8, label="no intervention")], 4)
    add_footer(figure, _small_print(table, damage, per_mass))
    return figure


def _range(table: xr.Dataset) -> Range | None:
    attributes = table["outcome"].attrs
    return (float(attributes["least"]), float(attributes["most"])) if "least" in attributes and "most" in attributes else None


def _refuse_other_tables(table: xr.Dataset) -> None:
    """Refuse a table that is not the one at the top of this module."""
    axes = {"outcome": {"sample", "kind", "k"}, "removed": {"sample", "kind", "k"}, "unedited": {"sample"}}
    for name, wanted in axes.items():
        if name not in table:
            raise Refusal(
                f"Masking against controls needs {name}, which this table does not hold: "
                "it has outcome and removed (sample, kind, k) and unedited (sample)."
            )
        if set(table[name].dims) != wanted:
            raise Refusal(f"{name} has the axes {tuple(table[name].dims)}; it must have {', '.join(sorted(wanted))}.")
    kinds = [str(kind) for kind in table["kind"].values] if "kind" in table.coords else []
    if missing := [kind for kind in KINDS if kind not in kinds]:
        raise Refusal(f"The table lacks the kind {missing[0]!r}: anchors are drawn with both controls; the kinds are {', '.join(KINDS)}.")
    if "k" not in table.coords or not table.sizes["k"]:
        raise Refusal("The table does not say how many anchors were masked: label its axis k, such as 1, 5, 10.")


def _small_print(table: xr.Dataset, damage: xr.Dataset, per_mass: xr.Dataset) -> list[str]:
    prompts = int(damage["prompts"].max())
    left_out = table.sizes["sample"] - int(damage["samples"].min())
    without = joined(per_mass["reason"].values.astype(str)) if prompts > 1 else ""
    return [
        str(table.attrs.get("model", "a model without a name")),
        "anchors of the step before, chosen before the edit",
        f"{prompts} prompts, bars: 95 % intervals over prompts, of paired differences; grey: of no intervention"
        if prompts > 1
        else "1 prompt, so no interval",
        f"up to {left_out} samples without an outcome are left out" if left_out else "",
        f"damage per removed attention without an interval: {without}" if without else "",
    ]
