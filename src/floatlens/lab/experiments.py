"""The experiments, each with one model: trace it, ask it questions, mask what it looks at. What a process that runs models does.

Everything that needs torch is imported here and in what this imports, and only by those processes. What is asked is the task's business
(`floatlens.lab.asked_task`).

**Tracing.** What claims read is measured, and nothing else, because measuring takes longer than tracing: some measures of the catalogue as
recorded, with two that only claims need (what the threshold of the paper on sinks keeps, and rollout over its null), and some on the
shared rectangle. `floatlens measure` gives all measures of the traces. The path of the strongest key is measured on texts written left to
right, so that the predicting row does not jump: an autoregressive model always writes so; a diffusion model writes them once more, with
`block_length=1`, and only what the path needs is recorded. Heads are scored as retrieval heads. Which of them are silenced is known only
then, so the jobs that silence them are made when a model is traced.

**Resuming.** Every condition and every trace is a unit of the study engine; a trace lies in a folder beside its unit's file.
"""

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import xarray as xr

from floatlens.claims.attention import FAIR_ROLLOUT, THRESHOLD
from floatlens.claims.evidence import Evidence
from floatlens.folders import folder_once
from floatlens.interventions.specification import Intervention, MaskAnchors, MaskHeads
from floatlens.lab.asked_task import AskedTask, Asks, TracedPrompt, asked_task
from floatlens.lab.units import SILENCED, Choice, Study, short_name
from floatlens.measures.anchors import threshold_sweep
from floatlens.measures.catalogue import CATALOGUE, ON_RECTANGLE, Line, Values, most_frequent_reason
from floatlens.measures.catalogue import Sample as MeasuredSample
from floatlens.measures.flow import rollout
from floatlens.measures.inputs import depths, refuse_missing
from floatlens.measures.retrieval import retrieval_scores
from floatlens.measures.summary import measure_trace
from floatlens.models.checkpoint import find_checkpoint
from floatlens.models.doctor import examine
from floatlens.models.language_model import LanguageModel
from floatlens.models.loading import load
from floatlens.report.claims import WRITTEN_BY, draw_masking, draw_trace
from floatlens.study.engine import Report, device_type
from floatlens.study.errand import Packed
from floatlens.study.jobs import ModelChoice, ModelJob, questions_job
from floatlens.study.measured import measurement_rows
from floatlens.study.one_model import by_longest_prompt, refuse_samples
from floatlens.study.planning import checkpoint_digest
from floatlens.study.settings import settings_of
from floatlens.study.units import TRACE, OfUnit, Unit, digest_of, version_of_results
from floatlens.study.worker import Worker
from floatlens.tasks.conditions import plan
from floatlens.tasks.contexts import arrange
from floatlens.trace.trace import Trace, open_trace

DETAIL = {"geometry": "head", "norms": "head", "flow": "layer"}
"""Geometry per head, because direction and norm are separated within a head."""
ONLY_THE_PATH = {"geometry": "off", "norms": "off", "entropy": "off", "top_keys": "off"}
PATH = ("movement of the path, layers pooled", "changes of the path, layers pooled", "steps on the favourite key, layers pooled")
READ = (
    "on the first token",
    "float index (no memory)",
    "float index (no movement)",
    "movement",
    "drift along layers",
    "follows the frontier",
    "score advantage of anchors",
    "value norm of anchors",
    "anchor mass by role",
    "structure over depth",
    "fair flow",
)
COMPARED_BY = (
    "on the run's strongest key",
    "on the first token",
    "float index (no memory)",
    "temporal variance",
    "spatial variance",
    "changes of the path, layers pooled",
)
COMPARED = [line for line in ON_RECTANGLE if line.name in COMPARED_BY]
"""What claims compare models by; `floatlens measure --compare` has all measures of the rectangle."""
THREADS = 1
"""Of a process: two of one thread each are faster than one of two."""
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


RECORDED = (
    *(line for line in CATALOGUE if line.name in READ),
    Line(THRESHOLD, "%", _threshold),
    Line(FAIR_ROLLOUT, "ratio", _fair_rollout),
)
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
    """What claims read of a trace, for each sample: as recorded, on the shared rectangle, and what is measured left to right."""
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


@lru_cache(maxsize=3)
def loaded(model: str, dtype: str | None = None) -> LanguageModel:
    """A model under its short name, loaded once in a process."""
    return replace(load(model, dtype=dtype), name=short_name(model))


def choice_of(model: str, dtype: str | None) -> ModelChoice:
    """A model as a worker takes it."""
    digest = checkpoint_digest(find_checkpoint(model))
    return ModelChoice(model, short_name(model), None, dtype, None, False, digest, socket.gethostname())


