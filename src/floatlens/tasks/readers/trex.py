"""T-REx facts with templates, one JSON object a line: `relation`, `subject`, `object`, `template` ("The capital of [X] is [Y] ."), `uuid`.

A fact becomes a sentence with a blank for its object: the whole template stays, wherever it has the object, and every model is asked the same. Relations that
were published without a template (null) are worded here. One fact is one sample, so its answer is that one object, even where T-REx knows
several of a subject. There are no passages. Ids come from the file's own. Refused: a template without [X] and [Y]; null for a relation that is not worded here.
"""

import re
from collections.abc import Iterator
from typing import Any

from floatlens.tasks.readers.records import Record
from floatlens.tasks.samples import Sample

FIELDS = "relation, subject, object, template ([X], [Y]; may be null), uuid"
WORDED_HERE = {"P31": "[X] is an instance of [Y].", "P527": "One of the parts of [X] is [Y]."}
"""Templates of relations that have none in the published file."""


def recognises(value: dict[str, Any]) -> bool:
    """Whether a record looks like one of this format.

    Examples
    --------
    >>> recognises({"relation": "", "subject": "", "object": "", "template": ""})
    True
    """
    return {"relation", "subject", "object", "template"} <= value.keys()


def samples(record: Record) -> Iterator[Sample]:
    """The one fact of a record.

    Examples
    --------
    >>> value = {"relation": "P36", "subject": "Norway", "object": "Oslo", "template": "The capital of [X] is [Y] .", "uuid": "a"}
    >>> next(samples(Record(value, "trex.jsonl, line 1", "1"))).question
    'Fill in the blank: The capital of Norway is ____.'
    """
    template = record.text("template") if record.field("template") is not None else _worded_here(record)
    if template.count("[X]") != 1 or template.count("[Y]") != 1:
        raise record.refusal(f"the template {template!r} must hold [X] and [Y] once each.")
    blank = re.sub(r"\s+([.?!])$", r"\1", template.strip().replace("[Y]", "____"))
    question = f"Fill in the blank: {blank.replace('[X]', record.text('subject').strip())}"
    yield record.sample(record.own_id("trex", "uuid"), question, (record.text("object"),))


def _worded_here(record: Record) -> str:
    relation = record.text("relation")
    if relation not in WORDED_HERE:
        raise record.refusal(f"there is no template for {relation}. Write one with [X] for the subject and [Y] for the object.")
    return WORDED_HERE[relation]
