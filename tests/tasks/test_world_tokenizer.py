"""The world's tokenizer and its texts are each other's inverse, also after a way through files; prompts keep their regions."""

import re
from pathlib import Path
from random import Random

import pytest
from transformers import AutoTokenizer

from floatlens.decoding.prompts import encode
from floatlens.tasks.world import conflicting, describing, make_tokenizer, make_world, open_book, prompt_of, text_of, two_hop, vocabulary

WORLD = make_world()
IDS = {word: number for number, word in enumerate(vocabulary())}
QUESTIONS = [make(Random(seed), WORLD.test, 3) for make in (open_book, two_hop, conflicting, describing) for seed in range(5)]


def test_a_saved_tokenizer_reads_every_word_as_the_fresh_one(tmp_path: Path) -> None:
    make_tokenizer().save_pretrained(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert tokenizer.get_vocab() == IDS
    for question in QUESTIONS:
        for words in (question.prompt, question.answer):
            assert tokenizer(text_of(words)[0])["input_ids"] == [IDS["[BOS]"], *(IDS[word] for word in words)]
    special = (tokenizer.pad_token_id, tokenizer.mask_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.unk_token_id)
    assert special == (0, 1, 2, 3, 4)
    assert tokenizer("Oslo [MASK]?")["input_ids"][1:] == [IDS["Oslo"], 1, IDS["?"]]


def test_a_word_the_world_does_not_have_is_unknown_and_not_left_out() -> None:
    tokenizer = make_tokenizer()
    assert tokenizer("Marta lives in Atlantis.")["input_ids"] == [2, IDS["Marta"], IDS["lives"], IDS["in"], 4, IDS["."]]


def test_texts_are_written_as_people_write() -> None:
    for question in QUESTIONS:
        for words in (question.prompt, question.answer):
            assert not re.search(r" [.,?:\n]|  |\n |[.,?:][A-Za-z]", text_of(words)[0])


@pytest.mark.parametrize("question", QUESTIONS[::5], ids=lambda question: question.kind)
def test_a_prompts_regions_hold_the_tokens_of_the_question(question) -> None:
    encoded = encode(prompt_of(question), make_tokenizer())
    assert encoded.tokens[1:] == [IDS[word] for word in question.prompt]
    for name, (start, stop) in question.regions.items():
        assert [at - 1 for at, inside in enumerate(encoded.regions[name]) if inside] == list(range(start, stop))
    assert set(encoded.regions) == {"bos", "doc_1", "doc_2", "doc_3", "query"}


@pytest.mark.parametrize("question", QUESTIONS[::5], ids=lambda question: question.kind)
def test_lines_put_together_again_are_the_prompt(question) -> None:
    """Passages as lines, a new line, the question: how samples become prompts."""
    *passages, query = [question.prompt[slice(*span)] for span in question.regions.values()]
    text = "\n".join([*(text_of(words[:-1])[0] for words in passages), text_of(query)[0]])
    assert text == prompt_of(question).text