def jobs_of(
    study: Study,
    experiment: str,
    task: AskedTask,
    asks: Asks,
    model: ModelChoice,
    writing: Mapping[str, Any],
    heads: Sequence[tuple[int, int]] = (),
) -> list[ModelJob]:
    """A job for each condition of an experiment; with `heads`, of the same questions with these heads silenced."""
    samples = asks.samples(getattr(study.sizes, asks.size), study.seed)
    edits: list[Intervention] = [MaskHeads(tuple(heads))] if heads else [MaskAnchors(keys) for keys in asks.masked]
    refuse_samples(samples)
    conditions = plan(samples, asks.contexts, edits, brackets=False, draws=study.draws)
    settings = settings_of({**task.how, **writing, **asks.how, "seed": study.seed})
    shown = {condition.context: [arrange(sample, condition.context) for sample in samples] for condition in conditions}
    order = by_longest_prompt(samples, list(shown.values()), settings.wording)
    how: dict[str, Any] = {"device": device_type("auto"), "threads": THREADS, "order": order}
    return [questions_job(experiment, "default", model, samples, condition, settings, **how) for condition in conditions]


def silencing_jobs(study: Study, role: str, heads: Sequence[tuple[int, int]], _report: Report) -> tuple[Packed, ...]:
    """The jobs that ask a model, known by its role, questions with its best retrieval heads silenced. An errand of a worker."""
    task, name = asked_task(study.choice), study.models[role]
    choice, writing = choice_of(name, study.choice.dtype), task.writing(examine(name, dtype=study.choice.dtype))
    return tuple(map(Packed.of, jobs_of(study, SILENCED, task, task.without_heads, choice, writing, heads)))


@dataclass(frozen=True, eq=False)
class TraceJob(OfUnit):
    """The unit of tracing a model and measuring the trace, which is left in `folder`."""

    unit: Unit
    model: ModelChoice
    study: Study
    role: str
    folder: Path

    def run(self, worker: Worker, report: Report) -> bytes:
        """The file of the unit: its measurements, the scores of its heads, and which of them are to be silenced."""
        return worker.sealed(self.unit, self.model, THREADS, lambda lm: (self._tables(lm, report), {}))

    def _tables(self, lm: LanguageModel, report: Report) -> dict[str, pl.DataFrame]:
        report(0, f"{lm.name}, tracing")
        task = asked_task(self.study.choice)
        traced = task.traced(self.study.sizes.traced, self.study.seed)

        def fill(folder: Path) -> None:
            samples = [prompt.sample for prompt in traced]
            trace = record(lm, task, traced, self.study.seed, folder / "trace.zarr")
            heads_of(self.role, trace, samples, task.design.needle).write_parquet(folder / "heads.parquet")
            left_to_right = write_left_to_right(lm, task, traced, trace, self.study.seed, folder / "left-to-right.zarr")
            measurements_of(self.role, trace, samples, left_to_right).write_parquet(folder / "measurements.parquet")

        place = folder_once(self.folder, WRITTEN_BY, fill)
        tables = {name: pl.read_parquet(place / f"{name}.parquet") for name in ("measurements", "heads")}
        count = tables["heads"].select("layer", "head").n_unique()
        silenced = top_heads(tables["heads"], *task.silenced(count, count // tables["heads"]["layer"].n_unique()))
        return {**tables, "silenced": pl.DataFrame(silenced, schema={"layer": pl.Int64, "head": pl.Int64}, orient="row")}


def tracing_job(study: Study, role: str, task: AskedTask, model: ModelChoice, writing: Mapping[str, Any], kept: Path) -> TraceJob:
    """The job of tracing a model; its trace lies below `kept`."""
    traced = task.traced(study.sizes.traced, study.seed)
    how = {**task.tracing, **writing, "detail": DETAIL, "measures": [line.name for line in (*RECORDED, *COMPARED)]}
    depends = {
        **version_of_results(),
        "model": f"{model.label} {model.digest}",
        "dtype": str(model.dtype),
        "device": device_type("auto"),
        "role": role,
        "seed": str(study.seed),
        "tracing": digest_of(sorted((name, str(value)) for name, value in how.items())),
        "prompts": digest_of([(prompt.sample, prompt.prompt.text, sorted(prompt.prompt.regions.items())) for prompt in traced]),
    }
    unit = Unit(TRACE, "trace", model.label, "", "", "", None, study.seed, "default", 0, len(traced), depends)
    return TraceJob(unit, model, study, role, kept / f"trace-{unit.id}")


def draw_masked(role: str, name: str, about: dict[str, Any], answers: pl.DataFrame, figures: Path, _report: Report) -> None:
    """Draw the figure of a masking experiment. An errand of a worker."""
    draw_masking(role, name, Evidence(pl.DataFrame(), pl.DataFrame(), answers, about), figures)


def draw_traced(role: str, trace: Path, choice: Choice, figures: Path, _report: Report) -> None:
    """Draw the figures of a trace. An errand of a worker."""
    draw_trace(role, open_trace(trace), asked_task(choice).design, figures)


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
