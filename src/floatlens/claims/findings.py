"""Where ARM and MDM differ, is it the mask or the objective? twin-causal-mdm has the ARM's mask and the MDM's objective.

For every quantity: ARM minus causal MDM is the *objective* at equal mask; causal MDM minus MDM is the *mask* at equal objective; they add up to ARM minus MDM. Read off by rule: an effect of which the
interval excludes 0 is there; "mask" or "objective" if only that one is there and has the sign of the whole difference; "both" if both are and agree; "opposed" if they have different signs;
"cannot be said" where neither is, or the whole difference includes 0. Numbers of attention are those of predicting rows on prompt keys, on which all three can be compared, as far as they exist there.

All claims, each with the function that takes its numbers from the evidence. A new claim is a `Claim`, a function to its parts, and a line here.

All that follows from the evidence: verdicts, split differences, masking condition by condition, accuracies.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import xarray as xr

from floatlens.claims import contexts, depth, masking, sinks
from floatlens.claims.contexts import distance_loss, gain, middle_loss, noise_loss, noise_slope
from floatlens.claims.evidence import Accuracy, Evidence, accuracies
from floatlens.claims.masking import MaskingRow, likely, masking_rows, written
from floatlens.claims.verdicts import Claim, Estimate, Part, Verdict, change, difference_of, judge


@dataclass(frozen=True)
class Split:
    """A difference between ARM and MDM: the whole, its two parts, and what it follows."""

    quantity: str
    whole: Estimate
    objective: Estimate
    mask: Estimate
    follows: str


def _on_rectangle(measure: str) -> Callable[[Evidence, str], xr.DataArray]:
    return lambda evidence, twin: evidence.measured(twin, measure, rows="rectangle")


def _of_predicting_rows(measure: str) -> Callable[[Evidence, str], xr.DataArray]:
    return lambda evidence, twin: evidence.measured(twin, measure)


QUANTITIES: dict[str, Callable[[Evidence, str], xr.DataArray]] = {
    "on the first token, %": _on_rectangle("on the first token"),
    "on the strongest key, %": _on_rectangle("on the run's strongest key"),
    "float index": _on_rectangle("float index (no memory)"),
    "temporal variance": _on_rectangle("temporal variance"),
    "spatial variance": _on_rectangle("spatial variance"),
    "structure over depth, slope": _of_predicting_rows("structure over depth"),
    "value norm of anchors / rest": _of_predicting_rows("value norm of anchors"),
    "right values lost to masking 1": lambda evidence, twin: change(written(evidence, twin), written(evidence, twin, 1)),
    "nats lost to masking 1": lambda evidence, twin: change(likely(evidence, twin), likely(evidence, twin, 1)),
    "nats lost to masking 10": lambda evidence, twin: change(likely(evidence, twin), likely(evidence, twin, 10)),
    "accuracy gained from passages": gain,
    "accuracy lost to noise": noise_loss,
    "accuracy over noise, slope": noise_slope,
    "nats over noise, slope": lambda evidence, twin: noise_slope(evidence, twin, "log_likelihood"),
    "accuracy lost in the middle": middle_loss,
    "nats lost in the middle": lambda evidence, twin: middle_loss(evidence, twin, "log_likelihood"),
    "accuracy lost to distance": distance_loss,
}
"""One number a sample for each twin."""


def split_differences(evidence: Evidence) -> list[Split]:
    """Every difference between ARM and MDM, split into objective and mask."""
    found = []
    for quantity, of in QUANTITIES.items():
        arm, mdm, between = (of(evidence, twin) for twin in ("arm", "mdm", "causal-mdm"))
        whole, objective, mask = difference_of(arm, mdm), difference_of(arm, between), difference_of(between, mdm)
        found.append(Split(quantity, whole, objective, mask, followed(whole, objective, mask)))
    return found


def followed(whole: Estimate, objective: Estimate, mask: Estimate) -> str:
    """What a difference follows, by the rule at the top of this module.

    Examples
    --------
    >>> large, none = Estimate(2.0, 1.0, 3.0, 9), Estimate(0.1, -0.5, 0.7, 9)
    >>> followed(large, none, large), followed(large, large, none), followed(none, none, none)
    ('mask', 'objective', 'cannot be said')
    """
    signs = {name: _sign(one) for name, one in (("whole", whole), ("objective", objective), ("mask", mask))}
    if signs["objective"] * signs["mask"] < 0:
        return "opposed"
    there = [name for name in ("mask", "objective") if signs[name] and signs[name] == signs["whole"]]
    return "both" if len(there) == 2 else there[0] if there else "cannot be said"


def _sign(one: Estimate) -> int:
    """1 or -1 where the interval excludes 0, else 0."""
    if math.isnan(one.low) or math.isnan(one.high):
        return 0
    return 1 if one.low > 0 else -1 if one.high < 0 else 0


CLAIMS: tuple[tuple[Claim, Callable[[Evidence], list[Part]]], ...] = (
    (sinks.FIXED_SINK, sinks.fixed_sink),
    (sinks.SINK_STAYS, sinks.sink_stays),
    (sinks.ABSORBS_LESS, sinks.absorbs_less),
    (sinks.SMALL_VALUES_ARM, sinks.small_values_arm),
    (sinks.SMALL_VALUES_MDM, sinks.small_values_mdm),
    (sinks.SINKS_ON_STRUCTURE, sinks.sinks_on_structure),
    (sinks.FLOATS, sinks.floats),
    (sinks.FLOATS_MORE, sinks.floats_more),
    (sinks.VARIANCES, sinks.variances),
    (sinks.FRONTIER, sinks.frontier),
    (depth.STRUCTURE_THEN_CONTENT, depth.structure_then_content),
    (depth.GEOMETRY, depth.geometry),
    (depth.RETRIEVAL_HEADS, depth.retrieval_heads),
    (depth.RETRIEVAL_WHEN_DEEP, depth.retrieval_when_deep),
    (masking.MASKING_RUINS_ARM, masking.masking_ruins_arm),
    (masking.MASKING_SPARES_MDM, masking.masking_spares_mdm),
    (masking.MASKING_TELLS_APART, masking.masking_tells_apart),
    (contexts.GAINS_MORE, contexts.gains_more),
    (contexts.ROBUST_TO_NOISE, contexts.robust_to_noise),
    (contexts.ROBUST_TO_POSITION, contexts.robust_to_position),
    (contexts.ROBUST_TO_LAYOUT, contexts.robust_to_layout),
)


def judge_all(evidence: Evidence) -> list[Verdict]:
    """The verdict on every claim."""
    return [judge(claim, parts_of(evidence)) for claim, parts_of in CLAIMS]


@dataclass(frozen=True, eq=False)
class Findings:
    """What a study found, and what was run (`about`)."""

    verdicts: list[Verdict]
    splits: list[Split]
    masking: list[MaskingRow]
    accuracies: list[Accuracy]
    about: dict[str, Any]


def findings_of(evidence: Evidence) -> Findings:
    """Judge every claim, split every difference, and put the tables beside them."""
    return Findings(judge_all(evidence), split_differences(evidence), masking_rows(evidence), accuracies(evidence), evidence.about)
