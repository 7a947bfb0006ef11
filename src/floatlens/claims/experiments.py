"""The experiments, each with one twin: what a process that runs models does. Everything that needs torch is imported here, and only by those processes.

A process runs one thread of torch: with models this small, two processes of one thread each are quicker than one of two. The heads that are silenced are those that the twin's own trace found, so that experiment belongs to the
unit of the trace; each figure is drawn where its numbers are.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache

import polars as pl
import torch

from floatlens.claims import asking
from floatlens.claims.evidence import Evidence
from floatlens.claims.pictures import draw_masking, draw_trace
from floatlens.claims.tracing import described_people, heads_of, measurements_of, trace_descriptions
from floatlens.claims.units import Tables, Unit, short_name
from floatlens.models.language_model import LanguageModel
from floatlens.models.loading import load

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
