"""Passages are ranked by BM25, an index is what it was built as, and distractors never give the answer away."""

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from floatlens.errors import Refusal
from floatlens.tasks.retrieval import build_index, distractors, lost_in_the_middle, open_index, search
from floatlens.tasks.samples import Passage, Sample
from floatlens.tasks.scoring import contains_any

TOWNS = ("Oslo", "Rome", "Bern", "Lima", "Kyiv", "Bonn", "Nice", "Graz", "Turin", "Cadiz")
PEOPLE = ("Marta", "Ben", "Ida", "Omar", "Lena", "Yusuf", "Clara", "Pavel", "Nora", "Tomas", "Edith", "Hugo")
TRADES = ("mends nets", "keeps bees", "bakes bread", "builds boats", "paints gates")


def corpus() -> list[Passage]:
    """Passages of different lengths, whose words overlap in many ways."""
    made = []
    for number, person in enumerate(PEOPLE):
        town, trade = TOWNS[number % len(TOWNS)], TRADES[number % len(TRADES)]
        again = f" {person} {TRADES[(number + 2) % len(TRADES)]} too, and likes {town} a lot." * (number % 3)
        made.append(Passage(f"{person} lives in {town} and {trade}.{again}", f"About {person}" if number % 2 else ""))
    return made


def questions() -> list[Sample]:
    return [
        Sample(f"q{number}", f"In which town does {person} live?", (TOWNS[number % len(TOWNS)],), (corpus()[number],), (0,))
        for number, person in enumerate(PEOPLE)
    ]


def bm25_by_hand(passages: list[Passage], query: str, k1: float = 1.5, b: float = 0.75) -> list[float]:
    """The formula, term by term: log(1 + (N - n + .5) / (n + .5)) * tf / (tf + k1 (1 - b + b length / mean length))."""
    documents = [re.findall(r"\w+", f"{passage.title} {passage.text}".lower()) for passage in passages]
    mean = sum(map(len, documents)) / len(documents)
    scores = []
    for document in documents:
        score = 0.0
        for word in re.findall(r"\w+", query.lower()):
            holding = sum(word in other for other in documents)
            frequency = document.count(word)
            if frequency:
                rarity = math.log(1 + (len(documents) - holding + 0.5) / (holding + 0.5))
                score += rarity * frequency / (frequency + k1 * (1 - b + b * len(document) / mean))
        scores.append(score)
    return scores


@pytest.mark.parametrize("query", ["Where does Marta live, in Oslo or in Turin?", "who keeps bees too", "about Clara", "and and in"])
def test_ranking_is_bm25_with_ties_to_the_earlier_passage(query: str, tmp_path: Path) -> None:
    index = build_index(corpus(), tmp_path / "index")
    scores = bm25_by_hand(corpus(), query)
    expected = [
        number for number in sorted(range(len(scores)), key=lambda number: (-round(scores[number], 5), number)) if scores[number] > 0
    ]
    hits = search(index, query, 100)
    assert [hit.number for hit in hits] == expected
    np.testing.assert_allclose([hit.score for hit in hits], [scores[number] for number in expected], rtol=1e-5)
    assert [hit.passage for hit in hits] == [corpus()[number] for number in expected]
    for k in range(1, len(expected) + 1):
        assert [hit.number for hit in search(index, query, k)] == expected[:k]


def test_nothing_is_found_by_words_that_are_nowhere(tmp_path: Path) -> None:
    index = build_index(corpus(), tmp_path / "index")
    assert search(index, "zeppelin ?", 3) == []
    assert search(index, "", 3) == []
    with pytest.raises(Refusal, match="k = 0"):
        search(index, "Marta", 0)


def test_an_index_is_built_once_and_mapped(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "index"
    built = build_index(corpus(), folder)
    written = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    again = build_index(iter(corpus() + corpus()[:3]), folder)  # a passage given twice is kept once
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == written
    assert again.fingerprint == built.fingerprint
    assert again.size == len(PEOPLE)
    assert isinstance(again.offsets, np.memmap)
    assert isinstance(again.scorer.scores["data"], np.memmap)
    assert [path.name for path in folder.parent.iterdir()] == ["index"]


def test_two_builds_write_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        build_index(corpus(), tmp_path / name)
    for file in (tmp_path / "one").iterdir():
        assert file.read_bytes() == (tmp_path / "two" / file.name).read_bytes()


def test_an_index_of_another_corpus_is_refused_and_replaced_only_if_asked_to(tmp_path: Path) -> None:
    folder = tmp_path / "index"
    build_index(corpus(), folder)
    with pytest.raises(Refusal, match=r"holds an index of 12 other passages: the corpus has changed.*rebuild=True"):
        build_index(corpus()[:-1], folder)
    assert open_index(folder).size == 12
    assert build_index(corpus()[:-1], folder, rebuild=True).size == 11
    assert open_index(folder).size == 11


def test_a_changed_or_missing_file_is_refused_until_it_is_built_again(tmp_path: Path) -> None:
    folder = tmp_path / "index"
    build_index(corpus(), folder)
    for file in sorted(folder.iterdir()):
        if file.name in ("index.json", "manifest.json"):
            continue
        content = file.read_bytes()
        file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        with pytest.raises(Refusal, match=rf"{re.escape(str(file))} is missing or was changed"):
            open_index(folder)
        with pytest.raises(Refusal, match="rebuild=True"):
            build_index(corpus(), folder)
        file.write_bytes(content)
    (folder / "passages.jsonl").unlink()
    with pytest.raises(Refusal, match="is missing or was changed"):
        open_index(folder)
    assert build_index(corpus(), folder, rebuild=True).size == 12


def test_what_is_no_index_is_left_alone(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="holds no index"):
        open_index(tmp_path)
    (tmp_path / "letter.txt").write_text("dear")
    for rebuild in (False, True):
        with pytest.raises(Refusal, match="is not an index of passages"):
            build_index(corpus(), tmp_path, rebuild=rebuild)
    assert (tmp_path / "letter.txt").read_text() == "dear"
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "index.json").write_text("{}")
    with pytest.raises(Refusal, match="cannot be read as the description"):
        open_index(tmp_path / "index")


