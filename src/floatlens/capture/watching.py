"""Be told of every call of `scaled_dot_product_attention` in a thread, while a part of a model runs that may make one.

A `TorchFunctionMode` sees the function however a model came by it, but it slows down every other function of torch: a small layer takes a
fifth longer. So it stays only until it is known how a model calls. If all calls of a forward looked the function up in
`torch.nn.functional`, as transformers does, that name leads here from then on, and no other function does; the next tap on the model
begins with that. A model that no longer looks it up then makes a call that nobody sees, which the tap refuses, since it counts them;
what was known of the model is forgotten then.

The name leads here while any tap is open, for all threads; where nobody watches, it is torch's function and nothing else. If another
program has put a function of its own there, it is left alone, and the mode stays.
"""

import threading
from collections.abc import Callable
from functools import wraps
from typing import Any
from weakref import WeakSet

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

ATTENTION: Callable[..., Tensor] = torch._C._nn.scaled_dot_product_attention  # type: ignore  # torch types no _nn
_NAME = "scaled_dot_product_attention"
_lock = threading.Lock()
_here = threading.local()
_open = 0
_look_it_up: WeakSet[nn.Module] = WeakSet()  # models all of whose calls did so when they last ran in a tap


@wraps(ATTENTION)
def _by_name(*args: Any, **kwargs: Any) -> Tensor:
    """What `torch.nn.functional.scaled_dot_product_attention` is while a tap is open."""
    watch = getattr(_here, "watch", None)
    return ATTENTION(*args, **kwargs) if watch is None else watch.called_by_name(args, kwargs)


class AttentionWatch:
    """A context that is entered and left again and again; inside, `on_attention` runs every call. `begin` before, `end` after all of it."""

    def __init__(self, model: nn.Module, on_attention: Callable[..., Tensor]) -> None:
        self._model, self._on_attention = model, on_attention
        self._mode, self._in_mode = _Mode(self), False
        self._seen = self._seen_by_name = 0
        self._needs_mode = True
        self._named = False  # whether the call that the mode is about to see was looked up

    def begin(self) -> None:
        """A tap is open from now on."""
        global _open
        with _lock:
            _open += 1
            if getattr(F, _NAME) is ATTENTION:
                setattr(F, _NAME, _by_name)
            self._needs_mode = self._model not in _look_it_up or getattr(F, _NAME) is not _by_name

    def end(self) -> None:
        """A tap is closed; the last one puts torch's function back."""
        global _open
        with _lock:
            _open -= 1
            if not _open and getattr(F, _NAME) is _by_name:
                setattr(F, _NAME, ATTENTION)

    def settle(self) -> None:
        """A forward is over: if all of its calls were looked up, the mode is not needed any more."""
        if self._needs_mode:
            self._needs_mode = not 0 < self._seen == self._seen_by_name
            with _lock:
                (_look_it_up.discard if self._needs_mode else _look_it_up.add)(self._model)

    def forget(self) -> None:
        """A call is missing: nothing is known any more of how the model calls."""
        self._needs_mode = True
        with _lock:
            _look_it_up.discard(self._model)

    def __enter__(self) -> None:
        _here.watch = self
        self._in_mode = self._needs_mode
        if self._in_mode:
            self._mode.__enter__()

    def __exit__(self, *_: object) -> None:
        _here.watch = None
        if self._in_mode:
            self._mode.__exit__(None, None, None)

    def called_by_name(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        """The function was looked up and called."""
        if self._in_mode:
            self._named = True
            return ATTENTION(*args, **kwargs)  # which the mode sees
        return self._run(args, kwargs)

    def called_in_mode(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        """The function was called, by whatever name."""
        self._seen += 1
        self._seen_by_name += self._named
        self._named = False
        return self._run(args, kwargs)

    def _run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        _here.watch = None  # what runs a call may call the function as well
        try:
            return self._on_attention(ATTENTION, args, kwargs)
        finally:
            _here.watch = self


class _Mode(TorchFunctionMode):
    """Tells of each attention call, and hands everything else on."""

    def __init__(self, watch: AttentionWatch) -> None:
        super().__init__()
        self._watch = watch

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is ATTENTION:
            return self._watch.called_in_mode(args, kwargs or {})
        return func(*args, **(kwargs or {}))
