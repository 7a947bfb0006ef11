"""floatlens shows where a language model looks while it writes, and what happens when it cannot."""

from floatlens._version import __version__
from floatlens.capture.call import AttentionCall
from floatlens.capture.edits import Before, Edit, Received
from floatlens.capture.forward import Forward
from floatlens.capture.tapping import Tap, tap
from floatlens.errors import BrokenPromise, Refusal

__all__ = ["AttentionCall", "Before", "BrokenPromise", "Edit", "Forward", "Received", "Refusal", "Tap", "__version__", "tap"]
