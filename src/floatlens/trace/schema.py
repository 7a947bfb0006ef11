"""The trace format in code: axes, states, what can be kept. docs/reference/trace-format.md is the specification; both change together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from floatlens.capture.reducers import MOST_TOP_KEYS, as_pairs, is_whole
from floatlens.errors import Refusal

SCHEMA_VERSION = 1
STEPS_PER_SHARD = 32


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
    """What a trace keeps."""

    kept: Mapping[str, str] = field(default_factory=lambda: dict(_DEFAULT))
    groups: tuple[str, ...] = ("masked", "unmasked", "predicting")
    top_keys: int = 8
    patterns: tuple[tuple[int, int], ...] = ()

    def keeps(self, name: str) -> bool:
        return self.kept[name] != "off"

    def per_head(self, name: str) -> bool:
        return self.kept[name] == "head"

    @property
    def reducers(self) -> list[str]:
        """The names for `keep=` of a tap."""
        return [name for name in ("mass", "halves", "entropy", "geometry", "norms", "flow") if self.keeps(name)]


def make_detail(
    detail: str | Mapping[str, str], groups: Sequence[str] | None, top_keys: int, patterns: Sequence[tuple[int, int]], autoregressive: bool
) -> Detail:
    """Check what was asked for.

    Examples
    --------
    >>> make_detail({"norms": "off"}, None, 8, (), autoregressive=False).reducers
    ['mass', 'halves', 'entropy', 'geometry']
    >>> make_detail({"masses": "head"}, None, 8, (), autoregressive=False)
    Traceback (most recent call last):
    floatlens.errors.Refusal: detail does not know 'masses'. It knows: mass, halves, entropy, geometry, norms, flow, top_keys.
    """
    if not isinstance(detail, str | Mapping):
        raise Refusal(
            f"detail={detail!r} is not known; choose one of {', '.join(PRESETS)}, or a dictionary over the default, such as {{'norms': 'off'}}."
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
    known = ("predicting", "prompt") if autoregressive else ("masked", "unmasked", "predicting", "prompt")
    chosen = tuple(groups) if groups is not None else known[:1] if autoregressive else known[:3]
    for name in chosen:
        if name not in known:
            raise Refusal(f"There is no query group {name!r} here; the groups are {', '.join(known)}.")
    if not chosen or len(set(chosen)) < len(chosen):
        raise Refusal("groups must name at least one query group, and each only once.")
    if len(set(pairs)) < len(pairs):
        raise Refusal("patterns names a head twice; name each (layer, head) pair once.")
    return Detail(kept, chosen, top_keys, tuple(pairs))
