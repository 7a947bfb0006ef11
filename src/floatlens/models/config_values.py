"""Whether the values of a config are such as a model can have.

transformers takes a config nearly at its word: a million layers are built one by one, a negative epsilon or a rotary base of 0 gives logits that are not
numbers, and 7 heads in 32 dimensions give a model of another shape. Sizes are bounded far above anything published, so that a damaged config ends in a sentence
and not in a machine without memory.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from floatlens.errors import Refusal
from floatlens.models.untrusted import shown

_SIZES = {  # the largest that is believed
    "num_hidden_layers": 1 << 11,
    "num_attention_heads": 1 << 14,
    "num_key_value_heads": 1 << 14,
    "head_dim": 1 << 16,
    "hidden_size": 1 << 20,
    "intermediate_size": 1 << 24,
    "vocab_size": 1 << 26,
    "max_position_embeddings": 1 << 32,
}
_OPTIONAL = ("num_key_value_heads", "head_dim", "intermediate_size", "max_position_embeddings")
_LARGEST_COUNT = 1 << 20  # of experts, window layers, ...: any other whole number whose name says that it counts parts
_EPSILONS = ("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_eps")
_BASES = ("rope_theta", "global_rope_theta", "local_rope_theta", "rope_local_base_freq", "factor", "attention_factor")


def refuse_impossible_values(name: str, config: Any) -> None:
    """Refuse the first value of a transformers config that no model can have."""
    text = config.get_text_config()
    for field, largest in _SIZES.items():
        value = _value(text, field)
        if value is None and field in _OPTIONAL:
            continue
        for one in value if isinstance(value, list | tuple) and field in _OPTIONAL else [value]:  # some classes have one for each layer
            if isinstance(one, bool) or not isinstance(one, int) or not 1 <= one <= largest:
                raise Refusal(f"{_says(name, field, value)}; that must be a whole number from 1 to {largest:,}. {_THEN}")
    heads, kv_heads, size = text.num_attention_heads, _value(text, "num_key_value_heads"), text.hidden_size
    if isinstance(kv_heads, int) and heads % kv_heads:
        raise Refusal(f"{_says(name, 'num_attention_heads', heads)} and num_key_value_heads={kv_heads}, which does not divide it. {_THEN}")
    if not _varies(text, "head_dim") and _value(text, "head_dim") is None and size % heads:
        raise Refusal(f"{_says(name, 'hidden_size', size)} and num_attention_heads={heads}, which does not divide it. {_THEN}")
    for field, value in _fields(text.to_dict()):
        number = value if isinstance(value, int | float) and not isinstance(value, bool) else None
        if field in _EPSILONS and (number is None or not 0 <= number < 1):
            raise Refusal(f"{_says(name, field, value)}; that must be a small number, such as 1e-6. {_THEN}")
        if field in _BASES and value is not None and (number is None or not 0 < number < math.inf):
            raise Refusal(f"{_says(name, field, value)}; that must be a number above 0. {_THEN}")
        counts = field.startswith(("num_", "n_")) or field.endswith("_layers")
        if counts and number is not None and not -_LARGEST_COUNT <= number <= _LARGEST_COUNT:
            raise Refusal(f"{_says(name, field, value)}, which is more than any model has. {_THEN}")


def _varies(config: Any, field: str) -> bool:
    """Whether layers have values of their own; transformers then raises over a question for all of them."""
    try:
        getattr(config, field, None)
    except Exception:  # it has a class of its own for this, in no public place
        return True
    return False


def _value(config: Any, field: str) -> Any:
    return None if _varies(config, field) else getattr(config, field, None)


_THEN = "Fetch config.json again, or correct it."


def _says(name: str, field: str, value: Any) -> str:
    return f"The config of {name} says {field}={shown(repr(value))}"


def _fields(config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Every field, those of the rotary parameters (one set, or one for each kind of layer) among them."""
    for field, value in config.items():
        yield field, value
        if isinstance(value, Mapping) and (field.startswith("rope") or field.endswith("_attention")):
            yield from _fields(value)
