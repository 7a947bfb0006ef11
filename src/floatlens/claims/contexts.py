"""Claims about context: that an MDM gains more from passages than an ARM, and is robust to noise, position and layout.

Where both models answer more than 95 % of the questions right with passages, nothing is left to gain: the claim is not asked, and says
why. Twice of a gain says nothing unless there is one. A model that is not above the floor (`floatlens.claims.masking`) has nothing to
lose, so its claims are not asked either. "Robust" means a loss of less than five points; the ARM's own loss is given for comparison.
"""

import xarray as xr

from floatlens.claims.attention import FLOATING
from floatlens.claims.design import CLOSED_BOOK
from floatlens.claims.evidence import Evidence
from floatlens.claims.masking import BARELY, nothing_to_lose
from floatlens.claims.verdicts import Claim, Part, change, difference_of, mean_of
from floatlens.statistics.slopes import slope_over, steepest_slope

CEILING = 0.95

GAINS_MORE = Claim(
    "gains-more",
    FLOATING,
    "An MDM gains more from passages than an ARM.",
    "the gain in accuracy from passages (the gold ones among the most distractors), MDM minus ARM, lies above 0",
)
GAINS_TWICE = Claim(
    "gains-twice",
    FLOATING,
    "An MDM gains twice as much from passages as an ARM.",
    "the MDM's gain in accuracy from passages (the gold ones among the most distractors) minus twice the ARM's lies above 0",
)
ROBUST_TO_NOISE = Claim(
    "robust-to-noise",
    FLOATING,
    "An MDM is robust to noise among the passages.",
    "from no distractors to the most (of fifteen passages fourteen in the world; of five passages four, or three where the evidence is "
    "two), the MDM loses less than five points of accuracy",
)
ROBUST_TO_POSITION = Claim(
    "robust-to-position",
    FLOATING,
    "An MDM finds evidence wherever it is placed.",
    "the MDM's accuracy with the gold passage first or last, minus that with it in the middle, lies within five points of 0",
)
ROBUST_TO_LAYOUT = Claim(
    "robust-to-layout",
    FLOATING,
    "An MDM combines evidence however far apart it is placed.",
    "from evidence in one passage to evidence far apart, the MDM loses less than five points of accuracy",
)


def gains_more(evidence: Evidence) -> list[Part]:
    """What passages add to the MDM's accuracy beyond what they add to the ARM's."""
    mdm, arm = (gain(evidence, role) for role in ("mdm", "arm"))
    barred = _at_ceiling(evidence)
    return [Part("accuracy gained, MDM - ARM", difference_of(mdm, arm), "above", 0.0, mean_of(arm).value, "ARM", barred=barred)]


def gains_twice(evidence: Evidence) -> list[Part]:
    """What passages add to the MDM's accuracy beyond twice what they add to the ARM's."""
    mdm, arm = (gain(evidence, role) for role in ("mdm", "arm"))
    twice = (2 * arm).assign_attrs({name: value if name == "reason" else 2 * value for name, value in arm.attrs.items()})
    own = mean_of(arm)
    barred = _at_ceiling(evidence)
    if not barred and own.value == own.value and not own.low > 0:
        barred = f"the ARM's own gain, {own.value:.3f}, is not reliably above 0, so twice of it says nothing"
    return [Part("accuracy gained, MDM - 2 ARM", difference_of(mdm, twice), "above", 0.0, own.value, "ARM", barred=barred)]


def _at_ceiling(evidence: Evidence) -> str:
    """Why nothing is left to gain; "" if something is."""
    accuracy = {role: mean_of(evidence.outcome(role, "noise", evidence.design.noise[-1])).value for role in ("mdm", "arm")}
    if not min(accuracy.values()) > CEILING:
        return ""
    right = f"MDM {accuracy['mdm']:.2f}, ARM {accuracy['arm']:.2f}"
    return f"both models are at the ceiling with passages ({right}), so nothing is left to gain"


def robust_to_noise(evidence: Evidence) -> list[Part]:
    """What the MDM loses from no noise to the most."""
    barred = nothing_to_lose(evidence, "mdm", "noise", evidence.design.noise[-1])
    arm = mean_of(noise_loss(evidence, "arm")).value
    return [Part("accuracy lost to noise", mean_of(noise_loss(evidence, "mdm")), "below", BARELY, arm, "ARM", barred=barred)]


def robust_to_position(evidence: Evidence) -> list[Part]:
    """What the MDM loses when the evidence is in the middle."""
    barred = nothing_to_lose(evidence, "mdm", "position", evidence.design.positions[1]) if evidence.design.positions else ""
    arm = mean_of(middle_loss(evidence, "arm")).value
    return [Part("accuracy lost in the middle", mean_of(middle_loss(evidence, "mdm")), "within", BARELY, arm, "ARM", barred=barred)]


def robust_to_layout(evidence: Evidence) -> list[Part]:
    """What the MDM loses when the evidence is far apart."""
    barred = nothing_to_lose(evidence, "mdm", "layout", evidence.design.layouts[0]) if evidence.design.layouts else ""
    arm = mean_of(distance_loss(evidence, "arm")).value
    return [Part("accuracy lost to distance", mean_of(distance_loss(evidence, "mdm")), "below", BARELY, arm, "ARM", barred=barred)]


def gain(evidence: Evidence, role: str, column: str = "accuracy") -> xr.DataArray:
    """What passages add to each question."""
    with_passages, without = (evidence.outcome(role, "noise", context, column) for context in (evidence.design.noise[-1], CLOSED_BOOK))
    return change(with_passages, without)


def noise_loss(evidence: Evidence, role: str, column: str = "accuracy") -> xr.DataArray:
    """What each question loses from no noise to the most."""
    least, most = (evidence.outcome(role, "noise", evidence.design.noise[end], column) for end in (0, -1))
    return change(least, most)


def noise_slope(evidence: Evidence, role: str, column: str = "accuracy") -> xr.DataArray:
    """How the outcome of each question changes with the share of distractors."""
    outcomes, levels = [evidence.outcome(role, "noise", context, column) for context in evidence.design.noise], evidence.design.levels
    slopes = slope_over(xr.concat(outcomes, "level"), "level", levels)
    steepest = steepest_slope(levels)
    bounds = {"least": -steepest, "most": steepest} if "least" in outcomes[0].attrs else {}
    slopes.attrs = {name: value for name, value in outcomes[0].attrs.items() if name == "reason"} | bounds
    return slopes


def middle_loss(evidence: Evidence, role: str, column: str = "accuracy") -> xr.DataArray:
    """What each question loses in the middle, compared with the mean of first and last."""
    first, middle, last = (evidence.outcome(role, "position", context, column) for context in evidence.design.positions or ("",) * 3)
    return change((0.5 * (first + last)).assign_attrs(first.attrs), middle)


def distance_loss(evidence: Evidence, role: str) -> xr.DataArray:
    """What each question loses when its two pieces of evidence are far apart."""
    layouts = evidence.design.layouts or ("", "")
    return change(evidence.outcome(role, "layout", layouts[0]), evidence.outcome(role, "layout", layouts[-1]))
