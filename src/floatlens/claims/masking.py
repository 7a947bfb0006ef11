"""Claims about masking the strongest keys, and what masking did to each model, condition by condition.

The claims say that masking ruins an ARM and spares an MDM, and that this is a difference between the models, not between the
amounts of attention that were removed. `masking_rows` gives outcome, removed attention, damage and damage per removed attention,
each with its interval; `masking_table` gives the same numbers per sample, as figures take them.

In the world, what a model writes is judged on descriptions (the share of their values that is right); how sure it is, on short answers
(the log-likelihood of the value). On questions, both are judged on the same answers. A model that scores no more than the floor (what
ignoring the person scores, or what it scores without passages) has nothing to lose: its claims are not asked.
"""

import math
from dataclasses import dataclass

import xarray as xr

from floatlens.claims.attention import SINKS
from floatlens.claims.design import CLOSED_BOOK
from floatlens.claims.evidence import Evidence
from floatlens.claims.verdicts import Claim, Estimate, Part, change, difference_of, mean_of, ratio_of

CONTROLS = {"": "anchors", "count": "count", "mass": "mass"}
"""The controls: their names in the table of answers, and those in figures."""


@dataclass(frozen=True)
class MaskingRow:
    """One model under one number of masked keys, or one of its controls; `experiment` is the name of what is looked at."""

    role: str
    experiment: str
    keys: int
    what: str
    outcome: Estimate
    removed: Estimate
    damage: Estimate
    damage_per_removed: Estimate


def masking_rows(evidence: Evidence) -> list[MaskingRow]:
    """Every condition of everything that is looked at under masking."""
    rows = []
    for name, masking in evidence.design.masking.items():
        for role in evidence.roles:
            table = masking_table(evidence, name, role)
            unedited = table["unedited"].assign_attrs(table["outcome"].attrs)
            for keys in masking.counts:
                for kind in CONTROLS.values():
                    outcome, removed = (table[name].sel(kind=kind, k=keys, drop=True) for name in ("outcome", "removed"))
                    damage = change(unedited, outcome)
                    rows.append(
                        MaskingRow(role, name, keys, kind, mean_of(outcome), mean_of(removed), mean_of(damage), ratio_of(damage, removed))
                    )
    return rows


def masking_table(evidence: Evidence, name: str, role: str) -> xr.Dataset:
    """One model's outcomes under masking and both controls, as `floatlens.report.figures.masking_against_controls` takes them."""
    masking, context = evidence.design.masking[name], evidence.design.masked_context
    every: dict[str, list[xr.DataArray]] = {"outcome": [], "removed": []}
    for control in CONTROLS:
        for kind, column in (("outcome", masking.outcome), ("removed", masking.removed)):
            by_count = [
                evidence.outcome(role, masking.experiment, context, column, intervention=f"mask-anchors:{keys}", control=control)
                for keys in masking.counts
            ]
            every[kind].append(xr.concat(by_count, "k", coords="minimal", compat="override"))
    table = xr.Dataset({name: xr.concat(arrays, "kind", coords="minimal", compat="override") for name, arrays in every.items()})
    table["unedited"] = evidence.outcome(role, masking.experiment, context, masking.outcome)
    return table.assign_coords(kind=list(CONTROLS.values()), k=list(masking.counts)).assign_attrs(
        outcome=masking.says, model=str(evidence.about["models"][role])
    )


RUINED = 0.5  # less than half is left
BARELY = 0.05  # five points

MASKING_RUINS_ARM = Claim(
    "masking-ruins-arm",
    SINKS,
    "Masking the strongest key (K = 1) ruins what an ARM writes.",
    "the ARM keeps less than half of what it gets right (values in descriptions of the world, answers to questions), and keeps more under "
    "both controls (as many random keys, as much attention)",
)
MASKING_SPARES_MDM = Claim(
    "masking-spares-mdm",
    SINKS,
    "Masking the strongest key (K = 1) barely affects what an MDM writes.",
    "the MDM loses less than five points of what it gets right",
)
MASKING_TELLS_APART = Claim(
    "masking-tells-apart",
    SINKS,
    "Masking the strongest key (K = 1) hurts an ARM more than an MDM.",
    "what masking costs, ARM minus MDM, lies above 0, both in what is right and in the log-likelihood of answers",
)


