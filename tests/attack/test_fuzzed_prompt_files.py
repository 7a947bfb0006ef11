"""Files of prompts, questions and passages with mutated bytes: a file is read or refused in a sentence that names it.

`@example`s are files that once ended in something other than a refusal.
"""

import gzip
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from attack_size import tries
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from floatlens.errors import Refusal
from floatlens.tasks.readers import KINDS, read_code_tasks, read_samples
from floatlens.tasks.readers.own import read_passages, read_prompts

attempts = settings(
    max_examples=tries(120, 10_000),
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.too_slow,
        HealthCheck.filter_too_much,
        HealthCheck.data_too_large,
    ],
    deadline=None,
)

FOLDER = Path(tempfile.mkdtemp())
NAMES = sorted(
    {
        *(
            "prompt",
            "regions",
            "question",
            "answers",
            "answer",
            "passages",
            "gold",
            "id",
            "text",
            "title",
            "ctxs",
            "isgold",
            "query",
            "positive",
            "negative",
        ),
        *(
            "positive_wrong",
            "input",
            "output",
            "passage",
            "segment",
            "context",
            "supporting_facts",
            "data",
            "paragraphs",
            "qas",
            "relation",
            "subject",
            "object",
        ),
        *(
            "template",
            "uuid",
            "ordered_kv_records",
            "key",
            "value",
            "correct answer",
            "incorrect answer",
            "adv_texts",
            "task_id",
            "canonical_solution",
            "test",
        ),
        *("entry_point", "sentences", "sent_id", "contents", "conflicting"),
    }
)
RIGHT: list[Any] = [
    "Who wrote Faust?",
    {"prompt": "Anna wrote it.", "regions": {"doc_1": [0, 14]}},
    {"question": "Where?", "answers": ["Oslo"], "passages": ["In Oslo.", {"text": "In Rome.", "conflicting": True}], "gold": [0]},
    {"question": "Where?", "answers": ["Oslo"], "ctxs": [{"text": "In Oslo.", "title": "a", "isgold": True}]},
    {"question": "Where?", "answer": ["Oslo"]},
    {"id": 1, "query": "Where?", "answer": ["Oslo"], "positive": ["In Oslo."], "negative": ["In Rome."]},
    {"input": "Where?", "output": [{"answer": "Oslo"}], "passage": [{"segment": "In Oslo.", "title": "a"}]},
    {"id": "a", "question": "Where?", "answer": "Oslo", "context": [["a", ["In Oslo."]]], "supporting_facts": [["a", 0]]},
    {
        "data": [
            {
                "title": "a",
                "paragraphs": [{"context": "In Oslo.", "qas": [{"id": "1", "question": "Where?", "answers": [{"text": "Oslo"}]}]}],
            }
        ]
    },
    {"relation": "P36", "subject": "Norway", "object": "Oslo", "template": "The capital of [X] is [Y] .", "uuid": "a"},
    {"question": "1 + 1?", "answer": "#### 2"},
    {"ordered_kv_records": [["a", "b"], ["c", "d"]], "key": "a", "value": "b"},
    {"id": "a", "question": "Where?", "correct answer": "Oslo", "incorrect answer": "Rome", "adv_texts": ["In Rome."]},
    {
        "task_id": "HumanEval/0",
        "prompt": "def f():\n",
        "canonical_solution": "    return 1\n",
        "test": "def check(f):\n    assert f() == 1\n",
        "entry_point": "f",
    },
    {"text": "In Oslo.", "title": "a"},
]
odd = st.sampled_from(
    ["", "\ud800", "\u2028", "\x00", "\ufeff", "x" * 10_000, "####", "[X]", 0, -1, True, None, 1e999, 10**400, [], {}, [[]], [{}]]
)
values = st.recursive(
    odd | st.text(max_size=4) | st.integers(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3),
    max_leaves=5,
)


def replaced(record: Any, numbers: list[int], value: Any) -> Any:
    """A record in which one place holds another value."""
    if not numbers or not isinstance(record, dict | list) or not record:
        return value
    copied = dict(record) if isinstance(record, dict) else list(record)
    name = [*(copied if isinstance(copied, dict) else range(len(copied)))][numbers[0] % len(copied)]
    copied[name] = replaced(copied[name], numbers[1:], value)
    return copied


records = st.one_of(
    st.sampled_from(RIGHT), st.builds(replaced, st.sampled_from(RIGHT), st.lists(st.integers(0, 5), max_size=5), values), values
)


def as_bytes(lines: list[Any], document: bool, start: bytes, cut: int, flip: tuple[int, int], packed: bool, encoding: str) -> bytes:
    """A file of records, with some damage."""
    text = json.dumps(lines) if document else "\n".join(json.dumps(line, ensure_ascii=cut % 2 == 0) for line in lines)
    content = bytearray(start + text.encode(encoding, "surrogatepass" if encoding == "utf-8" else "replace"))
    content = content[: len(content) - cut] if cut < len(content) else content
    if content and flip[1]:
        content[flip[0] % len(content)] ^= flip[1]
    if not packed:
        return bytes(content)
    zipped = gzip.compress(bytes(content), mtime=0)
    return zipped[: len(zipped) - cut] if cut < 20 else zipped


files = st.builds(
    as_bytes,
    st.lists(records, max_size=3),
    st.booleans(),
    st.sampled_from([b"", b"", b"", b"\xef\xbb\xbf", b"\xff\xfe", b"\x1f\x8b", b"[", b"\n\n", b"id\ttext\ttitle\n"]),
    st.sampled_from([0, 0, 0, 1, 2, 7, 30]),
    st.tuples(st.integers(0, 500), st.sampled_from([0, 0, 0, 1, 8, 128])),
    st.booleans(),
    st.sampled_from(["utf-8", "utf-8", "utf-8", "latin-1", "utf-16"]),
)


def read_or_refused(content: bytes, read: Callable[[Path], Any]) -> None:
    """Read a file; what is not read is refused with its name, in a sentence."""
    file = FOLDER / "file.jsonl"
    file.write_bytes(content)
    try:
        list(read(file))
    except Refusal as refusal:
        if not (str(refusal).startswith(str(file)) and str(refusal).rstrip().endswith(".")):
            raise AssertionError(f"this does not say which file, or is no sentence: {refusal}") from refusal


@attempts
@given(files)
@example(b"9" * 5000)
@example(b"[" * 100_000)
@example(b'{"prompt": "ab", "regions": {"a": [0, ' + b"9" * 5000 + b"]}}")
@example(b'{"prompt": "ab", "regions": {"\\ud800": [0, 1]}}')
@example(b'{"prompt": "ab", "regions": {"bos": [0, 1]}}')
def test_prompts(content: bytes) -> None:
    read_or_refused(content, read_prompts)


@attempts
@given(files, st.sampled_from([None, None, *KINDS]))
@example(b"9" * 5000, None)
@example(b'{"data": ' + b"9" * 5000 + b"\n}", None)
def test_questions(content: bytes, kind: str | None) -> None:
    read_or_refused(content, lambda file: read_samples(file, kind))


@attempts
@given(files)
def test_programs_and_passages(content: bytes) -> None:
    read_or_refused(content, read_code_tasks)
    read_or_refused(content, read_passages)
