"""The tables of a study, from the files of its units: rows, summaries with paired intervals, measures, and the units themselves.

| table | rows |
|---|---|
| `results` | one per question, condition and draw: the columns of `floatlens eval` behind experiment, task, sampler and seed |
| `summary` | means, gains, damage, interactions and slopes of each experiment (`floatlens.study.outcomes`) |
| `measurements` | one per traced text, measure, group, part and third of the depth |
| `measures` | the mean of each measure over texts, and the difference between two models on the same texts, with intervals |
| `traces` | which traced text is which, and which of its regions hold the evidence |
| `units` | where each unit ran and how long it took, or why it failed |

Decided here: an experiment is a task, with the sampler and the seed where there are several, so that the table opens in the page as it
is. Rows come in the order of the plan, so that tables are equal byte for byte whatever order units were run in; `units` is about the run
and is not. Several seeds are averaged per question before anything is summarised, as draws of a control are. A condition of which a unit
is missing is in `results` as far as it goes and in no summary, and a sentence says so.
"""

import io
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import polars as pl
import xarray as xr

from floatlens.errors import Refusal
from floatlens.interventions.run import NOTHING_REMOVED
from floatlens.statistics.resampling import bootstrap, bootstrap_difference
from floatlens.study.outcomes import SCHEMA, Outcome, as_table, summarise
from floatlens.study.records import Found, read_unit
from floatlens.study.sealed import StoredUnit
from floatlens.study.store import Store
from floatlens.study.units import QUESTIONS, Unit
from floatlens.terminal import counted

LABELS: dict[str, Any] = {"experiment": pl.String, "task": pl.String, "sampler": pl.String, "seed": pl.Int64}
"""The columns before those of `floatlens eval`."""
_CONDITION = ("model", "context", "intervention", "control")


@dataclass(frozen=True, eq=False)
class Summary:
    """An experiment of a study: its complete rows, their summary, and a sentence for each thing that is missing."""

    experiment: str
    rows: pl.DataFrame
    outcomes: tuple[Outcome, ...]
    said: tuple[str, ...]


def read_tables(store: Store, units: Sequence[Unit], found: Found) -> dict[str, pl.DataFrame]:
    """The tables of finished units, as they were stored, in the order of the plan; and that of the units."""
    parts: dict[str, list[pl.DataFrame]] = {"results": [], "measurements": [], "traces": []}
    ran: list[dict[str, Any]] = []
    samplers, seeds = len({unit.sampler for unit in units}) > 1, len({unit.seed for unit in units}) > 1
    for unit in units:
        stored = read_unit(store, unit) if unit.id in found.finished else None
        ran.append(_unit_row(unit, stored, found))
        for name, tables in parts.items():
            table = stored.table(name) if stored is not None else None
            if table is not None:
                labels = [pl.lit(value, dtype=LABELS[column]).alias(column) for column, value in _labels(unit, samplers, seeds).items()]
                own = [pl.lit(unit.model).alias("model"), pl.lit(unit.context).alias("context"), pl.lit(unit.id).alias("unit_id")]
                tables.append(table.select(*labels, *(own if name == "traces" else []), pl.all()))
    joined = {name: pl.concat(tables) for name, tables in parts.items() if tables}
    return {**joined, "units": pl.DataFrame(ran, schema=_UNITS)}


def _labels(unit: Unit, samplers: bool, seeds: bool) -> dict[str, Any]:
    """The first columns of a unit's rows; an experiment names the sampler and the seed where there are several."""
    experiment = unit.task + f", {unit.sampler}" * samplers + f", seed {unit.seed}" * seeds
    return {"experiment": experiment, "task": unit.task, "sampler": unit.sampler, "seed": unit.seed}


_UNITS: dict[str, Any] = {
    "id": pl.String,
    "kind": pl.String,
    "task": pl.String,
    "model": pl.String,
    "context": pl.String,
    "intervention": pl.String,
    "control": pl.String,
    "draw": pl.Int64,
    "sampler": pl.String,
    "seed": pl.Int64,
    "first": pl.Int64,
    "count": pl.Int64,
    "state": pl.String,
    "seconds": pl.Float64,
    "began": pl.String,
    "host": pl.String,
    "device": pl.String,
    "versions": pl.String,
    "tries_failed": pl.Int64,
    "error": pl.String,
}


def _unit_row(unit: Unit, stored: StoredUnit | None, found: Found) -> dict[str, Any]:
    tries = found.failures.get(unit.id, ())
    run: Mapping[str, Any] = {} if stored is None else stored.run
    versions = " ".join(f"{name} {version}" for name, version in sorted(run.get("versions", {}).items()))
    about = {name: getattr(unit, name) for name in _UNITS if hasattr(unit, name)}
    ran = {name: run.get(name) for name in ("seconds", "began", "host", "device")}
    state = "finished" if stored is not None else "failed" if tries else "waiting"
    return {**about, **ran, "state": state, "versions": versions, "tries_failed": len(tries), "error": tries[-1]["error"] if tries else ""}


def summaries(results: pl.DataFrame, units: Sequence[Unit]) -> Iterator[Summary]:
    """What each experiment comes to; seeds are averaged per question."""
    samplers = results["sampler"].n_unique()
    for (task, sampler), rows in results.group_by("task", "sampler", maintain_order=True):
        name = f"{task}, {sampler}" if samplers > 1 else str(task)
        own = [unit for unit in units if unit.kind == QUESTIONS and (unit.task, unit.sampler) == (task, sampler)]
        complete, said = _complete(rows, own)
        if rows["seed"].n_unique() > 1:
            seeds = {seed: number for number, seed in enumerate(sorted(rows["seed"].unique().to_list()))}
            number, draw = pl.col("seed").replace_strict(seeds, return_dtype=pl.Int64), pl.col("draw").fill_null(0)
            complete = complete.with_columns(draw=number * (1 + draw.max()) + draw)
        if not len(complete):
            yield Summary(name, complete, (), said)
            continue
        said += tuple(_nothing_removed(complete))
        try:
            yield Summary(name, complete, tuple(summarise(complete.select(*SCHEMA))), said)
        except Refusal as refusal:
            yield Summary(name, complete, (), (*said, f"{name} cannot be summarised: {refusal}"))


