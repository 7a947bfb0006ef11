"""`floatlens measure` as a newcomer uses it, on a real model of 260,000 parameters (stories260K) and a tiny diffusion model."""

import csv
import io
import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from transformers import LlamaConfig, LlamaForCausalLM

import floatlens as fl
from floatlens import measures
from floatlens.report.tables import number
from writers import PROMPTS, autoregressive_model, diffusion_model

STORIES = Path(__file__).parents[1] / "data" / "stories260K.bin"
Ran = tuple[int, str, str]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Traces: of stories, with everything; of the same prompts by a diffusion and an autoregressive model; of one prompt."""
    folder = tmp_path_factory.mktemp("traces")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLOATLENS_CACHE", str(folder / "cache"))
        stories = fl.load(STORIES)
    texts = ["Once upon a time, there was a cat.", "Lily saw a big dog.", "The sun was warm, and Tom ran to the park."]
    prompts = [fl.Prompt(text, {"gold": (0, 8)}) for text in texts]
    stories.trace(prompts, gen_length=8, detail="full", path=folder / "stories.zarr", progress=False)
    stories.trace(texts[:1], gen_length=8, path=folder / "one.zarr", progress=False)
    diffusion_model("llada").trace(PROMPTS, gen_length=6, steps=3, path=folder / "mdm.zarr", progress=False)
    autoregressive_model().trace(PROMPTS, gen_length=6, path=folder / "arm.zarr", progress=False)
    autoregressive_model().trace(PROMPTS[::-1], gen_length=6, path=folder / "reversed.zarr", progress=False)
    autoregressive_model().trace([[1, 2, 3], [4, 5], [6, 7, 8]], gen_length=6, path=folder / "other.zarr", progress=False)
    return folder


@pytest.fixture(autouse=True)
def in_the_folder(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Commands name traces as they lie there."""
    monkeypatch.chdir(folder)


def test_a_trace_is_measured_in_tables(floatlens: Callable[..., Ran], folder: Path) -> None:
    code, said, _ = floatlens("measure", "stories.zarr", "--gold", "gold")
    assert code == 0
    assert "3 prompts, anchors by lift > 3.00" in said
    for name in (
        "on the first token",
        "float index",
        "norm product",
        "structure over depth",
        "fair flow",
        "rollout of the answer",
        "retrieval score",
    ):
        assert name in said
    trace = fl.open_trace(folder / "stories.zarr")
    first = measures.absorption_of_first_token(measures.pool_steps(trace.sample(0)))
    by_hand = np.mean(
        [
            float((trace.sample(number)["mass"].sum("step").isel(key=0) / trace.sample(number)["rows"].sum("step")).mean())
            for number in range(3)
        ]
    )
    assert first["share"].notnull().all()
    line = next(line for line in said.splitlines() if "on the first token" in line)
    assert f"{100 * by_hand:.2f} [" in line


def test_json_and_csv_hold_the_same_numbers(floatlens: Callable[..., Ran]) -> None:
    code, as_json, _ = floatlens("measure", "stories.zarr", "--json", "--group", "predicting")
    assert code == 0
    said = json.loads(as_json)
    assert said["rule"] == "lift"
    assert said["prompts"] == 3
    _, as_csv, _ = floatlens("measure", "stories.zarr", "--csv", "--group", "predicting")
    rows = list(csv.DictReader(io.StringIO(as_csv)))
    assert len(rows) == len(said["findings"])
    for row, finding in zip(rows, said["findings"], strict=True):
        for name, value in finding.items():
            assert row[name] == ("" if value is None else str(value))
    shares = [row for row in rows if row["measure"] == "anchor mass by role" and row["depth"] == "all" and row["value"]]
    assert sum(float(row["value"]) for row in shares if row["part"] not in ("structural", "lexical")) == pytest.approx(1, abs=1e-5)


def test_layers_can_be_looked_at_one_by_one(floatlens: Callable[..., Ran]) -> None:
    _, said, _ = floatlens("measure", "mdm.zarr", "--by-layer", "--csv", "--rule", "top", "--eps", "2")
    rows = list(csv.DictReader(io.StringIO(said)))
    assert {row["depth"] for row in rows if row["measure"] == "anchors of a head"} == {"0", "1", "2"}
    assert {float(row["value"]) for row in rows if row["measure"] == "anchors of a head"} == {2.0}


def test_two_traces_are_compared_with_intervals(floatlens: Callable[..., Ran]) -> None:
    code, said, _ = floatlens("measure", "mdm.zarr", "arm.zarr", "--compare", "--eps", "0.5")
    assert code == 0
    assert "3 prompts, paired" in said
    assert "attention on the" in said
    code, said, _ = floatlens("measure", "mdm.zarr", "arm.zarr", "--compare", "--eps", "0.5", "--csv")
    rows = {(row["measure"], row["depth"]): row for row in csv.DictReader(io.StringIO(said))}
    first = rows["on the first token", "all"]
    assert float(first["difference"]) == pytest.approx(float(first["a"]) - float(first["b"]))
    assert float(first["a_null"]) == pytest.approx(100 * np.mean([1 / len(prompt) for prompt in PROMPTS]))
    assert float(first["low"]) <= float(first["difference"]) <= float(first["high"])
    assert 0 < float(first["p_value"]) <= 1


