"""Print the tables of thresholds.md from the folder of its study, and draw its figure: `python docs/results/thresholds.py FOLDER [FIGURE]`.

The rule by which an intervention is judged stands on that page. Traces, of which the share of keys above each threshold is read, are
unpacked from the study into a temporary folder.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
import polars as pl
import xarray as xr

import floatlens as fl
from floatlens.measures.anchors import threshold_sweep
from floatlens.report.tables import number
from floatlens.statistics.resampling import bootstrap
from floatlens.study.exporting import export_study
from floatlens.study.store import open_store

TWINS = ("twin-mdm", "twin-causal-mdm", "twin-arm")
EPS = (1.0, 2.0, 3.0, 5.0, 7.0, 10.0)
WRITTEN, LIKELIHOOD = ("world-description", "accuracy"), ("world", "log_likelihood")
SMALL = {WRITTEN: 0.05, LIKELIHOOD: 0.1}
"""Damage below which keys can be skipped: of the share of right values, and in nats."""
TITLES = {WRITTEN: "damage to written values (share)", LIKELIHOOD: "damage to the answer's likelihood (nats)"}
Interval = tuple[float, float, float]


def damages(summary: pl.DataFrame, model: str, intervention: str, outcome: tuple[str, str], beyond: bool = False) -> Interval | None:
    """The damage of an intervention, or what it exceeds that of its control of equal attention by: estimate, low, high."""
    control = "mass" if beyond else ""
    rows = summary.filter(
        pl.col("experiment") == outcome[0],
        pl.col("outcome") == outcome[1],
        pl.col("model") == model,
        pl.col("intervention") == intervention,
        pl.col("quantity") == ("damage beyond control" if beyond else "damage"),
        pl.col("control").fill_null("") == control,
    )
    found = rows.select("estimate", "low", "high").rows()
    return found[0] if found else None


def verdict(summary: pl.DataFrame, model: str, intervention: str) -> str:
    """What the page's rule says."""
    own = {outcome: damages(summary, model, intervention, outcome) for outcome in SMALL}
    known = {outcome: interval for outcome, interval in own.items() if interval is not None}
    if len(known) == len(SMALL) and all(interval[2] < SMALL[outcome] for outcome, interval in known.items()):
        return "can be skipped"
    hurt = [outcome for outcome, interval in known.items() if interval[1] > 0]
    beyond = [damages(summary, model, intervention, outcome, beyond=True) for outcome in hurt]
    if hurt and any(interval is None or interval[1] > 0 for interval in beyond):
        return "costs something"
    return "costs what any attention costs" if hurt else "inconclusive"


def shares(folder: Path) -> dict[tuple[str, float], tuple[Interval, Interval]]:
    """For each twin and eps, the share of keys above it and of attention on them, in per cent, over traced texts."""
    found = {}
    for model in TWINS:
        per_text: list[xr.Dataset] = []
        for path in sorted(folder.glob(f"traces/*/{model}/*.zarr")):
            trace = fl.open_trace(path)
            group = "masked" if "masked" in trace.sample(0)["group"].values else "predicting"
            for number_of_text in range(len(trace)):
                data = trace.sample(number_of_text).sel(group=group).load()
                per_text.append(100 * threshold_sweep(data, rule="additive", eps=list(EPS)).mean("layer"))
        texts = xr.concat(per_text, "sample").assign_coords(sample=np.arange(len(per_text)))
        for eps in EPS:
            cells = [bootstrap(texts[name].sel(eps=eps, drop=True)) for name in ("kept", "absorbed")]
            found[model, eps] = tuple((float(cell["estimate"]), float(cell["low"]), float(cell["high"])) for cell in cells)
    return found


def shown(interval: Interval | None) -> str:
    """An interval as pages print it."""
    return "-" if interval is None else f"{number(interval[0])} [{number(interval[1])}, {number(interval[2])}]"


def print_tables(tables: Path, above: dict[tuple[str, float], tuple[Interval, Interval]]) -> None:
    """The tables of the page, as Markdown."""
    summary, rows = pl.read_parquet(tables / "summary.parquet"), pl.read_parquet(tables / "results.parquet")
    print("| twin | eps | keys above it, % | attention on them, % |\n|---|---|---|---|")
    for (model, eps), (keys, attention) in above.items():
        print(f"| {model} | {eps:g} | {shown(keys)} | {shown(attention)} |")
    for model in TWINS:
        print(f"\n### {model}\n")
        print("| intervention | removed | damage, values | beyond control | damage, nats | beyond control | verdict |")
        print("|---|---|---|---|---|---|---|")
        own = rows.filter(pl.col("model") == model, pl.col("intervention") != "", pl.col("control") == "")
        for intervention in own["intervention"].unique(maintain_order=True):
            removed = own.filter(intervention=intervention, experiment=WRITTEN[0])["removed"].mean()
            cells = [shown(damages(summary, model, intervention, outcome, beyond)) for outcome in SMALL for beyond in (False, True)]
            share = "-" if removed is None else f"{100 * float(str(removed)):.1f} %"
            print(f"| `{intervention}` | {share} | {' | '.join(cells)} | {verdict(summary, model, intervention)} |")


def draw(tables: Path, above: dict[tuple[str, float], tuple[Interval, Interval]], file: Path) -> None:
    """Damage against eps, with that of the control of equal attention, and the share of keys above eps."""
    import matplotlib.pyplot as plt

    summary = pl.read_parquet(tables / "summary.parquet")
    figure, axes = plt.subplots(1, 3, figsize=(10, 3.2), layout="constrained")
    for model, color, marker in zip(TWINS, ("#0072B2", "#E69F00", "#009E73"), "os^", strict=True):
        for panel, outcome in zip(axes, SMALL, strict=False):
            points = [(eps, damages(summary, model, f"mask-above:{eps},rule=additive", outcome)) for eps in EPS]
            there = [(eps, point) for eps, point in points if point is not None]
            values = np.array([point for _, point in there]).T
            errors = np.clip(np.stack([values[0] - values[1], values[2] - values[0]]), 0, None)
            panel.errorbar([eps for eps, _ in there], values[0], errors, color=color, marker=marker, capsize=2, label=model)
            panel.set_ylabel(TITLES[outcome])
            panel.axhline(SMALL[outcome], color="black", linestyle=":", linewidth=0.7)
        axes[2].plot(EPS, [above[model, eps][0][0] for eps in EPS], color=color, marker=marker, label=model)
    axes[2].set_ylabel("keys above eps (%)")
    for panel in axes:
        panel.set_xlabel("eps (rule: additive)")
    axes[0].legend(frameon=False)
    figure.savefig(file)


def main() -> None:
    """Print the tables and, if a file is named, draw the figure."""
    place = sys.argv[1]
    with tempfile.TemporaryDirectory() as name:
        exported = Path(name) / "exported"
        export_study(open_store(place), exported, progress=False)
        above = shares(exported)
        print_tables(exported, above)
        if len(sys.argv) > 2:
            draw(exported, above, Path(sys.argv[2]))


if __name__ == "__main__":
    main()
