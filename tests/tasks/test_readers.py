"""Every format becomes the samples that its records say, from a line, a list or a document, gz or plain, and one at a time."""

import gzip
import json
import sys
import tracemalloc
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from floatlens.errors import Refusal
from floatlens.tasks.readers import KINDS, CodeTask, read_code_tasks, read_samples
from floatlens.tasks.samples import Passage, Sample

GARDEN = {"title": "The garden", "text": "Marta planted a quince tree.", "hasanswer": True, "isgold": True}
HARBOUR = {"title": "The harbour", "text": "Ben mends nets.", "hasanswer": False, "isgold": False}

ONE_RECORD: dict[str, tuple[Any, Sample]] = {
    "plain": (
        {
            "id": "tree",
            "question": "What did Marta plant?",
            "answers": ["a quince", "a tree"],
            "passages": [
                "Ben mends nets.",
                {"text": "Marta planted a quince.", "title": "Garden"},
                {"text": "Marta planted a fig.", "conflicting": True},
            ],
            "gold": [1],
        },
        Sample(
            "tree",
            "What did Marta plant?",
            ("a quince", "a tree"),
            (Passage("Ben mends nets."), Passage("Marta planted a quince.", "Garden"), Passage("Marta planted a fig.", conflicting=True)),
            (1,),
        ),
    ),
    "lost-in-the-middle": (
        {"question": "what did marta plant", "answers": ["quince", "quince"], "ctxs": [HARBOUR, GARDEN], "nq_annotated_gold": {}},
        Sample(
            "lost-in-the-middle-1",
            "what did marta plant",
            ("quince",),
            (Passage("Ben mends nets.", "The harbour"), Passage("Marta planted a quince tree.", "The garden")),
            (1,),
        ),
    ),
    "nq-open": (
        {"question": "who mends nets", "answer": ["Ben", "Ben the sailor"]},
        Sample("nq-open-1", "who mends nets", ("Ben", "Ben the sailor")),
    ),
    "rgb": (
        {
            "id": 7,
            "query": "When did the mill open?",
            "answer": [["May 2 1931", "2 May 1931"]],
            "fakeanswer": "June 1940",
            "positive": ["It opened on 2 May 1931.", "May 2 1931: the mill opens."],
            "positive_wrong": ["It opened in June 1940."],
            "negative": ["The mill is tall."],
        },
        Sample(
            "rgb-7",
            "When did the mill open?",
            ("May 2 1931", "2 May 1931"),
            (
                Passage("It opened on 2 May 1931."),
                Passage("May 2 1931: the mill opens."),
                Passage("The mill is tall."),
                Passage("It opened in June 1940.", conflicting=True),
            ),
            (0, 1),
        ),
    ),
    "kilt": (
        {
            "id": "k1",
            "input": "who keeps the lighthouse",
            "output": [{"answer": "Ida"}, {"provenance": [{"title": "Lighthouse"}]}],
            "passage": [{"docid": "d4", "segment": "Ida keeps the light.", "title": "Light"}, {"segment": "Fog is frequent."}],
        },
        Sample("kilt-k1", "who keeps the lighthouse", ("Ida",), (Passage("Ida keeps the light.", "Light"), Passage("Fog is frequent."))),
    ),
    "hotpotqa": (
        {
            "id": "h1",
            "question": "Where was the painter of The Gate born?",
            "answer": "Brno",
            "supporting_facts": {"title": ["The Gate", "Ida Novak", "Ida Novak"], "sent_id": [0, 0, 1]},
            "context": {
                "title": ["Ida Novak", "Nets", "The Gate"],
                "sentences": [["Ida paints.", " She was born in Brno."], ["Nets tear."], ["Ida Novak painted it."]],
            },
        },
        Sample(
            "hotpotqa-h1",
            "Where was the painter of The Gate born?",
            ("Brno",),
            (
                Passage("Ida paints. She was born in Brno.", "Ida Novak"),
                Passage("Nets tear.", "Nets"),
                Passage("Ida Novak painted it.", "The Gate"),
            ),
            (2, 0),
        ),
    ),
    "squad": (
        {
            "id": "s1",
            "title": "Mill",
            "context": "The mill has four sails.",
            "question": "How many sails?",
            "answers": {"text": ["four", "four sails"]},
        },
        Sample("squad-s1", "How many sails?", ("four", "four sails"), (Passage("The mill has four sails.", "Mill"),), (0,)),
    ),
    "trex": (
        {"relation": "P190", "subject": "Brno", "object": "Stuttgart", "uuid": "u-1", "template": "[X] and [Y] are twin cities ."},
        Sample("trex-u-1", "Fill in the blank: Brno and ____ are twin cities.", ("Stuttgart",)),
    ),
    "gsm8k": (
        {"question": "Ida has 600 nets twice. How many?", "answer": "600 + 600 = <<600+600=1200>>1200\n#### 1,200"},
        Sample("gsm8k-1", "Ida has 600 nets twice. How many?", ("1,200",)),
    ),
    "key-value": (
        {"ordered_kv_records": [["k-1", "v-1"], ["k-2", "v-2"], ["k-3", "v-3"]], "key": "k-3", "value": "v-3"},
        Sample(
            "key-value-1",
            'What is the value of the key "k-3"?',
            ("v-3",),
            (Passage('"k-1": "v-1"'), Passage('"k-2": "v-2"'), Passage('"k-3": "v-3"')),
            (2,),
        ),
    ),
    "poisonedrag": (
        {
            "p1": {
                "id": "p1",
                "question": "how many sails",
                "correct answer": "4",
                "incorrect answer": "6",
                "adv_texts": ["It has 6 sails.", "Six of them."],
            }
        },
        Sample(
            "poisonedrag-p1",
            "how many sails",
            ("4",),
            (Passage("It has 6 sails.", conflicting=True), Passage("Six of them.", conflicting=True)),
        ),
    ),
}


