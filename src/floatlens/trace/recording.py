"""Record a decoding loop: one tap around it, and after each step what the step did and where its rows looked, as arrays of each sample.

Rows that predict are known only once the step has decided, so the queries and keys of a step's layers are held until then and the chosen
rows are walked over again. Memory is that of one step. What all rows gave and what the chosen rows gave leaves the device together, once
per step; what is kept per layer is averaged over heads before.

A forward counts positions over its batch: caches come first, short texts are padded. A trace counts over each sample's own text.
Everything is moved from the one to the other here, and heads are averaged where only layers are kept.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from floatlens.capture.call import full_precision
from floatlens.capture.checks import Check
from floatlens.capture.edits import Edit
from floatlens.capture.forward import Forward
from floatlens.capture.records import Record, StepArrays, StepRecord, fetch_steps
from floatlens.capture.reducers import reducer_makers
from floatlens.capture.reduction import ChosenRows, Reducing, SeenLayers
from floatlens.capture.tapping import Tap, TapRequest
from floatlens.capture.walk import Workspace
from floatlens.decoding.canvas import Canvas, Pass, Step
from floatlens.decoding.model import Writer
from floatlens.errors import BrokenPromise
from floatlens.trace.schema import APPENDED, COMMITTED_BEFORE, COMMITTED_NOW, COUNTS, MASKED, NOTHING, PROMPT, VARIABLES, Arrays, Detail

if TYPE_CHECKING:
    from floatlens.interventions.running import Running


@dataclass(frozen=True)
class Place:
    """Where a sample's text lies in a forward: which of its rows in the batch, and how positions are counted."""

    row: int  # of the batch
    offset: int  # padding before the text
    past: int  # position, in the forward's count, of its first query
    width: int  # positions of the forward, cached ones included; keys behind them were appended by an edit
    length: int  # of the sample's text


def attention_arrays(seen: StepArrays, place: Place, detail: Detail, *, counts_per_layer: bool, counts_per_head: bool) -> Arrays:
    """The arrays of a step, for the groups in `seen`, on the sample's own axes."""
    arrays: Arrays = {}
    for kind, names in VARIABLES.items():
        if kind == "top_keys" or not detail.keeps(kind):
            continue
        for name in names:
            if name in seen.arrays:
                per_head = detail.per_head(kind) if name not in COUNTS else counts_per_head
                per_layer = counts_per_layer or name not in COUNTS
                dims, array = _own_axes(*_by_head(name, seen, place.row, per_head, per_layer), place)
                if seen.has_forgotten and name.startswith(("mass", "visible")):
                    array = _out_of_sight(array, place)
                arrays[name] = (dims, array)
    if "pattern" in seen.arrays:
        axes, whole = seen.arrays["pattern"]
        arrays["pattern"] = _own_axes((axes[0], *axes[2:]), whole[:, place.row], place)
    return arrays


def _by_head(name: str, seen: StepArrays, row: int, per_head: bool, per_layer: bool) -> tuple[tuple[str, ...], np.ndarray]:
    """One sample of a variable, per head or averaged; counts without a layer axis where all layers are alike."""
    axes, array = seen.arrays[name]
    array = array.take(row, axes.index("sample")) if axes[0] != "layer" else array[:, row]
    dims = tuple(axis for axis in axes if axis != "sample")
    if per_layer and "layer" not in dims:
        dims, array = ("layer", *dims), np.broadcast_to(array, (len(seen.layers), *array.shape))
    elif not per_layer and "layer" in dims:
        if not np.array_equal(array[0], array[-1], equal_nan=True):
            raise BrokenPromise(f"The layers of this model see different keys ({name} differs), though its config says they do not.")
        dims, array = dims[1:], array[0]
    if per_head and "head" not in dims:
        shape = (array.shape[0], max(seen.heads), *array.shape[1:])
        return ("layer", "head", *dims[1:]), np.broadcast_to(array[:, None], shape)
    if not per_head and "head" in dims:
        axis = dims.index("head")
        return (*dims[:axis], *dims[axis + 1 :]), mean_over_heads(array, axis)
    return dims, array


def _out_of_sight(array: np.ndarray, place: Place) -> np.ndarray:
    """Keys that a sliding-window cache has forgotten exist, and nobody sees them: 0, not NaN."""
    there = np.arange(array.shape[-1]) < place.width - place.offset
    row_exists = ~np.isnan(array).all(axis=-1, keepdims=True)
    return np.where(np.isnan(array) & there & row_exists, np.float32(0), array)


