"""Claims about depth: structure when shallow and content when deep, what draws attention to an anchor, and the heads that retrieve."""

from floatlens.claims.evidence import MASKED_CONTEXT, Evidence
from floatlens.claims.sinks import FLOATING
from floatlens.claims.verdicts import Claim, Part, change, difference_of, mean_of

RETRIEVES = 0.1  # the score above which a head counts as a retrieval head (Wu et al. 2024)
FEW = 0.1

STRUCTURE_THEN_CONTENT = Claim(
    "structure-then-content",
    FLOATING,
    "An MDM is structure-aware when shallow and content-focused when deep.",
    "the slope of the structural enrichment of the MDM's anchors over depth lies below 0",
)
GEOMETRY = Claim(
    "geometry",
    FLOATING,
    "An MDM's anchors win by direction and norm when shallow, by direction against the norm when deep.",
    "direction lies above 0 in both thirds; norm lies above 0 when shallow and below 0 when deep",
)
RETRIEVAL_HEADS = Claim(
    "retrieval-heads",
    "2404.15574",
    "Few heads copy from the passage, in ARMs, and the answer needs them.",
    "fewer than a tenth of the ARM's heads score above .1; silencing the best costs more likelihood than as many random heads of the same layers",
)
RETRIEVAL_WHEN_DEEP = Claim(
    "retrieval-when-deep",
    FLOATING,
    "An MDM's heads that copy from the passage lie deep, and the answer needs them.",
    "the deep third scores above the shallow third; silencing the best costs more likelihood than as many random heads of the same layers",
)


def structure_then_content(evidence: Evidence) -> list[Part]:
    """How structural enrichment changes with depth in the MDM."""
    slope = evidence.measured("mdm", "structure over depth", group="masked")
    return [Part("slope of structural enrichment", mean_of(slope), "below", 0.0, 0.0, "even attention")]


def geometry(evidence: Evidence) -> list[Part]:
    """What direction and norm contribute to the advantage of the MDM's anchors, shallow and deep."""
    parts = []
    for depth in ("shallow", "deep"):
        for what in ("direction", "norm"):
            found = evidence.measured("mdm", "score advantage of anchors", group="masked", part=what, depth=depth)
            side = "below" if (depth, what) == ("deep", "norm") else "above"
            parts.append(Part(f"{what} when {depth}", mean_of(found), side, 0.0, 0.0, "no advantage"))
    return parts


def retrieval_heads(evidence: Evidence) -> list[Part]:
    """The share of the ARM's heads that retrieve, and what silencing the best of them costs."""
    share, null = (mean_of(evidence.share_of_heads("arm", RETRIEVES, column)) for column in ("score", "null"))
    return [Part("heads above .1", share, "below", FEW, null.value, "shuffled"), _silenced(evidence, "arm")]


def retrieval_when_deep(evidence: Evidence) -> list[Part]:
    """How much higher the MDM's deep heads score than its shallow ones, and what silencing the best of them costs."""
    deep, shallow = (evidence.head_scores("mdm", third) for third in ("deep", "shallow"))
    return [
        Part("retrieval score, deep - shallow", difference_of(deep, shallow), "above", 0.0, mean_of(shallow).value, "shallow"),
        _silenced(evidence, "mdm"),
    ]


def _silenced(evidence: Evidence, twin: str) -> Part:
    """The damage of silencing the best heads, beyond that of silencing random ones."""
    untouched, best, others = (
        evidence.outcome(twin, "retrieval heads", MASKED_CONTEXT, "log_likelihood", intervention=intervention, control=control)
        for intervention, control in (("", ""), ("mask-heads", ""), ("mask-heads", "heads"))
    )
    damage = mean_of(change(untouched, others)).value
    return Part("nats lost, best - random heads", difference_of(others, best), "above", 0.0, damage, "random heads")
