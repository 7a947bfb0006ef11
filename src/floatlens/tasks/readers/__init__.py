"""Questions from files: `read_samples` turns each published format into `Sample`s, one at a time.

Every format is one module, with `recognises` (does a record look like it?), `samples` (the samples of one record) and `FIELDS`. A file's kind is guessed from its first record
where exactly one format recognises it; otherwise it must be named. Refused, always with file and line: what `records` refuses, a
missing or empty field, a repeated id. Nothing is ever skipped. Programming tasks are not questions: `read_code_tasks`.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

from floatlens.errors import Refusal
from floatlens.tasks.readers import (
    gsm8k,
    hotpotqa,
    humaneval,
    key_value,
    kilt,
    lost_in_the_middle,
    nq_open,
    plain,
    poisoned_rag,
    rgb,
    squad,
    trex,
)
from floatlens.tasks.readers.humaneval import CodeTask, read_code_tasks
from floatlens.tasks.readers.records import Record, distinct, open_records
from floatlens.tasks.samples import Sample

__all__ = ["FORMATS", "KINDS", "CodeTask", "Format", "guess_kind", "read_code_tasks", "read_samples"]


@dataclass(frozen=True)
class Format:
    """How a published format is told from others, what its records must hold, and what samples they give."""

    fields: str
    recognises: Callable[[dict[str, Any]], bool]
    samples: Callable[[Record], Iterator[Sample]]


FORMATS = {
    "plain": Format(plain.FIELDS, plain.recognises, plain.samples),
    "lost-in-the-middle": Format(lost_in_the_middle.FIELDS, lost_in_the_middle.recognises, lost_in_the_middle.samples),
    "nq-open": Format(nq_open.FIELDS, nq_open.recognises, nq_open.samples),
    "rgb": Format(rgb.FIELDS, rgb.recognises, rgb.samples),
    "kilt": Format(kilt.FIELDS, kilt.recognises, kilt.samples),
    "hotpotqa": Format(hotpotqa.FIELDS, hotpotqa.recognises, hotpotqa.samples),
    "squad": Format(squad.FIELDS, squad.recognises, squad.samples),
    "trex": Format(trex.FIELDS, trex.recognises, trex.samples),
    "gsm8k": Format(gsm8k.FIELDS, gsm8k.recognises, gsm8k.samples),
    "key-value": Format(key_value.FIELDS, key_value.recognises, key_value.samples),
    "poisonedrag": Format(poisoned_rag.FIELDS, poisoned_rag.recognises, poisoned_rag.samples),
}
KINDS = tuple(FORMATS)
"""The kinds that `read_samples` knows."""


def read_samples(path: str | os.PathLike[str], kind: str | None = None) -> Iterator[Sample]:
    """The questions of a file (gz or plain), one at a time, or of a "hf:NAME/SPLIT" data set.

    The file is opened, its first record read and its kind settled at once; what is wrong further down is refused when it is reached.

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
    >>> _ = file.write_text('{"question": "Where does Marta live?", "answers": ["Oslo"], "passages": ["Marta lives in Oslo."], "gold": [0]}')
    >>> [sample.id for sample in read_samples(file)]
    ['plain-1']
    """
    if kind is not None and kind not in FORMATS and kind != "humaneval":
        raise Refusal(f"There is no kind {kind!r} of question file. There are: {', '.join(KINDS)}.")
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
    if humaneval.recognises(record.value):
        return "humaneval"
    fitting = [kind for kind, format in FORMATS.items() if format.recognises(record.value)]
    if len(fitting) == 1:
        return fitting[0]
    found = f"the fields ({', '.join(list(record.value)[:12]) or 'none'}) fit {' and '.join(fitting) or 'no known format'}"
    raise record.refusal(f"{found}. Say which kind it is: {', '.join(KINDS)}.")
