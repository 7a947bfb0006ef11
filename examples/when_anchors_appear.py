"""When do anchors appear during training? Every checkpoint of a run describes the same people, and is measured as the finished twin is.

    floatlens train twins
    python examples/when_anchors_appear.py twins/runs/twin-arm twins/runs/twin-mdm twins/runs/twin-causal-mdm --into anchors-during-training

Prints, for predicting rows, the share of attention on the first token and on the strongest key (chosen on one half of the rows, measured on the other), each
beside its null, averaged over layers; and draws both. Intervals are over the described people.
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
from floatlens.lab.experiments import described_people, measurements_of, trace_descriptions
from floatlens.measures import bootstrap
from floatlens.report.figures import save_figure
from floatlens.terminal import progress_bar

MEASURES = ("on the first token", "on the run's strongest key")


def main() -> None:
    """Measure the checkpoints of the named runs."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("runs", nargs="+", type=Path, help="folders of runs, as `floatlens train twins` leaves them")
    options.add_argument("--people", type=int, default=12, help="how many people are described at each checkpoint")
    options.add_argument("--into", type=Path, default=Path("anchors-during-training"), help="the figure, without its ending")
    given = options.parse_args()
    checkpoints = [(run, update) for run in given.runs for update in checkpoints_of(run)]
    rows = []
    with progress_bar(len(checkpoints), "Measuring checkpoints") as advance:
        for run, update in checkpoints:
            rows += shares_at(run, update, given.people)
            advance(1)
    found = pl.DataFrame(rows)
    Console().print(as_table(found))
    written = save_figure(draw(found), given.into, ["svg", "png"])
    print(f"Wrote {' and '.join(map(str, written))}.")


def checkpoints_of(run: Path) -> list[int]:
    """The updates of which the run kept the weights."""
    return sorted(int(name[1]) for file in run.iterdir() if (name := re.fullmatch(r"update-(\d+)\.safetensors", file.name)))


def shares_at(run: Path, update: int, people: int) -> list[dict[str, object]]:
    """Both shares at one checkpoint, with their nulls and intervals."""
    lm, samples = twin_at(run, update), [sample.id for sample, _ in described_people(people, seed=0)]
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
                "twin": run.name, "update": update, "measure": measure, "share": interval.estimate.item(), "low": interval.low.item(), "high": interval.high.item(),
                "null": own["null"].mean(),
            }
        )  # fmt: skip
    return shares


def as_table(found: pl.DataFrame) -> Table:
    """One row a checkpoint."""
    table = Table(title="% of the attention of predicting rows, all layers", title_justify="left")
    for heading in ("twin", "update", "first token", "null", "strongest key", "null"):
        table.add_column(heading, justify="left" if heading == "twin" else "right")
    for twin, update in found.select("twin", "update").unique(maintain_order=True).rows():
        cells = []
        for measure in MEASURES:
            (row,) = found.filter(twin=twin, update=update, measure=measure).to_dicts()
            cells += [f"{row['share']:.1f} [{row['low']:.1f}, {row['high']:.1f}]", f"{row['null']:.1f}"]
        table.add_row(twin, f"{update:,}", *cells)
    return table


def draw(found: pl.DataFrame) -> Figure:
    """One panel a measure, one line a twin."""
    figure = Figure(figsize=(7.2, 2.8), layout="constrained")
    panels = figure.subplots(1, 2)
    for panel, measure in zip(panels, MEASURES, strict=True):
        for twin in found["twin"].unique(maintain_order=True):
            own = found.filter(twin=twin, measure=measure)
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
