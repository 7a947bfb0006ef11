"""The command line as a newcomer uses it, on a real model of 260,000 parameters (stories260K)."""

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

import floatlens as fl
from floatlens.errors import Refusal
from floatlens.tasks.readers.own import read_prompts

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
        (["trace", "-m", "smolm2", "-p", "x", "-o", "OUT"], "Did you mean 'smollm2-mdm'?"),
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
        (
            ["trace", "-m", STORIES, "-p", "x", "-o", "OUT", "--gen-length", "-1"],
            "'--gen-length': must be at least 0.",
        ),
        (["trace", "-m", STORIES, "-p", "x", "-o", "OUT", "--gen-length", "0"], "an autoregressive model writes at least one token"),
        (["trace", "-m", STORIES, "-p", "x", "-o", "OUT", "--steps", "0"], "'--steps': must be at least 1."),
        (
            ["trace", "-m", STORIES, "-p", "x", "-o", "OUT", "-s", "steps=0"],
            "--set steps=... is not a sampler option of its own; use --steps.",
        ),
        (["trace", "-m", STORIES, "-p", "x", "-o", "OUT", "-s", "temperature=NaN"], "temperature=nan must be at least 0."),
        (["trace", "-m", STORIES, "-p", "x", "-o", "OUT", "-s", "temperature=Infinity"], "temperature=inf must be at least 0 and finite."),
        (["trace", "-m", STORIES, "-p", "x", "-o", "OUT", "--top-keys", "0"], "'--top-keys': must be at least 1."),
        (["trace", "-m", STORIES, "-p", "x", "-o", "OUT", "--top-keys", "9999999"], "top_keys=9999999: keep 1 to 4096"),
        (["trace", "-m", STORIES, "-p", "x", "-o", "OUT", "--patterns", "²:0"], "layer:head pairs"),
        (["trace", "-m", STORIES, "-p", "x", "-o", "OUT", "--detail", "mass=head,mass=off"], "--detail gives 'mass' twice; give it once."),
        (["trace", "-m", STORIES, "-p", "x", "--intoo", "OUT"], "No such option: --intoo"),
        (["trace", "-m", STORIES, "-p", "x"], "Missing option '--output' / '-o'. Run `floatlens trace --help` to see what it takes."),
        (["shwo", "nowhere.zarr"], "No such command 'shwo'"),
        (["show", "x" * 300], "x"),
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
        (
            "{not json",
            "line 2: this is not JSON (Expecting property name enclosed in double quotes at column 2). "
            'Each line must be a JSON object with "prompt", or a JSON text.',
        ),
        ('{"question": "x"}', "line 2: there is no field 'prompt'. There are: question."),
        ('{"prompt": "abc", "regions": {"a": [0, 9]}}', "line 2: Region 'a' spans the characters 0 to 9, but the prompt has 3"),
        ('{"prompt": "abc", "regions": {"a": 3}}', "line 2: the region 'a' must be [start, stop], in characters of the prompt."),
    ],
)
def test_a_bad_line_is_named(floatlens: Callable[..., Ran], tmp_path: Path, line: str, sentence: str) -> None:
    (tmp_path / "prompts.jsonl").write_text(f'"fine"\n{line}\n')
    code, _, errors = floatlens("trace", "-m", STORIES, "--prompt-file", tmp_path / "prompts.jsonl", "-o", tmp_path / "run.zarr")
    assert (code, sentence in errors) == (2, True), errors


PROMPTS = '"Once upon a time"\n{"prompt": "One day\u2028Lily", "regions": {"doc_1": [0, 7]}}\n'


