"""What a reducer is told about a call, and how the records of single calls become one `xarray.Dataset`.

An `Observation` is the call and its `Scene`: everything that does not depend on the layer, namely who sees whom, and into which groups
and regions rows and keys fall, with the counts and nulls that follow. Layers that share a mask share a scene, so that these are computed
once per forward.

Axes of the dataset are always in the order `sample, step, layer, head, group, query, key`; `step` is there only if the tap was told what
a step is. Calls may differ in heads, queries and keys (a growing cache, a sliding window, layers of different width): each variable is as
wide as its widest call, and what does not exist is NaN (-1 for key positions).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from floatlens.capture.call import AttentionCall
from floatlens.capture.layers import LayerIdentity
from floatlens.capture.visibility import Visibility
from floatlens.errors import Refusal

Labelled = tuple[tuple[str, ...], Tensor]
"""Names of the axes, and the values."""


@dataclass(frozen=True, eq=False)
class Scene:
    """What the layers of a forward share. Regions are empty unless they were given."""

    visibility: Visibility
    query_start: int  # position of the first query: above 0 with a cache
    key_start: int  # position of the first key: above 0 for a sliding-window cache
    length: Tensor  # (sample,): real positions up to the last query, cached ones included
    group_names: tuple[str, ...]
    groups: Tensor  # bool (sample, group, query)
    query_positions: Tensor  # (sample, query): position of each row in its sample's own text, padding left out
    region_names: tuple[str, ...]
    query_regions: Tensor  # bool (sample, region, query)
    key_regions: Tensor  # bool (sample, region, key)

    @cached_property
    def group_rows(self) -> Tensor:
        """1 for every row that counts for a group: in the group, real, and with something to see. (sample, head or 1, group, query)."""
        return (self.groups[:, None] & self.visibility.live_rows[:, :, None]).float()

    @cached_property
    def group_sizes(self) -> Tensor:
        """How many rows count for each group: (sample, head or 1, group)."""
        return self.group_rows.sum(-1)

    @cached_property
    def rows_without_keys(self) -> Tensor:
        """How many real rows of each group have nothing to see: (sample, head or 1, group)."""
        return (self.groups[:, None] & self.visibility.dead_rows[:, :, None]).sum(-1).float()

    @cached_property
    def even_rows(self) -> Tensor:
        """As `group_rows`, of the rows at even positions only."""
        return self.group_rows * (self.query_positions % 2 == 0)[:, None, None]

    @cached_property
    def seeing_rows(self) -> Tensor:
        """How many rows of each group may see each key: (sample, head or 1, group, key). NaN at padding."""
        return self._seeing(self.group_rows)

    @cached_property
    def null(self) -> Tensor:
        """Mean, over the rows that see a key, of one over the keys each sees: (sample, head or 1, group, key). NaN if no row sees it."""
        return self._spread_evenly(self.group_rows) / self.seeing_rows

    def _seeing(self, rows: Tensor) -> Tensor:
        return self.only_real_keys(self.visibility.sum_over_seeing_rows(rows))

    @cached_property
    def counts(self) -> dict[str, Labelled]:
        """What mass is read against: visible queries, null, rows, and rows with nothing to see."""
        return {
            "visible": self.labelled(self.seeing_rows, "group", "key"),
            "null": self.labelled(self.null, "group", "key"),
            "rows": self.labelled(self.group_sizes, "group"),
            "rows_without_keys": self.labelled(self.rows_without_keys, "group"),
        }

    @cached_property
    def even_counts(self) -> dict[str, Labelled]:
        """As `counts`, for the rows at even positions."""
        seeing = self._seeing(self.even_rows)
        return {
            "visible_even": self.labelled(seeing, "group", "key"),
            "null_even": self.labelled(self._spread_evenly(self.even_rows) / seeing, "group", "key"),
            "rows_even": self.labelled(self.even_rows.sum(-1), "group"),
        }

    @cached_property
    def has_entropy(self) -> Tensor:
        """Rows that see at least two keys: bool (sample, head or 1, query)."""
        return self.visibility.live_rows & (self.visibility.keys_seen > 1)

    @cached_property
    def most_bits(self) -> Tensor:
        """The largest entropy each row could have: (sample, head or 1, query)."""
        return self.visibility.keys_seen.clamp(min=2).log2()

    @cached_property
    def entropy_weights(self) -> Tensor:
        """What turns the bits of each row into the group's mean relative entropy: (sample, head or 1, query, group)."""
        rows = self.group_rows * self.has_entropy[:, :, None]
        return (rows / self.most_bits[:, :, None] / rows.sum(-1, keepdim=True)).transpose(-1, -2)

    @cached_property
    def region_rows(self) -> Tensor:
        """As `group_rows`, for regions of queries: (sample, head or 1, region, query)."""
        return (self.query_regions[:, None] & self.visibility.live_rows[:, :, None]).float()

    @cached_property
    def flow_null(self) -> Tensor:
        """The mass from region to region if every row spread evenly: (sample, head or 1, query region, key region)."""
        return self._spread_evenly(self.region_rows) @ self.key_regions[:, None].transpose(-1, -2).float()

    def _spread_evenly(self, rows: Tensor) -> Tensor:
        """The mass each key would get from `rows` (sample, head or 1, group, query) if each spread evenly over what it sees."""
        return self.visibility.sum_over_seeing_rows(rows / self.visibility.keys_seen.clamp(min=1)[:, :, None])

    def only_real_keys(self, values: Tensor) -> Tensor:
        """NaN at padding keys: `values` starts with (sample,) and ends in (key,)."""
        if self.visibility.all_keys_real:
            return values
        real = self.visibility.real_keys.reshape(-1, *(1,) * (values.dim() - 2), values.shape[-1])
        return values.masked_fill(~real, float("nan"))

    def labelled(self, values: Tensor, *axes: str) -> Labelled:
        """Name the axes of `values` (sample or 1, head or 1, ...); the head axis goes where all heads are alike."""
        values = values.expand(self.groups.shape[0], *values.shape[1:])
        return (("sample", *axes), values.squeeze(1)) if values.shape[1] == 1 else (("sample", "head", *axes), values)