def test_samples_are_paired_by_prompt_whatever_their_order(floatlens: Callable[..., Ran]) -> None:
    _, same, _ = floatlens("measure", "mdm.zarr", "arm.zarr", "--compare", "--csv")
    _, moved, _ = floatlens("measure", "mdm.zarr", "reversed.zarr", "--compare", "--csv")
    for one, other in zip(csv.DictReader(io.StringIO(same)), csv.DictReader(io.StringIO(moved)), strict=True):
        for name in ("b", "difference"):
            assert float(one[name] or 0) == pytest.approx(float(other[name] or 0), rel=1e-4, abs=1e-6)


def test_other_prompts_are_not_paired(floatlens: Callable[..., Ran]) -> None:
    code, _, error = floatlens("measure", "mdm.zarr", "other.zarr", "--compare")
    assert code == 2
    assert "The prompt '5 6 7 8 9' is only in the first trace" in error
    code, _, error = floatlens("measure", "mdm.zarr", "one.zarr", "--compare")
    assert code == 2
    assert "One trace has 3 samples and the other 1" in error
    code, said, _ = floatlens("measure", "mdm.zarr", "other.zarr", "--compare", "--unpaired")
    assert code == 0
    assert "not paired" in said


def test_one_prompt_has_no_interval_and_says_so(floatlens: Callable[..., Ran]) -> None:
    code, said, _ = floatlens("measure", "one.zarr")
    assert code == 0
    assert "one prompt, so no interval" in said
    line = next(line for line in said.splitlines() if "on the first token" in line)
    assert "[" not in line


def test_what_a_trace_does_not_hold_is_left_out_with_the_remedy(floatlens: Callable[..., Ran]) -> None:
    _, said, _ = floatlens("measure", "one.zarr")
    said = " ".join(said.split())
    assert "Left out: score advantage of anchors. The split of the advantage needs score per head" in said
    assert "Record it with detail={'flow': 'layer'} (--detail flow=layer)" in said


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["missing.zarr"], "There is no trace at missing.zarr"),
        (["one.zarr", "--rule", "sinks"], "no anchor rule 'sinks'; the rules are"),
        (["one.zarr", "--gold", "doc_1"], "no region 'doc_1'; its regions are"),
        (["one.zarr", "--group", "masked"], "no group 'masked'; it has predicting"),
        (["one.zarr", "--json", "--csv"], "choose one"),
        (["one.zarr", "--compare"], "takes two traces, and 1 is given"),
        (["one.zarr", "--unpaired"], "add --compare"),
        (["one.zarr", "arm.zarr", "--csv"], "one trace at a time"),
        (["mdm.zarr", "arm.zarr", "--compare", "--by-layer"], "are for one trace"),
    ],
)
def test_a_mistake_is_one_sentence(floatlens: Callable[..., Ran], words: list[str], sentence: str) -> None:
    code, said, error = floatlens("measure", *words)
    assert (code, said) == (2, "")
    assert sentence in " ".join(error.split())


@pytest.mark.parametrize("options", [[], ["--by-layer"]], ids=["thirds", "layers"])
def test_every_number_stands_below_its_heading_at_80_columns(
    options: list[str], floatlens: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    _, listed, _ = floatlens("measure", "stories.zarr", "--group", "predicting", "--csv", *options)
    monkeypatch.setenv("COLUMNS", "80")
    _, said, _ = floatlens("measure", "stories.zarr", "--group", "predicting", *options)
    lines = said.splitlines()
    assert max(map(len, lines)) <= 80
    assert "…" not in said
    rows = [row for row in csv.DictReader(io.StringIO(listed)) if (row["measure"], row["group"]) == ("effective keys", "predicting")]
    shown = {}
    for place, line in enumerate(lines):
        if line.startswith(" effective keys"):
            heading = next(lines[before - 1] for before in range(place, 0, -1) if set(lines[before].strip()) == {"─"})
            for depth in (row["depth"] for row in rows):
                name = "all layers" if depth == "all" else depth
                if found := re.search(rf"(?<!\S){name}(?!\S)", heading):
                    column = line[found.start() :] if depth == "all" else line[: found.end()]
                    shown[depth] = column.split()[0 if depth == "all" else -1]
    assert shown == {row["depth"]: number(float(row["value"])) for row in rows}


@pytest.mark.parametrize("how", [[], ["--by-layer"], ["--json"]], ids=repr)
def test_a_model_with_one_layer_is_measured_without_what_compares_layers(
    floatlens: Callable[..., Ran], tmp_path: Path, how: list[str]
) -> None:
    config = LlamaConfig(hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, vocab_size=64)
    lm = fl.LanguageModel(
        LlamaForCausalLM(config).eval(), family="autoregressive", sampler="autoregressive", row_offset=1, name="one layer"
    )
    lm.trace(PROMPTS, gen_length=6, path=tmp_path / "one-layer.zarr", progress=False)
    code, said, errors = floatlens("measure", tmp_path / "one-layer.zarr", *how)
    assert (code, errors) == (0, "")
    assert "has one layer, so there are no neighbouring layers to compare." in " ".join(said.split())
    assert "entropy" in said, "everything else is measured"
