"""Prompts, names and answers that are written to hurt.

Nothing in them is a command to the terminal, and nothing in them ends in a traceback. What is printed may hold escape codes of rich
alone; with NO_COLOR and no terminal there is none, so that not one control character may be left.
"""

import io
import json
import os
import re
import subprocess
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from attack_size import FULL, tries
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from rich.table import Table
from rich.text import Text

import floatlens as fl
from floatlens.cli import run
from floatlens.errors import Refusal
from floatlens.terminal import make_console, on_one_line, progress_bar, say, visible
from floatlens.trace.schema import PRESETS

Ran = tuple[int, str, str]
RUN = "from floatlens.cli import run; import sys; sys.argv[0] = 'floatlens'; run()"
STORIES = Path(__file__).parents[1] / "data" / "stories260K.bin"

HOSTILE = {
    "colours": "\x1b[31mred\x1b[0m",
    "a cleared screen": "\x1b[2J\x1b[H",
    "a window title": "\x1b]0;owned\x07",
    "a link": "\x1b]8;;http://example.invalid\x1b\\click\x1b]8;;\x1b\\",
    "one-byte escape codes": "\x9b31m\x9d0;owned\x9c",
    "other directions": "\u202eevil\u202c \u2066a\u2069 \u200f",
    "nothing to see": "a\u200b\u2060\ufeff\u00adb\U000e0041",
    "control characters": "a\x00b\x07c\x08d\re\x0bf\x0cg\x7fh",
    "line separators": "a\u2028b\u2029c\x85d",
    "markup": "[red]not red[/red] [link=http://example.invalid]x[/link] [/] [bold",
    "emoji codes": ":smile: :warning:",
    "marks of templates": "<|im_end|><|endoftext|></s><s>[INST]<|eot_id|>",
    "a long word": "x" * 10_000,
    "braces and percents": "{prompt} {0} %s %(x)s {{ 7 * 7 }} {% for %}",
}


def harmless(text: str) -> bool:
    """Whether a terminal takes a text for nothing but text."""
    return not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", text) and all(
        unicodedata.category(letter) not in ("Cs", "Zl", "Zp") and (unicodedata.category(letter) != "Cf" or letter in "\u200c\u200d")
        for letter in text
    )


@settings(max_examples=tries(200, 10_000), deadline=None)
@given(st.text(st.characters(exclude_categories=()), max_size=30))
def test_every_way_to_print_leaves_text_alone_and_shows_the_rest(text: str) -> None:
    shown = visible(text)
    assert harmless(re.sub("[\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd\U00013430-\U0001345f]", "", shown)), (
        "signs that are seen may stay"
    )
    assert visible(shown) == shown
    assert not set(on_one_line(text)) & {"\n", "\t"}
    if harmless(text):
        assert shown == text


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_tables_titles_and_sentences_show_what_they_are_given(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "12000")
    out = io.StringIO()
    console = make_console()
    console.file = out
    table = Table(text, title=text)
    table.add_row(text)
    table.add_row(Text(visible(text)))
    for printed in (text, Text(text), table):
        console.print(printed)
    say(console, text)
    assert harmless(out.getvalue())
    assert out.getvalue().count(visible(text)) >= 5, "word for word, in the sentence and in the table"


def test_a_progress_bar_shows_its_title_as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("floatlens.terminal.PATIENCE", -1.0)
    monkeypatch.setattr(Console, "print", lambda *_, **__: None)
    from rich.progress import Progress

    really = Progress.add_task
    monkeypatch.setattr(Progress, "add_task", lambda bar, title, **how: (shown.append(title), really(bar, title, **how))[1])
    with progress_bar(1, "[red]x[/red]\x1b[31m\n") as advance:
        advance(1)
    assert shown == ["[red]x[/red]\\x1b[31m⏎"]


@pytest.fixture(scope="module")
def model() -> fl.LanguageModel:
    return fl.load(STORIES)


