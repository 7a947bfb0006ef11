"""A demo, an evaluation and a training to show, with hostile words in them; and where each view is."""

import json
from pathlib import Path

import polars as pl

from browser.browsing import HOSTILE
from floatlens.report.page.gather import Sources
from floatlens.trace.trace import Trace
from report.made_up_answers import answers as made_up_answers
from report.made_up_curves import made_up_curves

DIFFUSION = ("diffusion", "bidirectional", 0)
ESTIMATE = {"value": 1.5, "low": 1.25, "high": 2.0, "prompts": 7, "reason": ""}
CLAIMS = {
    "about": {"models": {"arm": "a-model", "mdm": "b-model"}, "questions": 4, "traced": 2, "draws": 1, "seed": 0},
    "caution": "Trained once.",
    "claims": [
        {
            "name": name,
            "paper": "arXiv:2510.15731",
            "statement": f"{statement} {HOSTILE['script']}",
            "rule": "the share lies above 4 times its null",
            "verdict": verdict,
            "reason": reason,
            "numbers": [
                {
                    "says": "share",
                    "estimate": ESTIMATE,
                    "side": "above",
                    "line": 1.0,
                    "beside": 0.5,
                    "beside_says": "null",
                    "unit": "%",
                    "verdict_of_number": verdict,
                    "reason": "",
                },
                {
                    "says": "absent",
                    "estimate": {**ESTIMATE, "value": None, "low": None, "high": None},
                    "side": "within",
                    "line": 0.1,
                    "beside": None,
                    "beside_says": "",
                    "unit": "",
                    "verdict_of_number": "not asked",
                    "reason": "it was not measured",
                },
            ],
        }
        for name, statement, verdict, reason in [
            ("fixed-sink", "An ARM piles its attention on one sink.", "holds", ""),
            ("structure-then-content", "An MDM attends to structure first.", "fails", ""),
            ("retrieval-heads", "In an ARM, few heads copy.", "inconclusive", "the interval includes the threshold"),
            ("gains-more", "An MDM gains more from passages than an ARM.", "not asked", "both are at the ceiling"),
        ]
    ],
}


def hostile_answers() -> pl.DataFrame:
    table = made_up_answers(contexts=("closed-book", "gold", "noise:0", "noise:0.5"), interventions=("mask-anchors:1",))
    return table.with_columns(
        prompt=pl.concat_str(pl.lit("Where does Ben Reed live?\n"), pl.col("sample"), pl.lit(f" {HOSTILE['script']}")),
        prediction=pl.lit(HOSTILE["bidi"]),
        answer=pl.lit("Rome"),
    )


def sources_of(folder: Path, mdm: Trace, arm: Trace, answers: pl.DataFrame) -> Sources:
    """Everything that a page can be made of; the claims are written into the folder."""
    (folder / "claims.json").write_text(json.dumps(CLAIMS))
    curves = made_up_curves({HOSTILE["script"]: ("ar", "causal", 0), "mdm-0": DIFFUSION, "mdm-1": (*DIFFUSION[:2], 1)})
    return Sources({"mdm": mdm, "arm": arm}, {"demo": folder / "claims.json"}, {"evaluation": answers}, {"adaptation": curves})


VIEWS = {
    "heads": ("#/heads/mdm/0?step=2&layer=3&head=1&group=masked", ".chosen.over"),
    "why": ("#/why/mdm/0?step=2&layer=3&group=masked", ".point"),
    "claims": ("#/claims", ".claim"),
    "contexts": ("#/contexts", ".plot .dot"),
    "questions": ("#/contexts?point=gold%20%7C%20%20%7C%20", ".answers details"),
    "training": ("#/training", ".plot .dot"),
    "tour": ("#/tour?stop=3", ".tour h2"),
}
