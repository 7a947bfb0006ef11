"""floatlens' own JSONL, for data of your own: `question`, `answers`, and if you like `id`, `passages`, `gold`.

`answers` is a text or a list of texts that all count as right. A passage is a text, or an object with `text`, and if you like `title` and `conflicting`
(true if it contradicts the gold passages). `gold` lists the passages that hold the evidence, counted from 0. Ids are taken as they are, or else made from line
numbers. Refused: any other field, since a misspelt one ("passage") would silently turn a question with passages into one without.
"""

from collections.abc import Iterator
from typing import Any

from floatlens.tasks.readers.records import Record
from floatlens.tasks.samples import Passage, Sample

FIELDS = "question, answers, id, passages (texts, or text, title, conflicting), gold (counted from 0)"


def recognises(value: dict[str, Any]) -> bool:
    """Whether a record looks like one of this format.

    Examples
    --------
    >>> recognises({"question": "", "answers": []}), recognises({"question": "", "answers": [], "ctxs": []})
    (True, False)
    """
    return {"question", "answers"} <= value.keys() and not {"ctxs", "passage", "context"} & value.keys()


def samples(record: Record) -> Iterator[Sample]:
    """The one question of a record.

    Examples
    --------
    >>> value = {"question": "Where?", "answers": "Oslo", "passages": ["In Oslo.", {"text": "In Rome.", "conflicting": True}], "gold": [0]}
    >>> sample = next(samples(Record(value, "mine.jsonl, line 4", "4")))
    >>> sample.id, sample.evidence[0].text, sample.conflicts[0].text
    ('plain-4', 'In Oslo.', 'In Rome.')
    """
    _only(record, {"id", "question", "answers", "passages", "gold"})
    gold = record.items("gold") if "gold" in record.value else []
    if not all(isinstance(slot, int) and not isinstance(slot, bool) for slot in gold):
        raise record.refusal("the field 'gold' must list whole numbers: which passages hold the evidence, counted from 0.")
    own = record.value.get("id")
    id = record.own_id("plain")
    yield record.sample(id if own is None else str(own), record.text("question"), record.text_or_texts("answers"), _passages(record), gold)


def _passages(record: Record) -> Iterator[Passage]:
    for number, passage in enumerate(record.items("passages") if "passages" in record.value else []):
        name = f"passages[{number}]"
        if isinstance(passage, str):
            yield Passage(record.as_text(passage, name))
            continue
        entry = record.as_part(passage, name)
        _only(entry, {"text", "title", "conflicting"})
        yield Passage(entry.text("text"), entry.title(), entry.flag("conflicting") if "conflicting" in entry.value else False)


def _only(record: Record, known: set[str]) -> None:
    unknown = [name for name in record.value if name not in known]
    if unknown:
        raise record.refusal(f"there is a field {unknown[0]!r}, which this format does not have. It has: {', '.join(sorted(known))}.")
