"""Claims about depth: structure in shallow layers and content in deep ones, what draws attention to anchors, and retrieval heads."""

from floatlens.claims.evidence import MASKED_CONTEXT, Evidence
from floatlens.claims.sinks import FLOATING
from floatlens.claims.verdicts import Claim, Part, change, difference_of, mean_of

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


def _silenced(evidence: Evidence, twin: str) -> Part:
    """What silencing the best heads costs beyond what silencing random ones does."""
    untouched, best, others = (
        evidence.outcome(twin, "retrieval heads", MASKED_CONTEXT, "log_likelihood", intervention=intervention, control=control)
        for intervention, control in (("", ""), ("mask-heads", ""), ("mask-heads", "heads"))
    )
    damage = mean_of(change(untouched, others)).value
    return Part("nats lost, best - random heads", difference_of(others, best), "above", 0.0, damage, "random heads")
