"""floatlens shows where a language model looks while it writes, and what happens when it cannot."""

from floatlens._version import __version__
from floatlens.capture.call import AttentionCall
from floatlens.capture.edits import Before, Edit, Received
from floatlens.capture.forward import Forward
from floatlens.capture.tapping import Tap, tap
from floatlens.errors import BrokenPromise, Refusal
from floatlens.models.language_model import Generation, LanguageModel
from floatlens.models.loading import load
from floatlens.models.prompts import Prompt
from floatlens.trace.trace import Trace, open_trace

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
