"""Claims about where attention goes: sinks, floating anchors, how both change with depth, and what flows to the gold passage.

Thresholds come from definitions and from the papers, not from results: an anchor is a key that receives more than four times its fair
share (the rule `lift` of `floatlens.measures`), "most" means more than half, and four per cent is what the paper on sinks says that its
threshold keeps.
"""

import xarray as xr

from floatlens.claims.evidence import Evidence
from floatlens.claims.verdicts import Claim, Part, Side, change, difference_of, mean_of

ANCHOR_LIFT = 4.0
MOST = 0.5
KEPT = 4.0  # per cent
STRUCTURE = ("mask", "layout", "punctuation")
THRESHOLD = "kept at eps = 3 (additive)"
FAIR_ROLLOUT = "fair rollout of the answer"
"""Measures that are taken for claims alone."""
FLOATING, SINKS, SMALL_VALUES, VARIANCE = "arXiv:2601.07894", "arXiv:2510.15731", "arXiv:2601.19657", "arXiv:2602.17664"

FIXED_SINK = Claim(
    "fixed-sink",
    SINKS,
    "An ARM piles its attention on one sink, the first token.",
    f"the first token's share of the ARM's attention lies above {ANCHOR_LIFT:g} times its null, the share that makes a key an anchor",
)
SINK_STAYS = Claim(
    "sink-stays",
    SINKS,
    "An ARM's anchors are the same keys at every step and in every layer.",
    "neighbouring steps share more than half of the ARM's anchors (Jaccard index), and so do neighbouring layers",
)
ABSORBS_LESS = Claim(
    "absorbs-less",
    FLOATING,
    "An MDM's strongest key absorbs less attention than an ARM's.",
    "on the shared rectangle (predicting rows, prompt keys), the share of the strongest key, ARM minus MDM, lies above 0",
)
SMALL_VALUES_ARM = Claim(
    "small-values-arm",
    SMALL_VALUES,
    "An ARM's anchors carry small values: they draw attention and pass on little.",
    "the value norm of anchors, divided by that of the other keys, lies below 1",
)
SMALL_VALUES_MDM = Claim("small-values-mdm", SMALL_VALUES, "An MDM's anchors carry small values.", SMALL_VALUES_ARM.rule)
SINKS_ON_STRUCTURE = Claim(
    "sinks-on-structure",
    SINKS,
    "An MDM's sinks sit on masks, line breaks and punctuation.",
    "more than half of the mass of the MDM's anchors lies on them, and more than even attention would put there",
)
THRESHOLD_KEEPS_FEW = Claim(
    "threshold-keeps-few",
    SINKS,
    "The sink threshold (eps = 3) leaves fewer than 4 % of an MDM's tokens.",
    "of the keys of the MDM, the additive rule with eps = 3 calls fewer than 4 % anchors, for masked and for unmasked rows",
)


def fixed_sink(evidence: Evidence) -> list[Part]:
    """The share of the ARM's predicting rows that lies on the first token."""
    share, null = (evidence.measured("arm", "on the first token", column=column) for column in ("value", "null"))
    fair = mean_of(null).value
    return [Part("share of the first token", mean_of(share), "above", ANCHOR_LIFT * fair, fair, "null", "%")]


def sink_stays(evidence: Evidence) -> list[Part]:
    """The share of anchors that neighbouring steps and layers of the ARM have in common, and what chance would give."""
    parts = []
    for neighbours, measure in (("steps", "float index (no memory)"), ("layers", "drift along layers")):
        drift, chance = (evidence.measured("arm", measure, column=column) for column in ("value", "null"))
        common = mean_of((1 - drift).assign_attrs(drift.attrs))
        parts.append(Part(f"anchors shared by neighbouring {neighbours}", common, "above", MOST, 1 - mean_of(chance).value, "null"))
    return parts


