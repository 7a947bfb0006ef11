"""Print the tables of smollm2-triplet.md, "Five seeds": `python docs/results/when_the_sink_lets_go.py FOLDER`, of `floatlens curves`.

Every number is the mean over texts and layers of a run; its interval is over seeds. The rules stand on that page.
"""

import math
import sys
from pathlib import Path

import polars as pl
import xarray as xr

from floatlens.lab.adaptation import moving, shares
from floatlens.lab.adaptation.curves import CURVES, over_layers
from floatlens.statistics.resampling import bootstrap

DEEP, SHALLOW = range(12, 29), range(3, 11)
FIRST, STRONGEST, _ = shares.MEASURES
LETS_GO, COMES_BACK = 0.25, 2.0
"""Shares of what the first token draws in the causal base, and of what the strongest key draws at update 0: see the rules."""


def by_seed(curves: pl.DataFrame, layers: range, group: str, measure: str, mask: str) -> pl.DataFrame:
    """One row per update and seed, of the runs with a mask: `value` and `null` in per cent."""
    return over_layers(curves, layers, group=group).filter(measure=measure, mask=mask).sort("update", "seed")


def cell(rows: pl.DataFrame, update: int) -> str:
    """The mean over seeds with its interval, and the null in brackets."""
    own = rows.filter(update=update)
    found = bootstrap(xr.DataArray(own["value"].to_numpy(), dims="sample"))
    estimate, low, high = (float(found[name]) for name in ("estimate", "low", "high"))
    interval = f" [{low:.1f}, {high:.1f}]" if update else ""  # before the first update all seeds are the base
    null = float(own["null"].to_numpy().mean())
    return f"{estimate:.1f}{interval}" + ("" if math.isnan(null) else f" ({null:.1f})")


def print_table(curves: pl.DataFrame, title: str, columns: list[tuple[str, range, str, str]]) -> None:
    """Measures by update, for both kinds of model; a column is a heading, layers, a group of rows and a measure."""
    headings = [f"{kind}: {heading}" for kind in ("ARM", "MDM") for heading, *_ in columns]
    print(f"\n{title}\n\n| update | {' | '.join(headings)} |\n|{'---|' * (len(headings) + 1)}")
    tables = [by_seed(curves, *column[1:], mask) for mask in ("causal", "bidirectional") for column in columns]
    for update in sorted(curves["update"].unique()):
        print(f"| {update} | {' | '.join(cell(rows, update) for rows in tables)} |")


def print_verdicts(curves: pl.DataFrame) -> None:
    """What the rules say: when the sink lets go, and whether it comes back elsewhere."""
    causal = float(by_seed(curves, DEEP, "unmasked", FIRST, "causal").filter(update=0)["value"].to_numpy().mean())
    for mask, name in (("causal", "ARM"), ("bidirectional", "MDM")):
        first = by_seed(curves, DEEP, "unmasked", FIRST, mask)
        gone = [update for update in sorted(first["update"].unique()) if (first.filter(update=update)["value"] < LETS_GO * causal).all()]
        strongest = by_seed(curves, DEEP, "unmasked", STRONGEST, mask)
        last = strongest.filter(update=strongest["update"].max()).join(strongest.filter(update=0), on="seed", suffix="_before")
        back = bool((last["value"] >= COMES_BACK * last["value_before"]).all())
        ratios = ", ".join(f"{ratio:.2f}" for ratio in last["value"] / last["value_before"])
        print(
            f"\n{name}: the sink has let go {f'at update {gone[0]}' if gone else 'at no update'}; strongest key, last over first: {ratios}"
        )
        print(f"{name}: it has {'' if back else 'not '}come back elsewhere in every seed")


def main() -> None:
    """Print everything."""
    curves = pl.read_parquet(Path(sys.argv[1]) / CURVES)
    seeds = curves.group_by("mask").agg(pl.col("seed").n_unique()).rows()
    print("seeds:", dict(seeds))
    print_verdicts(curves)
    print_table(
        curves, "% of the attention of unmasked rows, layers 12 to 28", [(name, DEEP, "unmasked", name) for name in (FIRST, STRONGEST)]
    )
    print_table(curves, "layers 3 to 10", [(name, SHALLOW, "unmasked", name) for name in (FIRST, STRONGEST)])
    if moving.GROUP in curves["group"]:
        for title, layers in (("while writing, layers 12 to 28", DEEP), ("while writing, layers 3 to 10", SHALLOW)):
            print_table(curves, title, [(name, layers, moving.GROUP, name) for name in moving.MEASURES])


if __name__ == "__main__":
    main()
