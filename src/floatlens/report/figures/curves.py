"""Attention along an adaptation: what the first token and the strongest key draw, or what moves, against the update.

One panel per measure, one line per objective and mask, the mean over its seeds; thin lines are the seeds themselves where there are
several. The dotted line is the null. Update 0, before any training, stands before 1; from there on every doubling takes the same room.
Refuses a table without the measures.
"""

from collections.abc import Sequence

import numpy as np
import polars as pl
from matplotlib.figure import Figure

from floatlens.errors import Refusal
from floatlens.report.figures.style import BLUE, GREEN, GREY, ORANGE, PAGE_WIDTH, PURPLE, Look, add_legend, in_style, panels

LOOKS = {
    ("ar", "causal"): Look(BLUE, "o", "-"),
    ("diffusion", "bidirectional"): Look(ORANGE, "s", "--"),
    ("diffusion", "causal"): Look(GREEN, "^", "-."),
    ("diffusion", "annealed"): Look(PURPLE, "D", ":"),
}
NAMES = {
    ("ar", "causal"): "next token, causal",
    ("diffusion", "bidirectional"): "diffusion, bidirectional",
    ("diffusion", "causal"): "diffusion, causal",
    ("diffusion", "annealed"): "diffusion, annealed",
}


@in_style
def along_updates(shares: pl.DataFrame, measures: Sequence[str], label: str = "% of attention") -> Figure:
    """What was measured against the update.

    Parameters
    ----------
    shares
        From `floatlens.lab.adaptation.curves.over_layers`: run, objective, mask, seed, update, measure, value and null in percent.
    measures
        One panel each.
    label
        Beside the axis: of what, of which rows and layers.
    """
    missing = [measure for measure in measures if measure not in shares["measure"].to_list()]
    if missing:
        raise Refusal(f"The table has no measure {missing[0]!r}; it has {', '.join(sorted(set(shares['measure'].to_list())))}.")
    figure, axes = panels(PAGE_WIDTH, 2.3, 1, len(measures), sharey=True)
    updates = sorted(set(shares["update"].to_list()))
    for panel, measure in zip(axes[0], measures, strict=True):
        here = shares.filter(pl.col("measure") == measure)
        for kind, look in LOOKS.items():
            own = here.filter((pl.col("objective") == kind[0]) & (pl.col("mask") == kind[1]))
            if own.is_empty():
                continue
            runs = own["run"].unique(maintain_order=True).to_list()
            if len(runs) > 1:
                for run in runs:
                    line = own.filter(pl.col("run") == run).sort("update")
                    panel.plot(places(line["update"].to_list()), line["value"], color=look.colour, linewidth=0.4, alpha=0.6)
            mean = own.group_by("update").agg(pl.col("value").mean(), pl.col("null").mean()).sort("update")
            where = places(mean["update"].to_list())
            panel.plot(where, mean["value"], color=look.colour, marker=look.marker, linestyle=look.line, label=NAMES[kind])
            panel.plot(where, mean["null"], color=GREY, linestyle=":", linewidth=0.8)
        panel.set_title(measure)
        panel.set_xlabel("update")
        panel.set_xticks(places(updates), [f"{update:,}" for update in updates], rotation=60 if len(updates) > 8 else 0)
        panel.set_ylim(bottom=0)
    axes[0, 0].set_ylabel(label)
    add_legend(figure, axes[0, 0].get_legend_handles_labels()[0], 4)
    return figure


def places(updates: Sequence[int]) -> np.ndarray:
    """Where updates stand: 0 before 1, then every doubling takes the same room.

    Examples
    --------
    >>> places([0, 1, 2, 8]).tolist()
    [0.0, 1.0, 2.0, 4.0]
    """
    return np.array([0.0 if update == 0 else 1 + np.log2(update) for update in updates])
