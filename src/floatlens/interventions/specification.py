"""The interventions: small frozen dataclasses that say what is done, with fields that a TOML file can hold.

A specification has no state and runs nothing: `running.py` makes a running object of it for every batch. Anchors are always those of the
sample's step before (t - 1), per layer and head, chosen from the scores before any edit; a sample's first step has no step before it, and
nothing is done to its keys.

Every intervention takes `layers` and `steps`: whole numbers, a range, or one readable text, "0-7+9+12-". Spans are joined by "+", both
ends belong to a span, and a span without an end goes on. Two numbers in a tuple are two numbers: a pair that meant "from, up to" could
not be told from them, least of all in a file, so a span is written as text or as a `range`.

Refused here: numbers that mean nothing. Refused when it runs, where it is first known: more keys than there are, and a layer or head that
does not exist.
"""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from numbers import Integral, Real
from typing import Any, ClassVar

from floatlens.errors import Refusal

Numbers = int | str | range | Sequence[int]
"""How a set of layers or steps may be given: 3, [0, 4, 9], range(0, 8), "0-7+9+12-"."""

LONGEST_SPAN = 40  # characters
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
    return text is None or any(first <= number and (last is None or number <= last) for first, last in _read_spans(text))


def named(text: str | None) -> Iterator[int]:
    """The numbers that are named one by one or inside a closed span; of an open span, only its first. One at a time: a span may be long.

    Examples
    --------
    >>> list(named("0-2+9-"))
    [0, 1, 2, 9]
    """
    for first, last in () if text is None else _read_spans(text):
        yield from range(first, (first if last is None else last) + 1)


def is_count(value: object, least: int = 0) -> bool:
    """Whether a value is a whole number of at least `least`, numpy's included; True and False are none.

    Examples
    --------
    >>> is_count(3), is_count(0, least=1), is_count(True), is_count(2.0)
    (True, False, False, False)
    """
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least


Span = tuple[int, int | None]


@lru_cache(maxsize=256)  # asked for every layer of every step
def _read_spans(text: str) -> tuple[Span, ...]:
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


RULES = ("lift", "additive", "zscore", "rate")


@dataclass(frozen=True, kw_only=True)
class Intervention:
    """What all interventions share: the layers and the steps (counted by sample, from 0) in which they act; all of them if None."""

    kind: ClassVar[str] = ""
    layers: Numbers | None = None
    steps: Numbers | None = None

    def __post_init__(self) -> None:
        for name in ("layers", "steps"):
            given = getattr(self, name)
            if given is not None:
                object.__setattr__(self, name, in_words(given, name))  # frozen: this is the one moment at which a field may be put in order

    @property
    def original(self) -> "Intervention | None":
        """For a control, what it is the control of."""
        return None

    def in_layer(self, layer: int) -> bool:
        """Whether it acts in this layer."""
        return holds(_text(self.layers), layer) and (self.original is None or self.original.in_layer(layer))

    def in_step(self, step: int) -> bool:
        """Whether it acts in this step."""
        return holds(_text(self.steps), step) and (self.original is None or self.original.in_step(step))

    def named_layers(self) -> Iterator[int]:
        """Layers that must exist."""
        yield from named(_text(self.layers))
        if self.original is not None:
            yield from self.original.named_layers()


@dataclass(frozen=True)
class MaskAnchors(Intervention):
    """Hide from every query the `k` keys that received most attention in the step before.

    Examples
    --------
    >>> MaskAnchors(5, layers=range(0, 8)) == MaskAnchors(k=5, layers="0-7")
    True
    """

    kind = "mask-anchors"
    k: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        _refuse_unless_whole(self, "k", 1)


@dataclass(frozen=True)
class MaskAbove(Intervention):
    """Hide from every query all keys whose margin in the step before was above `eps`, by an anchor rule.

    "lift": received over its null, minus 1; "additive": mass in units of an even share, minus the mean of the others; "zscore": standard
    deviations above the mean over keys; "rate": received. Above means by more than rounding (1e-5). A key that fewer rows saw
    than 16 and a quarter of them (or all, where there are fewer) is not measured and stays.

    Examples
    --------
    >>> MaskAbove(0.3, rule="rate").eps
    0.3
    """

    kind = "mask-above"
    eps: float = 3.0
    rule: str = "lift"

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.eps, bool) or not isinstance(self.eps, Real) or not 0 <= self.eps < math.inf:
            raise Refusal(f"{self.kind}: eps={self.eps!r} is not a threshold; it must be a number from 0 on, such as 3.0.")
        object.__setattr__(self, "eps", float(self.eps))
        if self.rule not in RULES:
            raise Refusal(f"{self.kind}: there is no rule {self.rule!r}; the rules are {', '.join(RULES)}.")
        if self.rule == "rate" and self.eps >= 1:
            raise Refusal(f"{self.kind}: received attention is at most 1, so the rule 'rate' never goes above eps={self.eps}; try 0.3.")


@dataclass(frozen=True)
class ZeroAnchorValues(Intervention):
    """Keep the weights, but let the `k` keys that received most attention in the step before pass on nothing: their values are 0.

    Examples
    --------
    >>> ZeroAnchorValues().k
    1
    """

    kind = "zero-anchor-values"
    k: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        _refuse_unless_whole(self, "k", 1)


