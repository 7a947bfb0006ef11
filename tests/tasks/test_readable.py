"""What a tokenizer does not know is never scored in silence. The twins know the words of the world, and nothing else."""

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import floatlens as fl
from floatlens.errors import Caution, Refusal
from floatlens.interventions import MaskAbove, MaskAnchors
from floatlens.study import worker
from floatlens.study.one_model import evaluate_model
from floatlens.tasks.samples import Sample
from floatlens.tasks.wording import WORLD_WORDING
from floatlens.tasks.world import open_book_samples

Ran = tuple[int, str, str]
CHINESE = [Sample(f"zh-{number}", "法国的首都是哪里?", ("巴黎",)) for number in range(3)]


@pytest.fixture(scope="module")
def twin() -> fl.LanguageModel:
    return fl.load("twin-mdm")


@pytest.mark.parametrize("likelihood", [True, False])
def test_questions_that_a_model_cannot_read_are_refused_with_the_share(twin: fl.LanguageModel, likelihood: bool) -> None:
    with pytest.raises(Refusal) as refused:
        evaluate_model(twin, CHINESE, ["closed-book"], wording=WORLD_WORDING, likelihood=likelihood, progress=False)
    assert str(refused.value) == (
        "twin-mdm does not know the answer of 3 of 3 questions, such as '巴黎' (sample zh-0) and 3 of 9 tokens (33.3 %), "
        "such as '法国的首都是哪里', of the prompts: "
        "it reads [UNK] there, so its scores would be those of another text. Choose a model that knows these words, "
        "or pass --allow-unknown (allow_unknown=True)."
    )


