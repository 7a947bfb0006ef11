"""Prompts become tokens that know which characters they stand for, whose they are, and which region they belong to."""

from pathlib import Path
from typing import Any

import pytest
import torch
from published_checkpoints import LEARNED, byte_level, tiny_checkpoint, tiny_id
from small_checkpoints import CLS, SEP, bert_folder, llama_folder
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

import floatlens as fl
from floatlens.decoding.prompts import EncodedPrompt, encode


@pytest.fixture(scope="module")
def llada(tmp_path_factory: pytest.TempPathFactory) -> fl.LanguageModel:
    return fl.load(tiny_checkpoint("llada-8b-instruct", tmp_path_factory.mktemp("prompts")))


@pytest.fixture(scope="module")
def dream(tmp_path_factory: pytest.TempPathFactory) -> fl.LanguageModel:
    return fl.load(tiny_checkpoint("dream-7b-instruct", tmp_path_factory.mktemp("prompts")))


def tokenizer_with(template: str | None = None, added: tuple[str, ...] = ("<s>", "</s>"), **special: str) -> Any:
    """The small byte-level tokenizer with a chat template."""
    base = byte_level({name: len(LEARNED) + rank for rank, name in enumerate(added)})
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=base, clean_up_tokenization_spaces=False, **special)
    tokenizer.chat_template = template
    return tokenizer


def text_where(encoded: EncodedPrompt, chosen: list[bool]) -> str:
    """The characters of the chosen tokens."""
    parts = zip(encoded.starts, encoded.stops, chosen, strict=True)
    return "".join(encoded.text[start:stop] for start, stop, is_chosen in parts if is_chosen)


def own_text(encoded: EncodedPrompt) -> str:
    return text_where(encoded, [not is_template for is_template in encoded.template])


# -- templates --------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["llada", "dream"])
def test_offsets_cover_the_whole_text_in_order(name: str, request: pytest.FixtureRequest) -> None:
    encoded = request.getfixturevalue(name).encode("the cat sat on the mat.")
    assert text_where(encoded, [True] * len(encoded.tokens)) == encoded.text
    assert encoded.starts == [0, *encoded.stops[:-1]]


def test_the_templates_tokens_are_told_from_the_users(llada: fl.LanguageModel) -> None:
    encoded = llada.encode("the cat sat")
    header = "<|start_header_id|>{}<|end_header_id|>\n\n"
    assert encoded.text == "<|startoftext|>" + header.format("user") + "the cat sat<|eot_id|>" + header.format("assistant")
    assert own_text(encoded) == "the cat sat"
    assert encoded.tokens[0] == tiny_id("llada-8b-instruct", "<|startoftext|>")
    assert encoded.regions == {"bos": [True, *[False] * (len(encoded.tokens) - 1)], "prompt": [False, *[True] * (len(encoded.tokens) - 1)]}


@pytest.mark.parametrize("content", ["user", "assistant", "system", "a", "You are", "\n", "e", "<|im_end|>"])
def test_a_prompt_that_also_stands_in_the_template_is_found_where_the_user_wrote_it(content: str, dream: fl.LanguageModel) -> None:
    encoded = dream.encode(fl.Prompt(content, regions={"all": (0, len(content))}))
    before = "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n"
    own = [position for position, is_template in enumerate(encoded.template) if not is_template]
    assert encoded.starts[own[0]] >= len(before) - 1  # "\n\n" is one token, with the template's newline before the user's
    assert encoded.stops[own[-1]] == len(before + content)
    assert encoded.regions["all"] == [not is_template for is_template in encoded.template]


def test_a_conversations_own_words_are_found_turn_by_turn(dream: fl.LanguageModel) -> None:
    turns = [("system", "cat"), ("user", "user"), ("assistant", "the mat"), ("user", "user")]
    encoded = dream.encode([{"role": role, "content": content} for role, content in turns])
    assert own_text(encoded) == "catuserthe matuser"
    expected = "".join(f"<|im_start|>{role}\n{content}<|im_end|>\n" for role, content in turns) + "<|im_start|>assistant\n"
    assert encoded.text == expected


def test_a_message_that_the_template_leaves_out_or_rewrites_is_the_templates() -> None:
    template = (
        "{% for message in messages %}{% if message['role'] != 'system' %}"
        "{{ '[' + (message['content'] | upper if message['role'] == 'assistant' else message['content']) + ']' }}{% endif %}{% endfor %}"
    )
    turns = [("system", "sat"), ("user", "the cat"), ("assistant", "on"), ("user", "mat")]
    encoded = encode([{"role": role, "content": content} for role, content in turns], tokenizer_with(template))
    assert encoded.text == "[the cat][ON][mat]"
    assert own_text(encoded) == "the catmat"
    with pytest.raises(
        fl.Refusal, match=r"^The chat template rewrites the prompt, so its regions cannot be found again\. Pass chat=False \(--raw\)\.$"
    ):
        encode(fl.Prompt("the cat", regions={"all": (0, 7)}), tokenizer_with("{{ messages[0]['content'] | upper }}"))


