"""When do anchors appear during training? Every checkpoint of a run describes the same people and is measured like the finished twin.

    floatlens train twins
    python examples/when_anchors_appear.py twins/runs/twin-arm twins/runs/twin-mdm twins/runs/twin-causal-mdm --into anchors

For predicting rows, averaged over layers, the script prints the share of attention on the first token and on the strongest key
(chosen on one half of the rows, measured on the other), each with its null, and draws both. Intervals are over the described people.
"""

import argparse
import re
import tempfile
from pathlib import Path

import polars as pl
import xarray as xr
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from floatlens.lab import twin_at
from floatlens.lab.asked_world import described_people
from floatlens.lab.experiments import measurements_of, trace_descriptions
from floatlens.measures import bootstrap
from floatlens.report.figures import save_figure
from floatlens.terminal import progress_bar

MEASURES = ("on the first token", "on the run's strongest key")


def main() -> None:
    """Measure the checkpoints of the given runs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, help="folders of runs that `floatlens train twins` wrote")
    parser.add_argument("--people", type=int, default=12, help="number of people described at each checkpoint (default: 12)")
    parser.add_argument("--into", type=Path, default=Path("anchors-during-training"), help="path of the figure, without its extension")
    options = parser.parse_args()
    checkpoints = [(run, update) for run in options.runs for update in checkpoints_of(run)]
    rows = []
    with progress_bar(len(checkpoints), "Measuring checkpoints") as advance:
        for run, update in checkpoints:
            rows += shares_at(run, update, options.people)
            advance(1)
    shares = pl.DataFrame(rows)
    Console().print(as_table(shares))
    written = save_figure(draw(shares), options.into, ["svg", "png"])
    print(f"Wrote {' and '.join(map(str, written))}.")


def checkpoints_of(run: Path) -> list[int]:
    """The updates at which the run kept the weights."""
    return sorted(int(name[1]) for file in run.iterdir() if (name := re.fullmatch(r"update-(\d+)\.safetensors", file.name)))


def shares_at(run: Path, update: int, people: int) -> list[dict[str, object]]:
    """Both shares at one checkpoint, with their nulls and intervals."""
    lm, samples = twin_at(run, update), [traced.sample for traced in described_people(people, seed=0)]
    with tempfile.TemporaryDirectory() as folder:
        trace = trace_descriptions(lm, people, 0, Path(folder) / "trace.zarr")
        measured = measurements_of(run.name, trace, samples)
    measured = measured.filter(rows="recorded", group="predicting", depth="all")
    shares: list[dict[str, object]] = []
    for measure in MEASURES:
        own = measured.filter(measure=measure)
        interval = bootstrap(xr.DataArray(own["value"].to_numpy(), dims="sample"))
        shares.append(
            {
                "twin": run.name,
                "update": update,
                "measure": measure,
                "share": interval.estimate.item(),
                "low": interval.low.item(),
                "high": interval.high.item(),
                "null": own["null"].mean(),
            }
        )
    return shares


def as_table(shares: pl.DataFrame) -> Table:
    """One row per checkpoint."""
    table = Table(title="% of the attention of predicting rows, all layers", title_justify="left")
    for heading in ("twin", "update", "first token", "null", "strongest key", "null"):
        table.add_column(heading, justify="left" if heading == "twin" else "right")
    for twin, update in shares.select("twin", "update").unique(maintain_order=True).rows():
        cells = []
        for measure in MEASURES:
            (row,) = shares.filter(twin=twin, update=update, measure=measure).to_dicts()
            cells += [f"{row['share']:.1f} [{row['low']:.1f}, {row['high']:.1f}]", f"{row['null']:.1f}"]
        table.add_row(twin, f"{update:,}", *cells)
    return table


def draw(shares: pl.DataFrame) -> Figure:
    """One panel per measure, one line per twin."""
    figure = Figure(figsize=(7.2, 2.8), layout="constrained")
    panels = figure.subplots(1, 2)
    for panel, measure in zip(panels, MEASURES, strict=True):
        for twin in shares["twin"].unique(maintain_order=True):
            own = shares.filter(twin=twin, measure=measure)
            (line,) = panel.plot(own["update"], own["share"], marker="o", markersize=3, label=twin)
            panel.fill_between(own["update"], own["low"], own["high"], alpha=0.2, color=line.get_color(), linewidth=0)
        panel.plot(own["update"], own["null"], color="0.5", linestyle=":", label="null")
        panel.set_xscale("log", base=2)
        panel.set_xlabel("update")
        panel.set_title(measure, fontsize=9)
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("% of attention")
    panels[0].legend(fontsize=7, frameon=False)
    return figure


if __name__ == "__main__":
    main()
