"""What `floatlens measure` reports of a sample, one line per number.

A new number in the report is a new line in `CATALOGUE` (or in `SHARED`, for what two models are also compared by): its name, its unit,
and a function from a `Sample`, which holds what measures share, to the value and its null. Values are means over steps and heads, by
layer and group as far as those exist; `part` names what else there is (a role, a region, a kind).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import xarray as xr

from floatlens.errors import Refusal
from floatlens.measures.absorption import absorption_of_anchors, absorption_of_first_token, absorption_of_strongest_key, dispersion
from floatlens.measures.agreement import head_consensus, split_sinks
from floatlens.measures.anchors import find_anchors
from floatlens.measures.drift import anchor_kinds, jaccard_along, lifetimes, recall_of_first
from floatlens.measures.floating import float_index
from floatlens.measures.flow import direct_flow, rollout
from floatlens.measures.geometry import GEOMETRY, advantage_split, anchor_geometry, contribution_of_anchors, value_contrast
from floatlens.measures.gold_span import gold_attention
from floatlens.measures.inputs import HALVES, RECEIVED, refuse_missing
from floatlens.measures.path import looks_of, path_of
from floatlens.measures.received_attention import pool_steps, shared_rectangle
from floatlens.measures.retrieval import retrieval_scores
from floatlens.measures.roles import role_shares, structural_slope
from floatlens.measures.wandering import frontier_following, position_variance

Values = Mapping[str, xr.DataArray]
"""`value`, and `null` and `reason` where there is one."""

CANVAS = ("state", "canvas", "final", "committed", "template", "special", "char_start", "char_stop", "in_region")
READ = (*RECEIVED, *HALVES, *GEOMETRY, *CANVAS, "entropy", "flow", "flow_null", "region_rows", "top_key")
"""What measures look at."""


@dataclass(frozen=True, eq=False)
class Sample:
    """One sample, and what several measures need of it, computed once."""

    data: xr.Dataset
    rule: str
    eps: float
    gold: str | None = None

    @classmethod
    def of(cls, data: xr.Dataset, rule: str, eps: float, gold: str | None = None, *, rectangle: bool = False) -> "Sample":
        """Read a sample into memory: all of it that measures look at, or the rectangle that models of both kinds share."""
        there = [name for name in READ if name in data]
        loaded = data[there].load()
        return cls(shared_rectangle(loaded) if rectangle else loaded, rule, eps, gold)

    @cached_property
    def anchors(self) -> xr.Dataset:
        """Of each step."""
        return find_anchors(self.data, rule=self.rule, eps=self.eps)

    @cached_property
    def anchors_of_layers(self) -> xr.Dataset:
        """Of each step, on attention averaged over heads."""
        return find_anchors(self.data, rule=self.rule, eps=self.eps, per_head=False)

    @cached_property
    def run(self) -> xr.Dataset:
        """All rows of all steps together."""
        return pool_steps(self.data)

    @cached_property
    def anchors_of_run(self) -> xr.Dataset:
        return find_anchors(self.run, rule=self.rule, eps=self.eps)

    @cached_property
    def anchors_for_geometry(self) -> xr.Dataset:
        """Per head where all of the geometry was kept per head."""
        refuse_missing(self.data, GEOMETRY, "QK geometry")
        return self.anchors if all("head" in self.data[name].dims for name in GEOMETRY) else self.anchors_of_layers

    @cached_property
    def geometry(self) -> xr.Dataset:
        return anchor_geometry(self.data, self.anchors_for_geometry)

    @cached_property
    def float_index(self) -> xr.Dataset:
        return float_index(self.data, rule=self.rule, eps=self.eps)

    @cached_property
    def paths(self) -> xr.Dataset:
        """Of the strongest key in each layer, among all keys and, where the canvas is known, among those of the prompt (axis `part`)."""
        return self._paths(pooled=False)

    @cached_property
    def pooled_paths(self) -> xr.Dataset:
        """The same of attention averaged over layers, by `depth`."""
        return self._paths(pooled=True)

    def _paths(self, *, pooled: bool) -> xr.Dataset:
        looks = looks_of(self.data, pooled=pooled)
        everywhere = path_of(looks, self.data, "all")
        if "state" not in self.data:
            return everywhere
        parts = [everywhere, path_of(looks, self.data, "prompt")]
        return xr.concat(parts, xr.DataArray(["all keys", "prompt keys"], dims="part", name="part"))

    @cached_property
    def dispersion(self) -> xr.Dataset:
        return dispersion(self.data, self.anchors)

    @cached_property
    def variance(self) -> xr.Dataset:
        return position_variance(self.data, self.anchors)

    @cached_property
    def roles(self) -> xr.Dataset:
        return role_shares(self.data, self.anchors)

    @cached_property
    def flow(self) -> xr.Dataset:
        return direct_flow(self.data)


RANGES = {
    "%": (0.0, 100.0),
    "share": (0.0, 1.0),
    "1 - Jaccard": (0.0, 1.0),
    "Jaccard": (0.0, 1.0),
    "correlation": (-1.0, 1.0),
    "cosine": (-1.0, 1.0),
    "difference": (-1.0, 1.0),
    "keys": (0.0, np.inf),
    "different keys": (1.0, np.inf),
    "steps": (0.0, np.inf),
    "variance": (0.0, np.inf),
    "length": (0.0, np.inf),
    "ratio": (0.0, np.inf),
    "q·k": (-np.inf, np.inf),
    "slope": (-np.inf, np.inf),
}
"""The units, and what a number in each can be: intervals end there. A ratio of 1 is a fair share."""


@dataclass(frozen=True)
class Line:
    """One number of the report."""

    name: str
    unit: str
    of: Callable[[Sample], Values]
    needs_gold: bool = False


def _mean(result: xr.Dataset, value: str, null: str | None = None, part: str | None = None) -> Values:
    """A variable and its null, averaged over steps and heads; `part` is the axis that tells its parts apart."""
    names = {"value": value} if null is None else {"value": value, "null": null}
    averaged = {key: result[name].mean([axis for axis in ("step", "head") if axis in result[name].dims]) for key, name in names.items()}
    if "reason" in result:
        averaged["reason"] = most_frequent_reason(result["reason"])
    return (
        averaged
        if part is None
        else {key: values.rename({part: "part"}) if part in values.dims else values for key, values in averaged.items()}
    )


def most_frequent_reason(reasons: xr.DataArray) -> xr.DataArray:
    """The sentence that is given most often, by group; "" only where no other is given. Of equally frequent ones, the first by alphabet.

    Examples
    --------
    >>> str(most_frequent_reason(xr.DataArray(["", "", "", "no anchors", "one step", "one step"], dims="head")).values)
    'one step'
    """
    others = [axis for axis in reasons.dims if axis != "group"]

    def most_frequent(texts: Any) -> str:  # an array, or a single text
        sentences, counts = np.unique([text for text in np.ravel(texts) if text], return_counts=True)
        return str(sentences[counts.argmax()]) if len(sentences) else ""

    return xr.apply_ufunc(
        most_frequent,
        reasons,
        input_core_dims=[others],
        vectorize=True,
        output_dtypes=[object],
    )


def _parts(result: xr.Dataset, names: Sequence[str]) -> Values:
    """Several variables as parts of one number."""
    return {"value": xr.concat([_mean(result, name)["value"] for name in names], xr.DataArray(list(names), dims="part", name="part"))}


def _of_run(sample: Sample) -> Values:
    return _mean(absorption_of_anchors(sample.run, sample.anchors_of_run), "share", "null")


def _along_layers(sample: Sample) -> Values:
    if sample.anchors.sizes["layer"] < 2:
        raise Refusal("The trace has one layer, so there are no neighbouring layers to compare.")
    along = jaccard_along(sample.anchors, "layer")
    return _mean(1 - along[["jaccard", "no_memory"]], "jaccard", "no_memory")


def _entropy(sample: Sample) -> Values:
    refuse_missing(sample.data, ("entropy",), "Row entropy")
    return _mean(sample.data[["entropy"]], "entropy")


def _recall(sample: Sample) -> Values:
    """At the steps after the first, which recalls all of its own."""
    return _mean(recall_of_first(sample.anchors)[["recall", "no_memory"]].isel(step=slice(1, None)), "recall", "no_memory")


def _frontier(sample: Sample) -> Values:
    return _mean(frontier_following(sample.data, sample.anchors), "correlation", "null")


def _advantage(sample: Sample) -> Values:
    return _parts(advantage_split(sample.data, sample.anchors), ("direction", "norm"))


def _value_norms(sample: Sample) -> Values:
    return _mean(value_contrast(sample.data, sample.anchors_for_geometry), "ratio")


def _contribution(sample: Sample) -> Values:
    return _mean(contribution_of_anchors(sample.data, sample.anchors), "share", "null")


def _slope(sample: Sample) -> Values:
    slopes = structural_slope(sample.roles)
    return {"value": slopes["slope"], "reason": most_frequent_reason(slopes["reason"])}


def _rollout(sample: Sample) -> Values:
    rolled = rollout(sample.data, pooled=True).sel(query_region="answer")
    return _mean(rolled, "rollout", "null", "key_region")


def _retrieval(sample: Sample) -> Values:
    assert sample.gold is not None
    return _mean(retrieval_scores(sample.data, sample.gold), "score", "null")


def _gold_lift(sample: Sample) -> Values:
    assert sample.gold is not None
    return _mean(gold_attention(sample.data, sample.gold), "lift")


def _movement(paths: xr.Dataset) -> Values:
    return _mean(paths[["movement", "noise_reason"]].rename(noise_reason="reason"), "movement")


def _path_lines(ending: str, paths: Callable[[Sample], xr.Dataset]) -> tuple[Line, ...]:
    """The numbers of a path, each with what noise alone would give: at most so many keys, so many changes, at least such a share."""
    return (
        Line(f"keys on the path{ending}", "different keys", lambda sample: _mean(paths(sample), "keys", "keys_null")),
        Line(f"changes of the path{ending}", "share", lambda sample: _mean(paths(sample), "changes", "noise")),
        Line(f"steps on the favourite key{ending}", "share", lambda sample: _mean(paths(sample), "share", "share_null")),
        Line(f"movement of the path{ending}", "difference", lambda sample: _movement(paths(sample))),
    )


SHARED = (
    Line("anchors of a head", "keys", lambda sample: _mean(sample.dispersion, "anchors")),
    Line("on the step's anchors", "%", lambda sample: _mean(absorption_of_anchors(sample.data, sample.anchors), "share", "null")),
    Line("on the run's anchors", "%", _of_run),
    Line("on the run's strongest key", "%", lambda sample: _mean(absorption_of_strongest_key(sample.run), "share", "null")),
    Line("on the first token", "%", lambda sample: _mean(absorption_of_first_token(sample.run), "share", "null")),
    Line("effective keys", "keys", lambda sample: _mean(sample.dispersion, "effective_keys", "null_effective_keys")),
    Line("Gini coefficient", "share", lambda sample: _mean(sample.dispersion, "gini", "null_gini")),
    Line("float index (no memory)", "1 - Jaccard", lambda sample: _mean(sample.float_index, "float_index", "no_memory")),
    Line("float index (no movement)", "1 - Jaccard", lambda sample: _mean(sample.float_index, "compared", "no_movement")),
    Line("movement", "difference", lambda sample: _mean(sample.float_index, "movement")),
    Line("drift along layers", "1 - Jaccard", _along_layers),
    Line("temporal variance", "variance", lambda sample: _mean(sample.variance, "temporal", "temporal_no_memory")),
    Line("spatial variance", "variance", lambda sample: _mean(sample.variance, "spatial", "spatial_null")),
    Line("heads with one strongest key", "share", lambda sample: _mean(head_consensus(sample.data), "consensus", "null")),
    *_path_lines("", lambda sample: sample.paths),
    *_path_lines(", layers pooled", lambda sample: sample.pooled_paths),
)
"""Numbers of received attention: of a whole trace, or of the rectangle on which two models are compared."""

ON_RECTANGLE = (Line("attention on the prompt", "share", lambda sample: _mean(sample.data, "on_prompt", "on_prompt_null")), *SHARED)
"""What two models are compared by."""

CATALOGUE = (
    *SHARED,
    Line("row entropy", "share", _entropy),
    Line("recall of the first anchors", "share", _recall),
    Line("lifetime of an anchor", "steps", lambda sample: _mean(lifetimes(sample.anchors), "mean", "no_memory")),
    Line("kinds of anchors", "share", lambda sample: _mean(anchor_kinds(sample.anchors), "share", "no_memory", "kind")),
    Line("follows the frontier", "correlation", _frontier),
    Line("masked and unmasked agree", "Jaccard", lambda sample: _mean(split_sinks(sample.anchors), "jaccard", "no_memory")),
    Line("score", "q·k", lambda sample: _mean(sample.geometry, "score", part="kind")),
    Line("cosine", "cosine", lambda sample: _mean(sample.geometry, "cosine", part="kind")),
    Line("norm product", "length", lambda sample: _mean(sample.geometry, "norm_product", part="kind")),
    Line("score advantage of anchors", "q·k", _advantage),
    Line("value norm of anchors", "ratio", _value_norms),
    Line("contribution of anchors", "%", _contribution),
    Line("anchor mass by role", "share", lambda sample: _mean(sample.roles, "share", "null", "role")),
    Line("enrichment of roles", "ratio", lambda sample: _mean(sample.roles, "enrichment", part="role")),
    Line("structure over depth", "slope", _slope),
    Line("direct flow", "share", lambda sample: _mean(sample.flow, "direct", "null", "region")),
    Line("fair flow", "ratio", lambda sample: _mean(sample.flow, "fair", part="region")),
    Line("rollout of the answer", "share", _rollout),
    Line("retrieval score", "share", _retrieval, needs_gold=True),
    Line("lift of the gold span", "ratio", _gold_lift, needs_gold=True),
)
"""Everything that is reported of a trace."""
