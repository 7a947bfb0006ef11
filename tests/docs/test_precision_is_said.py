"""Words do not promise more than the code keeps.

What holds in float32 alone is promised for float32 alone, wherever it is promised: on a page, in a docstring, in the help of a command.
What half precision changes, and where the published loops do something else, is said where the loops are described, and is so.
"""

import ast
import re
from pathlib import Path

import pytest
import torch
from markdown_pages import ROOT, pages_of

from floatlens.decoding.candidates import log_odds

PROMISE = re.compile(
    r"token for token|\bsame tokens\b|\bnever (?:change\w* )?(?:a|the) tokens?\b"
    r"|\bbatch\w*\b[^.;]*\b(?:each (?:prompt|question)|(?:a )?single prompts?)\b",
    re.IGNORECASE,
)

SAID = {
    "README.md": [
        r"In float32, a batch writes the same tokens as each prompt alone",
        r"In float32, each sampler writes the same tokens",
        r"In bfloat16 two nearly equal candidates may swap places when the batch size changes",
    ],
    "docs/reference/decoding.md": [
        r"in float32 the batch size changes the speed and never the tokens",
        r"In bfloat16 .* Two candidates that are nearly equal may therefore swap places",
        r"To make a text independent of the prompts beside it, use `--batch-size 1`",
        r"texts in bfloat16 need not equal those of the published scripts: LLaDA's script ranks candidates by a softmax in bfloat16",
        r"the published top-k also reaches tokens of the block that are already there .* and rewrites them; floatlens writes masks only",
    ],
}


def sentences_of(text: str) -> list[str]:
    """The sentences of a text, on one line each."""
    paragraphs = re.split(r"\n\s*\n|\n\s*(?=[-*|]|\d+\. )", text)
    return [sentence for paragraph in paragraphs for sentence in re.split(r"(?<=[.!?])\s+(?=[A-Z`(\[])", " ".join(paragraph.split()))]


def words_of(file: Path) -> list[str]:
    """What people read of a file: a page without its code, or the texts in Python code, docstrings and help among them."""
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".md":
        return sentences_of(re.sub(r"^(```+).*?^\1$", "", text, flags=re.MULTILINE | re.DOTALL))
    texts = (node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant) and isinstance(node.value, str))
    return [sentence for text in texts for sentence in sentences_of(text)]


def unlimited_promises(file: Path) -> list[str]:
    """The sentences of a file that promise what holds in float32 alone, and do not say so."""
    return [sentence for sentence in words_of(file) if PROMISE.search(sentence) and "float32" not in sentence]


def test_what_holds_in_float32_is_promised_for_float32_everywhere() -> None:
    files = [*pages_of(ROOT), *sorted((ROOT / "src").rglob("*.py"))]
    promises = [(file, sentence) for file in files for sentence in words_of(file) if PROMISE.search(sentence)]
    assert len(promises) > 15, "promises are found at all"
    assert [(str(file.relative_to(ROOT)), sentence) for file in files for sentence in unlimited_promises(file)] == []


@pytest.mark.parametrize(
    ("text", "promises_too_much"),
    [
        ("A batch writes what each prompt writes alone.", True),
        ("A batch writes what each\nprompt writes alone. In bfloat16 it is slower.", True),
        ("In float32, a batch writes what each prompt writes alone.", False),
        ("- The loop of LLaDA, token for token as published.\n- In float32, that of Dream.", True),
        ("The batch size changes the speed and never the tokens.", True),
        ("```sh\n# a batch writes what each prompt writes alone\n```", False),
        ("Batches are padded on the left.", False),
    ],
)
def test_promises_that_say_too_much_are_noticed(text: str, promises_too_much: bool, tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(f"# Page\n\n{text}\n")
    (tmp_path / "module.py").write_text(f'def run():\n    """{text}"""\n')
    assert bool(unlimited_promises(tmp_path / "page.md")) is promises_too_much
    assert bool(unlimited_promises(tmp_path / "module.py")) is promises_too_much or "```" in text


@pytest.mark.parametrize("page", SAID)
def test_what_half_precision_changes_and_what_the_published_loops_do_otherwise_is_said(page: str) -> None:
    text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
    assert [statement for statement in SAID[page] if not re.search(statement, text)] == []


def test_a_softmax_in_bfloat16_ties_candidates_that_are_told_apart_here() -> None:
    """What decoding.md says of the script of LLaDA."""
    rows = torch.zeros(3, 50, dtype=torch.bfloat16)
    rows[range(3), [4, 5, 6]] = torch.tensor([12, 14, 13], dtype=torch.bfloat16)
    assert len({*rows.softmax(-1).amax(-1).tolist()}) == 1
    assert log_odds(rows, rows.argmax(-1)).argsort(descending=True).tolist() == [1, 2, 0]
