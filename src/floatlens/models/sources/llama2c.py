"""Turn a llama2.c model file and its tokenizer file into a stock Llama checkpoint folder with a fast tokenizer.

Read: the legacy format ("version 0") of llama2.c's export, float32, and the tokenizer format beside it. What has to change on the way:

- llama2.c rotates neighbouring dimensions (0, 1), (2, 3), ...; transformers rotates dimension i with i + head_size / 2. The rows of the
  query and key projections are reordered within each head, which changes no score.
- llama2.c merges the best-scoring neighbours first, starting from characters, a space put in front, and bytes for characters it lacks.
  The fast tokenizer is a BPE whose merges are ordered by the score of what they make, with byte fallback.
- A llama2.c model was trained on texts that each begin with <s> and end with nothing, and llama2.c stops at the next <s>. So generation
  stops at <s> as well as at </s>.

Literal `<s>` or `▁` in a text mean the special token and a space, as in every Llama tokenizer.

Refused: files whose header makes no sense, newer export versions, files too short or too long for their header, weights that are not
finite, a rotary table of another base than 10000, and tokenizers that are damaged, of another size than the model, or without the byte
pieces.
"""

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, normalizers, processors
from tokenizers.models import BPE
from transformers import GenerationConfig, LlamaConfig, PreTrainedTokenizerFast

from floatlens.errors import Refusal

CONVERSION_VERSION = 1  # raise when the folder this writes changes: part of the cache key

_UNKNOWN, _BEGIN, _END = "<unk>", "<s>", "</s>"
_SPACE = "▁"
_FIRST_BYTE_PIECE = 3  # after <unk>, <s>, </s>
_ROTARY_BASE = 10000.0
_NORM_EPSILON = 1e-5
_VERSIONED_MAGIC = 0x616B3432  # "ak42": export versions 1 and 2
_HEADER = struct.Struct("<7i")
_LARGEST = 1 << 24  # no field of a real header is larger

Weights = NDArray[np.float32]


