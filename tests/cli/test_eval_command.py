"""`floatlens eval` as a newcomer uses it, on tiny models that read the world's words."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import floatlens as fl
from floatlens.study import one_model
from floatlens.study.outcomes import SCHEMA
from floatlens.tasks.scoring import first_line
from floatlens.tasks.world import make_tokenizer, vocabulary

Ran = tuple[int, str, str]
MASK, END = (vocabulary().index(word) for word in ("[MASK]", "[EOS]"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tiny models, and a file of questions."""
    folder = tmp_path_factory.mktemp("eval")
    hows: dict[str, dict[str, Any]] = {
        "tiny-arm": {"family": "autoregressive", "sampler": "autoregressive", "row_offset": 1},
        "tiny-mdm": {"family": "llada", "sampler": "llada", "mask_token_id": MASK},
        "tiny-blocks": {"family": "sdar", "sampler": "sdar", "mask_token_id": MASK},
    }
    for name, how in hows.items():
        torch.manual_seed(1)
        size: dict[str, Any] = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
        config = LlamaConfig(**size, vocab_size=len(vocabulary()), initializer_range=0.2, pad_token_id=0)
        config.is_causal = name == "tiny-arm"
        fl.LanguageModel(LlamaForCausalLM(config).eval(), make_tokenizer(), end_tokens=(END,), name=name, **how).save(folder / name)
    questions = [
        {
            "id": f"q-{number}",
            "question": "Where does Ada Xu live?",
            "answers": ["Oslo"],
            "passages": ["Ada Xu lives in Oslo."],
            "gold": [0],
        }
        for number in range(3)
    ]
    (folder / "mine.jsonl").write_text("\n".join(json.dumps(question) for question in questions))
    return folder


