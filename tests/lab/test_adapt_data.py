"""What is trained on: split by passage title, free of what is evaluated on, in the wording of the evaluation, refused if unusable."""

import gzip
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from adapt_data import recipe_table, small_recipe, stories_model, write_data

from floatlens.errors import Refusal
from floatlens.lab.adaptation.data import Data, prepare, read_questions
from floatlens.lab.adaptation.overlap import grams, protect, refuse_overlap, split_by_title, texts_of
from floatlens.lab.adaptation.recipe import bundled_recipe, read_recipe, recipe_of
from floatlens.lab.adaptation.sequences import draw_update, held_out_sequences
from floatlens.tasks.readers import read_samples
from floatlens.tasks.samples import Passage, Sample
from floatlens.tasks.wording import QA_WORDING, format_prompt

NQ = Path(__file__).parents[1] / "data" / "nq-100-questions.jsonl.gz"
THIRTEEN = "the quick brown fox jumps over the lazy dog and then sleeps well"
NOBODY = protect([])


def data_of(folder: Path, **changes: Any) -> Data:
    return prepare(small_recipe(**changes), folder, stories_model().tokenizer)


def asked(number: int, title: str, text: str = "") -> Sample:
    return Sample(str(number), f"Question {number}?", ("x",), (Passage(text or f"Text {number}.", title=title),), gold=(0,))


def test_a_split_shares_no_title_question_or_13_gram_and_trains_on_exactly_so_many() -> None:
    samples = list(read_samples(NQ))
    split = split_by_title(samples, 60, NOBODY, hold_out_first=20)
    assert len(split.train) == 60
    assert {sample.id for sample in samples[:20]} <= {sample.id for sample in split.held_out}
    assert not {sample.evidence[0].title for sample in split.train} & {sample.evidence[0].title for sample in split.held_out}
    protected = protect(split.held_out, gold_only=True)
    assert not any(protected.touches(sample) for sample in split.train)
    assert split == split_by_title(samples, 60, NOBODY, hold_out_first=20)


def test_questions_that_share_a_title_or_13_words_of_their_passages_stay_together() -> None:
    samples = [asked(n, f"Town {n // 4}") for n in range(40)]
    samples += [asked(40, "Fox", f"Once {THIRTEEN}."), asked(41, "Dog", f"{THIRTEEN} again"), asked(42, "Cat"), asked(43, "cat")]
    split = split_by_title(samples, 22, NOBODY, hold_out_first=1)
    held_out = {sample.id for sample in split.held_out}
    assert {"0", "1", "2", "3"} <= held_out
    for first, second in (("40", "41"), ("42", "43"), *pairwise(str(n) for n in range(4, 8))):
        assert (first in held_out) == (second in held_out)


def test_what_overlaps_with_another_evaluation_is_held_out() -> None:
    samples = [asked(n, f"Town {n}") for n in range(20)] + [asked(20, "Fox", f"Once {THIRTEEN}.")]
    split = split_by_title(samples, 19, protect([Sample("e", f"Is it true that {THIRTEEN}?", ("yes",)), Sample("f", "question 3", ("y",))]))
    assert {sample.id for sample in split.held_out} == {"3", "20"}


def test_more_questions_than_can_be_trained_on_are_refused() -> None:
    with pytest.raises(Refusal, match=r"file: only 10 of 12 questions can be trained on .* asks for 11"):
        split_by_title([asked(n, f"Town {n}") for n in range(12)], 11, NOBODY, hold_out_first=2)


def test_the_check_for_13_grams_finds_thirteen_words_and_not_twelve() -> None:
    protected = protect([Sample("a", f"Did {THIRTEEN}?", ("x",))])
    with pytest.raises(Refusal, match="13 words that an evaluation text has too"):
        refuse_overlap(["A story.", f"So {THIRTEEN.upper()}, they say."], protected, "stories")
    refuse_overlap([f"So {THIRTEEN.replace('fox', 'cat')}", " ".join(THIRTEEN.split()[1:])], protected, "stories")


