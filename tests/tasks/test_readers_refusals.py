"""What cannot be read is refused with file and line, and says what is wrong; nothing is skipped."""

import gzip
import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from floatlens.errors import Refusal
from floatlens.tasks.readers import KINDS, read_code_tasks, read_samples
from floatlens.tasks.readers.records import Record

GOOD = json.dumps({"question": "Where?", "answers": ["here"]}).encode()
WIDE = json.dumps(
    {"question": "Where?", "answers": ["here"], "passages": [f"Passage {number} of many." for number in range(2000)]}
).encode()


def refusal(file: Path, kind: str | None = None) -> str:
    with pytest.raises(Refusal) as caught:
        list(read_samples(file, kind))
    return str(caught.value)


DAMAGED = {
    "a line that is cut": (GOOD + b"\n" + GOOD[:-9] + b"\n" + GOOD, "line 2: this is not JSON"),
    "a first line that is cut": (GOOD[:-5] + b"\n" + GOOD, "line 1: this is not JSON"),
    "a first line that is cut between values": (GOOD[:-9] + b"\n" + GOOD, "if it should have one record per line, line 1 is not whole"),
    "no JSON": (b"hello\n", "line 1: this is not JSON"),
    "no object": (GOOD + b"\n[1, 2]\n", "line 2: this is JSON, but not an object"),
    "not UTF-8": (GOOD + b"\n\n" + GOOD.replace(b'"here"', b'"caf\xe9"'), "line 3: byte 40 is not UTF-8"),
    "not UTF-8 from the start": (GOOD.replace(b'"here"', b'"caf\xe9"'), "line 1: byte 40 is not UTF-8"),
    "half a surrogate pair": (
        GOOD + b"\n" + GOOD.replace(b'"here"', b'"\\ud83d"'),
        "line 2: the field 'answers[0]' holds half of a surrogate pair",
    ),
    "nothing": (b"", " is empty: there is no record"),
    "blank lines": (b"\n \n", " is empty: there is no record"),
    "nothing in gz": (gzip.compress(b""), " is empty: there is no record"),
    "an empty list": (b"[]", " is an empty list"),
    "a list with a number": (b"[\n" + GOOD + b",\n3]", "item 2: this must be a JSON object"),
    "a list that is cut": (b"[\n" + GOOD + b",\n" + GOOD[:-5], "line 3: this is not JSON"),
    "a broken document": (b'{"data":\n [1,\n 2}\n', "line 3: this is not JSON"),
    "endless nesting": (b"[" * 100_000, " is nested too deeply"),
    "gz that is cut": (gzip.compress(GOOD + b"\n" + WIDE)[:-20], "after line 1: the gz data are damaged or cut off"),
    "gz that is cut at once": (gzip.compress(GOOD)[:12], "after line 0: the gz data are damaged or cut off"),
    "gz with a wrong checksum": (gzip.compress(WIDE)[:-8] + b"\0" * 8, "the gz data are damaged or cut off"),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_file_is_refused_with_its_line(damage: str, tmp_path: Path) -> None:
    content, said = DAMAGED[damage]
    file = tmp_path / "damaged.jsonl"
    file.write_bytes(content)
    message = refusal(file)
    assert message.startswith(str(file))
    assert said in message


def test_what_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="No such file"):
        read_samples(tmp_path / "nowhere.jsonl")
    with pytest.raises(Refusal, match="directory"):
        read_samples(tmp_path)


