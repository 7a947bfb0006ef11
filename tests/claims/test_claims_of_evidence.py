"""Every claim, on made-up evidence: it holds for numbers as published, fails for others, and is inconclusive for noise."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import xarray as xr

from floatlens.claims.attention import FAIR_ROLLOUT, THRESHOLD
from floatlens.claims.design import WORLD, Design, one_piece, two_pieces
from floatlens.claims.evidence import Evidence, read_evidence
from floatlens.claims.findings import CLAIMS, QUANTITIES, judge_all, split_differences
from floatlens.claims.verdicts import judge
from floatlens.statistics.proportions import bounded_mean
from floatlens.tasks.conditions import condition_of
from made_up_evidence import MadeUp, as_published

NAMES = [claim.name for claim, _ in CLAIMS]


def verdicts(evidence: Evidence) -> dict[str, str]:
    return {verdict.claim.name: verdict.outcome for verdict in judge_all(evidence)}


def with_measured(measure: str, value: float, role: str, **where: str) -> Callable[[MadeUp], None]:
    def changed(made_up: MadeUp) -> None:
        hit = 0
        for key, (_, null) in list(made_up.measured.items()):
            labels: dict[str, str] = dict(zip(("role", "rows", "measure", "group", "part", "depth"), key, strict=True))
            if (labels["role"], labels["measure"]) == (role, measure) and all(labels[name] == wanted for name, wanted in where.items()):
                made_up.measured[key] = (value, null)
                hit += 1
        assert hit, "the change must reach something"

    return changed


def with_asked(
    role: str, experiment: str, context: str, intervention: str = "", control: str = "", **values: float
) -> Callable[[MadeUp], None]:
    def changed(made_up: MadeUp) -> None:
        made_up.asked[role, experiment, context, intervention, control] |= values

    return changed


def with_scores(role: str, third: str, score: float) -> Callable[[MadeUp], None]:
    return lambda made_up: made_up.scores.__setitem__((role, third), score)


def with_flow(measure: str, slot: int, beyond: float) -> Callable[[MadeUp], None]:
    return lambda made_up: made_up.to_gold.__setitem__(("mdm", measure, slot), beyond)


AGAINST: dict[str, list[Callable[[MadeUp], None]]] = {
    "fixed-sink": [with_measured("on the first token", 1.0, "arm")],
    "sink-stays": [with_measured("float index (no memory)", 0.8, "arm"), with_measured("drift along layers", 0.8, "arm")],
    "absorbs-less": [with_measured("on the run's strongest key", 70.0, "mdm", rows="rectangle")],
    "small-values-arm": [with_measured("value norm of anchors", 1.5, "arm")],
    "small-values-mdm": [with_measured("value norm of anchors", 1.5, "mdm", group="masked")],
    "sinks-on-structure": [
        with_measured("anchor mass by role", 0.1, "mdm", group="masked"),
    ],
    "threshold-keeps-few": [
        with_measured(THRESHOLD, 6.0, "mdm", group="masked", part="keys"),
        with_measured(THRESHOLD, 6.0, "mdm", group="unmasked", part="keys"),
    ],
    "strongest-key-moves": [
        with_measured("movement of the path, layers pooled", -0.1, "mdm", group="prompt", rows="left to right"),
        with_measured("movement of the path, layers pooled", -0.1, "mdm", group="predicting", rows="left to right"),
        with_measured("steps on the favourite key, layers pooled", 0.3, "arm", group="predicting", rows="left to right"),
    ],
    "flows-to-gold": [with_flow(measure, slot, -0.3) for measure in ("fair flow", FAIR_ROLLOUT) for slot in (1, 2, 3)],
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
        with_asked("arm", "retrieval heads", WORLD.masked_context, "mask-heads", "heads", log_likelihood=-8.0),
    ],
    "retrieval-when-deep": [
        with_scores("mdm", "shallow", 0.5),
        with_asked("mdm", "retrieval heads", WORLD.masked_context, "mask-heads", "heads", log_likelihood=-8.0),
    ],
    "masking-ruins-arm": [
        with_asked("arm", "masked descriptions", WORLD.masked_context, "mask-anchors:1", accuracy=0.8),
        with_asked("arm", "masked descriptions", WORLD.masked_context, "mask-anchors:1", "count", accuracy=-0.5),
        with_asked("arm", "masked descriptions", WORLD.masked_context, "mask-anchors:1", "mass", accuracy=-0.5),
    ],
    "masking-spares-mdm": [with_asked("mdm", "masked descriptions", WORLD.masked_context, "mask-anchors:1", accuracy=0.5)],
    "masking-tells-apart": [
        with_asked("mdm", "masked descriptions", WORLD.masked_context, "mask-anchors:1", accuracy=-0.5),
        with_asked("mdm", "masked answers", WORLD.masked_context, "mask-anchors:1", log_likelihood=-20.0),
    ],
    "gains-more": [with_asked("mdm", "noise", "closed-book", accuracy=0.8)],
    "gains-twice": [with_asked("mdm", "noise", WORLD.noise[-1], accuracy=0.4)],
    "robust-to-noise": [with_asked("mdm", "noise", WORLD.noise[-1], accuracy=0.6)],
    "robust-to-position": [
        with_asked("mdm", "position", WORLD.positions[1], accuracy=0.6),
        with_asked("mdm", "position", WORLD.positions[0], accuracy=0.5),
    ],
    "robust-to-layout": [with_asked("mdm", "layout", WORLD.layouts[2], accuracy=0.6)],
}


def test_every_claim_holds_for_numbers_as_published() -> None:
    made_up = as_published()
    made_up.samples = 36
    assert verdicts(made_up.evidence()) == dict.fromkeys(NAMES, "holds")


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
    found = verdicts(made_up.evidence())
    assert found.pop("gains-twice") == "not asked", "twice of a gain that may be none says nothing"
    assert found.pop("flows-to-gold") == "not asked", "four prompts at each slot are too few"
    assert set(found.values()) == {"inconclusive"}


def test_models_that_change_places_change_the_verdicts() -> None:
    evidence = as_published().evidence()
    swapped = {"arm": "mdm", "mdm": "arm"}
    tables = {name: getattr(evidence, name).with_columns(pl.col("role").replace(swapped)) for name in ("measurements", "heads", "answers")}
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
    only_predicting = evidence.measurements.filter((pl.col("role") != "mdm") | (pl.col("group") == "predicting"))
    found = {one.claim.name: one for one in judge_all(dataclasses.replace(evidence, measurements=only_predicting))}
    assert found["floats"].reason == "the mdm has no masked rows"


def test_a_role_at_the_shortcut_has_nothing_to_lose() -> None:
    made_up = as_published()
    for role, experiment, context, intervention, control in list(made_up.asked):
        if (role, experiment) == ("mdm", "masked descriptions"):
            made_up.asked[role, experiment, context, intervention, control]["accuracy"] = 0.1
    found = {one.claim.name: one for one in judge_all(made_up.evidence())}
    assert found["masking-spares-mdm"].outcome == "not asked"
    assert "nothing to lose: mdm scores .100, the shortcut .100" in found["masking-spares-mdm"].reason
    assert found["masking-ruins-arm"].outcome == "holds", "the ARM has something to lose"


def test_two_models_at_the_ceiling_have_nothing_to_gain() -> None:
    made_up = as_published()
    for role in ("arm", "mdm"):
        made_up.asked[role, "noise", WORLD.noise[-1], "", ""]["accuracy"] = 0.99
    found = {one.claim.name: one for one in judge_all(made_up.evidence())}["gains-more"]
    assert found.outcome == "not asked"
    assert "both models are at the ceiling with passages (MDM 0.99, ARM 0.99)" in found.reason


def test_a_text_that_recalls_too_little_has_no_retrieval_heads() -> None:
    made_up = as_published()
    made_up.counts = False
    found = {one.claim.name: one for one in judge_all(made_up.evidence())}["retrieval-when-deep"]
    assert (found.outcome, found.reason) == ("inconclusive", "no text of the mdm recalls more than half of its gold passage")


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
        (pl.col("role") == "arm")
        & (pl.col("rows") == "recorded")
        & (pl.col("measure") == "on the first token")
        & (pl.col("group") == "predicting")
    )
    assert first.estimate.value == pytest.approx(np.mean(rows["value"].to_list()))
    assert (first.beside, first.line) == (pytest.approx(0.5), pytest.approx(2.0))
    evidence.save(tmp_path)
    assert [one.parts[0].estimate for one in judge_all(read_evidence(tmp_path))] == [one.parts[0].estimate for one in judge_all(evidence)]


def test_tables_of_earlier_versions_call_a_role_a_twin_and_are_of_the_world(tmp_path: Path) -> None:
    evidence = as_published().evidence()
    evidence.save(tmp_path)
    for name in ("measurements", "heads", "answers"):
        pl.read_parquet(tmp_path / f"{name}.parquet").rename({"role": "twin"}).write_parquet(tmp_path / f"{name}.parquet")
    read = read_evidence(tmp_path)
    assert read.design == WORLD
    assert verdicts(read) == verdicts(evidence)


def of_questions(design: Design, made_up: MadeUp) -> Evidence:
    """The numbers as published, as if they were of questions: contexts by another name, and answers in place of descriptions."""
    evidence = made_up.evidence()
    renamed = dict(zip((*WORLD.noise, *WORLD.positions, WORLD.masked_context), (*design.noise, *design.positions, "gold"), strict=False))
    masked = pl.col("experiment") == "masked answers"
    written = evidence.answers.filter(pl.col("experiment") == "masked descriptions").select(
        "role", "context", "intervention", "control", "sample", pl.col("accuracy").alias("written")
    )
    answers = (
        evidence.answers.filter(~pl.col("experiment").is_in(["masked descriptions", "layout"]))
        .join(written, on=["role", "context", "intervention", "control", "sample"], how="left")
        .with_columns(
            accuracy=pl.when(masked).then(pl.col("written")).otherwise(pl.col("accuracy")), shortcut=pl.lit(None, dtype=pl.Float64)
        )
        .with_columns(context=pl.col("context").replace(renamed))
    )
    return dataclasses.replace(evidence, answers=answers, about=evidence.about | {"design": design.stored()})


def test_questions_are_judged_by_the_same_rules_and_what_they_cannot_ask_says_why() -> None:
    found = {verdict.claim.name: verdict for verdict in judge_all(of_questions(one_piece("nq"), as_published()))}
    assert {name for name, verdict in found.items() if verdict.outcome != "holds"} == {"robust-to-layout", "flows-to-gold"}
    assert (found["robust-to-layout"].outcome, found["robust-to-layout"].reason) == (
        "not asked",
        "the evidence of nq is one passage, and a layout places two; ask hotpotqa",
    )
    assert found["masking-ruins-arm"].parts[0].says == "share of right answers left"


@pytest.mark.parametrize("task", ["world", "nq"])
def test_no_verdict_rests_on_few_prompts(task: str) -> None:
    evidence = as_published().evidence() if task == "world" else of_questions(one_piece(task), as_published())
    found = {verdict.claim.name: verdict for verdict in judge_all(evidence)}["flows-to-gold"]
    assert (found.outcome, found.reason) == ("not asked", "4 prompts, and a verdict needs 12")
    assert found.parts[0].estimate.prompts == 4, "a third of the twelve traced texts has its gold passage at a slot"
    eleven = [f"sample-{number:02d}" for number in range(11)]
    fewer = dataclasses.replace(
        evidence, **{name: getattr(evidence, name).filter(pl.col("sample").is_in(eleven)) for name in ("measurements", "heads", "answers")}
    )
    assert set(verdicts(fewer).values()) == {"not asked"}
    assert {split.follows for split in split_differences(fewer)} == {"not asked"}


def test_a_model_that_passages_do_not_help_has_nothing_to_lose() -> None:
    made_up = as_published()
    for keys in (0, 1):
        for control in ("", "count", "mass") if keys else ("",):
            edit = f"mask-anchors:{keys}" if keys else ""
            made_up.asked["mdm", "masked descriptions", WORLD.masked_context, edit, control]["accuracy"] = 0.01
    found = {one.claim.name: one for one in judge_all(of_questions(one_piece("nq"), made_up))}["masking-spares-mdm"]
    assert found.outcome == "not asked"
    assert "nothing to lose: mdm scores .01" in found.reason
    assert "without passages .05" in found.reason


def test_a_study_that_stopped_before_it_asked_without_passages_is_judged_all_the_same() -> None:
    evidence = of_questions(one_piece("nq"), as_published())
    closed_book = (pl.col("role") == "arm") & (pl.col("experiment") == "noise")
    found = {one.claim.name: one for one in judge_all(dataclasses.replace(evidence, answers=evidence.answers.filter(~closed_book)))}
    assert found["masking-ruins-arm"].outcome == "not asked"
    assert "arm was not asked without passages" in found["masking-ruins-arm"].reason
    assert found["masking-spares-mdm"].outcome == "holds"


def test_a_role_that_no_model_plays_is_the_reason() -> None:
    evidence = as_published().evidence()
    models = {role: name for role, name in evidence.about["models"].items() if role != "causal-mdm"}
    tables = {name: getattr(evidence, name).filter(pl.col("role") != "causal-mdm") for name in ("measurements", "heads", "answers")}
    without = Evidence(**tables, about=evidence.about | {"models": models})
    assert verdicts(without) == verdicts(evidence), "no claim is about the causal MDM"
    assert {(split.follows, split.reason) for split in split_differences(without)} == {
        ("not asked", "no model plays the causal-mdm in this study")
    }


def test_twice_the_gain_is_the_mdms_minus_twice_the_arms_question_by_question() -> None:
    evidence = as_published().evidence()
    gains = {}
    for role in ("mdm", "arm"):
        for context, sign in ((WORLD.noise[-1], 1), ("closed-book", -1)):
            for row in evidence.answers.to_dicts():
                if (row["role"], row["experiment"], row["context"], row["intervention"]) == (role, "noise", context, ""):
                    gains[role, row["sample"]] = gains.get((role, row["sample"]), 0.0) + sign * row["accuracy"]
    beyond = [gains["mdm", sample] - 2 * gains["arm", sample] for role, sample in gains if role == "mdm"]
    part = {one.claim.name: one for one in judge_all(evidence)}["gains-twice"].parts[0]
    assert part.estimate.value == pytest.approx(np.mean(beyond))
    assert -3 <= part.estimate.low <= part.estimate.high <= 3
    interval = bounded_mean(xr.DataArray(beyond, dims="sample"), within=(-3.0, 3.0))
    assert (part.estimate.low, part.estimate.high) == pytest.approx((float(interval.low), float(interval.high)))


def test_flow_to_gold_is_compared_with_the_other_passages_of_the_same_prompts() -> None:
    evidence = as_published().evidence()
    parts = {part.says: part for part in {one.claim.name: one for one in judge_all(evidence)}["flows-to-gold"].parts}
    rows = [row for row in evidence.measurements.to_dicts() if (row["role"], row["measure"]) == ("mdm", FAIR_ROLLOUT)]
    for slot in (1, 2, 3):
        beyond = []
        for sample, gold_at in evidence.about["slots"].items():
            if gold_at == slot:
                shares = {row["part"]: row["value"] for row in rows if row["sample"] == sample}
                gold = shares.pop(f"doc_{slot}")
                beyond.append(gold - sum(shares.values()) / 2)
        part = parts[f"rolled out, gold at slot {slot}, gold - others"]
        assert part.estimate.value == pytest.approx(np.mean(beyond))
        assert part.estimate.prompts == len(beyond) == 4


def test_two_pieces_of_evidence_have_a_layout_and_no_position() -> None:
    design = two_pieces("hotpotqa")
    assert (len(design.layouts), design.positions, design.levels) == (3, (), [0.0, 0.4, 0.6])
    assert "two passages that are needed together" in design.not_asked["position"]
    for context in (*design.noise, *design.layouts, *one_piece("nq").noise, *one_piece("nq").positions):
        assert condition_of(context).text == context, "as tables have it"


def test_the_draws_of_a_control_are_one_value_per_question() -> None:
    evidence = as_published().evidence()
    draws = [
        evidence.answers.with_columns(
            draw=pl.when(pl.col("control") != "").then(draw),
            log_likelihood=pl.col("log_likelihood") - draw * pl.col("sample").str.len_chars(),
        ).filter((pl.col("control") != "") | (draw == 0))
        for draw in (0, 1, 4)
    ]
    drawn = dataclasses.replace(evidence, answers=pl.concat(draws))
    where = {"intervention": "mask-anchors:1", "control": "mass"}
    once, several = (each.outcome("arm", "masked answers", WORLD.masked_context, "log_likelihood", **where) for each in (evidence, drawn))
    assert several.sizes["sample"] == 12
    for sample in once["sample"].values:
        assert several.sel(sample=sample).item() == pytest.approx(once.sel(sample=sample).item() - (0 + 1 + 4) / 3 * len(sample))
    assert verdicts(drawn).keys() == verdicts(evidence).keys()