@dataclass(frozen=True)
class Header:
    """The first seven numbers of a llama2.c file. A negative vocabulary size there means `tied` is False."""

    hidden_size: int
    feed_forward_size: int
    layers: int
    heads: int
    key_value_heads: int
    vocabulary: int
    positions: int
    tied: bool

    @property
    def head_size(self) -> int:
        return self.hidden_size // self.heads

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Every array of the file, in the order they are stored."""
        hidden, feed_forward, layers = self.hidden_size, self.feed_forward_size, self.layers
        key_value = self.key_value_heads * self.head_size
        arrays: dict[str, tuple[int, ...]] = {
            "embedding": (self.vocabulary, hidden),
            "attention_norm": (layers, hidden),
            "query": (layers, hidden, hidden),
            "key": (layers, key_value, hidden),
            "value": (layers, key_value, hidden),
            "output": (layers, hidden, hidden),
            "feed_forward_norm": (layers, hidden),
            "gate": (layers, feed_forward, hidden),
            "down": (layers, hidden, feed_forward),
            "up": (layers, feed_forward, hidden),
            "final_norm": (hidden,),
            "rotary_cosine": (self.positions, self.head_size // 2),
            "rotary_sine": (self.positions, self.head_size // 2),
        }
        return arrays if self.tied else arrays | {"classifier": (self.vocabulary, hidden)}


@dataclass(frozen=True)
class Piece:
    """One entry of a llama2.c tokenizer."""

    text: str  # with plain spaces
    score: float


def convert(model_file: Path, tokenizer_file: Path | None, folder: Path) -> None:
    """Write a llama2.c model and its tokenizer into `folder` as a Hugging Face checkpoint.

    Parameters
    ----------
    model_file
        A `.bin` file of llama2.c's legacy format.
    tokenizer_file
        Its tokenizer. If None, `tok<vocabulary>.bin` or `tokenizer.bin` beside the model.
    folder
        An existing folder, which receives `model.safetensors`, `config.json`, `generation_config.json`, `tokenizer.json` and
        `tokenizer_config.json`.

    Examples
    --------
    >>> from transformers import AutoModelForCausalLM, AutoTokenizer
    >>> convert(Path("stories260K.bin"), None, Path("stories260K"))  # doctest: +SKIP
    >>> model = AutoModelForCausalLM.from_pretrained("stories260K")  # doctest: +SKIP
    """
    header = read_header(model_file)
    pieces = read_tokenizer(tokenizer_file or _tokenizer_beside(model_file, header), header)
    arrays = _read_arrays(model_file, header)
    save_file(dict(_renamed(arrays, header)), folder / "model.safetensors", metadata={"format": "pt"})
    LlamaConfig(
        architectures=["LlamaForCausalLM"],
        vocab_size=header.vocabulary,
        hidden_size=header.hidden_size,
        intermediate_size=header.feed_forward_size,
        num_hidden_layers=header.layers,
        num_attention_heads=header.heads,
        num_key_value_heads=header.key_value_heads,
        max_position_embeddings=header.positions,
        rms_norm_eps=_NORM_EPSILON,
        rope_parameters={"rope_type": "default", "rope_theta": _ROTARY_BASE},
        tie_word_embeddings=header.tied,
        bos_token_id=1,
        eos_token_id=2,
        dtype="float32",
    ).save_pretrained(folder)
    GenerationConfig(bos_token_id=1, eos_token_id=[1, 2], pad_token_id=2).save_pretrained(folder)
    PreTrainedTokenizerFast(
        tokenizer_object=_fast_tokenizer(pieces),
        unk_token=_UNKNOWN,
        bos_token=_BEGIN,
        eos_token=_END,
        pad_token=_END,
        model_max_length=header.positions,
        clean_up_tokenization_spaces=False,
    ).save_pretrained(folder)


def read_header(model_file: Path) -> Header:
    """The header of a llama2.c file, refused if it makes no sense or the file is not as long as it says."""
    with _opened(model_file, "llama2.c model") as file:
        beginning = file.read(_HEADER.size)
        size = file.seek(0, 2)
    if len(beginning) < _HEADER.size:
        raise Refusal(f"{model_file} is {size} bytes long, shorter than the header of a llama2.c file; download it again.")
    numbers = _HEADER.unpack(beginning)
    if numbers[0] == _VERSIONED_MAGIC:
        raise Refusal(f"{model_file} is a llama2.c file of export version {numbers[1]}, not 0; export it again with --version 0.")
    header = Header(*numbers[:5], vocabulary=abs(numbers[5]), positions=numbers[6], tied=numbers[5] > 0)
    sensible = (
        all(0 < abs(number) <= _LARGEST for number in numbers)
        and all(number > 0 for number in (*numbers[:5], numbers[6]))
        and header.hidden_size % header.heads == 0
        and header.heads % header.key_value_heads == 0
        and header.head_size % 2 == 0
    )
    if not sensible:
        raise Refusal(f"{model_file} is not a llama2.c model file: its header {numbers} describes no Llama; give a .bin file of version 0.")
    expected = _HEADER.size + 4 * sum(math.prod(shape) for shape in header.shapes.values())
    if size < expected:
        raise Refusal(f"{model_file} is cut off: its header promises {expected} bytes and it has {size}; download it again.")
    if size > expected:
        raise Refusal(
            f"{model_file} is not a llama2.c model file: its header promises {expected} bytes and it has {size}; give a .bin file of "
            "version 0."
        )
    return header


def read_tokenizer(tokenizer_file: Path, header: Header) -> list[Piece]:
    """The pieces of a llama2.c tokenizer file, refused if it is damaged or was not made for this model."""
    with _opened(tokenizer_file, "llama2.c tokenizer") as file:
        content = file.read()
    pieces: list[Piece] = []
    position = 4  # after the length of the longest piece, which only a C program needs
    try:
        while position < len(content):
            score, length = struct.unpack_from("<fi", content, position)
            position += 8
            if length < 0 or position + length > len(content):
                raise struct.error("a piece reaches beyond the end of the file")
            pieces.append(Piece(content[position : position + length].decode(), score))
            position += length
    except (struct.error, UnicodeDecodeError) as error:
        raise Refusal(
            f"{tokenizer_file} is cut off or not a llama2.c tokenizer (piece {len(pieces)}: {error}); download it again."
        ) from error
    if len(pieces) != header.vocabulary:
        raise Refusal(
            f"{tokenizer_file} holds {len(pieces)} pieces and the model has {header.vocabulary}; give the tokenizer the model was "
            "trained with."
        )
    bytes_in_file = [piece.text for piece in pieces[_FIRST_BYTE_PIECE : _FIRST_BYTE_PIECE + 256]]
    if bytes_in_file != [f"<0x{byte:02X}>" for byte in range(256)]:
        raise Refusal(f"{tokenizer_file} lacks the pieces <0x00> to <0xFF> at 3 to 258; give a tokenizer exported by llama2.c.")
    if len({piece.text.replace(" ", _SPACE) for piece in pieces}) != len(pieces):
        raise Refusal(f"{tokenizer_file} holds the same piece twice; give a tokenizer exported by llama2.c.")
    return pieces


def _opened(file: Path, what: str) -> BinaryIO:
    try:
        return file.open("rb")
    except OSError as error:
        raise Refusal(f"The {what} {file} cannot be read ({error.strerror}); check the path.") from error


def _tokenizer_beside(model_file: Path, header: Header) -> Path:
    """The more telling name first: a `tokenizer.bin` may belong to another model in the same folder."""
    candidates = [model_file.with_name(f"tok{header.vocabulary}.bin"), model_file.with_name("tokenizer.bin")]
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    names = " nor ".join(candidate.name for candidate in candidates)
    raise Refusal(f"There is no tokenizer beside {model_file}: neither {names}; put it there, or name it.")


def _read_arrays(model_file: Path, header: Header) -> dict[str, Weights]:
    numbers = np.memmap(model_file, dtype="<f4", mode="r", offset=_HEADER.size)
    arrays: dict[str, Weights] = {}
    position = 0
    for name, shape in header.shapes.items():
        arrays[name] = numbers[position : position + math.prod(shape)].reshape(shape)
        position += math.prod(shape)
        if not np.isfinite(arrays[name]).all():
            raise Refusal(f"{model_file} holds weights that are not finite ('{name}'); download it again, or train it again.")
    angles = np.outer(np.arange(header.positions), _ROTARY_BASE ** (-np.arange(0, header.head_size, 2) / header.head_size))
    # Looser than float32 allows: the table was computed in float32, where a late position is off by a thousandth of a turn.
    if not (
        np.allclose(arrays["rotary_cosine"], np.cos(angles), atol=0.01) and np.allclose(arrays["rotary_sine"], np.sin(angles), atol=0.01)
    ):
        raise Refusal(
            f"{model_file} holds a rotary table of another base than {_ROTARY_BASE:.0f}, which llama2.c itself would ignore; "
            "convert the model from where it was exported."
        )
    return arrays


def _renamed(arrays: dict[str, Weights], header: Header) -> Iterator[tuple[str, Weights]]:
    yield "model.embed_tokens.weight", np.ascontiguousarray(arrays["embedding"])
    yield "model.norm.weight", np.ascontiguousarray(arrays["final_norm"])
    if not header.tied:
        yield "lm_head.weight", np.ascontiguousarray(arrays["classifier"])
    for layer in range(header.layers):
        within_layer = {
            "input_layernorm": arrays["attention_norm"][layer],
            "self_attn.q_proj": _halves_together(arrays["query"][layer], header.heads),
            "self_attn.k_proj": _halves_together(arrays["key"][layer], header.key_value_heads),
            "self_attn.v_proj": arrays["value"][layer],
            "self_attn.o_proj": arrays["output"][layer],
            "post_attention_layernorm": arrays["feed_forward_norm"][layer],
            "mlp.gate_proj": arrays["gate"][layer],
            "mlp.down_proj": arrays["down"][layer],
            "mlp.up_proj": arrays["up"][layer],
        }
        for name, weights in within_layer.items():
            yield f"model.layers.{layer}.{name}.weight", np.ascontiguousarray(weights)


def _halves_together(projection: Weights, heads: int) -> Weights:
    """Reorder the rows of each head: first of every rotated pair, then second of every pair."""
    rows, columns = projection.shape
    pairs = projection.reshape(heads, rows // heads // 2, 2, columns)  # head, pair, which of the pair, input
    return pairs.swapaxes(1, 2).reshape(rows, columns)


def _fast_tokenizer(pieces: list[Piece]) -> Tokenizer:
    texts = [_UNKNOWN, _BEGIN, _END, *(piece.text.replace(" ", _SPACE) for piece in pieces[_FIRST_BYTE_PIECE:])]
    vocabulary = {text: index for index, text in enumerate(texts)}
    first_learned = _FIRST_BYTE_PIECE + 256
    learned = sorted(zip(texts[first_learned:], pieces[first_learned:], strict=True), key=lambda entry: -entry[1].score)
    # Every way to put a piece together from two others is a merge; the best-scoring piece is made first.
    merges = [
        (text[:cut], text[cut:])
        for text, _ in learned
        for cut in range(1, len(text))
        if text[:cut] in vocabulary and text[cut:] in vocabulary
    ]
    tokenizer = Tokenizer(BPE(vocab=vocabulary, merges=merges, unk_token=_UNKNOWN, fuse_unk=True, byte_fallback=True))
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in (_UNKNOWN, _BEGIN, _END)])
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(_SPACE), normalizers.Replace(" ", _SPACE)])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(content=" ", left=1)]
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{_BEGIN} $A", pair=f"{_BEGIN} $A {_BEGIN}:1 $B:1", special_tokens=[(_BEGIN, 1)]
    )
    return tokenizer
