"""What the page shows of one sample of a trace: every array of `schema.ARRAYS` that the trace holds enough for.

Nothing is computed here that `floatlens.measures` does not offer; this module calls measures, averages them over steps or heads, and puts
their axes in order. What a measure refuses is left out, and `skipped` says why. Attention is read a few layers at a time.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import xarray as xr

from floatlens.errors import Refusal
from floatlens.measures import (
    absorption_of_anchors,
    absorption_of_first_token,
    absorption_of_strongest_key,
    advantage_split,
    anchor_geometry,
    centroid,
    commits_by_step,
    direct_flow,
    find_anchors,
    float_index,
    head_consensus,
    lift,
    pool_steps,
    retrieval_scores,
    role_shares,
    rollout,
    token_roles,
    value_contrast,
)
from floatlens.measures.inputs import HALVES, RECEIVED, by_layers
from floatlens.measures.received_attention import mean_over_heads
from floatlens.measures.roles import ROLES
from floatlens.report.page.schema import ANCHOR, ARRAYS, MEASURED, NOT_MEASURED

GEOMETRY = ("cosine", "norm_product", "score")
GOLD = "gold"  # the region that demos and evaluations mark
BY_STEP = ("step", "layer", "group", "key")


@dataclass
class SampleArrays:
    """The arrays of a sample with their axes in order, and the words that go with them."""

    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    measures: list[tuple[str, str]] = field(default_factory=list)  # names and units along the axis `measure`
    roles: list[str] = field(default_factory=list)
    regions: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)


class Deriving:
    """One sample, and what several arrays need of it."""

    def __init__(self, data: xr.Dataset, rule: str, eps: float) -> None:
        self.data, self.rule, self.eps = data, rule, eps
        self.result = SampleArrays()

    @cached_property
    def averaged(self) -> xr.Dataset:
        """Received attention, averaged over heads."""
        names = [name for name in (*RECEIVED, *HALVES) if name in self.data]
        if "mass" not in names:
            raise Refusal("It needs mass, which this trace does not hold. Record it with detail={'mass': 'head'} (--detail mass=head).")
        return by_layers(mean_over_heads, self.data[names])

    @cached_property
    def anchors(self) -> xr.Dataset:
        return find_anchors(self.averaged, rule=self.rule, eps=self.eps)

    @cached_property
    def anchors_by_head(self) -> xr.Dataset:
        if "head" not in self.data["mass"].dims:
            raise Refusal("It needs mass per head; record it with detail={'mass': 'head'} (--detail mass=head).")
        return find_anchors(self.data, rule=self.rule, eps=self.eps)

    def put(self, name: str, values: xr.DataArray) -> None:
        """Store an array with the axes of the format; an axis that it lacks gets length 1."""
        axes = ARRAYS[name][0]
        for axis in axes:
            if axis not in values.dims:
                values = values.expand_dims(axis)
        self.result.arrays[name] = values.transpose(*axes).values

    @contextmanager
    def leaving_out(self, name: str) -> Iterator[None]:
        """Say why something is missing, and go on."""
        try:
            yield
        except Refusal as refusal:
            self.result.skipped[name] = str(refusal)


def arrays_of(data: xr.Dataset, rule: str, eps: float, advance: Callable[[int], None] = lambda _: None) -> SampleArrays:
    """Everything the page shows of a sample, except values per head and key (`lift_by_head`).

    Examples
    --------
    >>> from floatlens.measures import from_attention
    >>> looks = from_attention(np.full((2, 1, 1, 4, 4), 0.25), groups={"masked": np.ones(4, bool)})
    >>> data = looks.assign(
    ...     state=(("step", "position"), np.full((2, 4), 1)), canvas=(("step", "position"), np.zeros((2, 4), int)),
    ...     confidence=(("step", "position"), np.full((2, 4), np.nan)), final=("position", [5] * 4), committed=("position", [-1] * 4),
    ... )
    >>> arrays_of(data, "lift", 3.0).arrays["mass"].shape
    (2, 1, 1, 4)
    """
    deriving = Deriving(data, rule, eps)
    for part in PARTS:
        part(deriving)
        advance(1)
    return deriving.result


def lift_by_head(data: xr.Dataset) -> np.ndarray | None:
    """Lift of every head, key and group by step; None where the trace kept only means over heads."""
    if "mass" not in data or "head" not in data["mass"].dims:
        return None
    values = by_layers(lambda part: xr.Dataset({"lift": lift(part)}), data[list(RECEIVED)])["lift"]
    return values.transpose(*ARRAYS["lift_by_head"][0]).values.astype(np.float32)


def _canvas(own: Deriving) -> None:
    for name in ("canvas", "state", "confidence", "final", "committed"):
        own.put(name, own.data[name])
    with own.leaving_out("roles"):
        own.put("role", token_roles(own.data))
    commits = commits_by_step(own.data)
    own.put("commits", commits["number"])
    own.put("commit_confidence", commits["confidence"])


def _received(own: Deriving) -> None:
    with own.leaving_out("attention"):
        for name in RECEIVED:
            own.put(name, own.averaged[name])
        anchors = own.anchors
        standing = xr.where(anchors["anchor"], ANCHOR, xr.where(anchors["measured"], MEASURED, NOT_MEASURED))
        own.put("standing", standing)
        where = centroid(own.averaged, anchors)
        own.put("centroid", where["centroid"])
        own.put("centroid_null", where["no_memory"])


def _absorption(own: Deriving) -> None:
    with own.leaving_out("absorption"):
        of_sets = [absorption_of_first_token(own.averaged)]
        try:
            of_sets.append(absorption_of_strongest_key(own.averaged))
        except Refusal as refusal:
            own.result.skipped["strongest key"] = str(refusal)
            of_sets.append(xr.full_like(of_sets[0], np.nan))
        of_sets.append(absorption_of_anchors(own.averaged, own.anchors))
        for name, kind in (("absorbed", "share"), ("absorbed_null", "null")):
            first = of_sets[0]["share"]
            own.put(name, xr.concat([absorbed[kind].broadcast_like(first).transpose(*first.dims) for absorbed in of_sets], "set"))


def _entropy(own: Deriving) -> None:
    with own.leaving_out("entropy"):
        if "entropy" not in own.data:
            raise Refusal("It needs entropy, which this trace does not hold. Record it with --detail entropy=head.")
        entropy = own.data["entropy"]
        own.put("entropy", entropy.mean("head") if "head" in entropy.dims else entropy)
        if "head" in entropy.dims:
            own.put("entropy_by_head", entropy)


def _float_index(own: Deriving) -> None:
    with own.leaving_out("float index"):
        index = float_index(own.averaged, rule=own.rule, eps=own.eps)
        own.put("float_index", xr.concat([index[name] for name in ("float_index", "no_memory", "compared", "no_movement")], "index"))


def _top_keys(own: Deriving) -> None:
    with own.leaving_out("top keys"):
        if "top_key" not in own.data:
            raise Refusal("It needs top_key, which this trace does not hold. Record it with --detail top_keys=head.")
        written = np.flatnonzero(own.data["committed"].values >= 0)
        own.put("written", xr.DataArray(written, dims="written"))
        for name in ("top_key", "top_weight"):
            own.put(name, own.data[name].isel(position=written).rename(position="written"))


def _heads(own: Deriving) -> None:
    """Measures of every head, averaged over steps; and two of them by step."""
    with own.leaving_out("heads"):
        anchors, received = own.anchors_by_head, [name for name in (*RECEIVED, *HALVES) if name in own.data]
        first = absorption_of_first_token(own.data)
        own.put("first_by_head", first["share"])
        own.put("first_by_head_null", first["null"].broadcast_like(first["share"]))
        on_anchors, index = absorption_of_anchors(own.data, anchors), float_index(own.data, rule=own.rule, eps=own.eps)
        consensus = head_consensus(own.data)
        found: list[tuple[str, str, xr.DataArray, xr.DataArray | None]] = [
            ("share of the first token", "%", first["share"], first["null"]),
            ("share of the anchors", "%", on_anchors["share"], on_anchors["null"]),
            ("float index", "1 - Jaccard", index["float_index"], index["no_memory"]),
            ("heads of the layer with one strongest key", "share", consensus["consensus"], consensus["null"]),
        ]
        if "entropy" in own.data and "head" in own.data["entropy"].dims:
            found.insert(2, ("row entropy", "share of its maximum", own.data["entropy"], None))
        if "mass_even" in own.data and "head" in own.data["mass_even"].dims:
            strongest = absorption_of_strongest_key(by_layers(pool_steps, own.data[received]))
            found.insert(1, ("share of the strongest key", "%", strongest["share"], strongest["null"]))
        if "top_key" in own.data and "region" in own.data.coords and GOLD in own.data["region"].values:
            scores = retrieval_scores(own.data, GOLD)
            found.append(("retrieval score", "share of the needle", scores["score"], scores["null"]))
        like = first["share"].mean("step")
        own.result.measures = [(name, unit) for name, unit, _, _ in found]
        nothing = xr.full_like(like, np.nan)
        own.put("head_value", xr.concat([_over_steps(value, like) for _, _, value, _ in found], "measure"))
        own.put("head_null", xr.concat([nothing if null is None else _over_steps(null, like) for _, _, _, null in found], "measure"))


def _over_steps(values: xr.DataArray, like: xr.DataArray) -> xr.DataArray:
    averaged = values.mean("step") if "step" in values.dims else values
    return averaged.broadcast_like(like).transpose(*like.dims)


def _geometry(own: Deriving) -> None:
    with own.leaving_out("geometry"):
        if missing := [name for name in (*GEOMETRY, "key_norm", "value_norm") if name not in own.data]:
            raise Refusal(f"It needs {missing[0]}, which this trace does not hold. Record it with --detail geometry=layer,norms=layer.")
        names = [*GEOMETRY, "key_norm", "value_norm"]
        kept = own.data[names]
        by_layer = by_layers(lambda part: part.mean("head") if "head" in part.dims else part, kept)
        of_run = find_anchors(by_layers(pool_steps, own.averaged[list(RECEIVED)]), rule=own.rule, eps=own.eps)
        own.put("geometry", xr.concat([by_layer[name].mean("step") for name in GEOMETRY], "quantity"))
        standing = xr.where(of_run["anchor"], ANCHOR, xr.where(of_run["measured"], MEASURED, NOT_MEASURED))
        own.put("geometry_standing", standing)
        means = anchor_geometry(by_layer, own.anchors).mean("step")
        own.put("geometry_means", xr.concat([means[name] for name in GEOMETRY], "quantity"))
        contrast = value_contrast(by_layer, own.anchors).mean("step")
        own.put("value_norms", xr.concat([contrast["anchor_norm"], contrast["rest_norm"]], "kind"))
    with own.leaving_out("advantage"):
        split = advantage_split(own.data, own.anchors_by_head).mean("step")
        own.put("advantage", xr.concat([split[name] for name in ("advantage", "direction", "norm")], "part"))


def _roles(own: Deriving) -> None:
    with own.leaving_out("roles by depth"):
        shares = role_shares(own.data.assign(dict(own.averaged[list(RECEIVED)].data_vars)), own.anchors)
        own.result.roles = [str(role) for role in shares["role"].values]
        for name, array in (("share", "role_share"), ("null", "role_null"), ("enrichment", "role_enrichment")):
            own.put(array, shares[name])


def _flow(own: Deriving) -> None:
    with own.leaving_out("region flow"):
        flow = direct_flow(own.data)
        own.result.regions = [str(region) for region in flow["region"].values]
        for name, array in (("direct", "flow"), ("null", "flow_null"), ("fair", "flow_fair")):
            own.put(array, flow[name].mean("step"))
    with own.leaving_out("rollout"):
        rolled = rollout(own.data, pooled=True, cumulative=True)
        regions = [str(region) for region in rolled["key_region"].values]
        if "answer" not in regions:
            raise Refusal("It needs a region called answer, which this trace does not have.")
        answer = rolled.sel(query_region="answer").rename(key_region="region").reindex(region=own.result.regions or regions)
        own.result.regions = own.result.regions or regions
        own.put("rollout", answer["rollout"])
        own.put("rollout_null", answer["null"])


PARTS = (_canvas, _received, _absorption, _entropy, _float_index, _top_keys, _heads, _geometry, _roles, _flow)
"""What is derived, one after the other."""

assert len(ROLES) < 128  # they are stored in one byte
