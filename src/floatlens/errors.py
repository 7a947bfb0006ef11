"""The two ways floatlens says no, the one in which it warns, and how the errors of other packages become sentences.

A `Refusal` is about what the user asked for: one sentence that says what is wrong and one that says what to do.
A `BrokenPromise` is about floatlens itself: a check that must always hold did not, so the numbers are not handed out.
A `Caution` is a warning: the numbers are right and easily misread.

Models, tokenizers and data come from strangers, and so do the messages of the libraries that read them: `shown` and `reason` put such
words on one line, without control characters and cut where they become long; `in_a_sentence` turns any failure into a `Refusal`.
"""

import difflib
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

_LONGEST_REASON = 300  # characters of another package's message
_NOT_TEXT = ("Cc", "Cf", "Cs", "Zl", "Zp")  # control characters, direction marks, halves of characters, line separators


class Refusal(ValueError):
    """What was asked for would give a plausible but wrong number, or cannot be done. The message says what to do instead."""


class BrokenPromise(RuntimeError):
    """An internal check failed: the observed weights are not those of the model. Please report it."""


class Caution(UserWarning):
    """A result that is right and easily misread: the prompt was not what the model read, an intervention did nothing.

    On the command line it is printed as a sentence.
    """


def shown(text: object) -> str:
    """A stranger's words on one line, control characters spelled out, cut where they become long.

    Examples
    --------
    >>> shown("a\\x1b[2Jb\\nc")
    'a\\\\x1b[2Jb\\\\nc'
    """
    words = str(text)
    spelled = "".join(sign.encode("unicode_escape").decode() if is_hidden(sign) else sign for sign in words[: _LONGEST_REASON + 1])
    return spelled if len(words) <= _LONGEST_REASON else f"{spelled[:_LONGEST_REASON]}..."


def is_hidden(sign: str) -> bool:
    """Whether a character shows as nothing, or does something to a terminal."""
    return unicodedata.category(sign) in _NOT_TEXT


def reason(error: BaseException) -> str:
    """The first line of what an error says."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return shown(lines[0] if lines else type(error).__name__).rstrip(".:")


def is_failure(error: BaseException) -> bool:
    """Whether something went wrong, a panic in Rust code among it, which is no Exception; not Ctrl-C or an exit."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


def suggestion(name: str, known: Iterable[str]) -> str:
    """A question to append to a refusal of a name that is close to a known one; "" if none is.

    Examples
    --------
    >>> suggestion("wrld", ["world", "nq"]), suggestion("something", ["world", "nq"])
    (" Did you mean 'world'?", '')
    """
    close = difflib.get_close_matches(name.lower(), list(known), n=1, cutoff=0.5)
    return f" Did you mean {close[0]!r}?" if close else ""


def bounds_in_words(message: str) -> str:
    """What pydantic and typer say of a value out of bounds, as a person would say it.

    Examples
    --------
    >>> bounds_in_words("Input should be greater than or equal to 0")
    'must be at least 0'
    """
    return (
        message.replace("Input should be", "must be")
        .replace("greater than or equal to", "at least")
        .replace("less than or equal to", "at most")
        .replace("greater than", "above")
        .replace("less than", "below")
    )


_KINDS = {
    "int_type": "a whole number",
    "float_type": "a number",
    "string_type": "a text",
    "string_unicode": "a text of whole characters",
    "bool_type": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a table",
    "model_type": "a table of fields",
    "too_short": "a list of at least one entry",
    "string_pattern_mismatch": "a name of letters, digits, '.', '-' and '_', at most 80 of them",
}


def wanted_in_words(kind: str, message: str) -> str:
    """What a value in a TOML file must be, from the kind and the message of pydantic's complaint about it.

    Examples
    --------
    >>> wanted_in_words("int_type", "Input should be a valid integer")
    'must be a whole number'
    >>> wanted_in_words("less_than", "Input should be less than 1")
    'must be below 1'
    """
    return f"must be {_KINDS[kind]}" if kind in _KINDS else bounds_in_words(message)


@contextmanager
def in_a_sentence(what: str, then: str) -> Iterator[None]:
    """Whatever is raised in here, as a Refusal: `what` went wrong, the reason, and `then`, what to do.

    Examples
    --------
    >>> with in_a_sentence("The weights of it cannot be read", "Download it again."):
    ...     raise RuntimeError("size mismatch\\nfor many tensors")
    Traceback (most recent call last):
    floatlens.errors.Refusal: The weights of it cannot be read (size mismatch). Download it again.
    """
    try:
        yield
    except (Refusal, BrokenPromise):
        raise
    except BaseException as error:  # damaged files make these libraries raise nearly everything
        if not is_failure(error):
            raise
        raise Refusal(f"{what} ({reason(error)}). {then}") from error
