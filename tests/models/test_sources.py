"""Converted models appear in the cache whole or not at all; a GGUF file becomes the model it holds, or is refused."""

import os
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf_files import BYTE_LEVEL, SENTENCEPIECE, SPACE, gguf_tensors, tiny_llama, write_gguf
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

from floatlens.errors import Refusal
from floatlens.models.sources import gguf
from floatlens.models.sources.cache import cache_folder, converted

# -- the cache -------------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FLOATLENS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_cache_is_where_the_variable_says_or_the_platform_wants_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FLOATLENS_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("FLOATLENS_CACHE")
    assert cache_folder().is_absolute()
    assert "floatlens" in cache_folder().parts


def test_a_model_is_converted_once(cache: Path) -> None:
    calls: list[Path] = []

    def convert(folder: Path) -> None:
        calls.append(folder)
        (folder / "weights").write_text("w")

    folder = converted("model", "1", convert)
    assert converted("model", "1", convert) == folder == cache / "model-1"
    assert (folder / "weights").read_text() == "w"
    assert len(calls) == 1
    assert converted("model", "2", convert) == cache / "model-2"
    assert len(calls) == 2


@pytest.mark.parametrize("failure", [Refusal("no"), OSError("disk full"), KeyboardInterrupt()])
def test_a_conversion_that_fails_leaves_nothing_and_can_be_tried_again(cache: Path, failure: BaseException) -> None:
    def fail(folder: Path) -> None:
        (folder / "half").write_text("half")
        raise failure

    with pytest.raises(type(failure)):
        converted("model", "1", fail)
    assert list(cache.iterdir()) == []
    assert (converted("model", "1", lambda folder: (folder / "whole").touch()) / "whole").is_file()


def test_nobody_sees_a_folder_by_its_name_before_it_is_complete(cache: Path) -> None:
    def convert(folder: Path) -> None:
        (folder / "first").touch()
        assert not (cache / "model-1").exists()
        assert folder.stat().st_dev == cache.stat().st_dev  # renaming across file systems would copy
        assert cache in folder.parents

    converted("model", "1", convert)


def test_of_two_at_once_one_converts_and_the_other_waits(cache: Path) -> None:
    begun, go_on = threading.Event(), threading.Event()
    converting: list[Path] = []
    ended: list[Path] = []

    def convert(folder: Path) -> None:
        converting.append(folder)
        begun.set()
        assert go_on.wait(600)
        (folder / "weights").write_text("w")

    threads = [threading.Thread(target=lambda: ended.append(converted("model", "1", convert))) for _ in range(2)]
    threads[0].start()
    assert begun.wait(600)
    threads[1].start()
    go_on.set()
    for thread in threads:
        thread.join()
    assert len(converting) == 1
    assert ended == [cache / "model-1"] * 2
    assert [path.name for path in cache.iterdir()] == ["model-1"]
    assert sorted(path.name for path in ended[0].iterdir()) == ["manifest.json", "weights"]


@pytest.mark.parametrize(("name", "key"), [("../model", "1"), ("model", "1/2"), ("", "1"), ("model", ""), (".hidden", "1"), ("a\\b", "1")])
@pytest.mark.usefixtures("cache")
def test_names_that_leave_the_cache_are_refused(name: str, key: str) -> None:
    with pytest.raises(Refusal, match=r"cannot name a folder in the cache; give a plain name and key"):
        converted(name, key, lambda folder: None)


