"""Formats of problems whose solution is checked: word problems by their final number (GSM8K), programs by running them (HumanEval).

A programming task is judged by running it (`floatlens.tasks.code_runs`), not by comparing answers, so it is a value of its own, `CodeTask`,
and not a `Sample`.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass

from floatlens.tasks.readers.records import Format, Record, distinct, has_fields, open_records
from floatlens.tasks.samples import Sample

MARK = "####"


def gsm8k(record: Record) -> Iterator[Sample]:
    """GSM8K, JSON lines: `question`, and `answer`, a worked solution that ends in "#### number". The answer is that number.

    Examples
    --------
    >>> next(gsm8k(Record({"question": "How many?", "answer": "500 + 700 = 1,200\\n#### 1,200"}, "gsm8k.jsonl, line 1", "1"))).answers
    ('1,200',)
    """
    _, mark, number = record.text("answer").rpartition(MARK)
    if not mark or not any(character.isdigit() for character in number):
        raise record.refusal(f"the field 'answer' must end in '{MARK}' and the number.")
    yield record.sample(record.own_id("gsm8k"), record.text("question"), (number.strip(),))


GSM8K = Format(
    "gsm8k",
    'question, answer (ends in "#### number")',
    lambda value: "question" in value and isinstance(value.get("answer"), str) and MARK in value["answer"],
    gsm8k,
)


@dataclass(frozen=True)
class CodeTask:
    """The beginning of a function to be completed, and tests that `check` the function of that name. `solution` completes it."""

    id: str
    prompt: str
    tests: str
    entry_point: str
    solution: str


def read_code_tasks(path: str | os.PathLike[str]) -> Iterator[CodeTask]:
    """The tasks of a HumanEval file (gz or plain), one at a time, or of a "hf:NAME/SPLIT" data set. Ids are the file's own.

    Examples
    --------
    >>> import json, pathlib, tempfile
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "tasks.jsonl"
    >>> task = {"task_id": "mine/0", "prompt": "def double(number):\\n", "entry_point": "double"}
    >>> task |= {"test": "def check(candidate):\\n    assert candidate(2) == 4\\n", "canonical_solution": "    return 2 * number\\n"}
    >>> _ = file.write_text(json.dumps(task))
    >>> next(read_code_tasks(file)).entry_point
    'double'
    """
    return distinct((record, _code_task(record)) for record in open_records(path))


is_code_task = has_fields("task_id", "prompt", "test", "entry_point")
"""Whether a record looks like one of HumanEval."""


def _code_task(record: Record) -> CodeTask:
    prompt, name = record.text("prompt"), record.text("entry_point")
    if not name.isidentifier():
        raise record.refusal(f"the field 'entry_point' must name a function, not {name!r}.")
    return CodeTask(record.text("task_id"), prompt, record.text("test"), name, record.text("canonical_solution"))
