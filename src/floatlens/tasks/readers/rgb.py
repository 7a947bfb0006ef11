"""RGB, one JSON object a line: `query`, `answer`, `positive` (gold), `negative` (distractors), and in the fact files `positive_wrong` (conflicting).

`answer` is a text, or a list of parts that an answer must *all* name, each a text or a list of spellings. A `Sample`'s answers are alternatives, so one part
with its spellings can be read. Refused: several parts (RGB's `*_int` files), which would be scored too kindly. Ids come from the file's own.
"""

from collections.abc import Iterator
from typing import Any

from floatlens.tasks.readers.records import Record
from floatlens.tasks.samples import Passage, Sample

FIELDS = "query, answer, positive, negative, positive_wrong (may be missing)"


def recognises(value: dict[str, Any]) -> bool:
    """Whether a record looks like one of this format.

    Examples
    --------
    >>> recognises({"query": "", "answer": "", "positive": [], "negative": []})
    True
    """
    return {"query", "answer", "positive", "negative"} <= value.keys()


def samples(record: Record) -> Iterator[Sample]:
    """The one question of a record: gold passages, then distractors, then conflicting passages.

    Examples
    --------
    >>> value = {"id": 0, "query": "Where?", "answer": [["Oslo", "oslo"]], "positive": ["In Oslo."], "negative": ["Rain."], "positive_wrong": ["In Rome."]}
    >>> sample = next(samples(Record(value, "rgb.json, line 1", "1")))
    >>> sample.id, sample.answers, sample.gold, sample.conflicts[0].text
    ('rgb-0', ('Oslo', 'oslo'), (0,), 'In Rome.')
    """
    gold, negative = record.texts("positive"), record.texts("negative")
    wrong = record.texts("positive_wrong") if "positive_wrong" in record.value else ()
    passages = [Passage(text) for text in gold + negative] + [Passage(text, conflicting=True) for text in wrong]
    yield record.sample(record.own_id("rgb"), record.text("query"), _spellings(record), passages, range(len(gold)))


def _spellings(record: Record) -> tuple[str, ...]:
    parts = record.field("answer")
    if not isinstance(parts, list):
        return (record.text("answer"),)
    if len(parts) != 1:
        raise record.refusal(
            f"the field 'answer' has {len(parts)} parts that must all be named, but a sample's answers are alternatives; read a file without such questions."
        )
    spellings = parts[0] if isinstance(parts[0], list) else parts
    return tuple(record.as_text(spelling, "answer") for spelling in spellings)