def test_raw_text_goes_around_the_template(llada: fl.LanguageModel) -> None:
    encoded = llada.encode("the cat", chat=False)
    assert encoded.text == "the cat"
    assert encoded.tokens == [LEARNED.index("the"), LEARNED.index("Ġcat")]
    assert encoded.template == [False, False]
    assert encoded.regions == {"prompt": [True, True]}


def test_without_a_template_only_text_is_read() -> None:
    tokenizer = tokenizer_with()
    assert encode("the cat", tokenizer).tokens == [LEARNED.index("the"), LEARNED.index("Ġcat")]
    with pytest.raises(fl.Refusal, match=r"^This tokenizer has no chat template; leave chat out, or pass chat=False \(--raw\)\.$"):
        encode("the cat", tokenizer, chat=True)
    with pytest.raises(
        fl.Refusal, match=r"^This tokenizer has no chat template, so it cannot read a conversation\. Give the prompt as one text\.$"
    ):
        encode([{"role": "user", "content": "the cat"}], tokenizer)
    with pytest.raises(
        fl.Refusal, match=r"^A conversation is a list of messages with 'role' and 'content', both texts; a prompt may also be"
    ):
        encode([{"role": "user"}], tokenizer)


# -- regions ----------------------------------------------------------------------------------------------------------------------------


def test_a_token_belongs_to_the_region_that_holds_its_last_character() -> None:
    text = "the cat sat on"
    encoded = encode(fl.Prompt(text, regions={"one": (0, 7), "two": (7, 12), "rest": (12, 14)}), tokenizer_with())
    assert [encoded.text[start:stop] for start, stop in zip(encoded.starts, encoded.stops, strict=True)] == ["the", " cat", " sat", " on"]
    assert encoded.regions == {
        "one": [True, True, False, False],
        "two": [False, False, True, False],  # it holds the blank before "on", but not its last character
        "rest": [False, False, False, True],
    }


@pytest.mark.parametrize(("before", "after"), [("", ""), ("  ", ""), ("", "\n\n"), (" \n", "  ")])
def test_regions_keep_to_their_characters_where_a_template_trims(before: str, after: str, llada: fl.LanguageModel) -> None:
    text = f"{before}the cat sat{after}"
    start = len(before)
    regions = {"all": (0, len(text)), "cat": (start + 3, start + 7), "end": (start + 8, len(text))}
    encoded = llada.encode(fl.Prompt(text, regions=regions))
    assert own_text(encoded) == "the cat sat"
    found = {name: text_where(encoded, chosen) for name, chosen in encoded.regions.items() if name != "bos"}
    assert found == {"all": "the cat sat", "cat": " cat", "end": " sat"}


def test_a_region_outside_the_text_or_with_a_name_of_our_own_is_refused() -> None:
    for span in [(0, 8), (3, 3), (-1, 2), (5, 4)]:
        with pytest.raises(fl.Refusal, match=rf"^Region 'x' spans the characters {span[0]} to {span[1]}, but the prompt has 7\.$"):
            fl.Prompt("the cat", regions={"x": span})
    for name in ("answer", "bos"):
        with pytest.raises(fl.Refusal, match=rf"^A region cannot be called '{name}': floatlens adds one of that name itself\.$"):
            fl.Prompt("the cat", regions={name: (0, 3)})


def test_the_first_token_is_a_region_of_its_own_only_if_it_begins_texts(tmp_path: Path) -> None:
    for added in (("<s>", "</s>"), ("</s>", "<s>")):
        tokenizer = tokenizer_with(added=added, bos_token="<s>", eos_token="</s>")
        assert encode("<s>the cat", tokenizer).regions == {"bos": [True, False, False], "prompt": [False, True, True]}
        assert encode("the<s> cat", tokenizer).regions == {"prompt": [True, True, True]}
    bert = fl.load(bert_folder(tmp_path)[0])
    assert bert.encode("the cat").regions == {"bos": [True, False, False], "prompt": [False, True, True]}


def test_a_begin_token_with_the_id_0_begins_texts() -> None:
    base = Tokenizer(models.WordLevel({"<s>": 0, "the": 1, "cat": 2}, unk_token="<s>"))
    base.pre_tokenizer = pre_tokenizers.WhitespaceSplit()  # type: ignore[assignment]  # the stub has no setter
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=base, bos_token="<s>")
    assert encode("<s> the cat", tokenizer).regions == {"bos": [True, False, False], "prompt": [False, True, True]}


def test_tokens_without_text_have_no_characters(tmp_path: Path) -> None:
    encoded = fl.load(bert_folder(tmp_path)[0]).encode("the cats")
    assert (encoded.starts, encoded.stops) == ([-1, 0, 4, 7], [-1, 3, 7, 8])
    assert encoded.template == [True, False, False, False]
    assert encoded.tokens[0] == CLS
    assert SEP not in encoded.tokens


# -- token ids --------------------------------------------------------------------------------------------------------------------------