def test_nothing_that_an_update_sees_holds_a_13_gram_of_the_evaluation(tmp_path: Path) -> None:
    folder, lm = write_data(tmp_path), stories_model()
    evaluation = {
        "question": "Who slept?",
        "answers": ["Tom"],
        "passages": ["In the evening Tom went home and slept. They ran in the sea all day."],
    }
    planted = f"A dog sang. {THIRTEEN}. In the end it was a very good day for everyone in the small town."
    evaluation["passages"].append(f"He said: {THIRTEEN}")
    (folder / "evaluation.jsonl").write_text(json.dumps(evaluation))
    with (folder / "stories.txt").open("a") as file:
        file.write(f"{planted}\n<|endoftext|>\n")
    recipe = small_recipe(evaluation_files=[{"file": "evaluation.jsonl"}], text_files=[{"file": "stories.txt"}])
    data = prepare(recipe, folder, lm.tokenizer)
    assert data.texts[0].source.left_out["overlap with the evaluation"] == 1
    forbidden = {gram for sample in data.held_out for text in texts_of(sample, gold_only=True) for gram in grams(text)} | set(
        grams(THIRTEEN)
    )
    assert len(forbidden) > 5
    seen = [sequence.tokens for update in range(1, 40) for sequence in draw_update(data, recipe, lm, update)]
    stream = {gram for tokens in seen for gram in grams(lm.tokenizer.decode(tokens, skip_special_tokens=True))}
    assert len(stream) > 500
    assert not stream & forbidden
    careless = prepare(small_recipe(), folder, lm.tokenizer)  # nothing is said of the evaluation: the check has something to find
    with pytest.raises(Refusal, match=THIRTEEN):
        refuse_overlap((*careless.texts[0].documents, *careless.held_out_documents), data.protected, "stories.txt")


def test_questions_of_an_undivided_file_that_overlap_with_the_evaluation_are_left_out(tmp_path: Path) -> None:
    folder = write_data(tmp_path)
    own = [("Who sang?", f"Once {THIRTEEN}."), ("Who  SLEPT", "Tom slept."), ("Who ran?", "Tom ran.")]
    lines = [json.dumps({"question": question, "answers": ["Tom"], "passages": [passage], "gold": [0]}) for question, passage in own]
    (folder / "own.jsonl").write_text("\n".join(lines))
    (folder / "evaluation.jsonl").write_text(json.dumps({"question": "Who slept?", "answers": ["Tom"], "passages": [f"So {THIRTEEN}"]}))
    data = data_of(folder, question_files=[{"file": "own.jsonl"}], evaluation_files=[{"file": "evaluation.jsonl"}])
    assert [sample.question for sample in data.questions[0].samples] == ["Who ran?"]
    assert data.questions[0].source.left_out == {"overlap with the evaluation": 2}


def test_what_an_update_sees_depends_on_the_seed_and_its_number_only(tmp_path: Path) -> None:
    lm = stories_model()
    recipe, data = small_recipe(), data_of(write_data(tmp_path))
    forward = [draw_update(data, recipe, lm, update) for update in range(1, 7)]
    backward = [draw_update(data_of(tmp_path), recipe, lm, update) for update in range(6, 0, -1)]
    assert forward == backward[::-1]
    assert draw_update(data, small_recipe(seed=1), lm, 1) != forward[0]


