"""SQuAD v1.1: the original JSON document (`data[].paragraphs[].qas[]`), or one question a record as Hugging Face has it (`context`, `answers.text`).

Each question has one passage, the paragraph it was asked about, and that is gold. Ids come from the file's own. Refused: questions without an answer
(SQuAD v2.0's impossible ones), which could not be scored.
"""

from collections.abc import Iterator
from typing import Any

from floatlens.tasks.readers.records import Record
from floatlens.tasks.samples import Passage, Sample

FIELDS = "data[].title, data[].paragraphs[].context, ...qas[].question, ...answers[].text; or question, context, answers.text"


def recognises(value: dict[str, Any]) -> bool:
    """Whether a record looks like one of this format.

    Examples
    --------
    >>> recognises({"version": "1.1", "data": []}), recognises({"question": "", "context": "", "answers": {"text": []}})
    (True, True)
    """
    return isinstance(value.get("data"), list) or (isinstance(value.get("context"), str) and isinstance(value.get("answers"), dict))


def samples(record: Record) -> Iterator[Sample]:
    """The questions of a whole document, or of one record.

    Examples
    --------
    >>> asked = {"id": "a", "question": "Where?", "answers": [{"text": "Oslo"}, {"text": "Oslo"}]}
    >>> document = {"data": [{"title": "Norway", "paragraphs": [{"context": "In Oslo.", "qas": [asked]}]}]}
    >>> sample = next(samples(Record(document, "squad.json", "1")))
    >>> sample.id, sample.answers, sample.evidence[0].title
    ('squad-a', ('Oslo',), 'Norway')
    """
    if "data" not in record.value:
        yield _sample(record, Passage(record.text("context"), record.title()), record.part("answers").texts("text"))
        return
    for article in record.parts("data"):
        for paragraph in article.parts("paragraphs"):
            passage = Passage(paragraph.text("context"), article.title())
            for question in paragraph.parts("qas"):
                yield _sample(question, passage, tuple(answer.text("text") for answer in question.parts("answers")))


def _sample(question: Record, passage: Passage, answers: tuple[str, ...]) -> Sample:
    if not answers:
        raise question.refusal("this question has no answer, as SQuAD v2.0's impossible ones; use SQuAD v1.1.")
    question.text("id")  # a document's questions have no lines of their own to be named after
    return question.sample(question.own_id("squad"), question.text("question"), answers, (passage,), (0,))
