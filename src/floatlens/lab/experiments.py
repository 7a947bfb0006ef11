"""The experiments, each with one model: trace it, ask it questions, mask what it looks at. What a process that runs models does.

Everything that needs torch is imported here and in what this imports, and only by those processes. A process runs one thread of torch:
two processes of one thread each are faster than one of two. What is asked is the task's business (`floatlens.lab.asked_task`).

**Tracing.** Every measure of the catalogue is taken as recorded, with two that only claims need (what the threshold of the paper on sinks
keeps, and rollout over its null), and those by which claims compare models once more on the shared rectangle. The path of the strongest
key is measured on texts written left to right, so that the predicting row does not jump: an autoregressive model always writes so; a
diffusion model writes them once more, with `block_length=1`, and only what the path needs is recorded. Heads are scored as retrieval
heads. The best heads are silenced in the same unit, because they are known only then; each figure is drawn where its numbers are.

**Resuming.** Finished conditions and finished traces are kept where a unit says, named by all that they depend on
(`floatlens.study.kept`); whoever runs the same unit again finds them.
"""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
import xarray as xr

from floatlens.claims.attention import FAIR_ROLLOUT, THRESHOLD
from floatlens.claims.evidence import Evidence
from floatlens.folders import damage, folder_once, say
from floatlens.interventions.specification import Intervention, MaskAnchors, MaskHeads
from floatlens.lab.asked_task import AskedTask, Asks, TracedPrompt, asked_task
from floatlens.lab.units import Tables, Unit, short_name
from floatlens.measures.anchors import threshold_sweep
from floatlens.measures.catalogue import CATALOGUE, ON_RECTANGLE, Line, Values, most_frequent_reason
from floatlens.measures.catalogue import Sample as MeasuredSample
from floatlens.measures.flow import rollout
from floatlens.measures.inputs import depths, refuse_missing
from floatlens.measures.retrieval import retrieval_scores
from floatlens.measures.summary import measure_trace
from floatlens.models.language_model import LanguageModel
from floatlens.models.loading import load
from floatlens.report.claims import WRITTEN_BY, draw_masking, draw_trace
from floatlens.study.kept import fingerprint, name_of
from floatlens.study.measured import measurement_rows
from floatlens.study.one_model import Report, evaluate_model
from floatlens.trace.trace import Trace, open_trace

DETAIL = {"geometry": "head", "norms": "head", "flow": "layer"}
"""Geometry per head, because direction and norm are separated within a head."""
ONLY_THE_PATH = {"geometry": "off", "norms": "off", "entropy": "off", "top_keys": "off"}
PATH = ("movement of the path, layers pooled", "changes of the path, layers pooled", "steps on the favourite key, layers pooled")
COMPARED_BY = (
    "attention on the prompt",
    "on the run's strongest key",
    "on the first token",
    "float index (no memory)",
    "temporal variance",
    "spatial variance",
    *PATH,
)
COMPARED = [line for line in ON_RECTANGLE if line.name in COMPARED_BY]
"""What claims compare models by; `floatlens measure --compare` has all measures of the rectangle."""
MARKED = ("gold", "needle")
"""Regions that lie in a passage: a rollout, in which each key has one region, leaves them out."""


def _threshold(sample: MeasuredSample) -> Values:
    """What the additive rule keeps at eps = 3: the share of keys, and of the attention that lies on them, in per cent."""
    swept = threshold_sweep(sample.data, rule="additive", eps=[3.0]).isel(eps=0, drop=True)
    shares = [100 * swept[name] for name in ("kept", "absorbed")]
    return {"value": xr.concat(shares, xr.DataArray(["keys", "attention"], dims="part", name="part"))}


def _fair_rollout(sample: MeasuredSample) -> Values:
    """Rollout from the answer to each region, over what even attention gives."""
    refuse_missing(sample.data, ("flow", "flow_null"), "Rollout")
    regions = [name for name in sample.data["key_region"].values.tolist() if name not in MARKED]
    flow = sample.data[["flow", "flow_null"]].sel(query_region=regions, key_region=regions)
    rolled = rollout(flow, pooled=True).sel(query_region="answer")
    return {"value": rolled["fair"].rename(key_region="part"), "reason": most_frequent_reason(rolled["reason"])}


RECORDED = (*CATALOGUE, Line(THRESHOLD, "%", _threshold), Line(FAIR_ROLLOUT, "ratio", _fair_rollout))
LEFT_TO_RIGHT = [line for line in CATALOGUE if line.name in PATH]


