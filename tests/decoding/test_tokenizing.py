"""Tokenizers load without remote code, are fast, and show every id."""

import json
from pathlib import Path
from typing import Any

import pytest
from published_checkpoints import (
    DENSE_KINDS,
    DREAM_KINDS,
    LEARNED,
    VOCABULARY,
    byte_level,
    special_tokens,
    tiny_checkpoint,
    tiny_id,
    write_json,
)
from transformers import PreTrainedTokenizerFast

import floatlens as fl
from floatlens.decoding.tokens import has_tokenizer, token_text

TEXT = "the cat sat on\n\nthe mat: 42  times!"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, fl.LanguageModel]:
    return {kind: fl.load(tiny_checkpoint(kind, tmp_path_factory.mktemp("tokenizing") / kind)) for kind in DENSE_KINDS}


def pieces(tokenizer: Any, text: str) -> list[str]:
    """The text's tokens, cut out of it by their offsets."""
    encoded = tokenizer(text, return_offsets_mapping=True, add_special_tokens=False)
    return [text[start:stop] for start, stop in encoded["offset_mapping"]]


@pytest.mark.parametrize("kind", DENSE_KINDS)
def test_every_published_tokenizer_is_fast_and_gives_offsets(kind: str, models: dict[str, fl.LanguageModel]) -> None:
    tokenizer = models[kind].tokenizer
    assert tokenizer.is_fast
    assert pieces(tokenizer, TEXT)[:4] == ["the", " cat", " sat", " on"]
    assert "".join(pieces(tokenizer, TEXT)) == TEXT
    assert tokenizer.decode(tokenizer(TEXT).input_ids) == TEXT


@pytest.mark.parametrize("kind", DENSE_KINDS)
def test_added_tokens_keep_their_published_ids_and_are_never_cut(kind: str, models: dict[str, fl.LanguageModel]) -> None:
    tokenizer = models[kind].tokenizer
    for name in special_tokens(kind):
        token = tiny_id(kind, name)
        assert tokenizer.convert_ids_to_tokens(token) == name
        assert tokenizer(f"the{name} cat", add_special_tokens=False).input_ids == [LEARNED.index("the"), token, LEARNED.index("Ġcat")]
        assert pieces(tokenizer, f"the{name} cat") == ["the", name, " cat"]
        assert token_text(tokenizer, token) == name
    assert len(tokenizer) == len(LEARNED) + len(special_tokens(kind))


@pytest.mark.parametrize("kind", DREAM_KINDS)
def test_dreams_remote_tokenizer_is_replaced_by_a_fast_one(kind: str, models: dict[str, fl.LanguageModel], tmp_path: Path) -> None:
    folder = tiny_checkpoint(kind, tmp_path)
    assert not (folder / "tokenizer.json").exists()
    said = json.loads((folder / "tokenizer_config.json").read_text())
    assert said["tokenizer_class"] == "DreamTokenizer"
    assert said["auto_map"]["AutoTokenizer"] == ["tokenization_dream.DreamTokenizer", None]
    tokenizer = models[kind].tokenizer
    named = (tokenizer.bos_token, tokenizer.eos_token, tokenizer.pad_token, tokenizer.mask_token)
    assert named == ("<|beginoftext|>", "<|endoftext|>", "<|endoftext|>", "<|mask|>")
    assert tokenizer.mask_token_id == models[kind].mask_token_id
    assert tokenizer("the cat").input_ids == [LEARNED.index("the"), LEARNED.index("Ġcat")]  # no begin token is added
    plain = {name for name in special_tokens(kind) if name not in tokenizer.all_special_tokens}
    assert {"<tool_call>", "</tool_call>", "<|fim_prefix|>"} <= plain
    written = [LEARNED.index("the"), tiny_id(kind, "<tool_call>"), tiny_id(kind, "<|mask|>")]
    assert tokenizer.decode(written, skip_special_tokens=True) == "the<tool_call>"


def test_dreams_digits_stand_alone_as_qwens_do(models: dict[str, fl.LanguageModel]) -> None:
    assert pieces(models["dream-7b-instruct"].tokenizer, "on 427") == ["on", " ", "4", "2", "7"]


