"""Region flow: where the rows that write the answer look, by region and layer, and what a rollout makes of it.

Left, the share of their attention in each region; middle, the same divided by what even attention would put there (1 is a fair share,
log scale); right, where `flow` was recorded, the published rollout from the answer and its null, without which it says nothing. Steps
are averaged for direct flow and pooled for the rollout, since models that compute each row once have no step with the rows of all
regions.
"""

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from floatlens.errors import Refusal
from floatlens.measures.flow import ELSEWHERE, direct_flow, rollout
from floatlens.measures.inputs import Measurable, as_dataset, one_sample_at_a_time
from floatlens.report.figures.style import (
    AMOUNTS,
    BLACK,
    NOT_KNOWN,
    ORANGE,
    PAGE_WIDTH,
    RATIOS,
    add_footer,
    add_legend,
    drawable,
    in_style,
    panels,
)
from floatlens.report.figures.subject import Subject, mean_by, notes_on_missing, reasons_in, refuse_empty, subject_of, with_samples

LEAST_RATIO = 4.0  # the colours of fair flow reach at least from 1/4 to 4
MOST_RATIO = 64.0


@in_style
def region_flow(trace: Measurable, *, group: str | None = None, rolled_from: str = "answer") -> Figure:
    """Direct and fair flow by region and layer, and the rollout with its null.

    Parameters
    ----------
    trace
        A trace with regions; for the rollout, with detail={'flow': 'layer'}.
    group
        Whose rows: "predicting" by default.
    rolled_from
        The region whose row of the rollout is shown.

    Examples
    --------
    >>> from floatlens.measures import from_attention
    >>> looks = np.array([[0.6, 0.2, 0.1, 0.1]])
    >>> figure = region_flow(from_attention(looks, groups={"predicting": np.array([True])}, regions={"bos": [0], "query": [1, 2]}))
    >>> figure.axes[0].images[0].get_array().round(2).tolist()  # bos, query, elsewhere; one layer
    [[60.0], [30.0], [10.0]]
    """
    data = with_samples(as_dataset(trace))
    subject = subject_of(trace, group, ("predicting",))
    flow = _direct(data, group=subject.group)
    if not (flow["direct"].sel(region=ELSEWHERE) > 0).any():  # regions cover the whole text
        flow = flow.drop_sel(region=ELSEWHERE)
    by_region = {str(name): flow["direct"].sel(region=name, drop=True) for name in flow["region"].values}
    reasons = {name: flow["reason"].sel(region=name) for name in by_region}
    refuse_empty("region flow", by_region, reasons)
    kept = flow.sel(region=[name for name, values in by_region.items() if values.notnull().any()])
    rolled, left_out = _rolled(data, rolled_from)
    columns = 2 if rolled is None else 3
    height = 0.9 + max(1.3, 0.2 * kept.sizes["region"])
    figure, grid = panels(PAGE_WIDTH, height, 1, columns, width_ratios=[1.15, 1, 0.9][:columns])
    direct, fair = (subject.over_prompts(kept[name])["estimate"].transpose("region", "layer") for name in ("direct", "fair"))
    _draw_map(figure, grid[0, 0], 100 * direct, "direct: share of attention (%)", AMOUNTS, None)
    far = float(np.exp(np.nanmax(np.abs(np.log(fair.where(fair > 0).values)), initial=0)))
    reach = min(max(far, LEAST_RATIO), MOST_RATIO)
    _draw_map(figure, grid[0, 1], fair, "fair: share / even share (log)", RATIOS, LogNorm(1 / reach, reach))
    grid[0, 1].tick_params(labelleft=False)
    notes = notes_on_missing(by_region, reasons)
    if rolled is not None:
        _draw_rollout(grid[0, 2], subject, rolled, rolled_from)
        bars = [
            Patch(facecolor=ORANGE, edgecolor=BLACK, linewidth=0.4, label="rollout"),
            Patch(facecolor="white", hatch="////", edgecolor=BLACK, linewidth=0.4, label="its null: every row looks evenly"),
        ]
        add_legend(figure, bars, 2)
        notes.append("rollout: rows of all steps pooled; n/a where there is no value")
    if overlapping := int(flow["overlapping"].max()):
        notes.append(f"regions overlap (in up to {overlapping} positions), so shares may add up to more than 100 %")
    small_print = subject.small_print("maps: means over steps, heads and prompts", intervals="" if rolled is None else "error bars")
    add_footer(figure, [*small_print, *notes, left_out])
    return figure


