"""Formats whose questions come with the passages that answer or mislead: SQuAD, HotpotQA, RGB, PoisonedRAG, key-value retrieval.

| format | gold passages | conflicting passages | ids |
|---|---|---|---|
| `squad` | the paragraph that was asked about | - | the file's own |
| `hotpotqa` | those that supporting facts name | - | the file's own |
| `rgb` | `positive` | `positive_wrong`, in the fact files | the file's own |
| `poisonedrag` | none: the context `conflict` needs one, from a corpus (`floatlens.tasks.registry`) | `adv_texts` | the file's own |
| `key-value` | the pair with the key asked for | - | line numbers |
"""

import json
from collections.abc import Iterator
from typing import Any

from floatlens.tasks.readers.records import Format, Record, has_fields
from floatlens.tasks.samples import Passage, Sample


def squad(record: Record) -> Iterator[Sample]:
    """SQuAD v1.1: the original JSON document, or one question per record as Hugging Face has it.

    Refused: questions without an answer (the impossible ones of SQuAD v2.0), which could not be scored.

    Examples
    --------
    >>> asked = {"id": "a", "question": "Where?", "answers": [{"text": "Oslo"}, {"text": "Oslo"}]}
    >>> document = {"data": [{"title": "Norway", "paragraphs": [{"context": "In Oslo.", "qas": [asked]}]}]}
    >>> sample = next(squad(Record(document, "squad.json", "1")))
    >>> sample.id, sample.answers, sample.evidence[0].title
    ('squad-a', ('Oslo',), 'Norway')
    """
    if "data" not in record.value:
        yield _squad_sample(record, Passage(record.text("context"), record.title()), record.part("answers").texts("text"))
        return
    for article in record.parts("data"):
        for paragraph in article.parts("paragraphs"):
            passage = Passage(paragraph.text("context"), article.title())
            for question in paragraph.parts("qas"):
                yield _squad_sample(question, passage, tuple(answer.text("text") for answer in question.parts("answers")))


def _squad_sample(question: Record, passage: Passage, answers: tuple[str, ...]) -> Sample:
    if not answers:
        raise question.refusal("this question has no answer, as SQuAD v2.0's impossible ones; use SQuAD v1.1.")
    question.text("id")  # the questions of a document have no lines of their own to be named after
    return question.sample(question.own_id("squad"), question.text("question"), answers, (passage,), (0,))


SQUAD = Format(
    "squad",
    "data[].title, data[].paragraphs[].context, ...qas[].question, ...answers[].text; or question, context, answers.text",
    lambda value: isinstance(value.get("data"), list) or (isinstance(value.get("context"), str) and isinstance(value.get("answers"), dict)),
    squad,
)


def hotpotqa(record: Record) -> Iterator[Sample]:
    """HotpotQA's distractor setting: `question`, `answer`, `context` (titles with sentences), and `supporting_facts`.

    Both published shapes are read: lists of pairs (the original JSON document) and objects of lists (Hugging Face). A passage's text is its
    sentences joined, which bring their own blanks. Gold passages come in the order in which the facts name them. Refused: a supporting fact
    whose passage is not there, since the evidence would be incomplete.

    Examples
    --------
    >>> context = [["Rain", ["It", " falls."]], ["Oslo", ["Oslo is big."]]]
    >>> value = {"_id": "a", "question": "Where?", "answer": "Oslo", "context": context, "supporting_facts": [["Oslo", 0]]}
    >>> sample = next(hotpotqa(Record(value, "hotpot.json, item 1", "1")))
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
    """Titles with texts, in whichever shape they come."""
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


HOTPOTQA = Format(
    "hotpotqa",
    "question, answer, context (titles, sentences), supporting_facts (titles)",
    has_fields("question", "answer", "context", "supporting_facts"),
    hotpotqa,
)


def rgb(record: Record) -> Iterator[Sample]:
    """RGB, JSON lines: `query`, `answer`, `positive` (gold), `negative` (distractors), in the fact files `positive_wrong` (conflicting).

    `answer` is a text, or a list of parts that an answer must *all* name, each a text or a list of spellings. The answers of a `Sample`
    are alternatives, so one part with its spellings can be read. Refused: several parts (RGB's `*_int` files), which would be scored too
    kindly.

    Examples
    --------
    >>> passages = {"positive": ["In Oslo."], "negative": ["Rain."], "positive_wrong": ["In Rome."]}
    >>> value = {"id": 0, "query": "Where?", "answer": [["Oslo", "oslo"]], **passages}
    >>> sample = next(rgb(Record(value, "rgb.json, line 1", "1")))
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
            f"the field 'answer' has {len(parts)} parts that must all be named, but a sample's answers are alternatives; "
            "read a file without such questions."
        )
    spellings = parts[0] if isinstance(parts[0], list) else parts
    return tuple(record.as_text(spelling, "answer") for spelling in spellings)


