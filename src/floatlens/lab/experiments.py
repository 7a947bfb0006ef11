"""Trace a twin while it describes people, measure the trace, and score its heads: the tables `measurements` and `heads`.

The texts are descriptions of test people, each from one of three passages that stands at another slot from prompt to prompt; the region `gold` is that passage. Every measure of
the catalogue is taken as recorded, and those by which claims compare models once more on the rectangle that all twins share. Heads are scored as retrieval heads with the gold passage as needle.

The experiments, each with one twin: what a process that runs models does. Everything that needs torch is imported here, and only by those processes.

A process runs one thread of torch: with models this small, two processes of one thread each are quicker than one of two. The heads that are silenced are those that the twin's own trace found, so that experiment belongs to the
unit of the trace; each figure is drawn where its numbers are.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import polars as pl
import torch
import xarray as xr

from floatlens.claims.evidence import DESCRIBED_FROM, DESCRIPTION_TOKENS, Evidence
from floatlens.decoding.prompts import Prompt
from floatlens.lab import asking
from floatlens.lab.units import Tables, Unit, short_name
from floatlens.measures.catalogue import ON_RECTANGLE
from floatlens.measures.inputs import depths
from floatlens.measures.retrieval import retrieval_scores
from floatlens.measures.summary import Summary, measure_trace, over_depth
from floatlens.models.language_model import LanguageModel
from floatlens.models.loading import load
from floatlens.report.claims import draw_masking, draw_trace
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


Experiment = Callable[[Unit, LanguageModel], Tables]


def run_experiment(unit: Unit) -> Tables:
    """One unit of work."""
    torch.set_num_threads(1)
    return RUN[unit.experiment](unit, _loaded(unit.model))


def load_all(models: Iterable[str]) -> None:
    """Load every model, so that one that cannot be loaded is refused before anything runs."""
    for model in models:
        _loaded(model)


@cache
def _loaded(model: str) -> LanguageModel:
    return replace(load(model), name=short_name(model))


def _trace(unit: Unit, lm: LanguageModel) -> Tables:
    count, seed = unit.sizes.traced, unit.seed
    trace = trace_descriptions(lm, count, seed, unit.folder / "traces" / f"{unit.twin}.zarr")
    samples = [sample.id for sample, _ in described_people(count, seed)]
    heads = heads_of(unit.twin, trace, samples)
    tables = {"measurements": measurements_of(unit.twin, trace, samples), "heads": heads}
    if silenced := asking.top_heads(heads):
        tables |= _answers(unit, asking.asked_without_heads(lm, unit.sizes.masked, seed, silenced))
    if unit.figures:
        draw_trace(unit.twin, trace, unit.folder / "figures")
    return tables


def _answers(unit: Unit, rows: pl.DataFrame) -> dict[str, pl.DataFrame]:
    return {"answers": rows.with_columns(twin=pl.lit(unit.twin))}


def _asked(ask: Callable[[Unit, LanguageModel], pl.DataFrame]) -> Experiment:
    return lambda unit, lm: _answers(unit, ask(unit, lm))


def _masked(ask: Callable[[Unit, LanguageModel], pl.DataFrame]) -> Experiment:
    """An experiment under masking, with its figure."""

    def run(unit: Unit, lm: LanguageModel) -> Tables:
        tables, nothing = _answers(unit, ask(unit, lm)), pl.DataFrame()
        if unit.figures:
            seen = Evidence(nothing, nothing, tables["answers"], {"models": {unit.twin: lm.name}})
            draw_masking(unit.twin, unit.experiment, seen, unit.folder / "figures")
        return tables

    return run


RUN: dict[str, Experiment] = {
    "trace": _trace,
    "masked descriptions": _masked(lambda unit, lm: asking.described_under_masking(lm, unit.sizes.described, unit.seed)),
    "masked answers": _masked(lambda unit, lm: asking.asked_under_masking(lm, unit.sizes.masked, unit.seed)),
    "noise": _asked(lambda unit, lm: asking.asked_with_noise(lm, unit.sizes.questions, unit.seed)),
    "layout": _asked(lambda unit, lm: asking.asked_two_hops(lm, unit.sizes.two_hop, unit.seed)),
    "position": _asked(lambda unit, lm: asking.asked_by_position(lm, unit.sizes.questions, unit.seed)),
    "known people": _asked(lambda unit, lm: asking.asked_by_heart(lm, unit.sizes.questions, unit.seed)),
}
"""What each experiment of `design.EXPERIMENTS` does."""
