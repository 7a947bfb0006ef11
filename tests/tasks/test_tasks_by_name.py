"""Tasks by name: where their files are found, which passages their questions get, and how programs are scored."""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from floatlens.errors import Caution, Refusal
from floatlens.study.one_model import evaluate_model
from floatlens.tasks.code_runs import require_isolation
from floatlens.tasks.conditions import condition_of, with_one_gold
from floatlens.tasks.contexts import arrange
from floatlens.tasks.readers.own import read_passages
from floatlens.tasks.registry import PUBLISHED, TASKS, WORLD_TASKS, found_for, gold_by_answer, index_of_file, load_task
from floatlens.tasks.retrieval import CORPUS, build_index, open_index, search
from floatlens.tasks.samples import Passage, Sample
from floatlens.tasks.wording import WORLD_WORDING
from floatlens.tasks.world import make_tokenizer, open_book_samples
from world_models import arm

PEOPLE = (("Ada", "Oslo"), ("Ben", "Rome"), ("Cy", "Bern"), ("Dee", "Oslo"), ("Eve", "Lima"), ("Fay", "Kyiv"))


def oracle_lines() -> list[dict[str, Any]]:
    """Questions in the Lost-in-the-Middle format, each with its gold passage alone."""
    return [
        {
            "question": f"Where does {name} live in winter?",
            "answers": [town],
            "ctxs": [{"title": name, "text": f"{name} does live in {town} in winter.", "hasanswer": True, "isgold": True}],
        }
        for name, town in PEOPLE
    ]


@pytest.fixture
def oracle(tmp_path: Path) -> Path:
    file = tmp_path / "nq-open-oracle.jsonl.gz"
    file.write_bytes(gzip.compress("\n".join(map(json.dumps, oracle_lines())).encode()))
    return file


def loaded(file: Path, *contexts: str, **options: Any) -> Sequence[Sample]:
    return load_task("nq", file, conditions=[condition_of(text) for text in contexts], **options).samples


