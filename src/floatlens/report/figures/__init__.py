"""Figures: one function each, from a trace to a `matplotlib.figure.Figure`, and `save_figure`."""

from floatlens.report.figures.absorption import absorption_by_layer
from floatlens.report.figures.curves import along_updates
from floatlens.report.figures.drift import temporal_drift
from floatlens.report.figures.floating import float_index_by_layer
from floatlens.report.figures.flow import region_flow
from floatlens.report.figures.geometry import qk_geometry
from floatlens.report.figures.masking import masking_against_controls
from floatlens.report.figures.path import path_by_layer
from floatlens.report.figures.retrieval import retrieval_heads
from floatlens.report.figures.roles import roles_by_depth
from floatlens.report.figures.style import save_figure
from floatlens.report.figures.sweep import threshold_sweep
from floatlens.report.figures.visibility import against_visible_share

__all__ = [
    "absorption_by_layer",
    "against_visible_share",
    "along_updates",
    "float_index_by_layer",
    "masking_against_controls",
    "path_by_layer",
    "qk_geometry",
    "region_flow",
    "retrieval_heads",
    "roles_by_depth",
    "save_figure",
    "temporal_drift",
    "threshold_sweep",
]
