"""How often each twin is right in every context without an intervention, with what ignoring the person scores beside it."""

import math
from dataclasses import dataclass

import polars as pl
import xarray as xr

from floatlens.claims.estimates import Estimate, mean_of
from floatlens.claims.evidence import TWINS, Evidence


@dataclass(frozen=True)
class Accuracy:
    """One context: the accuracy of each twin, the mean shortcut, and how many questions were asked."""

    context: str
    by_twin: dict[str, Estimate]
    shortcut: float
    questions: int


def accuracies(evidence: Evidence) -> list[Accuracy]:
    """Every context, in the order in which they were asked."""
    # the questions of the heads are those of the masked answers once more
    untouched = evidence.answers.filter((pl.col("intervention") == "") & (pl.col("experiment") != "retrieval heads"))
    rows = []
    for experiment, context in untouched.select("experiment", "context").unique(maintain_order=True).rows():
        here = untouched.filter((pl.col("experiment") == experiment) & (pl.col("context") == context))
        found = {twin: _accuracy(here.filter(pl.col("twin") == twin)) for twin in TWINS}
        says = context if context.startswith(experiment) else f"{experiment}, {context}"
        rows.append(Accuracy(says, found, float(here["shortcut"].cast(pl.Float64).to_numpy().mean()), here["sample"].n_unique()))
    return rows


def _accuracy(rows: pl.DataFrame) -> Estimate:
    if rows.is_empty():
        return Estimate(math.nan, math.nan, math.nan, 0, "this twin was not asked")
    return mean_of(xr.DataArray(rows["accuracy"].to_numpy(), dims="sample", attrs={"least": 0.0, "most": 1.0}))
