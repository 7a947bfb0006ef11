"""A written twin is a checkpoint like any other: it loads as its kind, in float32, and its card says what it is."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from micro_recipe import MICRO
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

import floatlens as fl
from floatlens.errors import Refusal
from floatlens.lab.publishing import write_twin
from floatlens.lab.recipe import read_recipe
from floatlens.lab.runs import train_twin
from floatlens.lab.updates import data_hash
from floatlens.models.doctor import examine

KINDS = ("arm", "mdm", "causal-mdm")
TEXTS = ["Where does Marta Olsen live?", "Ada Berg lives in Oslo.\nMarta Olsen lives in Rome.\nWhere does Marta Olsen live?"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The twins of a training of seconds. Tests do not write there."""
    place = tmp_path_factory.mktemp("twins")
    for kind in KINDS:
        run = train_twin(kind, place / "runs" / kind, MICRO, progress=False)
        write_twin(place / f"twin-{kind}", kind, MICRO, run.model, run.standing.log, threads=run.standing.threads, questions=8)
    return {kind: place / f"twin-{kind}" for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
def test_a_written_twin_loads_as_its_kind_in_float32(kind: str, folders: dict[str, Path]) -> None:
    lm = fl.load(folders[kind])
    stored = load_file(folders[kind] / "model.safetensors")
    assert (lm.family, lm.dtype) == ("twin", torch.float32)
    assert (lm.sampler, lm.row_offset) == (("autoregressive", 1) if kind == "arm" else ("llada", 0))
    assert lm.config.is_causal == (kind != "mdm")
    assert lm.mask_token_id == (None if kind == "arm" else lm.tokenizer.mask_token_id)
    assert lm.end_tokens == (lm.tokenizer.eos_token_id,)
    assert {tensor.dtype for tensor in stored.values()} == {torch.float16}
    assert all(torch.equal(weights, stored[name].float()) for name, weights in lm.module.named_parameters())
    found = examine(folders[kind])
    assert (found.family, found.obstacle, found.layers) == ("twin", None, 2)


@pytest.mark.parametrize("kind", KINDS)
def test_who_sees_whom_follows_the_kind_in_a_trace_too(kind: str, folders: dict[str, Path]) -> None:
    lm: Any = fl.load(folders[kind])
    one, other = (lm.module(torch.tensor([[2, 40, 41, 42, last]])).logits[0, 1] for last in (43, 44))
    assert torch.equal(one, other) == (kind != "mdm")
    trace = lm.trace(TEXTS[0], gen_length=4, progress=False)
    step = trace.sample(0).isel(step=0).sel(group="predicting" if kind == "arm" else "masked")
    prompt = len(lm.encode(TEXTS[0]).tokens)
    rows = {"arm": [prompt - 1], "mdm": range(prompt, prompt + 4), "causal-mdm": range(prompt, prompt + 4)}[kind]
    seen = step["visible"].fillna(0).values.tolist()  # an autoregressive text may end early
    assert len(seen) > prompt
    assert seen == [sum(key <= row or kind == "mdm" for row in rows) for key in range(len(seen))]


@pytest.mark.parametrize("kind", KINDS)
def test_batched_equals_one_by_one_and_a_saved_twin_is_still_a_twin(kind: str, folders: dict[str, Path], tmp_path: Path) -> None:
    lm = fl.load(folders[kind])
    together = [written.tokens for written in lm.generate(TEXTS, gen_length=6, progress=False)]
    assert together == [lm.generate(text, gen_length=6, progress=False)[0].tokens for text in TEXTS]
    lm.save(tmp_path / "saved")
    saved = fl.load(tmp_path / "saved")
    assert (saved.family, saved.sampler, saved.row_offset, saved.mask_token_id) == (lm.family, lm.sampler, lm.row_offset, lm.mask_token_id)
    assert together == [written.tokens for written in saved.generate(TEXTS, gen_length=6, progress=False)]


def test_transformers_reads_a_twin_by_itself(folders: dict[str, Path]) -> None:
    lm: Any = fl.load(folders["mdm"])
    model = AutoModelForCausalLM.from_pretrained(folders["mdm"]).eval()
    tokens = torch.tensor([AutoTokenizer.from_pretrained(folders["mdm"])(TEXTS[1])["input_ids"]])
    assert model.dtype == torch.float32
    assert torch.equal(model(tokens).logits, lm.module(tokens).logits)


def test_the_card_says_what_the_twin_is_and_how_it_came_about(folders: dict[str, Path]) -> None:
    for kind, folder in folders.items():
        card = (folder / "README.md").read_text()
        assert f"# twin-{kind}\n" in card
        assert data_hash(MICRO) in card
        assert (folder / "recipe.toml").read_text().strip() in card
        assert read_recipe(folder / "recipe.toml") == MICRO
        for words in (
            "One training run**, seed 3",
            "Apache-2.0",
            "look 1, 2 tokens back",
            "like attends to like",
            "No sink is planted",
            "24 updates",
        ):
            assert words in card, words
        assert f"**Attention mask**: {'none' if kind == 'mdm' else 'causal'}" in card
        assert f"**Objective**: to predict {'the next token' if kind == 'arm' else 'what is behind the masks'}" in card
        assert "| closed | people known by heart, no passages |" in card
        rows = list(csv.DictReader((folder / "training.csv").open()))
        assert [row["update"] for row in rows] == ["8", "16", "24"]
        assert all(f"| {row['stage']} | {float(row['loss']):.3f} |" in card for row in rows)  # 8, 16, and the last
        assert rows[0]["closed"] == ""  # what was not measured is empty


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda config: config | {"twin": "amr"}, "must be a Llama's and say \"twin\": one of arm, mdm, causal-mdm, not 'amr'"),
        (lambda config: config | {"twin": ["mdm"]}, "not ['mdm']"),
        (lambda config: config | {"is_causal": True}, "says twin='mdm' and is_causal=True, but attention of that twin is bidirectional"),
    ],
)
def test_a_config_that_contradicts_itself_is_refused(
    change: Callable[[dict[str, Any]], dict[str, Any]], sentence: str, folders: dict[str, Path], tmp_path: Path
) -> None:
    for file in folders["mdm"].iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(change(config)))
    with pytest.raises(Refusal) as refused:
        fl.load(tmp_path)
    assert sentence in str(refused.value)


def test_a_twin_is_written_whole_or_not_at_all(folders: dict[str, Path], tmp_path: Path) -> None:
    model: Any = fl.load(folders["arm"]).module
    log = [{"update": 24, "stage": "ask", "loss": 1.0, "cpu_seconds": 1}]
    with pytest.raises(Refusal, match="exists already"):
        write_twin(folders["arm"], "arm", MICRO, model, log, threads=[1], questions=1)
    with pytest.raises(Refusal, match="ends at update 8, but the recipe has 24"):
        write_twin(tmp_path / "twin", "arm", MICRO, model, [{**log[0], "update": 8}], threads=[1], questions=1)
    with pytest.raises(KeyError):
        write_twin(tmp_path / "twin", "arm", MICRO, model, [{"update": 24}], threads=[1], questions=1)  # the card cannot be written
    assert list(tmp_path.iterdir()) == []