def mean_over_heads(array: np.ndarray, axis: int) -> np.ndarray:
    """The mean over the heads that exist; NaN where none does."""
    there = ~np.isnan(array)
    with np.errstate(invalid="ignore"):
        return np.where(there, array, 0).sum(axis) / there.sum(axis, dtype=array.dtype)


def _own_axes(dims: tuple[str, ...], array: np.ndarray, place: Place) -> tuple[tuple[str, ...], np.ndarray]:
    for axis, name in enumerate(dims):
        if name == "key":
            array = shifted(array[..., : place.width], axis, place.offset, place.length)  # the key axis is always the last
        elif name == "query":
            array = shifted(array, axis, place.offset - place.past, place.length)
    return dims, np.ascontiguousarray(array)


def shifted(array: np.ndarray, axis: int, first: int, length: int) -> np.ndarray:
    """Along an axis, the `length` entries from `first` on; what lies outside the array is NaN.

    Examples
    --------
    >>> shifted(np.array([1.0, 2.0, 3.0]), 0, -1, 3).tolist()
    [nan, 1.0, 2.0]
    """
    if first == 0 and array.shape[axis] == length:
        return array
    shape = list(array.shape)
    shape[axis] = length
    result = np.full(shape, np.nan, dtype=array.dtype)
    begin, stop = max(first, 0), min(first + length, array.shape[axis])
    if begin < stop:
        where: list[slice] = [slice(None)] * array.ndim
        there = list(where)
        where[axis], there[axis] = slice(begin, stop), slice(begin - first, stop - first)
        result[tuple(there)] = array[tuple(where)]
    return result


def join_groups(parts: list[tuple[tuple[str, ...], Arrays]], groups: tuple[str, ...]) -> Arrays:
    """Arrays of several sets of groups as one, with the group axis in this order.

    What has no group axis comes from the first part that has it.
    """
    arrays: Arrays = {}
    names = list(dict.fromkeys(name for _, part in parts for name in part))
    for name in names:
        having = [(own, part[name]) for own, part in parts if name in part]
        dims, first = having[0][1]
        if "group" not in dims:
            arrays[name] = (dims, first)
            continue
        axis = dims.index("group")
        if tuple(group for own, _ in having for group in own) == groups:
            arrays[name] = (dims, np.concatenate([array for _, (_, array) in having], axis=axis) if len(having) > 1 else first)
            continue
        by_name: Mapping[str, np.ndarray] = {
            group: array.take(index, axis) for own, (_, array) in having for index, group in enumerate(own) if group in groups
        }
        arrays[name] = (dims, np.stack([by_name[group] for group in groups], axis=axis))
    return arrays


@dataclass(eq=False)
class Favourites:
    """Top keys of the rows that filled each position of a sample, by layer and head: the last commit of a position stands."""

    length: int
    ranks: int
    arrays: dict[str, np.ndarray] = field(default_factory=dict)

    def add(self, seen: StepArrays, row: int, positions: Sequence[int], offset: int, width: int) -> None:
        """Row `row` of the batch has filled these positions, in the order of the chosen rows; keys from `width` on are an edit's."""
        if not self.arrays:
            shape = (len(seen.layers), max(seen.heads), self.length, self.ranks)
            self.arrays = {
                "top_key": np.full(shape, -1, np.int32),
                "top_weight": np.full(shape, np.nan, np.float32),
                "top_retained": np.full(shape[:-1], np.nan, np.float32),
            }
        if not len(positions):
            return
        for name, array in self.arrays.items():
            of_rows = seen.arrays[name][1][:, row, :, : len(positions)]
            if name == "top_key":
                of_rows = np.where(of_rows >= width, APPENDED, np.where(of_rows >= 0, of_rows - offset, -1))
            array[:, :, list(positions)] = of_rows

    def labelled(self) -> Arrays:
        dims = ("layer", "head", "position", "rank")
        return {name: (dims[: array.ndim], array) for name, array in self.arrays.items()}


