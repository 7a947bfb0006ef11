"""Which layer is calling, whether all calls of a forward came, and which models cannot be tapped.

A layer is known by the module being run and its n-th call in this forward.

Hooks on the model's own modules keep a stack of what is running, so a call's identity never depends on guesswork about names. A layer's
number is its index in the model's layer list, or one more than the layer before it if that is larger: a skipped layer leaves a gap, a
module that is run again (ALBERT) counts on.

Refused, before anything is watched, is attention that never passes through `scaled_dot_product_attention`, or passes through it without
showing everything that makes the weights. What can only be seen while running (threads, gradients, NaN, padding) is refused where it is
seen.
"""

import re
import threading
from collections import Counter
from collections.abc import Iterable
from contextlib import AbstractContextManager
from functools import cache
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from floatlens.errors import Refusal

# config.layer_types of transformers: layers of these kinds make no softmax attention call
_NOT_ATTENTION = ("linear_attention", "conv", "moe", "mamba", "recurrent")
_COUNT_FIELDS = ("num_hidden_layers", "n_layers", "n_layer", "num_layers")


class LayerIdentity(NamedTuple):
    """A layer's number, the path of its module, and how often that module ran before in this forward."""

    layer: int
    module: str
    repeat: int


class _Known(NamedTuple):
    """What a tap has found out about a model: which modules run without calling attention. It holds as long as the modules are these."""

    modules: dict[str, type[nn.Module]]
    quiet: frozenset[str]


_known: WeakKeyDictionary[nn.Module, _Known] = WeakKeyDictionary()


