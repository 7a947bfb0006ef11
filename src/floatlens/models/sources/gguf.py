"""Turn a GGUF file into a Hugging Face checkpoint folder with plain float32 weights.

transformers reads the weights and the vocabulary; this module adds what it leaves out, and refuses what it would silently get wrong:

- A file says whether a text begins with the begin token (Llama and Gemma: yes, Qwen and SmolLM2: no), or leaves it to llama.cpp's default
  for its kind of tokenizer. transformers reads neither; here the tokenizer is made to do as the file says. The same for the end token and
  for the space before the first word.
- A byte-level vocabulary was learned on text cut in a certain way, which the file names. transformers cuts as GPT-2 does where it does
  not know the name, and then some numbers after several spaces or newlines come out as other tokens. The names that cut digits apart
  (SmolLM2 is one) are added here; other unknown names are refused.
- Rotary scaling (Llama 3.1 and later keep it in a tensor, others in the metadata) is dropped by transformers: refused.
- A tensor that is missing would be drawn at random: refused.

Also refused: files that are not GGUF or are cut off, more layers than the file holds (a flipped bit promises billions, which transformers
would begin to build), architectures transformers cannot read, and missing packages.
"""

import contextlib
import importlib.util
import io
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, pre_tokenizers
from transformers import AutoConfig, AutoModelForCausalLM, GgufConfig, PreTrainedConfig, PreTrainedTokenizerFast
from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS, convert_gguf_tokenizer, get_gguf_tokenizer
from transformers.integrations.gguf.reader import read_gguf_metadata

from floatlens.errors import Refusal

CONVERSION_VERSION = 1  # raise when the folder this writes changes: part of the cache key

