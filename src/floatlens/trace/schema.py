"""The trace format in code: axes, states, what a trace keeps (`Detail`), and what is wrong with the metadata of a trace.

docs/reference/trace-format.md is the specification; both change together. The functions that look for faults read metadata only, never
data, and trust no number that they have not compared. Each yields what is wrong as the middle of a sentence. A trace in which nothing is
wrong can be turned into a dataset without surprises.

Refused: a detail that keeps nothing, or that names what does not exist.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from floatlens.capture.arguments import MOST_TOP_KEYS, as_pairs, is_whole
from floatlens.errors import Refusal

Arrays = dict[str, tuple[tuple[str, ...], np.ndarray]]
"""Names of the axes and values, by variable."""

SCHEMA_VERSION = 1
STEPS_PER_SHARD = 32
MARK = "manifest"  # the attribute of the root that says a manifest belongs to the trace
CHECKSUMS = "checksums"  # the attribute of a sample that repeats the checksums of its shards

APPENDED = -2  # in `top_key`: a key that an edit has added
NOTHING, PROMPT, MASKED, COMMITTED_NOW, COMMITTED_BEFORE = range(5)
STATES = ("padding", "prompt", "masked", "committed now", "committed before")

# what is kept per head, per layer (the mean over heads) or not at all
_DEFAULT = {"mass": "head", "halves": "head", "entropy": "head", "geometry": "layer", "norms": "layer", "flow": "off", "top_keys": "head"}
_LIGHT = {"mass": "layer", "halves": "off", "entropy": "layer", "geometry": "off", "norms": "off", "flow": "off", "top_keys": "off"}
_FULL = {"mass": "head", "halves": "head", "entropy": "head", "geometry": "head", "norms": "head", "flow": "head", "top_keys": "head"}
PRESETS: dict[str, dict[str, str]] = {"default": _DEFAULT, "light": _LIGHT, "full": _FULL}

VARIABLES = {
    "mass": ("mass", "visible", "null", "rows", "rows_without_keys"),
    "halves": ("mass_even", "visible_even", "null_even", "rows_even"),
    "entropy": ("entropy",),
    "geometry": ("score", "cosine", "norm_product"),
    "norms": ("query_norm", "key_norm", "value_norm"),
    "flow": ("flow", "flow_null", "region_rows"),
    "top_keys": ("top_key", "top_weight", "top_retained"),
}
COUNTS = (
    "visible",
    "null",
    "rows",
    "rows_without_keys",
    "visible_even",
    "null_even",
    "rows_even",
)  # the same for all heads, and usually for all layers

COUNT_AXES = (
    (),
    ("layer",),
    ("layer", "head"),
)  # what counts are kept over: nothing but groups and keys, layers that differ, every head under edits
CANVAS: dict[str, tuple[tuple[str, ...], str]] = {
    "canvas": (("step", "position"), "int32"),
    "state": (("step", "position"), "int8"),
    "confidence": (("step", "position"), "float32"),
    "final": (("position",), "int32"),
    "committed": (("position",), "int32"),
    "char_start": (("position",), "int32"),
    "char_stop": (("position",), "int32"),
    "template": (("position",), "bool"),
    "special": (("position",), "bool"),
    "in_region": (("region", "position"), "bool"),
}
UNDER_INTERVENTIONS = {"removed": (("step", "layer", "head"), "float32"), "shortfall": (("step", "layer", "head"), "float32")}
_LAST_AXES = {
    **dict.fromkeys(("rows", "rows_without_keys", "rows_even", "entropy"), ("group",)),
    **dict.fromkeys(("key_norm", "value_norm"), ("key",)),
    **dict.fromkeys(("flow", "flow_null"), ("query_region", "key_region")),
    "query_norm": ("query",),
    "region_rows": ("query_region",),
}


def promised_arrays(kept: Mapping[str, str], patterns: bool, count_axes: tuple[str, ...] = ()) -> dict[str, tuple[tuple[str, ...], str]]:
    """The axes and the dtype of every array that a sample must have, by name, for what was kept.

    Examples
    --------
    >>> promised_arrays(PRESETS["light"], patterns=False)["mass"]
    (('step', 'layer', 'group', 'key'), 'float32')
    """
    arrays = dict(CANVAS)
    for kind, names in VARIABLES.items():
        if kept[kind] == "off":
            continue
        over = ("layer", "head") if kept[kind] == "head" else ("layer",)
        for name in names:
            if kind == "top_keys":
                rank = () if name == "top_retained" else ("rank",)
                arrays[name] = (("layer", "head", "position", *rank), "int32" if name == "top_key" else "float32")
            else:
                axes = count_axes if name in COUNTS else over
                arrays[name] = (("step", *axes, *_LAST_AXES.get(name, ("group", "key"))), "float32")
    if patterns:
        arrays["pattern"] = (("step", "chosen", "query", "key"), "float32")
    return arrays


@dataclass(frozen=True)
class Detail:
    """What a trace keeps: made once by `make_detail`, then passed whole."""

    kept: Mapping[str, str] = field(default_factory=lambda: dict(_DEFAULT))
    groups: tuple[str, ...] = ("masked", "unmasked", "predicting")  # none until the model is known, if the user names none
    top_keys: int = 8
    patterns: tuple[tuple[int, int], ...] = ()

    def keeps(self, name: str) -> bool:
        """Whether anything is kept of this kind."""
        return self.kept[name] != "off"

    def per_head(self, name: str) -> bool:
        """Whether it is kept for every head, not as a mean over them."""
        return self.kept[name] == "head"

    def fitted(self, *, autoregressive: bool) -> "Detail":
        """With the query groups of such a model, where the user has named none; refuses those that it does not have.

        Examples
        --------
        >>> make_detail("light").fitted(autoregressive=True).groups
        ('predicting',)
        """
        known = ("predicting", "prompt") if autoregressive else ("masked", "unmasked", "predicting", "prompt")
        groups = self.groups or (known[:1] if autoregressive else known[:3])
        for name in groups:
            if name not in known:
                raise Refusal(f"There is no query group {name!r} here; the groups are {', '.join(known)}.")
        return replace(self, groups=groups)

    @property
    def reducers(self) -> list[str]:
        """The names for `keep=` of a tap."""
        return [name for name in ("mass", "halves", "entropy", "geometry", "norms", "flow") if self.keeps(name)]


def make_detail(
    detail: str | Mapping[str, str],
    groups: Sequence[str] | None = None,
    top_keys: int = 8,
    patterns: Sequence[tuple[int, int]] = (),
    autoregressive: bool | None = None,
) -> Detail:
    """Check what is to be kept. Where it is not known yet whether the model is autoregressive, `Detail.fitted` settles the groups later.

    Examples
    --------
    >>> make_detail({"norms": "off"}).reducers
    ['mass', 'halves', 'entropy', 'geometry']
    >>> make_detail({"masses": "head"})
    Traceback (most recent call last):
    floatlens.errors.Refusal: detail does not know 'masses'. It knows: mass, halves, entropy, geometry, norms, flow, top_keys.
    """
    if not isinstance(detail, str | Mapping):
        raise Refusal(
            f"detail={detail!r} is not known; choose one of {', '.join(PRESETS)}, or a dictionary over the default, such as "
            f"{{'norms': 'off'}}."
        )
    if isinstance(detail, str):
        if detail not in PRESETS:
            raise Refusal(f"detail={detail!r} is not known; choose one of {', '.join(PRESETS)}, or name what is kept: mass=head,norms=off.")
        kept = PRESETS[detail]
    else:
        for name, value in detail.items():
            if name not in _DEFAULT:
                raise Refusal(f"detail does not know {name!r}. It knows: {', '.join(_DEFAULT)}.")
            if value not in ("head", "layer", "off"):
                raise Refusal(f"detail={{{name!r}: {value!r}}}: it is kept per 'head', per 'layer' or 'off'.")
        kept = {**_DEFAULT, **detail}
    pairs = sorted(as_pairs(patterns))
    if all(value == "off" for value in kept.values()) and not pairs:
        raise Refusal("detail switches everything off, so there would be no attention in the trace; keep something, or use lm.generate.")
    if kept["top_keys"] == "layer":
        raise Refusal("Favourite keys are those of a head; detail={'top_keys': ...} is 'head' or 'off'.")
    if not is_whole(top_keys) or not 1 <= top_keys <= MOST_TOP_KEYS:
        raise Refusal(f"top_keys={top_keys!r}: keep 1 to {MOST_TOP_KEYS}, or switch them off with detail={{'top_keys': 'off'}}.")
    if groups is not None and (isinstance(groups, str) or not isinstance(groups, Sequence)):
        raise Refusal(f"groups={groups!r} must be a list of query groups, such as ['masked', 'predicting'].")
    chosen = () if groups is None else tuple(groups)
    if groups is not None and (not chosen or any(chosen.count(name) > 1 for name in chosen)):
        raise Refusal("groups must name at least one query group, and each only once.")
    if len(set(pairs)) < len(pairs):
        raise Refusal("patterns names a head twice; name each (layer, head) pair once.")
    made = Detail(kept, chosen, top_keys, tuple(pairs))
    return made if autoregressive is None else made.fitted(autoregressive=autoregressive)


_LONGEST_AXIS = 2**31 - 1  # positions and steps are stored as int32


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LONGEST_AXIS


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_text, value)) and len(set(value)) == len(value) > 0


def _are_pairs(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(pair, list) and len(pair) == 2 and all(map(_is_count, pair)) for pair in value)


def _is_detail(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and set(value) == set(PRESETS["default"])
        and all(kept in ("head", "layer", "off") for kept in value.values())
    )


def _are_texts_by_name(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_text, value.values()))


_ATTRIBUTES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "samples": (lambda value: _is_count(value) and value > 0, "a number above 0"),
    "model": (_is_text, "text"),
    "revision": (lambda value: value is None or _is_text(value), "text or null"),
    "family": (_is_text, "text"),
    "row_offset": (_is_count, "a number"),
    "mask_token_id": (lambda value: value is None or _is_number(value), "a number or null"),
    "sampler": (lambda value: isinstance(value, dict) and _is_text(value.get("name")), "an object with a name"),
    "seed": (_is_number, "a number"),
    "dtype": (_is_text, "text"),
    "device": (_is_text, "text"),
    "threads": (_is_count, "a number"),
    "versions": (_are_texts_by_name, "an object of texts"),
    "edits": (lambda value: isinstance(value, list) and all(map(_is_text, value)), "a list of texts"),
    "layers": (lambda value: _is_count(value) and value > 0, "a number above 0"),
    "heads": (lambda value: _is_count(value) and value > 0, "a number above 0"),
    "layer_numbers": (lambda value: isinstance(value, list) and all(map(_is_count, value)), "a list of numbers"),
    "modules": (lambda value: isinstance(value, list) and all(map(_is_text, value)), "a list of texts"),
    "groups": (_are_names, "a list of different names"),
    "regions": (_are_names, "a list of different names"),
    "chosen": (_are_pairs, "a list of [layer, head] pairs"),
    "detail": (_is_detail, f"an object that says of {', '.join(PRESETS['default'])} whether it is kept per head, per layer or off"),
}
_OPTIONAL_ATTRIBUTES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "writes_words": (lambda value: isinstance(value, bool), "true or false"),
}
_OF_A_SAMPLE: dict[str, tuple[Callable[[Any], bool], str]] = {
    "prompt": (_is_text, "text"),
    "completion": (_is_text, "text"),
    "vocabulary": (_are_texts_by_name, "an object of texts"),
}


def version_fault(attributes: Mapping[str, Any]) -> str | None:
    """What is wrong with the version of the format, which decides how everything else is read."""
    version = attributes.get("schema_version")
    if version is None:
        return "its attributes do not say which version of the trace format it is (schema_version is missing)"
    if not _is_number(version) or version < 1:
        return f"schema_version is {_shown(version)} and must be a number from 1 to {SCHEMA_VERSION}"
    return None


def attribute_faults(attributes: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with the attributes of the root."""
    present = {name: rule for name, rule in _OPTIONAL_ATTRIBUTES.items() if name in attributes}
    wrong = list(_field_faults(attributes, {**_ATTRIBUTES, **present}))
    yield from wrong
    if wrong:
        return
    for name in ("layer_numbers", "modules"):
        if len(attributes[name]) != attributes["layers"]:
            yield f"{name} lists {len(attributes[name])} layers where layers says {attributes['layers']}"
    if len(set(attributes["layer_numbers"])) != len(attributes["layer_numbers"]):
        yield "layer_numbers names a layer twice"