def record(lm: LanguageModel, task: AskedTask, traced: Sequence[TracedPrompt], seed: int, path: Path) -> Trace:
    """Trace a model while it writes after prompts, and store the trace; a small one is returned in memory, for it is read many times."""
    how: dict[str, Any] = {**task.tracing, **task.writing(lm), "detail": DETAIL, "seed": seed, "progress": False}
    prompts = [prompt.prompt for prompt in traced]
    if not task.in_memory:
        return lm.trace(prompts, path=path, **how)
    trace = lm.trace(prompts, **how)
    trace.save(path)
    return trace


def trace_descriptions(lm: LanguageModel, count: int, seed: int, path: Path) -> Trace:
    """Trace a model while it describes that many people of the world, and store the trace."""
    from floatlens.lab.asked_world import WORLD_TASK, described_people

    return record(lm, WORLD_TASK, described_people(count, seed), seed, path)


def measurements_of(role: str, trace: Trace, samples: Sequence[str], left_to_right: Trace | None = None) -> pl.DataFrame:
    """Every measure of a trace for each sample: as recorded, on the shared rectangle, and what is measured left to right."""
    tables = [
        *measurement_rows(measure_trace(trace, lines=RECORDED, progress=False), samples, role=role, rows="recorded"),
        *measurement_rows(measure_trace(trace, lines=COMPARED, rectangle=True, progress=False), samples, role=role, rows="rectangle"),
    ]
    if left_to_right is not None:
        measured = measure_trace(left_to_right, lines=LEFT_TO_RIGHT, progress=False)
        tables += measurement_rows(measured, samples, role=role, rows="left to right")
    return pl.concat(tables)


def heads_of(role: str, trace: Trace, samples: Sequence[str], needle: str) -> pl.DataFrame:
    """The retrieval score of every head in every sample, and the null: what its top keys would score if they were shuffled."""
    scores = retrieval_scores(trace.dataset, needle).transpose("sample", "layer", "head", ...)
    layers, heads = scores["layer"].values, scores.sizes["head"]
    thirds = depths(layers).isel(depth=slice(1, None))
    names = thirds["depth"].values[thirds.values.argmax(0)]
    size = (len(samples), len(layers), heads)
    indices = np.indices(size).reshape(3, -1)
    return pl.DataFrame(
        {
            "role": [role] * indices.shape[1],
            "sample": [samples[number] for number in indices[0]],
            "layer": layers[indices[1]].astype(int).tolist(),
            "head": indices[2].tolist(),
            "third": [str(names[number]) for number in indices[1]],
            "score": scores["score"].values.ravel().astype(float),
            "null": scores["null_shuffled"].values.ravel().astype(float),
            "counts": np.broadcast_to(scores["counts"].values[:, None, None], size).ravel().astype(bool),
        }
    )


def top_heads(scores: pl.DataFrame, count: int, per_layer: int) -> list[tuple[int, int]]:
    """The heads with the largest mean retrieval score, only so many of a layer; none where no sample counts.

    Examples
    --------
    >>> scores = pl.DataFrame({"layer": [0, 0, 0, 1], "head": [0, 1, 2, 0], "score": [0.5, 0.4, 0.3, 0.1], "counts": [True] * 4})
    >>> top_heads(scores, count=3, per_layer=2)
    [(0, 0), (0, 1), (1, 0)]
    """
    means = scores.filter(pl.col("counts")).group_by("layer", "head").agg(pl.col("score").mean())
    chosen: list[tuple[int, int]] = []
    for layer, head, _ in means.sort(["score", "layer", "head"], descending=[True, False, False]).rows():
        if len(chosen) < count and sum(own == layer for own, _ in chosen) < per_layer:
            chosen.append((layer, head))
    return chosen


def run_experiment(unit: Unit, report: Report = lambda _count, _what: None) -> Tables:
    """Run a unit of work; `report` is called with the number of questions that are done, and what is being done."""
    torch.set_num_threads(1)
    task, lm = asked_task(unit.choice), loaded(unit.model, unit.choice.dtype)
    if unit.experiment == "trace":
        return _trace(unit, task, lm, report)
    tables = _ask(unit, task, task.asks[unit.experiment], lm, report)
    for name in [name for name, masking in task.design.masking.items() if unit.figures and masking.experiment == unit.experiment]:
        about = {"models": {unit.role: lm.name}, "design": task.design.stored()}
        draw_masking(unit.role, name, Evidence(pl.DataFrame(), pl.DataFrame(), tables["answers"], about), unit.folder / "figures")
    return tables


