"""Prompts: a text, a conversation or token ids, made into tokens with character offsets, template marks and regions.

The text is tokenised once, as a whole; regions are spans of its characters. A token belongs to the region that holds its last character,
because tokens like " Paris" begin with the blank before the word.

Chat templates are programs that come with a checkpoint and run on every prompt. They run in Jinja's sandbox, as transformers sets it up:
no imports, no attributes with underscores, nothing that writes. A sandbox bounds neither time nor memory, so both are bounded here: lines
are counted while a template runs, and on Linux the process may not grow by more than half a gigabyte meanwhile. A power (`2 ** 10 ** 9`)
is one line that can take hours, and no template needs one.

Refused: what is not a prompt (bytes would pass for token ids, a fraction or a truth value for an id); texts with halves of characters;
templates that are not Jinja, raise, go on too long, take too much memory, write nothing, or leave the prompt out.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from types import FrameType
from typing import Any

import jinja2
import numpy as np
from torch import Tensor

from floatlens.capture.arguments import is_whole
from floatlens.errors import Refusal, in_a_sentence, reason, shown

try:
    import resource
except ImportError:  # Windows
    resource = None

MOST_LINES = (
    10_000_000  # of Python; the longest published template takes some ten thousand for a long conversation, and two million to compile
)
MOST_MEMORY = 1 << 29  # bytes
_RAW = "Pass chat=False (--raw) to go without it, or correct the template."


class _TooLong(Exception):
    pass


def render_chat(
    tokenizer: Any,
    turns: Sequence[Mapping[str, str]],
    *,
    template: str | None = None,
    go_on: bool = False,
    then: str = _RAW,
) -> str:
    """The conversation as a chat template writes it (the tokenizer's, unless another is given), ready for an answer.

    With `go_on`, the last turn is an answer that has begun, and is left open. `then` says what to do where the template fails.
    """
    template = tokenizer.chat_template if template is None else template
    if isinstance(template, str) and _has_a_power(template):
        raise Refusal(f"The chat template computes a power (**), which can take hours and which no template needs. {then}")
    how = {"tokenize": False, "add_generation_prompt": not go_on, "continue_final_message": go_on}
    try:
        with _bounded_memory(), _bounded_time():
            text = tokenizer.apply_chat_template(list(turns), chat_template=template if isinstance(template, str) else None, **how)
    except _TooLong:
        raise Refusal(f"The chat template does not come to an end within {MOST_LINES:,} lines. {then}") from None
    except MemoryError:
        raise Refusal(f"The chat template takes more than {MOST_MEMORY >> 20} MB of memory. {then}") from None
    except jinja2.TemplateSyntaxError as error:
        raise Refusal(f"The chat template is not Jinja: {reason(error)} (line {error.lineno}). {then}") from None
    except Exception as error:  # whatever a program may raise
        raise Refusal(f"The chat template cannot be applied to this conversation: {reason(error)}. {then}") from error
    if not isinstance(text, str) or not text.strip():
        raise Refusal(f"The chat template writes nothing. {then}")
    return text


@lru_cache
def _has_a_power(template: str) -> bool:
    before = ""
    with suppress(jinja2.TemplateSyntaxError):  # said when it is applied
        for _, kind, value in jinja2.Environment().lex(template):
            if kind == "operator" and value == "**" and before not in ("(", ","):  # f(**names) is none
                return True
            before = before if kind == "whitespace" else value
    return False


@contextmanager
def _bounded_time() -> Iterator[None]:
    """Count the lines that run in here, and stop at too many: the same on a busy machine as on an idle one."""
    before, lines = sys.gettrace(), 0

    def count(_frame: FrameType, _event: str, _argument: Any) -> Any:
        nonlocal lines
        lines += 1
        if lines > MOST_LINES:
            raise _TooLong
        return count

    sys.settrace(count)
    try:
        yield
    finally:
        sys.settrace(before)


@contextmanager
def _bounded_memory() -> Iterator[None]:
    """Let the process grow by so much and no more; elsewhere than on Linux there is no such bound."""
    pages = Path("/proc/self/statm")
    if resource is None or not pages.is_file():
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    bound = int(pages.read_text().split()[0]) * resource.getpagesize() + MOST_MEMORY
    known = [limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_AS, (min([bound, *known]), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


Message = Mapping[str, str]


@dataclass(frozen=True)
class Prompt:
    """What a model is asked, with named spans of its characters.

    Examples
    --------
    >>> Prompt("Who wrote it? Anna wrote it.", regions={"query": (0, 13), "doc_1": (14, 28)}).regions["query"]
    (0, 13)
    """

    text: str
    regions: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):
            raise Refusal(f"The text of a prompt is a str, not {_briefly(self.text)}.")
        if not isinstance(self.regions, Mapping):
            raise Refusal(f"regions maps names to (start, stop) in characters of the prompt; this is {_briefly(self.regions)}.")
        for name, span in self.regions.items():
            if not isinstance(name, str) or not _is_span(span):
                raise Refusal(f"regions maps names to (start, stop) in characters of the prompt; this is {name!r}: {_briefly(span)}.")
            start, stop = span
            if not 0 <= start < stop <= len(self.text):
                raise Refusal(f"Region {name!r} spans the characters {start} to {stop}, but the prompt has {len(self.text)}.")
            if name in ("answer", "bos"):
                raise Refusal(f"A region cannot be called {name!r}: floatlens adds one of that name itself.")


def _is_span(span: Any) -> bool:
    return isinstance(span, tuple | list) and len(span) == 2 and all(map(is_whole, span))


def _briefly(given: Any) -> str:
    return f"{shown(repr(given)[:80])} ({type(given).__name__})"


AnyPrompt = str | Prompt | Sequence[Message] | Sequence[int] | Tensor | np.ndarray


@dataclass(frozen=True)
class EncodedPrompt:
    """A prompt in tokens. `starts` and `stops` are -1 for tokens without text."""

    text: str
    tokens: list[int]
    starts: list[int]
    stops: list[int]
    template: list[bool]
    regions: dict[str, list[bool]]


def encode(prompt: AnyPrompt, tokenizer: Any, *, chat: bool | None = None, suffix: Sequence[int] = ()) -> EncodedPrompt:
    """The prompt in tokens, through the tokenizer's chat template where it has one (unless `chat` says otherwise)."""
    if isinstance(prompt, Tensor | np.ndarray):
        if prompt.ndim > 2 or (prompt.ndim == 2 and len(prompt) != 1):
            raise Refusal(f"A prompt of token ids has one axis; this one has the shape {tuple(prompt.shape)}. Give each row as a prompt.")
        prompt = prompt.flatten().tolist()
    if not isinstance(prompt, str | Prompt) and not (
        isinstance(prompt, Sequence) and not isinstance(prompt, bytes | bytearray | memoryview)
    ):
        raise Refusal(
            f"A prompt is a text, an fl.Prompt, a conversation or a list of token ids; this is {_briefly(prompt)}. Decode bytes to a "
            "text first."
        )
    if not isinstance(prompt, str | Prompt) and all(map(is_whole, prompt)):
        return _of_tokens([int(token) for token in prompt], tokenizer, suffix)  # type: ignore[arg-type]  # all are ints
    if tokenizer is None:
        raise Refusal(
            "This model has no tokenizer, so it cannot read text. Give prompts as lists of token ids, or load it with its tokenizer files."
        )
    if isinstance(prompt, str):
        prompt = Prompt(prompt)
    if isinstance(prompt, Prompt):
        return _of_text(prompt, tokenizer, chat, suffix)
    messages: Any = prompt
    for message in messages:
        is_message = isinstance(message, Mapping) and isinstance(message.get("role"), str) and isinstance(message.get("content"), str)
        if not is_message:
            raise Refusal(
                "A conversation is a list of messages with 'role' and 'content', both texts; a prompt may also be a text or a list of "
                f"token ids, which are whole numbers. This is {_briefly(message)}."
            )
    return _of_conversation(messages, [message["content"] for message in messages], {}, tokenizer)


def _of_tokens(tokens: list[int], tokenizer: Any, suffix: Sequence[int]) -> EncodedPrompt:
    tokens = tokens[: len(tokens) - _closing(tokens, suffix)]
    text = "" if tokenizer is None else tokenizer.decode([token for token in tokens if 0 <= token < len(tokenizer)])
    nowhere = [-1] * len(tokens)
    return EncodedPrompt(text, tokens, nowhere, nowhere, [False] * len(tokens), {"prompt": [True] * len(tokens)})


def _closing(tokens: Sequence[int], suffix: Sequence[int]) -> int:
    """How many tokens at the end are the suffix, which will stand after the masks."""
    return len(suffix) if suffix and list(tokens[-len(suffix) :]) == list(suffix) else 0


def _of_text(prompt: Prompt, tokenizer: Any, chat: bool | None, suffix: Sequence[int]) -> EncodedPrompt:
    template = getattr(tokenizer, "chat_template", None)
    if chat and not template:
        raise Refusal("This tokenizer has no chat template; leave chat out, or pass chat=False (--raw).")
    if template and chat is not False:
        return _of_conversation([{"role": "user", "content": prompt.text}], [prompt.text], prompt.regions, tokenizer)
    return _tokenised(prompt.text, [(0, len(prompt.text))], prompt.regions, tokenizer, add_special_tokens=True, suffix=suffix)


def _of_conversation(
    messages: Sequence[Message], contents: list[str], regions: Mapping[str, tuple[int, int]], tokenizer: Any
) -> EncodedPrompt:
    if not getattr(tokenizer, "chat_template", None):
        raise Refusal("This tokenizer has no chat template, so it cannot read a conversation. Give the prompt as one text.")
    text = _rendered(messages, contents, tokenizer)
    spans, around = [], _around(messages, contents, text, tokenizer)
    position = len(around[0])
    for content, after in zip(contents, around[1:], strict=True):
        trimmed = (content, content.strip(), content.lstrip(), content.rstrip())  # as templates do
        matched = next((kept for kept in trimmed if kept and text.startswith(kept + after, position)), None)
        if matched is None or not text.startswith(around[0]):
            if regions:
                raise Refusal("The chat template rewrites the prompt, so its regions cannot be found again. Pass chat=False (--raw).")
            position = max(text.find(after, position), position) + len(after)
            continue
        spans.append((position, position + len(matched)))
        moved = position - content.find(matched)
        regions = {
            name: (max(first + moved, position), min(stop + moved, position + len(matched))) for name, (first, stop) in regions.items()
        }
        position += len(matched + after)
    return _tokenised(text, spans, regions, tokenizer, add_special_tokens=False)


def _rendered(messages: Sequence[Message], contents: Sequence[str], tokenizer: Any) -> str:
    turns = [{**message, "content": content} for message, content in zip(messages, contents, strict=True)]
    return render_chat(tokenizer, turns)


def _around(messages: Sequence[Message], contents: Sequence[str], text: str, tokenizer: Any) -> list[str]:
    """What the template puts before, between and after the contents.

    It is found with marks in their place: looking for a content would find "user" in the template's own "user".
    """
    marks = [f"\ue000{number}\ue001" for number in range(len(messages))]
    rest, pieces, matched = _rendered(messages, marks, tokenizer), [], ""
    for mark in marks:
        piece, matched, after = rest.partition(mark)
        pieces.append(piece if matched else "")  # a template may leave a message out, but not the last
        rest = after if matched else rest
    if messages and not matched and contents[-1].strip() not in text:
        raise Refusal(
            "The chat template leaves the last message out, so the model would not see what it is asked. Pass chat=False (--raw) to go "
            "without it, or correct the template."
        )
    return [*pieces, rest]


def _tokenised(
    text: str,
    own: list[tuple[int, int]],
    regions: Mapping[str, tuple[int, int]],
    tokenizer: Any,
    *,
    add_special_tokens: bool,
    suffix: Sequence[int] = (),
) -> EncodedPrompt:
    """`own` are the spans that are the user's; everything else is the template's."""
    half = next((number for number, letter in enumerate(text, 1) if "\ud800" <= letter <= "\udfff"), None)
    if half is not None:
        raise Refusal(f"Character {half} of the prompt is half of a surrogate pair, which no tokenizer can read. Write the text as UTF-8.")
    with in_a_sentence("The tokenizer cannot read the prompt", "Fetch its files again, or give token ids."):
        encoded = tokenizer(
            text, add_special_tokens=add_special_tokens, return_offsets_mapping=True, verbose=False
        )  # lengths are checked where they matter
    tokens, offsets = list(encoded["input_ids"]), list(encoded["offset_mapping"])
    kept = len(tokens) - _closing(tokens, suffix)
    tokens, offsets = tokens[:kept], offsets[:kept]
    starts = [start if stop > start else -1 for start, stop in offsets]
    stops = [stop if stop > start else -1 for start, stop in offsets]
    template = [not any(start < stop <= last for start, last in own) for stop in stops]
    named = {name: [span[0] < stop <= span[1] for stop in stops] for name, span in regions.items()}
    begins = next((token for name in ("bos_token_id", "cls_token_id") if (token := getattr(tokenizer, name, None)) is not None), None)
    bos = [position == 0 and token == begins for position, token in enumerate(tokens)]
    if not named:
        named = {"prompt": [not is_bos for is_bos in bos]}
    if any(bos):
        named = {"bos": bos, **named}
    return EncodedPrompt(text, tokens, starts, stops, template, named)
