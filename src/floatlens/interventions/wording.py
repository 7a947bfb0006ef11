"""Interventions in files and on the command line: as plain dictionaries (TOML, JSON), and as one short text.

A dictionary names its `kind` and any fields: `{"kind": "mask-anchors", "k": 5, "layers": "0-7"}`; a control holds the dictionary of its
original under `of`. The text is `kind:value,...,name=value,...`, values without a name in the order of the fields; a control is written
`control of original`:

    mask-anchors:5,layers=0-7,steps=0-15+20
    mask-heads:3:0,11:4
    random-keys:mass,seed=1 of mask-anchors:5

What is not known is refused with the list of what is.
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields
from typing import Any

from floatlens.errors import Refusal, suggestion
from floatlens.interventions.specification import (
    ExtraSinkToken,
    Intervention,
    KeepSinks,
    MaskAbove,
    MaskAnchors,
    MaskHeads,
    RandomHeads,
    RandomKeys,
    ZeroAnchorValues,
)
from floatlens.small_language import Phrase, is_number, parse

KINDS: dict[str, type[Intervention]] = {
    kind.kind: kind for kind in (MaskAnchors, MaskAbove, ZeroAnchorValues, MaskHeads, ExtraSinkToken, KeepSinks, RandomKeys, RandomHeads)
}
"""The interventions by the name that files and the command line have for them."""


def to_dict(intervention: Intervention) -> dict[str, Any]:
    """An intervention as a file holds it: its kind and all its fields, `layers` and `steps` only where they are limited.

    Examples
    --------
    >>> to_dict(RandomKeys(MaskAnchors(5, layers=[0, 1]), equal="mass"))
    {'kind': 'random-keys', 'of': {'kind': 'mask-anchors', 'k': 5, 'layers': '0-1'}, 'equal': 'mass', 'seed': 0}
    """
    given: dict[str, Any] = {"kind": intervention.kind}
    for field in _in_order(type(intervention)):
        value = getattr(intervention, field.name)
        if isinstance(value, Intervention):
            given[field.name] = to_dict(value)
        elif value is not None:
            given[field.name] = [list(pair) for pair in value] if isinstance(value, tuple) else value
    return given


def from_dict(given: Mapping[str, Any]) -> Intervention:
    """The intervention that a dictionary describes.

    Examples
    --------
    >>> from_dict({"kind": "keep-sinks", "window": 16, "k": 4})
    KeepSinks(layers=None, steps=None, window=16, k=4)
    """
    if not isinstance(given, Mapping) or "kind" not in given:
        raise Refusal(f'{given!r} does not describe an intervention: it must name its "kind", one of {", ".join(KINDS)}.')
    kind = _kind(given["kind"])
    values = {name: value for name, value in given.items() if name != "kind"}
    if isinstance(values.get("of"), Mapping):
        if isinstance(values["of"].get("of"), Mapping):
            raise Refusal(f"{kind.kind}: 'of' holds a control of a control; a control has one original.")
        values["of"] = from_dict(values["of"])
    return _made(kind, values)


def to_text(intervention: Intervention) -> str:
    """An intervention in one short text.

    Examples
    --------
    >>> to_text(RandomKeys(MaskAnchors(5, layers=[0, 1]), equal="mass"))
    'random-keys:mass of mask-anchors:5,layers=0-1'
    >>> to_text(MaskHeads([(3, 0), (11, 4)], steps=range(4)))
    'mask-heads:3:0,11:4,steps=0-3'
    """
    ordered = [field for field in _in_order(type(intervention)) if field.name != "of"]
    words = []
    for place, field in enumerate(ordered):
        value = getattr(intervention, field.name)
        if place == 0 and not field.kw_only and field.name != "seed":
            words.append(_value_in_words(value))
        elif value != field.default:
            words.append(f"{field.name}={_value_in_words(value)}")
    text = ":".join([intervention.kind, ",".join(words)] if words else [intervention.kind])
    return text if intervention.original is None else f"{text} of {to_text(intervention.original)}"


def from_text(text: str) -> Intervention:
    """The intervention that a text describes.

    Examples
    --------
    >>> from_text("random-keys:mass of mask-anchors:5").of
    MaskAnchors(layers=None, steps=None, k=5)
    >>> from_text("mask-anchor:1")
    Traceback (most recent call last):
    floatlens.errors.Refusal: There is no intervention 'mask-anchor'. Did you mean 'mask-anchors'? There are: mask-anchors, mask-above, \
zero-anchor-values, mask-heads, extra-sink-token, keep-sinks, random-keys, random-heads.
    """
    own, _, original = text.strip().partition(" of ")
    if " of " in original:
        raise Refusal(
            f"{text[:80]!r} names a control of a control; a control has one original, as in 'random-keys:mass of mask-anchors:5'."
        )
    phrase = parse(own)
    kind = _kind(phrase.name)
    unnamed = [field.name for field in _in_order(kind) if field.name != "of" and not field.kw_only]
    given = phrase.values(unnamed, _takes(kind), several="heads" if kind is MaskHeads else "")
    values = {field: _read(field, value, phrase) for field, value in given.items()}
    return _made(kind, {**values, "of": from_text(original)} if original else values)


def _kind(name: Any) -> type[Intervention]:
    if not isinstance(name, str) or name not in KINDS:
        raise Refusal(f"There is no intervention {name!r}.{suggestion(str(name), KINDS)} There are: {', '.join(KINDS)}.")
    return KINDS[name]


def _made(kind: type[Intervention], values: dict[str, Any]) -> Intervention:
    known = _in_order(kind)
    for name in values:
        if name not in [field.name for field in known]:
            raise Refusal(f"{kind.kind} has no {name!r}; it takes {_takes(kind)}.")
    for field in known:
        if field.default is MISSING and field.name not in values:
            hint = f": write '{kind.kind} of ...'" if field.name == "of" else ""
            raise Refusal(f"{kind.kind} needs {field.name!r}{hint}; it takes {_takes(kind)}.")
    return kind(**values)


def _in_order(kind: type[Intervention]) -> list["Field[Any]"]:
    """An intervention's own fields, then those that all have."""
    return sorted(fields(kind), key=lambda field: field.kw_only is True)


def _takes(kind: type[Intervention]) -> str:
    return ", ".join(field.name for field in _in_order(kind))


def _value_in_words(value: Any) -> str:
    return ",".join(f"{layer}:{head}" for layer, head in value) if isinstance(value, tuple) else str(value)


def _read(field: str, value: str, phrase: Phrase) -> Any:
    """A value in the type of its field. What a field accepts is checked when the intervention is made."""
    if field == "heads":
        return [_head(pair, phrase) for pair in value.split(",")]
    reader: Callable[[str], Any] = {"k": int, "window": int, "seed": int, "eps": float}.get(field, str)
    try:
        return reader(value)
    except ValueError:
        raise phrase.refusal(f"{field} must be a number, not {value[:40]!r}.") from None


def _head(pair: str, phrase: Phrase) -> tuple[int, int]:
    layer, _, head = pair.partition(":")
    if not (is_number(layer) and is_number(head)):
        raise phrase.refusal(f"heads are layer:head pairs, such as mask-heads:3:0,11:4; this is {pair[:40]!r}.")
    return int(layer), int(head)
