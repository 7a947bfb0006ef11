"""Trace a twin while it describes people, measure the trace, and score its heads: the tables `measurements` and `heads`.

The texts are descriptions of test people, each from one of three passages that stands at another slot from prompt to prompt; the region `gold` is that passage. Every measure of
the catalogue is taken as recorded, and those by which claims compare models once more on the rectangle that all twins share. Heads are scored as retrieval heads with the gold passage as needle.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
import xarray as xr

from floatlens.claims.design import DESCRIBED_FROM, DESCRIPTION_TOKENS
from floatlens.measures.catalogue import ON_RECTANGLE
from floatlens.measures.inputs import depths
from floatlens.measures.retrieval import retrieval_scores
from floatlens.measures.summary import Summary, measure_trace, over_depth
from floatlens.models.language_model import LanguageModel
from floatlens.models.prompts import Prompt
from floatlens.tasks.contexts import Position, arrange
from floatlens.tasks.samples import Sample
from floatlens.tasks.wording import WORLD_WORDING, put
from floatlens.tasks.world import description_samples
from floatlens.trace.trace import Trace

DETAIL = {"geometry": "head", "norms": "head"}
"""Per head, because direction and norm are told apart within a head."""
COMPARED_BY = (
    "attention on the prompt",
    "on the run's strongest key",
    "on the first token",
    "float index (no memory)",
    "temporal variance",
    "spatial variance",
)
COMPARED = [line for line in ON_RECTANGLE if line.name in COMPARED_BY]
"""What claims compare twins by; `floatlens measure --compare` has all measures of the rectangle."""


def described_people(count: int, seed: int) -> list[tuple[Sample, Prompt]]:
    """The samples and prompts that are traced: gold at slot 1, 2, ... in turn, marked as the region `gold`.

    Examples
    --------
    >>> (sample, prompt), *_ = described_people(1, seed=0)
    >>> sorted(prompt.regions)[:3], prompt.text.endswith(sample.question)
    (['doc_1', 'doc_2', 'doc_3'], True)
    """
    asked = []
    for number, sample in enumerate(description_samples(count, passages=DESCRIBED_FROM, seed=seed)):
        slot = 1 + number % DESCRIBED_FROM
        prompt = put(sample, arrange(sample, Position(slot, DESCRIBED_FROM)), WORLD_WORDING)
        asked.append((sample, Prompt(prompt.text, {**prompt.regions, "gold": prompt.regions[f"doc_{slot}"]})))
    return asked


def trace_descriptions(lm: LanguageModel, count: int, seed: int, path: Path) -> Trace:
    """Record a twin while it describes that many people, and store the trace; what is returned is in memory, because it is read many times."""
    prompts = [prompt for _, prompt in described_people(count, seed)]
    trace = lm.trace(prompts, gen_length=DESCRIPTION_TOKENS, seed=seed, batch_size=8, detail=DETAIL, progress=False)
    trace.save(path)
    return trace


def measurements_of(twin: str, trace: Trace, samples: Sequence[str]) -> pl.DataFrame:
    """Every measure of a trace for each sample: as recorded, and on the shared rectangle."""
    tables = [
        *_rows(twin, "recorded", measure_trace(trace, progress=False), samples),
        *_rows(twin, "rectangle", measure_trace(trace, lines=COMPARED, rectangle=True, progress=False), samples),
    ]
    return pl.concat(tables)


def heads_of(twin: str, trace: Trace, samples: Sequence[str]) -> pl.DataFrame:
    """The retrieval score of every head in every sample, beside what its own favourites would score if they were dealt out at random."""
    scores = retrieval_scores(trace.dataset, "gold").transpose("sample", "layer", "head", ...)
    layers, heads = scores["layer"].values, scores.sizes["head"]
    thirds = depths(layers).isel(depth=slice(1, None))
    names = thirds["depth"].values[thirds.values.argmax(0)]
    size = (len(samples), len(layers), heads)
    at = np.indices(size).reshape(3, -1)
    return pl.DataFrame(
        {
            "twin": [twin] * at.shape[1],
            "sample": [samples[number] for number in at[0]],
            "layer": layers[at[1]].astype(int).tolist(),
            "head": at[2].tolist(),
            "third": [str(names[number]) for number in at[1]],
            "score": scores["score"].values.ravel().astype(float),
            "null": scores["null_shuffled"].values.ravel().astype(float),
            "counts": np.broadcast_to(scores["counts"].values[:, None, None], size).ravel().astype(bool),
        }
    )


def _rows(twin: str, rows: str, summary: Summary, samples: Sequence[str]) -> list[pl.DataFrame]:
    """The numbers of a summary by thirds of the depth, one row each."""
    tables = []
    for measure, found in summary.values.items():
        numbers = over_depth(found).assign_coords(sample=list(samples))
        numbers = numbers if "null" in numbers else numbers.assign(null=xr.full_like(numbers["value"], np.nan, dtype=float))
        numbers = numbers[["value", "null"]].expand_dims({axis: [""] for axis in ("group", "part") if axis not in numbers["value"].dims})
        value, null = xr.broadcast(numbers["value"], numbers["null"])
        axes = ("sample", "group", "part", "depth")
        value, null = value.transpose(*axes), null.transpose(*axes)
        at = np.indices(value.shape).reshape(4, -1)
        labels = {axis: value[axis].values.astype(str)[at[number]].tolist() for number, axis in enumerate(axes)}
        tables.append(
            pl.DataFrame(
                {
                    "twin": [twin] * at.shape[1],
                    "rows": [rows] * at.shape[1],
                    "measure": [measure] * at.shape[1],
                    "unit": [summary.units[measure]] * at.shape[1],
                    **labels,
                    "value": value.values.ravel().astype(float),
                    "null": null.values.ravel().astype(float),
                    "reason": _reasons(found, value).ravel().tolist(),
                }
            )
        )
    return tables


def _reasons(found: xr.Dataset, value: xr.DataArray) -> np.ndarray:
    """Why a value is NaN, for each value; "" where there is one, or where the measure does not say."""
    if "reason" not in found:
        return np.where(value.isnull(), "this does not exist in the trace", "").astype(object)
    said = found["reason"].assign_coords(sample=value["sample"].values) if "sample" in found["reason"].dims else found["reason"]
    said = said.expand_dims({axis: [""] for axis in ("group",) if axis not in said.dims and value.sizes["group"] == 1})
    spread = said.broadcast_like(value).transpose(*value.dims)
    return np.where(value.isnull(), spread.values.astype(str), "").astype(object)
