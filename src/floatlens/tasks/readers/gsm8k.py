"""GSM8K JSONL: `question`, and `answer`, a worked solution that ends in "#### number". The answer is that number, without the solution. Ids come from line numbers."""

from collections.abc import Iterator
from typing import Any

from floatlens.tasks.readers.records import Record
from floatlens.tasks.samples import Sample

FIELDS = 'question, answer (ends in "#### number")'
MARK = "####"


def recognises(value: dict[str, Any]) -> bool:
    """Whether a record looks like one of this format.

    Examples
    --------
    >>> recognises({"question": "", "answer": "1 + 1 = 2\\n#### 2"})
    True
    """
    return "question" in value and isinstance(value.get("answer"), str) and MARK in value["answer"]


def samples(record: Record) -> Iterator[Sample]:
    """The one question of a record.

    Examples
    --------
    >>> next(samples(Record({"question": "How many?", "answer": "500 + 700 = 1,200\\n#### 1,200"}, "gsm8k.jsonl, line 1", "1"))).answers
    ('1,200',)
    """
    _, mark, number = record.text("answer").rpartition(MARK)
    if not mark or not any(character.isdigit() for character in number):
        raise record.refusal(f"the field 'answer' must end in '{MARK}' and the number.")
    yield record.sample(record.own_id("gsm8k"), record.text("question"), (number.strip(),))
