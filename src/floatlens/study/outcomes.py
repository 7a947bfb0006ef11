"""What evaluations come to: means, gains, damage, interactions and slopes, each with an interval over samples.

Takes tables of rows (`floatlens.study.one_model`), one or several, such as those of several models, and gives `Outcome`s: one number each,
with what it is of. All are paired by sample, and intervals are over samples, never over rows.

| quantity | what it is |
|---|---|
| mean | of a condition |
| gain | a context minus the reference (closed-book), same model, unedited |
| damage | an unedited context minus the same under an intervention, or under one of its controls |
| damage per removed | damage over the share of attention that was removed, which makes an intervention comparable with its controls |
| damage beyond control | damage of the intervention minus that of a control |
| interaction | what the first model gains minus what the second gains |
| slope | the change of the outcome when the level goes from 0 to 1 (noise) or by 1 (position, masks): the mean of one slope per sample |
| slope difference | of the first model minus the second |

Decided here: the draws of a random control are averaged per sample (`average_draws`) before anything else, so that intervals are over
samples and never over draws; a table without the column `draw`, as earlier versions wrote it, has one draw. Scores from 0 to 1, and all
differences of them, have the intervals of `floatlens.statistics.proportions`, which stay inside the possible range and have width where
all samples agree; log-likelihoods have a bootstrap (`floatlens.statistics.resampling`), and their means end at 0. A p-value belongs to
the interval beside it: it is below .05 exactly where a 95 % interval excludes 0. The damage to a log-likelihood is divided by what was
removed while it was taken, all other damage by what was removed while the model wrote. What cannot be computed is NaN, and `reason` says
why.

Refused: a table without an outcome, the same sample twice in a condition (or in a draw of it), conditions of one model that were asked of
different samples, models that share no samples.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import polars as pl
import xarray as xr

from floatlens.errors import Refusal
from floatlens.statistics.effects import interaction
from floatlens.statistics.proportions import Range, bounded_difference, bounded_mean, bounded_ratio
from floatlens.statistics.resampling import bootstrap, bootstrap_difference, bootstrap_ratio
from floatlens.statistics.slopes import slope_over, steepest_slope
from floatlens.tasks.contexts import ClosedBook, GoldOnly

SCHEMA: dict[str, Any] = {
    "model": pl.String,
    "sample": pl.String,
    "context": pl.String,
    "kind": pl.String,
    "level": pl.Float64,
    "intervention": pl.String,
    "control": pl.String,
    "draw": pl.Int64,
    "prompt": pl.String,
    "prediction": pl.String,
    "answer": pl.String,
    "accuracy": pl.Float64,
    "exact_match": pl.Float64,
    "f1": pl.Float64,
    "log_likelihood": pl.Float64,
    "log_likelihood_error": pl.Float64,
    "removed": pl.Float64,
    "likelihood_removed": pl.Float64,
    "shortcut": pl.Float64,
    "passages": pl.Int64,
    "passages_cut": pl.Int64,
    "gold_cut": pl.Int64,
    "gen_length": pl.Int64,
}
"""The columns of an evaluation and their types."""

OUTCOMES = ("accuracy", "exact_match", "f1", "log_likelihood")
BRACKETS = (ClosedBook.kind, GoldOnly.kind)
_SCORES = (0.0, 1.0)
"""Between these lies every outcome but log-likelihoods."""
_CONDITION = ("context", "kind", "level", "intervention", "control")
_LABELS = ("role", "experiment", "model", "sample", *_CONDITION)
"""What tells the rows of a table apart, but for the draw."""
_AVERAGED = (*OUTCOMES, "log_likelihood_error", "removed", "likelihood_removed", "shortcut")
"""What is averaged over draws."""


@dataclass(frozen=True)
class Outcome:
    """One number of a summary. `other` is the second model of a comparison; `reference` the context that a gain is counted from."""

    quantity: str
    outcome: str
    model: str
    estimate: float
    low: float
    high: float
    samples: int
    reason: str = ""
    other: str = ""
    context: str = ""
    level: float | None = None
    reference: str = ""
    intervention: str = ""
    control: str = ""
    p_value: float | None = None


@dataclass(frozen=True)
class _Cell:
    """One condition of one model: what it is, and the values by sample."""

    model: str
    context: str
    kind: str
    level: float | None
    intervention: str
    control: str
    values: xr.DataArray
    removed: xr.DataArray

    @property
    def series(self) -> str:
        """The context without its level: what a slope over levels is of. Slots of 10 and slots of 20 are two series."""
        if self.kind == "masks":
            return f"{self.context.rpartition(',masks=')[0]},masks"
        return f"{self.kind}{''.join(self.context.partition('/' if self.kind == 'position' else ',')[1:])}"

    @property
    def named(self) -> dict[str, Any]:
        """What an outcome of this condition alone is of."""
        return {
            "model": self.model,
            "context": self.context,
            "level": self.level,
            "intervention": self.intervention,
            "control": self.control,
        }


def summarise(
    tables: pl.DataFrame | Sequence[pl.DataFrame],
    *,
    outcomes: Sequence[str] = OUTCOMES,
    reference: str = ClosedBook.kind,
    draws: int = 2000,
    level: float = 0.95,
    seed: int = 0,
) -> list[Outcome]:
    """Everything that evaluations come to.

    Parameters
    ----------
    tables
        From `evaluate`; several are put one under the other.
    outcomes
        Columns to look at; one that is null everywhere (no likelihoods were taken) is left out.
    reference
        The context that gains are counted from.
    draws, level, seed
        Of the intervals; draws and seed are those of `floatlens.statistics.resampling.bootstrap`, for log-likelihoods.

    Examples
    --------
    >>> def rows(context, *scores):
    ...     same = dict(model="m", context=context, kind=context, level=None, intervention="", control="")
    ...     return [dict(same, sample=str(number), accuracy=float(score), removed=None, likelihood_removed=None)
    ...             for number, score in enumerate(scores)]
    >>> table = pl.DataFrame(rows("closed-book", 0, 0, 1) + rows("gold", 1, 0, 1), schema_overrides={"level": pl.Float64})
    >>> [(outcome.quantity, outcome.context, round(outcome.estimate, 2)) for outcome in summarise(table, outcomes=["accuracy"])]
    [('mean', 'closed-book', 0.33), ('mean', 'gold', 0.67), ('gain', 'gold', 0.33)]
    """
    table = _joined(tables)
    how = {"draws": draws, "level": level, "seed": seed}
    results: list[Outcome] = []
    for outcome in outcomes:
        cells = _cells(table, outcome)
        results += [*_means(cells, outcome, how), *_gains(cells, outcome, reference, how), *_damages(cells, outcome, how)]
        results += [*_interactions(cells, outcome, reference, how), *_slopes(cells, outcome, how)]
    return results


def as_table(outcomes: Sequence[Outcome]) -> pl.DataFrame:
    """Outcomes as a table, one row each; NaN stays NaN beside its reason.

    Examples
    --------
    >>> as_table([Outcome("mean", "accuracy", "m", 0.5, 0.4, 0.6, 10, context="gold")]).select("context", "estimate").rows()
    [('gold', 0.5)]
    """
    numbers = {"level": pl.Float64, "p_value": pl.Float64}
    return pl.DataFrame([asdict(outcome) for outcome in outcomes], schema_overrides=numbers)


def _joined(tables: pl.DataFrame | Sequence[pl.DataFrame]) -> pl.DataFrame:
    several = [tables] if isinstance(tables, pl.DataFrame) else list(tables)
    if any("draw" in each.columns for each in several):  # tables of earlier versions have no such column
        none = pl.lit(None, dtype=pl.Int64).alias("draw")
        several = [each if "draw" in each.columns else each.with_columns(none) for each in several]
    table = pl.concat(several, how="diagonal") if several else pl.DataFrame()
    if not len(table):
        raise Refusal("There is nothing to summarise: the table has no rows.")
    twice = table.group_by("model", "sample", *_CONDITION, *(["draw"] if "draw" in table.columns else [])).len().filter(pl.col("len") > 1)
    if len(twice):
        row = twice.sort("model", "sample", "context").row(0, named=True)
        raise Refusal(
            f"Sample {row['sample']} stands {row['len']} times under {row['context']} for {row['model']}; it can be paired only once."
        )
    return average_draws(table)


def average_draws(table: pl.DataFrame) -> pl.DataFrame:
    """One row per sample and condition: what a random control did to a sample is the mean over its draws, and `draw` is gone.

    What cannot be averaged, such as the text that was written, is that of the first draw.

    Examples
    --------
    >>> draws = pl.DataFrame({"sample": ["a", "a", "b"], "control": ["mass"] * 3, "draw": [0, 1, 0], "accuracy": [1.0, 0.0, 1.0]})
    >>> average_draws(draws).rows()
    [('a', 'mass', 0.5), ('b', 'mass', 1.0)]
    """
    if "draw" not in table.columns:
        return table
    labels = [name for name in table.columns if name in _LABELS]
    others = [name for name in table.columns if name not in (*labels, "draw")]
    averaged = [pl.col(name).mean() if name in _AVERAGED else pl.col(name).first() for name in others]
    kept = [name for name in table.columns if name != "draw"]
    return table.group_by(labels, maintain_order=True).agg(averaged).select(kept)


def _cells(table: pl.DataFrame, outcome: str) -> list[_Cell]:
    """Every condition of every model, in the order of the table; none where the outcome was not taken."""
    if outcome not in table.columns:
        raise Refusal(f"There is no column {outcome!r}; the outcomes are {', '.join(OUTCOMES)}.")
    if table[outcome].is_null().all():
        return []
    share = "likelihood_removed" if outcome == "log_likelihood" else "removed"
    cells: list[_Cell] = []
    for (model, *condition), rows in table.group_by("model", *_CONDITION, maintain_order=True):
        ordered = rows.sort("sample")
        samples = ordered["sample"].to_list()
        own = [cell for cell in cells if cell.model == model]
        if own and own[0].values["sample"].values.tolist() != samples:
            raise Refusal(
                f"{model} was asked {own[0].values.size} samples under {own[0].context} and {len(samples)}, or others, "
                f"under {condition[0]}, so they cannot be paired."
            )
        arrays = [
            xr.DataArray(ordered[name].cast(pl.Float64).to_numpy(), dims="sample", coords={"sample": samples}) for name in (outcome, share)
        ]
        cells.append(_Cell(str(model), *condition, *arrays))
    return cells


def _unedited(cells: Sequence[_Cell], model: str | None = None) -> list[_Cell]:
    return [cell for cell in cells if not cell.intervention and model in (None, cell.model)]


def _models(cells: Sequence[_Cell]) -> list[str]:
    return list(dict.fromkeys(cell.model for cell in cells))


def _means(cells: Sequence[_Cell], outcome: str, how: dict[str, Any]) -> Iterator[Outcome]:
    for cell in cells:
        yield _outcome("mean", outcome, _mean(outcome, cell.values, how), **cell.named)


def _gains(cells: Sequence[_Cell], outcome: str, reference: str, how: dict[str, Any]) -> Iterator[Outcome]:
    for model in _models(cells):
        own = _unedited(cells, model)
        for base in (cell for cell in own if cell.context == reference):
            for cell in (cell for cell in own if cell is not base):
                yield _outcome("gain", outcome, _difference(outcome, cell.values, base.values, how), **cell.named, reference=reference)


def _damages(cells: Sequence[_Cell], outcome: str, how: dict[str, Any]) -> Iterator[Outcome]:
    for base in _unedited(cells):
        edited = [cell for cell in cells if cell.intervention and (cell.model, cell.context) == (base.model, base.context)]
        for cell in edited:
            yield _outcome("damage", outcome, _difference(outcome, base.values, cell.values, how), **cell.named)
            yield _outcome("damage per removed", outcome, _per_removed(outcome, base.values - cell.values, cell.removed, how), **cell.named)
        for original in (cell for cell in edited if not cell.control):
            for control in (cell for cell in edited if cell.control and cell.intervention == original.intervention):
                yield _outcome(
                    "damage beyond control", outcome, _difference(outcome, control.values, original.values, how), **control.named
                )


def _interactions(cells: Sequence[_Cell], outcome: str, reference: str, how: dict[str, Any]) -> Iterator[Outcome]:
    for first, second in combinations(_models(cells), 2):
        a, b = ({cell.context: cell for cell in _unedited(cells, model)} for model in (first, second))
        if reference not in a or reference not in b:
            continue
        for context in (context for context in a if context in b and context != reference):
            sides = [_shared(a[name].values, b[name].values, first, second) for name in (context, reference)]
            within = _SCORES if _is_score(outcome) else None
            difference = interaction(sides[0][0], sides[1][0], sides[0][1], sides[1][1], within=within, **how)
            about = {"model": first, "other": second, "context": context, "level": a[context].level, "reference": reference}
            yield _outcome("interaction", outcome, difference, **about, p_value=float(difference["p_value"]))


def _slopes(cells: Sequence[_Cell], outcome: str, how: dict[str, Any]) -> Iterator[Outcome]:
    """Slopes over the level of each kind of context that has several."""
    slopes: dict[tuple[str, str], xr.DataArray] = {}
    steepest: dict[str, float] = {}
    for model in _models(cells):
        own = _unedited(cells, model)
        for kind in dict.fromkeys(cell.series for cell in own):
            levels = {cell.level: cell.values for cell in own if cell.series == kind and cell.level is not None}
            if len(levels) > 1:
                joined = xr.concat(list(levels.values()), xr.DataArray(list(levels), dims="level", name="level"))
                slopes[model, kind] = slope_over(joined, "level")
                # a sample that lacks a level can be steeper
                steepest[kind] = max(steepest.get(kind, 0.0), steepest_slope(list(levels)), float(abs(slopes[model, kind]).max()))
                within = (-steepest[kind], steepest[kind])
                yield _outcome("slope", outcome, _mean(outcome, slopes[model, kind], how, within), model=model, context=kind)
    for (first, kind), (second, other) in combinations(slopes, 2):
        if kind == other:
            sides = _shared(slopes[first, kind], slopes[second, kind], first, second)
            within = (-steepest[kind], steepest[kind])
            difference = _difference(outcome, *sides, how, within)
            yield _outcome("slope difference", outcome, difference, model=first, other=second, context=kind)


def _shared(a: xr.DataArray, b: xr.DataArray, first: str, second: str) -> tuple[xr.DataArray, xr.DataArray]:
    if a["sample"].values.tolist() != b["sample"].values.tolist():
        raise Refusal(f"{first} and {second} were asked different samples, so what they gain cannot be compared. Ask both the same.")
    return a, b


def _is_score(outcome: str) -> bool:
    return outcome != "log_likelihood"


def _mean(outcome: str, values: xr.DataArray, how: dict[str, Any], within: Range = _SCORES) -> xr.Dataset:
    return bounded_mean(values, within=within, level=how["level"]) if _is_score(outcome) else bootstrap(values, **how)


def _difference(outcome: str, a: xr.DataArray, b: xr.DataArray, how: dict[str, Any], within: Range = _SCORES) -> xr.Dataset:
    return bounded_difference(a, b, within=within, level=how["level"]) if _is_score(outcome) else bootstrap_difference(a, b, **how)


def _per_removed(outcome: str, damage: xr.DataArray, removed: xr.DataArray, how: dict[str, Any]) -> xr.Dataset:
    if not _is_score(outcome):
        return bootstrap_ratio(damage, removed, **how)
    return bounded_ratio(damage, removed, within=(_SCORES[0] - _SCORES[1], _SCORES[1] - _SCORES[0]), level=how["level"])


def _outcome(quantity: str, outcome: str, result: xr.Dataset, **about: Any) -> Outcome:
    estimate, low, high = (float(result[name]) for name in ("estimate", "low", "high"))
    reason = str(result["reason"].item())
    if low == high and not reason:
        reason = "all samples agree, so the interval has no width; it says nothing about the next sample"
    if quantity == "mean" and not _is_score(outcome):  # no likelihood exceeds 1
        low, high = (min(end, 0.0) if end == end else end for end in (low, high))
    return Outcome(quantity, outcome, estimate=estimate, low=low, high=high, samples=int(result["samples"]), reason=reason, **about)
