"""`floatlens demo --task` on two tiny real models and a file of a few questions: the plan, what is written, and resuming."""

import json
from collections.abc import Callable
from pathlib import Path

import polars as pl

from question_files import write_models, write_questions

Ran = tuple[int, str, str]


def test_a_study_of_questions_prints_its_plan_and_writes_what_it_found(floatlens: Callable[..., Ran], tmp_path: Path) -> None:
    models, data, into = write_models(tmp_path), write_questions(tmp_path, count=4), tmp_path / "out"
    words = ["demo", "--task", "plain", "--data", data, "--questions", 6, "--draws", 1, "--processes", 1, "--no-figures"]
    code, said, errors = floatlens(*words, "--arm", models["arm"], "--mdm", models["mdm"], "--into", into)
    assert code == 0, errors
    assert "There are 4 questions to ask, not 6." in said
    plan = said[: said.index("What five papers claim")]
    for experiment, questions in (("trace", 4 + 4 * 3), ("masked answers", 4 * 10), ("noise", 16), ("position", 16)):
        assert f"{experiment}: {questions} questions and texts for each model; mdm " in plan
    assert "in 1 process, by a few questions timed just now." in plan
    found = json.loads((into / "claims.json").read_text())
    assert found["about"]["questions"] == 4
    assert found["about"]["design"]["task"] == "plain"
    assert found["about"]["models"] == {"arm": "stories-arm", "mdm": "stories-mdm"}
    layout = next(claim for claim in found["claims"] if claim["name"] == "robust-to-layout")
    assert (layout["verdict"], layout["reason"]) == (
        "not asked",
        "the evidence of plain is one passage, and a layout places two; ask hotpotqa",
    )
    answers = pl.read_parquet(into / "tables" / "answers.parquet")
    assert set(answers["experiment"].unique()) >= {"masked answers", "noise", "position"}
    assert sorted(file.name for file in (into / "traces").iterdir()) == ["arm.zarr", "mdm.zarr"]
    assert not list(tmp_path.glob(".out*")), "what was kept for resuming is gone"
