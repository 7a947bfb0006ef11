"""What was seen of the twins, as three tables, and how claims read them; and what is asked, in which contexts.

| table | one row per | columns besides `twin` |
|---|---|---|
| `measurements` | number of a traced sample | `rows` ("recorded", or "rectangle": predicting rows, prompt keys), `measure`, `unit`, |
| | | `group`, `part`, `depth`, `sample`, `value`, `null`, `reason` |
| `heads` | head and traced sample | `sample`, `layer`, `head`, `third`, `score`, `null`, `counts` |
| `answers` | question and condition | `experiment`, and those of `floatlens.study.evaluation` |

`twin` is the role in the comparison (arm, mdm, causal-mdm), whichever model plays it. Claims get one value per sample, labelled with
the sample, so that twins and conditions are paired by it. What was not measured is NaN everywhere, with the reason in the attribute
`reason`; nothing is ever filled in. Outcomes have the attributes `least` and `most`, what a question can score, as far as that is
limited. The constants are shared by experiments, claims and figures; nothing here needs torch.

Refused: a folder that does not hold the tables.
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import xarray as xr

from floatlens.claims.verdicts import Estimate, mean_of
from floatlens.errors import Refusal

DESCRIBED_FROM = 3
"""Passages per description; the gold passage takes each slot in turn."""
DESCRIPTION_TOKENS = 32
"""Length of a description with its end token, which is what the twins were trained to fill."""
ANSWER_TOKENS = 3
"""A value, a full stop and the end token."""
TWO_HOP_TOKENS = 7
"""A sentence such as "Felix Ellis lives in Cairo." and the end token."""

CLOSED_BOOK, GOLD = "closed-book", "gold"
NOISE = ("noise:0", "noise:0.2", "noise:0.4", "noise:0.6", "noise:0.8")
POSITIONS = ("position:1/6", "position:3/6", "position:6/6")
LAYOUTS = ("layout:one,passages=4", "layout:adjacent,passages=4", "layout:far,passages=4")

MASKED_CONTEXT = "position:2/3"
"""Shorter than the other contexts, because finding the strongest keys takes time."""
ANSWERED_WITHOUT, DESCRIBED_WITHOUT = (1, 5, 10), (1,)
"""How many of the strongest keys are masked; fewer counts for descriptions, because writing takes many passes and a likelihood one."""
MASKED_STEPS = 8
"""Denoising steps of a description under masking; all but the first are masked."""

TOP_HEADS, MOST_OF_A_LAYER = 3, 2
"""How many retrieval heads are silenced, and how many of them in one layer at most: others must be left as a control."""

EXPERIMENTS = ("trace", "masked descriptions", "masked answers", "noise", "layout", "position", "known people")
"""What is done with every twin, the longest first."""
TWINS = ("arm", "mdm", "causal-mdm")
TABLES = ("measurements", "heads", "answers")
POSSIBLE: dict[str, dict[str, float]] = {
    "accuracy": {"least": 0.0, "most": 1.0},
    "shortcut": {"least": 0.0, "most": 1.0},
    "log_likelihood": {"most": 0.0},
}
"""What a question can score, where that is limited."""


@dataclass(frozen=True, eq=False)
class Evidence:
    """The three tables, and what was run (`about`: models by role, sizes, seed)."""

    measurements: pl.DataFrame
    heads: pl.DataFrame
    answers: pl.DataFrame
    about: dict[str, Any]

    def measured(
        self,
        twin: str,
        measure: str,
        *,
        group: str = "predicting",
        part: str = "",
        depth: str = "all",
        rows: str = "recorded",
        column: str = "value",
    ) -> xr.DataArray:
        """A number of `floatlens measure` for each sample of a twin's trace; `column="null"` gives its null."""
        of_twin = self.measurements.filter(pl.col("twin") == twin)
        rows_found = of_twin.filter(
            (pl.col("rows") == rows)
            & (pl.col("measure") == measure)
            & (pl.col("group") == group)
            & (pl.col("part") == part)
            & (pl.col("depth") == depth)
        )
        if rows_found.is_empty():
            known = measure in of_twin["measure"].to_list()
            why = f"the {twin} twin has no {group} rows" if known else f"the {twin} twin has no measure {measure!r}"
            return _nothing(of_twin, why)
        return _by_sample(rows_found, column)

    def outcome(
        self, twin: str, experiment: str, context: str, column: str = "accuracy", *, intervention: str = "", control: str = ""
    ) -> xr.DataArray:
        """A column of the answers, for each question that a twin was asked in one condition of an experiment."""
        asked = self.answers.filter((pl.col("twin") == twin) & (pl.col("experiment") == experiment))
        rows = asked.filter((pl.col("context") == context) & (pl.col("intervention") == intervention) & (pl.col("control") == control))
        if rows.is_empty():
            return _nothing(asked, f"the {twin} twin was not asked: {experiment}, {context} {intervention}".rstrip())
        values = _by_sample(rows, column)
        return values.assign_attrs(values.attrs | POSSIBLE.get(column, {}))

    def head_scores(self, twin: str, third: str, column: str = "score") -> xr.DataArray:
        """The mean of a column over the heads of a third of the depth ("all": every head); only samples that recall most of the needle."""
        return self._over_heads(twin, third, pl.col(column).mean())

    def share_of_heads(self, twin: str, threshold: float, column: str = "score") -> xr.DataArray:
        """The share of heads whose score is above a threshold; only samples that recall more than half of the needle."""
        return self._over_heads(twin, "all", (pl.col(column) > threshold).mean())

    def _over_heads(self, twin: str, third: str, mean: pl.Expr) -> xr.DataArray:
        of_twin = self.heads.filter(pl.col("twin") == twin)
        counted = of_twin.filter(pl.col("counts") & ((pl.col("third") == third) | (third == "all")))
        if counted.is_empty():
            return _nothing(of_twin, f"no text of the {twin} twin recalls more than half of its gold passage")
        return _by_sample(counted.group_by("sample").agg(mean.alias("value")), "value")

    def save(self, folder: Path) -> None:
        """Write the tables as Parquet, and what was run as JSON."""
        folder.mkdir(parents=True, exist_ok=True)
        for name in TABLES:
            getattr(self, name).write_parquet(folder / f"{name}.parquet")
        (folder / "about.json").write_text(json.dumps(self.about, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def read_evidence(folder: Path) -> Evidence:
    """Read what `Evidence.save` has written.

    Examples
    --------
    >>> read_evidence(Path("nowhere"))
    Traceback (most recent call last):
    floatlens.errors.Refusal: nowhere holds no evidence: measurements.parquet is missing. Pass the folder `tables` that a demo wrote.
    """
    for name in (*(f"{table}.parquet" for table in TABLES), "about.json"):
        if not (folder / name).is_file():
            raise Refusal(f"{folder} holds no evidence: {name} is missing. Pass the folder `tables` that a demo wrote.")
    tables = {name: pl.read_parquet(folder / f"{name}.parquet") for name in TABLES}
    return Evidence(**tables, about=json.loads((folder / "about.json").read_text(encoding="utf-8")))


def _by_sample(rows: pl.DataFrame, column: str) -> xr.DataArray:
    rows = rows.sort("sample")
    values = rows[column].cast(pl.Float64).fill_null(np.nan).to_numpy()
    reasons = [text for text in rows["reason"].to_list() if text] if "reason" in rows.columns else []
    attributes = {"reason": reasons[0]} if reasons else {}
    return xr.DataArray(values, dims="sample", coords={"sample": rows["sample"].to_list()}, attrs=attributes)


def _nothing(rows: pl.DataFrame, why: str) -> xr.DataArray:
    """NaN for every sample, or a single NaN where there are no samples."""
    samples = rows["sample"].unique().sort().to_list() or ["none"]
    return xr.DataArray(np.full(len(samples), np.nan), dims="sample", coords={"sample": samples}, attrs={"reason": why})


@dataclass(frozen=True)
class Accuracy:
    """One context: the accuracy of each twin, the mean shortcut, and how many questions were asked."""

    context: str
    by_twin: dict[str, Estimate]
    shortcut: float
    questions: int


def accuracies(evidence: Evidence) -> list[Accuracy]:
    """How often each twin is right in every context without an intervention, in the order in which they were asked."""
    # the retrieval heads were silenced on the questions of the masked answers
    unedited = evidence.answers.filter((pl.col("intervention") == "") & (pl.col("experiment") != "retrieval heads"))
    rows = []
    for experiment, context in unedited.select("experiment", "context").unique(maintain_order=True).rows():
        here = unedited.filter((pl.col("experiment") == experiment) & (pl.col("context") == context))
        by_twin = {twin: _accuracy(here.filter(pl.col("twin") == twin)) for twin in TWINS}
        name = context if context.startswith(experiment) else f"{experiment}, {context}"
        rows.append(Accuracy(name, by_twin, float(here["shortcut"].cast(pl.Float64).to_numpy().mean()), here["sample"].n_unique()))
    return rows


def _accuracy(rows: pl.DataFrame) -> Estimate:
    if rows.is_empty():
        return Estimate(math.nan, math.nan, math.nan, 0, "this twin was not asked")
    return mean_of(xr.DataArray(rows["accuracy"].to_numpy(), dims="sample", attrs={"least": 0.0, "most": 1.0}))
