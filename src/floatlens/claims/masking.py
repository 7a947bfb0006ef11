"""Claims about masking the strongest keys, and what masking did to each twin, condition by condition.

The claims say that masking ruins an ARM and spares an MDM, and that this is a difference between the models, not between the
amounts of attention that were removed. `masking_rows` gives outcome, removed attention, damage and damage per removed attention,
each with its interval; `masking_table` gives the same numbers per sample, as figures take them.

What a twin writes is judged on descriptions (the share of their values that is right); how sure it is, on short answers (the
log-likelihood of the value). A twin whose descriptions are no better than what ignoring the person scores has nothing to lose:
its claims are not asked.
"""

import math
from dataclasses import dataclass

import xarray as xr

from floatlens.claims.attention import SINKS
from floatlens.claims.evidence import ANSWERED_WITHOUT, DESCRIBED_WITHOUT, MASKED_CONTEXT, TWINS, Evidence
from floatlens.claims.verdicts import Claim, Estimate, Part, change, difference_of, mean_of, ratio_of

CONTROLS = {"": "anchors", "count": "count", "mass": "mass"}
"""The controls: their names in the table of answers, and those in figures."""


@dataclass(frozen=True)
class Masking:
    """An experiment under masking: the columns of its outcome and of the removed attention, its name, the counts of masked keys."""

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
    """Every condition of every experiment under masking."""
    rows = []
    for experiment, masking in MASKING.items():
        for twin in TWINS:
            table = masking_table(evidence, experiment, twin)
            unedited = table["unedited"].assign_attrs(table["outcome"].attrs)
            for keys in masking.counts:
                for kind in CONTROLS.values():
                    outcome, removed = (table[name].sel(kind=kind, k=keys, drop=True) for name in ("outcome", "removed"))
                    damage = change(unedited, outcome)
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
    table["unedited"] = evidence.outcome(twin, experiment, MASKED_CONTEXT, masking.outcome)
    return table.assign_coords(kind=list(CONTROLS.values()), k=list(masking.counts)).assign_attrs(
        outcome=masking.says, model=str(evidence.about["models"][twin])
    )


RUINED = 0.5  # less than half is left
BARELY = 0.05  # five points

MASKING_RUINS_ARM = Claim(
    "masking-ruins-arm",
    SINKS,
    "Masking the strongest key (K = 1) ruins what an ARM writes.",
    "the ARM keeps less than half of its right values, and keeps more under both controls (as many random keys, as much attention)",
)
MASKING_SPARES_MDM = Claim(
    "masking-spares-mdm",
    SINKS,
    "Masking the strongest key (K = 1) barely affects what an MDM writes.",
    "the MDM loses less than five points of its right values",
)
MASKING_TELLS_APART = Claim(
    "masking-tells-apart",
    SINKS,
    "Masking the strongest key (K = 1) hurts an ARM more than an MDM.",
    "what masking costs, ARM minus MDM, lies above 0, both in right values and in the log-likelihood of answers",
)


def masking_ruins_arm(evidence: Evidence) -> list[Part]:
    """What is left of the ARM's descriptions, and what masking costs beyond both controls."""
    barred = at_shortcut(evidence, "arm", "masked descriptions", MASKED_CONTEXT)
    unedited, masked = written(evidence, "arm"), written(evidence, "arm", 1)
    parts = [Part("share of right values left", ratio_of(masked, unedited), "below", RUINED, 1.0, "unedited", "", barred)]
    for control, name in (("count", "as many random keys"), ("mass", "as much attention")):
        spared = written(evidence, "arm", 1, control)
        parts.append(
            Part(
                f"right values lost, beyond {name}",
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
    """What the MDM's descriptions lose."""
    unedited, masked = written(evidence, "mdm"), written(evidence, "mdm", 1)
    control = mean_of(change(unedited, written(evidence, "mdm", 1, "mass"))).value
    barred = at_shortcut(evidence, "mdm", "masked descriptions", MASKED_CONTEXT)
    return [Part("right values lost", difference_of(unedited, masked), "below", BARELY, control, "equal-mass control", "", barred)]


def masking_tells_apart(evidence: Evidence) -> list[Part]:
    """How much more masking costs the ARM than the MDM."""
    barred = "; ".join(filter(None, (at_shortcut(evidence, twin, "masked descriptions", MASKED_CONTEXT) for twin in ("arm", "mdm"))))
    values = [change(written(evidence, twin), written(evidence, twin, 1)) for twin in ("arm", "mdm")]
    nats = [change(likely(evidence, twin), likely(evidence, twin, 1)) for twin in ("arm", "mdm")]
    return [
        Part("right values lost, ARM - MDM", difference_of(*values), "above", 0.0, mean_of(values[1]).value, "MDM", "", barred),
        Part("nats lost, ARM - MDM", difference_of(*nats), "above", 0.0, mean_of(nats[1]).value, "MDM"),
    ]


def written(evidence: Evidence, twin: str, keys: int = 0, control: str = "") -> xr.DataArray:
    """The share of right values in each description, with that many keys masked."""
    intervention = f"mask-anchors:{keys}" if keys else ""
    return evidence.outcome(twin, "masked descriptions", MASKED_CONTEXT, intervention=intervention, control=control)


def likely(evidence: Evidence, twin: str, keys: int = 0, control: str = "") -> xr.DataArray:
    """The log-likelihood of each answer, with that many keys masked."""
    intervention = f"mask-anchors:{keys}" if keys else ""
    return evidence.outcome(twin, "masked answers", MASKED_CONTEXT, "log_likelihood", intervention=intervention, control=control)


def at_shortcut(evidence: Evidence, twin: str, experiment: str, context: str) -> str:
    """Why a twin may have nothing to lose: it is not reliably better than a reader who ignores the person. "" if it is."""
    right, ignoring = (evidence.outcome(twin, experiment, context, column) for column in ("accuracy", "shortcut"))
    beyond = mean_of(change(right, ignoring))
    if beyond.low > 0:
        return ""
    scores = f"{twin} scores {_in_digits(mean_of(right).value)}, the shortcut {_in_digits(mean_of(ignoring).value)}"
    if not beyond.value > 0:
        return f"nothing to lose: {scores}"
    interval = "" if math.isnan(beyond.low) else f" [{_in_digits(beyond.low)}, {_in_digits(beyond.high)}]"
    return f"too few questions: {scores}; the difference, {_in_digits(beyond.value)}{interval}, does not exclude 0"


def _in_digits(value: float) -> str:
    """As tables have it: .333, 1.00."""
    return f"{value:.2f}" if abs(value) >= 0.9995 else f"{value:.3f}".replace("0.", ".", 1)