@lru_cache(maxsize=3)
def loaded(model: str, dtype: str | None = None) -> LanguageModel:
    """A model under its short name, loaded once in a process."""
    return replace(load(model, dtype=dtype), name=short_name(model))


def _ask(unit: Unit, task: AskedTask, asks: Asks, lm: LanguageModel, report: Report, heads: Sequence[tuple[int, int]] = ()) -> Tables:
    """The answers of one experiment; with `heads`, those of the same questions with these heads silenced."""
    edits: list[Intervention] = [MaskHeads(tuple(heads))] if heads else [MaskAnchors(keys) for keys in asks.masked]
    answers = evaluate_model(
        lm,
        asks.samples(getattr(unit.sizes, asks.size), unit.seed),
        asks.contexts,
        interventions=edits,
        brackets=False,
        draws=unit.draws,
        keep=unit.kept / "answers",
        seed=unit.seed,
        progress=lambda count, what: report(count, f"{unit.role}, {what}"),
        **{**task.how, **task.writing(lm), **asks.how},
    )
    if not heads:
        return {"answers": answers.with_columns(role=pl.lit(unit.role), experiment=pl.lit(unit.experiment))}
    # which heads were silenced differs between models, and claims look rows up by the intervention
    named = pl.when(pl.col("intervention") == "").then(pl.lit("")).otherwise(pl.lit("mask-heads")).alias("intervention")
    return {"answers": answers.with_columns(named, role=pl.lit(unit.role), experiment=pl.lit("retrieval heads"))}


def _trace(unit: Unit, task: AskedTask, lm: LanguageModel, report: Report) -> Tables:
    report(0, f"{unit.role}, tracing")
    traced = task.traced(unit.sizes.traced, unit.seed)
    folder = _kept_trace(unit, task, lm, traced)
    report(len(traced), f"{unit.role}, traced")
    tables = {name: pl.read_parquet(folder / f"{name}.parquet") for name in ("measurements", "heads")}
    stored = unit.folder / "traces" / f"{unit.role}.zarr"
    shutil.copytree(folder / "trace.zarr", stored)
    scores = tables["heads"]
    heads = scores.select("layer", "head").n_unique()
    if silenced := top_heads(scores, *task.silenced(heads, heads // scores["layer"].n_unique())):
        tables |= _ask(unit, task, task.without_heads, lm, report, silenced)
    if unit.figures:
        draw_trace(unit.role, open_trace(stored), task.design, unit.folder / "figures")
    return tables


def _kept_trace(unit: Unit, task: AskedTask, lm: LanguageModel, traced: Sequence[TracedPrompt]) -> Path:
    """A folder with the trace of a unit and what was measured on it: made now, or by a run that was interrupted later."""

    def fill(folder: Path) -> None:
        samples = [prompt.sample for prompt in traced]
        trace = record(lm, task, traced, unit.seed, folder / "trace.zarr")
        heads_of(unit.role, trace, samples, task.design.needle).write_parquet(folder / "heads.parquet")
        left_to_right = write_left_to_right(lm, task, traced, trace, unit.seed, folder / "left-to-right.zarr")
        measurements_of(unit.role, trace, samples, left_to_right).write_parquet(folder / "measurements.parquet")

    how = {
        **task.tracing,
        **task.writing(lm),
        "role": unit.role,
        "seed": unit.seed,
        "detail": DETAIL,
        "measures": [line.name for line in RECORDED],
    }
    name = name_of(fingerprint(lm), "trace", [(prompt.sample, prompt.prompt.text) for prompt in traced], how)
    place = unit.kept / f"trace-{name}"
    if place.is_dir() and (broken := damage(place)):
        say(f"{place} is damaged ({broken[0]}): it is removed, and what it held is computed again.")
        shutil.rmtree(place)
    return folder_once(place, WRITTEN_BY, fill)


def write_left_to_right(
    lm: LanguageModel, task: AskedTask, traced: Sequence[TracedPrompt], trace: Trace, seed: int, path: Path
) -> Trace | None:
    """A trace of texts written left to right, with what the path of the strongest key needs; None if the model cannot write so."""
    if lm.sampler == "autoregressive":
        return trace
    if lm.sampler not in ("llada", "dream"):
        return None
    how: dict[str, Any] = {**task.tracing, "sampler": "llada", "block_length": 1, "groups": ["predicting", "prompt"], "seed": seed}
    prompts = [prompt.prompt for prompt in traced]
    return lm.trace(prompts, detail=ONLY_THE_PATH, path=None if task.in_memory else path, progress=False, **how)
