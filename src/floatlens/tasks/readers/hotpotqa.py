"""HotpotQA's distractor setting: `question`, `answer`, `context` (titles with sentences) and `supporting_facts`, whose titles name the gold passages.

Both published shapes are read: lists of pairs (the original JSON document) and objects of lists (Hugging Face). A passage's text is its sentences joined;
they bring their own blanks. Ids come from the file's own. Refused: a supporting fact whose passage is not there, since the evidence would be incomplete.
"""

from collections.abc import Iterator
from typing import Any

from floatlens.tasks.readers.records import Record
from floatlens.tasks.samples import Passage, Sample

FIELDS = "question, answer, context (titles, sentences), supporting_facts (titles)"


def recognises(value: dict[str, Any]) -> bool:
    """Whether a record looks like one of this format.

    Examples
    --------
    >>> recognises({"question": "", "answer": "", "context": [], "supporting_facts": []})
    True
    """
    return {"question", "answer", "context", "supporting_facts"} <= value.keys()


def samples(record: Record) -> Iterator[Sample]:
    """The one question of a record; gold passages in the order in which the facts name them.

    Examples
    --------
    >>> context = [["Rain", ["It", " falls."]], ["Oslo", ["Oslo is big."]]]
    >>> value = {"_id": "a", "question": "Where?", "answer": "Oslo", "context": context, "supporting_facts": [["Oslo", 0]]}
    >>> sample = next(samples(Record(value, "hotpot.json, item 1", "1")))
    >>> sample.id, sample.passages[0].text, sample.gold
    ('hotpotqa-a', 'It falls.', (1,))
    """
    passages = [Passage(text, title) for title, text in _paragraphs(record)]
    slots = {passage.title: slot for slot, passage in enumerate(passages)}
    if len(slots) < len(passages):
        raise record.refusal("two passages in 'context' have the same title, so supporting facts do not say which is meant.")
    gold = dict.fromkeys(_supporting_titles(record))
    missing = [title for title in gold if title not in slots]
    if missing:
        raise record.refusal(f"the supporting fact {missing[0]!r} names no passage in 'context'.")
    id = record.own_id("hotpotqa", "_id" if "_id" in record.value else "id")
    yield record.sample(id, record.text("question"), (record.text("answer"),), passages, (slots[title] for title in gold))


def _paragraphs(record: Record) -> Iterator[tuple[str, str]]:
    """Titles with texts, whichever shape they come in."""
    if isinstance(record.field("context"), dict):
        context = record.part("context")
        titles, sentences = context.texts("title"), context.items("sentences")
        if len(titles) != len(sentences):
            raise context.refusal(f"there are {len(titles)} titles, but {len(sentences)} lists of sentences.")
    else:
        titles, sentences = _columns(record, "context")
    for slot, (title, parts) in enumerate(zip(titles, sentences, strict=True)):
        name = f"context[{slot}]"
        if not isinstance(parts, list) or not all(isinstance(part, str) for part in parts):
            raise record.refusal(f"the field {name!r} must be a title with a list of sentences.")
        yield record.as_text(title, f"{name}, title"), record.as_text("".join(parts), f"{name}, sentences")


def _supporting_titles(record: Record) -> tuple[str, ...]:
    if isinstance(record.field("supporting_facts"), dict):
        return record.part("supporting_facts").texts("title")
    return tuple(record.as_text(title, "supporting_facts") for title in _columns(record, "supporting_facts")[0])


def _columns(record: Record, name: str) -> tuple[list[Any], list[Any]]:
    """A list of pairs as two lists."""
    pairs = record.items(name)
    if not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
        raise record.refusal(f"the field {name!r} must be a list of pairs.")
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]