@dataclass(frozen=True)
class MaskHeads(Intervention):
    """Scale the output of these heads, (layer, head) pairs, to 0.

    Examples
    --------
    >>> MaskHeads([[3, 0], [1, 2]]).heads
    ((1, 2), (3, 0))
    """

    kind = "mask-heads"
    heads: Sequence[Sequence[int]]

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "heads", _pairs(self.heads))

    def of_layer(self, layer: int) -> list[int]:
        """The heads of one layer."""
        return [head for own, head in self.heads if own == layer]

    def in_layer(self, layer: int) -> bool:
        return super().in_layer(layer) and bool(self.of_layer(layer))

    def named_layers(self) -> Iterator[int]:
        yield from super().named_layers()
        yield from (layer for layer, _ in self.heads)


@dataclass(frozen=True)
class ExtraSinkToken(Intervention):
    """Add a key that every query sees, with score 0 and value 0: attention can go there and returns nothing ("softmax off by one").

    A reserved position that is seen by all and sees only itself offers every layer one key and one value that do not depend on the text.
    Which ones would depend on a token that the model was never trained on; zeros depend on nothing. The key belongs to no position: nothing
    in the text moves.

    Examples
    --------
    >>> ExtraSinkToken(layers=[0, 1]).layers
    '0-1'
    """

    kind = "extra-sink-token"


@dataclass(frozen=True)
class KeepSinks(Intervention):
    """Let each query see only the `k` keys that received most attention in the step before, and keys at most `window` positions away.

    It always sees itself, at distance 0. The window goes both ways; a causal model's own mask hides what comes later.

    Examples
    --------
    >>> KeepSinks(window=16, k=4).window
    16
    """

    kind = "keep-sinks"
    window: int
    k: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        _refuse_unless_whole(self, "window", 0)
        _refuse_unless_whole(self, "k", 0)


KeyPicker = MaskAnchors | MaskAbove | ZeroAnchorValues | KeepSinks
"""Interventions that choose keys, and so have a control with other keys."""


@dataclass(frozen=True)
class RandomKeys(Intervention):
    """The control of an intervention that picks keys: it does the same to random other keys.

    They are drawn among the keys that exist and can be seen, never from those that the original picks: as many of them (`equal="count"`),
    or in random order until they hold the same mass, before the edit and in the same step (`equal="mass"`): up to the first key with which
    the sum reaches it, or one less if that is closer. If all of them together hold less, all but one are used, and the shortfall is
    reported. It acts where its original acts, and where its own `layers` and `steps` allow it.

    Examples
    --------
    >>> RandomKeys(MaskAnchors(5), equal="mass").of.k
    5
    """

    kind = "random-keys"
    of: KeyPicker
    equal: str = "count"
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.of, KeyPicker):
            raise Refusal(
                f"{self.kind}: {_called(self.of)} picks no keys; this is the control of mask-anchors, mask-above, zero-anchor-values and "
                "keep-sinks."
            )
        if self.equal not in ("count", "mass"):
            raise Refusal(
                f"{self.kind}: equal={self.equal!r} is not known; it is 'count' (as many keys) or 'mass' (keys that hold as much)."
            )
        _refuse_unless_whole(self, "seed", 0)

    @property
    def original(self) -> Intervention:
        return self.of


@dataclass(frozen=True)
class RandomHeads(Intervention):
    """The control of `MaskHeads`: in each of its layers, as many random other heads, the same ones throughout the run.

    Examples
    --------
    >>> RandomHeads(MaskHeads(((3, 0), (3, 1)))).of.of_layer(3)
    [0, 1]
    """

    kind = "random-heads"
    of: MaskHeads
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.of, MaskHeads):
            raise Refusal(f"{self.kind}: {_called(self.of)} picks no heads; this is the control of mask-heads.")
        _refuse_unless_whole(self, "seed", 0)

    @property
    def original(self) -> Intervention:
        return self.of


def _text(numbers: Numbers | None) -> str | None:
    """After `__post_init__` a set of numbers is a text."""
    assert numbers is None or isinstance(numbers, str)
    return numbers


def _called(given: Any) -> str:
    return given.kind if isinstance(given, Intervention) else repr(given)


def _refuse_unless_whole(spec: Intervention, name: str, least: int) -> None:
    value = getattr(spec, name)
    if not is_count(value, least):
        raise Refusal(f"{spec.kind}: {name}={value!r} must be a whole number of at least {least}.")
    object.__setattr__(spec, name, int(value))


def _pairs(given: Sequence[Sequence[int]]) -> tuple[tuple[int, int], ...]:
    if not isinstance(given, Iterable):
        raise Refusal(f"mask-heads: heads={given!r} must be (layer, head) pairs, such as [(3, 0), (11, 4)].")
    pairs: list[tuple[Any, ...]] = [tuple(pair) if isinstance(pair, Iterable) else (pair,) for pair in given]
    for pair in pairs:
        if len(pair) != 2 or not all(map(is_count, pair)):
            raise Refusal(f"mask-heads: {pair!r} is not a (layer, head) pair of whole numbers from 0 on.")
    if not pairs or len(set(pairs)) < len(pairs):
        raise Refusal("mask-heads: heads must name at least one (layer, head) pair, and each only once.")
    return tuple(sorted((int(layer), int(head)) for layer, head in pairs))
