"""From a trace to numbers: pure functions from labelled arrays to labelled arrays. docs/reference/measures.md says what each is.

A new measure is a function in the file of its subject (absorption, drift, floating, path, flow, geometry, roles, ...), or in a file
of its own; it is exported here, and a line in `catalogue.py` puts it into the report of `floatlens measure`. `inputs.py` says what
measures are given, `received_attention.py` what a key receives and what that is compared with.
"""

from floatlens.anchor_rules import RULES
from floatlens.measures.absorption import absorption_of_anchors, absorption_of_first_token, absorption_of_strongest_key, dispersion
from floatlens.measures.agreement import head_consensus, split_sinks
from floatlens.measures.anchors import find_anchors, margin, threshold_sweep
from floatlens.measures.commits import commits_by_step
from floatlens.measures.drift import anchor_kinds, jaccard_along, lifetimes, recall_of_first
from floatlens.measures.floating import float_index, float_index_of_rows
from floatlens.measures.flow import direct_flow, rollout
from floatlens.measures.geometry import advantage_split, anchor_geometry, contribution_of_anchors, effective_contribution, value_contrast
from floatlens.measures.gold_span import gold_attention, gold_lift_by_sample
from floatlens.measures.inputs import relative_depth
from floatlens.measures.path import floats, strongest_path
from floatlens.measures.received_attention import from_attention, lift, measured, pool_steps, received, shared_rectangle
from floatlens.measures.retrieval import (
    mean_retrieval_score,
    normalised_for_display,
    retrieval_by_step,
    retrieval_head_shares,
    retrieval_scores,
)
from floatlens.measures.roles import role_shares, structural_slope, token_roles
from floatlens.measures.summary import Contrast, Finding, Summary, compare_traces, measure_trace
from floatlens.measures.wandering import centroid, frontier_following, position_variance
from floatlens.statistics.effects import effect_size, interaction
from floatlens.statistics.permutation import auc, cliffs_delta, permutation_test
from floatlens.statistics.proportions import bounded_difference, bounded_mean, bounded_ratio
from floatlens.statistics.resampling import bootstrap, bootstrap_difference, bootstrap_ratio
from floatlens.statistics.slopes import correlation_over, slope_over

__all__ = [
    "RULES",
    "Contrast",
    "Finding",
    "Summary",
    "absorption_of_anchors",
    "absorption_of_first_token",
    "absorption_of_strongest_key",
    "advantage_split",
    "anchor_geometry",
    "anchor_kinds",
    "auc",
    "bootstrap",
    "bootstrap_difference",
    "bootstrap_ratio",
    "bounded_difference",
    "bounded_mean",
    "bounded_ratio",
    "centroid",
    "cliffs_delta",
    "commits_by_step",
    "compare_traces",
    "contribution_of_anchors",
    "correlation_over",
    "direct_flow",
    "dispersion",
    "effect_size",
    "effective_contribution",
    "find_anchors",
    "float_index",
    "float_index_of_rows",
    "floats",
    "from_attention",
    "frontier_following",
    "gold_attention",
    "gold_lift_by_sample",
    "head_consensus",
    "interaction",
    "jaccard_along",
    "lifetimes",
    "lift",
    "margin",
    "mean_retrieval_score",
    "measure_trace",
    "measured",
    "normalised_for_display",
    "permutation_test",
    "pool_steps",
    "position_variance",
    "recall_of_first",
    "received",
    "relative_depth",
    "retrieval_by_step",
    "retrieval_head_shares",
    "retrieval_scores",
    "role_shares",
    "rollout",
    "shared_rectangle",
    "slope_over",
    "split_sinks",
    "strongest_path",
    "structural_slope",
    "threshold_sweep",
    "token_roles",
    "value_contrast",
]
