"""What was kept of a step: first where it was computed, then as labelled arrays in host memory, then as one `xarray.Dataset`.

Layers that were reduced together make one `Record`; its arrays stay on the device until the whole step is sent to the host (`SentSteps`),
where the records of a step are put side by side, layer by layer. `assemble` does the same with steps.

Axes of the dataset are always in the order `sample, step, layer, head, group, query, key`; `step` is there only if the tap was told what
a step is. Layers may differ in heads and keys (a growing cache, a sliding window, layers of different width): each variable is as wide as
its widest layer, and what does not exist is NaN (-1 for key positions).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from torch import Tensor

from floatlens.capture.checks import Check, send
from floatlens.capture.layers import LayerIdentity
from floatlens.capture.observation import Labelled, Observation
from floatlens.capture.transfer import Landing
from floatlens.errors import Refusal

_ORDER = ("sample", "step", "layer", "chosen", "head", "group", "query_region", "key_region", "query", "key", "rank")

NamedArrays = dict[str, tuple[tuple[str, ...], np.ndarray]]
"""Names of the axes and values, by variable."""


@dataclass(frozen=True, eq=False)
class Record:
    """What was kept of layers that were reduced together. Arrays without a layer axis hold for all of them."""

    identities: tuple[LayerIdentity, ...]
    heads: int
    query_start: int
    key_start: int
    group_names: tuple[str, ...]
    region_names: tuple[str, ...]
    chosen: tuple[tuple[int, int], ...]  # layer and head of every pattern
    length: Tensor  # (sample,): real positions up to the last query, cached ones included
    values: Mapping[str, Labelled]


def record_of(
    identities: tuple[LayerIdentity, ...],
    observation: Observation,
    values: Mapping[str, Labelled],
    chosen: tuple[tuple[int, int], ...] = (),
) -> Record:
    """What was kept of an observation."""
    scene = observation.scene
    return Record(
        identities,
        observation.heads,
        scene.query_start,
        scene.key_start,
        scene.group_names,
        scene.region_names,
        chosen,
        scene.length,
        values,
    )


@dataclass(frozen=True, eq=False)
class StepRecord:
    """The records of one forward, and what must be checked before anything of it is handed out."""

    records: Sequence[Record] = ()
    checks: Sequence[Check] = ()


@dataclass(frozen=True, eq=False)
class StepArrays:
    """What was kept of a step, in host memory: arrays (layer, sample, ...), or (sample, ...) where all layers are alike."""

    layers: Sequence[LayerIdentity]
    heads: Sequence[int]  # by layer
    query_start: int
    group_names: tuple[str, ...]
    region_names: tuple[str, ...]
    chosen: Sequence[tuple[int, int]]
    has_forgotten: bool  # whether a layer no longer has the first keys of the text (a sliding-window cache)
    length: np.ndarray
    arrays: NamedArrays


@dataclass(frozen=True, eq=False)
class _Fetched:
    """A record whose arrays are in host memory."""

    record: Record
    length: np.ndarray
    values: NamedArrays


class SentSteps:
    """Steps, or parts of one, on their way to the host, in one transfer. What records share is sent once."""

    def __init__(self, *steps: StepRecord, landing: Landing | None = None) -> None:
        self._steps = [step.records for step in steps if step.records]
        records = [record for step in steps for record in step.records]
        tensors = {id(tensor): tensor for record in records for tensor in (record.length, *(array for _, array in record.values.values()))}
        self._names = [*tensors]
        self._held = [*tensors.values()]  # holding them keeps their names from being reused
        self._sent = send(self._held, [check for step in steps for check in step.checks], landing)

    def arrays(self) -> list[StepArrays]:
        """The steps, once they are there and checked."""
        arrived = dict(zip(self._names, self._sent.arrays(), strict=True))

        def fetched(record: Record) -> _Fetched:
            values = {name: (axes, arrived[id(array)]) for name, (axes, array) in record.values.items()}
            return _Fetched(record, arrived[id(record.length)], values)

        return [_join([fetched(record) for record in records]) for records in self._steps]


def fetch_steps(*steps: StepRecord) -> list[StepArrays]:
    """Steps, or parts of one, in host memory: checked, in one transfer."""
    return SentSteps(*steps).arrays()


def _join(parts: Sequence[_Fetched]) -> StepArrays:
    """The records of one step, side by side."""
    first = parts[0].record
    about = first.query_start, first.group_names, first.region_names
    if len(parts) == 1 and not first.key_start and not first.chosen:  # all layers see the same: nothing to put together
        heads_of_each = [first.heads] * len(first.identities)
        return StepArrays(first.identities, heads_of_each, *about, (), has_forgotten=False, length=parts[0].length, arrays=parts[0].values)
    heads = {identity: part.record.heads for part in parts for identity in part.record.identities}
    layers = sorted(heads)
    with_patterns = [part for part in parts if part.record.chosen]
    sizes = _sizes(parts)
    names = list(dict.fromkeys(name for part in parts for name in part.values))
    arrays = {name: _joined(name, parts, layers, sizes) for name in names if name != "pattern"}
    chosen = [pair for part in with_patterns for pair in part.record.chosen]
    if with_patterns:
        order = sorted(range(len(chosen)), key=lambda place: chosen[place][0])
        chosen = [chosen[place] for place in order]
        axes = ("chosen", "sample", "query", "key")
        arrays["pattern"] = (axes, np.concatenate([_widened(part, "pattern", axes, sizes) for part in with_patterns])[order])
    length = np.max([part.length for part in parts], axis=0)
    forgotten = any(part.record.key_start for part in parts)
    return StepArrays(layers, [heads[identity] for identity in layers], *about, chosen, forgotten, length, arrays)


def _sizes(parts: Sequence[_Fetched]) -> dict[str, int]:
    """How wide each axis must be for the widest record."""
    sizes: dict[str, int] = {}
    for part in parts:
        for axes, array in part.values.values():
            for axis, size in zip(axes, array.shape, strict=True):
                sizes[axis] = max(sizes.get(axis, 0), size + (part.record.key_start if axis == "key" else 0))
    return sizes


def _joined(
    name: str, parts: Sequence[_Fetched], layers: Sequence[LayerIdentity], sizes: Mapping[str, int]
) -> tuple[tuple[str, ...], np.ndarray]:
    """One variable of all layers; without a layer axis if all records have the very same array."""
    having = [part for part in parts if name in part.values]
    inner = {axis for part in having for axis in part.values[name][0]} - {"layer"}
    axes = tuple(axis for axis in _ORDER if axis in inner)
    if all("layer" not in part.values[name][0] for part in having) and len({id(part.values[name][1]) for part in having}) == 1:
        return axes, _widened(having[0], name, axes, sizes)
    widened = [_widened(part, name, ("layer", *axes), sizes) for part in having]
    if len(having) == 1 and len(having[0].record.identities) == len(layers):
        return ("layer", *axes), widened[0]
    result = np.full((len(layers), *widened[0].shape[1:]), -1 if widened[0].dtype.kind == "i" else np.nan, widened[0].dtype)
    for part, array in zip(having, widened, strict=True):
        result[[layers.index(identity) for identity in part.record.identities]] = array
    return ("layer", *axes), result


def _widened(part: _Fetched, name: str, axes: tuple[str, ...], sizes: Mapping[str, int]) -> np.ndarray:
    """An array of a record on these axes, as wide as the widest; where heads or layers are alike, they are spelled out."""
    record, (own, array) = part.record, part.values[name]
    for axis, count in (("head", record.heads), ("layer", len(record.identities))):
        if axis in axes and axis not in own:
            array, own = np.broadcast_to(array, (count, *array.shape)), (axis, *own)
    array = np.transpose(array, [own.index(axis) for axis in axes])
    if name == "top_key" and record.key_start:
        array = np.where(array >= 0, array + record.key_start, array)
    shape = tuple(size if axis in ("layer", "chosen") else sizes[axis] for axis, size in zip(axes, array.shape, strict=True))
    if array.shape == shape:
        return array
    result = np.full(shape, -1 if array.dtype.kind == "i" else np.nan, array.dtype)
    starts = [record.key_start if axis == "key" else 0 for axis in axes]
    result[tuple(slice(start, start + size) for start, size in zip(starts, array.shape, strict=True))] = array
    return result


def assemble(steps: Sequence[StepArrays], *, with_steps: bool, attributes: dict[str, Any]) -> xr.Dataset:
    """One dataset of all steps."""
    _refuse_changing(steps)
    layers = _layer_axis(steps)
    names = list(dict.fromkeys(name for step in steps for name in step.arrays))
    variables = {name: _variable(name, steps, layers, with_steps) for name in names}
    first = steps[0]
    coordinates: dict[str, Any] = {
        "layer": [identity.layer for identity in layers],
        "module": ("layer", [identity.module for identity in layers]),
        "repeat": ("layer", [identity.repeat for identity in layers]),
        "heads": ("layer", [_heads_of(identity, steps) for identity in layers]),
        "group": list(first.group_names),
    }
    if first.region_names:
        coordinates |= {"query_region": list(first.region_names), "key_region": list(first.region_names)}
    if "pattern" in names:
        coordinates |= {
            "chosen_layer": ("chosen", [layer for layer, _ in first.chosen]),
            "chosen_head": ("chosen", [head for _, head in first.chosen]),
        }
    lengths = np.stack([step.length for step in steps], axis=1)
    variables["length"] = xr.Variable(("sample", "step"), lengths) if with_steps else xr.Variable(("sample",), lengths[:, 0])
    starts = np.array([step.query_start for step in steps])
    variables["query_start"] = xr.Variable(("step",), starts) if with_steps else xr.Variable((), starts[0])
    used = {"layer"} | {axis for variable in variables.values() for axis in variable.dims}
    dataset = xr.Dataset(variables, attrs=attributes)
    return dataset.assign_coords(
        {name: value for name, value in coordinates.items() if (value[0] if isinstance(value, tuple) else name) in used}
    )


def _refuse_changing(steps: Sequence[StepArrays]) -> None:
    first = steps[0]
    for number, step in enumerate(steps):
        if (step.group_names, step.region_names) != (first.group_names, first.region_names):
            raise Refusal(
                f"Step {number} has the groups {step.group_names} and regions {step.region_names}, step 0 had {first.group_names} and "
                f"{first.region_names}. Return the same names at every step; a group may be empty."
            )
        if len(step.length) != len(first.length):
            raise Refusal(
                f"Step {number} runs {len(step.length)} samples, step 0 ran {len(first.length)}. Keep the batch together over the "
                "steps of one tap, or pass samples=slice(0, B) to record some of them."
            )


def _layer_axis(steps: Sequence[StepArrays]) -> list[LayerIdentity]:
    by_number: dict[int, LayerIdentity] = {}
    for identity in (identity for step in steps for identity in step.layers):
        known = by_number.setdefault(identity.layer, identity)
        if known != identity:
            raise Refusal(
                f"Layer {known.layer} is {known.module} (run {known.repeat + 1}) in one step and {identity.module} (run "
                f"{identity.repeat + 1}) in another. Tap steps that run the same layers, or pass step_on=, the module one forward "
                "of which is a step."
            )
    return [by_number[number] for number in sorted(by_number)]


def _heads_of(identity: LayerIdentity, steps: Sequence[StepArrays]) -> int:
    return max(heads for step in steps for other, heads in zip(step.layers, step.heads, strict=True) if other == identity)


def _variable(name: str, steps: Sequence[StepArrays], layers: Sequence[LayerIdentity], with_steps: bool) -> xr.Variable:
    """A variable over (sample, step, layer, ...)."""
    having = [(number, step, *step.arrays[name]) for number, step in enumerate(steps) if name in step.arrays]
    axes = {axis for _, _, own, _ in having for axis in own}
    dims = tuple(axis for axis in _ORDER if axis in axes | ({"step"} if name == "pattern" else {"step", "layer"}))
    sizes = {axis: max(array.shape[own.index(axis)] for _, _, own, array in having if axis in own) for axis in axes - {"layer"}}
    sizes |= {"step": len(steps), "layer": len(layers)}
    dtype = having[0][3].dtype
    result = np.full([sizes[axis] for axis in dims], -1 if dtype.kind == "i" else np.nan, dtype=dtype)
    for number, step, own, array in having:
        if "head" in dims and "head" not in own:
            array, own = np.broadcast_to(array, (max(step.heads), *array.shape)), ("head", *own)
        if "layer" in dims and "layer" not in own:
            array, own = np.broadcast_to(array, (len(step.layers), *array.shape)), ("layer", *own)
        here = [axis for axis in dims if axis != "step"]
        array = np.transpose(array, [own.index(axis) for axis in here])
        places = [layers.index(identity) for identity in step.layers]
        target = np.moveaxis(result, dims.index("step"), 0)[number]
        where = tuple(np.array(places) if axis == "layer" else slice(0, size) for axis, size in zip(here, array.shape, strict=True))
        target[where] = array
    variable = xr.Variable(dims, result)
    return variable if with_steps else variable.isel(step=0)
