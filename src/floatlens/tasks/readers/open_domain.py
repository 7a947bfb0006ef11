"""Formats of open-domain questions, each answered from memory or from passages that were retrieved: NQ-open, KILT, Lost in the Middle,
T-REx.

| format | passages | which are gold | ids |
|---|---|---|---|
| `nq-open` | none: ask closed-book, or find passages in a corpus (`floatlens.tasks.retrieval`) | - | line numbers |
| `kilt` | `passage[].segment`, best first | not said in such files, so none is | the file's own, or line numbers |
| `lost-in-the-middle` | `ctxs[]`, in the order given | those with `isgold` | line numbers |
| `trex` | none | - | the file's own |
"""

import re
from collections.abc import Iterator

from floatlens.tasks.readers.records import Format, Record, has_fields
from floatlens.tasks.samples import Passage, Sample


def nq_open(record: Record) -> Iterator[Sample]:
    """NQ-open, JSON lines: `question`, and `answer`, a list of answers that all count as right.

    Examples
    --------
    >>> next(nq_open(Record({"question": "Where?", "answer": ["Oslo", "Christiania"]}, "nq.jsonl, line 1", "1"))).answers
    ('Oslo', 'Christiania')
    """
    yield record.sample(record.own_id("nq-open"), record.text("question"), record.texts("answer"))


NQ_OPEN = Format(
    "nq-open",
    "question, answer (a list)",
    lambda value: value.keys() <= {"question", "answer", "id"} and isinstance(value.get("answer"), list),
    nq_open,
)

QUESTION, ANSWERS = ("input", "query", "question"), ("output", "answers")


def kilt(record: Record) -> Iterator[Sample]:
    """KILT-style JSON lines with retrieved passages (`*_psg.jsonl`): a question, answers, and `passage[].segment`.

    The question stands in `input`, `query` or `question`; the answers in `output` or `answers`: a text, texts, or objects with `answer`.
    (Objects without one hold provenance only.) Refused: two of these names at once that say different things.

    Examples
    --------
    >>> value = {"id": "a", "input": "Where?", "output": [{"answer": "Oslo"}, {"provenance": []}], "passage": [{"segment": "In Oslo."}]}
    >>> sample = next(kilt(Record(value, "nq_psg.jsonl, line 1", "1")))
    >>> sample.id, sample.answers, sample.passages[0].text
    ('kilt-a', ('Oslo',), 'In Oslo.')
    """
    passages = [Passage(passage.text("segment"), passage.title()) for passage in record.parts("passage")]
    question, answers = record.text(_used_name(record, QUESTION)), _kilt_answers(record, _used_name(record, ANSWERS))
    yield record.sample(record.own_id("kilt"), question, answers, passages)


def _used_name(record: Record, names: tuple[str, ...]) -> str:
    """The one of several names that the record uses; several are fine if they hold the same."""
    used = [name for name in names if name in record.value]
    if not used:
        raise record.refusal(f"there is none of the fields {', '.join(names)}. There are: {', '.join(record.value)}.")
    if any(record.value[name] != record.value[used[0]] for name in used):
        raise record.refusal(f"the fields {' and '.join(used)} say different things; leave one.")
    return used[0]


def _kilt_answers(record: Record, name: str) -> tuple[str, ...]:
    value = record.field(name)
    if not isinstance(value, list) or not any(isinstance(entry, dict) for entry in value):
        return record.text_or_texts(name)
    return tuple(output.text("answer") for output in record.parts(name) if output.value.get("answer"))


KILT = Format(
    "kilt",
    "input | query | question, output | answers, passage[].segment",
    lambda value: "passage" in value and any(name in value for name in QUESTION) and any(name in value for name in ANSWERS),
    kilt,
)


def lost_in_the_middle(record: Record) -> Iterator[Sample]:
    """Lost-in-the-Middle, JSON lines: `question`, `answers`, and `ctxs`, passages with `title`, `text` and `isgold`.

    nq-open-oracle has one passage per question, the gold one; `floatlens.tasks.retrieval` adds distractors. The published sets of 10, 20
    and 30 passages read the same. `hasanswer` is not used: whether a distractor holds an answer is decided by `floatlens.tasks.scoring`,
    the same way for all formats.

    Examples
    --------
    >>> value = {"question": "Where?", "answers": ["Oslo"], "ctxs": [{"text": "In Oslo.", "isgold": True}]}
    >>> next(lost_in_the_middle(Record(value, "qa.jsonl, line 3", "3"))).id
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


LOST_IN_THE_MIDDLE = Format(
    "lost-in-the-middle",
    "question, answers, ctxs[].text, ctxs[].isgold",
    has_fields("question", "answers", "ctxs"),
    lost_in_the_middle,
)

TEMPLATES = {"P31": "[X] is an instance of [Y].", "P527": "One of the parts of [X] is [Y]."}
"""Templates of relations that have none in the published file."""


def trex(record: Record) -> Iterator[Sample]:
    """T-REx facts, JSON lines: `relation`, `subject`, `object`, `template` ("The capital of [X] is [Y] ."), `uuid`.

    A fact becomes a sentence with a blank for its object: the whole template stays, wherever it has the object, and every model is asked
    the same. Relations that were published without a template (null) get one of `TEMPLATES`. One fact is one sample, so its answer is
    that one object, even where T-REx knows several of a subject. Refused: a template without [X] and [Y]; null for any other relation.

    Examples
    --------
    >>> value = {"relation": "P36", "subject": "Norway", "object": "Oslo", "template": "The capital of [X] is [Y] .", "uuid": "a"}
    >>> next(trex(Record(value, "trex.jsonl, line 1", "1"))).question
    'Fill in the blank: The capital of Norway is ____.'
    """
    template = record.text("template") if record.field("template") is not None else _own_template(record)
    if template.count("[X]") != 1 or template.count("[Y]") != 1:
        raise record.refusal(f"the template {template!r} must hold [X] and [Y] once each.")
    blank = re.sub(r"\s+([.?!])$", r"\1", template.strip().replace("[Y]", "____"))
    question = f"Fill in the blank: {blank.replace('[X]', record.text('subject').strip())}"
    yield record.sample(record.own_id("trex", "uuid"), question, (record.text("object"),))


def _own_template(record: Record) -> str:
    relation = record.text("relation")
    if relation not in TEMPLATES:
        raise record.refusal(f"there is no template for {relation}. Write one with [X] for the subject and [Y] for the object.")
    return TEMPLATES[relation]


TREX = Format(
    "trex",
    "relation, subject, object, template ([X], [Y]; may be null), uuid",
    has_fields("relation", "subject", "object", "template"),
    trex,
)
