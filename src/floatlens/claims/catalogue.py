"""All claims, each with the function that takes its numbers from the evidence. A new claim is a `Claim`, a function to its parts, and a line here."""

from collections.abc import Callable

from floatlens.claims import context_claims, depth_claims, floating_claims, masking_claims, sink_claims
from floatlens.claims.evidence import Evidence
from floatlens.claims.verdicts import Claim, Part, Verdict, judge

CLAIMS: tuple[tuple[Claim, Callable[[Evidence], list[Part]]], ...] = (
    (sink_claims.FIXED_SINK, sink_claims.fixed_sink),
    (sink_claims.SINK_STAYS, sink_claims.sink_stays),
    (sink_claims.ABSORBS_LESS, sink_claims.absorbs_less),
    (sink_claims.SMALL_VALUES_ARM, sink_claims.small_values_arm),
    (sink_claims.SMALL_VALUES_MDM, sink_claims.small_values_mdm),
    (sink_claims.SINKS_ON_STRUCTURE, sink_claims.sinks_on_structure),
    (floating_claims.FLOATS, floating_claims.floats),
    (floating_claims.FLOATS_MORE, floating_claims.floats_more),
    (floating_claims.VARIANCES, floating_claims.variances),
    (floating_claims.FRONTIER, floating_claims.frontier),
    (depth_claims.STRUCTURE_THEN_CONTENT, depth_claims.structure_then_content),
    (depth_claims.GEOMETRY, depth_claims.geometry),
    (depth_claims.RETRIEVAL_HEADS, depth_claims.retrieval_heads),
    (depth_claims.RETRIEVAL_WHEN_DEEP, depth_claims.retrieval_when_deep),
    (masking_claims.MASKING_RUINS_ARM, masking_claims.masking_ruins_arm),
    (masking_claims.MASKING_SPARES_MDM, masking_claims.masking_spares_mdm),
    (masking_claims.MASKING_TELLS_APART, masking_claims.masking_tells_apart),
    (context_claims.GAINS_MORE, context_claims.gains_more),
    (context_claims.ROBUST_TO_NOISE, context_claims.robust_to_noise),
    (context_claims.ROBUST_TO_POSITION, context_claims.robust_to_position),
    (context_claims.ROBUST_TO_LAYOUT, context_claims.robust_to_layout),
)


def judge_all(evidence: Evidence) -> list[Verdict]:
    """The verdict on every claim."""
    return [judge(claim, parts_of(evidence)) for claim, parts_of in CLAIMS]