def absorbs_less(evidence: Evidence) -> list[Part]:
    """How much more the strongest key of the ARM absorbs than that of the MDM."""
    arm, mdm = (evidence.measured(role, "on the run's strongest key", rows="rectangle") for role in ("arm", "mdm"))
    return [Part("share of the strongest key, ARM - MDM", difference_of(arm, mdm), "above", 0.0, mean_of(mdm).value, "MDM", "%")]


def small_values_arm(evidence: Evidence) -> list[Part]:
    """Value norm of the ARM's anchors over that of its other keys."""
    return [_value_ratio(evidence, "arm", "predicting")]


def small_values_mdm(evidence: Evidence) -> list[Part]:
    """Value norm of the MDM's anchors over that of its other keys."""
    return [_value_ratio(evidence, "mdm", "masked")]


def sinks_on_structure(evidence: Evidence) -> list[Part]:
    """The share of the MDM's anchor mass on masks, line breaks and punctuation."""
    share, null = (_on_roles(evidence, column) for column in ("value", "null"))
    return [
        Part("share of the anchors' mass", mean_of(share), "above", MOST, mean_of(null).value, "null"),
        Part("share minus its null", mean_of(change(share, null)), "above", 0.0, 0.0, "even attention"),
    ]


def threshold_keeps_few(evidence: Evidence) -> list[Part]:
    """The share of keys that the additive rule keeps at eps = 3, and of the attention that lies on them."""
    parts = []
    for group in ("masked", "unmasked"):
        kept, absorbed = (evidence.measured("mdm", THRESHOLD, group=group, part=part) for part in ("keys", "attention"))
        parts.append(
            Part(
                f"share of keys kept, {group} rows", mean_of(kept), "below", KEPT, mean_of(absorbed).value, "their share of attention", "%"
            )
        )
    return parts


def _on_roles(evidence: Evidence, column: str) -> xr.DataArray:
    """What lies on masks, line breaks and punctuation together, in each sample."""
    by_role = [evidence.measured("mdm", "anchor mass by role", group="masked", part=role, column=column) for role in STRUCTURE]
    return xr.concat(by_role, "role").sum("role", skipna=False).assign_attrs(by_role[0].attrs)


def _value_ratio(evidence: Evidence, role: str, group: str) -> Part:
    ratio = evidence.measured(role, "value norm of anchors", group=group)
    return Part("value norm, anchors / other keys", mean_of(ratio), "below", 1.0, 1.0, "no difference")


FLOATS = Claim(
    "floats",
    FLOATING,
    "An MDM's anchors float: they move from step to step.",
    "the anchors of the masked rows move more between steps than the noise of those rows explains (movement above 0)",
)
FLOATS_MORE = Claim(
    "floats-more",
    FLOATING,
    "An MDM's anchors float more than an ARM's.",
    "on the shared rectangle (predicting rows, prompt keys; one row per step in both), the float index, MDM minus ARM, lies above 0",
)
VARIANCES = Claim(
    "variances",
    VARIANCE,
    "An ARM's attention varies over positions but not over time; an MDM's varies over time but not over positions.",
    "on the shared rectangle (predicting rows, prompt keys), MDM minus ARM lies above 0 for temporal and below 0 for spatial variance",
)
FRONTIER = Claim(
    "frontier",
    SINKS,
    "An MDM's anchors follow the unmasking frontier.",
    "their moves correlate with those of the committed positions more than circularly shifted moves do",
)
STRONGEST_KEY_MOVES = Claim(
    "strongest-key-moves",
    FLOATING,
    "The strongest key moves while an MDM writes, and stays while an ARM does.",
    "in texts written left to right, the path of the MDM's strongest key (layers pooled) moves more than noise explains, both for the "
    "fixed rows of the prompt (all keys) and for the predicting rows (prompt keys, because these rows move and look at themselves); the "
    "predicting rows of the ARM spend more than half of their steps on one key of the prompt",
)


