"""From a trace to findings: pure functions from labelled arrays to labelled arrays. docs/reference/measures.md says what each is, and what it is read against."""

from floatlens.measures.absorption import absorption_of_anchors, absorption_of_first_token, absorption_of_strongest_key
from floatlens.measures.agreement import head_consensus, split_sinks
from floatlens.measures.anchors import RULES, find_anchors, margin
from floatlens.measures.comparison import Contrast, compare_traces
from floatlens.measures.dense import from_attention
from floatlens.measures.drift import jaccard_along, recall_of_first
from floatlens.measures.fair_share import lift, measured, received
from floatlens.measures.floating import float_index
from floatlens.measures.floating_rows import float_index_of_rows
from floatlens.measures.flow import direct_flow, rollout
from floatlens.measures.frontier import frontier_following
from floatlens.measures.geometry import advantage_split, anchor_geometry, contribution_of_anchors, effective_contribution, value_contrast
from floatlens.measures.gold_span import gold_attention, gold_lift_by_sample
from floatlens.measures.inputs import pool_steps, relative_depth
from floatlens.measures.persistence import anchor_kinds, lifetimes
from floatlens.measures.rectangle import shared_rectangle
from floatlens.measures.retrieval import retrieval_by_step, retrieval_scores
from floatlens.measures.retrieval_heads import mean_retrieval_score, normalised_for_display, retrieval_head_shares
from floatlens.measures.roles import role_shares, structural_slope, token_roles
from floatlens.measures.slopes import correlation_over, slope_over
from floatlens.measures.spread import dispersion
from floatlens.measures.summary import Finding, Summary, measure_trace
from floatlens.measures.sweep import threshold_sweep
from floatlens.measures.wandering import centroid, position_variance
from floatlens.statistics.effect_sizes import effect_size
from floatlens.statistics.interactions import interaction
from floatlens.statistics.permutation import permutation_test
from floatlens.statistics.proportions import bounded_difference, bounded_mean, bounded_ratio
from floatlens.statistics.ranks import auc, cliffs_delta
from floatlens.statistics.resampling import bootstrap, bootstrap_difference, bootstrap_ratio

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
    "structural_slope",
    "threshold_sweep",
    "token_roles",
    "value_contrast",
]