RECORDS: dict[str, dict[str, Any]] = {
    "plain": {"question": "Where?", "answers": ["here"], "passages": ["It is here."], "gold": [0]},
    "lost-in-the-middle": {"question": "where", "answers": ["here"], "ctxs": [{"title": "a", "text": "It is here.", "isgold": True}]},
    "nq-open": {"question": "where", "answer": ["here"]},
    "rgb": {"id": 0, "query": "where", "answer": "here", "positive": ["It is here."], "negative": ["Rain."], "positive_wrong": ["There."]},
    "kilt": {"input": "where", "output": ["here"], "passage": [{"segment": "It is here."}]},
    "hotpotqa": {"id": "a", "question": "where", "answer": "here", "context": [["T", ["It is here."]]], "supporting_facts": [["T", 0]]},
    "squad": {"id": "a", "question": "where", "context": "It is here.", "answers": {"text": ["here"]}},
    "trex": {"relation": "P1", "subject": "it", "object": "here", "template": "[X] is [Y].", "uuid": "a"},
    "gsm8k": {"question": "how many", "answer": "#### 3"},
    "key-value": {"ordered_kv_records": [["k", "v"], ["l", "w"]], "key": "k", "value": "v"},
    "poisonedrag": {"a": {"id": "a", "question": "where", "correct answer": "here", "incorrect answer": "there", "adv_texts": ["There."]}},
}
NEEDED = {
    "plain": ["question", "answers"],
    "rgb": ["query", "answer", "positive", "negative"],
    "hotpotqa": ["question", "answer", "context", "supporting_facts"],
    "squad": ["id", "question", "context", "answers"],
    "trex": ["relation", "subject", "object", "template"],
}


def test_every_kind_is_tried() -> None:
    assert set(RECORDS) == set(KINDS)


@pytest.mark.parametrize(
    ("kind", "field"),
    [
        (kind, field)
        for kind in KINDS
        if kind != "poisonedrag"
        for field in NEEDED.get(kind, RECORDS[kind])
        if (kind, field) != ("trex", "relation")
    ],
)
@pytest.mark.parametrize("how", ["missing", "empty", "of another type"])
def test_a_field_that_is_missing_empty_or_of_another_type_is_refused_with_its_line(kind: str, field: str, how: str, tmp_path: Path) -> None:
    good, bad = dict(RECORDS[kind]), dict(RECORDS[kind])
    if how == "missing":
        del bad[field]
    else:
        bad[field] = {"missing": None, "empty": "  ", "of another type": 3.5}[how]
    file = tmp_path / "fields.jsonl"
    file.write_text(f"{json.dumps(bad)}\n{json.dumps(good)}\n")
    message = refusal(file, kind)
    assert message.startswith(f"{file}, line 1: ")
    assert how != "missing" or field in message


@pytest.mark.parametrize(
    ("kind", "change", "said"),
    [
        ("plain", {"passages": ["It is here.", " "]}, "'passages[1]' is empty"),
        ("plain", {"passages": [{"text": ""}]}, "passages[0]: the field 'text' is empty"),
        ("plain", {"passages": [4]}, "'passages[0]' must be an object"),
        ("plain", {"passages": [{"text": "a", "gold": True}]}, "a field 'gold', which this format does not have"),
        ("plain", {"passage": ["It is here."]}, "a field 'passage', which this format does not have"),
        ("plain", {"gold": [1]}, "passage 1 is gold, but it has 1 passages"),
        ("plain", {"gold": [True]}, "'gold' must list whole numbers"),
        ("plain", {"answers": []}, "has no answer"),
        ("plain", {"id": 1.5}, "'id' must be a text or a whole number"),
        ("lost-in-the-middle", {"ctxs": [{"text": "", "isgold": True}]}, "ctxs[0]: the field 'text' is empty"),
        ("lost-in-the-middle", {"ctxs": [{"text": "a"}]}, "ctxs[0]: there is no field 'isgold'"),
        ("lost-in-the-middle", {"ctxs": [{"text": "a", "isgold": "yes"}]}, "'isgold' must be true or false"),
        ("rgb", {"positive": ["It is here.", ""]}, "'positive[1]' is empty"),
        ("rgb", {"answer": [["here"], ["there"]]}, "2 parts that must all be named"),
        ("rgb", {"answer": ["here", "there"]}, "2 parts that must all be named"),
        ("kilt", {"passage": [{"segment": ""}]}, "passage[0]: the field 'segment' is empty"),
        ("kilt", {"question": "something else"}, "input and question say different things"),
        ("hotpotqa", {"context": [["T", [" "]]]}, "'context[0], sentences' is empty"),
        ("hotpotqa", {"supporting_facts": [["U", 0]]}, "'U' names no passage"),
        ("hotpotqa", {"context": [["T", ["a"]], ["T", ["b"]]]}, "the same title"),
        ("hotpotqa", {"supporting_facts": [[["T"], 0]]}, "'supporting_facts' must be a text"),
        ("squad", {"answers": {"text": []}}, "no answer, as SQuAD v2.0's impossible ones"),
        ("trex", {"template": "[X] is here."}, "must hold [X] and [Y] once each"),
        ("gsm8k", {"answer": "It is 3."}, "must end in '####' and the number"),
        ("gsm8k", {"answer": "3 ####"}, "must end in '####' and the number"),
        ("key-value", {"key": "m"}, "'m' stands in 0 of the pairs"),
        ("key-value", {"ordered_kv_records": [["k", "v"], ["k", "v"]]}, "'k' stands in 2 of the pairs"),
        ("key-value", {"value": "w"}, "has the value 'v' among the pairs"),
    ],
)
def test_a_record_that_contradicts_itself_is_refused_with_its_line(kind: str, change: dict[str, Any], said: str, tmp_path: Path) -> None:
    file = tmp_path / "wrong.jsonl"
    file.write_text("\n" + json.dumps(RECORDS[kind] | change))
    message = refusal(file, kind)
    assert message.startswith(f"{file}, line 2")
    assert said in message


