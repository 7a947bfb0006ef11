"""NQ-open JSONL: `question` and `answer`, a list. There are no passages: closed-book, or with passages found by `floatlens.tasks.retrieval`. Ids come from line numbers."""

from collections.abc import Iterator
from typing import Any

from floatlens.tasks.readers.records import Record
from floatlens.tasks.samples import Sample

FIELDS = "question, answer (a list)"


def recognises(value: dict[str, Any]) -> bool:
    """Whether a record looks like one of this format.

    Examples
    --------
    >>> recognises({"question": "", "answer": []}), recognises({"question": "", "answer": "2 #### 2"})
    (True, False)
    """
    return value.keys() <= {"question", "answer", "id"} and isinstance(value.get("answer"), list)


def samples(record: Record) -> Iterator[Sample]:
    """The one question of a record.

    Examples
    --------
    >>> next(samples(Record({"question": "Where?", "answer": ["Oslo", "Christiania"]}, "nq.jsonl, line 1", "1"))).answers
    ('Oslo', 'Christiania')
    """
    yield record.sample(record.own_id("nq-open"), record.text("question"), record.texts("answer"))