@dataclass(frozen=True, eq=False)
class Observation:
    """One call, ready to be reduced. Its *matrices* are the attention matrices of all samples and heads in one row, sample-major."""

    call: AttentionCall
    scene: Scene

    @property
    def visibility(self) -> Visibility:
        return self.scene.visibility

    @cached_property
    def query_norm(self) -> Tensor:
        """(sample, head, query), in at least float32."""
        return _norm(self.call.query)

    @cached_property
    def key_norm(self) -> Tensor:
        """(sample, head, key), in at least float32."""
        return self._per_query_head(_norm(self.call.key))

    @cached_property
    def value_norm(self) -> Tensor:
        """(sample, head, key), in at least float32."""
        return self._per_query_head(_norm(self.call.value))

    def _per_query_head(self, values: Tensor) -> Tensor:
        repeats = self.call.heads // values.shape[1]
        return values if repeats == 1 else values.repeat_interleave(repeats, dim=1)

    def per_matrix(self, rows: Tensor) -> Tensor:
        """(sample, head or 1, group, query) spelled out to (matrix, group, query)."""
        return rows.expand(-1, self.call.heads, -1, -1).flatten(0, 1).to(self.dtype)

    def per_head(self, values: Tensor) -> Tensor:
        """(matrix, ...) as (sample, head, ...)."""
        return values.unflatten(0, (self.call.samples, self.call.heads))

    def new(self, *shape: int, fill: float = 0.0) -> Tensor:
        """Room for a result, (matrix, *shape), in at least float32."""
        return torch.full((self.call.samples * self.call.heads, *shape), fill, dtype=self.dtype, device=self.call.query.device)

    @property
    def dtype(self) -> torch.dtype:
        """What weights are computed in: at least float32."""
        return torch.promote_types(self.call.query.dtype, torch.float32)


def _norm(vectors: Tensor) -> Tensor:
    return torch.linalg.vector_norm(vectors, dim=-1, dtype=torch.promote_types(vectors.dtype, torch.float32))


