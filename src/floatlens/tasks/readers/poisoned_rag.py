"""PoisonedRAG: one JSON document, an object of records with `question`, `correct answer`, `incorrect answer` and `adv_texts`.

The adversarial texts become conflicting passages. There is no gold passage, which the context `conflict` needs: bring one, from a corpus (`floatlens.tasks.registry`). Ids
come from the file's own. Refused: an adversarial answer that is the right one.
"""

from collections.abc import Iterator
from typing import Any

from floatlens.tasks.readers.records import Record
from floatlens.tasks.samples import Passage, Sample

FIELDS = "an object of objects: question, correct answer, incorrect answer, adv_texts"


def recognises(value: dict[str, Any]) -> bool:
    """Whether a document looks like one of this format.

    Examples
    --------
    >>> recognises({"test1": {"question": "", "adv_texts": []}}), recognises({})
    (True, False)
    """
    return bool(value) and all(isinstance(entry, dict) and "adv_texts" in entry for entry in value.values())


def samples(record: Record) -> Iterator[Sample]:
    """The questions of a whole document.

    Examples
    --------
    >>> entry = {"id": "t1", "question": "Where?", "correct answer": "Oslo", "incorrect answer": "Rome", "adv_texts": ["In Rome."]}
    >>> sample = next(samples(Record({"t1": entry}, "poisonedrag.json", "1")))
    >>> sample.id, sample.conflicts[0].text, sample.gold
    ('poisonedrag-t1', 'In Rome.', ())
    """
    for name in record.value:
        entry = record.part(name)
        right, wrong = entry.text("correct answer"), entry.text("incorrect answer")
        if right == wrong:
            raise entry.refusal(f"the correct and the incorrect answer are both {right!r}, so nothing conflicts.")
        passages = (Passage(text, conflicting=True) for text in entry.texts("adv_texts"))
        yield entry.sample(
            entry.own_id("poisonedrag") if "id" in entry.value else f"poisonedrag-{name}", entry.text("question"), (right,), passages
        )