class Recorder:
    """Records the loop of one batch. Use `run` as the loop's run function, inside the context, and `step` on everything it yields."""

    def __init__(
        self,
        lm: Writer,
        canvas: Canvas,
        detail: Detail,
        regions: dict[str, Tensor],
        edits: Sequence[Edit] = (),
        workspace: Workspace | None = None,
        running: "Running | None" = None,
    ) -> None:
        self.lm, self.canvas, self.detail, self.running = lm, canvas, detail, running
        self.edits = tuple(edits) if running is None else (running, *edits)
        self.regions = regions  # bool (sample, position), by name
        self.favourites = [Favourites(length, detail.top_keys) for length in canvas.lengths]
        self._in_passing = tuple(name for name in detail.groups if name != "predicting")
        self._workspace = workspace or Workspace()
        self._counts_per_layer = bool(self.edits) or layers_differ(lm)
        self._seen: list[SeenLayers] = []
        self._asked: Pass | None = None

    @contextmanager
    def watching(self) -> Iterator[None]:
        """The loop runs in here."""
        keep = self.detail.reducers if self._in_passing else [name for name in self.detail.reducers if name in ("norms", "flow")]
        self._tap = Tap(
            self.lm.module,
            TapRequest(
                keep=keep,
                patterns=self.detail.patterns,
                groups=self._groups,
                regions=self._regions if self.detail.keeps("flow") else None,
                padding=self._padding,
                edits=self.edits,
                step_on=self.lm.module,
                samples=lambda _forward: None if self._pass.unguided is None else slice(0, len(self._pass.tokens)),
                on_seen=self._seen.append,
                averaged=averaged_arrays(self.detail),
            ),
        )
        with self._tap:
            yield

    def run(self, asked: Pass) -> Tensor:
        """Run a pass, watched."""
        self._asked = asked
        self._seen.clear()
        if self.running is not None:
            self.running.begin(asked)
        if asked.is_step:
            return self.lm.run_pass(asked)
        with self._tap.unrecorded():
            return self.lm.run_pass(asked)

    def step(self, step: Step) -> dict[int, Arrays]:
        """The arrays of a step, by sample."""
        positions = {sample: step.committed[sample].nonzero()[:, 0].tolist() for sample in step.samples}
        parts = [self._tap.take_step(), *([self._predicting(step.asked, positions)] if self._wants_predicting else [])]
        in_passing, *predicting = fetch_steps(*parts)
        self.last_seen = in_passing
        removed = {} if self.running is None else self.running.finish(step)
        recorded, lengths = {}, self.canvas.lengths
        for sample in step.samples:
            row = step.asked.samples.index(sample)
            width = step.asked.past + step.asked.tokens.shape[1]
            place = Place(row, step.asked.offset[row] if step.asked.offset else 0, step.asked.past, width, lengths[sample])
            of_groups = [(self._in_passing, self._arrays(in_passing, place))]
            for of_rows in predicting:
                if self.detail.keeps("top_keys"):
                    self.favourites[sample].add(of_rows, row, positions[sample], place.offset, width)
                if "predicting" in self.detail.groups:
                    of_groups.append((("predicting",), self._arrays(of_rows, place)))
            recorded[sample] = (
                canvas_arrays(self.canvas, step, sample, lengths[sample])
                | join_groups(of_groups, self.detail.groups)
                | removed.get(sample, {})
            )
        self._seen.clear()
        return recorded

    @property
    def _wants_predicting(self) -> bool:
        return self.detail.keeps("top_keys") or ("predicting" in self.detail.groups)

    def _arrays(self, seen: StepArrays, place: Place) -> Arrays:
        return attention_arrays(seen, place, self.detail, counts_per_layer=self._counts_per_layer, counts_per_head=bool(self.edits))

    def _predicting(self, asked: Pass, positions: dict[int, list[int]]) -> StepRecord:
        """What the rows look at that fill these positions."""
        most = max(1, *(len(of_sample) for of_sample in positions.values()))
        rows = torch.zeros(len(asked.samples), most, dtype=torch.long)
        filled = torch.zeros_like(rows, dtype=torch.bool)
        for row, sample in enumerate(asked.samples):
            offset = asked.offset[row] if asked.offset else 0
            of_sample = [self.lm.predicting_row(position) + offset - asked.past for position in positions.get(sample, [])]
            rows[row, : len(of_sample)] = torch.tensor(of_sample, dtype=torch.long)
            filled[row, : len(of_sample)] = True
        return record_rows(self._seen, rows, {"predicting": filled}, self.detail, self._workspace)

    @property
    def _pass(self) -> Pass:
        assert self._asked is not None
        return self._asked

    def _padding(self, _forward: Forward) -> Tensor:
        return self._doubled(self._pass.real_keys)

    def _groups(self, _forward: Forward) -> dict[str, Tensor]:
        asked = self._pass
        rows = {"masked": asked.real & asked.masked, "unmasked": asked.real & ~asked.masked}
        if "prompt" in self._in_passing:
            rows["prompt"] = asked.real & self._in_frame(self.canvas.prompt, asked, asked.past, asked.tokens.shape[1])
        chosen = {name: self._doubled(rows[name]) for name in self._in_passing}
        return chosen or {"everyone": self._doubled(asked.real)}

    def _regions(self, _forward: Forward) -> dict[str, Tensor]:
        asked = self._pass
        width = asked.past + asked.tokens.shape[1]
        return {name: self._doubled(self._in_frame(inside, asked, 0, width)) for name, inside in self.regions.items()}

    def _in_frame(self, values: Tensor, asked: Pass, first: int, width: int) -> Tensor:
        """bool (sample, position) of the canvas, on `width` positions of the pass from `first` on."""
        framed = torch.zeros(len(asked.samples), width, dtype=torch.bool, device=values.device)
        for row, sample in enumerate(asked.samples):
            begin = first - (asked.offset[row] if asked.offset else 0)
            here = slice(max(begin, 0), min(begin + width, values.shape[1]))
            if here.start < here.stop:
                framed[row, here.start - begin : here.stop - begin] = values[sample, here]
        return framed

    def _doubled(self, values: Tensor) -> Tensor:
        return values if self._pass.unguided is None else torch.cat([values, values])


