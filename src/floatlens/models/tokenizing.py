"""Tokenizers: loaded without remote code, always fast ones (character offsets are needed), and the text of any token id."""

import contextlib
import io
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer, PreTrainedTokenizerFast, Qwen2Tokenizer

from floatlens.errors import Refusal
from floatlens.models.untrusted import is_failure, quiet, reason

TOKENIZER_FILES = ("tokenizer.json", "vocab.json", "vocab.txt", "tokenizer.model", "spiece.model")


def has_tokenizer(folder: Path) -> bool:
    """Whether the folder holds a tokenizer of any kind."""
    return any((folder / name).is_file() for name in TOKENIZER_FILES)


def published_tokenizer(folder: Path, config: Any, trust_remote_code: bool = False) -> Any:
    """The tokenizer as transformers finds it, without remote code. `config` is that of the class the model runs as: the published one may be unknown."""
    tokenizer = _read(AutoTokenizer, folder, config=config, trust_remote_code=trust_remote_code)
    if not tokenizer.is_fast:
        raise Refusal(
            f"The tokenizer in {folder} ({type(tokenizer).__name__}) gives no character offsets. Convert it to a tokenizer.json (a fast tokenizer)."
        )
    return tokenizer


def tokenizer_of_file(folder: Path) -> Any:
    """From tokenizer.json, whatever class the published config names."""
    return _read(PreTrainedTokenizerFast, folder)


def qwen2_tokenizer(folder: Path) -> Any:
    """A fast tokenizer from vocab.json, merges.txt and the added tokens: for checkpoints whose own is slow and remote."""
    if not (folder / "merges.txt").is_file():
        raise Refusal(f"The tokenizer in {folder} cannot be loaded: there is no merges.txt. Fetch its files again.")
    return _read(Qwen2Tokenizer, folder)


def _read(tokenizer_class: Any, folder: Path, **options: Any) -> Any:
    try:
        with contextlib.redirect_stderr(io.StringIO()), quiet():
            return tokenizer_class.from_pretrained(folder, **options)
    except BaseException as error:  # tokenizers raises nothing narrower, and panics
        if not is_failure(error):
            raise
        raise Refusal(f"The tokenizer in {folder} cannot be loaded: {reason(error)}. Fetch its files again.") from None


def special_tokens(tokenizer: Any) -> frozenset[int]:
    """Ids that are no text but marks: begin, end, padding, headers, turns. None without a tokenizer."""
    if tokenizer is None:
        return frozenset()
    marked = {token for token, added in tokenizer.added_tokens_decoder.items() if added.special}
    return frozenset({*tokenizer.all_special_ids, *marked})


def token_text(tokenizer: Any, token: int) -> str:
    """What a token id shows as: its text, or a visible placeholder if it has none.

    Examples
    --------
    >>> token_text(None, 42)
    '⟨42⟩'
    """
    if tokenizer is not None and 0 <= token < len(tokenizer):
        piece = tokenizer.convert_ids_to_tokens(token)
        if piece and "\u2581" in piece:  # sentencepiece's blank, which decoding a single token would drop
            return piece.replace("\u2581", " ")
        text = tokenizer.decode([token], skip_special_tokens=False, clean_up_tokenization_spaces=False)
        if text and "\ufffd" not in text:
            return text
        if piece:
            return piece
    return f"⟨{token}⟩"
