"""HumanEval JSONL: `task_id`, `prompt`, `entry_point`, `test`, `canonical_solution`.

A programming task is judged by running it (`floatlens.tasks.code_runs`), not by comparing answers, so it is a value of its own and not a `Sample`. Ids are the file's own.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from floatlens.tasks.readers.records import Record, distinct, open_records

FIELDS = "task_id, prompt, entry_point, test, canonical_solution"


@dataclass(frozen=True)
class CodeTask:
    """The beginning of a function to be completed, and tests that `check` the function of that name. `solution` completes it."""

    id: str
    prompt: str
    tests: str
    entry_point: str
    solution: str


def recognises(value: dict[str, Any]) -> bool:
    """Whether a record looks like one of this format.

    Examples
    --------
    >>> recognises({"task_id": "", "prompt": "", "test": "", "entry_point": ""})
    True
    """
    return {"task_id", "prompt", "test", "entry_point"} <= value.keys()


def read_code_tasks(path: str | os.PathLike[str]) -> Iterator[CodeTask]:
    """The tasks of a HumanEval file (gz or plain), one at a time, or of a "hf:NAME/SPLIT" data set.

    Examples
    --------
    >>> import json, pathlib, tempfile
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "tasks.jsonl"
    >>> prompt, test = "def double(number):\\n", "def check(candidate):\\n    assert candidate(2) == 4\\n"
    >>> task = {"task_id": "mine/0", "prompt": prompt, "entry_point": "double", "test": test, "canonical_solution": "    return 2 * number\\n"}
    >>> _ = file.write_text(json.dumps(task))
    >>> next(read_code_tasks(file)).entry_point
    'double'
    """
    return distinct((record, _task(record)) for record in open_records(path))


def _task(record: Record) -> CodeTask:
    prompt, name = record.text("prompt"), record.text("entry_point")
    if not name.isidentifier():
        raise record.refusal(f"the field 'entry_point' must name a function, not {name!r}.")
    return CodeTask(record.text("task_id"), prompt, record.text("test"), name, record.text("canonical_solution"))
