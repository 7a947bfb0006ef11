"""The numbers of a trace as a table: one row per sample, measure, group, part and third of the depth."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
import xarray as xr

from floatlens.measures.summary import Summary, over_depth

MEASUREMENTS: dict[str, Any] = {
    "model": pl.String,
    "context": pl.String,
    "measure": pl.String,
    "unit": pl.String,
    "sample": pl.String,
    "group": pl.String,
    "part": pl.String,
    "depth": pl.String,
    "value": pl.Float64,
    "null": pl.Float64,
    "reason": pl.String,
}
"""The columns of measurements; a measure that a trace does not hold enough for has one row, with the reason."""


def measurement_rows(summary: Summary, samples: Sequence[str], **labels: str) -> list[pl.DataFrame]:
    """The numbers of a summary by thirds of the depth, one row each; `labels` are further columns, before them.

    Examples
    --------
    >>> values = {"movement": xr.Dataset({"value": (("sample", "layer"), [[0.5, 1.0]])}, coords={"layer": [0, 1]})}
    >>> [table] = measurement_rows(Summary(values, {"movement": "share"}, {}, ["a"]), ["a"], model="m")
    >>> table.select("model", "sample", "depth", "value").rows()[:2]
    [('m', 'a', 'all', 0.75), ('m', 'a', 'shallow', 0.5)]
    """
    tables = []
    for measure, measured in summary.values.items():
        numbers = over_depth(measured).assign_coords(sample=list(samples))
        numbers = numbers if "null" in numbers else numbers.assign(null=xr.full_like(numbers["value"], np.nan, dtype=float))
        numbers = numbers[["value", "null"]].expand_dims({axis: [""] for axis in ("group", "part") if axis not in numbers["value"].dims})
        value, null = xr.broadcast(numbers["value"], numbers["null"])
        axes = ("sample", "group", "part", "depth")
        value, null = value.transpose(*axes), null.transpose(*axes)
        indices = np.indices(value.shape).reshape(4, -1)
        named = {axis: value[axis].values.astype(str)[indices[number]].tolist() for number, axis in enumerate(axes)}
        tables.append(
            pl.DataFrame(
                {
                    **{name: [label] * indices.shape[1] for name, label in labels.items()},
                    "measure": [measure] * indices.shape[1],
                    "unit": [summary.units[measure]] * indices.shape[1],
                    **named,
                    "value": value.values.ravel().astype(float),
                    "null": null.values.ravel().astype(float),
                    "reason": _reasons(measured, value).ravel().tolist(),
                }
            )
        )
    return tables


def _reasons(measured: xr.Dataset, value: xr.DataArray) -> np.ndarray:
    """Why each value is NaN; "" where there is a value, or where the measure does not say."""
    if "reason" not in measured:
        return np.where(value.isnull(), "this does not exist in the trace", "").astype(object)
    reasons = measured["reason"].assign_coords(sample=value["sample"].values) if "sample" in measured["reason"].dims else measured["reason"]
    reasons = reasons.expand_dims({axis: [""] for axis in ("group",) if axis not in reasons.dims and value.sizes["group"] == 1})
    spread = reasons.broadcast_like(value).transpose(*value.dims)
    return np.where(value.isnull(), spread.values.astype(str), "").astype(object)
