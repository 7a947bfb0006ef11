"""Interventions: what happens when a model cannot look where it looks most, each with its random controls and the mass it removed.

    from floatlens.interventions import MaskAnchors, RandomKeys

    lm.generate(prompts, intervention=MaskAnchors(5))
    lm.generate(prompts, intervention=RandomKeys(MaskAnchors(5), equal="mass"))

docs/reference/interventions.md says what each does. A specification needs no torch; what runs it is imported when it runs.
"""

from floatlens.interventions.specification import (
    ExtraSinkToken,
    Intervention,
    KeepSinks,
    MaskAbove,
    MaskAnchors,
    MaskHeads,
    RandomHeads,
    RandomKeys,
    ZeroAnchorValues,
)
from floatlens.interventions.wording import KINDS, from_dict, from_text, to_dict, to_text

__all__ = [
    "KINDS",
    "ExtraSinkToken",
    "Intervention",
    "KeepSinks",
    "MaskAbove",
    "MaskAnchors",
    "MaskHeads",
    "RandomHeads",
    "RandomKeys",
    "ZeroAnchorValues",
    "from_dict",
    "from_text",
    "to_dict",
    "to_text",
]
