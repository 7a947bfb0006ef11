"""KILT-style JSONL with retrieved passages (`*_psg.jsonl`): a question, answers, and `passage[].segment`, best first.

The question stands in `input`, `query` or `question`; the answers in `output` or `answers`: a text, texts, or objects with `answer` (those without one, which
hold provenance only, name no answer). Which passages are gold is not said in such files, so none is: use them as retrieved passages. Ids come from the file's own, or
else from line numbers. Refused: two of the names at once that say different things.
"""

from collections.abc import Iterator
from typing import Any

from floatlens.tasks.readers.records import Record
from floatlens.tasks.samples import Passage, Sample

FIELDS = "input | query | question, output | answers, passage[].segment"
QUESTION, ANSWERS = ("input", "query", "question"), ("output", "answers")


def recognises(value: dict[str, Any]) -> bool:
    """Whether a record looks like one of this format.

    Examples
    --------
    >>> recognises({"input": "", "output": [], "passage": []})
    True
    """
    return "passage" in value and any(name in value for name in QUESTION) and any(name in value for name in ANSWERS)


def samples(record: Record) -> Iterator[Sample]:
    """The one question of a record.

    Examples
    --------
    >>> value = {"id": "a", "input": "Where?", "output": [{"answer": "Oslo"}, {"provenance": []}], "passage": [{"segment": "In Oslo."}]}
    >>> sample = next(samples(Record(value, "nq_psg.jsonl, line 1", "1")))
    >>> sample.id, sample.answers, sample.passages[0].text
    ('kilt-a', ('Oslo',), 'In Oslo.')
    """
    passages = [Passage(passage.text("segment"), passage.title()) for passage in record.parts("passage")]
    yield record.sample(record.own_id("kilt"), record.text(_only(record, QUESTION)), _answers(record, _only(record, ANSWERS)), passages)


def _only(record: Record, names: tuple[str, ...]) -> str:
    """The one of several names that the record uses; several are fine if they say the same."""
    found = [name for name in names if name in record.value]
    if not found:
        raise record.refusal(f"there is none of the fields {', '.join(names)}. There are: {', '.join(record.value)}.")
    if any(record.value[name] != record.value[found[0]] for name in found):
        raise record.refusal(f"the fields {' and '.join(found)} say different things; leave one.")
    return found[0]


def _answers(record: Record, name: str) -> tuple[str, ...]:
    value = record.field(name)
    if not isinstance(value, list) or not any(isinstance(entry, dict) for entry in value):
        return record.text_or_texts(name)
    return tuple(output.text("answer") for output in record.parts(name) if output.value.get("answer"))
