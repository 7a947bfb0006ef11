"""All that follows from the evidence: a verdict on every claim, every difference split into mask and objective, and the tables.

A new claim is a `Claim`, a function from the evidence to its parts, and a line in `CLAIMS`.

Where ARM and MDM differ, is it the mask or the objective? The causal MDM has the ARM's mask and the MDM's objective. For every
quantity, ARM minus causal MDM is the effect of the *objective* at equal mask, causal MDM minus MDM is the effect of the *mask* at
equal objective, and the two add up to ARM minus MDM. An effect counts if its interval excludes 0. The difference follows "mask" or
"objective" if only that one counts and has the sign of the difference, and "both" if both do; they are "opposed" if they have
different signs. It is "inconclusive" if neither counts or the interval of the difference includes 0, and "not asked" if a number was
not measured, or rests on fewer prompts than the design demands. Numbers of attention are those of the shared rectangle (predicting
rows, prompt keys), as far as they exist there.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import xarray as xr

from floatlens.claims import attention, contexts, masking
from floatlens.claims.contexts import distance_loss, gain, middle_loss, noise_loss, noise_slope
from floatlens.claims.design import WORLD, Design
from floatlens.claims.evidence import Accuracy, Evidence, accuracies
from floatlens.claims.masking import MaskingRow, likely, masking_rows, written
from floatlens.claims.verdicts import Claim, Estimate, Part, Verdict, change, difference_of, judge
from floatlens.terminal import counted

WHOLE_INCLUDES_0 = "the interval of the difference includes 0"
PARTS_INCLUDE_0 = "the intervals of both effects include 0"


@dataclass(frozen=True)
class Split:
    """A difference between ARM and MDM: the whole, its two parts, what it follows, and the reason where that is open."""

    quantity: str
    whole: Estimate
    objective: Estimate
    mask: Estimate
    follows: str
    reason: str = ""


def _on_rectangle(measure: str) -> Callable[[Evidence, str], xr.DataArray]:
    return lambda evidence, role: evidence.measured(role, measure, rows="rectangle")


def _of_predicting_rows(measure: str) -> Callable[[Evidence, str], xr.DataArray]:
    return lambda evidence, role: evidence.measured(role, measure)


QUANTITIES: dict[str, Callable[[Evidence, str], xr.DataArray]] = {
    "share of the first token, %": _on_rectangle("on the first token"),
    "share of the strongest key, %": _on_rectangle("on the run's strongest key"),
    "float index": _on_rectangle("float index (no memory)"),
    "changes of the strongest key": _on_rectangle("changes of the path, layers pooled"),
    "temporal variance": _on_rectangle("temporal variance"),
    "spatial variance": _on_rectangle("spatial variance"),
    "slope of structure over depth": _of_predicting_rows("structure over depth"),
    "value norm, anchors / other keys": _of_predicting_rows("value norm of anchors"),
    "accuracy lost, 1 key masked": lambda evidence, role: change(written(evidence, role), written(evidence, role, 1)),
    "nats lost, 1 key masked": lambda evidence, role: change(likely(evidence, role), likely(evidence, role, 1)),
    "nats lost, 10 keys masked": lambda evidence, role: change(likely(evidence, role), likely(evidence, role, 10)),
    "accuracy gained from passages": gain,
    "accuracy lost to noise": noise_loss,
    "slope of accuracy over noise": noise_slope,
    "slope of nats over noise": lambda evidence, role: noise_slope(evidence, role, "log_likelihood"),
    "accuracy lost in the middle": middle_loss,
    "nats lost in the middle": lambda evidence, role: middle_loss(evidence, role, "log_likelihood"),
    "accuracy lost to distance": distance_loss,
}
"""Functions from the evidence and a role to one number per sample."""


def split_differences(evidence: Evidence) -> list[Split]:
    """Every difference between ARM and MDM, split into objective and mask."""
    splits = []
    for quantity, values_of in QUANTITIES.items():
        arm, mdm, between = (values_of(evidence, role) for role in ("arm", "mdm", "causal-mdm"))
        whole, objective, mask = difference_of(arm, mdm), difference_of(arm, between), difference_of(between, mdm)
        splits.append(Split(quantity, whole, objective, mask, *followed(whole, objective, mask, evidence.design.fewest)))
    return splits


def followed(whole: Estimate, objective: Estimate, mask: Estimate, fewest: int = 0) -> tuple[str, str]:
    """What a difference follows by the rule at the top of this module, and the reason where that is open.

    Examples
    --------
    >>> large, none = Estimate(2.0, 1.0, 3.0, 9), Estimate(0.1, -0.5, 0.7, 9)
    >>> followed(large, none, large), followed(large, large, none)
    (('mask', ''), ('objective', ''))
    >>> followed(none, none, none)
    ('inconclusive', 'the interval of the difference includes 0')
    """
    if missing := [effect for effect in (whole, objective, mask) if math.isnan(effect.value)]:
        return "not asked", missing[0].reason or "it was not measured"
    if few := [effect for effect in (whole, objective, mask) if effect.prompts < fewest]:
        return "not asked", too_few(few[0].prompts, fewest)
    signs = {name: _sign(effect) for name, effect in (("whole", whole), ("objective", objective), ("mask", mask))}
    if signs["objective"] * signs["mask"] < 0:
        return "opposed", ""
    counting = [name for name in ("mask", "objective") if signs[name] and signs[name] == signs["whole"]]
    if counting:
        return ("both" if len(counting) == 2 else counting[0]), ""
    if math.isnan(whole.low) or math.isnan(whole.high):
        return "inconclusive", whole.reason or "there is no interval"
    return "inconclusive", PARTS_INCLUDE_0 if signs["whole"] else WHOLE_INCLUDES_0


def _sign(effect: Estimate) -> int:
    """1 or -1 where the interval excludes 0, else 0."""
    if math.isnan(effect.low) or math.isnan(effect.high):
        return 0
    return 1 if effect.low > 0 else -1 if effect.high < 0 else 0


CLAIMS: tuple[tuple[Claim, Callable[[Evidence], list[Part]]], ...] = (
    (attention.FIXED_SINK, attention.fixed_sink),
    (attention.SINK_STAYS, attention.sink_stays),
    (attention.ABSORBS_LESS, attention.absorbs_less),
    (attention.SMALL_VALUES_ARM, attention.small_values_arm),
    (attention.SMALL_VALUES_MDM, attention.small_values_mdm),
    (attention.SINKS_ON_STRUCTURE, attention.sinks_on_structure),
    (attention.THRESHOLD_KEEPS_FEW, attention.threshold_keeps_few),
    (attention.FLOATS, attention.floats),
    (attention.FLOATS_MORE, attention.floats_more),
    (attention.STRONGEST_KEY_MOVES, attention.strongest_key_moves),
    (attention.VARIANCES, attention.variances),
    (attention.FRONTIER, attention.frontier),
    (attention.STRUCTURE_THEN_CONTENT, attention.structure_then_content),
    (attention.GEOMETRY, attention.geometry),
    (attention.RETRIEVAL_HEADS, attention.retrieval_heads),
    (attention.RETRIEVAL_WHEN_DEEP, attention.retrieval_when_deep),
    (attention.FLOWS_TO_GOLD, attention.flows_to_gold),
    (masking.MASKING_RUINS_ARM, masking.masking_ruins_arm),
    (masking.MASKING_SPARES_MDM, masking.masking_spares_mdm),
    (masking.MASKING_TELLS_APART, masking.masking_tells_apart),
    (contexts.GAINS_MORE, contexts.gains_more),
    (contexts.GAINS_TWICE, contexts.gains_twice),
    (contexts.ROBUST_TO_NOISE, contexts.robust_to_noise),
    (contexts.ROBUST_TO_POSITION, contexts.robust_to_position),
    (contexts.ROBUST_TO_LAYOUT, contexts.robust_to_layout),
)


def judge_all(evidence: Evidence) -> list[Verdict]:
    """The verdict on every claim."""
    fewest = evidence.design.fewest
    return [judge(claim, [_with_enough(part, fewest) for part in parts_of(evidence)]) for claim, parts_of in CLAIMS]


def _with_enough(part: Part, fewest: int) -> Part:
    """A part that rests on enough prompts; one that does not is barred, and says so."""
    known = not math.isnan(part.estimate.value)
    few = known and not part.barred and part.estimate.prompts < fewest
    return replace(part, barred=too_few(part.estimate.prompts, fewest)) if few else part


def too_few(prompts: int, fewest: int) -> str:
    """Why no verdict follows from so few prompts.

    Examples
    --------
    >>> too_few(8, 12)
    '8 prompts, and a verdict needs 12'
    """
    return f"{counted(prompts, 'prompt')}, and a verdict needs {fewest}"


@dataclass(frozen=True, eq=False)
class Findings:
    """What a study found, and what was run (`about`)."""

    verdicts: list[Verdict]
    splits: list[Split]
    masking: list[MaskingRow]
    accuracies: list[Accuracy]
    about: dict[str, Any]
    design: Design = WORLD


def findings_of(evidence: Evidence) -> Findings:
    """Judge every claim, split every difference, and make the tables."""
    return Findings(
        judge_all(evidence), split_differences(evidence), masking_rows(evidence), accuracies(evidence), evidence.about, evidence.design
    )