def floats(evidence: Evidence) -> list[Part]:
    """How much of the MDM's anchors is replaced from step to step, beyond noise."""
    noise = mean_of(evidence.measured("mdm", "float index (no movement)", group="masked", column="null")).value
    moved = mean_of(evidence.measured("mdm", "movement", group="masked"))
    return [Part("movement beyond noise", moved, "above", 0.0, noise, "noise alone replaces")]


def strongest_key_moves(evidence: Evidence) -> list[Part]:
    """How much the path of the MDM's strongest key moves beyond noise, and how much of the time the ARM stays on one key."""
    lines = ("movement of the path", "changes of the path", "steps on the favourite key")
    moves, changes, favourite = (f"{line}, layers pooled" for line in lines)
    parts = []
    for group, keys in (("prompt", "all keys"), ("predicting", "prompt keys")):
        where = {"group": group, "part": keys, "rows": "left to right"}
        noise = mean_of(evidence.measured("mdm", changes, column="null", **where)).value
        moved = mean_of(evidence.measured("mdm", moves, **where))
        parts.append(Part(f"MDM, movement beyond noise, {group} rows", moved, "above", 0.0, noise, "noise alone changes"))
    share, noise = (
        evidence.measured("arm", favourite, part="prompt keys", rows="left to right", column=column) for column in ("value", "null")
    )
    return [*parts, Part("ARM, share of steps on one key", mean_of(share), "above", MOST, mean_of(noise).value, "noise alone leaves")]


def floats_more(evidence: Evidence) -> list[Part]:
    """The float index of the MDM minus that of the ARM."""
    mdm, arm = (evidence.measured(role, "float index (no memory)", rows="rectangle") for role in ("mdm", "arm"))
    return [Part("float index, MDM - ARM", difference_of(mdm, arm), "above", 0.0, mean_of(arm).value, "ARM")]


def variances(evidence: Evidence) -> list[Part]:
    """Temporal variance of the anchors' centroid and spatial variance of the mean profile, MDM minus ARM."""
    sides: dict[str, Side] = {"temporal": "above", "spatial": "below"}
    parts = []
    for kind, side in sides.items():
        mdm, arm = (evidence.measured(role, f"{kind} variance", rows="rectangle") for role in ("mdm", "arm"))
        parts.append(Part(f"{kind} variance, MDM - ARM", difference_of(mdm, arm), side, 0.0, mean_of(arm).value, "ARM"))
    return parts


def frontier(evidence: Evidence) -> list[Part]:
    """How closely the MDM's anchors follow the frontier, minus what circular shifts of their moves give."""
    correlation, null = (evidence.measured("mdm", "follows the frontier", group="masked", column=column) for column in ("value", "null"))
    return [Part("correlation minus its null", mean_of(change(correlation, null)), "above", 0.0, mean_of(null).value, "null")]


RETRIEVES = 0.1  # the score above which a head counts as a retrieval head (Wu et al. 2024)
FEW = 0.1

STRUCTURE_THEN_CONTENT = Claim(
    "structure-then-content",
    FLOATING,
    "An MDM attends to structure in shallow layers and to content in deep layers.",
    "the structural enrichment of the MDM's anchors falls with depth (slope below 0)",
)
GEOMETRY = Claim(
    "geometry",
    FLOATING,
    "An MDM's anchors win by direction and norm in shallow layers, and by direction against the norm in deep layers.",
    "what direction contributes to the anchors' scores lies above 0 in the shallow and in the deep third of the layers; "
    "what the norm contributes lies above 0 in the shallow third and below 0 in the deep third",
)
RETRIEVAL_HEADS = Claim(
    "retrieval-heads",
    "arXiv:2404.15574",
    "In an ARM, few heads copy from the passage, and the answer needs them.",
    "fewer than a tenth of the ARM's heads have a retrieval score above .1, and silencing the best heads costs more likelihood "
    "than silencing as many random heads of the same layers",
)
RETRIEVAL_WHEN_DEEP = Claim(
    "retrieval-when-deep",
    FLOATING,
    "In an MDM, the heads that copy from the passage lie in deep layers, and the answer needs them.",
    "the retrieval scores of the deep third of the layers lie above those of the shallow third, and silencing the best heads costs "
    "more likelihood than silencing as many random heads of the same layers",
)