_ORDER = ("sample", "step", "layer", "chosen", "head", "group", "query_region", "key_region", "query", "key", "rank")


@dataclass(frozen=True)
class CallRecord:
    """What was kept of one call: arrays with the names of their axes."""

    identity: LayerIdentity
    heads: int
    query_start: int
    key_start: int
    group_names: tuple[str, ...]
    region_names: tuple[str, ...]
    pattern_heads: tuple[int, ...]
    length: np.ndarray  # (sample,): real positions up to the last query, cached ones included
    values: dict[str, tuple[tuple[str, ...], np.ndarray]]


def record_of(
    identity: LayerIdentity, observation: Observation, values: Mapping[str, Labelled], pattern_heads: tuple[int, ...] = ()
) -> CallRecord:
    """What was kept of a call, as numpy arrays."""
    scene = observation.scene
    return CallRecord(
        identity=identity,
        heads=observation.call.heads,
        query_start=scene.query_start,
        key_start=scene.key_start,
        group_names=scene.group_names,
        region_names=scene.region_names,
        pattern_heads=pattern_heads,
        length=scene.length.cpu().numpy(),
        values={name: (axes, array.cpu().numpy()) for name, (axes, array) in values.items()},
    )


@dataclass
class StepRecord:
    """The calls of one forward, in order."""

    calls: list[CallRecord] = field(default_factory=list)


def assemble(steps: Sequence[StepRecord], *, with_steps: bool, attributes: dict[str, Any]) -> xr.Dataset:
    """One dataset of all steps."""
    calls = [call for step in steps for call in step.calls]
    _refuse_changing(steps)
    layers = _layer_axis(calls)
    names = list(dict.fromkeys(name for call in calls for name in call.values))
    sizes = _sizes(calls) | {"step": len(steps), "layer": len(layers)}
    variables = {name: _variable(name, steps, layers, sizes, with_steps) for name in names if name != "pattern"}
    coordinates: dict[str, Any] = {
        "layer": [identity.layer for identity in layers],
        "module": ("layer", [identity.module for identity in layers]),
        "repeat": ("layer", [identity.repeat for identity in layers]),
        "heads": ("layer", [_heads_of(identity, calls) for identity in layers]),
        "group": list(calls[0].group_names),
    }
    if calls[0].region_names:
        coordinates |= {"query_region": list(calls[0].region_names), "key_region": list(calls[0].region_names)}
    if "pattern" in names:
        variables["pattern"] = _patterns(steps, sizes, with_steps)
        chosen = [(call.identity.layer, head) for call in _with_patterns(steps[0]) for head in call.pattern_heads]
        coordinates |= {"chosen_layer": ("chosen", [layer for layer, _ in chosen]), "chosen_head": ("chosen", [head for _, head in chosen])}
    lengths = np.stack([np.max([call.length for call in step.calls], axis=0) for step in steps], axis=1)
    variables["length"] = xr.Variable(("sample", "step"), lengths) if with_steps else xr.Variable(("sample",), lengths[:, 0])
    starts = np.array([step.calls[0].query_start for step in steps])
    variables["query_start"] = xr.Variable(("step",), starts) if with_steps else xr.Variable((), starts[0])
    used = {"layer"} | {axis for variable in variables.values() for axis in variable.dims}
    dataset = xr.Dataset(variables, attrs=attributes)
    return dataset.assign_coords(
        {name: value for name, value in coordinates.items() if (value[0] if isinstance(value, tuple) else name) in used}
    )


def _refuse_changing(steps: Sequence[StepRecord]) -> None:
    first = steps[0].calls[0]
    for number, step in enumerate(steps):
        for call in step.calls:
            if (call.group_names, call.region_names) != (first.group_names, first.region_names):
                raise Refusal(
                    f"Step {number} has the groups {call.group_names} and regions {call.region_names}, step 0 had {first.group_names} and "
                    f"{first.region_names}. Return the same names at every step; a group may be empty."
                )
            if len(call.length) != len(first.length):
                raise Refusal(
                    f"Step {number} runs {len(call.length)} samples, step 0 ran {len(first.length)}. Keep the batch together over the "
                    "steps of one "
                    "tap, or pass samples=slice(0, B) to record some of them."
                )