@pytest.fixture(autouse=True)
def in_the_folder(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.chdir(folder)


def test_two_models_one_table_with_brackets_controls_and_traces(floatlens: Callable[..., Ran], folder: Path) -> None:
    words = ["eval", "-m", "tiny-mdm", "-m", "tiny-arm", "--context", "noise", "--levels", "0,.5", "--passages", 2, "--samples", 3]
    code, said, error = floatlens(*words, "--intervention", "mask-anchors:1", "--trace", 2, "--into", "out")
    assert code == 0, error
    table = pl.read_parquet("out/results.parquet")
    assert dict(table.schema) == SCHEMA
    assert len(table) == 2 * 3 * (2 + 2 * (2 + 2 * 5))
    assert table["context"].unique(maintain_order=True).to_list() == ["closed-book", "gold", "noise:0,passages=2", "noise:0.5,passages=2"]
    assert {"closed-book *", "gold *", "mask-anchors:1", "as many keys", "as much attention"} <= {
        line.split("  ")[0].strip() for line in (line.strip() for line in said.splitlines())
    }
    assert "shortcut" in said
    assert "No passage was cut." in said
    assert "Wrote results.parquet, summary.csv, contexts.svg, interventions.svg and traces to out." in said
    assert {"contexts.svg", "interventions.svg"} <= {path.name for path in Path("out").iterdir()}
    summary = list(csv.DictReader(Path("out/summary.csv").read_text().splitlines()))
    means = {
        (row["model"], row["context"], row["intervention"], row["control"]): row
        for row in summary
        if row["quantity"] == "mean" and row["outcome"] == "log_likelihood"
    }
    for (model, context, intervention, control), rows in table.group_by("model", "context", "intervention", "control"):
        row = means[str(model), str(context), str(intervention), str(control)]
        assert float(row["estimate"]) == pytest.approx(float(rows["log_likelihood"].mean()))  # type: ignore[arg-type]  # a mean of floats is one
    assert {row["quantity"] for row in summary} >= {"gain", "damage", "damage per removed", "damage beyond control", "interaction", "slope"}
    traced = pl.read_csv("out/traces.csv")
    assert len(traced) == 2 * 2 * 2
    for row in traced.iter_rows(named=True):
        prompt = fl.open_trace(folder / "out" / row["trace"]).prompt(row["number"])
        asked = table.filter(
            (pl.col("model") == row["model"]) & (pl.col("context") == row["context"]) & (pl.col("sample") == row["sample"])
        )
        assert asked["prompt"][0] == prompt
        assert row["gold"].split()[0].startswith("doc_")
    assert [path.name for path in folder.glob(".out*")] == []


def test_a_trace_holds_what_was_evaluated_also_when_it_is_drawn(floatlens: Callable[..., Ran], folder: Path) -> None:
    words = ["-c", "retrieved:3", "-c", "retrieved: 3", "--set", "temperature=2.0", "--gen-length", 6, "--no-likelihood"]
    code, _, error = floatlens("eval", "-m", "tiny-arm", *words, "-n", 3, "--seed", 5, "--trace", 2, "--into", "drawn")
    assert code == 0, error
    table = pl.read_parquet("drawn/results.parquet").filter(pl.col("context") == "retrieved:3")
    traced = pl.read_csv("drawn/traces.csv")
    assert traced["sample"].to_list() == table["sample"].to_list()[:2]
    written = [fl.open_trace(folder / "drawn" / row["trace"]).completion(row["number"]) for row in traced.iter_rows(named=True)]
    assert [first_line(text) for text in written] == table["prediction"].to_list()[:2]
    assert len(set(written)) == 2


def test_an_option_goes_to_the_models_that_have_it(floatlens: Callable[..., Ran]) -> None:
    words = ["-c", "gold", "--set", "block_length=2", "--set", "temperature=1.5", "--gen-length", 4, "--no-likelihood", "-n", 3]
    code, said, error = floatlens("eval", "-m", "tiny-arm", "-m", "tiny-mdm", *words, "--into", "shared")
    assert code == 0, error
    assert "tiny-arm has no block_length and runs without." in said
    assert "tiny-mdm has no" not in said
    table = pl.read_parquet("shared/results.parquet").filter(pl.col("context") == "gold")
    own: dict[str, dict[str, Any]] = {"tiny-arm": {}, "tiny-mdm": {"block_length": 2}}
    for name, options in own.items():
        rows = table.filter(pl.col("model") == name)
        written = fl.load(name).generate(rows["prompt"].to_list(), gen_length=4, temperature=1.5, progress=False, **options)
        assert rows["prediction"].to_list() == [first_line(one.text) for one in written]


def test_another_loop_is_that_of_the_diffusion_models(floatlens: Callable[..., Ran]) -> None:
    words = ["-c", "gold", "--sampler", "dream", "--set", "order=maskgit_plus", "--gen-length", 4, "--no-likelihood", "-n", 2]
    code, said, error = floatlens("eval", "-m", "tiny-arm", "-m", "tiny-mdm", *words, "--trace", 1, "--into", "by-dream")
    assert code == 0, error
    assert "tiny-arm has no order and runs without." in said
    trace = fl.open_trace("by-dream/traces/tiny-mdm/gold.zarr")
    assert trace.attributes["sampler"]["name"] == "dream"
    row = pl.read_parquet("by-dream/results.parquet").filter((pl.col("context") == "gold") & (pl.col("model") == "tiny-mdm"))
    assert first_line(trace.completion(0)) == row["prediction"][0]


def test_passages_are_told_apart_from_masks(floatlens: Callable[..., Ran]) -> None:
    code, _, error = floatlens(
        "eval", "-m", "tiny-arm", "-c", "conflict,masks=2", "--passages", 3, "-n", 1, "--no-likelihood", "--into", "eight"
    )
    assert code == 0, error
    assert pl.read_parquet("eight/results.parquet")["context"].to_list()[-1] == "conflict,passages=3,masks=2"


def test_questions_from_a_file(floatlens: Callable[..., Ran]) -> None:
    code, said, error = floatlens(
        "eval",
        "-m",
        "tiny-arm",
        "--task",
        "plain",
        "--data",
        "mine.jsonl",
        "--allow-unknown",
        "--no-likelihood",
        "--gen-length",
        2,
        "--into",
        "from-file",
    )
    assert code == 0, error
    table = pl.read_parquet("from-file/results.parquet")
    assert table["sample"].to_list() == ["q-0", "q-1", "q-2"] * 2
    assert table["log_likelihood"].is_null().all()
    assert "log likelihood" not in said
    assert "shortcut" not in said


def test_questions_that_lack_something_are_left_out_only_when_asked_and_said(floatlens: Callable[..., Ran], folder: Path) -> None:
    lines = (folder / "mine.jsonl").read_text().splitlines()
    richer = json.loads(lines[0]) | {"id": "q-9", "passages": ["Ada Xu lives in Oslo.", "Ben Xu lives in Rome."]}
    (folder / "mixed.jsonl").write_text("\n".join([*lines, json.dumps(richer)]))
    words = [
        "eval",
        "-m",
        "tiny-arm",
        "-t",
        "plain",
        "-d",
        "mixed.jsonl",
        "-c",
        "position:1/2",
        "--no-likelihood",
        "--allow-unknown",
        "--gen-length",
        2,
        "--into",
        "some",
    ]
    code, _, error = floatlens(*words)
    assert code == 2
    assert "needs 1 distractors without an answer, and sample q-0 has 0" in error
    code, said, error = floatlens(*words, "--leave-out")
    assert code == 0, error
    assert "Left out 3 questions, such as: position:1/2 needs 1 distractors" in said
    assert pl.read_parquet("some/results.parquet")["sample"].unique().to_list() == ["q-9"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["-c", "nois"], "There is no context 'nois'"),
        (["-c", "noise"], "--context noise needs a level"),
        (["-c", "gold", "--levels", "1,2"], "--levels needs exactly one --context"),
        (["-c", "noise", "-c", "position", "--levels", "1"], "--levels needs exactly one --context"),
        (["-t", "nqq"], "There is no task 'nqq'. Did you mean 'nq'?"),
        (["-t", "wrld"], "There is no task 'wrld'. Did you mean 'world'?"),
        (["-t", "nq"], "The task nq is read from a file (nq-open-oracle.jsonl.gz or"),
        (["-t", "nq", "-d", "."], "There is no file of the task nq in .; looked for nq-open-oracle.jsonl.gz"),
        (
            ["-d", "mine.jsonl"],
            "--data names a file, but --task, which says what is in it, is missing: a data set such as --task nq, "
            "or a format such as --task plain.",
        ),
        (["--context", "noise", "--levels", ","], "--levels ',' leaves a level out; separate levels by single commas, as in 0,.4,.8."),
        (["--samples", 10**30], "Invalid value for '--samples' / '-n': must be at most 1000000."),
        (["--trace", -1], "Invalid value for '--trace': must be at least 0."),
        (["--seed", 10**30], "Invalid value for '--seed': must be at most 4611686018427387904."),
        (["--set", "temperature=1", "--set", "temperature=2"], "--set gives 'temperature' twice; give it once."),
        (["-t", "humaneval", "-d", "mine.jsonl"], "runs programs that a model wrote. If you want that, pass --run-code"),
        (["-t", "nq", "-d", "mine.jsonl", "--corpus", "none.jsonl"], "The corpus none.jsonl cannot be read: No such file"),
        (["--corpus", "mine.jsonl"], "mine.jsonl, line 1: a passage stands in exactly one of the fields"),
        (["--set", "seed=3"], "--set seed=... is not a sampler option of its own; use --seed"),
        (["--set", "warmth=3"], "warmth"),
        (["-t", "plain"], "The task plain is read from a file"),
        (["--intervention", "mask-anchors:1"], "Interventions act in the contexts"),
        (["-c", "gold", "--intervention", "mask-anchor"], "There is no intervention 'mask-anchor'"),
        (["-m", "tiny-arm"], "have the same name"),
        (["-c", "layout:far"], "places two gold passages, and sample world-open-0000 has 1"),
        (["-c", "masks:4,masks=2"], "'masks:4,masks=2' names masks twice"),
        (["--set", "wording=x"], "--set wording=... is not a sampler option"),
        (["--set", "brackets=false"], "--set brackets=... is not a sampler option"),
        (["--set", "likelihood=false"], "--set likelihood=... is not a sampler option of its own; use --likelihood"),
        (["-m", "tiny-mdm", "--sampler", "best"], "There is no sampler 'best'"),
        (["--sampler", "dream"], "dream is a loop of diffusion models, and none of these models can be run by it. Leave --sampler"),
        (["-m", "tiny-blocks"], "tiny-blocks writes by blocks or by a loop of its own"),
        (["--into", "."], "'.' is the working directory or lies above it, so it cannot be replaced. Name a new folder, such as results."),
        (["--into", ".."], "'..' is the working directory or lies above it"),
    ],
)
def test_a_mistake_is_one_sentence_and_leaves_nothing(floatlens: Callable[..., Ran], folder: Path, words: list[str], sentence: str) -> None:
    before = sorted(folder.iterdir())
    code, _, error = floatlens("eval", "-m", "tiny-arm", "-n", "1", "--into", "mistake", *words)
    assert code == 2
    assert sentence in " ".join(error.split())
    assert sorted(folder.iterdir()) == before


