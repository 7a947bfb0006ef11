"""What masking did to a twin, condition by condition: outcome, removed attention, damage, and damage per removed attention, each with its interval; and the same as figures take it."""

from dataclasses import dataclass

import xarray as xr

from floatlens.claims.design import ANSWERED_WITHOUT, DESCRIBED_WITHOUT, MASKED_CONTEXT
from floatlens.claims.estimates import Estimate, change, mean_of, ratio_of
from floatlens.claims.evidence import TWINS, Evidence

CONTROLS = {"": "anchors", "count": "count", "mass": "mass"}
"""The controls as answers name them, and as figures do."""


@dataclass(frozen=True)
class Masking:
    """An experiment under masking: which outcome and which removed attention count, what the outcome is in words, how many keys were masked."""

    outcome: str
    removed: str
    says: str
    counts: tuple[int, ...]


MASKING = {
    "masked descriptions": Masking("accuracy", "removed", "share of right values in a description", DESCRIBED_WITHOUT),
    "masked answers": Masking("log_likelihood", "likelihood_removed", "log-likelihood of the answer (nats)", ANSWERED_WITHOUT),
}


@dataclass(frozen=True)
class MaskingRow:
    """One twin under one number of masked keys, or one of its controls."""

    twin: str
    experiment: str
    keys: int
    what: str
    outcome: Estimate
    removed: Estimate
    damage: Estimate
    damage_per_removed: Estimate


def masking_rows(evidence: Evidence) -> list[MaskingRow]:
    """Every condition under masking."""
    rows = []
    for experiment, masking in MASKING.items():
        for twin in TWINS:
            table = masking_table(evidence, experiment, twin)
            untouched = table["untouched"].assign_attrs(table["outcome"].attrs)
            for keys in masking.counts:
                for kind in CONTROLS.values():
                    outcome, removed = (table[name].sel(kind=kind, k=keys, drop=True) for name in ("outcome", "removed"))
                    damage = change(untouched, outcome)
                    rows.append(
                        MaskingRow(
                            twin, experiment, keys, kind, mean_of(outcome), mean_of(removed), mean_of(damage), ratio_of(damage, removed)
                        )
                    )
    return rows


def masking_table(evidence: Evidence, experiment: str, twin: str) -> xr.Dataset:
    """One twin's outcomes under masking and both controls, as `floatlens.report.figures.masking_against_controls` takes them."""
    masking = MASKING[experiment]
    every: dict[str, list[xr.DataArray]] = {"outcome": [], "removed": []}
    for control in CONTROLS:
        for name, column in (("outcome", masking.outcome), ("removed", masking.removed)):
            by_count = [
                evidence.outcome(twin, experiment, MASKED_CONTEXT, column, intervention=f"mask-anchors:{keys}", control=control)
                for keys in masking.counts
            ]
            every[name].append(xr.concat(by_count, "k", coords="minimal", compat="override"))
    table = xr.Dataset({name: xr.concat(arrays, "kind", coords="minimal", compat="override") for name, arrays in every.items()})
    table["untouched"] = evidence.outcome(twin, experiment, MASKED_CONTEXT, masking.outcome)
    return table.assign_coords(kind=list(CONTROLS.values()), k=list(masking.counts)).assign_attrs(
        outcome=masking.says, model=str(evidence.about["models"][twin])
    )
