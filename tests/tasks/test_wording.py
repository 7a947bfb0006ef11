"""Prompts: what they read like, where their regions lie, and what is left out of them."""

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from random import Random

import pytest
from torch import nn

import floatlens as fl
from floatlens.decoding.plan import context_length
from floatlens.errors import Refusal
from floatlens.tasks.contexts import Conflict, Position, arrange
from floatlens.tasks.samples import Passage, Sample
from floatlens.tasks.wording import NUMBER_WORDING, QA_WORDING, WORLD_WORDING, Wording, fit, format_prompt
from floatlens.tasks.world import make_world, open_book, open_book_samples, prompt_of
from world_models import TOKENIZER, arm, mdm

SAMPLE = Sample(
    "w-1",
    "Where {does} Ada Xu live?",
    ("Oslo",),
    (Passage("Ada {0} lives in Oslo.", title="Ada {title}"), Passage("Ben lives in Rome.")),
    gold=(0,),
)


@pytest.mark.parametrize("wording", [QA_WORDING, NUMBER_WORDING, WORLD_WORDING])
def test_regions_are_the_passages_and_the_question(wording: Wording) -> None:
    prompt = format_prompt(SAMPLE, SAMPLE.passages, wording)
    assert list(prompt.regions) == ["doc_1", "doc_2", "query"]
    found = {name: prompt.text[start:stop] for name, (start, stop) in prompt.regions.items()}
    assert found["query"] == SAMPLE.question  # braces and all
    for number, passage in enumerate(SAMPLE.passages, start=1):
        assert found[f"doc_{number}"].endswith(passage.text)
        if wording is not WORLD_WORDING:
            assert found[f"doc_{number}"].startswith(f"[{number}] {passage.title}")
    assert list(format_prompt(SAMPLE, (), wording).regions) == ["query"]


def test_the_default_reads_as_it_says() -> None:
    assert format_prompt(SAMPLE, SAMPLE.passages[1:]).text == (
        "Answer the question in a few words, using these passages.\n\n[1] Ben lives in Rome.\n\nQuestion: "
        "Where {does} Ada Xu live?\nAnswer:"
    )
    assert format_prompt(SAMPLE, ()).text == "Answer the question in a few words.\n\n\nQuestion: Where {does} Ada Xu live?\nAnswer:"


def test_the_worlds_prompts_are_in_the_form_the_twins_were_trained_on() -> None:
    sample = open_book_samples(1, passages=4)[0]
    asked = format_prompt(sample, arrange(sample, Position(2, 4)), WORLD_WORDING)
    trained = prompt_of(open_book(Random(0), make_world().test, passages=4, gold=1))
    assert len(TOKENIZER(asked.text)["input_ids"]) == len(TOKENIZER(trained.text)["input_ids"])
    assert asked.text.count("\n") == trained.text.count("\n") == 4
    assert asked.text.splitlines()[:4] == [passage.text for passage in arrange(sample, Position(2, 4))]
    assert asked.text.splitlines()[4] == sample.question
    assert TOKENIZER.unk_token_id not in TOKENIZER(asked.text)["input_ids"]


def test_a_prompt_that_fits_is_not_touched() -> None:
    sample = open_book_samples(1, passages=4)[0]
    found = fit(arm(), sample, sample.passages, WORLD_WORDING, gen_length=4)
    assert (found.passages, found.passages_cut, found.gold_cut) == (sample.passages, 0, 0)
    assert found.prompt == format_prompt(sample, sample.passages, WORLD_WORDING)


@pytest.mark.parametrize("make", [arm, mdm])
def test_whole_passages_go_last_distractors_first_and_gold_last(make: Callable[..., fl.LanguageModel]) -> None:
    for sample in open_book_samples(4, passages=5):
        shown = arrange(sample, Conflict(5))
        lengths = {passage: len(TOKENIZER(passage.text + "\n", add_special_tokens=False)["input_ids"]) for passage in shown}
        question = len(TOKENIZER(sample.question)["input_ids"])
        distractors = [passage for passage in shown if passage in sample.distractors]
        order = [*reversed(distractors), *sample.conflicts, *sample.evidence]  # in which they must go
        for cut in range(len(order) + 1):
            kept = [passage for passage in shown if passage not in order[:cut]]
            room = question + sum(lengths[passage] for passage in kept) + 3
            found = fit(make(context=room), sample, shown, WORLD_WORDING, gen_length=3)
            assert list(found.passages) == kept
            assert found.passages_cut == cut
            assert found.gold_cut == (1 if cut == len(order) else 0)
            assert len(found.encoded.tokens) + 3 == room  # one token more would not have fitted
            assert list(found.prompt.regions) == [*(f"doc_{number}" for number in range(1, len(kept) + 1)), "query"]


def test_a_question_that_does_not_fit_is_refused_with_its_id() -> None:
    with pytest.raises(
        Refusal, match="question of sample world-open-0000 has 7 tokens without any passage; with 4 to write that is more than the 10"
    ):
        fit(arm(context=10), open_book_samples(1)[0], (), WORLD_WORDING, gen_length=4)


def test_a_passage_of_50_000_characters_is_cut_whole() -> None:
    long = Passage("Ada Xu lives in Rome. " * 2300)
    sample = Sample("long", "Where does Ada Xu live?", ("Oslo",), (Passage("Ada Xu lives in Oslo."), long), gold=(0,))
    found = fit(arm(), sample, sample.passages, WORLD_WORDING, gen_length=4)
    assert (found.passages, found.passages_cut, found.gold_cut) == (sample.evidence, 1, 0)
    only = Sample("long", "Where does Ada Xu live?", ("Rome",), (long,), gold=(0,))
    found = fit(arm(), only, only.passages, WORLD_WORDING, gen_length=4)
    assert (found.passages, found.passages_cut, found.gold_cut) == ((), 1, 1)


def test_a_model_that_names_no_length_reads_everything() -> None:
    lm = fl.LanguageModel(nn.Linear(1, 1), TOKENIZER)
    assert context_length(lm) is None
    sample = open_book_samples(1, passages=19)[0]
    assert fit(lm, sample, sample.passages * 3, WORLD_WORDING, gen_length=4).passages_cut == 0


def test_prompts_of_two_models_differ_in_template_tokens_alone() -> None:
    plain, chatting = arm(), mdm()
    tokenizer = copy(TOKENIZER)
    tokenizer.chat_template = "{% for message in messages %}[BOS]Here is: {{ message['content'] }}\nThat was. {% endfor %}"
    chatting = replace(chatting, tokenizer=tokenizer)
    sample = open_book_samples(1, passages=3)[0]
    found = [fit(lm, sample, sample.evidence, WORLD_WORDING, gen_length=3) for lm in (plain, chatting)]
    own = [[token for token, template in zip(one.encoded.tokens, one.encoded.template, strict=True) if not template] for one in found]
    assert own[0] == own[1]
    assert len(found[1].encoded.tokens) > len(found[0].encoded.tokens)
    assert found[0].prompt == found[1].prompt
    assert found[0].prompt.text in found[1].encoded.text
    for name in ("doc_1", "query"):
        assert sum(found[0].encoded.regions[name]) == sum(found[1].encoded.regions[name]) > 0
