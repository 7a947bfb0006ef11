"""Every command and snippet of the pages that teach, run from the pages themselves.

A page's blocks run in order, in one empty folder, and share their Python names, as a reader would run them. `floatlens ...` runs inside the
test's process, which imports torch once. A comment above a block changes that:

    <!-- needs: SmolLM2 -->             run with twins in the place of these models; as it stands only in `make test-real`
    <!-- needs: a GPU and a hub -->     run with twins in the place of these models; as it stands it is skipped, by name
    <!-- not run: it never ends -->     skipped, by name

An expression with a text behind it, `lm.generate(...)[0].text  # 'Rome .'`, must have that value. Of `make TARGET` only the target is
looked up, and `floatlens view`, which serves until Ctrl-C, is not started. `make test` runs fewer prompts than the pages say.
"""

import ast
import re
import runpy
import shlex
import sys
import tokenize
from collections.abc import Callable, Iterator
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
from markdown_pages import ROOT, Block, blocks_of
from transformers import LlamaConfig, LlamaForCausalLM

Floatlens = Callable[..., tuple[int, str, str]]

PAGES = [
    "README.md",
    "docs/tutorial.md",
    "docs/how-to/add.md",
    "docs/how-to/notebooks.md",
    "docs/how-to/read-a-trace.md",
    "docs/how-to/tap.md",
    "docs/how-to/trace-your-model.md",
]
REAL = "SmolLM2"
STAND_INS = {
    "smollm2-135m": "twin-arm",
    "smollm2-mdm": "twin-mdm",
    "GSAI-ML/LLaDA-8B-Instruct": "twin-mdm",
    "meta-llama/Llama-3.1-8B-Instruct": "twin-arm",
    "--device cuda": "--device cpu",
    "isel(layer=12)": "isel(layer=2)",  # a twin has six layers
}
SMALLER = {"range(12)": "range(3)", "--samples 12": "--samples 2"}  # fewer prompts, where models are not real
SHELL = ("sh", "bash")
PYTHON = ("python",)

BLOCKS = [block for page in PAGES for block in blocks_of(ROOT / page)]
RUN = {page: [block for block in BLOCKS if block.page == page and block.language in SHELL + PYTHON] for page in PAGES}