@pytest.mark.parametrize(
    ("passages", "said"),
    [([], "no passages"), ([Passage("Words."), Passage(" \n")], "Passage 1 of the corpus is empty"), ([Passage("...")], "no passages")],
)
def test_a_corpus_without_words_is_refused_and_leaves_nothing(passages: list[Passage], said: str, tmp_path: Path) -> None:
    with pytest.raises(Refusal, match=said):
        build_index(passages, tmp_path / "index")
    assert list(tmp_path.iterdir()) == []


def test_distractors_are_the_best_ranked_without_answer_and_not_the_samples_own(tmp_path: Path) -> None:
    index = build_index(corpus(), tmp_path / "index")
    assert TOWNS[0] in corpus()[10].text  # so that there is something to leave out
    for sample in questions():
        ranked = [hit.passage for hit in search(index, sample.question, 100)]
        town = sample.answers[0].lower()
        allowed = [passage for passage in ranked if passage != sample.passages[0] and town not in re.findall(r"\w+", passage.text.lower())]
        for count in (0, 1, 5, len(allowed)):
            assert distractors(index, sample, count) == tuple(allowed[:count])
        with pytest.raises(Refusal, match=rf"Sample {sample.id} needs {len(allowed) + 1} distractors, but only {len(allowed)} of the 12"):
            distractors(index, sample, len(allowed) + 1)


def test_an_answer_in_a_title_is_an_answer(tmp_path: Path) -> None:
    passages = [Passage("She lives there.", "Oslo"), Passage("She lives well.", "Osloer Platz"), Passage("She lives in OSLO!")]
    index = build_index(passages, tmp_path / "index")
    assert distractors(index, Sample("a", "Where lives she?", ("the Oslo",)), 1) == (passages[1],)


def test_a_passage_that_the_sample_has_already_is_not_given_again(tmp_path: Path) -> None:
    index = build_index(corpus(), tmp_path / "index")
    first, second = distractors(index, questions()[0], 2)
    assert distractors(index, replace(questions()[0], passages=(corpus()[0], first)), 1) == (second,)


def test_sets_hold_the_gold_passage_first_and_are_nested_and_the_same_every_time(tmp_path: Path) -> None:
    asked = [replace(sample, passages=(Passage("Noise."), *sample.passages), gold=(1,)) for sample in questions()]
    small, large = lost_in_the_middle(asked, 4), lost_in_the_middle(asked, 7, folder=tmp_path / "index")
    assert lost_in_the_middle(asked, 7, folder=tmp_path / "index") == large
    for before, few, many in zip(questions(), small, large, strict=True):
        assert (few.id, few.question, few.answers, few.gold) == (before.id, before.question, before.answers, (0,))
        assert few.passages[0] == before.passages[0]
        assert (len(few.passages), len(many.passages)) == (4, 7)
        assert many.passages[:4] == few.passages
        assert len(set(many.passages)) == 7
        assert not any(contains_any(f"{passage.title} {passage.text}", before.answers) for passage in many.distractors)


def test_sets_that_cannot_be_made_are_refused() -> None:
    with pytest.raises(Refusal, match="Sample a has 0 gold passages"):
        lost_in_the_middle([Sample("a", "Where?", ("here",))], 10)
    with pytest.raises(Refusal, match="Sample q0 has 1 gold passages, so no set of 1"):
        lost_in_the_middle(questions(), 1)
    with pytest.raises(Refusal, match="Sample q0 needs 29 distractors"):
        lost_in_the_middle(questions(), 30)


def test_passages_of_any_script_survive_the_index(tmp_path: Path) -> None:
    passages = [Passage('Ωμέγα\u2028line\r\nand "quotes"', "Tïtle", conflicting=True), Passage("日本 の 庭")]
    index = build_index(passages, tmp_path / "index")
    assert [index.passage(0), index.passage(1)] == passages
    assert [hit.number for hit in search(index, "庭 ΩΜΈΓΑ", 2)] == [1, 0]
    assert json.loads((tmp_path / "index" / "index.json").read_text())["passages"] == 2