def masking_ruins_arm(evidence: Evidence) -> list[Part]:
    """What is left of what the ARM gets right, and what masking costs beyond both controls."""
    barred, right = _nothing_written_to_lose(evidence, "arm"), evidence.design.right
    unedited, masked = written(evidence, "arm"), written(evidence, "arm", 1)
    parts = [Part(f"share of {right} left", ratio_of(masked, unedited), "below", RUINED, 1.0, "unedited", "", barred)]
    for control, name in (("count", "as many random keys"), ("mass", "as much attention")):
        spared = written(evidence, "arm", 1, control)
        parts.append(
            Part(
                f"{right} lost, beyond {name}",
                difference_of(spared, masked),
                "above",
                0.0,
                mean_of(change(unedited, spared)).value,
                "control",
                "",
                barred,
            )
        )
    return parts


def masking_spares_mdm(evidence: Evidence) -> list[Part]:
    """What the MDM loses of what it gets right."""
    unedited, masked = written(evidence, "mdm"), written(evidence, "mdm", 1)
    control = mean_of(change(unedited, written(evidence, "mdm", 1, "mass"))).value
    barred, lost = _nothing_written_to_lose(evidence, "mdm"), f"{evidence.design.right} lost"
    return [Part(lost, difference_of(unedited, masked), "below", BARELY, control, "equal-mass control", "", barred)]


def masking_tells_apart(evidence: Evidence) -> list[Part]:
    """How much more masking costs the ARM than the MDM."""
    barred = "; ".join(filter(None, (_nothing_written_to_lose(evidence, role) for role in ("arm", "mdm"))))
    values = [change(written(evidence, role), written(evidence, role, 1)) for role in ("arm", "mdm")]
    nats = [change(likely(evidence, role), likely(evidence, role, 1)) for role in ("arm", "mdm")]
    lost = f"{evidence.design.right} lost, ARM - MDM"
    return [
        Part(lost, difference_of(*values), "above", 0.0, mean_of(values[1]).value, "MDM", "", barred),
        Part("nats lost, ARM - MDM", difference_of(*nats), "above", 0.0, mean_of(nats[1]).value, "MDM"),
    ]


def written(evidence: Evidence, role: str, keys: int = 0, control: str = "") -> xr.DataArray:
    """What each description or answer gets right, with that many keys masked."""
    return _masked(evidence, role, evidence.design.masking[evidence.design.written].experiment, "accuracy", keys, control)


def likely(evidence: Evidence, role: str, keys: int = 0, control: str = "") -> xr.DataArray:
    """The log-likelihood of each answer, with that many keys masked."""
    return _masked(evidence, role, "masked answers", "log_likelihood", keys, control)


def _masked(evidence: Evidence, role: str, experiment: str, column: str, keys: int, control: str) -> xr.DataArray:
    intervention = f"mask-anchors:{keys}" if keys else ""
    return evidence.outcome(role, experiment, evidence.design.masked_context, column, intervention=intervention, control=control)


def _nothing_written_to_lose(evidence: Evidence, role: str) -> str:
    design = evidence.design
    return nothing_to_lose(evidence, role, design.masking[design.written].experiment, design.masked_context)


def nothing_to_lose(evidence: Evidence, role: str, experiment: str, context: str) -> str:
    """Why a model may have nothing to lose: it is not reliably above the floor of the design. "" if it is, or if it was not asked at all.

    The floor is the shortcut, what a reader scores who ignores the person; or what the model scores without passages.
    """
    right = evidence.outcome(role, experiment, context)
    if evidence.design.floor == "shortcut":
        floor, called = evidence.outcome(role, experiment, context, "shortcut"), "the shortcut"
    else:
        floor, called = evidence.outcome(role, "noise", CLOSED_BOOK), "without passages"
        floor = floor.sel(sample=[sample for sample in floor["sample"].values if sample in right["sample"].values])  # they may be more
    if bool(right.isnull().all()):
        return ""
    if not floor.notnull().any():
        return f"{role} was not asked {called}, so it is not known what it has to lose"
    beyond = mean_of(change(right, floor))
    if beyond.low > 0:
        return ""
    scores = f"{role} scores {_in_digits(mean_of(right).value)}, {called} {_in_digits(mean_of(floor).value)}"
    if not beyond.value > 0:
        return f"nothing to lose: {scores}"
    interval = "" if math.isnan(beyond.low) else f" [{_in_digits(beyond.low)}, {_in_digits(beyond.high)}]"
    return f"too few questions: {scores}; the difference, {_in_digits(beyond.value)}{interval}, does not exclude 0"


def _in_digits(value: float) -> str:
    """As tables have it: .333, 1.00."""
    return f"{value:.2f}" if abs(value) >= 0.9995 else f"{value:.3f}".replace("0.", ".", 1)