# How llama.cpp cuts text before it looks for byte-level tokens, by the name in the file.
_CUT_LIKE_GPT2 = frozenset({"gpt-2", "phi-2", "mpt", "olmo", "jais", "trillion", "exaone4"})
_CUT_DIGITS_APART = frozenset({"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"})
_CUT_LIKE_LLAMA3 = frozenset({"llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "tekken"})

# What the readers raise on a file that is cut off or damaged.
_DAMAGED = (
    ValueError,
    KeyError,
    IndexError,
    TypeError,
    UnicodeDecodeError,
    struct.error,
    OverflowError,
    MemoryError,
    OSError,
    RuntimeError,
)


def convert(gguf_file: Path, folder: Path) -> None:
    """Write a GGUF model into `folder` as a Hugging Face checkpoint, dequantised to float32.

    Parameters
    ----------
    gguf_file
        The whole model in one file. A quantised one becomes four to eight times as large.
    folder
        An existing folder, which receives `model.safetensors`, `config.json`, `generation_config.json`, `tokenizer.json`,
        `tokenizer_config.json` and, if the file has one, `chat_template.jinja`.

    Examples
    --------
    >>> from transformers import AutoModelForCausalLM
    >>> convert(Path("smollm2.gguf"), Path("smollm2"))  # doctest: +SKIP
    >>> model = AutoModelForCausalLM.from_pretrained("smollm2")  # doctest: +SKIP
    """
    metadata, config = _checked(gguf_file)
    tokenizer = _tokenizer(gguf_file, metadata)
    try:
        with _quiet():
            both: Any = AutoModelForCausalLM.from_pretrained(
                str(gguf_file.parent),
                gguf_file=gguf_file.name,
                config=config,
                dtype=torch.float32,
                quantization_config=GgufConfig(dequantize=True),
                output_loading_info=True,
                trust_remote_code=False,
            )
    except _DAMAGED as error:
        raise Refusal(f"{gguf_file} is cut off or damaged ({_short(error)}); download it again.") from error
    model, loaded = both
    if absent := sorted([*loaded["missing_keys"], *(key for key, *_ in loaded["mismatched_keys"])]):
        raise Refusal(
            f"{gguf_file} lacks {len(absent)} of the model's tensors, or has them in another shape ('{absent[0]}' first); "
            "use the model's original checkpoint."
        )
    tokenizer.model_max_length = model.config.max_position_embeddings
    with _quiet():
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)


def _checked(gguf_file: Path) -> tuple[Mapping[str, Any], PreTrainedConfig]:
    """The file's metadata and the config they make, refused if it is no GGUF file or one that would be read wrongly."""
    try:
        with gguf_file.open("rb") as file:
            magic = file.read(4)
    except OSError as error:
        raise Refusal(f"The GGUF file {gguf_file} cannot be read ({error.strerror}); check the path.") from error
    if magic != b"GGUF":
        raise Refusal(f"{gguf_file} is not a GGUF file: it begins with {magic!r}; give a file that llama.cpp can read.")
    for package in ("gguf", "accelerate"):
        if importlib.util.find_spec(package) is None:
            raise Refusal(f"Reading {gguf_file} needs the package {package}, which is not installed; run: pip install {package}")
    try:
        metadata, tensor_names = read_gguf_metadata(str(gguf_file))
    except _DAMAGED as error:
        raise Refusal(f"{gguf_file} is cut off or damaged ({_short(error)}); download it again.") from error
    architecture = metadata["general.architecture"]
    layers = len({name.split(".")[1] for name in tensor_names if name.startswith("blk.")})
    promised = metadata.get(f"{architecture}.block_count", layers)
    if not isinstance(promised, int) or promised > layers:  # before anything is built of so many
        raise Refusal(f"{gguf_file} promises {promised!r:.40} layers and holds {layers}, so it is cut off or damaged; download it again.")
    config = None
    try:
        config = AutoConfig.from_pretrained(str(gguf_file.parent), gguf_file=gguf_file.name, trust_remote_code=False)
    except _DAMAGED:
        _refuse_if_cut_off(gguf_file)
    if type(config) not in AutoModelForCausalLM._model_mapping or config is None:
        raise Refusal(
            f"{gguf_file} holds a model of architecture '{architecture}', which transformers cannot read from GGUF as a causal language "
            "model; use the model's original checkpoint."
        )
    scaling = metadata.get(f"{architecture}.rope.scaling.type", "none")
    if "rope_freqs.weight" in tensor_names or (scaling != "none" and architecture != "gpt-oss"):
        raise Refusal(
            f"{gguf_file} scales its rotary embedding, which transformers drops when it reads GGUF; use the model's original checkpoint."
        )
    return metadata, config


def _refuse_if_cut_off(gguf_file: Path) -> None:
    """Tell a file whose tensors are not all there from one that transformers does not know."""
    from gguf import GGUFReader  # may be missing, which has been refused by now

    try:
        GGUFReader(gguf_file)
    except _DAMAGED as error:
        raise Refusal(f"{gguf_file} is cut off or damaged ({_short(error)}); download it again.") from error


def _tokenizer(gguf_file: Path, metadata: Mapping[str, Any]) -> PreTrainedTokenizerFast:
    kind, cut = metadata.get("tokenizer.ggml.model"), metadata.get("tokenizer.ggml.pre")
    if kind == "gpt2" and cut not in GGUF_PRE_TOKENIZER_SPLITS.keys() | _CUT_LIKE_GPT2 | _CUT_DIGITS_APART:
        raise Refusal(
            f"{gguf_file} was made for text cut in a way that is not known here ('{cut}'), so it would get other tokens than the model "
            "learned; use the model's original checkpoint."
        )
    try:
        architecture, vocabulary, special = get_gguf_tokenizer(str(gguf_file))
        backend, _ = convert_gguf_tokenizer(architecture, vocabulary)
    except _DAMAGED as error:
        raise Refusal(
            f"{gguf_file} holds a tokenizer that transformers cannot read ({_short(error)}); use the model's original checkpoint."
        ) from error
    _cut_as_learned(backend, metadata)
    begins_by_default = kind == "llama" or (kind == "gpt2" and cut in _CUT_LIKE_LLAMA3)
    ends = {  # transformers 5.23 reads these two from the file as well, without the defaults of llama.cpp
        "add_bos_token": bool(metadata.get("tokenizer.ggml.add_bos_token", begins_by_default)),
        "add_eos_token": bool(metadata.get("tokenizer.ggml.add_eos_token", False)),
    }
    return PreTrainedTokenizerFast(tokenizer_object=backend, **{**special, **ends}, clean_up_tokenization_spaces=False)


def _cut_as_learned(backend: Tokenizer, metadata: Mapping[str, Any]) -> None:
    kind, cut = metadata.get("tokenizer.ggml.model"), metadata.get("tokenizer.ggml.pre")
    if kind == "gpt2" and cut in _CUT_DIGITS_APART:
        backend.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
    if kind == "gpt2" and cut in _CUT_LIKE_LLAMA3:
        backend.model.ignore_merges = True  # a word that is a token is that token, even if no merges lead there
    if isinstance(backend.pre_tokenizer, pre_tokenizers.Metaspace) and not metadata.get("tokenizer.ggml.add_space_prefix", True):
        backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never", split=False)
        backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """No progress bars: whoever waits for a conversion already sees what it is."""
    with contextlib.redirect_stderr(io.StringIO()):
        yield


def _short(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
