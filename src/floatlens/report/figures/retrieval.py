"""Retrieval heads: a heat map of scores by layer and head, with the share of heads above a threshold in each third of depth.

Published maps look divided by their largest value. This one is not, unless asked for, and says so when it is.
"""

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from floatlens.errors import Refusal
from floatlens.measures.inputs import Measurable, as_dataset
from floatlens.measures.retrieval import mean_retrieval_score, normalised_for_display, retrieval_head_shares, retrieval_scores
from floatlens.report.figures.style import AMOUNTS, BLACK, NOT_KNOWN, ORANGE, PAGE_WIDTH, add_footer, add_legend, in_style, panels
from floatlens.report.figures.subject import model_of, with_samples

THRESHOLD = 0.1


@in_style
def retrieval_heads(trace: Measurable, gold: str | xr.DataArray = "gold", *, normalised: bool = False) -> Figure:
    """Retrieval score of every head, and the share of heads above .1 in each third of the layers.

    Parameters
    ----------
    trace
        A trace with favourite keys (top_keys).
    gold
        The needle: the name of a region of the prompt, or booleans over position (and sample).
    normalised
        Divide the map by its largest score, as published maps look.

    Examples
    --------
    >>> data = xr.Dataset({
    ...     "top_key": (("layer", "head", "position", "rank"), [[[[-1], [-1], [-1], [1], [2]], [[-1], [-1], [-1], [1], [1]]]]),
    ...     "final": ("position", [7, 8, 9, 8, 9]),
    ...     "committed": ("position", [-1, -1, -1, 0, 1]),
    ... })
    >>> figure = retrieval_heads(data, xr.DataArray([False, True, True, False, False], dims="position"))
    >>> figure.axes[0].images[0].get_array().tolist()
    [[1.0, 0.5]]
    """
    data = with_samples(as_dataset(trace))
    mean = mean_retrieval_score(retrieval_scores(data, gold))
    if not mean["runs"].item():
        raise Refusal(f"There is nothing to draw in retrieval heads: {mean['reason'].item()}.")
    shown = normalised_for_display(mean) if normalised else mean
    if normalised and shown["reason"].item():
        raise Refusal(f"This map cannot be divided by its largest score: {shown['reason'].item()}.")
    figure, grid = panels(PAGE_WIDTH, 2.9, 1, 2, width_ratios=[3, 1.2])
    axes, thirds = grid[0]
    score = shown["score"].transpose("layer", "head")
    layers = score["layer"].values
    image = axes.imshow(np.ma.masked_invalid(score.values), cmap=AMOUNTS, vmin=0, aspect="auto", interpolation="nearest")
    axes.set_facecolor(NOT_KNOWN)
    axes.set_xlabel("head")
    axes.set_ylabel("layer")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.yaxis.set_major_formatter(lambda place, _: f"{layers[int(place)]}" if 0 <= place < len(layers) and place == int(place) else "")
    bar = figure.colorbar(image, ax=axes, aspect=30, pad=0.02)
    bar.set_label(f"max-normalised (1 is {shown['largest'].item():.2g})" if normalised else "retrieval score")
    axes.set_title("score over the largest of this map, max-normalised" if normalised else "share of the needle that each head copies")
    _draw_thirds(thirds, mean)
    thirds.patches[0].set_label("share of heads")
    absent = [Patch(facecolor=NOT_KNOWN, label="no such head")] if bool(score.isnull().any()) else []
    add_legend(figure, [thirds.patches[0], thirds.lines[0], *absent], 3)
    samples = data.sizes["sample"]
    named = gold if isinstance(gold, str) else "chosen positions"
    add_footer(
        figure,
        [
            model_of(data),
            "rows that predict, at the step that commits",
            f"needle: {named}",
            f"mean over {mean['runs'].item()} of {samples} {'prompt' if samples == 1 else 'prompts'}, "
            "those whose answer recalls more than half of the needle",
            "max-normalised: not comparable between maps" if normalised else "",
            "null: the head's own favourites dealt to the written positions at random",
        ],
    )
    return figure


def _draw_thirds(axes: Axes, mean: xr.Dataset) -> None:
    """A bar for all heads and for each third of the layers: the percentage above the threshold, and that of the null."""
    shares = retrieval_head_shares(mean, (THRESHOLD,)).isel(threshold=0)
    percent, null = 100 * shares["share"].values, 100 * shares["null"].values
    places = np.arange(shares.sizes["third"])
    axes.barh(places, np.nan_to_num(percent), 0.7, color=ORANGE, hatch="////", edgecolor=BLACK, linewidth=0.4, label="share of heads")
    axes.plot(null, places, "|", color=BLACK, markersize=12, markeredgewidth=1.4, label="its null")
    widest = max(2.0, float(np.nanmax(np.concatenate([percent, null]))))
    for place, share, expected in zip(places.tolist(), percent, null, strict=True):
        beyond = np.nanmax([share, expected, 0.0]) + 0.04 * widest
        axes.text(beyond, place, f"{share:.1f} %" if np.isfinite(share) else "no heads", va="center", fontsize=6)
    axes.set_yticks(places, [str(name) for name in shares["third"].values])
    axes.invert_yaxis()
    axes.set_xlim(-0.02 * widest, 1.35 * widest)
    axes.set_xlabel(f"heads above {THRESHOLD:g} (%)")