def test_every_kind_is_tried() -> None:
    assert set(ONE_RECORD) == set(KINDS)


@pytest.mark.parametrize("guessed", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_a_record_becomes_the_sample_it_says_and_its_kind_is_guessed(kind: str, guessed: bool, tmp_path: Path) -> None:
    record, sample = ONE_RECORD[kind]
    file = tmp_path / "one.jsonl"
    file.write_text(json.dumps(record) + "\n")
    assert list(read_samples(file, None if guessed else kind)) == [sample]


@pytest.mark.parametrize(
    "shape", ["lines", "lines with blank ones and a byte order mark", "gz", "gz by another name", "list", "list over lines"]
)
def test_lines_lists_and_gz_give_the_same_samples(shape: str, tmp_path: Path) -> None:
    records = [{"question": f"Where is boat {number}?", "answers": "in the häven"} for number in range(5)]
    lines = "\n".join(json.dumps(record, ensure_ascii=False) for record in records)
    contents = {
        "lines": lines.encode(),
        "lines with blank ones and a byte order mark": b"\xef\xbb\xbf" + lines.replace("\n", "\r\n").encode() + b"\r\n\r\n",
        "gz": gzip.compress(lines.encode()),
        "gz by another name": gzip.compress(lines.encode()),
        "list": json.dumps(records).encode(),
        "list over lines": json.dumps(records, indent=1).encode(),
    }
    file = tmp_path / ("boats.jsonl.gz" if shape == "gz" else "boats.json")
    file.write_bytes(contents[shape])
    read = list(read_samples(str(file)))
    assert [sample.question for sample in read] == [record["question"] for record in records]
    assert [sample.id for sample in read] == [f"plain-{number}" for number in range(1, 6)]
    assert read[0].answers == ("in the häven",)


def test_a_file_is_not_read_further_than_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "long.jsonl"
    good = json.dumps({"question": "Where?", "answers": ["here"]})
    file.write_text(f"{good}\n{good}\nthis line is broken\n")
    samples = read_samples(file)
    assert [next(samples).id, next(samples).id] == ["plain-1", "plain-2"]
    with pytest.raises(Refusal, match="line 3"):
        next(samples)


@pytest.mark.parametrize("ending", ["jsonl", "jsonl.gz"])
def test_lines_are_held_one_at_a_time(ending: str, tmp_path: Path) -> None:
    line = json.dumps({"question": "Where?", "answers": ["here"], "passages": ["It is here, between words. " * 400]}).encode() + b"\n"
    file = tmp_path / f"large.{ending}"
    with gzip.open(file, "wb") if ending.endswith("gz") else file.open("wb") as large:
        for _ in range(600):
            large.write(line)
    tracemalloc.start()
    try:
        assert sum(1 for _ in read_samples(file)) == 600
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 600 * len(line) / 8


def test_a_squad_document_gives_one_sample_a_question(tmp_path: Path) -> None:
    def asked(name: str, *answers: str) -> dict[str, Any]:
        return {"id": name, "question": f"What of {name}?", "answers": [{"text": text, "answer_start": 0} for text in answers]}

    paragraphs = [
        {"context": "First text.", "qas": [asked("a", "one", "one", "uno"), asked("b", "two")]},
        {"context": "Second text.", "qas": [asked("c", "three")]},
    ]
    file = tmp_path / "squad.json"
    for indent in (None, 2):
        file.write_text(json.dumps({"version": "1.1", "data": [{"title": "Counting", "paragraphs": paragraphs}]}, indent=indent))
        read = list(read_samples(file))
        assert [(sample.id, sample.answers, sample.evidence) for sample in read] == [
            ("squad-a", ("one", "uno"), (Passage("First text.", "Counting"),)),
            ("squad-b", ("two",), (Passage("First text.", "Counting"),)),
            ("squad-c", ("three",), (Passage("Second text.", "Counting"),)),
        ]


def test_both_published_shapes_of_hotpotqa_are_the_same_question(tmp_path: Path) -> None:
    record, sample = ONE_RECORD["hotpotqa"]
    pairs = {
        "_id": record["id"],
        "question": record["question"],
        "answer": record["answer"],
        "context": [list(pair) for pair in zip(record["context"]["title"], record["context"]["sentences"], strict=True)],
        "supporting_facts": [list(pair) for pair in zip(*record["supporting_facts"].values(), strict=True)],
    }
    file = tmp_path / "hotpot.json"
    file.write_text(json.dumps([pairs], indent=1))
    assert list(read_samples(file)) == [sample]


@pytest.mark.parametrize("question", ["input", "query", "question"])
@pytest.mark.parametrize(
    ("answers", "given"), [("output", ["Ida"]), ("answers", ["Ida"]), ("answers", "Ida"), ("output", [{"answer": "Ida"}])]
)
def test_kilt_files_are_read_by_any_of_their_names(question: str, answers: str, given: Any, tmp_path: Path) -> None:
    file = tmp_path / "x_psg.jsonl"
    file.write_text(json.dumps({question: "who?", answers: given, "passage": [{"segment": "Ida."}]}))
    assert list(read_samples(file)) == [Sample("kilt-1", "who?", ("Ida",), (Passage("Ida."),))]


def test_facts_without_a_template_are_worded_and_others_refused(tmp_path: Path) -> None:
    file = tmp_path / "facts.jsonl"
    facts = [
        {"relation": name, "subject": "a mill", "object": "a sail", "uuid": name, "template": None} for name in ("P31", "P527", "P999")
    ]
    file.write_text("\n".join(json.dumps(fact) for fact in facts))
    samples = read_samples(file)
    for sample in (next(samples), next(samples)):
        assert sample.question.startswith("Fill in the blank: ")
        assert "a mill" in sample.question
        assert sample.question.count("____") == 1
    with pytest.raises(Refusal, match=r"facts.jsonl, line 3: there is no template for P999"):
        next(samples)


def test_programming_tasks_are_values_of_their_own(tmp_path: Path) -> None:
    task = {
        "task_id": "mine/0",
        "prompt": "def one():\n",
        "entry_point": "one",
        "test": "def check(f):\n    assert f() == 1\n",
        "canonical_solution": "    return 1\n",
    }
    file = tmp_path / "tasks.jsonl.gz"
    file.write_bytes(gzip.compress(json.dumps(task).encode()))
    assert list(read_code_tasks(file)) == [CodeTask("mine/0", task["prompt"], task["test"], "one", "    return 1\n")]
    for kind in (None, "humaneval"):
        with pytest.raises(Refusal, match=r"line 1: this is a HumanEval file.*read_code_tasks"):
            read_samples(file, kind)


def test_hub_data_sets_are_streamed_where_the_package_is(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def load_dataset(name: str, configuration: str | None, *, split: str, streaming: bool) -> Iterator[dict[str, Any]]:
        asked.append((name, configuration, split, streaming))
        yield {"question": "How many?", "answer": "#### 3"}
        raise ConnectionError("the hub is gone\nmore about it")

    package = types.ModuleType("datasets")
    package.load_dataset = load_dataset  # pyright: ignore[reportAttributeAccessIssue]: a stand-in for a package that is not needed otherwise
    monkeypatch.setitem(sys.modules, "datasets", package)
    samples = read_samples("hf:openai/gsm8k:main/test")
    assert next(samples) == Sample("gsm8k-1", "How many?", ("3",))
    with pytest.raises(Refusal, match=r"^hf:openai/gsm8k:main/test could not be read from the Hugging Face hub: the hub is gone\.$"):
        next(samples)
    next(read_samples("hf:squad/validation", "gsm8k"))
    assert asked == [("openai/gsm8k", "main", "test", True), ("squad", None, "validation", True)]


def test_without_the_package_a_hub_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(Refusal, match="hf:openai/gsm8k/test needs the package `datasets`"):
        read_samples("hf:openai/gsm8k/test")
    with pytest.raises(Refusal, match="does not say which data set and split"):
        read_samples("hf:gsm8k")
