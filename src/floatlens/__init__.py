"""floatlens shows where a language model looks while it writes, and what happens when it cannot.

The public API is flat. Names are imported when they are first used, because torch and transformers take seconds to import and a trace is read without them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from floatlens._version import __version__
from floatlens.errors import BrokenPromise, Refusal

if TYPE_CHECKING:
    from floatlens.capture.call import AttentionCall
    from floatlens.capture.edits import Before, Edit, Received
    from floatlens.capture.forward import Forward
    from floatlens.capture.tapping import Tap, tap
    from floatlens.models.language_model import Generation, LanguageModel
    from floatlens.models.loading import load
    from floatlens.models.prompts import Prompt
    from floatlens.trace.trace import Trace, open_trace

_HOMES = {
    "AttentionCall": "capture.call",
    "Before": "capture.edits",
    "Edit": "capture.edits",
    "Forward": "capture.forward",
    "Generation": "models.language_model",
    "LanguageModel": "models.language_model",
    "Prompt": "models.prompts",
    "Received": "capture.edits",
    "Tap": "capture.tapping",
    "Trace": "trace.trace",
    "load": "models.loading",
    "open_trace": "trace.trace",
    "tap": "capture.tapping",
}

__all__ = [
    "AttentionCall",
    "Before",
    "BrokenPromise",
    "Edit",
    "Forward",
    "Generation",
    "LanguageModel",
    "Prompt",
    "Received",
    "Refusal",
    "Tap",
    "Trace",
    "__version__",
    "load",
    "open_trace",
    "tap",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'floatlens' has no attribute {name!r}")
    value = getattr(import_module(f"floatlens.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
