"""What masking did to a twin, condition by condition: outcome, removed attention, damage, and damage per removed attention, each with its interval; and the same as figures take it.

Claims about masking the strongest keys: that it ruins an ARM, spares an MDM, and that the difference is one of the models and not of the amount of attention that is gone.

What a twin writes is judged on descriptions (the share of their values that is right), and how sure it is on short answers (log-likelihood of the value). A twin whose descriptions are no better than
what ignoring the person scores has nothing to lose: its claims cannot be said.
"""

from dataclasses import dataclass

import xarray as xr

from floatlens.claims.evidence import ANSWERED_WITHOUT, DESCRIBED_WITHOUT, MASKED_CONTEXT, TWINS, Evidence
from floatlens.claims.sinks import SINKS
from floatlens.claims.verdicts import Claim, Estimate, Part, change, difference_of, mean_of, ratio_of

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


RUINED = 0.5  # less than half is left
BARELY = 0.05  # five points

MASKING_RUINS_ARM = Claim(
    "masking-ruins-arm",
    SINKS,
    "Masking its strongest key (K = 1) ruins an ARM.",
    "less than half of the ARM's right values is left, and both controls (as many random keys, as much attention) leave more",
)
MASKING_SPARES_MDM = Claim(
    "masking-spares-mdm",
    SINKS,
    "Masking its strongest key (K = 1) barely touches an MDM.",
    "the MDM loses less than five points of its right values",
)
MASKING_TELLS_APART = Claim(
    "masking-tells-apart",
    SINKS,
    "Masking the strongest key hurts an ARM more than an MDM.",
    "what the ARM loses minus what the MDM loses lies above 0: in right values, and in the likelihood of answers",
)


def masking_ruins_arm(evidence: Evidence) -> list[Part]:
    """What is left of the ARM's descriptions, beside both controls."""
    barred = at_shortcut(evidence, "arm", "masked descriptions", MASKED_CONTEXT)
    untouched, masked = written(evidence, "arm"), written(evidence, "arm", 1)
    parts = [Part("of right values, left", ratio_of(masked, untouched), "below", RUINED, 1.0, "untouched", "", barred)]
    for control, says in (("count", "as many keys"), ("mass", "as much attention")):
        spared = written(evidence, "arm", 1, control)
        parts.append(
            Part(
                f"lost beyond {says}",
                difference_of(spared, masked),
                "above",
                0.0,
                mean_of(change(untouched, spared)).value,
                "control",
                "",
                barred,
            )
        )
    return parts


def masking_spares_mdm(evidence: Evidence) -> list[Part]:
    """What the MDM's descriptions lose."""
    untouched, masked = written(evidence, "mdm"), written(evidence, "mdm", 1)
    control = mean_of(change(untouched, written(evidence, "mdm", 1, "mass"))).value
    barred = at_shortcut(evidence, "mdm", "masked descriptions", MASKED_CONTEXT)
    return [Part("right values lost", difference_of(untouched, masked), "below", BARELY, control, "equal mass", "", barred)]


def masking_tells_apart(evidence: Evidence) -> list[Part]:
    """What masking costs the ARM more than the MDM."""
    barred = " and ".join(filter(None, (at_shortcut(evidence, twin, "masked descriptions", MASKED_CONTEXT) for twin in ("arm", "mdm"))))
    values = [change(written(evidence, twin), written(evidence, twin, 1)) for twin in ("arm", "mdm")]
    nats = [change(likely(evidence, twin), likely(evidence, twin, 1)) for twin in ("arm", "mdm")]
    return [
        Part("right values lost, ARM - MDM", difference_of(*values), "above", 0.0, mean_of(values[1]).value, "the MDM's", "", barred),
        Part("nats lost, ARM - MDM", difference_of(*nats), "above", 0.0, mean_of(nats[1]).value, "the MDM's"),
    ]


def written(evidence: Evidence, twin: str, keys: int = 0, control: str = "") -> xr.DataArray:
    """The share of right values in each description, with as many keys masked."""
    done = f"mask-anchors:{keys}" if keys else ""
    return evidence.outcome(twin, "masked descriptions", MASKED_CONTEXT, intervention=done, control=control)


def likely(evidence: Evidence, twin: str, keys: int = 0, control: str = "") -> xr.DataArray:
    """The log-likelihood of each answer, with as many keys masked."""
    done = f"mask-anchors:{keys}" if keys else ""
    return evidence.outcome(twin, "masked answers", MASKED_CONTEXT, "log_likelihood", intervention=done, control=control)


def at_shortcut(evidence: Evidence, twin: str, experiment: str, context: str) -> str:
    """Why a twin may have nothing to lose: it is not surely better than a reader who ignores the person. "" if it is."""
    right, ignoring = (evidence.outcome(twin, experiment, context, column) for column in ("accuracy", "shortcut"))
    beyond = mean_of(change(right, ignoring))
    if beyond.low > 0:
        return ""
    return f"the {twin} twin is not surely above the shortcut ({mean_of(right).value:.2f}; ignoring the person scores {mean_of(ignoring).value:.2f})"
