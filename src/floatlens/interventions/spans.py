"""Which layers or steps: a set of whole numbers in one readable text, "0-7+9+12-".

Spans are joined by "+", both ends belong to a span, and a span without an end goes on. Two numbers in a tuple are two numbers: a pair
that meant "from, up to" could not be told from them, in a file least of all, so a span is written as text or as a `range`.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from numbers import Integral

from floatlens.errors import Refusal

Numbers = int | str | range | Sequence[int]
"""How a set of layers or steps may be given: 3, [0, 4, 9], range(0, 8), "0-7+9+12-"."""

LONGEST_SPAN = 40  # characters
MOST_DIGITS = 9
_SPAN = re.compile(r"\s*(\d+)\s*(?:(-)\s*(\d*)\s*)?")


def in_words(given: Numbers, name: str) -> str:
    """The same set always as the same text.

    Examples
    --------
    >>> in_words([4, 0, 1, 2], "layers"), in_words(range(0, 8), "layers"), in_words("3+1-2+9-", "layers")
    ('0-2+4', '0-7', '1-3+9-')
    """
    return "+".join(map(_span_in_words, _joined(_spans(given, name))))


def holds(text: str | None, number: int) -> bool:
    """Whether a number belongs to the set; without a set, every number does.

    Examples
    --------
    >>> [holds("0-2+9-", number) for number in (2, 3, 9, 100)]
    [True, False, True, True]
    """
    return text is None or any(first <= number and (last is None or number <= last) for first, last in _read(text))


def named(text: str | None) -> Iterator[int]:
    """The numbers that are named one by one or inside a closed span; of an open span, only its first. One at a time: a span may be long.

    Examples
    --------
    >>> list(named("0-2+9-"))
    [0, 1, 2, 9]
    """
    for first, last in () if text is None else _read(text):
        yield from range(first, (first if last is None else last) + 1)


def is_count(value: object, least: int = 0) -> bool:
    """Whether a value is a whole number of at least `least`, numpy's included; True and False are none.

    Examples
    --------
    >>> is_count(3), is_count(0, least=1), is_count(True), is_count(2.0)
    (True, False, False, False)
    """
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least


def is_number(text: str) -> bool:
    """Whether a text is a whole number from 0 on, of no more digits than a layer, a head or a count of passages may need.

    Examples
    --------
    >>> is_number(" 12 "), is_number("²"), is_number("-1"), is_number("9" * 5000)
    (True, False, False, False)
    """
    return text.strip().isdecimal() and len(text.strip()) <= MOST_DIGITS


Span = tuple[int, int | None]


@lru_cache(maxsize=256)  # asked for every layer of every step
def _read(text: str) -> tuple[Span, ...]:
    return tuple(_spans(text, "This"))


def _spans(given: Numbers, name: str) -> list[Span]:
    if isinstance(given, str):
        return [_span(part, given, name) for part in given.split("+")]
    numbers = list(given) if isinstance(given, Iterable) else [given]
    if not numbers or not all(map(is_count, numbers)):
        raise Refusal(f'{name}={given!r} names no numbers from 0 on; write 3, [0, 4, 9], range(0, 8) or "0-7+9".')
    return [(int(number), int(number)) for number in numbers]


def _span(part: str, whole: str, name: str) -> Span:
    match = _SPAN.fullmatch(part)
    if match is None:
        raise Refusal(f'{name}={whole!r} cannot be read at {part!r}; write numbers and spans joined by "+", such as 0-7+9+12-.')
    if len(part) > LONGEST_SPAN:
        raise Refusal(f"{name}={whole[:LONGEST_SPAN]!r}...: no model has so many; write numbers and spans such as 0-7+9+12-.")
    first = int(match[1])
    last = first if match[2] is None else int(match[3]) if match[3] else None
    if last is not None and last < first:
        raise Refusal(f"{name}={whole!r}: the span {part.strip()} ends before it begins.")
    return first, last


def _joined(spans: list[Span]) -> list[Span]:
    """Sorted, with overlapping and adjacent spans as one."""
    joined: list[Span] = []
    for first, last in sorted(spans, key=lambda span: span[0]):
        if joined and (joined[-1][1] is None or first <= joined[-1][1] + 1):
            begun, until = joined[-1]
            joined[-1] = (begun, None if until is None or last is None else max(until, last))
        else:
            joined.append((first, last))
    return joined


def _span_in_words(span: Span) -> str:
    first, last = span
    return f"{first}-" if last is None else str(first) if first == last else f"{first}-{last}"
