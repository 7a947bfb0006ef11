"""Claims about context: that an MDM gains more from passages than an ARM, and is robust to noise, position and layout.

Where both twins answer more than 95 % of the questions right with passages, nothing is left to gain: the claim is not asked, and
says why. A twin at the shortcut has nothing to lose, so its claims are not asked either. "Robust" means a loss of less than five
points; the ARM's own loss is given for comparison.
"""

import xarray as xr

from floatlens.claims.attention import FLOATING
from floatlens.claims.evidence import CLOSED_BOOK, LAYOUTS, NOISE, POSITIONS, Evidence
from floatlens.claims.masking import BARELY, at_shortcut
from floatlens.claims.verdicts import Claim, Part, change, difference_of, mean_of
from floatlens.statistics.slopes import slope_over, steepest_slope

CEILING = 0.95
WITH_PASSAGES = NOISE[-1]

GAINS_MORE = Claim(
    "gains-more",
    FLOATING,
    "An MDM gains more from passages than an ARM.",
    "the gain in accuracy from passages (one gold passage among five), MDM minus ARM, lies above 0",
)
ROBUST_TO_NOISE = Claim(
    "robust-to-noise",
    FLOATING,
    "An MDM is robust to noise among the passages.",
    "from no distractors to a share of .8, the MDM loses less than five points of accuracy",
)
ROBUST_TO_POSITION = Claim(
    "robust-to-position",
    FLOATING,
    "An MDM finds evidence wherever it is placed.",
    "the MDM's accuracy with the gold passage first or last of six, minus that with it in the middle, lies within five points of 0",
)
ROBUST_TO_LAYOUT = Claim(
    "robust-to-layout",
    FLOATING,
    "An MDM combines evidence however far apart it is placed.",
    "from evidence in one passage to evidence far apart, the MDM loses less than five points of accuracy",
)


def gains_more(evidence: Evidence) -> list[Part]:
    """What passages add to the MDM's accuracy beyond what they add to the ARM's."""
    gains = {twin: gain(evidence, twin) for twin in ("mdm", "arm")}
    accuracy = {twin: mean_of(evidence.outcome(twin, "noise", WITH_PASSAGES)).value for twin in gains}
    barred = ""
    if min(accuracy.values()) > CEILING:
        right = f"MDM {accuracy['mdm']:.2f}, ARM {accuracy['arm']:.2f}"
        barred = f"both twins are at the ceiling with passages ({right}), so nothing is left to gain"
    return [
        Part(
            "accuracy gained, MDM - ARM",
            difference_of(gains["mdm"], gains["arm"]),
            "above",
            0.0,
            mean_of(gains["arm"]).value,
            "ARM",
            barred=barred,
        )
    ]


def robust_to_noise(evidence: Evidence) -> list[Part]:
    """What the MDM loses from no noise to the most."""
    barred = at_shortcut(evidence, "mdm", "noise", WITH_PASSAGES)
    arm = mean_of(noise_loss(evidence, "arm")).value
    return [Part("accuracy lost to noise", mean_of(noise_loss(evidence, "mdm")), "below", BARELY, arm, "ARM", barred=barred)]


def robust_to_position(evidence: Evidence) -> list[Part]:
    """What the MDM loses when the evidence is in the middle."""
    barred = at_shortcut(evidence, "mdm", "position", POSITIONS[1])
    arm = mean_of(middle_loss(evidence, "arm")).value
    return [Part("accuracy lost in the middle", mean_of(middle_loss(evidence, "mdm")), "within", BARELY, arm, "ARM", barred=barred)]


def robust_to_layout(evidence: Evidence) -> list[Part]:
    """What the MDM loses when the evidence is far apart."""
    barred = at_shortcut(evidence, "mdm", "layout", LAYOUTS[0])
    arm = mean_of(distance_loss(evidence, "arm")).value
    return [Part("accuracy lost to distance", mean_of(distance_loss(evidence, "mdm")), "below", BARELY, arm, "ARM", barred=barred)]


def gain(evidence: Evidence, twin: str, column: str = "accuracy") -> xr.DataArray:
    """What passages add to each question about people the twin does not know by heart."""
    return change(evidence.outcome(twin, "noise", WITH_PASSAGES, column), evidence.outcome(twin, "noise", CLOSED_BOOK, column))


def noise_loss(evidence: Evidence, twin: str, column: str = "accuracy") -> xr.DataArray:
    """What each question loses from no noise to the most."""
    return change(evidence.outcome(twin, "noise", NOISE[0], column), evidence.outcome(twin, "noise", NOISE[-1], column))


def noise_slope(evidence: Evidence, twin: str, column: str = "accuracy") -> xr.DataArray:
    """How the outcome of each question changes with the share of distractors."""
    levels = [evidence.outcome(twin, "noise", context, column) for context in NOISE]
    places = [float(context.partition(":")[2]) for context in NOISE]
    slopes = slope_over(xr.concat(levels, "level"), "level", places)
    steepest = steepest_slope(places)
    bounds = {"least": -steepest, "most": steepest} if "least" in levels[0].attrs else {}
    slopes.attrs = {name: value for name, value in levels[0].attrs.items() if name == "reason"} | bounds
    return slopes


def middle_loss(evidence: Evidence, twin: str, column: str = "accuracy") -> xr.DataArray:
    """What each question loses in the middle, compared with the mean of first and last."""
    first, middle, last = (evidence.outcome(twin, "position", context, column) for context in POSITIONS)
    return change((0.5 * (first + last)).assign_attrs(first.attrs), middle)


def distance_loss(evidence: Evidence, twin: str) -> xr.DataArray:
    """What each question loses when its two pieces of evidence are far apart."""
    return change(evidence.outcome(twin, "layout", LAYOUTS[0]), evidence.outcome(twin, "layout", LAYOUTS[-1]))
