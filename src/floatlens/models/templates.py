"""Chat templates: programs that come with a checkpoint and run on every prompt.

They run in Jinja's sandbox, as transformers sets it up: no imports, no attributes with underscores, nothing that writes. A sandbox bounds neither time nor
memory, so both are bounded here: lines are counted while a template runs, and on Linux the process may not grow by more than half a gigabyte meanwhile. A power
(`2 ** 10 ** 9`) is one line that can take hours, and no template needs one.

Refused, in one sentence: templates that are not Jinja, raise, go on too long, take too much memory, write nothing, or leave the prompt out.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from types import FrameType
from typing import Any

import jinja2

from floatlens.errors import Refusal
from floatlens.models.untrusted import reason

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


def render_chat(tokenizer: Any, turns: Sequence[Mapping[str, str]]) -> str:
    """The conversation as the tokenizer's chat template writes it, ready for an answer."""
    template = tokenizer.chat_template
    if isinstance(template, str) and _has_a_power(template):
        raise Refusal(f"The chat template computes a power (**), which can take hours and which no template needs. {_RAW}")
    try:
        with _bounded_memory(), _bounded_time():
            text = tokenizer.apply_chat_template(list(turns), tokenize=False, add_generation_prompt=True)
    except _TooLong:
        raise Refusal(f"The chat template does not come to an end within {MOST_LINES:,} lines. {_RAW}") from None
    except MemoryError:
        raise Refusal(f"The chat template takes more than {MOST_MEMORY >> 20} MB of memory. {_RAW}") from None
    except jinja2.TemplateSyntaxError as error:
        raise Refusal(f"The chat template is not Jinja: {reason(error)} (line {error.lineno}). {_RAW}") from None
    except Exception as error:  # whatever a program may raise
        raise Refusal(f"The chat template cannot be applied to this conversation: {reason(error)}. {_RAW}") from error
    if not isinstance(text, str) or not text.strip():
        raise Refusal(f"The chat template writes nothing. {_RAW}")
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