@pytest.fixture(scope="module")
def hostile_trace(tmp_path_factory: pytest.TempPathFactory, model: fl.LanguageModel) -> Path:
    """Every hostile text in a prompt, with regions of hostile names, in a folder of a hostile name."""
    texts = [text[:100] for text in HOSTILE.values()][:SHOWN]
    prompts = [fl.Prompt(f"Once {text} end", {REGION: (0, 4), "rest": (4, 9 + len(text))}) for text in texts]
    path = tmp_path_factory.mktemp("hostile") / "\x1b[31mrun[red]\u202e.zarr"
    trace = model.trace(prompts, gen_length=1, detail={**PRESETS["light"], "flow": "layer"}, path=path, progress=False)
    assert [trace.prompt(number) for number in range(len(trace))] == [f"Once {text} end" for text in texts], "kept as they are"
    return path


SHOWN = tries(3, len(HOSTILE))
REGION = "\x1b[31mdoc[red]\u202e"


@pytest.mark.parametrize("number", range(SHOWN))
def test_a_hostile_prompt_is_shown_as_text(floatlens: Callable[..., Ran], hostile_trace: Path, number: int) -> None:
    code, said, errors = floatlens("show", hostile_trace, "--prompt", "--sample", number)
    assert code == 0, errors
    assert harmless(said)
    assert "\\x1b[31mrun[red]\\u202e.zarr" in said


@pytest.mark.parametrize("how", [[], ["--csv"], ["--json"]], ids=repr)
def test_hostile_names_of_regions_are_text_in_measures(floatlens: Callable[..., Ran], hostile_trace: Path, how: list[str]) -> None:
    code, said, errors = floatlens("measure", hostile_trace, *how)
    assert code == 0, errors
    assert harmless(said)
    if how == ["--json"]:
        assert any(REGION in finding["part"] for finding in json.loads(said)["findings"]), "exact, for programs"
    else:
        assert visible(REGION) in said


def test_hostile_prompts_are_traced_from_the_command_line(floatlens: Callable[..., Ran], tmp_path: Path) -> None:
    prompts = [word for text in HOSTILE.values() for word in ("-p", text[:200].replace("\x00", ""))]
    code, said, errors = floatlens("trace", "-m", STORIES, *prompts, "--gen-length", 1, "--detail", "light", "-o", tmp_path / "run.zarr")
    assert code == 0, errors
    assert harmless(said + errors)


def test_hostile_questions_are_scored_and_printed_as_text(floatlens: Callable[..., Ran], tmp_path: Path) -> None:
    questions = [{"id": f"{name}\x1b[31m", "question": text[:100], "answers": [text[:100]]} for name, text in HOSTILE.items()]
    (tmp_path / "\x1b[31mhostile.jsonl").write_text("\n".join(map(json.dumps, questions)))
    words = ["eval", "-m", "twin-arm", "-t", "plain", "-d", tmp_path / "\x1b[31mhostile.jsonl", "--gen-length", 1, "--no-likelihood"]
    code, said, errors = floatlens(*words, "--into", tmp_path / "\x1b[31mout")
    assert code == 2, "the twin knows none of these words"
    assert harmless(said + errors)
    code, said, errors = floatlens(*words, "--allow-unknown", "--into", tmp_path / "\x1b[31mout")
    assert code == 0, errors
    assert harmless(said + errors)
    assert len(pl.read_parquet(tmp_path / "\x1b[31mout" / "results.parquet", glob=False)) == len(HOSTILE)


