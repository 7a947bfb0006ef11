"""Attention along a training: what `floatlens curves` measured at the checkpoints, as arrays of the page.

Decided here: runs with the same objective and mask, each with another seed, are one curve, the mean over its seeds with an interval over
seeds; it has a point only where all of them have a checkpoint. A run alone is a curve with an interval over the texts that it read. Rows of
one group are a curve of their own. The axis `depth` holds the mean over all layers first, and then every layer.

Refused: a table without the columns that `floatlens curves` writes, with others of that name, with a measurement twice, or without a row.
"""

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import xarray as xr

from floatlens.errors import Refusal
from floatlens.report.page.group import Sink, write_array, write_group
from floatlens.report.page.schema import CurveDocument, TrainingDocument
from floatlens.statistics.resampling import bootstrap

CURVES = "curves.parquet"
COLUMNS: dict[str, Any] = {
    "run": pl.String,
    "objective": pl.String,
    "mask": pl.String,
    "seed": pl.Int64,
    "update": pl.Int64,
    "text": pl.Int64,
    "group": pl.String,
    "layer": pl.Int64,
    "measure": pl.String,
    "value": pl.Float64,
    "null": pl.Float64,
}
KINDS = {"ar": "next token", "diffusion": "diffusion"}


def read_curves(folder: Path) -> pl.DataFrame:
    """The table of a folder that `floatlens curves` wrote."""
    file = folder / CURVES
    try:
        table = pl.read_parquet(io.BytesIO(file.read_bytes()))  # a path would be taken for a pattern
    except (OSError, pl.exceptions.PolarsError) as error:
        raise Refusal(f"{file} cannot be read ({error}). Write it again with `floatlens curves`.") from None
    missing = [name for name in COLUMNS if name not in table.columns]
    if missing:
        raise Refusal(f"{file} has no column {missing[0]!r}. Pass a folder that `floatlens curves` wrote.")
    for name, kind in COLUMNS.items():
        found = table[name].dtype
        fits = found == kind if kind == pl.String else found.is_integer() if kind == pl.Int64 else found.is_numeric()
        if not fits or table[name].has_nulls():
            raise Refusal(f"{file} holds something else than it should in the column {name!r}. Write it again with `floatlens curves`.")
    if table.select("run", "update", "text", "group", "layer", "measure").is_duplicated().any():
        raise Refusal(f"{file} holds a measurement twice, so it cannot be told which one counts. Write it again with `floatlens curves`.")
    if table.is_empty():
        raise Refusal(f"{file} holds no rows. Write it again with `floatlens curves`.")
    return table


@dataclass(frozen=True)
class _Axes:
    """What the axes of a training hold."""

    updates: list[int]
    measures: list[str]
    layers: list[int]
    texts: list[int]


def write_training(sink: Sink, table: pl.DataFrame, name: str, number: int) -> TrainingDocument:
    """Write the curves of a table below `training/NUMBER`."""
    axes = _Axes(
        sorted(table["update"].unique().to_list()),
        table["measure"].unique(maintain_order=True).to_list(),
        sorted(table["layer"].unique().to_list()),
        sorted(table["text"].unique().to_list()),
    )
    documents, described = [], []
    for runs in _curves(table):
        own = table.filter(pl.col("run").is_in(runs))
        for group in own["group"].unique(maintain_order=True).to_list():
            values = xr.concat([_of_run(own.filter(run=run, group=group), axes) for run in runs], "run")
            found = _described(values)
            there = found["estimate"].notnull().any(["measure", "depth"]).values
            updates = [update for update, known in zip(axes.updates, there, strict=True) if known]
            documents.append(_document(own.filter(group=group), runs, group, updates))
            described.append(found)
    path = f"training/{number}"
    write_group(sink, path, {})
    joined = xr.concat(described, "curve").transpose("update", "curve", "measure", "depth")
    arrays = {"curve": "estimate", "curve_low": "low", "curve_high": "high", "curve_null": "null"}
    for array, of in arrays.items():
        write_array(sink, path, array, joined[of].values)
    return TrainingDocument(name, path, list(arrays), documents, axes.measures, axes.updates, axes.layers, "%")


def _curves(table: pl.DataFrame) -> list[list[str]]:
    """The runs of each curve: those that differ in nothing but their seed, together."""
    curves = []
    for (_, _), own in table.group_by("objective", "mask", maintain_order=True):
        seeds = own.select("run", "seed").unique(maintain_order=True)
        runs = seeds["run"].to_list()
        curves += [runs] if seeds["seed"].n_unique() == len(runs) else [[run] for run in runs]
    return curves


def _document(table: pl.DataFrame, runs: list[str], group: str, updates: list[int]) -> CurveDocument:
    objective, mask = table["objective"][0], table["mask"][0]
    several = len(runs) > 1
    return CurveDocument(
        name=f"{KINDS.get(objective, objective)}, {mask}" if several else runs[0],
        runs=runs,
        objective=objective,
        mask=mask,
        group=group,
        over="seeds" if several else "texts",
        count=len(runs) if several else table["text"].n_unique(),
        updates=updates,
    )


def _of_run(table: pl.DataFrame, axes: _Axes) -> xr.Dataset:
    """`value` and `null` over text, update, measure and depth; NaN where a run has no checkpoint."""
    dims = {"text": axes.texts, "update": axes.updates, "measure": axes.measures, "layer": axes.layers}
    places = tuple(np.searchsorted(labels, table[name].to_numpy()) for name, labels in dims.items() if name != "measure")
    measure = np.array([axes.measures.index(name) for name in table["measure"].to_list()], dtype=int)
    cells = (places[0], places[1], measure, places[2])
    variables = {}
    for name in ("value", "null"):
        filled = np.full([len(labels) for labels in dims.values()], np.nan)
        filled[cells] = table[name].to_numpy()
        by_layer = xr.DataArray(filled, dims=list(dims)).rename(layer="depth")
        variables[name] = xr.concat([by_layer.mean("depth").expand_dims("depth"), by_layer], "depth")
    return xr.Dataset(variables)


def _described(values: xr.Dataset) -> xr.Dataset:
    """The mean over texts, or over seeds where there are several, with its interval and its null."""
    if values.sizes["run"] == 1:
        found = bootstrap(values["value"].isel(run=0).rename(text="sample"))
    else:
        found = bootstrap(values["value"].mean("text").rename(run="sample"))
        whole = values["value"].mean("text").notnull().all("run")
        found = found[["estimate", "low", "high"]].where(whole)
    return found[["estimate", "low", "high"]].assign(null=values["null"].mean(["run", "text"]))
