"""Tokenizers: load one without remote code, show the text of any token id, find text that a tokenizer does not know, and
tell tokens of text from those of biological sequences.

Only fast tokenizers are used, because character offsets are needed. A token counts as unknown if it is the tokenizer's unknown token and
stands for a text that is not that token's own name: the model then reads something else than was written. (Many tokenizers spell
everything out in bytes and have no unknown token; some give that name to their end-of-text token and never use it so.) A prompt with
unknown tokens is run, with a warning that gives their share; `floatlens.study` decides what an evaluation makes of it.

Refused: tokenizers that cannot be loaded or that give no offsets.
"""

import contextlib
import io
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer, PreTrainedTokenizerFast, Qwen2Tokenizer
from transformers.utils import logging as transformers_logging

from floatlens.decoding.prompts import EncodedPrompt
from floatlens.errors import Caution, Refusal, is_failure, reason
from floatlens.terminal import on_one_line

TOKENIZER_FILES = ("tokenizer.json", "vocab.json", "vocab.txt", "tokenizer.model", "spiece.model")


def has_tokenizer(folder: Path) -> bool:
    """Whether the folder holds a tokenizer of any kind."""
    return any((folder / name).is_file() for name in TOKENIZER_FILES)


def published_tokenizer(folder: Path, config: Any, trust_remote_code: bool = False) -> Any:
    """The tokenizer as transformers finds it, without remote code.

    `config` is that of the class that the model runs as: transformers may not know the published one.
    """
    tokenizer = _read(AutoTokenizer, folder, config=config, trust_remote_code=trust_remote_code)
    if not tokenizer.is_fast:
        raise Refusal(
            f"The tokenizer in {folder} ({type(tokenizer).__name__}) gives no character offsets. Convert it to a tokenizer.json (a fast "
            "tokenizer)."
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


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence the warnings of transformers, which quote what a stranger wrote: what matters is checked and said in one sentence."""
    level = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(level)


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


_SEQUENCE = re.compile(r"[A-Z.*-]+")  # amino acids or nucleotides, one or several; a gap, a stop
_NAME = re.compile(r"<.*>|\[.*\]")  # a token that is called so and is no text


def writes_words(tokenizer: Any) -> bool:
    """Whether the tokens of a tokenizer can make up words: not if all of them are letters of amino acids or nucleotides.

    Vocabularies of text have lower case, or a script without case; those of sequences have neither.

    Examples
    --------
    >>> from floatlens.tasks.world.tokenizer import make_tokenizer
    >>> writes_words(make_tokenizer())
    True
    """
    if tokenizer is None:
        return True
    marks = special_tokens(tokenizer)
    pieces = [piece for piece, token in tokenizer.get_vocab().items() if token not in marks and not _NAME.fullmatch(piece)]
    return not pieces or not all(map(_SEQUENCE.fullmatch, pieces))


EXAMPLE_LENGTH = 30


@dataclass(frozen=True)
class Unknown:
    """How many of some tokens are unknown, and the first text that one of them stands for."""

    count: int
    tokens: int
    example: str = ""

    @property
    def share(self) -> float:
        """The share of the tokens that are unknown."""
        return self.count / self.tokens if self.tokens else 0.0

    @property
    def text(self) -> str:
        """In words, for messages."""
        shown = on_one_line(self.example if len(self.example) <= EXAMPLE_LENGTH else self.example[: EXAMPLE_LENGTH - 1] + "…")
        mark = '"' if "'" in shown else "'"  # repr would double the backslash of a character that is spelled out
        return f"{self.count:,} of {self.tokens:,} tokens ({100 * self.share:.1f} %), such as {mark}{shown}{mark}"


def unknown_in_prompts(tokenizer: Any, prompts: Sequence[EncodedPrompt]) -> Unknown:
    """The unknown tokens of prompts. Token ids that were given as such stand for themselves.

    Examples
    --------
    >>> from floatlens.decoding.prompts import encode
    >>> from floatlens.tasks.world.tokenizer import make_tokenizer
    >>> tokenizer = make_tokenizer()
    >>> print(unknown_in_prompts(tokenizer, [encode("Where does 北京 live?", tokenizer)]).text)
    1 of 6 tokens (16.7 %), such as '北京'
    >>> print(unknown_in_prompts(tokenizer, [encode("\\\\ live", tokenizer)]).text)
    1 of 3 tokens (33.3 %), such as '\\'
    """
    own = getattr(tokenizer, "unk_token_id", None)
    texts = [
        prompt.text[start:stop]
        for prompt in prompts
        for token, start, stop in zip(prompt.tokens, prompt.starts, prompt.stops, strict=True)
        if token == own and stop > start
    ]
    unknown = [text for text in texts if text != tokenizer.unk_token]
    return Unknown(len(unknown), sum(len(prompt.tokens) for prompt in prompts), unknown[0] if unknown else "")


def unknown_in_text(tokenizer: Any, text: str) -> Unknown:
    """The unknown tokens of a text by itself, such as an answer.

    Examples
    --------
    >>> from floatlens.tasks.world.tokenizer import make_tokenizer
    >>> unknown_in_text(make_tokenizer(), "Oslo").count, unknown_in_text(make_tokenizer(), "14 December 1972").count
    (0, 3)
    """
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    starts, stops = zip(*encoded["offset_mapping"], strict=True) if encoded["offset_mapping"] else ((), ())
    tokens = list(encoded["input_ids"])
    return unknown_in_prompts(tokenizer, [EncodedPrompt(text, tokens, [*starts], [*stops], [False] * len(tokens), {})])


def warn_of_unknown_tokens(name: str, tokenizer: Any, prompts: Sequence[EncodedPrompt]) -> None:
    """Warn, once for all prompts, that the model `name` will read its unknown token in places."""
    unknown = unknown_in_prompts(tokenizer, prompts)
    if unknown.count:
        warnings.warn(
            f"{on_one_line(name)} does not know {unknown.text}, and reads {tokenizer.unk_token} there: "
            f"what it writes may not answer the prompt{'s' * (len(prompts) > 1)} as written.",
            Caution,
            stacklevel=4,
        )


def warn_of_empty_prompts(name: str, prompts: Sequence[EncodedPrompt]) -> None:
    """Warn, once for all prompts, that a prompt without text leaves the model nothing but the token that begins every text."""
    empty = [str(number) for number, prompt in enumerate(prompts) if len(prompt.tokens) == 1 and not prompt.text.strip()]
    if empty:
        which = "The prompt is" if len(prompts) == 1 else f"Prompt {empty[0]} is" if len(empty) == 1 else f"Prompts {', '.join(empty)} are"
        warnings.warn(
            f"{which} empty: {on_one_line(name)} writes from the beginning-of-text token alone.",
            Caution,
            stacklevel=4,
        )
