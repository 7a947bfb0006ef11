"""All that follows from the evidence: verdicts, split differences, masking condition by condition, accuracies."""

from dataclasses import dataclass
from typing import Any

from floatlens.claims.accuracies import Accuracy, accuracies
from floatlens.claims.catalogue import judge_all
from floatlens.claims.evidence import Evidence
from floatlens.claims.mask_or_objective import Split, split_differences
from floatlens.claims.masking_rows import MaskingRow, masking_rows
from floatlens.claims.verdicts import Verdict


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
