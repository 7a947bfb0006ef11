"""All measures of SmolLM2-135M on open questions of Natural Questions. Run by `make test-real`."""

import numpy as np
import pytest
from rich.console import Console

import floatlens as fl
from floatlens.measures import measure_trace
from floatlens.measures.catalogue import CATALOGUE
from floatlens.report.tables import print_findings

pytestmark = pytest.mark.real

QUESTIONS = [
    "when was the last time anyone was on the moon",
    "who wrote he ain't heavy he's my brother lyrics",
    "how many seasons of the bastard executioner are there",
    "when did the eagles win last super bowl",
]


def test_every_measure_runs_on_a_real_model_and_finds_its_sink() -> None:
    lm = fl.load("smollm2-135m")
    prompts = [fl.Prompt(question, {"gold": (0, len(question))}) for question in QUESTIONS]
    trace = lm.trace(prompts, gen_length=24, detail="full", progress=False)
    summary = measure_trace(trace, gold="gold", progress=False)
    print_findings(Console(width=100), summary, summary.findings(), ["predicting"])
    assert set(summary.skipped) == {"masked and unmasked agree"}, "an autoregressive model has no masked rows; everything else runs"
    assert set(summary.values) == {line.name for line in CATALOGUE} - set(summary.skipped)
    found = {(one.measure, one.part, one.depth): one for one in summary.findings()}
    first = found["on the first token", "", "deep"]
    assert first.value > 40 > 10 * first.null, "the sink of every autoregressive model"
    assert found["on the run's strongest key", "", "deep"].value == pytest.approx(first.value, rel=0.2), (
        "the strongest key is the first token"
    )
    assert found["enrichment of roles", "special", "deep"].low > 2
    advantage = found["score advantage of anchors", "direction", "all"].value + found["score advantage of anchors", "norm", "all"].value
    assert advantage > 0
    missing = [key for key, one in found.items() if np.isnan(one.value) and not one.reason]
    assert not missing, "every missing number has its reason"
