"""Claims about sinks: where they are, whether they stay, how much they absorb, what they are made of.

Lines come from definitions, not from results: an anchor is a key with more than four times its fair share (the rule `lift` of `floatlens.measures`), "most" is more than half.

Claims about floating: that an MDM's anchors move, move more than an ARM's, and follow what is being written.
"""

import xarray as xr

from floatlens.claims.evidence import Evidence
from floatlens.claims.verdicts import Claim, Part, Side, change, difference_of, mean_of

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


FLOATS = Claim(
    "floats",
    FLOATING,
    "An MDM's anchors float: they move from step to step.",
    "the movement of the masked rows' anchors, beyond the noise of their rows, lies above 0",
)
FLOATS_MORE = Claim(
    "floats-more",
    FLOATING,
    "An MDM's anchors float more than an ARM's.",
    "on predicting rows and prompt keys, one row a step in both, the MDM's float index minus the ARM's lies above 0",
)
VARIANCES = Claim(
    "variances",
    "2602.17664",
    "An ARM's attention is uneven over positions and still over time; an MDM's the reverse.",
    "on predicting rows and prompt keys, the MDM's temporal variance lies above the ARM's, and its spatial variance below",
)
FRONTIER = Claim(
    "frontier",
    SINKS,
    "An MDM's anchors follow the unmasking frontier.",
    "the correlation of their moves with those of the committed positions lies above that of circular shifts",
)


def floats(evidence: Evidence) -> list[Part]:
    """How much of the MDM's anchors is replaced from step to step, beyond noise."""
    noise = mean_of(evidence.measured("mdm", "float index (no movement)", group="masked", column="null")).value
    moved = mean_of(evidence.measured("mdm", "movement", group="masked"))
    return [Part("anchors replaced beyond noise", moved, "above", 0.0, noise, "by noise")]


def floats_more(evidence: Evidence) -> list[Part]:
    """The float index of the MDM minus that of the ARM."""
    mdm, arm = (evidence.measured(twin, "float index (no memory)", rows="rectangle") for twin in ("mdm", "arm"))
    return [Part("float index, MDM - ARM", difference_of(mdm, arm), "above", 0.0, mean_of(arm).value, "the ARM's")]


def variances(evidence: Evidence) -> list[Part]:
    """Temporal variance of the anchors' centroid and spatial variance of the mean profile, MDM minus ARM."""
    sides: dict[str, Side] = {"temporal": "above", "spatial": "below"}
    parts = []
    for says, side in sides.items():
        mdm, arm = (evidence.measured(twin, f"{says} variance", rows="rectangle") for twin in ("mdm", "arm"))
        parts.append(Part(f"{says} variance, MDM - ARM", difference_of(mdm, arm), side, 0.0, mean_of(arm).value, "the ARM's"))
    return parts


def frontier(evidence: Evidence) -> list[Part]:
    """How far the MDM's anchors move with the frontier, beside circular shifts."""
    found, null = (evidence.measured("mdm", "follows the frontier", group="masked", column=column) for column in ("value", "null"))
    return [Part("correlation, less its null", mean_of(change(found, null)), "above", 0.0, mean_of(null).value, "null")]