def test_an_id_beyond_the_tokenizer_shows_as_a_placeholder(models: dict[str, fl.LanguageModel]) -> None:
    for kind in DENSE_KINDS:
        tokenizer = models[kind].tokenizer
        assert token_text(tokenizer, VOCABULARY - 1) == f"⟨{VOCABULARY - 1}⟩"
        assert token_text(tokenizer, len(tokenizer)) == f"⟨{len(tokenizer)}⟩"
        assert token_text(tokenizer, 151935) == "⟨151935⟩"
        assert token_text(tokenizer, -1) == "⟨-1⟩"
    assert token_text(None, 7) == "⟨7⟩"


def test_every_id_of_the_vocabulary_shows_as_something_visible_or_blank(models: dict[str, fl.LanguageModel]) -> None:
    for kind in DENSE_KINDS:
        tokenizer = models[kind].tokenizer
        shown = [token_text(tokenizer, token) for token in range(VOCABULARY)]
        assert all(shown)
        assert shown[LEARNED.index("Ġcat")] == " cat"
        assert shown[LEARNED.index("ĊĊ")] == "\n\n"
        assert len(set(shown)) == VOCABULARY


def test_a_token_that_is_part_of_a_character_shows_as_its_piece() -> None:
    base = byte_level({"<s>": len(LEARNED)})
    base.add_tokens(["Ã"])  # how byte 0xC3 is spelled, the first of "é"
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=base, clean_up_tokenization_spaces=False)
    assert token_text(tokenizer, len(LEARNED) + 1) == "Ã"


def test_ids_without_a_token_are_left_out_of_texts_and_do_not_break_them(models: dict[str, fl.LanguageModel]) -> None:
    lm = models["dream-7b-instruct"]
    assert lm.text_of([LEARNED.index("the"), VOCABULARY - 1, LEARNED.index("Ġcat")]) == "the cat"
    assert lm.text_of([LEARNED.index("the"), tiny_id("dream-7b-instruct", "<|im_end|>"), LEARNED.index("Ġcat")]) == "the"


def test_a_tokenizer_that_cannot_be_read_is_refused_in_a_sentence(tmp_path: Path) -> None:
    for kind in ("llada-8b-instruct", "dream-7b-instruct", "a2d-qwen3-0.6b", "a2d-llama"):
        folder = tiny_checkpoint(kind, tmp_path / kind)
        broken = folder / ("vocab.json" if kind == "dream-7b-instruct" else "tokenizer.json")
        broken.write_text(broken.read_text()[:100])
        with pytest.raises(fl.Refusal, match=r"^The tokenizer in .* cannot be loaded: .*\. Fetch its files again\.$"):
            fl.load(folder)


def test_dreams_tokenizer_without_merges_is_refused(tmp_path: Path) -> None:
    folder = tiny_checkpoint("dream-7b-instruct", tmp_path)
    (folder / "merges.txt").unlink()
    with pytest.raises(fl.Refusal, match=r"^The tokenizer in .* cannot be loaded: .*merges\.txt"):
        fl.load(folder)


@pytest.mark.parametrize("kind", ["sdar-1.7b-chat", "a2d-qwen3-0.6b"])
def test_a_qwen_tokenizer_without_its_tokenizer_json_is_the_same(kind: str, models: dict[str, fl.LanguageModel], tmp_path: Path) -> None:
    folder = tiny_checkpoint(kind, tmp_path)
    (folder / "tokenizer.json").unlink()
    lm = fl.load(folder)
    assert lm.mask_token_id == models[kind].mask_token_id
    for text in (TEXT, "the<|im_end|>cat", "on 427"):
        assert lm.tokenizer(text).input_ids == models[kind].tokenizer(text).input_ids


def test_a_folder_has_a_tokenizer_only_if_it_has_its_files(tmp_path: Path) -> None:
    write_json(tmp_path / "tokenizer_config.json", {})
    assert not has_tokenizer(tmp_path)
    (tmp_path / "vocab.txt").touch()
    assert has_tokenizer(tmp_path)
