"""A llama2.c model becomes a stock Llama that computes, tokenises and stops as llama2.c does."""

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

from floatlens.errors import Refusal
from floatlens.models.sources import llama2c

DATA = Path(__file__).parents[1] / "data"
STORIES, TOKENIZER = DATA / "stories260K.bin", DATA / "tok512.bin"


class Loaded(NamedTuple):
    model: Any
    tokenizer: Any


def load(folder: Path) -> Loaded:
    both: Any = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    model, loaded = both
    assert type(model) is LlamaForCausalLM
    assert not any(loaded.values())
    return Loaded(model.eval(), AutoTokenizer.from_pretrained(folder))


@pytest.fixture(scope="module")
def stories(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    folder = tmp_path_factory.mktemp("stories")
    llama2c.convert(STORIES, None, folder)
    return load(folder)


# -- what llama2.c does, straight from its description ---------------------------------------------------------------------------------


def forward_as_llama2c(file: Path, token_ids: list[int]) -> np.ndarray:
    """Logits (position, vocabulary): one token after the other, neighbouring dimensions rotated."""
    content = file.read_bytes()
    dim, hidden, layers, heads, kv_heads, vocabulary, positions = struct.unpack_from("<7i", content)
    size, tied, vocabulary = dim // heads, vocabulary > 0, abs(vocabulary)
    numbers = np.frombuffer(content, "<f4", offset=28).astype(np.float64)
    at = 0

    def take(*shape: int) -> np.ndarray:
        nonlocal at
        at += int(np.prod(shape))
        return numbers[at - int(np.prod(shape)) : at].reshape(shape)

    embedding, attention_norm = take(vocabulary, dim), take(layers, dim)
    wq, wk, wv, wo = take(layers, dim, dim), take(layers, kv_heads * size, dim), take(layers, kv_heads * size, dim), take(layers, dim, dim)
    ffn_norm, w1, w2, w3 = take(layers, dim), take(layers, hidden, dim), take(layers, dim, hidden), take(layers, hidden, dim)
    final_norm = take(dim)
    take(2, positions, size // 2)
    classifier = embedding if tied else take(vocabulary, dim)

    def normed(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
        return weight * x / np.sqrt((x * x).mean() + 1e-5)

    def rotated(x: np.ndarray, position: int) -> np.ndarray:
        x = x.copy()
        for i in range(0, len(x), 2):
            angle = position / 10000.0 ** ((i % size) / size)
            x[i], x[i + 1] = x[i] * np.cos(angle) - x[i + 1] * np.sin(angle), x[i] * np.sin(angle) + x[i + 1] * np.cos(angle)
        return x

    keys: list[list[np.ndarray]] = [[] for _ in range(layers)]
    values: list[list[np.ndarray]] = [[] for _ in range(layers)]
    logits = []
    for position, token in enumerate(token_ids):
        x = embedding[token]
        for layer in range(layers):
            h = normed(x, attention_norm[layer])
            query = rotated(wq[layer] @ h, position)
            keys[layer].append(rotated(wk[layer] @ h, position))
            values[layer].append(wv[layer] @ h)
            mixed = np.zeros(dim)
            for head in range(heads):
                mine, shared = slice(head * size, (head + 1) * size), head // (heads // kv_heads)
                theirs = slice(shared * size, (shared + 1) * size)
                scores = np.array([query[mine] @ key[theirs] for key in keys[layer]]) / np.sqrt(size)
                weights = np.exp(scores - scores.max())
                mixed[mine] = sum(w * value[theirs] for w, value in zip(weights / weights.sum(), values[layer], strict=True))
            x = x + wo[layer] @ mixed
            h = normed(x, ffn_norm[layer])
            gate = w1[layer] @ h
            x = x + w2[layer] @ (gate / (1 + np.exp(-gate)) * (w3[layer] @ h))
        logits.append(classifier @ normed(x, final_norm))
    return np.array(logits)


def read_pieces(file: Path) -> list[tuple[bytes, float]]:
    content, at, pieces = file.read_bytes(), 4, []
    while at < len(content):
        score, length = struct.unpack_from("<fi", content, at)
        pieces.append((content[at + 8 : at + 8 + length], score))
        at += 8 + length
    return pieces


def encode_as_llama2c(text: str, pieces: list[tuple[bytes, float]]) -> list[int]:
    """<s>, a space, the characters or their bytes; then the best-scoring neighbours become one, until none can."""
    index = {piece: i for i, (piece, _) in enumerate(pieces)}
    ids = [1]
    for character in " " + text if text else "":
        known = index.get(character.encode())
        ids += [known] if known is not None else [byte + 3 for byte in character.encode()]
    while True:
        best_score, best = -1e10, None
        for i in range(len(ids) - 1):
            merged = index.get(pieces[ids[i]][0] + pieces[ids[i + 1]][0])
            if merged is not None and pieces[merged][1] > best_score:
                best_score, best = pieces[merged][1], (i, merged)
        if best is None:
            return ids
        ids[best[0] : best[0] + 2] = [best[1]]


def write_tiny_model(file: Path, vocabulary: int, tied: bool) -> None:
    """Random weights, two query heads to a key-value head, sizes that all differ."""
    dim, hidden, layers, heads, kv_heads, positions = 24, 20, 2, 4, 2, 16
    size = dim // heads
    random = np.random.default_rng(0)
    angles = np.outer(np.arange(positions), 10000.0 ** (-np.arange(0, size, 2) / size))
    norms = [random.uniform(0.5, 1.5, n) for n in (layers * dim, layers * dim, dim)]
    kv = kv_heads * size
    arrays = [
        random.normal(size=vocabulary * dim),
        norms[0],
        *(random.normal(size=layers * n * dim) / 4 for n in (dim, kv, kv, dim)),
        norms[1],
        *(random.normal(size=layers * n * dim) / 4 for n in (hidden, hidden, hidden)),
        norms[2],
        np.cos(angles).ravel(),
        np.sin(angles).ravel(),
        *([] if tied else [random.normal(size=vocabulary * dim)]),
    ]
    header = struct.pack("<7i", dim, hidden, layers, heads, kv_heads, vocabulary if tied else -vocabulary, positions)
    file.write_bytes(header + b"".join(array.astype("<f4").tobytes() for array in arrays))


def write_pieces(file: Path, pieces: list[tuple[bytes, float]]) -> None:
    longest = max(len(piece) for piece, _ in pieces)
    file.write_bytes(struct.pack("<i", longest) + b"".join(struct.pack("<fi", score, len(piece)) + piece for piece, score in pieces))


# -- the model -------------------------------------------------------------------------------------------------------------------------


def test_logits_equal_llama2c(stories: Loaded) -> None:
    ids = stories.tokenizer("Once upon a time, there was a little dog. He liked to run.").input_ids
    with torch.no_grad():
        logits = stories.model(torch.tensor([ids])).logits[0].numpy()
    np.testing.assert_allclose(logits, forward_as_llama2c(STORIES, ids), atol=1e-4)


@pytest.mark.parametrize("tied", [True, False])
def test_logits_equal_llama2c_with_and_without_a_classifier_of_its_own(tied: bool, tmp_path: Path) -> None:
    write_tiny_model(tmp_path / "model.bin", 300, tied)
    write_pieces(tmp_path / "tokenizer.bin", read_pieces(TOKENIZER)[:300])
    (tmp_path / "converted").mkdir()
    llama2c.convert(tmp_path / "model.bin", None, tmp_path / "converted")
    ids = [1, 260, 299, 0, 77, 77, 259, 3]
    with torch.no_grad():
        logits = load(tmp_path / "converted").model(torch.tensor([ids])).logits[0].numpy()
    np.testing.assert_allclose(logits, forward_as_llama2c(tmp_path / "model.bin", ids), atol=1e-4)


def test_it_tells_a_story_and_stops_where_the_next_would_begin(stories: Loaded) -> None:
    prompt = stories.tokenizer("Once upon a time", return_tensors="pt")
    ids = stories.model.generate(**prompt, do_sample=False, max_new_tokens=400)[0]
    story = stories.tokenizer.decode(ids, skip_special_tokens=True)
    assert story.startswith("Once upon a time, there was a little girl named Lily. She loved to play outside in the park.")
    assert ids[-1] == stories.tokenizer.bos_token_id
    assert len(ids) < 400


# -- the tokenizer ---------------------------------------------------------------------------------------------------------------------

PIECES = read_pieces(TOKENIZER)
SPECIAL = ("<s>", "</s>", "<unk>", "▁")  # these mean something else to every Llama tokenizer
words = st.sampled_from([piece.decode() for piece, _ in PIECES[259:]])
texts = st.lists(words | st.text(max_size=3), max_size=30).map("".join).filter(lambda text: not any(mark in text for mark in SPECIAL))


@given(texts)
@example("Lily's mom said, “Let's go to the café!”\nThey  went — and it cost 3€.")
@example("日本語 and 😀 and \x00 and é")
@example("   three spaces, then\n\n\ttabs ")
@example("<0x41> is not a byte")
@example("")
def test_tokens_equal_llama2c_and_decode_to_the_text(stories: Loaded, text: str) -> None:
    ids = stories.tokenizer(text).input_ids
    assert ids == encode_as_llama2c(text, PIECES)
    assert stories.tokenizer.decode(ids, skip_special_tokens=True) == text


def test_offsets_say_where_in_the_text_each_token_stands(stories: Loaded) -> None:
    text = "Once upon a time, Zoë saw 😀."
    encoded = stories.tokenizer(text, return_offsets_mapping=True)
    assert encoded.input_ids[0] == 1
    spans = [text[begin:end] for begin, end in encoded.offset_mapping]
    assert spans[:6] == ["", "Once", " upon", " a", " time", ","]
    assert spans[-5:] == ["😀", "😀", "😀", "😀", "."]  # its four bytes


def test_special_tokens_are_those_of_llama(stories: Loaded) -> None:
    tokenizer, config = stories.tokenizer, stories.model.config
    assert tokenizer.is_fast
    assert (tokenizer.unk_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id) == (0, 1, 2)
    assert (config.bos_token_id, config.eos_token_id) == (1, 2)
    assert len(tokenizer) == config.vocab_size
    assert tokenizer.model_max_length == config.max_position_embeddings == 512


# -- refusals --------------------------------------------------------------------------------------------------------------------------


def with_header(**changed: int) -> Callable[[bytes], bytes]:
    fields = ["dim", "hidden", "layers", "heads", "kv_heads", "vocabulary", "positions"]

    def change(content: bytes) -> bytes:
        header = dict(zip(fields, struct.unpack_from("<7i", content), strict=True)) | changed
        return struct.pack("<7i", *header.values()) + content[28:]

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: content[:-4], r"is cut off: its header promises 1056540 bytes and it has 1056536; download it again"),
        (lambda content: content[:20], r"is 20 bytes long, shorter than the header"),
        (lambda content: content + b"more", r"promises 1056540 bytes and it has 1056544; give a \.bin file of version 0"),
        (lambda content: b"GGUF" + content[4:], r"is not a llama2\.c model file: its header \(.*\) describes no Llama"),
        (lambda content: struct.pack("<2i", 0x616B3432, 2) + content[8:], r"export version 2, not 0; export it again with --version 0"),
        (with_header(heads=0), r"describes no Llama"),
        (with_header(heads=7), r"describes no Llama"),
        (with_header(kv_heads=3), r"describes no Llama"),
        (with_header(layers=-5), r"describes no Llama"),
        (lambda content: content[:28] + struct.pack("<f", float("nan")) + content[32:], r"weights that are not finite \('embedding'\)"),
        (lambda content: content[:-4096] + bytes(4096), r"rotary table of another base than 10000"),
    ],
)
def test_a_damaged_or_foreign_model_is_refused(change: Callable[[bytes], bytes], message: str, tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(change(STORIES.read_bytes()))
    with pytest.raises(Refusal, match=message):
        llama2c.convert(tmp_path / "model.bin", TOKENIZER, tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: content[:-1], r"is cut off or not a llama2\.c tokenizer \(piece 511: "),
        (lambda content: content[:40] + b"\xff" + content[41:], r"is cut off or not a llama2\.c tokenizer \(piece 2: "),
        (
            lambda content: content + struct.pack("<fi", 0, 3) + b"new",
            r"holds 513 pieces and the model has 512; give the tokenizer the model",
        ),
        (lambda content: content.replace(b"<0x41>", b"<0x4Z>"), r"lacks the pieces <0x00> to <0xFF> at 3 to 258"),
        (lambda content: content.replace(b" upon", b" once", 1).replace(b" Once", b" once", 1), r"holds the same piece twice"),
    ],
)
def test_a_damaged_or_foreign_tokenizer_is_refused(change: Callable[[bytes], bytes], message: str, tmp_path: Path) -> None:
    (tmp_path / "tokens.bin").write_bytes(change(TOKENIZER.read_bytes()))
    with pytest.raises(Refusal, match=message):
        llama2c.convert(STORIES, tmp_path / "tokens.bin", tmp_path)


def test_files_that_are_not_there_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match=r"The llama2\.c model .*absent\.bin cannot be read \(No such file.*\); check the path"):
        llama2c.convert(tmp_path / "absent.bin", TOKENIZER, tmp_path)
    with pytest.raises(Refusal, match=r"The llama2\.c tokenizer .*absent\.bin cannot be read"):
        llama2c.convert(STORIES, tmp_path / "absent.bin", tmp_path)
    (tmp_path / "alone.bin").write_bytes(STORIES.read_bytes())
    with pytest.raises(
        Refusal, match=r"no tokenizer beside .*alone\.bin: neither tok512\.bin nor tokenizer\.bin; put it there, or name it"
    ):
        llama2c.convert(tmp_path / "alone.bin", None, tmp_path)


def test_the_tokenizer_named_after_the_vocabulary_comes_first(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(STORIES.read_bytes())
    (tmp_path / "tok512.bin").write_bytes(TOKENIZER.read_bytes())
    write_pieces(tmp_path / "tokenizer.bin", PIECES[:300])  # another model's
    llama2c.convert(tmp_path / "model.bin", None, tmp_path)
    assert len(AutoTokenizer.from_pretrained(tmp_path)) == 512