def test_nothing_is_replaced(floatlens: Callable[..., Ran], folder: Path) -> None:
    (folder / "taken").mkdir()
    (folder / "taken" / "notes.txt").write_text("mine")
    code, _, error = floatlens("eval", "-m", "tiny-arm", "--into", "taken")
    assert code == 2
    assert "taken' exists already, and nothing is overwritten" in error
    assert [path.name for path in (folder / "taken").iterdir()] == ["notes.txt"]


def test_a_run_that_was_stopped_is_gone_on_with_and_leaves_only_results(
    floatlens: Callable[..., Ran], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unfinished = folder / ".again.unfinished"
    words = [
        "eval",
        "-m",
        "tiny-arm",
        "-t",
        "plain",
        "-d",
        "mine.jsonl",
        "--allow-unknown",
        "--no-likelihood",
        "--gen-length",
        2,
        "--into",
        "again",
        "--workers",
        0,
    ]
    asked: list[str] = []
    really: Any = one_model._ask

    def noted(lm: Any, samples: Any, condition: Any, *others: Any) -> pl.DataFrame:
        asked.append(condition.name)
        if len(asked) == 2:
            raise KeyboardInterrupt
        return really(lm, samples, condition, *others)

    monkeypatch.setattr(one_model, "_ask", noted)
    code, _, error = floatlens(*words)
    assert (code, asked) == (130, ["closed-book", "gold"])
    assert "floatlens: interrupted" in error
    assert unfinished.exists()
    assert not (folder / "again").exists()
    code, said, error = floatlens(*words)
    assert code == 0, error
    assert asked[2:] == ["gold"], "closed-book was done"
    assert "Resuming from what was done when the last run into again stopped." in said
    assert not unfinished.exists()
    assert (folder / "again" / "results.parquet").exists()


def test_pandas_reads_the_table_with_pyarrow(floatlens: Callable[..., Ran]) -> None:
    pytest.importorskip("pyarrow", reason="pip install 'floatlens[pandas]'")
    pandas = pytest.importorskip("pandas")
    code, _, error = floatlens("eval", "-m", "tiny-mdm", "--samples", 2, "--no-likelihood", "--into", "for-pandas")
    assert code == 0, error
    read = pandas.read_parquet("for-pandas/results.parquet")
    table = pl.read_parquet("for-pandas/results.parquet")
    assert read.columns.tolist() == table.columns
    assert read["prompt"].tolist() == table["prompt"].to_list()
    assert read["accuracy"].tolist() == table["accuracy"].to_list()
