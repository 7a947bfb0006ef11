"""A study of questions with passages on two tiny real models: what it asks and writes, and that it resumes where it was stopped."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
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
from floatlens.lab.demo import gather
from floatlens.lab.experiments import PATH
from floatlens.lab.plan import prepare
from floatlens.lab.units import Choice, Preparation, Sizes, Study, questions_of, short_name
from floatlens.measures.flow import rollout
from floatlens.report.claims import claims_json, claims_markdown
from floatlens.study import one_model
from floatlens.study.in_process import InProcessEngine
from floatlens.study.store import FolderStore
from floatlens.study.worker import Worker
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


@dataclass
class Ran:
    """A study that ran in this process: what was known before, what it gave, its folders, and how many questions were reported."""

    preparation: Preparation
    evidence: Evidence
    folder: Path
    kept: Path
    reported: int


def run(study: Study, folder: Path, kept: Path) -> Ran:
    folder.mkdir()
    kept.mkdir(exist_ok=True)
    reported: list[int] = []
    preparation = prepare(study, False, 1, kept, lambda _count, _what: None)
    engine, store = InProcessEngine(Worker(None)), FolderStore(kept)
    evidence = gather(study, preparation, folder, engine, store, lambda count, title="": reported.append(count))
    return Ran(preparation, evidence, folder, kept, sum(reported))


@pytest.fixture(scope="module")
def ran(study: Study, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    place = tmp_path_factory.mktemp("study")
    return run(study, place / "new", place / "kept")


@pytest.fixture(scope="module")
def evidence(ran: Ran) -> Evidence:
    return ran.evidence


def test_the_units_are_what_the_task_can_ask_and_each_runs_once(study: Study, ran: Ran) -> None:
    design = asked_task(study.choice).design
    experiments = study.experiments(design)
    assert [(experiment.name, experiment.role) for experiment in experiments] == [
        (name, role) for name in ("trace", "masked answers", "noise", "position") for role in ("mdm", "arm")
    ]
    assert not ran.evidence.heads["counts"].any(), "no top key lies in these needles, so no head can be silenced"
    asked = {each: study.sizes.traced if each.name == "trace" else questions_of(each, design) for each in experiments}
    assert ran.reported == sum(asked.values()), "what is planned is what is reported"
    for experiment in experiments:
        own = ran.evidence.answers.filter(pl.col("role") == experiment.role, pl.col("experiment") == experiment.name)
        assert len(own) == (0 if experiment.name == "trace" else asked[experiment]), "and what is answered"
    jobs = {job.id for own in ran.preparation.jobs.values() for job in own}
    stored = {file.stem for file in (ran.kept / "units").iterdir()}
    assert stored == jobs


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


def test_models_compute_in_the_type_that_was_asked_for(study: Study, tmp_path: Path) -> None:
    worker = Worker(None)
    for dtype, expected in ((None, torch.float32), ("bfloat16", torch.bfloat16)):
        preparation = prepare(replace(study, choice=replace(study.choice, dtype=dtype)), False, 1, tmp_path, lambda _count, _what: None)
        preparation.jobs["arm", "noise"][0].run(worker, lambda _count, _what: None)
        assert worker._lm is not None
        assert worker._lm.dtype == expected


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


def test_what_the_threshold_keeps_and_rollout_are_those_of_the_stored_trace(ran: Ran, evidence: Evidence) -> None:
    trace = fl.open_trace(ran.folder / "traces" / "mdm.zarr")
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


def test_a_stopped_study_takes_up_what_was_finished(study: Study, ran: Ran, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_arguments: Any, **_options: Any) -> None:
        raise AssertionError("this was finished already")

    kept = Path(shutil.copytree(ran.kept, tmp_path / "kept"))
    monkeypatch.setattr(one_model, "_ask", never)
    monkeypatch.setattr(experiments, "record", never)
    again = run(study, tmp_path / "new", kept)
    assert again.reported == ran.reported
    for name in ("measurements", "heads", "answers"):
        assert getattr(again.evidence, name).equals(getattr(ran.evidence, name))
    assert fl.verify(tmp_path / "new" / "traces" / "arm.zarr") == []
    with pytest.raises(AssertionError, match="finished already"):  # another seed is another study
        run(replace(study, seed=1), tmp_path / "other", kept)


def test_a_damaged_trace_is_recorded_again_and_nothing_else(
    study: Study, ran: Ran, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, recorded = Path(shutil.copytree(ran.kept, tmp_path / "kept")), list[str]()
    real = experiments.record
    monkeypatch.setattr(experiments, "record", lambda lm, *given: recorded.append(lm.name) or real(lm, *given))
    [trace] = ran.preparation.jobs["arm", "trace"]
    damaged = kept / f"trace-{trace.id}" / "measurements.parquet"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    again = run(study, tmp_path / "new", kept)
    assert recorded == [short_name(study.models["arm"])]
    assert_frame_equal(again.evidence.measurements, ran.evidence.measurements)
    assert f"{damaged.parent} is damaged" in "".join(capsys.readouterr())


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