class RunningModules:
    """Follows which module is being run, in one thread, and watches attention while one is run that may call it.

    Watching (`watch`, entered and left again and again) slows down every torch function, so it is limited to where it is needed. At first
    that is wherever a module of the model runs; once a forward is over (`settle`), modules that ran without calling attention are no
    longer followed, nor by the next tap on the model. Should one of them call it later, a call is missing, which is refused, and all are
    followed again (`forget`).
    """

    def __init__(self, model: nn.Module, watch: AbstractContextManager[Any]) -> None:
        self._thread = threading.get_ident()
        self._watch, self._is_watching = watch, False
        modules = dict(model.named_modules())
        self._model, self._types = model, {name: type(module) for name, module in modules.items()}
        known = _known.get(model)
        known = known if known is not None and known.modules == self._types else None
        self.is_known = self._settled = known is not None
        self._stack: list[tuple[str, int]] = []
        self._ran: set[str] = set()
        self._calling: set[str] = {""} if known is not None and "" not in known.quiet else set()
        self._quiet: set[str] = set()
        self._handles: dict[str, tuple[RemovableHandle, RemovableHandle]] = {}
        for name, module in modules.items():
            if _may_call_attention(module) and (not name or known is None or name not in known.quiet):
                self._handles[name] = (
                    module.register_forward_pre_hook(self._entering(name), with_kwargs=True),
                    module.register_forward_hook(self._leave, always_call=True),
                )

    def calling(self) -> str | None:
        """Path of the module being run, which calls attention; None outside the model."""
        if not self._stack:
            return None
        self._calling.add(self._stack[-1][0])
        return self._stack[-1][0]

    @property
    def packed_heads(self) -> int:
        """How many query heads per KV head the module being run may hand to the kernel as rows of one head (see `unpack_heads`).

        It is 1 for modules that do not.
        """
        return self._stack[-1][1] if self._stack else 1

    def settle(self) -> None:
        """A forward is over: modules that ran and did not call attention are left alone from now on, except the model itself."""
        if self._settled:
            return
        self._settled = True
        self._quiet = {name for name, _ in self._stack} - self._calling  # still running: these are left alone when they are done
        quiet = self._ran - self._calling - self._quiet
        _known[self._model] = _Known(self._types, frozenset(quiet | {""} - self._calling))
        for name in quiet - {""}:
            self._leave_alone(name)

    def forget(self) -> None:
        """A call is missing: nothing is known any more of which modules call."""
        _known.pop(self._model, None)

    def _leave_alone(self, name: str) -> None:
        for handle in self._handles.pop(name):
            handle.remove()

    def remove(self) -> None:
        """Follow nothing any more."""
        self._stack.clear()
        self._watch_if_needed()
        for handles in self._handles.values():
            for handle in handles:
                handle.remove()

    def _entering(self, name: str) -> Any:
        def enter(module: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
            if threading.get_ident() != self._thread:
                raise Refusal(
                    "The tapped model is being run in another thread, where its attention cannot be seen. "
                    "Open the tap in the thread that runs the model."
                )
            hidden = named.get("hidden_states", inputs[0] if inputs else None)
            one_row = isinstance(hidden, Tensor) and hidden.dim() == 3 and hidden.shape[1] == 1
            self._stack.append((name, int(getattr(module, "num_key_value_groups", 1)) if one_row else 1))
            self._ran.add(name)
            self._watch_if_needed()

        return enter

    def _leave(self, _module: nn.Module, _inputs: Any, _output: Any) -> None:
        if threading.get_ident() == self._thread and self._stack:
            name, _ = self._stack.pop()
            self._watch_if_needed()
            if name and name in self._quiet and name not in self._calling:
                self._quiet.discard(name)
                self._leave_alone(name)

    def _watch_if_needed(self) -> None:
        """Once settled, every module that is still followed may call attention; the model itself only if it did."""
        needed = bool(self._stack) and (not self._settled or bool(self._stack[-1][0]) or "" in self._calling)
        if needed and not self._is_watching:
            self._watch.__enter__()
        elif self._is_watching and not needed:
            self._watch.__exit__(None, None, None)
        self._is_watching = needed


class LayerNumbers:
    """Numbers the calls of one forward as they come."""

    def __init__(self) -> None:
        self._last = -1
        self._seen: Counter[str] = Counter()
        self.identities: list[LayerIdentity] = []

    def identify(self, module: str) -> LayerIdentity:
        """
        Examples
        --------
        >>> numbers = LayerNumbers()
        >>> [numbers.identify(f"model.layers.{i}.self_attn").layer for i in (0, 1, 3)]  # layer 2 was skipped
        [0, 1, 3]
        >>> albert = LayerNumbers()
        >>> [albert.identify("encoder.groups.0.attention").layer for _ in range(3)]  # one module, run three times
        [0, 1, 2]
        """
        index = index_in_list(module)
        layer = max(self._last + 1, index or 0)
        identity = LayerIdentity(layer, module, self._seen[module])
        self._seen[module] += 1
        self._last = layer
        self.identities.append(identity)
        return identity


@cache
def index_in_list(module: str) -> int | None:
    """The first number in a module's path: its place in the list of layers."""
    match = re.search(r"(?:^|\.)(\d+)(?:\.|$)", module)
    return int(match[1]) if match else None


def expected_calls(module: nn.Module, layers: int | None) -> int:
    """How many attention calls one forward of `module` makes: as the caller says, or from the config."""
    if layers is not None:
        if not isinstance(layers, int) or layers < 1:
            raise Refusal(f"layers={layers!r} is not a number of attention layers; it must be at least 1.")
        return layers
    config = getattr(module, "config", None)
    if config is not None and hasattr(config, "get_text_config"):
        config = config.get_text_config()
    if layer_types := getattr(config, "layer_types", None):
        return sum(kind not in _NOT_ATTENTION for kind in layer_types)
    for field in _COUNT_FIELDS:
        if isinstance(count := getattr(config, field, None), int):
            return count
    raise Refusal(
        f"{type(module).__name__} has no config that says how many attention layers it has, so a missed call could not be noticed. "
        "Pass layers=N, the number of attention calls in one forward."
    )


def refuse_missing(identities: list[LayerIdentity], expected: int) -> None:
    """Raise the `Refusal` for fewer calls than expected, naming the layers."""
    seen = {identity.layer for identity in identities}
    missing = [layer for layer in range(expected) if layer not in seen][: expected - len(identities)]
    raise Refusal(
        f"{expected} attention layers were expected and {len(identities)} were seen: nothing came from layer "
        f"{', '.join(map(str, missing))}. If the model skips layers, pass layers={len(identities) or 'N'}; otherwise some attention "
        "does not go "
        'through scaled_dot_product_attention (flash-attn, flex or eager kernels): load the model with attn_implementation="sdpa".'
    )


def refuse_surplus(identity: LayerIdentity, expected: int) -> None:
    """Raise the `Refusal` for one call more than expected."""
    again = f" (its run number {identity.repeat + 1})" if identity.repeat else ""
    raise Refusal(
        f"{expected} attention layers were expected, but {identity.module or 'the model itself'}{again} makes one call more. "
        f"If the model runs more attention than its config says, pass layers=N, the number of attention calls in one forward."
    )


def _may_call_attention(module: nn.Module) -> bool:
    """torch's own leaf modules (Linear, Embedding, norms) never do, and need no hook."""
    return not type(module).__module__.startswith("torch.nn.")


# Under any torch function mode these leave their fused path: their output changes, and SDPA stays hidden inside.
_FUSED_CLASSES = (nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)
_SOFT_CAPS = ("attn_logit_softcapping", "attn_logit_softcap", "attention_logit_softcapping")
_SINK_PARAMETERS = ("sinks", "attention_sink_bias", "attn_sink")


def refuse_what_cannot_be_tapped(model: Any) -> None:
    """Raise a `Refusal` if this module's attention cannot be observed exactly."""
    if not isinstance(model, nn.Module):
        raise Refusal(
            f"fl.tap takes a torch module; this is a {type(model).__name__}. For a pipeline or wrapper, pass the model inside it."
        )
    if hasattr(model, "_orig_mod"):
        raise Refusal(
            "This model was compiled with torch.compile, which hides its attention calls. Tap the uncompiled module: model._orig_mod."
        )
    modules = dict(model.named_modules())
    for name, module in modules.items():
        if isinstance(module, _FUSED_CLASSES):
            raise Refusal(
                f"{name or 'The model'} is a torch.nn.{type(module).__name__}, whose fused path hides its attention and changes its "
                "output when "
                "watched. Write the block with torch.nn.functional.scaled_dot_product_attention instead."
            )
    for config in _configs(model):
        _refuse_soft_caps(config)
    _refuse_two_texts(model, modules)
    for name, module in modules.items():
        _refuse_sink_parameters(name, module)
    for config in _configs(model):
        _refuse_implementation(config)


def _configs(model: nn.Module) -> list[Any]:
    """The configuration and, for composite models, that of the text part."""
    config = getattr(model, "config", None)
    if config is None:
        return []
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    return [config] if text is config else [config, text]


def _refuse_implementation(config: Any) -> None:
    implementation = getattr(config, "_attn_implementation", None)
    if implementation not in (None, "sdpa"):
        raise Refusal(
            f"The model runs its attention as {implementation!r}, which a tap cannot see into. "
            'Call model.set_attn_implementation("sdpa") first, or load the model with attn_implementation="sdpa".'
        )


def _refuse_soft_caps(config: Any) -> None:
    for field in _SOFT_CAPS:
        if cap := getattr(config, field, None):
            raise Refusal(
                f"The model caps its attention scores ({field}={cap}), which scaled_dot_product_attention never shows, so the weights "
                "would be "
                "wrong. Models with soft caps (Gemma 2 and its kin) cannot be tapped; Gemma 3, Llama and Qwen have none."
            )


def _refuse_two_texts(model: nn.Module, modules: Iterable[str]) -> None:
    has_decoder = any(name.rpartition(".")[2] == "decoder" for name in modules)
    if has_decoder and getattr(getattr(model, "config", None), "is_encoder_decoder", False):
        raise Refusal(
            "This is an encoder-decoder model: its cross-attention reads one text from another, and positions, padding and nulls here "
            "are those of "
            "one text. Tap the encoder by itself: fl.tap(model.get_encoder())."
        )


def _refuse_sink_parameters(name: str, module: nn.Module) -> None:
    for parameter in module._parameters:
        if parameter in _SINK_PARAMETERS:
            raise Refusal(
                f"{name}.{parameter} adds a learned sink logit to the softmax, which scaled_dot_product_attention never shows, so the "
                "rows would "
                "not sum to 1. Models with sink logits (gpt-oss and its kin) cannot be tapped; Llama, Qwen and LLaDA have none."
            )
