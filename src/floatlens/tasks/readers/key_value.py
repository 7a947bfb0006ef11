"""Key-value retrieval, one JSON object a line: `ordered_kv_records` (pairs), `key`, `value`.

Each pair is a passage of its own, in the order given, and the one with the key asked for is gold, so that position and noise mean the same as with real
passages. Ids come from line numbers. Refused: a key that is not among the pairs, occurs twice, or has another value there.
"""

import json
from collections.abc import Iterator
from typing import Any

from floatlens.tasks.readers.records import Record
from floatlens.tasks.samples import Passage, Sample

FIELDS = "ordered_kv_records (pairs), key, value"


def recognises(value: dict[str, Any]) -> bool:
    """Whether a record looks like one of this format.

    Examples
    --------
    >>> recognises({"ordered_kv_records": [], "key": "", "value": ""})
    True
    """
    return {"ordered_kv_records", "key", "value"} <= value.keys()


def samples(record: Record) -> Iterator[Sample]:
    """The one key of a record.

    Examples
    --------
    >>> value = {"ordered_kv_records": [["a1", "b1"], ["a2", "b2"]], "key": "a2", "value": "b2"}
    >>> sample = next(samples(Record(value, "kv.jsonl, line 1", "1")))
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