def test_a_cache_that_cannot_be_written_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("FLOATLENS_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(Refusal, match=r"cannot be written \(Not a directory\); set FLOATLENS_CACHE to one that can"):
        converted("model", "1", lambda folder: None)


# -- GGUF ------------------------------------------------------------------------------------------------------------------------------


def convert(gguf_file: Path) -> Path:
    folder = gguf_file.with_suffix("")
    folder.mkdir()
    gguf.convert(gguf_file, folder)
    return folder


@pytest.mark.parametrize("tied", [True, False])
def test_a_gguf_model_computes_what_the_same_weights_compute_in_torch(tied: bool, tmp_path: Path) -> None:
    original = tiny_llama(len(SENTENCEPIECE), tied)
    write_gguf(tmp_path / "tiny.gguf", gguf_tensors(original))
    folder = convert(tmp_path / "tiny.gguf")
    model: Any = AutoModelForCausalLM.from_pretrained(folder).eval()
    assert type(model) is LlamaForCausalLM
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert (folder / "model.safetensors").is_file()
    input_ids = torch.arange(1, 41)[None] * 5
    with torch.no_grad():
        torch.testing.assert_close(model(input_ids).logits, original(input_ids).logits, atol=1e-5, rtol=1e-5)


def test_quantised_weights_become_the_floats_they_stand_for(tmp_path: Path) -> None:
    original = tiny_llama(len(SENTENCEPIECE), tied=True)
    tensors = gguf_tensors(original)
    name = "blk.0.ffn_up.weight"
    blocks = tensors[name].reshape(-1, 32)
    scales = (np.abs(blocks).max(1, keepdims=True) / 127).astype(np.float16)  # Q8_0: 32 whole numbers and their scale
    whole = np.round(blocks / (np.abs(blocks).max(1, keepdims=True) / 127)).astype(np.int8)
    expected = (scales.astype(np.float32) * whole).reshape(tensors[name].shape)
    packed = np.concatenate([scales.view(np.uint8), whole.view(np.uint8)], axis=1).reshape(tensors[name].shape[0], -1)
    write_gguf(tmp_path / "tiny.gguf", tensors | {name: packed})
    model: Any = AutoModelForCausalLM.from_pretrained(convert(tmp_path / "tiny.gguf"))
    np.testing.assert_array_equal(model.model.layers[0].mlp.up_proj.weight.detach().numpy(), expected)
    assert not hasattr(model.config, "quantization_config")


def ids(tokens: list[str], *wanted: str) -> list[int]:
    return [tokens.index(token) for token in wanted]


@pytest.mark.parametrize(
    ("said", "begins", "ends"),
    [
        ({}, True, False),  # llama.cpp's default for sentencepiece
        ({"add_bos_token": True}, True, False),
        ({"add_bos_token": False}, False, False),
        ({"add_bos_token": False, "add_eos_token": True}, False, True),
    ],
)
def test_the_tokenizer_begins_and_ends_texts_as_the_file_says(said: dict[str, bool], begins: bool, ends: bool, tmp_path: Path) -> None:
    write_gguf(tmp_path / "tiny.gguf", gguf_tensors(tiny_llama(len(SENTENCEPIECE), tied=True)), tokenizer=said)
    tokenizer = AutoTokenizer.from_pretrained(convert(tmp_path / "tiny.gguf"))
    text = ids(SENTENCEPIECE, "▁hi", "▁a", "<0xC3>", "<0xA9>")
    assert tokenizer("hi aé").input_ids == [1] * begins + text + [2] * ends
    assert tokenizer.decode(text) == "hi aé"
    assert tokenizer.is_fast
    assert tokenizer.model_max_length == 128
    assert tokenizer.apply_chat_template([{"role": "user", "content": "hi"}], tokenize=False) == "[hi]"


def test_a_file_may_say_that_no_space_comes_before_the_first_word(tmp_path: Path) -> None:
    said = {"add_space_prefix": False, "add_bos_token": False}
    write_gguf(tmp_path / "tiny.gguf", gguf_tensors(tiny_llama(len(SENTENCEPIECE), tied=True)), tokenizer=said)
    tokenizer = AutoTokenizer.from_pretrained(convert(tmp_path / "tiny.gguf"))
    assert tokenizer("hi a").input_ids == ids(SENTENCEPIECE, "hi", "▁a")
    assert tokenizer.decode(ids(SENTENCEPIECE, "▁a", "hi")) == " ahi"


@pytest.mark.parametrize(
    ("cut", "before_a_digit"),
    [("smollm", [SPACE * 2]), ("gpt-2", [SPACE, SPACE])],  # digits apart, two spaces stay together; else the second belongs to the number
)
def test_byte_level_text_is_cut_as_the_file_says(cut: str, before_a_digit: list[str], tmp_path: Path) -> None:
    write_gguf(tmp_path / "tiny.gguf", gguf_tensors(tiny_llama(len(BYTE_LEVEL), tied=True)), tokens=BYTE_LEVEL, tokenizer={"pre": cut})
    tokenizer = AutoTokenizer.from_pretrained(convert(tmp_path / "tiny.gguf"))
    assert tokenizer("  42").input_ids == ids(BYTE_LEVEL, *before_a_digit, "4", "2")
    assert tokenizer("a<|end|>").input_ids == ids(BYTE_LEVEL, "a", "<|end|>")


def test_a_word_that_is_a_token_stays_whole_where_llama3_keeps_it_whole(tmp_path: Path) -> None:
    tokens = [*BYTE_LEVEL[:-1], "hi", "<|end|>"]  # no merges lead to "hi"
    for cut, expected in {"llama-bpe": ["<|end|>", "hi"], "gpt-2": ["h", "i"]}.items():  # and only Llama 3 begins texts by default
        write_gguf(tmp_path / f"{cut}.gguf", gguf_tensors(tiny_llama(len(tokens), tied=True)), tokens=tokens, tokenizer={"pre": cut})
        assert AutoTokenizer.from_pretrained(convert(tmp_path / f"{cut}.gguf"))("hi").input_ids == ids(tokens, *expected)


def test_what_would_be_read_wrongly_is_refused(tmp_path: Path) -> None:
    tensors = gguf_tensors(tiny_llama(len(SENTENCEPIECE), tied=True))

    def refused(message: str, tensors: dict[str, np.ndarray], **changed: Any) -> None:
        write_gguf(tmp_path / "tiny.gguf", tensors, **changed)
        with pytest.raises(Refusal, match=message):
            gguf.convert(tmp_path / "tiny.gguf", tmp_path)
        assert [path.name for path in tmp_path.iterdir()] == ["tiny.gguf"]

    original = r"use the model's original checkpoint"
    refused(rf"lacks 1 of the model's tensors.*'model\.layers\.1\.mlp\.up_proj\.weight' first\); {original}",
            {name: weight for name, weight in tensors.items() if name != "blk.1.ffn_up.weight"})  # fmt: skip
    refused(rf"scales its rotary embedding.*; {original}", tensors | {"rope_freqs.weight": np.ones(8, np.float32)})
    refused(rf"scales its rotary embedding.*; {original}", tensors, scaling="yarn")
    refused(rf"architecture 'rwkv6', which transformers cannot read from GGUF.*; {original}", tensors, architecture="rwkv6")
    bytes_tensors = gguf_tensors(tiny_llama(len(BYTE_LEVEL), tied=True))
    refused(
        rf"cut in a way that is not known here \('viking'\).*; {original}", bytes_tensors, tokens=BYTE_LEVEL, tokenizer={"pre": "viking"}
    )
    refused(rf"cut in a way that is not known here \('None'\).*; {original}", bytes_tensors, tokens=BYTE_LEVEL)


@pytest.mark.parametrize("kept", [0.001, 0.01, 0.1, 0.5, 0.99])
def test_a_gguf_file_that_is_cut_off_is_refused(kept: float, tmp_path: Path) -> None:
    file = tmp_path / "tiny.gguf"
    write_gguf(file, gguf_tensors(tiny_llama(len(SENTENCEPIECE), tied=True)))
    os.truncate(file, int(file.stat().st_size * kept))
    with pytest.raises(Refusal, match=r"cut off or damaged.*; download it again"):
        gguf.convert(file, tmp_path)


def test_what_is_no_gguf_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match=r"The GGUF file .*absent\.gguf cannot be read \(No such file.*\); check the path"):
        gguf.convert(tmp_path / "absent.gguf", tmp_path)
    (tmp_path / "page.gguf").write_text("<html>Not found</html>")
    with pytest.raises(Refusal, match=r"page\.gguf is not a GGUF file: it begins with b'<htm'; give a file that llama\.cpp can read"):
        gguf.convert(tmp_path / "page.gguf", tmp_path)


@pytest.mark.parametrize("package", ["gguf", "accelerate"])
def test_a_missing_package_is_named(package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tiny.gguf").write_bytes(b"GGUF")
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(Refusal, match=rf"needs the package {package}, which is not installed; run: pip install {package}"):
        gguf.convert(tmp_path / "tiny.gguf", tmp_path)
