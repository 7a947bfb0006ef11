"""A study of questions with passages on two tiny real models: what it asks and writes, and that it resumes where it was stopped."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from polars.testing import assert_frame_equal

import floatlens as fl
from floatlens.claims.attention import FAIR_ROLLOUT, THRESHOLD
from floatlens.claims.evidence import Evidence
from floatlens.claims.findings import findings_of
from floatlens.errors import Refusal
from floatlens.interventions import MaskAnchors, RandomKeys
from floatlens.lab import experiments
from floatlens.lab.asked_questions import in_order
from floatlens.lab.asked_task import asked_task
from floatlens.lab.experiments import PATH, run_experiment
from floatlens.lab.plan import slots_of
from floatlens.lab.units import Choice, Sizes, Study, Unit, questions_of
from floatlens.measures.flow import rollout
from floatlens.report.claims import claims_json, claims_markdown
from floatlens.study import one_model
from floatlens.tasks.conditions import condition_of
from floatlens.tasks.contexts import arrange
from floatlens.tasks.scoring import score_text
from floatlens.tasks.wording import format_prompt
from question_files import PLACES, write_models, write_questions, write_two_hops

QUESTIONS, DRAWS = 4, 2


@pytest.fixture(scope="module", autouse=True)
def few_measures() -> Iterator[None]:
    """Those by which these tests look: the whole catalogue has tests of its own."""
    wanted = (THRESHOLD, FAIR_ROLLOUT, "fair flow", "on the first token", *PATH)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(experiments, "RECORDED", [line for line in experiments.RECORDED if line.name in wanted])
        patch.setattr(
            experiments, "COMPARED", [line for line in experiments.COMPARED if line.name in ("on the run's strongest key", *PATH)]
        )
        yield


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    folder = tmp_path_factory.mktemp("questions")
    choice = Choice("plain", QUESTIONS, str(write_questions(folder)))
    return Study(write_models(folder), choice, Sizes(QUESTIONS, real=True), DRAWS, seed=0, figures=False)


@pytest.fixture(scope="module")
def units(study: Study, tmp_path_factory: pytest.TempPathFactory) -> list[Unit]:
    place = tmp_path_factory.mktemp("study")
    (place / "new" / "traces").mkdir(parents=True)
    (place / "kept").mkdir()
    return study.units(asked_task(study.choice).design, place / "new", place / "kept")


@pytest.fixture(scope="module")
def done(units: list[Unit]) -> dict[Unit, Any]:
    """The tables of every unit, and how many questions it reported."""
    tables = {}
    for unit in units:
        reported: list[int] = []
        tables[unit] = (run_experiment(unit, lambda count, _what, reported=reported: reported.append(count)), sum(reported))
    return tables


@pytest.fixture(scope="module")
def evidence(study: Study, done: dict[Unit, Any]) -> Evidence:
    design = asked_task(study.choice).design
    joined = {name: pl.concat([own[name] for own, _ in done.values() if name in own]) for name in ("measurements", "heads", "answers")}
    about = {
        "models": dict(study.models),
        "questions": QUESTIONS,
        "traced": QUESTIONS,
        "draws": DRAWS,
        "seed": 0,
        "design": design.stored(),
    }
    return Evidence(**joined, about={**about, "slots": slots_of(study)})


def test_the_units_are_what_the_task_can_ask(units: list[Unit], done: dict[Unit, Any]) -> None:
    assert [(unit.experiment, unit.role) for unit in units] == [
        (experiment, role) for experiment in ("trace", "masked answers", "noise", "position") for role in ("mdm", "arm")
    ]
    design = asked_task(units[0].choice).design
    for unit, (tables, reported) in done.items():
        if unit.experiment != "trace":
            assert len(tables["answers"]) == reported == questions_of(unit, design), "what is planned is what is reported and answered"


@pytest.mark.parametrize("role", ["arm", "mdm"])
def test_every_answer_is_that_question_asked_by_itself(role: str, study: Study, evidence: Evidence) -> None:
    lm, task = fl.load(study.models[role]), asked_task(study.choice)
    options = {} if role == "arm" else {"sampler": "llada", "block_length": 1}
    samples = task.asks["noise"].samples(QUESTIONS, 0)
    rows = evidence.answers.filter((pl.col("role") == role) & (pl.col("experiment") != "retrieval heads")).to_dicts()
    assert {row["context"] for row in rows} == {"closed-book", "gold", *task.design.noise, *task.design.positions}
    for row in [row for row in rows if row["sample"] in ("q-01", "q-02") and row["intervention"] in ("", "mask-anchors:5")]:
        number = [sample.id for sample in samples].index(row["sample"])
        acting: Any = MaskAnchors(5) if row["intervention"] else None
        acting = RandomKeys(acting, equal=row["control"], seed=row["draw"]) if row["control"] else acting
        prompt = format_prompt(samples[number], arrange(samples[number], condition_of(row["context"]).context))
        written = lm.generate(prompt, gen_length=8, seed=number, intervention=acting, progress=False, **options)[0]
        assert row["prediction"] == score_text(written.text, samples[number]).prediction, row
        assert row["log_likelihood"] < 0
    assert {row["draw"] for row in rows if row["control"]} == {0, 1}


def test_a_control_in_a_claim_is_the_mean_of_its_draws_per_question(evidence: Evidence) -> None:
    values = evidence.outcome("mdm", "masked answers", "gold", "log_likelihood", intervention="mask-anchors:1", control="mass")
    for sample in ("q-00", "q-01", "q-02", "q-03"):
        drawn = [
            row["log_likelihood"]
            for row in evidence.answers.to_dicts()
            if (row["role"], row["experiment"], row["sample"], row["intervention"], row["control"])
            == ("mdm", "masked answers", sample, "mask-anchors:1", "mass")
        ]
        assert len(drawn) == DRAWS
        assert values.sel(sample=sample).item() == pytest.approx(sum(drawn) / DRAWS)


def test_models_compute_in_the_type_that_was_asked_for(units: list[Unit], monkeypatch: pytest.MonkeyPatch) -> None:
    unit = next(unit for unit in units if unit.role == "arm" and unit.experiment == "noise")
    seen: list[torch.dtype] = []
    monkeypatch.setattr(experiments, "evaluate_model", lambda lm, *_args, **_how: seen.append(lm.module.dtype) or pl.DataFrame({"a": [1]}))
    for dtype in (None, "bfloat16"):
        run_experiment(replace(unit, choice=replace(unit.choice, dtype=dtype)))
    assert seen == [torch.float32, torch.bfloat16]


def test_confidence_order_commits_end_tokens_last(study: Study) -> None:
    lm = fl.load(study.models["mdm"])
    assert in_order("confidence", lm) == {"sampler": "llada", "eos_last": True}
    assert in_order("confidence", fl.load(study.models["arm"])) == {}
    with pytest.raises(Refusal, match="writes with the sampler sdar, and the claims are asked of models that LLaDA's loop can run"):
        in_order("confidence", replace(lm, sampler="sdar"))


def test_traced_texts_have_gold_at_every_slot_in_turn_and_the_answer_as_needle(study: Study) -> None:
    traced = asked_task(study.choice).traced(QUESTIONS, 0)
    assert [prompt.slot for prompt in traced] == [1, 2, 3, 1]
    for number, one in enumerate(traced):
        regions = one.prompt.regions
        assert regions["gold"] == regions[f"doc_{one.slot}"]
        assert one.prompt.text[slice(*regions["needle"])] == PLACES[number]
        assert regions["gold"][0] < regions["needle"][0] < regions["needle"][1] <= regions["gold"][1]


def test_what_the_threshold_keeps_and_rollout_are_those_of_the_stored_trace(units: list[Unit], evidence: Evidence) -> None:
    trace = fl.open_trace(units[0].folder / "traces" / "mdm.zarr")
    for number in range(QUESTIONS):
        own = trace.sample(number).load()
        group = own.sel(group="masked").transpose("step", "layer", "head", "key", ...)
        kept: list[list[bool]] = [[] for _ in range(own.sizes["layer"])]
        for step in range(own.sizes["step"]):
            rows = float(group["rows"].values[step]) if group["rows"].ndim == 1 else np.nan
            keys = np.flatnonzero(group["visible"].isel(step=step).notnull().values)
            if not rows > 0:
                continue
            for layer in range(own.sizes["layer"]):
                for head in range(own.sizes["head"]):
                    mass = group["mass"].values[step, layer, head, keys].astype(float) * len(keys) / rows
                    others = (mass.sum() - mass) / (len(keys) - 1)
                    kept[layer] += list(mass > others + 3)
        share = 100 * np.mean([np.mean(of_layer) for of_layer in kept])
        found = evidence.measured("mdm", THRESHOLD, group="masked", part="keys")
        assert found.values[number] == pytest.approx(share, rel=1e-5)
        regions = [name for name in own["key_region"].values if name not in ("gold", "needle")]
        flow = own[["flow", "flow_null"]].sel(query_region=regions, key_region=regions)
        rolled = rollout(flow, pooled=True).sel(query_region="answer", key_region="doc_2")
        assert evidence.measured("mdm", FAIR_ROLLOUT, group="", part="doc_2").values[number] == pytest.approx(float(rolled["fair"]))


def test_what_cannot_be_asked_says_why_and_few_questions_give_no_verdict(evidence: Evidence) -> None:
    findings = findings_of(evidence)
    found = {verdict.claim.name: verdict for verdict in findings.verdicts}
    assert {verdict.outcome for verdict in found.values()} == {"not asked"}
    assert "a layout places two; ask hotpotqa" in found["robust-to-layout"].reason
    assert found["absorbs-less"].reason == "4 prompts, and a verdict needs 12"
    assert found["strongest-key-moves"].reason == "4 prompts, and a verdict needs 12", "the path was measured"
    assert found["flows-to-gold"].parts[0].estimate.prompts == 2, "slot 1 is that of two of four texts"
    assert {split.follows for split in findings.splits} == {"not asked"}
    gained = next(split for split in findings.splits if split.quantity == "accuracy gained from passages")
    assert gained.reason == "no model plays the causal-mdm in this study"
    page = claims_markdown(findings)
    assert "# Which claims hold for these models" in page
    assert "| context | arm | mdm | n |" in page, "there is no shortcut, and no causal MDM"
    assert "accuracy of masked answers" in page
    assert "2 draws of each random control" in page
    assert '"task": "plain"' in claims_json(findings)


def test_a_stopped_study_takes_up_what_was_finished(
    units: list[Unit], done: dict[Unit, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_arguments: Any, **_options: Any) -> None:
        raise AssertionError("this was finished already")

    monkeypatch.setattr(one_model, "_ask", never)
    monkeypatch.setattr(experiments, "record", never)
    (tmp_path / "traces").mkdir()
    for unit in units:
        again = run_experiment(replace(unit, folder=tmp_path))
        for name, table in done[unit][0].items():
            assert_frame_equal(again[name], table)
    other = replace(units[2], seed=1)
    with pytest.raises(AssertionError, match="finished already"):  # another seed is another study
        run_experiment(replace(other, folder=tmp_path))


def test_a_damaged_trace_is_computed_again(
    units: list[Unit], done: dict[Unit, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unit = next(unit for unit in units if (unit.experiment, unit.role) == ("trace", "arm"))
    kept = tmp_path / "kept"
    shutil.copytree(unit.kept, kept)
    for table in kept.glob("trace-*/measurements.parquet"):
        table.write_bytes(table.read_bytes()[:-1])
    (tmp_path / "new" / "traces").mkdir(parents=True)
    again = run_experiment(replace(unit, folder=tmp_path / "new", kept=kept))
    assert_frame_equal(again["measurements"], done[unit][0]["measurements"])
    assert "is damaged" in "".join(capsys.readouterr())


def test_two_pieces_of_evidence_are_asked_in_layouts(tmp_path: Path) -> None:
    task = asked_task(Choice("plain", 8, str(write_two_hops(tmp_path))))
    assert set(task.asks) == {"masked answers", "noise", "layout"}
    assert task.asks["layout"].contexts == ("gold", "layout:one", "layout:adjacent", "layout:far")
    for one in task.traced(6, 0):
        passage = one.prompt.text[slice(*one.prompt.regions["gold"])]
        assert "likes" in passage
        assert " is in the " in passage, "both pieces are joined"
        assert one.prompt.regions["gold"] == one.prompt.regions[f"doc_{one.slot}"]


@pytest.mark.parametrize(
    ("choice", "sentence"),
    [
        (Choice("gsm8k", 4, "nowhere.jsonl"), "The claims are asked of questions with passages, and gsm8k has none to choose"),
        (Choice("nq", 4, "nowhere.jsonl", order="backwards"), "There is no order 'backwards'"),
    ],
)
def test_a_task_that_cannot_be_asked_is_refused(choice: Choice, sentence: str) -> None:
    with pytest.raises(Refusal, match=sentence):
        asked_task(choice)


def test_questions_without_distractors_are_refused_with_what_is_missing(tmp_path: Path) -> None:
    file = tmp_path / "alone.jsonl"
    file.write_text(
        '{"question": "Where is the cat?", "answers": ["box"], "passages": ["The cat is in the box.", "The dog."], "gold": [0]}\n'
    )
    with pytest.raises(Refusal, match="cannot be asked with and without noise"):
        asked_task(Choice("plain", 4, str(file)))