def _complete(rows: pl.DataFrame, units: Sequence[Unit]) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """The rows of conditions of which every shard of every draw and seed is there, and a sentence about the others."""
    wanted: dict[tuple[str, ...], int] = {}
    for unit in units:
        key = (unit.model, unit.context, unit.intervention, unit.control)
        wanted[key] = wanted.get(key, 0) + unit.count
    there = {tuple(map(str, key)): len(own) for key, own in rows.group_by(*_CONDITION, maintain_order=True)}
    short = [key for key, count in wanted.items() if there.get(key, 0) < count]
    if not short:
        return rows, ()
    keep = [tuple(row) not in short for row in rows.select(*_CONDITION).rows()]
    named = "; ".join(" ".join(filter(None, key)) for key in short[:3]) + (f" and {len(short) - 3} more" if len(short) > 3 else "")
    return rows.filter(pl.Series(keep, dtype=pl.Boolean)), (
        f"{counted(len(short), 'condition')} of {len(wanted)} without all units, in no summary: {named}.",
    )


def _nothing_removed(rows: pl.DataFrame) -> Iterator[str]:
    for (model, context, intervention, _control), own in rows.filter(pl.col("intervention") != "").group_by(
        *_CONDITION, maintain_order=True
    ):
        if not (own["removed"].fill_null(0).sum() or own["likelihood_removed"].fill_null(0).sum()):
            yield f"{model}, {context} under {intervention}: {NOTHING_REMOVED}"


def measures(measurements: pl.DataFrame) -> pl.DataFrame:
    """Means over texts, and differences between two models on the texts they share, with intervals; all layers, and thirds of the depth."""
    rows: list[dict[str, Any]] = []
    keys = ("experiment", "context", "measure", "unit", "group", "part", "depth")
    taken = measurements.filter(pl.col("sample").is_not_null())
    for labels, own in taken.group_by(*keys, maintain_order=True):
        about = dict(zip(keys, labels, strict=True))
        by_model = {str(model): part for (model,), part in own.group_by("model", maintain_order=True)}
        arrays = {model: _by_sample(part) for model, part in by_model.items()}
        for model, values in arrays.items():
            null = by_model[model]["null"].fill_nan(None).mean()
            rows.append({**about, "model": model, "other": "", **_interval(bootstrap(values)), "null": null})
        for first, second in combinations(arrays, 2):
            shared = [sample for sample in arrays[first]["sample"].values.tolist() if sample in arrays[second]["sample"].values.tolist()]
            if shared:
                difference = bootstrap_difference(arrays[first].sel(sample=shared), arrays[second].sel(sample=shared))
                rows.append({**about, "model": first, "other": second, **_interval(difference), "null": None})
    return pl.DataFrame(rows, schema=_MEASURES)


_MEASURES: dict[str, Any] = {
    **dict.fromkeys(("experiment", "context", "measure", "unit", "group", "part", "depth", "model", "other"), pl.String),
    **dict.fromkeys(("estimate", "low", "high", "null"), pl.Float64),
    "samples": pl.Int64,
    "reason": pl.String,
}


def _by_sample(rows: pl.DataFrame) -> xr.DataArray:
    return xr.DataArray(rows["value"].to_numpy(), dims="sample", coords={"sample": rows["sample"].to_list()})


def _interval(result: xr.Dataset) -> dict[str, Any]:
    numbers = {name: float(result[name]) for name in ("estimate", "low", "high")}
    return {**numbers, "samples": int(result["samples"]), "reason": str(result["reason"].item())}


def all_tables(store: Store, units: Sequence[Unit], found: Found) -> tuple[dict[str, pl.DataFrame], list[str]]:
    """Every table of a study, and a sentence for each thing that is missing in them."""
    tables = read_tables(store, units, found)
    said: list[str] = []
    if "results" in tables:
        parts = list(summaries(tables["results"], units))
        said = [sentence for part in parts for sentence in part.said]
        summed = [as_table(part.outcomes).select(pl.lit(part.experiment).alias("experiment"), pl.all()) for part in parts if part.outcomes]
        tables |= {"summary": pl.concat(summed)} if summed else {}
    if "measurements" in tables:
        tables["measures"] = measures(tables["measurements"])
    return tables, said


def write_tables(store: Store, units: Sequence[Unit], found: Found, folder: str = "tables") -> list[str]:
    """Write one Parquet file per table. Returns a sentence for each thing that is missing in them."""
    tables, said = all_tables(store, units, found)
    for name, table in tables.items():
        parquet = io.BytesIO()
        table.write_parquet(parquet)
        store.replace(f"{folder}/{name}.parquet", parquet.getvalue())
    for name in store.names(folder):  # of a plan that had traces, say, and has none any more
        if name.endswith(".parquet") and name.removesuffix(".parquet") not in tables:
            store.remove(f"{folder}/{name}")
    return said


def is_number(value: float | None) -> bool:
    """Whether a value is there and is not NaN.

    Examples
    --------
    >>> is_number(1.0), is_number(float("nan")), is_number(None)
    (True, False, False)
    """
    return value is not None and not math.isnan(value)
