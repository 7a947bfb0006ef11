"""The experiments, each with one twin: trace it, ask it questions, mask what it looks at. What a process that runs models does.

Everything that needs torch is imported here, and only by those processes. A process runs one thread of torch: with models this
small, two processes of one thread each are faster than one of two.

**Tracing.** The texts are descriptions of test people, each from three passages of which one is gold, at another slot from prompt to
prompt; the region `gold` is that passage. Every measure of the catalogue is taken as recorded, and those by which claims compare
models once more on the shared rectangle. Heads are scored as retrieval heads with the gold passage as needle. The best heads are
silenced in the same unit, because they are known only then; each figure is drawn where its numbers are.

**Asking.** Short answers are written in one denoising step, because a value, a full stop and an end token do not depend on each
other; a two-hop answer says whom before it says what, and gets a step per token. The log-likelihood is that of the value alone, one
token, which is exact for every twin.

**M** The keys that are masked are those of the step before, so the first step of a text is never touched, and a short answer
is finished by then: under masking, short answers are judged by their likelihood, and what a twin *writes* is judged on descriptions.
Their accuracy is the share of the four values that they contain.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
import xarray as xr

from floatlens.claims.evidence import (
    ANSWER_TOKENS,
    ANSWERED_WITHOUT,
    CLOSED_BOOK,
    DESCRIBED_FROM,
    DESCRIBED_WITHOUT,
    DESCRIPTION_TOKENS,
    GOLD,
    LAYOUTS,
    MASKED_CONTEXT,
    MASKED_STEPS,
    MOST_OF_A_LAYER,
    NOISE,
    POSITIONS,
    TOP_HEADS,
    TWO_HOP_TOKENS,
    Evidence,
)
from floatlens.decoding.prompts import Prompt
from floatlens.interventions.specification import Intervention, MaskAnchors, MaskHeads
from floatlens.lab.units import Tables, Unit, short_name
from floatlens.measures.catalogue import ON_RECTANGLE
from floatlens.measures.inputs import depths
from floatlens.measures.retrieval import retrieval_scores
from floatlens.measures.summary import Summary, measure_trace, over_depth
from floatlens.models.language_model import LanguageModel
from floatlens.models.loading import load
from floatlens.report.claims import draw_masking, draw_trace
from floatlens.study.one_model import evaluate_model
from floatlens.tasks.contexts import Position, arrange
from floatlens.tasks.samples import Sample
from floatlens.tasks.scoring import Score, contains, score_text
from floatlens.tasks.wording import WORLD_WORDING, format_prompt
from floatlens.tasks.world import closed_book_samples, description_samples, open_book_samples, shortcut, two_hop_samples, values_of
from floatlens.trace.trace import Trace

DETAIL = {"geometry": "head", "norms": "head"}
"""Per head, because direction and norm are separated within a head."""
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
    """The samples and prompts that are traced, with the gold passage at slot 1, 2, ... in turn and marked as the region `gold`.

    Examples
    --------
    >>> (sample, prompt), *_ = described_people(1, seed=0)
    >>> sorted(prompt.regions)[:3], prompt.text.endswith(sample.question)
    (['doc_1', 'doc_2', 'doc_3'], True)
    """
    described = []
    for number, sample in enumerate(description_samples(count, passages=DESCRIBED_FROM, seed=seed)):
        slot = 1 + number % DESCRIBED_FROM
        prompt = format_prompt(sample, arrange(sample, Position(slot, DESCRIBED_FROM)), WORLD_WORDING)
        described.append((sample, Prompt(prompt.text, {**prompt.regions, "gold": prompt.regions[f"doc_{slot}"]})))
    return described


def trace_descriptions(lm: LanguageModel, count: int, seed: int, path: Path) -> Trace:
    """Trace a twin while it describes that many people, and store the trace; the one returned is in memory, for it is read many times."""
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
    """The retrieval score of every head in every sample, and the null: what its top keys would score if they were shuffled."""
    scores = retrieval_scores(trace.dataset, "gold").transpose("sample", "layer", "head", ...)
    layers, heads = scores["layer"].values, scores.sizes["head"]
    thirds = depths(layers).isel(depth=slice(1, None))
    names = thirds["depth"].values[thirds.values.argmax(0)]
    size = (len(samples), len(layers), heads)
    indices = np.indices(size).reshape(3, -1)
    return pl.DataFrame(
        {
            "twin": [twin] * indices.shape[1],
            "sample": [samples[number] for number in indices[0]],
            "layer": layers[indices[1]].astype(int).tolist(),
            "head": indices[2].tolist(),
            "third": [str(names[number]) for number in indices[1]],
            "score": scores["score"].values.ravel().astype(float),
            "null": scores["null_shuffled"].values.ravel().astype(float),
            "counts": np.broadcast_to(scores["counts"].values[:, None, None], size).ravel().astype(bool),
        }
    )


def _rows(twin: str, rows: str, summary: Summary, samples: Sequence[str]) -> list[pl.DataFrame]:
    """The numbers of a summary by thirds of the depth, one row each."""
    tables = []
    for measure, measured in summary.values.items():
        numbers = over_depth(measured).assign_coords(sample=list(samples))
        numbers = numbers if "null" in numbers else numbers.assign(null=xr.full_like(numbers["value"], np.nan, dtype=float))
        numbers = numbers[["value", "null"]].expand_dims({axis: [""] for axis in ("group", "part") if axis not in numbers["value"].dims})
        value, null = xr.broadcast(numbers["value"], numbers["null"])
        axes = ("sample", "group", "part", "depth")
        value, null = value.transpose(*axes), null.transpose(*axes)
        indices = np.indices(value.shape).reshape(4, -1)
        labels = {axis: value[axis].values.astype(str)[indices[number]].tolist() for number, axis in enumerate(axes)}
        tables.append(
            pl.DataFrame(
                {
                    "twin": [twin] * indices.shape[1],
                    "rows": [rows] * indices.shape[1],
                    "measure": [measure] * indices.shape[1],
                    "unit": [summary.units[measure]] * indices.shape[1],
                    **labels,
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


WORDING = replace(WORLD_WORDING, answer="{answer}")


def asked_with_noise(lm: LanguageModel, count: int, seed: int) -> pl.DataFrame:
    """Without passages, and with a growing share of distractors among five; with none, the gold passage is told five times."""
    samples = open_book_samples(count, passages=6, restatements=4, seed=seed)
    return _short_answers(lm, samples, (CLOSED_BOOK, *NOISE), seed, brackets=False).with_columns(experiment=pl.lit("noise"))


def asked_by_position(lm: LanguageModel, count: int, seed: int) -> pl.DataFrame:
    """With the gold passage alone, and with it as first, third and last of six."""
    samples = open_book_samples(count, passages=6, seed=seed)
    return _short_answers(lm, samples, (GOLD, *POSITIONS), seed, brackets=False).with_columns(experiment=pl.lit("position"))


def asked_by_heart(lm: LanguageModel, count: int, seed: int) -> pl.DataFrame:
    """About people known by heart, without passages."""
    return _short_answers(lm, closed_book_samples(count, seed=seed), (), seed).with_columns(experiment=pl.lit("known people"))


def asked_two_hops(lm: LanguageModel, count: int, seed: int) -> pl.DataFrame:
    """Two-hop questions, with the evidence in one passage, in two adjacent ones and in two far apart."""
    samples = two_hop_samples(count, passages=4, seed=seed)
    answers = evaluate_model(lm, samples, LAYOUTS, brackets=False, gen_length=TWO_HOP_TOKENS, **_options(seed))
    return answers.with_columns(experiment=pl.lit("layout"))


def asked_under_masking(lm: LanguageModel, count: int, seed: int) -> pl.DataFrame:
    """How likely answers are with 1, 5 and 10 of the strongest keys masked, and under both controls."""
    samples = open_book_samples(count, passages=DESCRIBED_FROM, seed=seed)
    answers = _short_answers(
        lm, samples, (MASKED_CONTEXT,), seed, brackets=False, interventions=[MaskAnchors(keys) for keys in ANSWERED_WITHOUT]
    )
    return answers.with_columns(experiment=pl.lit("masked answers"))


def described_under_masking(lm: LanguageModel, count: int, seed: int) -> pl.DataFrame:
    """What is written when the strongest key of each step is masked at the next, and under both controls."""
    samples = description_samples(count, passages=DESCRIBED_FROM, seed=seed)
    answers = evaluate_model(
        lm,
        samples,
        (MASKED_CONTEXT,),
        interventions=[MaskAnchors(keys) for keys in DESCRIBED_WITHOUT],
        brackets=False,
        scorer=score_description,
        gen_length=DESCRIPTION_TOKENS,
        steps=MASKED_STEPS,
        **_options(seed),
    )
    return answers.with_columns(experiment=pl.lit("masked descriptions"))


def asked_without_heads(lm: LanguageModel, count: int, seed: int, heads: Sequence[tuple[int, int]]) -> pl.DataFrame:
    """How likely answers are with these heads silenced, and with as many random others of the same layers."""
    samples = open_book_samples(count, passages=DESCRIBED_FROM, seed=seed)
    answers = _short_answers(lm, samples, (MASKED_CONTEXT,), seed, brackets=False, interventions=(MaskHeads(tuple(heads)),))
    # which heads were silenced differs between twins, and claims look rows up by the intervention
    named = pl.when(pl.col("intervention") == "").then(pl.lit("")).otherwise(pl.lit("mask-heads")).alias("intervention")
    return answers.with_columns(named, experiment=pl.lit("retrieval heads"))


def top_heads(scores: pl.DataFrame) -> list[tuple[int, int]]:
    """The heads with the largest mean retrieval score, at most two per layer; none where no sample counts.

    Examples
    --------
    >>> scores = pl.DataFrame({"layer": [0, 0, 0, 1], "head": [0, 1, 2, 0], "score": [0.5, 0.4, 0.3, 0.1], "counts": [True] * 4})
    >>> top_heads(scores)
    [(0, 0), (0, 1), (1, 0)]
    """
    means = scores.filter(pl.col("counts")).group_by("layer", "head").agg(pl.col("score").mean())
    chosen: list[tuple[int, int]] = []
    for layer, head, _ in means.sort(["score", "layer", "head"], descending=[True, False, False]).rows():
        if len(chosen) < TOP_HEADS and sum(own == layer for own, _ in chosen) < MOST_OF_A_LAYER:
            chosen.append((layer, head))
    return chosen


def score_description(text: str, sample: Sample) -> Score:
    """The scores of a description; its accuracy is the share of the four values that it contains.

    Examples
    --------
    >>> sample = description_samples(1)[0]
    >>> score_description("Julia Olsen is a doctor, keeps a falcon", sample).accuracy
    0.5
    """
    whole, wanted = score_text(text, sample), values_of(sample)
    return replace(whole, accuracy=sum(contains(text, value) for value in wanted) / len(wanted))


def _short_answers(
    lm: LanguageModel,
    samples: Sequence[Sample],
    contexts: Sequence[str],
    seed: int,
    *,
    brackets: bool = True,
    interventions: Sequence[Intervention] = (),
) -> pl.DataFrame:
    return evaluate_model(
        lm,
        samples,
        contexts,
        interventions=interventions,
        brackets=brackets,
        gen_length=ANSWER_TOKENS,
        steps=1,
        likelihood=True,
        **_options(seed),
    )


def _options(seed: int) -> dict[str, Any]:
    return {"wording": WORDING, "shortcut": shortcut, "batch_size": 32, "seed": seed, "progress": False}


Experiment = Callable[[Unit, LanguageModel], Tables]


def run_experiment(unit: Unit) -> Tables:
    """Run a unit of work."""
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
    if silenced := top_heads(heads):
        tables |= _answers(unit, asked_without_heads(lm, unit.sizes.masked, seed, silenced))
    if unit.figures:
        draw_trace(unit.twin, trace, unit.folder / "figures")
    return tables


def _answers(unit: Unit, rows: pl.DataFrame) -> dict[str, pl.DataFrame]:
    return {"answers": rows.with_columns(twin=pl.lit(unit.twin))}


def _asked(ask: Callable[[Unit, LanguageModel], pl.DataFrame]) -> Experiment:
    return lambda unit, lm: _answers(unit, ask(unit, lm))


def _masked(ask: Callable[[Unit, LanguageModel], pl.DataFrame]) -> Experiment:
    """An experiment under masking, and its figure."""

    def run(unit: Unit, lm: LanguageModel) -> Tables:
        tables, nothing = _answers(unit, ask(unit, lm)), pl.DataFrame()
        if unit.figures:
            evidence = Evidence(nothing, nothing, tables["answers"], {"models": {unit.twin: lm.name}})
            draw_masking(unit.twin, unit.experiment, evidence, unit.folder / "figures")
        return tables

    return run


RUN: dict[str, Experiment] = {
    "trace": _trace,
    "masked descriptions": _masked(lambda unit, lm: described_under_masking(lm, unit.sizes.described, unit.seed)),
    "masked answers": _masked(lambda unit, lm: asked_under_masking(lm, unit.sizes.masked, unit.seed)),
    "noise": _asked(lambda unit, lm: asked_with_noise(lm, unit.sizes.questions, unit.seed)),
    "layout": _asked(lambda unit, lm: asked_two_hops(lm, unit.sizes.two_hop, unit.seed)),
    "position": _asked(lambda unit, lm: asked_by_position(lm, unit.sizes.questions, unit.seed)),
    "known people": _asked(lambda unit, lm: asked_by_heart(lm, unit.sizes.questions, unit.seed)),
}
"""What each of `floatlens.claims.evidence.EXPERIMENTS` does."""