@pytest.mark.parametrize(
    "content",
    [
        PROMPTS.encode(),
        b"\xef\xbb\xbf" + PROMPTS.encode(),
        gzip.compress(PROMPTS.encode(), mtime=0),
        f"[{PROMPTS.strip().replace(chr(10), ',')}]".encode(),
    ],
    ids=["lines", "byte-order mark", "gz", "a JSON list"],
)
def test_a_prompt_file_is_read_as_files_of_questions_are(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "prompts").write_bytes(content)
    assert read_prompts(tmp_path / "prompts") == [fl.Prompt("Once upon a time"), fl.Prompt("One day\u2028Lily", {"doc_1": (0, 7)})]
    assert read_prompts(tmp_path / "prompts", limit=1) == [fl.Prompt("Once upon a time")]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ('"café"\n'.encode("latin-1"), "FILE, line 1: byte 5 is not UTF-8. Write the file as UTF-8."),
        (b"", "FILE is empty: there is no record to read."),
        (b"\n \n", "FILE is empty: there is no record to read."),
        (b"[]", "FILE is an empty list: there is no record to read."),
        (b'"fine"\n"\\ud800"', "FILE, line 2: the field 'prompt' holds half of a surrogate pair, which no tokenizer can read."),
        (b'"fine"\n""', "FILE, line 2: the field 'prompt' is empty."),
        (
            b"\x00\x01\x02",
            'FILE, line 1: this is not JSON (Expecting value at column 1). Each line must be a JSON object with "prompt", or a JSON text.',
        ),
        (
            gzip.compress(b'"fine"', mtime=0)[:-9],
            "FILE, after line 0: the gz data are damaged or cut off (Compressed file ended before the end-of-stream marker was reached). "
            "Fetch the file again.",
        ),
        (
            b'{"prompt": "ab", "regions": {"a": [false, true]}}',
            "FILE, line 1: the region 'a' must be [start, stop], in characters of the prompt.",
        ),
        (
            b"9" * 5000,
            "FILE, line 1: this holds a number of too many digits to be read. "
            'Each line must be a JSON object with "prompt", or a JSON text.',
        ),
        (None, "FILE cannot be read: Is a directory."),
    ],
    ids=str,
)
def test_a_prompt_file_that_cannot_be_read_is_a_sentence(
    floatlens: Callable[..., Ran], tmp_path: Path, content: bytes | None, sentence: str
) -> None:
    file = tmp_path / "prompts.jsonl"
    file.mkdir() if content is None else file.write_bytes(content)
    code, _, errors = floatlens("trace", "-m", STORIES, "--prompt-file", file, "-o", tmp_path / "run.zarr")
    assert (code, errors) == (2, f"floatlens: {sentence.replace('FILE', str(file))}\n")


@pytest.mark.parametrize("name", ["nowhere.jsonl", "x" * 300, "a\x00b"])
def test_a_prompt_file_that_cannot_exist_is_a_sentence(name: str) -> None:
    with pytest.raises(Refusal, match=r"^.*(No such file|File name too long|cannot be the name of a file).*\.$"):
        read_prompts(name)


def test_the_doctor_times_generation_with_and_without_a_trace(floatlens: Callable[..., Ran]) -> None:
    code, said, error = floatlens("doctor", STORIES, "--length", 12, "--steps", 3, "--measure", "--device", "cpu")
    assert code == 0, error
    found = re.search(r"measured\D*([\d.e-]+) ms per step with a trace, ([\d.e-]+) ms without: ([\d.]+) times as long", _on_one_line(said))
    assert found, said
    traced, alone, ratio = map(float, found.groups())
    assert ratio == pytest.approx(traced / alone, rel=0.02)
    assert "12 tokens" in _on_one_line(said)
    code, _, error = floatlens("doctor", STORIES, "--length", 3, "--steps", 3, "--measure", "--device", "cpu")
    assert (code, "has no room for 3" in _on_one_line(error)) == (2, True)


def _on_one_line(text: str) -> str:
    """Text from a table, without its frame."""
    return " ".join(text.replace("│", " ").split())


def test_the_doctor_says_what_a_model_is_and_what_a_trace_takes(floatlens: Callable[..., Ran]) -> None:
    code, said, _ = floatlens("doctor", STORIES, "--length", 100, "--steps", 10)
    assert code == 0
    for words in ("can be traced", "yes", "5 layers", "8 heads, 4 for keys", "'<s>', added before every text", "100 tokens and 10 steps"):
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


@pytest.mark.parametrize("twin", ["twin-mdm", "twin-arm"])
def test_a_twins_text_is_shown_with_the_blanks_of_its_decoder(
    twin: str, floatlens: Callable[..., Ran], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompt = "Britta York keeps a dog. Britta York lives in Tunis.\nWhere does Britta York live?"
    trace = fl.load(twin).trace(prompt, gen_length=8, path=tmp_path / "run.zarr", progress=False)
    monkeypatch.setenv("COLUMNS", "80")
    _, said, _ = floatlens("show", tmp_path / "run.zarr", "--prompt", "--top", 10)
    lines = [line.rstrip() for line in said.splitlines()]
    assert max(map(len, lines)) <= 80
    canvas = lines[3 : lines.index("", 3)]
    steps = [place for place, line in enumerate(canvas) if line[:4].strip()]
    last = " ".join(line[5:].strip() for line in canvas[steps[-1] :])
    assert last == f"[BOS]{prompt}{trace.completion(0)}".replace("\n", "⏎")
    keys = [word for line in lines if line.startswith(" layer") for word in line.split("  ") if word.strip().startswith("key")]
    assert [key.strip() for key in keys] == [f"key {rank}" for rank in range(1, 11)], "keys that do not fit get a table of their own"