def test_token_ids_are_taken_as_they_are(llada: fl.LanguageModel) -> None:
    expected = llada.generate([[5, 6, 7]], gen_length=4, progress=False)
    assert expected[0].prompt_tokens == [5, 6, 7]
    assert llada.generate([5, 6, 7], gen_length=4, progress=False) == expected
    assert llada.generate(torch.tensor([5, 6, 7]), gen_length=4, progress=False) == expected
    assert llada.generate(torch.tensor([[5, 6, 7]]), gen_length=4, progress=False) == expected
    encoded = llada.encode([97, 101])
    assert (encoded.text, encoded.starts, encoded.template, encoded.regions) == (
        "the cat",
        [-1, -1],
        [False, False],
        {"prompt": [True, True]},
    )


@pytest.mark.parametrize("token", [160, -1, 126336, 1 << 40])
def test_a_token_id_outside_the_vocabulary_is_refused(token: int, llada: fl.LanguageModel) -> None:
    with pytest.raises(fl.Refusal, match=r"^Prompt 1 holds a token id outside the vocabulary of .* \(0 to 159\)\.$"):
        llada.generate([[5, 6], [5, token]], gen_length=4, progress=False)


def test_a_model_without_a_tokenizer_reads_token_ids_only(tmp_path: Path) -> None:
    lm = fl.load(tiny_checkpoint("llada-8b-instruct", tmp_path, tokenizer=False))
    (written,) = lm.generate([[5, 6]], gen_length=4, progress=False)
    assert (len(written.tokens), written.text, written.prompt) == (4, "", "")
    for prompt in ("the cat", fl.Prompt("the cat"), [{"role": "user", "content": "the cat"}]):
        with pytest.raises(
            fl.Refusal, match=r"^This model has no tokenizer, so it cannot read text\. Give prompts as lists of token ids, or load it"
        ):
            lm.generate(prompt, gen_length=4, progress=False)


# -- prompts that do not fit ------------------------------------------------------------------------------------------------------------


def test_a_mask_in_a_prompt_needs_a_generation_length_of_zero(llada: fl.LanguageModel) -> None:
    masked = "the<|mdm_mask|> sat"
    with pytest.raises(
        fl.Refusal, match=r"^Prompt 0 holds the mask token\. To fill masks inside a prompt, choose gen_length=0; otherwise remove them\.$"
    ):
        llada.generate(masked, gen_length=4, progress=False)
    (written,) = llada.generate(masked, gen_length=0, chat=False, progress=False)
    text = [LEARNED.index("the"), llada.mask_token_id, LEARNED.index("Ġsat")]
    with torch.no_grad():
        logits = llada.module(torch.tensor([text])).logits[0, 1]
    assert written.tokens == [int(logits.argmax())]
    with pytest.raises(fl.Refusal, match=r"^gen_length is 0 and prompt 1 holds no mask token, so there is nothing to write\.$"):
        llada.generate([masked, "the cat"], gen_length=0, progress=False)


def test_a_mask_with_the_id_0_is_filled_step_by_step_as_any_other(tmp_path: Path) -> None:
    lm = fl.load(tiny_checkpoint("llada-8b-instruct", tmp_path, tokenizer=False), mask_token_id=0)
    (written,) = lm.generate([[5, 0, 6, 0, 0]], gen_length=0, progress=False)
    assert (len(written.tokens), written.steps) == (3, 3)


def test_an_empty_prompt_is_enough_for_a_diffusion_model_but_not_for_an_autoregressive_one(llada: fl.LanguageModel, tmp_path: Path) -> None:
    for prompt in ("", [[]]):
        (written,) = llada.generate(prompt, gen_length=4, chat=False, progress=False)
        assert (written.prompt_tokens, len(written.tokens)) == ([], 4)
    assert own_text(llada.encode("")) == ""
    with pytest.raises(fl.Refusal, match=r"nothing to write"):
        llada.generate("", gen_length=0, chat=False, progress=False)
    autoregressive = fl.load(llama_folder(tmp_path)[0])
    with pytest.raises(fl.Refusal, match=r"^Prompt 0 is empty; an autoregressive model needs at least one token to go on from\.$"):
        autoregressive.generate("", gen_length=4, progress=False)
    with pytest.raises(fl.Refusal, match=r"^There are no prompts; give at least one\.$"):
        llada.generate([], gen_length=4, progress=False)


def test_a_prompt_that_leaves_no_room_is_refused(tmp_path: Path) -> None:
    lm = fl.load(llama_folder(tmp_path)[0])  # made for 64 tokens
    assert len(lm.generate([[5] * 60], gen_length=4, stop_at_eos=False, progress=False)[0].tokens) == 4
    with pytest.raises(fl.Refusal, match=r"^Prompt 1 has 61 tokens; with 4 to write that is more than the 64 that .* was made for\.$"):
        lm.generate([[5], [5] * 61], gen_length=4, progress=False)
    (tmp_path / "bert").mkdir()
    bert = fl.load(bert_folder(tmp_path / "bert")[0])
    with pytest.raises(
        fl.Refusal, match=r"^Prompt 0 has 510 tokens; with 2 to write that is more than the 512"
    ):  # the closing token needs room, too
        bert.generate([[5] * 510], gen_length=2, progress=False)