def test_a_question_is_put_in_the_wording_of_the_evaluation_and_its_answer_padded_with_end_tokens(tmp_path: Path) -> None:
    lm, recipe, data = stories_model(), small_recipe(), data_of(write_data(tmp_path))
    known = {sample.question: sample for sample in data.questions[0].samples}
    passages, rooms = set(), set()
    for sequence in (sequence for update in range(1, 20) for sequence in draw_update(data, recipe, lm, update)):
        if sequence.kind != "question":
            continue
        ends = next(n for n, token in enumerate(reversed(sequence.tokens)) if token != lm.end_tokens[0])
        text = lm.tokenizer.decode(sequence.tokens[: len(sequence.tokens) - ends], skip_special_tokens=True)
        sample = next(sample for question, sample in known.items() if question in text)
        gold = sample.evidence[0]
        plain = format_prompt(sample, [gold], QA_WORDING).text
        passages.add(text.count("]"))
        if text.count("]") == 1:
            assert text.strip() == f"{plain} {sample.answers[0]}"
        answer = len(lm.tokenizer(f"{plain} {sample.answers[0]}")["input_ids"]) - len(lm.tokenizer(plain)["input_ids"])
        rooms.add(answer + ends)
        assert gold.text in text
        assert ends >= 1
    assert passages == {1, 2}
    assert rooms == {8, 12}


def test_texts_are_at_least_their_share_of_the_tokens_and_targets_are_between_the_least_and_the_most(tmp_path: Path) -> None:
    lm, data = stories_model(), data_of(write_data(tmp_path))
    recipe = small_recipe(targets={"least": 0.1, "passages": 0.5})
    sequences = [sequence for update in range(1, 60) for sequence in draw_update(data, recipe, lm, update)]
    tokens = {kind: sum(len(sequence.tokens) for sequence in sequences if sequence.kind == kind) for kind in ("text", "question")}
    assert tokens["text"] >= 0.35 * sum(tokens.values())
    shares = [len(sequence.targets) / (len(sequence.tokens) - 1) for sequence in sequences if sequence.kind == "text"]
    assert min(shares) >= 0.1
    assert max(shares) > 0.9
    assert all(0 not in sequence.targets and len(sequence.targets) == len(sequence.weights) for sequence in sequences)
    with_passage = [min(sequence.targets) < len(sequence.tokens) - 12 for sequence in sequences if sequence.kind == "question"]
    assert 0.3 < sum(with_passage) / len(with_passage) < 0.7
    for update in range(1, 10):
        assert sum(sum(sequence.weights) for sequence in draw_update(data, recipe, lm, update)) == pytest.approx(1)


def test_the_held_out_loss_is_of_what_is_never_trained_on(tmp_path: Path) -> None:
    lm, recipe, data = stories_model(), small_recipe(), data_of(write_data(tmp_path))
    trained = {sample.question for sample in data.questions[0].samples}
    sequences = held_out_sequences(data, recipe, lm)
    assert {sequence.kind for sequence in sequences} == {"question", "text"}
    for sequence in sequences:
        text = lm.tokenizer.decode(sequence.tokens, skip_special_tokens=True)
        assert not any(question in text for question in trained)
        assert not any(document.startswith(text[:60]) for document in data.texts[0].documents) or sequence.kind == "question"


def test_squad_2_is_read_without_its_impossible_questions_and_fairytales_with_their_story(tmp_path: Path) -> None:
    asked = [
        {"id": "a", "question": "Where?", "answers": [{"text": "Oslo"}]},
        {"id": "b", "question": "Why?", "answers": [], "is_impossible": True},
    ]
    document = {"version": "v2.0", "data": [{"title": "Norway", "paragraphs": [{"context": "In Oslo.", "qas": asked}]}]}
    (tmp_path / "squad.json.gz").write_bytes(gzip.compress(json.dumps(document).encode()))
    samples, left_out = read_questions(tmp_path / "squad.json.gz", "squad")
    assert [sample.question for sample in samples] == ["Where?"]
    assert left_out == {"no answer": 1}
    tale = {"story": "Snow-man", "context": "It was cold.\nVery.", "question": "How?", "answers": ["cold"], "ex_or_im": "explicit"}
    (tmp_path / "tales.jsonl").write_text(json.dumps(tale))
    [sample], _ = read_questions(tmp_path / "tales.jsonl", "fairytaleqa")
    assert sample.evidence == (Passage("It was cold. Very.", "Snow-man"),)