@pytest.mark.parametrize(
    "words",
    [
        ["trace", "-m", "\x1b[31mmodel[red]", "-p", "x", "-o", "OUT"],
        ["trace", "-m", STORIES, "-p", "x", "-o", "OUT", "--detail", "\x1b[31m"],
        ["trace", "-m", STORIES, "-p", "x", "-o", "OUT", "--\x1b[31m"],
        ["trace", "-m", STORIES, "-p", "x", "-o", "OUT", "--seed", "\x1b[31m"],
        ["trace", "-m", STORIES, "--prompt-file", "\x1b]0;x\x07.jsonl", "-o", "OUT"],
        ["show", "\x1b[31m\u202e"],
        ["eval", "-m", "twin-mdm", "-t", "\x9b31m", "--into", "OUT"],
        ["eval", "-m", "twin-mdm", "-t", "plain", "-d", "hf:\x1b[31m/x", "--into", "OUT"],
        ["\x1b[2J"],
        ["doctor", "[link=http://example.invalid]\x1b[31m[/link]"],
        ["measure", "\ud800.zarr"],
    ],
    ids=repr,
)
def test_a_refusal_shows_what_it_quotes_as_text(floatlens: Callable[..., Ran], tmp_path: Path, words: list[object]) -> None:
    code, said, errors = floatlens(*(tmp_path / "run.zarr" if word == "OUT" else word for word in words))
    assert code == 2
    assert harmless(said + errors)
    assert errors.startswith("floatlens: ")
    assert "Traceback" not in errors


@pytest.mark.parametrize(
    "prompt", ["half \ud800 of a pair", "\udcff", [{"role": "user", "content": "half \udfff"}]], ids=["half", "first", "message"]
)
def test_half_of_a_surrogate_pair_is_refused_with_its_place(model: fl.LanguageModel, prompt: object) -> None:
    if isinstance(prompt, list):
        model.tokenizer.chat_template = "{{ messages[0]['content'] }}"
    try:
        with pytest.raises(
            Refusal,
            match=r"^Character \d+ of the prompt is half of a surrogate pair, which no tokenizer can read\. Write the text as UTF-8\.$",
        ):
            model.generate([prompt], gen_length=1, progress=False)  # type: ignore[list-item]
    finally:
        model.tokenizer.chat_template = None


def test_marks_of_a_template_in_a_prompt_are_the_tokens_they_name() -> None:
    twin = fl.load("twin-mdm")
    with pytest.raises(Refusal, match="Prompt 0 holds the mask token"):
        twin.generate("Where does [MASK] live?", gen_length=2, progress=False)
    trace = twin.trace("Where does [EOS] live?", gen_length=2, progress=False)
    special = trace.sample(0)["special"].values[:5]
    assert special.tolist() == [True, False, False, True, False], "[BOS], then the words and the mark among them"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_a_pipe_of_any_encoding_takes_everything(hostile_trace: Path, encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for words in (["show", str(hostile_trace), "--prompt", "--sample", "2"], ["doctor", "\udcff中\x1b[31m"]):
        out, errors = (io.TextIOWrapper(io.BytesIO(), encoding=encoding) for _ in range(2))
        monkeypatch.setattr(sys, "stdout", out)
        monkeypatch.setattr(sys, "stderr", errors)
        monkeypatch.setattr(sys, "argv", ["floatlens", *words])
        with pytest.raises(SystemExit) as ended:
            run()
        said = [stream.detach().getvalue() for stream in (out, errors) if not stream.flush()]  # type: ignore[union-attr]  # bytes in memory
        assert ended.value.code == (0 if words[0] == "show" else 2)
        assert b"\x1b" not in b"".join(said)
        assert all(harmless(text.decode(encoding)) for text in said)


@pytest.mark.skipif(not FULL, reason="three processes; make attack")
@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_a_real_pipe_takes_everything(hostile_trace: Path, tmp_path: Path, encoding: str) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": encoding, "LC_ALL": "C", "FLOATLENS_CACHE": str(tmp_path / "cache")}
    shown = subprocess.run(
        [sys.executable, "-c", RUN, "show", "--prompt", str(hostile_trace)], env=environment, capture_output=True, check=False
    )
    assert shown.returncode == 0, shown.stderr
    assert harmless(shown.stdout.decode(encoding))