def test_a_file_is_found_by_its_published_name(oracle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = loaded(oracle)
    assert [sample.answers[0] for sample in given] == [town for _, town in PEOPLE]
    assert loaded(oracle.parent) == given
    monkeypatch.setenv("FLOATLENS_QA_DATA", str(oracle.parent))
    assert load_task("nq").samples == given
    (oracle.parent / "tqa_dev_psg.jsonl").write_text(
        json.dumps({"id": "t", "input": "Where?", "output": [{"answer": "Oslo"}], "passage": [{"segment": "In Oslo."}]})
    )
    assert load_task("triviaqa").samples[0].passages == (Passage("In Oslo."),), "KILT-style, told from its first record"
    assert set(PUBLISHED) < set(TASKS)


@pytest.mark.parametrize(
    ("name", "data", "options", "sentence"),
    [
        ("nqq", None, {}, f"There is no task 'nqq'. Did you mean 'nq'? There are: {', '.join(TASKS)}."),
        ("gsm8k", None, {}, "The task gsm8k is read from a file (gsm8k-test.jsonl or test.jsonl), and none is given."),
        (
            "plain",
            None,
            {},
            "The task plain is read from a file, and none is given. Give the file or its folder, or name the folder in FLOATLENS_QA_DATA.",
        ),
        ("plain", ".", {}, ". is a folder, and files of the task plain have no published name to look for in it. Give the file."),
        ("world", "file.jsonl", {}, "The task world is made, not read"),
        ("world", None, {"count": 0}, "0 samples were asked for"),
        ("humaneval", "file.jsonl", {}, "runs programs that a model wrote. If you want that, pass --run-code"),
        ("nq", "missing.jsonl", {}, "missing.jsonl cannot be read"),
    ],
)
def test_tasks_that_do_not_exist_are_refused(
    name: str, data: str | None, options: dict[str, Any], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FLOATLENS_QA_DATA", raising=False)
    with pytest.raises(Refusal) as refused:
        load_task(name, data, **options)
    assert sentence in str(refused.value)


def test_questions_with_gold_alone_get_distractors_from_the_others(oracle: Path) -> None:
    plain = loaded(oracle)
    assert [len(sample.passages) for sample in plain] == [1] * len(PEOPLE), "nothing calls for more"
    task = load_task("nq", oracle, conditions=[condition_of("position:2/4")], count=2)
    assert task.passages_from == "Passages that are not gold come from the gold passages of all 6 questions of the file."
    for sample, (name, town) in zip(task.samples, PEOPLE, strict=False):
        shown = arrange(sample, condition_of("position:2/4").context)
        assert [town in passage.text for passage in shown] == [False, True, False, False], "Dee's Oslo is no distractor for Ada"
        assert shown[1].text == f"{name} does live in {town} in winter."
    assert len(task.samples) == 2


def test_retrieved_passages_are_what_a_search_finds_gold_or_not(oracle: Path) -> None:
    tricky = oracle_lines()
    tricky[0]["question"] = "Where does Ben live in winter, says Ada?"
    oracle.write_bytes(gzip.compress("\n".join(map(json.dumps, tricky)).encode()))
    first = loaded(oracle, "retrieved:3")[0]
    best = arrange(first, condition_of("retrieved:3").context)
    assert {passage.title for passage in best[:2]} == {"Ada", "Ben"}, "both names are rare words of the question"
    assert len(best) == 3
    assert first.evidence[0].title == "Ada"
    by_position = loaded(oracle, "retrieved:3", "position:1/4")[0]
    assert by_position.passages[:3] == best, "other contexts do not change what is found"


def test_a_gold_passage_that_was_not_found_stays_known(tmp_path: Path) -> None:
    corpus = [Passage("Ben lives in Rome."), Passage("Ben sings."), Passage("Rain falls.")]
    own = Passage("She went to Oslo.", title="Ada")
    contrary = Passage("She went to Lima.", conflicting=True)
    index = build_index(corpus, tmp_path / "index")
    sample = Sample("a", "Ben lives where?", ("Oslo",), (Passage("dropped"), own, contrary), gold=(1,))
    found = found_for(index, sample, best=2)
    assert found.passages == (corpus[0], corpus[1], own, contrary)
    assert found.evidence == (own,)
    assert found.conflicts == (contrary,)
    with pytest.raises(Refusal, match="Sample a needs 3 passages, of them 0 distractors without an answer; in 3 passages, 2 share a word"):
        found_for(index, sample, best=3)
    with pytest.raises(Refusal, match=r"of them 3 distractors .* 2 of them without an answer"):
        found_for(index, sample, distractors=3)


def test_gold_keeps_its_place_in_a_ranking_and_is_known_by_its_words(tmp_path: Path) -> None:
    index = build_index([Passage("Ada lives  in\nOslo."), Passage("Ada sings of Oslo."), Passage("Ada sings.")], tmp_path / "index")
    sample = Sample("a", "Ada lives in?", ("Oslo",), (Passage("Ada lives in Oslo.", title="Ada"),), gold=(0,))
    found = found_for(index, sample, distractors=1)
    assert found.gold == (0,)
    assert [passage.text for passage in found.passages] == ["Ada lives in Oslo.", "Ada sings.", "Ada sings of Oslo."][: len(found.passages)]
    assert len([passage for passage in found.passages if "lives" in passage.text]) == 1, "not once as found and once as gold"


def test_gold_is_inferred_only_where_none_is_named() -> None:
    passages = (
        Passage("In Rome."),
        Passage("In Oslo."),
        Passage("Capital", title="Oslo"),
        Passage("Osloer"),
        Passage("Oslo!", conflicting=True),
    )
    unnamed, named = Sample("a", "Where?", ("Oslo",), passages), Sample("b", "Where?", ("Oslo",), passages, gold=(0,))
    assert [sample.gold for sample in gold_by_answer([unnamed, named])] == [(1, 2), (0,)]


def test_retrieval_files_without_gold_can_be_asked_with_noise_once_it_is_inferred(tmp_path: Path) -> None:
    segments = ["In Oslo, Ada lives.", "Rain.", "Oslo is hers.", "Snow.", "Fog."]
    file = tmp_path / "nq_dev_psg.jsonl"
    file.write_text(
        json.dumps({"id": "k", "query": "Where is Ada?", "answers": ["Oslo"], "passage": [{"segment": one} for one in segments]})
    )
    assert loaded(file)[0].gold == ()
    [sample] = loaded(file, "noise:0.6", infer_gold=True)
    assert {passage.text for passage in arrange(sample, condition_of("noise:0.6").context)} == set(segments)


def test_noise_around_a_single_gold_passage_adds_distractors() -> None:
    single = open_book_samples(2, passages=6)
    levels = [condition_of(f"noise:{level}") for level in (0, 0.2, 0.8)]
    changed = with_one_gold(levels, single)
    assert [condition.text for condition in changed] == ["noise:0,gold=1", "noise:0.2,gold=1", "noise:0.8,gold=1"]
    for sample in single:
        shown = [arrange(sample, condition.context) for condition in changed]
        assert [len(passages) for passages in shown] == [1, 2, 5]
        assert all(sample.evidence[0] in passages for passages in shown)
        assert set(shown[0]) < set(shown[1]) < set(shown[2]), "a noisier context holds the quieter one"
    assert with_one_gold(levels[2:], single) == levels[2:], "at .8 there is place for one anyway"
    assert with_one_gold(levels, open_book_samples(2, restatements=4)) == levels
    own = [condition_of("noise:0.2,gold=2")]
    assert with_one_gold(own, single) == own


@pytest.mark.parametrize("name", WORLD_TASKS)
def test_answers_of_the_world_are_worded_as_the_twins_learned_them(name: str) -> None:
    task = load_task(name, count=3)
    for sample in task.samples:
        answer = task.wording.answer.format(answer=sample.answers[0])
        words = make_tokenizer().tokenize(answer)
        assert words[-1] == "."
        assert words[-2] != "."
        assert len(words) + 1 == task.gen_length, "all of the answer, and the end"


def test_a_corpus_is_json_lines_or_tab_separated(tmp_path: Path) -> None:
    wanted = [Passage("Ada lives in Oslo.", "Ada"), Passage('He said "no".', "")]
    lines = tmp_path / "corpus.jsonl"
    lines.write_text('{"contents": "Ada lives in Oslo.", "title": "Ada"}\n{"segment": "He said \\"no\\"."}\n')
    table = tmp_path / "corpus.tsv.gz"
    table.write_bytes(gzip.compress(b'id\ttext\ttitle\n1\t"Ada lives in Oslo."\tAda\n2\t"He said ""no""."\t\n'))
    assert list(read_passages(lines)) == list(read_passages(table)) == wanted
    table.write_bytes(b"id\ttext\ttitle\n1\tAda\tAda\n2\tno title\n")
    with pytest.raises(Refusal, match="line 3: this is not a passage with id, text, title"):
        list(read_passages(table))
    lines.write_text('{"text": "a", "contents": "b"}')
    with pytest.raises(Refusal, match="line 1: a passage stands in exactly one of the fields"):
        list(read_passages(lines))


def test_a_corpus_is_indexed_once_and_again_when_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLOATLENS_CACHE", str(tmp_path / "cache"))
    corpus = tmp_path / "passages.jsonl"
    corpus.write_text('{"text": "Ada lives in Oslo."}')
    first = index_of_file(corpus)
    written = (first.folder / "index.json").stat().st_mtime_ns
    assert index_of_file(corpus).folder == first.folder
    assert (first.folder / "index.json").stat().st_mtime_ns == written
    corpus.write_text('{"text": "Ada lives in Oslo."}\n{"text": "Ben lives in Rome."}')
    assert [index_of_file(corpus).size, first.size] == [2, 1]


@pytest.mark.parametrize("fault", ["a byte that was changed", "settings of another version"])
def test_an_index_in_the_cache_that_is_no_longer_right_is_built_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    monkeypatch.setenv("FLOATLENS_CACHE", str(tmp_path / "cache"))
    corpus = tmp_path / "passages.jsonl"
    corpus.write_text('{"text": "Ada lives in Oslo."}')
    folder = index_of_file(corpus).folder
    if fault == "a byte that was changed":
        (folder / CORPUS).write_text('{"text": "Ada lives in Bern."}')
    else:
        manifest = json.loads((folder / "index.json").read_text())
        manifest["settings"]["k1"] = 2.0
        (folder / "index.json").write_text(json.dumps(manifest))
    with pytest.raises(Refusal, match="Build it again"):
        open_index(folder)
    assert [hit.passage.text for hit in search(index_of_file(corpus), "Ada", 1)] == ["Ada lives in Oslo."]
    assert json.loads((folder / "index.json").read_text())["settings"]["k1"] == 1.5


def test_gold_that_a_corpus_holds_twice_is_shown_once(tmp_path: Path) -> None:
    index = build_index(
        [Passage("Ada is in Oslo.", "Ada"), Passage("Ada is in Oslo.", "Oslo"), Passage("Ada is in town.")], tmp_path / "index"
    )
    sample = Sample("a", "Is Ada in Oslo?", ("Oslo",), (Passage("Ada is in Oslo.", "Ada"),), gold=(0,))
    found = found_for(index, sample, best=2)
    assert [passage.text for passage in found.passages] == ["Ada is in Oslo.", "Ada is in town."]
    assert found.gold == (0,)


def test_questions_for_which_too_little_is_found_are_left_out_only_when_that_is_said(oracle: Path, tmp_path: Path) -> None:
    index = build_index([Passage("Ada, twice."), Passage("Ada, thrice."), Passage("Ben, once.")], tmp_path / "index")
    given: dict[str, Any] = {"conditions": [condition_of("retrieved:2")], "count": 2, "corpus": index}
    with pytest.raises(Refusal, match="Sample lost-in-the-middle-2 needs 2 passages"):
        load_task("nq", oracle, **given)
    task = load_task("nq", oracle, **given, leave_out=True)
    assert [sample.id for sample in task.samples] == ["lost-in-the-middle-1"]
    assert list(task.left_out) == ["lost-in-the-middle-2"]
    assert "1 share a word with its question" in task.left_out["lost-in-the-middle-2"]


def test_passages_of_a_corpus_replace_those_of_the_file(oracle: Path, tmp_path: Path) -> None:
    corpus = [Passage("Ada does live."), *(Passage(f"Winter {number}.") for number in range(5))]
    index = build_index(corpus, tmp_path / "index")
    task = load_task("nq", oracle, conditions=[condition_of("retrieved:2")], count=1, corpus=index)
    assert task.samples[0].passages[0] == corpus[0]
    assert task.samples[0].evidence[0].text == "Ada does live in Oslo in winter."
    assert task.samples[0].gold == (2,), "behind what was found: retrieved:2 did not find it"
    assert task.passages_from == "Passages that are not gold come from 6 passages of the corpus."


def test_programs_are_asked_run_and_scored_only_when_allowed(tmp_path: Path) -> None:
    try:
        require_isolation()
    except Refusal as refusal:
        pytest.skip(str(refusal))
    file = tmp_path / "HumanEval.jsonl"
    check = "def check(candidate):\n    assert candidate(2) == 4\n"
    record = {
        "task_id": "mine/0",
        "prompt": "def double(number):\n",
        "entry_point": "double",
        "test": check,
        "canonical_solution": "    return 2 * number\n",
    }
    file.write_text("\n".join(json.dumps(record | {"task_id": f"mine/{number}"}) for number in range(2)))
    task = load_task("humaneval", tmp_path, run_code=True)
    assert [sample.question for sample in task.samples] == ["def double(number):\n"] * 2
    right, wrong = (task.scorer(text, task.samples[1]) for text in ("    return number + number\n", "    return 5\n"))
    assert (right.accuracy, right.exact_match, right.f1) == (1.0, None, None)
    assert wrong.accuracy == 0.0
    asked = {"wording": task.wording, "scorer": task.scorer, "gen_length": 2, "likelihood": True, "progress": False}
    with pytest.warns(Caution, match="does not know the answer of 2 of 2 questions"):
        table = evaluate_model(arm(), task.samples, [], allow_unknown=True, **asked)
    assert table["log_likelihood"].is_finite().all()
    assert table["accuracy"].to_list() == [0.0, 0.0], "a tiny model of other words writes no program"
    assert table["exact_match"].is_null().all()


def test_programs_that_cannot_be_isolated_are_refused_before_a_model_writes_any(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = {
        "task_id": "mine/0",
        "prompt": "def f():\n",
        "entry_point": "f",
        "test": "def check(f): f()\n",
        "canonical_solution": "    pass\n",
    }
    (tmp_path / "HumanEval.jsonl").write_text(json.dumps(record))
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    with pytest.raises(Refusal, match="cannot be isolated here, so none is run: this is Darwin"):
        load_task("humaneval", tmp_path, run_code=True)


def test_sampler_options_reach_the_model() -> None:
    table = evaluate_model(arm(), open_book_samples(2), [], wording=WORLD_WORDING, gen_length=2, progress=False, temperature=5.0)
    greedy = evaluate_model(arm(), open_book_samples(2), [], wording=WORLD_WORDING, gen_length=2, progress=False)
    assert table["prediction"].to_list() != greedy["prediction"].to_list()
    assert table.drop("prediction", "accuracy", "exact_match", "f1").equals(greedy.drop("prediction", "accuracy", "exact_match", "f1"))
    with pytest.raises(Refusal, match="warmth"):
        evaluate_model(arm(), open_book_samples(1), [], wording=WORLD_WORDING, gen_length=2, progress=False, warmth=5.0)
