"""Claims about sinks: where they are, whether they stay, how much they absorb, what they are made of.

Lines come from definitions, not from results: an anchor is a key with more than four times its fair share (the rule `lift` of `floatlens.measures`), "most" is more than half.
"""

import xarray as xr

from floatlens.claims.estimates import change, difference_of, mean_of
from floatlens.claims.evidence import Evidence
from floatlens.claims.verdicts import Claim, Part

ANCHOR_LIFT = 4.0
MOST = 0.5
STRUCTURE = ("mask", "layout", "punctuation")
FLOATING, SINKS = "Floating (2601.07894)", "Sinks (2510.15731)"

FIXED_SINK = Claim(
    "fixed-sink",
    SINKS,
    "An ARM piles its attention on one sink, the first token.",
    f"the first token's share of the ARM's attention lies above {ANCHOR_LIFT:g} times its null, what makes a key an anchor",
)
SINK_STAYS = Claim(
    "sink-stays",
    SINKS,
    "An ARM's anchors are the same keys at every step and in every layer.",
    "more than half of the ARM's anchors are shared by neighbouring steps, and by neighbouring layers (Jaccard)",
)
ABSORBS_LESS = Claim(
    "absorbs-less",
    FLOATING,
    "An MDM's strongest key absorbs less attention than an ARM's.",
    "on predicting rows and prompt keys, ARM minus MDM lies above 0",
)
SMALL_VALUES_ARM = Claim(
    "small-values-arm",
    "2601.19657",
    "An ARM's anchors carry small values: they draw attention and hand on little.",
    "the anchors' value norm lies below that of the other keys",
)
SMALL_VALUES_MDM = Claim("small-values-mdm", "2601.19657", "An MDM's anchors carry small values.", SMALL_VALUES_ARM.rule)
SINKS_ON_STRUCTURE = Claim(
    "sinks-on-structure",
    SINKS,
    "An MDM's sinks sit on masks, new lines and punctuation.",
    "more than half of the anchors' mass lies on them, and more than even attention would put there",
)


def fixed_sink(evidence: Evidence) -> list[Part]:
    """The share of the ARM's predicting rows that lies on the first token."""
    share, null = (evidence.measured("arm", "on the first token", column=column) for column in ("value", "null"))
    fair = mean_of(null).value
    return [Part("on the first token", mean_of(share), "above", ANCHOR_LIFT * fair, fair, "null", "%")]


def sink_stays(evidence: Evidence) -> list[Part]:
    """What neighbouring steps and layers of the ARM have in common, beside chance."""
    parts = []
    for says, measure in (("steps", "float index (no memory)"), ("layers", "drift along layers")):
        drift, chance = (evidence.measured("arm", measure, column=column) for column in ("value", "null"))
        common = mean_of((1 - drift).assign_attrs(drift.attrs))
        parts.append(Part(f"anchors shared by {says}", common, "above", MOST, 1 - mean_of(chance).value, "null"))
    return parts


def absorbs_less(evidence: Evidence) -> list[Part]:
    """How much more the strongest key of the ARM absorbs than that of the MDM."""
    arm, mdm = (evidence.measured(twin, "on the run's strongest key", rows="rectangle") for twin in ("arm", "mdm"))
    return [Part("on the strongest key, ARM - MDM", difference_of(arm, mdm), "above", 0.0, mean_of(mdm).value, "the MDM's", "%")]


def small_values_arm(evidence: Evidence) -> list[Part]:
    """Value norm of the ARM's anchors over that of the rest."""
    return [_value_ratio(evidence, "arm", "predicting")]


def small_values_mdm(evidence: Evidence) -> list[Part]:
    """Value norm of the MDM's anchors over that of the rest."""
    return [_value_ratio(evidence, "mdm", "masked")]


def sinks_on_structure(evidence: Evidence) -> list[Part]:
    """The share of the MDM's anchor mass on masks, new lines and punctuation."""
    share, null = (_on_roles(evidence, column) for column in ("value", "null"))
    return [
        Part("anchor mass on them", mean_of(share), "above", MOST, mean_of(null).value, "null"),
        Part("more than their null", mean_of(change(share, null)), "above", 0.0, 0.0, "null"),
    ]


def _on_roles(evidence: Evidence, column: str) -> xr.DataArray:
    """What lies on masks, new lines and punctuation together, in every sample."""
    by_role = [evidence.measured("mdm", "anchor mass by role", group="masked", part=role, column=column) for role in STRUCTURE]
    return xr.concat(by_role, "role").sum("role", skipna=False).assign_attrs(by_role[0].attrs)


def _value_ratio(evidence: Evidence, twin: str, group: str) -> Part:
    ratio = evidence.measured(twin, "value norm of anchors", group=group)
    return Part("value norm, anchors / rest", mean_of(ratio), "below", 1.0, 1.0, "no difference")
