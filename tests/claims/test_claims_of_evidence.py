"""Every claim, on made-up evidence: it holds for numbers as published, fails for others, and is inconclusive for noise."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from floatlens.claims.evidence import LAYOUTS, MASKED_CONTEXT, NOISE, POSITIONS, Evidence, read_evidence
from floatlens.claims.findings import CLAIMS, QUANTITIES, judge_all, split_differences
from floatlens.claims.verdicts import judge
from made_up_evidence import MadeUp, as_published

NAMES = [claim.name for claim, _ in CLAIMS]


def verdicts(evidence: Evidence) -> dict[str, str]:
    return {verdict.claim.name: verdict.outcome for verdict in judge_all(evidence)}


def with_measured(measure: str, value: float, twin: str, **where: str) -> Callable[[MadeUp], None]:
    def changed(made_up: MadeUp) -> None:
        hit = 0
        for key, (_, null) in list(made_up.measured.items()):
            labels: dict[str, str] = dict(zip(("twin", "rows", "measure", "group", "part", "depth"), key, strict=True))
            if (labels["twin"], labels["measure"]) == (twin, measure) and all(labels[name] == wanted for name, wanted in where.items()):
                made_up.measured[key] = (value, null)
                hit += 1
        assert hit, "the change must reach something"

    return changed


def with_asked(
    twin: str, experiment: str, context: str, intervention: str = "", control: str = "", **values: float
) -> Callable[[MadeUp], None]:
    def changed(made_up: MadeUp) -> None:
        made_up.asked[twin, experiment, context, intervention, control] |= values

    return changed


def with_scores(twin: str, third: str, score: float) -> Callable[[MadeUp], None]:
    return lambda made_up: made_up.scores.__setitem__((twin, third), score)


AGAINST: dict[str, list[Callable[[MadeUp], None]]] = {
    "fixed-sink": [with_measured("on the first token", 1.0, "arm")],
    "sink-stays": [with_measured("float index (no memory)", 0.8, "arm"), with_measured("drift along layers", 0.8, "arm")],
    "absorbs-less": [with_measured("on the run's strongest key", 70.0, "mdm", rows="rectangle")],
    "small-values-arm": [with_measured("value norm of anchors", 1.5, "arm")],
    "small-values-mdm": [with_measured("value norm of anchors", 1.5, "mdm", group="masked")],
    "sinks-on-structure": [
        with_measured("anchor mass by role", 0.1, "mdm", group="masked"),
    ],
    "floats": [with_measured("movement", -0.2, "mdm", group="masked")],
    "floats-more": [with_measured("float index (no memory)", 0.01, "mdm", rows="rectangle")],
    "variances": [
        with_measured("temporal variance", 0.01, "mdm", rows="rectangle"),
        with_measured("spatial variance", 200.0, "mdm", rows="rectangle"),
    ],
    "frontier": [with_measured("follows the frontier", -0.5, "mdm", group="masked")],
    "structure-then-content": [with_measured("structure over depth", 1.0, "mdm", group="masked")],
    "geometry": [
        with_measured("score advantage of anchors", -1.0, "mdm", part="direction", depth="shallow"),
        with_measured("score advantage of anchors", -1.0, "mdm", part="norm", depth="shallow"),
        with_measured("score advantage of anchors", -1.0, "mdm", part="direction", depth="deep"),
        with_measured("score advantage of anchors", 1.0, "mdm", part="norm", depth="deep"),
    ],
    "retrieval-heads": [
        with_scores("arm", "deep", 0.5),
        with_asked("arm", "retrieval heads", MASKED_CONTEXT, "mask-heads", "heads", log_likelihood=-8.0),
    ],
    "retrieval-when-deep": [
        with_scores("mdm", "shallow", 0.5),
        with_asked("mdm", "retrieval heads", MASKED_CONTEXT, "mask-heads", "heads", log_likelihood=-8.0),
    ],
    "masking-ruins-arm": [
        with_asked("arm", "masked descriptions", MASKED_CONTEXT, "mask-anchors:1", accuracy=0.8),
        with_asked("arm", "masked descriptions", MASKED_CONTEXT, "mask-anchors:1", "count", accuracy=-0.5),
        with_asked("arm", "masked descriptions", MASKED_CONTEXT, "mask-anchors:1", "mass", accuracy=-0.5),
    ],
    "masking-spares-mdm": [with_asked("mdm", "masked descriptions", MASKED_CONTEXT, "mask-anchors:1", accuracy=0.5)],
    "masking-tells-apart": [
        with_asked("mdm", "masked descriptions", MASKED_CONTEXT, "mask-anchors:1", accuracy=-0.5),
        with_asked("mdm", "masked answers", MASKED_CONTEXT, "mask-anchors:1", log_likelihood=-20.0),
    ],
    "gains-more": [with_asked("mdm", "noise", "closed-book", accuracy=0.8)],
    "robust-to-noise": [with_asked("mdm", "noise", NOISE[-1], accuracy=0.6)],
    "robust-to-position": [
        with_asked("mdm", "position", POSITIONS[1], accuracy=0.6),
        with_asked("mdm", "position", POSITIONS[0], accuracy=0.5),
    ],
    "robust-to-layout": [with_asked("mdm", "layout", LAYOUTS[2], accuracy=0.6)],
}


def test_every_claim_holds_for_numbers_as_published() -> None:
    assert verdicts(as_published().evidence()) == dict.fromkeys(NAMES, "holds")


@pytest.mark.parametrize(("name", "change"), [(name, change) for name, changes in AGAINST.items() for change in changes])
def test_each_number_of_a_claim_can_make_it_fail(name: str, change: Callable[[MadeUp], None]) -> None:
    made_up = as_published()
    change(made_up)
    claim, parts_of = next(one for one in CLAIMS if one[0].name == name)
    assert judge(claim, parts_of(made_up.evidence())).outcome == "fails"


def test_no_claim_is_without_a_number_that_makes_it_fail() -> None:
    assert set(AGAINST) == set(NAMES)


def test_numbers_lost_in_noise_say_nothing() -> None:
    made_up = as_published()
    made_up.noise = 1e4
    assert set(verdicts(made_up.evidence()).values()) == {"inconclusive"}


def test_twins_that_change_places_change_the_verdicts() -> None:
    evidence = as_published().evidence()
    swapped = {"arm": "mdm", "mdm": "arm"}
    tables = {name: getattr(evidence, name).with_columns(pl.col("twin").replace(swapped)) for name in ("measurements", "heads", "answers")}
    found = verdicts(Evidence(**tables, about=evidence.about))
    for name in (
        "fixed-sink",
        "sink-stays",
        "absorbs-less",
        "floats-more",
        "variances",
        "masking-ruins-arm",
        "masking-spares-mdm",
        "masking-tells-apart",
    ):
        assert found[name] == "fails", name
    # an autoregressive model has no masked rows, and nothing is asked of rows that are not there
    for name in ("floats", "structure-then-content", "geometry", "frontier", "sinks-on-structure", "small-values-mdm"):
        assert found[name] == "not asked", name


def test_a_model_without_masked_rows_is_the_reason() -> None:
    evidence = as_published().evidence()
    only_predicting = evidence.measurements.filter((pl.col("twin") != "mdm") | (pl.col("group") == "predicting"))
    found = {one.claim.name: one for one in judge_all(dataclasses.replace(evidence, measurements=only_predicting))}
    assert found["floats"].reason == "the mdm twin has no masked rows"


def test_a_twin_at_the_shortcut_has_nothing_to_lose() -> None:
    made_up = as_published()
    for twin, experiment, context, intervention, control in list(made_up.asked):
        if (twin, experiment) == ("mdm", "masked descriptions"):
            made_up.asked[twin, experiment, context, intervention, control]["accuracy"] = 0.1
    found = {one.claim.name: one for one in judge_all(made_up.evidence())}
    assert found["masking-spares-mdm"].outcome == "not asked"
    assert "nothing to lose: mdm scores .100, the shortcut .100" in found["masking-spares-mdm"].reason
    assert found["masking-ruins-arm"].outcome == "holds", "the ARM has something to lose"


def test_two_twins_at_the_ceiling_have_nothing_to_gain() -> None:
    made_up = as_published()
    for twin in ("arm", "mdm"):
        made_up.asked[twin, "noise", NOISE[-1], "", ""]["accuracy"] = 0.99
    found = {one.claim.name: one for one in judge_all(made_up.evidence())}["gains-more"]
    assert found.outcome == "not asked"
    assert "both twins are at the ceiling with passages (MDM 0.99, ARM 0.99)" in found.reason


def test_a_text_that_recalls_too_little_has_no_retrieval_heads() -> None:
    made_up = as_published()
    made_up.counts = False
    found = {one.claim.name: one for one in judge_all(made_up.evidence())}["retrieval-when-deep"]
    assert (found.outcome, found.reason) == ("inconclusive", "no text of the mdm twin recalls more than half of its gold passage")


def test_differences_split_exactly_and_follow_what_was_made_to_differ() -> None:
    splits = {split.quantity: split for split in split_differences(as_published().evidence())}
    assert set(splits) == set(QUANTITIES)
    for split in splits.values():
        assert split.whole.value == pytest.approx(split.objective.value + split.mask.value, abs=1e-9)
    assert splits["share of the first token, %"].follows == "mask", "the causal MDM was made to look like the ARM"
    assert splits["nats lost, 1 key masked"].follows == "objective", "and to answer like the MDM"
    assert splits["accuracy lost to noise"].whole.value == pytest.approx(0.4, abs=0.05)
    assert splits["accuracy lost in the middle"].whole.value == pytest.approx(0.3, abs=0.05), "first and last .9, middle .6"
    assert splits["slope of accuracy over noise"].whole.value == pytest.approx(-0.5, abs=0.05), "a tenth for each fifth"


def test_a_number_is_the_mean_over_samples_with_its_null(tmp_path: Path) -> None:
    evidence = as_published().evidence()
    first = judge_all(evidence)[0].parts[0]
    rows = evidence.measurements.filter(
        (pl.col("twin") == "arm")
        & (pl.col("rows") == "recorded")
        & (pl.col("measure") == "on the first token")
        & (pl.col("group") == "predicting")
    )
    assert first.estimate.value == pytest.approx(np.mean(rows["value"].to_list()))
    assert (first.beside, first.line) == (pytest.approx(0.5), pytest.approx(2.0))
    evidence.save(tmp_path)
    assert [one.parts[0].estimate for one in judge_all(read_evidence(tmp_path))] == [one.parts[0].estimate for one in judge_all(evidence)]