@one_sample_at_a_time
def _direct(data: xr.Dataset, *, group: str) -> xr.Dataset:
    flow = direct_flow(data, group=group)
    means = {name: mean_by(flow[name], "layer", "region") for name in ("direct", "fair")}
    reasons = [reasons_in(flow[["reason"]].isel(region=number)) for number in range(flow.sizes["region"])]
    return xr.Dataset(means).assign(overlapping=flow["overlapping"], reason=("region", reasons))


def _rolled(data: xr.Dataset, rolled_from: str) -> tuple[xr.Dataset | None, str]:
    """The rollout of one region's rows, by sample; or none, and why."""
    try:
        rolled = rollout(data, pooled=True)
    except Refusal as refusal:
        return None, f"left out: {refusal}"
    if rolled_from not in rolled["query_region"].values:
        return None, f"left out: a rollout from {rolled_from!r}, which is no region of this trace"
    own = rolled.sel(query_region=rolled_from, drop=True)
    if not own["rollout"].notnull().any():
        return None, f"left out: the rollout from {rolled_from!r} ({reasons_in(own)})"
    return own, ""


def _draw_map(figure: Figure, axes: Axes, values: xr.DataArray, title: str, colours: object, norm: LogNorm | None) -> None:
    """Regions by layers, with numbers where there is room for them."""
    shown = np.ma.masked_invalid(values.values if norm is None else np.maximum(values.values, 1e-9))
    image = axes.imshow(shown, cmap=colours, norm=norm, vmin=0 if norm is None else None, aspect="auto", interpolation="nearest")  # pyright: ignore[reportArgumentType]: a name or a colormap
    axes.set_facecolor(NOT_KNOWN)
    axes.set_title(title)
    layers = values["layer"].values
    axes.set_xlabel("layer")
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True, min_n_ticks=1))
    axes.xaxis.set_major_formatter(
        FuncFormatter(lambda place, _: f"{layers[int(place)]}" if 0 <= place < len(layers) and place == int(place) else "")
    )
    axes.set_yticks(range(values.sizes["region"]), [drawable(str(name)) for name in values["region"].values])
    for label in axes.get_yticklabels():
        label.set_parse_math(False)
    bar = figure.colorbar(image, ax=axes, aspect=25, pad=0.02, extend="neither" if norm is None else "both")
    if norm is not None:
        bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        bar.ax.yaxis.set_minor_formatter(FuncFormatter(lambda value, _: ""))


def _draw_rollout(axes: Axes, subject: Subject, rolled: xr.Dataset, rolled_from: str) -> None:
    """Two bars per region: the rollout, with its interval, and its null."""
    places = np.arange(rolled.sizes["key_region"])
    for name, shift, colour, hatch in (("rollout", -0.2, ORANGE, ""), ("null", 0.2, "white", "////")):
        mean = subject.over_prompts(100 * rolled[name])
        estimate, low, high = (mean[part].values for part in ("estimate", "low", "high"))
        reach = np.nan_to_num(np.stack([estimate - low, high - estimate]))
        bars = axes.barh(
            places + shift,
            estimate,
            0.38,
            xerr=reach,
            error_kw={"elinewidth": 0.7},
            color=colour,
            hatch=hatch,
            edgecolor=BLACK,
            linewidth=0.4,
        )
        bars.set_label(name)
        for place, value, above in zip(places + shift, estimate, reach[1], strict=True):
            known = np.isfinite(value)
            axes.text((value + above if known else 0) + 2, place, f"{value:.1f}" if known else "n/a", va="center", fontsize=5)
    axes.set_yticks(places, [drawable(str(name)) for name in rolled["key_region"].values])
    for label in axes.get_yticklabels():
        label.set_parse_math(False)
    axes.invert_yaxis()
    axes.set_xlim(0, 125)
    axes.set_xticks([0, 50, 100])
    axes.set_title(f"rollout from {drawable(rolled_from)} (%)", parse_math=False)
    axes.set_xlabel("what it is made of (%)")
