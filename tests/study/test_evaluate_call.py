"""`floatlens.evaluate` gives in Python what `floatlens eval` writes to disk."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import floatlens as fl
from floatlens.errors import Caution
from floatlens.study import one_model
from floatlens.study.one_model import by_longest_prompt, evaluate_model
from floatlens.tasks.conditions import condition_of
from floatlens.tasks.contexts import arrange
from floatlens.tasks.registry import Task, load_task
from floatlens.tasks.samples import Passage
from floatlens.tasks.wording import WORLD_WORDING
from floatlens.tasks.world import open_book_samples
from world_models import arm, mdm

Ran = tuple[int, str, str]
CONTEXTS = ["noise:0.8", "gold"]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("models")
    paths = [folder / "tiny-mdm", folder / "tiny-arm"]
    for path, lm in zip(paths, (mdm(), arm()), strict=True):
        lm.save(path)
    return paths


def test_the_call_saves_and_returns_what_the_command_saves(floatlens: Callable[..., Ran], models: list[Path], tmp_path: Path) -> None:
    words = [word for path in models for word in ("-m", path)] + [word for context in CONTEXTS for word in ("-c", context)]
    more = ["--intervention", "mask-anchors:1", "--set", "block_length=1", "-n", 2, "--trace", 1, "--seed", 3]
    code, said, error = floatlens("eval", *words, *more, "--into", tmp_path / "command")
    assert code == 0, error
    sentences: list[str] = []
    evaluation = fl.evaluate(
        models,
        contexts=CONTEXTS,
        interventions=["mask-anchors:1"],
        samples=2,
        trace=1,
        seed=3,
        into=tmp_path / "call",
        draw=lambda folder, result: (folder / "drawn.txt").write_text(str(len(result.rows))),
        tell=sentences.append,
        progress=False,
        block_length=1,
    )
    assert all(sentence in said for sentence in sentences)
    assert any("has no block_length and runs without" in sentence for sentence in sentences)
    for name in ("results.parquet", "summary.csv", "traces.csv"):
        assert (tmp_path / "call" / name).read_bytes() == (tmp_path / "command" / name).read_bytes(), name
    assert_frame_equal(evaluation.rows, pl.read_parquet(tmp_path / "call" / "results.parquet"))
    assert len(evaluation.summary) == len(evaluation.outcomes)
    assert evaluation.folder is not None
    for row in evaluation.traces.iter_rows(named=True):
        assert fl.open_trace(evaluation.folder / row["trace"]).prompt(row["number"])
    assert (tmp_path / "call" / "drawn.txt").read_text() == str(len(evaluation.rows)), "what is drawn is part of the folder"


def test_loaded_models_and_a_task_at_hand_give_the_same_rows(models: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    task = load_task("world", conditions=[condition_of(context) for context in CONTEXTS], count=2)
    by_name = fl.evaluate(models[1], contexts=CONTEXTS, samples=2, progress=False)
    at_hand = fl.evaluate(fl.load(models[1]), task, CONTEXTS, progress=False)
    assert_frame_equal(by_name.rows, at_hand.rows)
    assert list(tmp_path.iterdir()) == [], "without a folder nothing is written"


def test_units_run_the_same_batches_in_all_conditions(monkeypatch: pytest.MonkeyPatch) -> None:
    passages = [tuple(Passage(" ".join(["Felix Ellis lives in Cairo."] * length)) for length in lengths) for lengths in ((1, 9), (3, 3))]
    samples = tuple(
        replace(sample, passages=own, gold=(0,)) for sample, own in zip(open_book_samples(2, passages=2), passages, strict=True)
    )
    shown = {context: [arrange(sample, condition_of(context).context) for sample in samples] for context in ("gold", "position:1/2")}
    alone = {context: by_longest_prompt(samples, [own], WORLD_WORDING) for context, own in shown.items()}
    assert alone["gold"] != alone["position:1/2"], "each by itself would run them in another order"
    orders: list[tuple[int, ...]] = []
    real: Any = one_model._ask

    def noted(lm: Any, samples: Any, condition: Any, prompts: Any, order: Any, *others: Any) -> pl.DataFrame:
        orders.append(tuple(order))
        return real(lm, samples, condition, prompts, order, *others)

    monkeypatch.setattr(one_model, "_ask", noted)
    task = Task("world", samples, WORLD_WORDING, gen_length=2)
    rows = fl.evaluate(arm(), task, ["position:1/2"], batch_size=1, progress=False).rows
    assert orders == [tuple(by_longest_prompt(samples, [*shown.values()], WORLD_WORDING))] * 3
    at_once = evaluate_model(arm(), samples, ["position:1/2"], wording=WORLD_WORDING, gen_length=2, batch_size=1, likelihood=True)
    assert rows.equals(at_once)


def test_what_was_left_out_is_in_the_result(models: list[Path]) -> None:
    task = load_task("world", conditions=[condition_of("position:1/3")], count=2)
    short = fl.evaluate(fl.load(models[1]), task, ["position:1/3"], likelihood=False, leave_out=True, progress=False)
    assert short.left_out == {}
    with pytest.raises(fl.Refusal, match="No question has what these contexts need: layout:far places two gold passages"):
        fl.evaluate(fl.load(models[1]), task, ["layout:far"], leave_out=True, progress=False)


def test_worker_processes_give_what_this_process_gives(models: list[Path], tmp_path: Path) -> None:
    how: dict[str, Any] = {"contexts": CONTEXTS, "samples": 2, "trace": 1, "progress": False}
    here = fl.evaluate(models, **how, into=tmp_path / "here")
    there = fl.evaluate(models, **how, into=tmp_path / "there", workers=2)
    exact = ["log_likelihood", "log_likelihood_error", "removed", "likelihood_removed"]
    assert here.rows.drop(exact).equals(there.rows.drop(exact))
    assert_frame_equal(here.rows, there.rows)  # the last bits depend on the number of threads
    assert here.traces.equals(there.traces)
    for row in there.traces.iter_rows(named=True):
        assert fl.verify(tmp_path / "there" / row["trace"]) == []
        traces = [fl.open_trace(tmp_path / name / row["trace"]) for name in ("here", "there")]
        assert traces[0].prompt(row["number"]) == traces[1].prompt(row["number"])


def test_what_a_worker_refuses_or_cautions_against_reaches_the_caller(models: list[Path], tmp_path: Path) -> None:
    how: dict[str, Any] = {"contexts": ["gold"], "samples": 2, "likelihood": False, "progress": False}
    for workers in (0, 1):
        with pytest.raises(fl.Refusal, match="sample world-open-0000 has 7 tokens"):
            fl.evaluate(models[1], **how, workers=workers, gen_length=5000)
        with pytest.warns(Caution, match="tiny-arm, gold under mask-anchors:1"):
            fl.evaluate(models[1], **how, workers=workers, gen_length=1, interventions=["mask-anchors:1"])


def test_calls_that_cannot_be_carried_out_are_refused(models: list[Path]) -> None:
    with pytest.raises(fl.Refusal, match="There is no model to evaluate"):
        fl.evaluate([])
    with pytest.raises(fl.Refusal, match="Traces are written to a folder, and none is given"):
        fl.evaluate(models[1], trace=1)
    with pytest.raises(fl.Refusal, match="A Task holds its questions already"):
        fl.evaluate(models[1], load_task("world", count=1), data="questions.jsonl")
    with pytest.raises(fl.Refusal, match="have the same name"):
        fl.evaluate([models[1], fl.load(models[1])])
    with pytest.raises(fl.Refusal, match="Loaded models, and a Task, stay in this process"):
        fl.evaluate(fl.load(models[1]), workers=2)
    with pytest.raises(fl.Refusal, match="workers=-1: give how many processes run models"):
        fl.evaluate(models[1], workers=-1)
    with pytest.raises(fl.Refusal, match=r"evaluate has no argument 'context'. It takes lists: models="):
        fl.evaluate(models[1], context="noise", levels=[0, 0.8])  # pyright: ignore[reportCallIssue] - the mistake under test
    with pytest.raises(fl.Refusal, match="'noise' is not how noise is written: noise:SHARE"):
        fl.evaluate(models[1], contexts="noise")  # one text is one context, not five