def test_poison_that_says_the_truth_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "poison.json"
    file.write_text(json.dumps({"a": RECORDS["poisonedrag"]["a"] | {"incorrect answer": "here"}}, indent=1))
    assert refusal(file).startswith(f"{file}, a: the correct and the incorrect answer are both 'here'")


def test_an_id_that_occurs_twice_is_refused_with_both_lines(tmp_path: Path) -> None:
    file = tmp_path / "twice.jsonl"
    file.write_text("".join(json.dumps({"id": name, "question": "Where?", "answers": "here"}) + "\n" for name in ("a", "b", "a")))
    message = refusal(file)
    assert message.startswith(f"{file}, line 3: the id 'a' was given before, in {file}, line 1.")
    task = {
        "task_id": "t",
        "prompt": "def one():\n",
        "entry_point": "one",
        "test": "def check(f):\n    f()\n",
        "canonical_solution": "    return 1\n",
    }
    file.write_text(f"{json.dumps(task)}\n{json.dumps(task)}\n")
    with pytest.raises(Refusal, match=r"line 2: the id 't' was given before"):
        list(read_code_tasks(file))


def test_a_kind_that_cannot_be_told_is_refused_with_the_list(tmp_path: Path) -> None:
    file = tmp_path / "unknown.jsonl"
    file.write_text(json.dumps({"prompt": "Where?", "label": "here"}))
    message = refusal(file)
    assert message.startswith(f"{file}, line 1: the fields (prompt, label) fit no known format.")
    assert all(kind in message for kind in KINDS)
    file.write_text(json.dumps({"question": "a", "answers": ["b"], "ctxs": [], "passage": []}))
    assert "fit lost-in-the-middle and kilt" in refusal(file)
    with pytest.raises(Refusal, match=r"There is no format 'sqad' of question files. There are: plain, "):
        read_samples(file, "sqad")


def test_places_inside_a_record_are_named() -> None:
    record = Record({"a": [{"b": {"c": ""}}]}, "x.json", "1")
    with pytest.raises(Refusal, match=r"^x.json, a\[0\], b: the field 'c' is empty\.$"):
        record.parts("a")[0].part("b").text("c")


def test_a_value_that_json_does_not_have_is_shown_as_it_is() -> None:
    row = Record({"question": date(2024, 5, 1)}, "hf:some/questions, row 1", "1")
    with pytest.raises(Refusal, match=r"row 1: the field 'question' must be a text, not \"datetime\.date\(2024, 5, 1\)\"\."):
        row.text("question")