RGB = Format(
    "rgb",
    "query, answer, positive, negative, positive_wrong (may be missing)",
    has_fields("query", "answer", "positive", "negative"),
    rgb,
)


def poisoned_rag(record: Record) -> Iterator[Sample]:
    """PoisonedRAG, one JSON document: an object of records with `question`, `correct answer`, `incorrect answer` and `adv_texts`.

    The adversarial texts become conflicting passages. Refused: an adversarial answer that is the right one.

    Examples
    --------
    >>> entry = {"id": "t1", "question": "Where?", "correct answer": "Oslo", "incorrect answer": "Rome", "adv_texts": ["In Rome."]}
    >>> sample = next(poisoned_rag(Record({"t1": entry}, "poisonedrag.json", "1")))
    >>> sample.id, sample.conflicts[0].text, sample.gold
    ('poisonedrag-t1', 'In Rome.', ())
    """
    for name in record.value:
        entry = record.part(name)
        right, wrong = entry.text("correct answer"), entry.text("incorrect answer")
        if right == wrong:
            raise entry.refusal(f"the correct and the incorrect answer are both {right!r}, so nothing conflicts.")
        passages = (Passage(text, conflicting=True) for text in entry.texts("adv_texts"))
        id = entry.own_id("poisonedrag") if "id" in entry.value else f"poisonedrag-{name}"
        yield entry.sample(id, entry.text("question"), (right,), passages)


POISONED_RAG = Format(
    "poisonedrag",
    "an object of objects: question, correct answer, incorrect answer, adv_texts",
    lambda value: bool(value) and all(isinstance(entry, dict) and "adv_texts" in entry for entry in value.values()),
    poisoned_rag,
)


def key_value(record: Record) -> Iterator[Sample]:
    """Key-value retrieval, JSON lines: `ordered_kv_records` (pairs), `key`, `value`.

    Each pair is a passage of its own, in the order given, so that position and noise mean the same as with real passages. Refused: a key
    that is not among the pairs, occurs twice, or has another value there.

    Examples
    --------
    >>> value = {"ordered_kv_records": [["a1", "b1"], ["a2", "b2"]], "key": "a2", "value": "b2"}
    >>> sample = next(key_value(Record(value, "kv.jsonl, line 1", "1")))
    >>> sample.question, sample.evidence[0].text
    ('What is the value of the key "a2"?', '"a2": "b2"')
    """
    pairs, key, value = record.items("ordered_kv_records"), record.text("key"), record.text("value")
    for number, pair in enumerate(pairs):
        if not isinstance(pair, list) or len(pair) != 2:
            raise record.refusal(f"ordered_kv_records[{number}] must be a key and a value.")
        for text in pair:
            record.as_text(text, f"ordered_kv_records[{number}]")
    gold = [number for number, pair in enumerate(pairs) if pair[0] == key]
    if len(gold) != 1:
        raise record.refusal(f"the key {key!r} stands in {len(gold)} of the pairs, but must stand in one.")
    if pairs[gold[0]][1] != value:
        raise record.refusal(f"the key {key!r} has the value {pairs[gold[0]][1]!r} among the pairs, but 'value' is {value!r}.")
    passages = [Passage(f"{json.dumps(name, ensure_ascii=False)}: {json.dumps(content, ensure_ascii=False)}") for name, content in pairs]
    yield record.sample(record.own_id("key-value"), f'What is the value of the key "{key}"?', (value,), passages, gold)


KEY_VALUE = Format(
    "key-value",
    "ordered_kv_records (pairs), key, value",
    has_fields("ordered_kv_records", "key", "value"),
    key_value,
)
