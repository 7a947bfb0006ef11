"""What the first token and the strongest key draw while the causal mask is lifted, against the visible share of later positions.

One panel per measure, one line per model, with 95 % intervals over texts; the dotted line is the null. A share of 0, the causal mask,
stands at the left edge; from the smallest share on, the axis is logarithmic. Refuses a table without the measures.
"""

from collections.abc import Sequence

import numpy as np
import polars as pl
from matplotlib.figure import Figure

from floatlens.errors import Refusal
from floatlens.report.figures.style import BLUE, GREEN, GREY, ORANGE, PAGE_WIDTH, PURPLE, Look, add_legend, in_style, panels

LOOKS = (Look(BLUE, "o", "-"), Look(ORANGE, "s", "--"), Look(GREEN, "^", "-."), Look(PURPLE, "D", ":"))


@in_style
def against_visible_share(shares: pl.DataFrame, measures: Sequence[str]) -> Figure:
    """Shares of attention against the visible share of later positions.

    Parameters
    ----------
    shares
        From `floatlens.lab.adaptation.visibility.over_sink_layers`: model, share, measure, value, low, high and null in percent.
    measures
        One panel each.
    """
    missing = [measure for measure in measures if measure not in shares["measure"].to_list()]
    if missing:
        raise Refusal(f"The table has no measure {missing[0]!r}; it has {', '.join(sorted(set(shares['measure'].to_list())))}.")
    figure, axes = panels(PAGE_WIDTH, 2.3, 1, len(measures), sharey=True)
    ticks = sorted(set(shares["share"].to_list()))
    for panel, measure in zip(axes[0], measures, strict=True):
        for number, model in enumerate(shares["model"].unique(maintain_order=True)):
            own = shares.filter(model=model, measure=measure).sort("share")
            look, where = LOOKS[number % len(LOOKS)], places(own["share"].to_list())
            panel.plot(where, own["value"], color=look.colour, marker=look.marker, linestyle=look.line, label=model)
            panel.fill_between(where, own["low"].to_numpy(), own["high"].to_numpy(), color=look.colour, alpha=0.2, linewidth=0)
            panel.plot(where, own["null"], color=GREY, linestyle=":", linewidth=0.8)
        panel.set_title(measure)
        panel.set_xlabel("% of later positions that a row sees")
        panel.set_xticks(places(ticks), [f"{100 * share:g}" for share in ticks])
        panel.set_ylim(bottom=0)
    axes[0, 0].set_ylabel("% of attention")
    add_legend(figure, axes[0, 0].get_legend_handles_labels()[0], 4)
    return figure


def places(shares: Sequence[float]) -> np.ndarray:
    """Where shares stand: 0 one tenfold before the smallest other one, then every tenfold takes the same room.

    Examples
    --------
    >>> places([0.0, 0.01, 0.1, 1.0]).tolist()
    [0.0, 1.0, 2.0, 3.0]
    """
    smallest = min((share for share in shares if share > 0), default=1.0)
    return np.array([0.0 if share == 0 else 1 + np.log10(share / smallest) for share in shares])