def _layer_axis(calls: Sequence[CallRecord]) -> list[LayerIdentity]:
    by_number: dict[int, LayerIdentity] = {}
    for call in calls:
        known = by_number.setdefault(call.identity.layer, call.identity)
        if known != call.identity:
            raise Refusal(
                f"Layer {known.layer} is {known.module} (run {known.repeat + 1}) in one step and {call.identity.module} (run "
                f"{call.identity.repeat + 1}) in another. Tap steps that run the same layers, or pass step_on=, the module one forward "
                "of which is a step."
            )
    return [by_number[number] for number in sorted(by_number)]


def _heads_of(identity: LayerIdentity, calls: Sequence[CallRecord]) -> int:
    return max(call.heads for call in calls if call.identity == identity)


def _sizes(calls: Sequence[CallRecord]) -> dict[str, int]:
    """How wide each axis must be for the widest call."""
    sizes: dict[str, int] = {}
    for call in calls:
        for axes, array in call.values.values():
            for axis, size in zip(axes, array.shape, strict=True):
                sizes[axis] = max(sizes.get(axis, 0), size + (call.key_start if axis == "key" else 0))
    return sizes


def _variable(name: str, steps: Sequence[StepRecord], layers: list[LayerIdentity], sizes: dict[str, int], with_steps: bool) -> xr.Variable:
    places = {identity: number for number, identity in enumerate(layers)}
    records = [(number, places[call.identity], call) for number, step in enumerate(steps) for call in step.calls if name in call.values]
    axes = {axis for _, _, call in records for axis in call.values[name][0]}
    dims = tuple(axis for axis in _ORDER if axis in axes | {"step", "layer"})
    inner = tuple(axis for axis in dims if axis not in ("step", "layer"))
    arrays = [(step, layer, call.key_start, _on_axes(call, name, inner)) for step, layer, call in records]
    dtype = arrays[0][3].dtype
    result = np.full([sizes[axis] for axis in dims], -1 if dtype.kind == "i" else np.nan, dtype=dtype)
    for step, layer, start, array in arrays:
        where: dict[str, Any] = {"step": step, "layer": layer}
        for number, axis in enumerate(inner):
            offset = start if axis == "key" else 0
            where[axis] = slice(offset, offset + array.shape[number])
        result[tuple(where[axis] for axis in dims)] = array
    variable = xr.Variable(dims, result)
    return variable if with_steps else variable.isel(step=0)


def _on_axes(call: CallRecord, name: str, inner: tuple[str, ...]) -> np.ndarray:
    """The call's array on these axes; where heads are alike in this call but not in another, they are spelled out."""
    axes, array = call.values[name]
    if "head" in inner and "head" not in axes:
        array = np.repeat(array[:, None], call.heads, axis=1)
        axes = ("sample", "head", *axes[1:])
    if name == "top_key":
        array = np.where(array >= 0, array + call.key_start, array)
    return np.transpose(array, [axes.index(axis) for axis in inner])


def _with_patterns(step: StepRecord) -> list[CallRecord]:
    return [call for call in step.calls if call.pattern_heads]


def _patterns(steps: Sequence[StepRecord], sizes: dict[str, int], with_steps: bool) -> xr.Variable:
    calls = [_with_patterns(step) for step in steps]
    chosen = sum(len(call.pattern_heads) for call in calls[0])
    result = np.full((sizes["sample"], len(steps), chosen, sizes["query"], sizes["key"]), np.nan, dtype=np.float32)
    for step, of_step in enumerate(calls):
        first = 0
        for call in of_step:
            _, array = call.values["pattern"]
            keys = slice(call.key_start, call.key_start + array.shape[3])
            result[:, step, first : first + array.shape[1], : array.shape[2], keys] = array
            first += array.shape[1]
    variable = xr.Variable(("sample", "step", "chosen", "query", "key"), result)
    return variable if with_steps else variable.isel(step=0)
