"""floatlens shows where a language model looks while it writes, and what happens when it cannot.

The public API is flat. Names are imported when they are first used, because torch and transformers take seconds to import and a
trace is read without them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from floatlens._version import __version__
from floatlens.errors import BrokenPromise, Refusal
from floatlens.trace.viewing import show_traces_with

if TYPE_CHECKING:
    from floatlens.capture.call import AttentionCall
    from floatlens.capture.edits import Before, Edit, Received
    from floatlens.capture.forward import Forward
    from floatlens.capture.tapping import Tap, tap
    from floatlens.decoding.prompts import Prompt
    from floatlens.interventions import (
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
    from floatlens.interventions.run import InterventionRun
    from floatlens.measures import (
        absorption_of_anchors,
        absorption_of_first_token,
        absorption_of_strongest_key,
        advantage_split,
        anchor_geometry,
        bootstrap,
        compare_traces,
        direct_flow,
        find_anchors,
        float_index,
        from_attention,
        measure_trace,
        retrieval_scores,
        role_shares,
        rollout,
        shared_rectangle,
        threshold_sweep,
    )
    from floatlens.models.language_model import Generation, LanguageModel
    from floatlens.models.loading import load
    from floatlens.report.page.widget import view
    from floatlens.study.evaluation import Evaluation, evaluate
    from floatlens.trace.trace import Trace, open_trace
    from floatlens.trace.verification import verify

_HOMES = {
    "AttentionCall": "capture.call",
    "Before": "capture.edits",
    "Edit": "capture.edits",
    "Evaluation": "study.evaluation",
    "ExtraSinkToken": "interventions",
    "Forward": "capture.forward",
    "Generation": "models.language_model",
    "Intervention": "interventions",
    "InterventionRun": "interventions.run",
    "KeepSinks": "interventions",
    "LanguageModel": "models.language_model",
    "MaskAbove": "interventions",
    "MaskAnchors": "interventions",
    "MaskHeads": "interventions",
    "Prompt": "decoding.prompts",
    "RandomHeads": "interventions",
    "RandomKeys": "interventions",
    "Received": "capture.edits",
    "Tap": "capture.tapping",
    "Trace": "trace.trace",
    "ZeroAnchorValues": "interventions",
    "absorption_of_anchors": "measures",
    "absorption_of_first_token": "measures",
    "absorption_of_strongest_key": "measures",
    "advantage_split": "measures",
    "anchor_geometry": "measures",
    "bootstrap": "measures",
    "compare_traces": "measures",
    "direct_flow": "measures",
    "evaluate": "study.evaluation",
    "find_anchors": "measures",
    "float_index": "measures",
    "from_attention": "measures",
    "load": "models.loading",
    "measure_trace": "measures",
    "open_trace": "trace.trace",
    "retrieval_scores": "measures",
    "role_shares": "measures",
    "rollout": "measures",
    "shared_rectangle": "measures",
    "tap": "capture.tapping",
    "threshold_sweep": "measures",
    "verify": "trace.verification",
    "view": "report.page.widget",
}

__all__ = [
    "AttentionCall",
    "Before",
    "BrokenPromise",
    "Edit",
    "Evaluation",
    "ExtraSinkToken",
    "Forward",
    "Generation",
    "Intervention",
    "InterventionRun",
    "KeepSinks",
    "LanguageModel",
    "MaskAbove",
    "MaskAnchors",
    "MaskHeads",
    "Prompt",
    "RandomHeads",
    "RandomKeys",
    "Received",
    "Refusal",
    "Tap",
    "Trace",
    "ZeroAnchorValues",
    "__version__",
    "absorption_of_anchors",
    "absorption_of_first_token",
    "absorption_of_strongest_key",
    "advantage_split",
    "anchor_geometry",
    "bootstrap",
    "compare_traces",
    "direct_flow",
    "evaluate",
    "find_anchors",
    "float_index",
    "from_attention",
    "load",
    "measure_trace",
    "open_trace",
    "retrieval_scores",
    "role_shares",
    "rollout",
    "shared_rectangle",
    "tap",
    "threshold_sweep",
    "verify",
    "view",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'floatlens' has no attribute {name!r}")
    value = getattr(import_module(f"floatlens.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)


show_traces_with(lambda *traces, **choices: __getattr__("view")(*traces, **choices))