def test_data_that_cannot_be_used_are_refused_in_a_sentence(tmp_path: Path) -> None:
    folder = write_data(tmp_path)
    with pytest.raises(Refusal, match=r"answer of sample .* has \d+ tokens, .* longest of questions.rooms has 3"):
        data_of(folder, questions={"rooms": [3]})
    with pytest.raises(Refusal, match="no question is left to train on"):
        data_of(folder, questions={"rooms": [2], "long_answers": "leave out"})
    (folder / "empty.txt").write_text("")
    with pytest.raises(Refusal, match=r"empty.txt: no text is left to train on"):
        data_of(folder, text_files=[{"file": "empty.txt"}])
    with pytest.raises(Refusal, match=r"nowhere.txt cannot be read"):
        data_of(folder, text_files=[{"file": "nowhere.txt"}])
    with pytest.raises(Refusal, match=r"nowhere.jsonl cannot be read"):
        data_of(folder, question_files=[{"file": "nowhere.jsonl"}])
    (folder / "plain.jsonl").write_text('{"question": "Where?", "answers": ["Oslo"], "passages": ["In Oslo."]}')
    with pytest.raises(Refusal, match="names no gold passage"):
        data_of(folder, question_files=[{"file": "plain.jsonl"}])
    with pytest.raises(Refusal, match="no question fits into 16 tokens"):
        draw_update(data_of(folder), small_recipe(longest=16), stories_model(), 1)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"updates": 0}, r"own.toml, updates: .*must be at least 1 \(it is 0\)"),
        ({"updates": "many"}, r"own.toml, updates: must be a whole number \(it is many\)"),
        ({"optimizer": {"rate": -1.0}}, r"own.toml, optimizer.rate: "),
        ({"optimizer": {"speed": 1.0}}, r"own.toml, optimizer.speed: Extra inputs"),
        ({"questions": {"rooms": []}}, r"own.toml, questions.rooms: "),
        ({"questions": {"rooms": [8, 1]}}, r"own.toml, questions.rooms.2: "),
        ({"targets": {"least": 0.5, "most": 0.2}}, r"own.toml, targets: least \(0.5\) is above most \(0.2\)"),
        ({"optimizer": {"warm_up": 20}}, r"own.toml: optimizer.warm_up \(20\) and .* more than updates \(12\)"),
        ({"question_files": []}, r"own.toml: text_share is 0.35, .* no \[\[question_files\]\]"),
        ({"text_files": []}, r"own.toml: text_share is 0.35, but there are no \[\[text_files\]\]"),
        ({"adapter": {"trains": "some"}}, r"own.toml, adapter.trains: "),
        ({"longest": 16, "questions": {"rooms": [32]}}, r"questions.rooms leave no token"),
    ],
)
def test_recipes_that_cannot_mean_anything_are_refused_with_file_and_field(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(Refusal, match=words):
        recipe_of(recipe_table(**changes), "own.toml")


def test_a_file_that_is_no_recipe_is_refused(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text("base = ")
    with pytest.raises(Refusal, match=r"own.toml is not TOML"):
        read_recipe(tmp_path / "own.toml")
    with pytest.raises(Refusal, match=r"There is no recipe .*other.toml"):
        read_recipe(tmp_path / "other.toml")


def test_the_recipe_of_the_triplet_is_the_published_one() -> None:
    recipe = bundled_recipe("smollm2")
    assert (recipe.base, recipe.adapter.rank, recipe.adapter.trains, recipe.optimizer.rate, recipe.optimizer.warm_up) == (
        "smollm2-135m",
        8,
        "lora+norms",
        1e-3,
        20,
    )
    assert recipe.text_share >= 1 / 3
    assert recipe.updates * recipe.tokens_per_update > 420_000  # an update has a sixth more, as its last question may be longer
    [nq] = [entry for entry in recipe.question_files if entry.train is not None]
    assert (nq.train, nq.hold_out_first) == (2000, 100)
