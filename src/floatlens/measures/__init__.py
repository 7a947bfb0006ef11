"""From a trace to findings: pure functions from labelled arrays to labelled arrays."""

from floatlens.measures.anchors import RULES, find_anchors, margin
from floatlens.measures.dense import from_attention
from floatlens.measures.inputs import pool_steps, relative_depth
from floatlens.measures.rectangle import shared_rectangle
from floatlens.measures.received import lift, measured, received
from floatlens.measures.sweep import threshold_sweep

__all__ = [
    "RULES",
    "find_anchors",
    "from_attention",
    "lift",
    "margin",
    "measured",
    "pool_steps",
    "received",
    "relative_depth",
    "shared_rectangle",
    "threshold_sweep",
]