@pytest.mark.parametrize("page", PAGES)
def test_every_command_and_snippet_runs(page: str, floatlens: Floatlens, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_page(page, floatlens, tmp_path, monkeypatch, real=False)


@pytest.mark.real
@pytest.mark.parametrize("page", [page for page in PAGES if any(block.needs == REAL for block in RUN[page])])
def test_every_command_and_snippet_runs_with_real_models(
    page: str, floatlens: Floatlens, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FLOATLENS_CACHE")
    run_page(page, floatlens, tmp_path, monkeypatch, real=True)


@pytest.mark.parametrize(
    "block", [block for block in BLOCKS if block.not_run or block.needs not in ("", REAL)], ids=lambda block: block.place
)
def test_what_cannot_be_run_here_says_why(block: Block) -> None:
    pytest.skip(f"{block.place}: {block.not_run or f'needs {block.needs}'}")


def test_blocks_of_other_languages_say_why_they_are_not_run() -> None:
    known = (*SHELL, *PYTHON, "", "text", "json", "toml")
    assert [block.place for block in BLOCKS if block.language not in known and not block.not_run] == []


def run_page(page: str, floatlens: Floatlens, folder: Path, monkeypatch: pytest.MonkeyPatch, *, real: bool) -> None:
    """Run the blocks of a page in order; where models are not real, with twins in their place."""
    monkeypatch.chdir(folder)
    for read in ("tests", "examples"):  # commands read small files from there
        (folder / read).symlink_to(ROOT / read)
    monkeypatch.setenv("COLUMNS", "100")
    names = names_of_the_reader()
    for block in RUN[page]:
        if block.not_run:
            continue
        stands_in = bool(block.needs) and not (real and block.needs == REAL)
        text = replaced(block.text, STAND_INS) if stands_in else block.text
        text = text if real else replaced(text, SMALLER)
        if block.language in SHELL:
            run_commands(replace(block, text=text), floatlens)
        else:
            run_python(replace(block, text=text), names, exact=not stands_in)


def names_of_the_reader() -> dict[str, Any]:
    """What the snippets about the tap take for granted: a model of the reader's own, its tokens and its loop."""
    config = LlamaConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=4, num_attention_heads=4, vocab_size=64)
    config.is_causal = False
    model = LlamaForCausalLM(config).eval()
    mask_token = 63
    input_ids = torch.cat([torch.arange(3, 12), torch.full((5,), mask_token)]).repeat(2, 1)

    def denoise(model: Any, prompt: Any) -> None:
        for _ in range(3):
            model(prompt)

    return {
        "__name__": "__main__",
        "torch": torch,
        "model": model,
        "input_ids": input_ids,
        "mask_token": mask_token,
        "prompt": input_ids,
        "denoise": denoise,
    }


def replaced(text: str, pairs: dict[str, str]) -> str:
    """A text with one thing in the place of another."""
    for old, new in pairs.items():
        text = text.replace(old, new)
    return text


def run_commands(block: Block, floatlens: Floatlens) -> None:
    """Run a block of commands; each must succeed."""
    for line, words in commands_of(block.text):
        where = f"{block.page}:{block.line + line}"
        if words[0] == "make":
            assert re.search(rf"^{re.escape(words[1])}:", (ROOT / "Makefile").read_text(), re.MULTILINE), f"{where}: no such target"
        elif words[:2] == ["floatlens", "view"]:
            continue
        elif words[0] == "floatlens":
            code, said, errors = floatlens(*words[1:])
            assert code == 0, f"{where}: {' '.join(words)}\n{said}{errors}"
        elif words[0] == "python":
            sys_argv, sys.argv = sys.argv, words[1:]
            try:
                runpy.run_path(words[1] if Path(words[1]).exists() else str(ROOT / words[1]), run_name="__main__")
            finally:
                sys.argv = sys_argv
        else:
            pytest.fail(f"{where}: no test can run {words[0]!r}; write <!-- not run: why --> above the block.")


def commands_of(block: str) -> Iterator[tuple[int, list[str]]]:
    """The commands of a block with their lines; quotes and backslashes may join lines, `&&` joins commands."""
    pending, start = "", 0
    for number, line in enumerate(block.splitlines(), start=1):
        start = start if pending else number
        pending += f"{line}\n"
        if line.rstrip().endswith("\\"):
            continue
        try:
            words = shlex.split(pending.replace("\\\n", " "), comments=True)
        except ValueError:  # a quote is still open
            continue
        pending = ""
        for command in " ".join(map(shlex.quote, words)).split(" '&&' "):
            apart = shlex.split(command)
            if apart and apart[0] != ".":  # the environment is already active
                yield start, apart
    assert not pending.strip(), f"a quote is never closed: {pending}"


def run_python(block: Block, names: dict[str, Any], *, exact: bool) -> None:
    """Run a snippet, statement by statement; a text behind an expression is its value."""
    where = f"{block.page}:{block.line}"
    tree = ast.parse(block.text, filename=where)
    promised = promised_values(block.text) if exact else {}
    for statement in tree.body:
        if isinstance(statement, ast.Expr):
            value = eval(compile(ast.Expression(statement.value), where, "eval"), names)
            if statement.end_lineno in promised:
                assert value == promised[statement.end_lineno], f"{block.page}:{block.line + statement.lineno}"
        else:
            exec(compile(ast.Module([statement], []), where, "exec"), names)


def promised_values(text: str) -> dict[int, Any]:
    """Texts and numbers that stand behind a line as its comment, by line."""
    values = {}
    for token in tokenize.generate_tokens(StringIO(text).readline):
        if token.type == tokenize.COMMENT and token.line[: token.start[1]].strip():
            try:
                values[token.start[0]] = ast.literal_eval(token.string[1:].strip())
            except (ValueError, SyntaxError):  # a remark
                continue
    return values


def test_commands_are_read_as_a_shell_reads_them() -> None:
    block = "make setup && . .venv/bin/activate\nfloatlens show run.zarr  # the canvas\n\n# nothing\n"
    block += 'floatlens trace -p "one\ntwo" \\\n  -o x.zarr\n'
    assert list(commands_of(block)) == [
        (1, ["make", "setup"]),
        (2, ["floatlens", "show", "run.zarr"]),
        (5, ["floatlens", "trace", "-p", "one\ntwo", "-o", "x.zarr"]),
    ]


def test_a_command_that_fails_fails_the_page(floatlens: Floatlens) -> None:
    with pytest.raises(AssertionError, match=r"page\.md:4: floatlens show gone\.zarr"):
        run_commands(Block("page.md", 3, "sh", "floatlens show gone.zarr\n"), floatlens)
    with pytest.raises(AssertionError, match="no such target"):
        run_commands(Block("page.md", 3, "sh", "make nonsense\n"), floatlens)
    with pytest.raises(pytest.fail.Exception, match="no test can run 'curl'"):
        run_commands(Block("page.md", 3, "sh", "curl x\n"), floatlens)


def test_a_value_that_is_not_as_promised_fails_the_page() -> None:
    run_python(Block("page.md", 1, "python", "x = 'a'\nx + 'b'  # 'ab'\nx  # a remark\n"), {}, exact=True)
    with pytest.raises(AssertionError, match=r"page\.md:3"):
        run_python(Block("page.md", 1, "python", "x = 'a'\nx + 'b'  # 'ac'\n"), {}, exact=True)


def test_marks_are_read_from_the_comment_above_a_block(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "<!-- needs: SmolLM2 -->\n```sh\na\n```\n\n<!-- not run: it never ends -->\n\n```sh\nb\n```\n\nText.\n\n```python\nc\n```\n"
    )
    assert [(block.line, block.needs, block.not_run) for block in blocks_of(page, tmp_path)] == [
        (2, "SmolLM2", ""),
        (8, "", "it never ends"),
        (14, "", ""),
    ]
