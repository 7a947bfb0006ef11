"""Lost-in-the-Middle JSONL: `question`, `answers`, and `ctxs`, passages with `title`, `text` and `isgold`.

nq-open-oracle has one passage a question, the gold one; `floatlens.tasks.retrieval` adds distractors. The published sets of 10, 20 and 30 passages read the same.
`hasanswer` is not used: whether a distractor holds an answer is decided by `floatlens.tasks.scoring`, the same way for all formats. Ids come from line numbers.
"""

from collections.abc import Iterator
from typing import Any

from floatlens.tasks.readers.records import Record
from floatlens.tasks.samples import Passage, Sample

FIELDS = "question, answers, ctxs[].text, ctxs[].isgold"


def recognises(value: dict[str, Any]) -> bool:
    """Whether a record looks like one of this format.

    Examples
    --------
    >>> recognises({"question": "", "answers": [], "ctxs": []})
    True
    """
    return {"question", "answers", "ctxs"} <= value.keys()


def samples(record: Record) -> Iterator[Sample]:
    """The one question of a record, its passages in the order given.

    Examples
    --------
    >>> record = Record({"question": "Where?", "answers": ["Oslo"], "ctxs": [{"text": "In Oslo.", "isgold": True}]}, "qa.jsonl, line 3", "3")
    >>> next(samples(record)).id
    'lost-in-the-middle-3'
    """
    passages = record.parts("ctxs")
    yield record.sample(
        record.own_id("lost-in-the-middle"),
        record.text("question"),
        record.text_or_texts("answers"),
        (Passage(passage.text("text"), passage.title()) for passage in passages),
        (slot for slot, passage in enumerate(passages) if passage.flag("isgold")),
    )
