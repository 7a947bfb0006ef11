"""Questions from files: `read_samples` turns each published format into `Sample`s, one at a time.

A new format is a function that yields the samples of one record, and a `Format` that names it, in the file where it belongs: `open_domain`
(questions to be answered from memory or from retrieved passages), `reading` (questions that come with their passages), `problems` (word
problems and programs), `own` (files of your own; also prompts and corpora). Then add it to `FORMATS` below.

A file's format is guessed from its first record where exactly one format recognises it; otherwise it must be named. Refused, always with
file and line: what `records` refuses, a missing or empty field, a repeated id. Nothing is ever skipped. Programming tasks are not
questions: use `read_code_tasks`.
"""

import os
from collections.abc import Iterator
from itertools import chain

from floatlens.errors import Refusal
from floatlens.tasks.readers.open_domain import KILT, LOST_IN_THE_MIDDLE, NQ_OPEN, TREX
from floatlens.tasks.readers.own import PLAIN, read_passages, read_prompts
from floatlens.tasks.readers.problems import GSM8K, CodeTask, is_code_task, read_code_tasks
from floatlens.tasks.readers.reading import HOTPOTQA, KEY_VALUE, POISONED_RAG, RGB, SQUAD
from floatlens.tasks.readers.records import Format, Record, distinct, open_records
from floatlens.tasks.samples import Sample

__all__ = [
    "FORMATS",
    "KINDS",
    "CodeTask",
    "Format",
    "guess_kind",
    "read_code_tasks",
    "read_passages",
    "read_prompts",
    "read_samples",
]

FORMATS = {
    format.name: format
    for format in (
        PLAIN,
        LOST_IN_THE_MIDDLE,
        NQ_OPEN,
        RGB,
        KILT,
        HOTPOTQA,
        SQUAD,
        TREX,
        GSM8K,
        KEY_VALUE,
        POISONED_RAG,
    )
}
KINDS = tuple(FORMATS)
"""The formats that `read_samples` knows."""


def read_samples(path: str | os.PathLike[str], kind: str | None = None) -> Iterator[Sample]:
    """The questions of a file (gz or plain), one at a time, or of a "hf:NAME/SPLIT" data set.

    The file is opened, its first record read and its format settled at once; mistakes further down are refused when they are reached.

    Parameters
    ----------
    path
        The file, or the name of a data set on the Hugging Face hub.
    kind
        One of `KINDS`; by default guessed from the first record.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "mine.jsonl"
    >>> _ = file.write_text('{"question": "Where?", "answers": ["Oslo"], "passages": ["Marta lives in Oslo."], "gold": [0]}')
    >>> [sample.id for sample in read_samples(file)]
    ['plain-1']
    """
    if kind is not None and kind not in FORMATS and kind != "humaneval":
        raise Refusal(f"There is no format {kind!r} of question files. There are: {', '.join(KINDS)}.")
    records = open_records(path)
    first = next(records)
    kind = kind or guess_kind(first)
    if kind == "humaneval":
        raise first.refusal("this is a HumanEval file; its tasks are run, not compared with answers. Use read_code_tasks.")
    samples = FORMATS[kind].samples
    return distinct((record, sample) for record in chain([first], records) for sample in samples(record))


def guess_kind(record: Record) -> str:
    """The one format that recognises a record, or "humaneval"; refused if none or several do.

    Examples
    --------
    >>> guess_kind(Record({"question": "Where?", "answer": ["Oslo"]}, "nq.jsonl, line 1", "1"))
    'nq-open'
    """
    if is_code_task(record.value):
        return "humaneval"
    fitting = [kind for kind, format in FORMATS.items() if format.recognises(record.value)]
    if len(fitting) == 1:
        return fitting[0]
    fields = ", ".join(list(record.value)[:12]) or "none"
    raise record.refusal(
        f"the fields ({fields}) fit {' and '.join(fitting) or 'no known format'}. "
        f"Pass the format as --task (kind=); the formats are {', '.join(KINDS)}."
    )