def sample_faults(attributes: Mapping[str, Any], of_sample: Mapping[str, Any], arrays: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with one sample of a trace whose root is right. An array has `shape`, `dtype`, `chunks`, `shards` and `metadata`."""
    yield from _field_faults(of_sample, _OF_A_SAMPLE)
    promised = promised_arrays(attributes["detail"], bool(attributes["chosen"]), _count_axes(arrays))
    missing = [name for name in promised if name not in arrays]
    yield from (f"array {name} is missing" for name in missing)
    sizes = _sizes(attributes, arrays)
    for name, array in arrays.items():
        axes = axes_of(array)
        if axes is None:
            yield f"array {name} does not name its axes"
            continue
        expected_axes, expected_dtype = promised.get(name) or UNDER_INTERVENTIONS.get(name) or (axes, np.dtype(array.dtype).name)
        if axes != expected_axes:
            yield f"array {name} has the axes {', '.join(axes) or 'of a single number'} and should have {', '.join(expected_axes)}"
        elif np.dtype(array.dtype).name != expected_dtype:
            yield f"array {name} holds {np.dtype(array.dtype).name} and should hold {expected_dtype}"
        else:
            yield from _size_faults(name, axes, array, sizes)


def axes_of(array: Any) -> tuple[str, ...] | None:
    """The names of an array's axes; None if one has none, or two have the same."""
    names = array.metadata.dimension_names
    if names is None or len(names) != len(array.shape) or not all(map(_is_text, names)) or len(set(names)) < len(names):
        return None
    return tuple(names)


def differing_faults(samples: Sequence[Mapping[str, tuple[tuple[str, ...], Any]]]) -> Iterator[str]:
    """How samples that are right by themselves do not go together. Arrays come with their axes."""
    kinds = [{name: (axes, np.dtype(array.dtype)) for name, (axes, array) in arrays.items()} for arrays in samples]
    for number, own in enumerate(kinds[1:], start=1):
        for name in sorted({*kinds[0], *own}):
            if kinds[0].get(name) != own.get(name):
                yield f"array {name} of sample {number} is not of the same kind as that of sample 0"


def _field_faults(attributes: Mapping[str, Any], fields: Mapping[str, tuple[Callable[[Any], bool], str]]) -> Iterator[str]:
    for name, (is_right, must_be) in fields.items():
        if name not in attributes:
            yield f"the attribute {name} is missing"
        elif not is_right(attributes[name]):
            yield f"the attribute {name} is {_shown(attributes[name])} and must be {must_be}"


def _count_axes(arrays: Mapping[str, Any]) -> tuple[str, ...]:
    """What the counts of this sample are kept over: they say so themselves, and all alike."""
    for name in ("rows", "rows_even"):
        if name in arrays and (axes := axes_of(arrays[name])) is not None and axes[1:-1] in COUNT_AXES:
            return axes[1:-1]
    return ()


def _sizes(attributes: Mapping[str, Any], arrays: Mapping[str, Any]) -> dict[str, int]:
    """How long each axis must be. The canvas says how many steps and positions there are, everything else is in the attributes."""
    regions = len(attributes["regions"])
    sizes = {
        "layer": attributes["layers"],
        "head": attributes["heads"],
        "group": len(attributes["groups"]),
        "chosen": len(attributes["chosen"]),
        "region": regions,
        "query_region": regions,
        "key_region": regions,
    }
    if "canvas" in arrays and axes_of(arrays["canvas"]) == ("step", "position"):
        steps, length = arrays["canvas"].shape
        sizes |= {"step": steps, "position": length, "query": length, "key": length}
    if "top_key" in arrays and arrays["top_key"].shape:
        sizes["rank"] = arrays["top_key"].shape[-1]
    return sizes


def _size_faults(name: str, axes: tuple[str, ...], array: Any, sizes: Mapping[str, int]) -> Iterator[str]:
    for axis, size in zip(axes, array.shape, strict=True):
        expected = sizes.get(axis, size)
        if not _is_count(size):
            yield f"array {name} has {size} entries along {axis}"
        elif size != expected:
            yield f"array {name} has {size} entries along {axis}, where the trace has {expected}"
    chunks = array.chunks
    shards = array.shards or chunks
    whole = all(_is_count(edge) and edge > 0 for edge in (*chunks, *shards))
    if not whole or any(chunk > shard or shard > max(1, size) for chunk, shard, size in zip(chunks, shards, array.shape, strict=True)):
        yield f"array {name} is said to be stored in pieces of {_shown(list(shards))}, larger than itself"
    elif math.prod(array.shape) * np.dtype(array.dtype).itemsize > 2**62:
        yield f"array {name} has the impossible shape {_shown(list(array.shape))}"


def _shown(value: Any) -> str:
    """A value in a message, cut short."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