def structure_then_content(evidence: Evidence) -> list[Part]:
    """How structural enrichment changes with depth in the MDM."""
    slope = evidence.measured("mdm", "structure over depth", group="masked")
    return [Part("slope of structural enrichment over depth", mean_of(slope), "below", 0.0, 0.0, "even attention")]


def geometry(evidence: Evidence) -> list[Part]:
    """What direction and norm contribute to the advantage of the MDM's anchors, shallow and deep."""
    parts = []
    for depth in ("shallow", "deep"):
        for what in ("direction", "norm"):
            contribution = evidence.measured("mdm", "score advantage of anchors", group="masked", part=what, depth=depth)
            side = "below" if (depth, what) == ("deep", "norm") else "above"
            parts.append(Part(f"{what}, {depth} layers", mean_of(contribution), side, 0.0, 0.0, "no advantage"))
    return parts


def retrieval_heads(evidence: Evidence) -> list[Part]:
    """The share of the ARM's heads that retrieve, and what silencing the best of them costs."""
    share, null = (mean_of(evidence.share_of_heads("arm", RETRIEVES, column)) for column in ("score", "null"))
    return [Part("share of heads that score above .1", share, "below", FEW, null.value, "shuffled"), _silenced(evidence, "arm")]


def retrieval_when_deep(evidence: Evidence) -> list[Part]:
    """How much higher the heads of the MDM's deep layers score than those of its shallow layers, and what silencing the best costs."""
    deep, shallow = (evidence.head_scores("mdm", third) for third in ("deep", "shallow"))
    return [
        Part("retrieval score, deep - shallow", difference_of(deep, shallow), "above", 0.0, mean_of(shallow).value, "shallow layers"),
        _silenced(evidence, "mdm"),
    ]


def _silenced(evidence: Evidence, role: str) -> Part:
    """What silencing the best heads costs beyond what silencing random ones does."""
    unedited, best, others = (
        evidence.outcome(
            role, "retrieval heads", evidence.design.masked_context, "log_likelihood", intervention=intervention, control=control
        )
        for intervention, control in (("", ""), ("mask-heads", ""), ("mask-heads", "heads"))
    )
    damage = mean_of(change(unedited, others)).value
    return Part("nats lost, best - random heads", difference_of(others, best), "above", 0.0, damage, "random heads")


FLOWS_TO_GOLD = Claim(
    "flows-to-gold",
    FLOATING,
    "In an MDM, the answer's attention flows to the gold passage wherever it stands.",
    "at every slot, the gold passage gets more of the attention of the MDM's answer than the other passages of the same prompt, each "
    "divided by what even attention gives it: directly (predicting rows, mean over layers) and rolled out through all layers",
)


def flows_to_gold(evidence: Evidence) -> list[Part]:
    """What flows to the gold passage beyond what flows to the others, in fair shares, slot by slot."""
    parts = []
    for says, measure in (("direct", "fair flow"), ("rolled out", FAIR_ROLLOUT)):
        for slot in range(1, evidence.design.slots + 1):
            by_passage = {
                number: evidence.at_slot(evidence.measured("mdm", measure, group="", part=f"doc_{number}"), slot)
                for number in range(1, evidence.design.slots + 1)
            }
            gold = by_passage.pop(slot)
            others = xr.concat(list(by_passage.values()), "passage", coords="minimal", compat="override").mean("passage", skipna=False)
            others = others.assign_attrs(gold.attrs)
            name = f"{says}, gold at slot {slot}, gold - others"
            parts.append(Part(name, difference_of(gold, others), "above", 0.0, mean_of(others).value, "other passages"))
    return parts
