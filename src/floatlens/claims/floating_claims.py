"""Claims about floating: that an MDM's anchors move, move more than an ARM's, and follow what is being written."""

from floatlens.claims.estimates import change, difference_of, mean_of
from floatlens.claims.evidence import Evidence
from floatlens.claims.sink_claims import FLOATING, SINKS
from floatlens.claims.verdicts import Claim, Part, Side

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
