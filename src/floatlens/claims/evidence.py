"""What was seen of the models of a study, as three tables, and how claims read them.

| table | one row per | columns besides `role` |
|---|---|---|
| `measurements` | number of a traced sample | `rows` ("recorded"; "rectangle": predicting rows, prompt keys; "left to right": of a text |
| | | that was written so), `measure`, `unit`, `group`, `part`, `depth`, `sample`, `value`, `null`, `reason` |
| `heads` | head and traced sample | `sample`, `layer`, `head`, `third`, `score`, `null`, `counts` |
| `answers` | question, condition and draw | `experiment`, and those of `floatlens.study.one_model` |

`role` is the part in the comparison (arm, mdm, causal-mdm), whichever model plays it; folders of earlier versions call it `twin`. Claims
get one value per sample, labelled with the sample, so that models and conditions are paired by it; the draws of a random control are
averaged first. What was not measured is NaN everywhere, with the reason in the attribute `reason`; nothing is ever filled in. Outcomes have
the attributes `least` and `most`, what a question can score, as far as that is limited. Nothing here needs torch.

Refused: a folder that does not hold the tables.
"""

import json
import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import xarray as xr

from floatlens.claims.design import ROLES, WORLD, Design
from floatlens.claims.verdicts import Estimate, mean_of
from floatlens.errors import Refusal
from floatlens.study.outcomes import average_draws

TABLES = ("measurements", "heads", "answers")
POSSIBLE: dict[str, dict[str, float]] = {
    "accuracy": {"least": 0.0, "most": 1.0},
    "shortcut": {"least": 0.0, "most": 1.0},
    "log_likelihood": {"most": 0.0},
}
"""What a question can score, where that is limited."""


@dataclass(frozen=True, eq=False)
class Evidence:
    """The three tables, and what was run (`about`: models by role, design, sizes, draws, seed, the slot of gold in each traced text)."""

    measurements: pl.DataFrame
    heads: pl.DataFrame
    answers: pl.DataFrame
    about: dict[str, Any]

    @cached_property
    def design(self) -> Design:
        """What was asked; earlier versions asked the world and did not say so."""
        return Design.read(self.about["design"]) if "design" in self.about else WORLD

    @property
    def roles(self) -> list[str]:
        """The roles that a model plays here."""
        return [role for role in ROLES if role in self.about["models"]]

    def measured(
        self,
        role: str,
        measure: str,
        *,
        group: str = "predicting",
        part: str = "",
        depth: str = "all",
        rows: str = "recorded",
        column: str = "value",
    ) -> xr.DataArray:
        """A number of `floatlens measure` for each sample of a model's trace; `column="null"` gives its null."""
        of_role = self.measurements.filter(pl.col("role") == role)
        rows_found = of_role.filter(
            (pl.col("rows") == rows)
            & (pl.col("measure") == measure)
            & (pl.col("group") == group)
            & (pl.col("part") == part)
            & (pl.col("depth") == depth)
        )
        if rows_found.is_empty():
            known = measure in of_role["measure"].to_list()
            why = f"the {role} has no {group} rows" if known else f"the {role} has no measure {measure!r}"
            return _nothing(of_role, self._absent(role) or why)
        return _by_sample(rows_found, column)

    def outcome(
        self, role: str, experiment: str, context: str, column: str = "accuracy", *, intervention: str = "", control: str = ""
    ) -> xr.DataArray:
        """A column of the answers, for each question that a model was asked in one condition of an experiment."""
        asked = self.answers.filter((pl.col("role") == role) & (pl.col("experiment") == experiment))
        rows = asked.filter((pl.col("context") == context) & (pl.col("intervention") == intervention) & (pl.col("control") == control))
        if rows.is_empty():
            why = f"the {role} was not asked: {experiment}, {context} {intervention}".rstrip()
            return _nothing(asked, self._absent(role) or self.design.not_asked.get(experiment, why))
        values = _by_sample(average_draws(rows), column)
        return values.assign_attrs(values.attrs | POSSIBLE.get(column, {}))

    def at_slot(self, values: xr.DataArray, slot: int) -> xr.DataArray:
        """Of the traced texts, those in which the gold passage stood at a slot, counted from 1."""
        slots = self.about.get("slots", {})
        there = [sample for sample in values["sample"].values.tolist() if slots.get(sample) == slot]
        if not there:
            why = f"no traced text has the gold passage at slot {slot}" if slots else "the study does not say where the gold passages stood"
            return xr.DataArray([math.nan], dims="sample", coords={"sample": ["none"]}, attrs={"reason": values.attrs.get("reason", why)})
        return values.sel(sample=there)

    def _absent(self, role: str) -> str:
        """Why nothing is known of a role: no model plays it. "" where one does."""
        return "" if role in self.about["models"] else f"no model plays the {role} in this study"

    def head_scores(self, role: str, third: str, column: str = "score") -> xr.DataArray:
        """The mean of a column over the heads of a third of the depth ("all": every head); only samples that recall most of the needle."""
        return self._over_heads(role, third, pl.col(column).mean())

    def share_of_heads(self, role: str, threshold: float, column: str = "score") -> xr.DataArray:
        """The share of heads whose score is above a threshold; only samples that recall more than half of the needle."""
        return self._over_heads(role, "all", (pl.col(column) > threshold).mean())

    def _over_heads(self, role: str, third: str, mean: pl.Expr) -> xr.DataArray:
        of_role = self.heads.filter(pl.col("role") == role)
        counted = of_role.filter(pl.col("counts") & ((pl.col("third") == third) | (third == "all")))
        if counted.is_empty():
            needle = "gold passage" if self.design.needle == "gold" else "answer, as the gold passage words it"
            return _nothing(of_role, self._absent(role) or f"no text of the {role} recalls more than half of its {needle}")
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
    earlier = {"twin": "role"}
    tables = {name: pl.read_parquet(folder / f"{name}.parquet").rename(earlier, strict=False) for name in TABLES}
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
    """One context: the accuracy of each model, the mean shortcut (NaN where a task has none), and how many questions were asked."""

    context: str
    by_role: dict[str, Estimate]
    shortcut: float
    questions: int


def accuracies(evidence: Evidence) -> list[Accuracy]:
    """How often each model is right in every context without an intervention, in the order in which they were asked."""
    # the retrieval heads were silenced on the questions of the masked answers
    unedited = evidence.answers.filter((pl.col("intervention") == "") & (pl.col("experiment") != "retrieval heads"))
    rows = []
    for experiment, context in unedited.select("experiment", "context").unique(maintain_order=True).rows():
        here = unedited.filter((pl.col("experiment") == experiment) & (pl.col("context") == context))
        by_role = {role: _accuracy(here.filter(pl.col("role") == role)) for role in evidence.roles}
        name = context if context.startswith(experiment) else f"{experiment}, {context}"
        shortcut = float(here["shortcut"].cast(pl.Float64).fill_null(np.nan).to_numpy().mean())
        rows.append(Accuracy(name, by_role, shortcut, here["sample"].n_unique()))
    return rows


def _accuracy(rows: pl.DataFrame) -> Estimate:
    if rows.is_empty():
        return Estimate(math.nan, math.nan, math.nan, 0, "this model was not asked")
    return mean_of(xr.DataArray(rows["accuracy"].to_numpy(), dims="sample", attrs={"least": 0.0, "most": 1.0}))