def canvas_arrays(canvas: Canvas, step: Step, sample: int, length: int) -> Arrays:
    """The canvas of one sample before a step, and what became of it."""
    before = (step.committed, step.masked, canvas.prompt, step.tokens, step.confidence)
    committed, masked, prompt, tokens, confidence = (values.numpy()[sample, :length] for values in before)
    autoregressive = canvas.mask_token_id is None
    state = np.where(prompt, PROMPT, COMMITTED_BEFORE)
    state = np.where(masked, NOTHING if autoregressive else MASKED, state)
    state = np.where(committed, COMMITTED_NOW, state)
    return {
        "canvas": (("position",), np.where(masked, -1, tokens).astype(np.int32) if autoregressive else tokens.astype(np.int32)),
        "state": (("position",), state.astype(np.int8)),
        "confidence": (("position",), confidence),
    }


def averaged_arrays(detail: Detail) -> frozenset[str]:
    """What is averaged over heads before it leaves the device: whatever is kept per layer, counts excepted."""
    of_layers = [names for kind, names in VARIABLES.items() if detail.keeps(kind) and not detail.per_head(kind)]
    return frozenset(name for names in of_layers for name in names if name not in COUNTS)


def record_rows(seen: Sequence[SeenLayers], rows: Tensor, groups: dict[str, Tensor], detail: Detail, workspace: Workspace) -> StepRecord:
    """Chosen rows of the layers of a forward, reduced."""
    recorder = RowsRecorder(rows, groups, detail, workspace, averaged=averaged_arrays(detail))
    for layers in seen:
        recorder.add(layers)
    return recorder.recorded


class RowsRecorder:
    """Reduces chosen rows of layers; those of one forward share what does not depend on the layer."""

    def __init__(
        self,
        rows: Tensor,
        groups: dict[str, Tensor],
        detail: Detail,
        workspace: Workspace,
        *,
        with_flow: bool = False,
        averaged: frozenset[str] = frozenset(),
    ) -> None:
        keep = [name for name in detail.reducers if name not in ("flow", "norms") or (name == "flow" and with_flow)]
        if detail.keeps("flow") and "mass" not in keep:
            keep.append("mass")
        if detail.keeps("top_keys"):
            keep.append(f"top_keys:{detail.top_keys}")
        self._chosen = ChosenRows(rows, groups)
        self._how = Reducing(reducer_makers(keep), workspace, averaged)
        self._records: list[Record] = []
        self._checks: list[Check] = []

    def add(self, layers: SeenLayers) -> None:
        with full_precision(layers.observation.device):
            self._records.append(self._chosen.record(layers, self._how, self._checks))

    @property
    def recorded(self) -> StepRecord:
        return StepRecord(self._records, self._checks)


def layers_differ(lm: Writer) -> bool:
    """Whether layers of the model see different keys (sliding windows beside full attention)."""
    return len(set(getattr(lm.config, "layer_types", None) or [])) > 1