def test_one_unknown_token_in_an_answer_is_enough_where_its_likelihood_is_taken(twin: fl.LanguageModel) -> None:
    known = open_book_samples(2)
    other = Sample("other", known[0].question, ("Xanadu", *known[0].answers), known[0].passages, known[0].gold)
    with pytest.raises(Refusal, match=r"the answer of 1 of 3 questions, such as 'Xanadu' \(sample other\): it reads \[UNK\] there"):
        evaluate_model(twin, [*known, other], ["gold"], wording=WORLD_WORDING, likelihood=True, progress=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error", Caution)
        table = evaluate_model(twin, [*known, other], ["gold"], wording=WORLD_WORDING, gen_length=3, progress=False)
    assert len(table) == 6, "without likelihoods the other answer, which is known, can be written"


def test_a_few_unknown_words_in_prompts_are_said_and_many_are_allowed_by_a_flag(twin: fl.LanguageModel) -> None:
    known = open_book_samples(3, passages=6)
    odd = [Sample("odd", "Where does Zaphod live?", known[0].answers, known[0].passages, known[0].gold), *known]
    with pytest.warns(Caution) as said:
        evaluate_model(twin, odd, ["gold"], wording=WORLD_WORDING, gen_length=2, progress=False)
    tokens = sum(
        len(twin.tokenizer(text)["input_ids"])
        for sample in odd
        for text in (sample.question, f"{sample.evidence[0].text}\n{sample.question}")
    )
    assert [str(one.message) for one in said] == [
        f"twin-mdm does not know 2 of {tokens} tokens ({200 / tokens:.1f} %), such as 'Zaphod', of the prompts: it reads [UNK] there."
    ]
    with pytest.warns(Caution, match="does not know the answer of 3 of 3 questions"):
        table = evaluate_model(twin, CHINESE, ["closed-book"], wording=WORLD_WORDING, gen_length=2, allow_unknown=True, progress=False)
    assert len(table) == 3


def test_the_command_line_refuses_before_any_weights_are_read(
    floatlens: Callable[..., Ran], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    questions = [{"question": sample.question, "answers": list(sample.answers)} for sample in CHINESE]
    (tmp_path / "zh.jsonl").write_text("\n".join(map(json.dumps, questions)), encoding="utf-8")
    monkeypatch.setattr(worker, "load", lambda *_, **__: pytest.fail("weights were read"))
    words = ["eval", "-m", "twin-mdm", "-m", "twin-arm", "-t", "plain", "-d", tmp_path / "zh.jsonl", "--into", tmp_path / "out"]
    code, _, errors = floatlens(*words)
    assert code == 2
    assert errors.startswith("floatlens: twin-mdm does not know the answer of 3 of 3 questions, such as '巴黎' (sample plain-1) and ")
    assert errors.endswith("Choose a model that knows these words, or pass --allow-unknown (allow_unknown=True).\n")
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "cache") == ["zh.jsonl"]
    monkeypatch.undo()
    code, _, errors = floatlens(*words, "--allow-unknown", "--gen-length", 2)
    assert code == 0, errors
    assert errors.count("floatlens: twin-mdm does not know") == 1
    assert errors.count("floatlens: twin-arm does not know") == 1


def test_a_prompt_with_unknown_words_is_run_and_said(twin: fl.LanguageModel, floatlens: Callable[..., Ran], tmp_path: Path) -> None:
    sentence = (
        "twin-mdm does not know 1 of 6 tokens (16.7 %), such as 'Zaphod', and reads [UNK] there: "
        "what it writes may not answer the prompt as written."
    )
    for call in (twin.generate, twin.trace):
        with pytest.warns(Caution) as said:
            call("Where does Zaphod live?", gen_length=2, progress=False)
        assert [str(one.message) for one in said] == [sentence]
    code, _, errors = floatlens("trace", "-m", "twin-mdm", "-p", "Where does Zaphod live?", "--gen-length", 2, "-o", tmp_path / "run.zarr")
    assert (code, errors) == (0, f"floatlens: {sentence}\n")


def test_an_empty_prompt_is_run_and_said(twin: fl.LanguageModel, floatlens: Callable[..., Ran], tmp_path: Path) -> None:
    sentence = "{} empty: twin-mdm writes from the beginning-of-text token alone."
    for prompts, which in (("", "The prompt is"), (["Where?", " "], "Prompt 1 is"), (["", "Where?", ""], "Prompts 0, 2 are")):
        with pytest.warns(Caution) as cautions:
            twin.generate(prompts, gen_length=2, progress=False)
        assert sentence.format(which) in [str(caution.message) for caution in cautions]
    code, _, errors = floatlens("trace", "-m", "twin-mdm", "-p", "", "--gen-length", 2, "-o", tmp_path / "run.zarr")
    assert (code, " ".join(errors.split())) == (0, f"floatlens: {sentence.format('The prompt is')}")


def test_an_unknown_backslash_is_shown_once(twin: fl.LanguageModel) -> None:
    with pytest.warns(Caution, match=r"such as '\\', and reads \[UNK\] there"):
        twin.generate("Where does \\ live?", gen_length=2, progress=False)


def test_the_unknown_token_by_its_own_name_and_token_ids_are_what_was_meant(twin: fl.LanguageModel) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", Caution)
        twin.generate("Where does [UNK] live?", gen_length=2, progress=False)
        twin.generate([[2, 4, 4]], gen_length=2, progress=False)


@pytest.mark.parametrize("intervention", [MaskAnchors(1, steps="99-100"), MaskAbove(1e6)], ids=repr)
def test_an_intervention_that_never_acts_is_said(twin: fl.LanguageModel, intervention: MaskAnchors | MaskAbove) -> None:
    prompt = "Ben Reed lives in Rome.\nWhere does Ben Reed live?"
    for call in (twin.generate, twin.trace):
        with pytest.warns(Caution, match=r"^mask-a.*: the intervention removed no attention in any step, so this is the unedited model\."):
            call(prompt, gen_length=3, intervention=intervention, progress=False)
        with warnings.catch_warnings():
            warnings.simplefilter("error", Caution)
            call(prompt, gen_length=3, intervention=MaskAnchors(1), progress=False)
    how: dict[str, Any] = {"wording": WORLD_WORDING, "gen_length": 3, "likelihood": True, "progress": False}
    with pytest.warns(Caution) as said:
        evaluate_model(twin, open_book_samples(1), ["gold"], interventions=[intervention], controls=False, **how)
    assert [str(one.message).partition(": the intervention")[0].partition(" under ")[0] for one in said] == ["twin-mdm, gold"]


def test_the_command_line_says_that_an_intervention_never_acted(floatlens: Callable[..., Ran], tmp_path: Path) -> None:
    words = [
        "trace",
        "-m",
        "twin-mdm",
        "-p",
        "Where does Ben Reed live?",
        "--gen-length",
        3,
        "--intervention",
        "mask-anchors:1,steps=99-100",
    ]
    code, _, errors = floatlens(*words, "-o", tmp_path / "run.zarr")
    assert code == 0
    assert errors.startswith(
        "floatlens: mask-anchors:1,steps=99-100: the intervention removed no attention in any step, so this is the unedited model."
    )
    _, said, _ = floatlens("show", tmp_path / "run.zarr")
    assert "edited by mask-anchors:1,steps=99-100, which removed nothing" in " ".join(said.split())
    code, _, errors = floatlens(*words[:-1], "mask-anchors:1,layers=50-60", "-o", tmp_path / "other.zarr")
    assert (code, errors) == (2, "floatlens: mask-anchors:1,layers=50-60 names layer 50; the layers of this model are 0 to 5.\n")
