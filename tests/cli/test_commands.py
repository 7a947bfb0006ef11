"""The command line as a newcomer uses it, on a real model of 260,000 parameters (stories260K)."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import floatlens as fl

STORIES = Path(__file__).parents[1] / "data" / "stories260K.bin"
Ran = tuple[int, str, str]


def test_a_model_is_traced_and_shown(floatlens: Callable[..., Ran], tmp_path: Path) -> None:
    code, said, _ = floatlens("trace", "-m", STORIES, "-p", "Once upon a time", "--gen-length", 12, "-o", tmp_path / "run.zarr")
    assert code == 0
    assert "1 sample of 17 tokens, 12 steps" in said
    assert "there was a little girl named Lily" in said
    trace = fl.open_trace(tmp_path / "run.zarr")
    assert trace.attributes["sampler"]["gen_length"] == 12
    code, said, _ = floatlens("show", tmp_path / "run.zarr")
    assert code == 0
    assert ", there was a little girl" in said
    assert "What the predicting rows look at" in said
    share = trace.sample(0)["mass"].sel(group="predicting").isel(layer=0).mean("head").sum("step") / 12
    assert f"{100 * float(share.max()):.1f}%" in said, "the strongest key of layer 0"


def test_prompts_come_from_a_file_with_regions(floatlens: Callable[..., Ran], tmp_path: Path) -> None:
    lines = ["Once upon a time", {"prompt": "Lily saw a dog. The dog", "regions": {"doc_1": [0, 15]}}]
    (tmp_path / "prompts.jsonl").write_text("\n".join(map(json.dumps, lines)))
    options = ["--gen-length", 4, "--detail", "norms=off,flow=layer", "--patterns", "1:2", "--groups", "predicting,prompt"]
    code, _, errors = floatlens("trace", "-m", STORIES, "--prompt-file", tmp_path / "prompts.jsonl", "-o", tmp_path / "run.zarr", *options)
    assert code == 0, errors
    dataset = fl.open_trace(tmp_path / "run.zarr").dataset
    assert set(dataset["region"].values) == {"bos", "prompt", "doc_1", "answer"}
    covered = dataset["in_region"].sel(region="doc_1", sample=1).values
    assert "".join(dataset["token"].sel(sample=1).values[covered]).strip() == "Lily saw a dog."
    assert {"flow", "pattern"} <= set(dataset.data_vars)
    assert "key_norm" not in dataset


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["trace", "-m", "smolm2", "-p", "x", "-o", "OUT"], "Did you mean 'smollm2-135m'?"),
        (["trace", "-m", STORIES, "-o", "OUT"], "nothing to ask: give --prompt or --prompt-file"),
        (["trace", "-m", STORIES, "-p", "x", "-o", "OUT", "-s", "warmth=1"], "no option 'warmth'"),
        (["trace", "-m", STORIES, "-p", "x", "-o", "OUT", "-s", "temperature=hot"], "temperature is a number"),
        (["trace", "-m", STORIES, "-p", "x", "-o", "OUT", "--detail", "everything"], "detail='everything' is not known"),
        (["trace", "-m", STORIES, "-p", "x", "-o", "OUT", "--patterns", "3"], "layer:head pairs"),
        (["trace", "-m", STORIES, "-p", "x", "-o", "OUT", "--patterns", "99:0"], "layers 0 to 4"),
        (["trace", "-m", STORIES, "-p", "x", "-o", "OUT", "--groups", "masked"], "There is no query group 'masked' here"),
        (["trace", "-m", STORIES, "-p", "x", "-o", "OUT", "--gen-length", "9999"], "more than the 512"),
        (["trace", "-m", STORIES, "-p", "x", "-o", "OUT", "--sampler", "dream"], "cannot be run by the dream sampler"),
        (["trace", "-m", STORIES, "-p", "x", "-o", "OUT", "--dtype", "int3"], "dtype='int3' is not known"),
        (["show", "nowhere.zarr"], "There is no trace at nowhere.zarr"),
        (["doctor", "nowhere"], "There is no model 'nowhere'"),
    ],
    ids=str,
)
def test_a_mistake_is_one_sentence_and_exit_code_2(
    floatlens: Callable[..., Ran], tmp_path: Path, words: list[object], sentence: str
) -> None:
    code, _, errors = floatlens(*(tmp_path / "run.zarr" if word == "OUT" else word for word in words))
    assert code == 2
    assert sentence in errors
    assert errors.startswith("floatlens: ")
    assert "Traceback" not in errors
    assert [file.name for file in tmp_path.iterdir() if file.name != "cache"] == []


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("{not json", "line 2 is not JSON"),
        ('{"question": "x"}', 'line 2: a line is a string or an object with "prompt"'),
        ('{"prompt": "abc", "regions": {"a": [0, 9]}}', "line 2: Region 'a' spans the characters 0 to 9, but the prompt has 3"),
        ('{"prompt": "abc", "regions": {"a": 3}}', 'line 2: "regions" maps names to [start, stop]'),
    ],
)
def test_a_bad_line_is_named(floatlens: Callable[..., Ran], tmp_path: Path, line: str, sentence: str) -> None:
    (tmp_path / "prompts.jsonl").write_text(f'"fine"\n{line}\n')
    code, _, errors = floatlens("trace", "-m", STORIES, "--prompt-file", tmp_path / "prompts.jsonl", "-o", tmp_path / "run.zarr")
    assert (code, sentence in errors) == (2, True), errors


def test_the_doctor_says_what_a_model_is_and_what_a_trace_takes(floatlens: Callable[..., Ran]) -> None:
    code, said, _ = floatlens("doctor", STORIES, "--length", 100, "--steps", 10)
    assert code == 0
    for words in ("can be traced", "yes", "5 layers", "8 heads, 4 for keys", "'<s>', put before every text", "100 tokens and 10 steps"):
        assert words in said


def test_models_lists_every_family(floatlens: Callable[..., Ran]) -> None:
    code, said, _ = floatlens("models")
    assert code == 0
    for family in ("llada", "dream", "sdar", "a2d", "masked-lm", "diffusion-gemma", "remote", "autoregressive", "smollm2-135m"):
        assert family in said


def test_a_mdm_is_shown_with_its_masks(floatlens: Callable[..., Ran], tmp_path: Path) -> None:
    lm = fl.load(STORIES)
    lm.module.config.is_causal = False  # type: ignore[union-attr]
    both_ways = fl.LanguageModel(lm.module, lm.tokenizer, mask_token_id=0)
    both_ways.trace("Once upon a time", gen_length=8, steps=4, path=tmp_path / "run.zarr", progress=False)
    _, said, _ = floatlens("show", tmp_path / "run.zarr", "--group", "masked")
    masks = [line.count("░") for line in said.splitlines() if line.strip()[:1].isdigit() and "░" in line]
    assert masks == [6, 4, 2]
    assert "What the masked rows look at" in said
    code, _, errors = floatlens("show", tmp_path / "run.zarr", "--sample", 3)
    assert (code, "There is no sample 3" in errors) == (2, True)
