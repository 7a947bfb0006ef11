"""Record a decoding loop: one tap around it, and after each step what the step did and where its rows looked, as arrays of each sample.

Rows that predict are known only once the step has decided, so the queries and keys of a step's layers are held until then and the chosen
rows are walked over again. Memory is that of one step, and bounded (`SeenStep`); steps of a few megabytes wait until there are several and
are reduced together (`capture/steps.py`), what is wrong with them being said when they are. What all rows gave and what the chosen rows
gave leaves the device together, at most once per step; what is kept per layer is averaged over heads before. Where the device can copy
and compute at once, the arrays of a step arrive while the next forward runs; what is wrong with a step is then said one step later. Steps
that lie alike are put on the axes of their samples together, a few megabytes at a time.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from floatlens.capture import reduction
from floatlens.capture.call import full_precision
from floatlens.capture.checks import Check
from floatlens.capture.edits import Edit
from floatlens.capture.forward import Forward
from floatlens.capture.records import Record, SentSteps, StepArrays, StepRecord
from floatlens.capture.reducers import reducer_makers
from floatlens.capture.reduction import ChosenRows, Reducing, SeenLayers, SeenStep
from floatlens.capture.steps import STEPS_AT_MOST, TOGETHER_BYTES, Stack, of_each, side_by_side
from floatlens.capture.tapping import Tap, TapRequest
from floatlens.capture.transfer import MEANWHILE, Landing
from floatlens.capture.walk import Workspace, at_once
from floatlens.decoding.canvas import Canvas, Pass, Step
from floatlens.decoding.model import Writer
from floatlens.trace.own_axes import Favourites, Place, alike, attention_arrays, join_groups, together
from floatlens.trace.schema import COMMITTED_BEFORE, COMMITTED_NOW, COUNTS, MASKED, NOTHING, PROMPT, VARIABLES, Arrays, Detail

if TYPE_CHECKING:
    from floatlens.interventions.running import Running

MOVED_BYTES = 16 << 20  # of steps that lie alike and are moved to the axes of their samples together


@dataclass(frozen=True, eq=False)
class _SampleOfStep:
    """What is known of a sample when its step is over, before the arrays of the step have arrived."""

    place: Place
    committed: list[int]  # positions
    arrays: Arrays  # the canvas, and what interventions removed


@dataclass(frozen=True, eq=False)
class _Decided:
    """A step that is over: its samples, the rows that fill positions, (sample, row), and which of these are any; and its stacked layers."""

    samples: dict[int, _SampleOfStep]
    rows: Tensor
    filled: Tensor
    stacks: Sequence[Stack]
    checks: Sequence[Check]

    @property
    def bytes(self) -> int:
        return sum(stack.bytes for stack in self.stacks)

    def goes_with(self, other: "_Decided") -> bool:
        """Whether both may be reduced together."""
        return len(self.stacks) == len(other.stacks) and all(map(Stack.lies_like, self.stacks, other.stacks))


@dataclass(frozen=True, eq=False)
class _Step:
    """A step in host memory, on the axes of its forward."""

    in_passing: StepArrays
    predicting: StepArrays | None
    samples: dict[int, _SampleOfStep]

    @property
    def bytes(self) -> int:
        parts = [self.in_passing, *([] if self.predicting is None else [self.predicting])]
        return sum(array.nbytes for part in parts for _, array in part.arrays.values())

    def lies_like(self, other: "_Step") -> bool:
        """Whether the same samples stand in the same places, and the arrays have the same shapes."""
        places, others = ({sample: known.place for sample, known in step.samples.items()} for step in (self, other))
        if places != others or not alike(self.in_passing, other.in_passing):
            return False
        return self.predicting is None or other.predicting is None or alike(self.predicting, other.predicting)


class Recorder:
    """Records the loop of one batch. Use `run` as the loop's run function, inside the context, and `step` on everything it yields.

    `store` is given the arrays of the steps of each sample, with a step axis and in order, but later: while another pass runs, or when the
    context ends.
    """

    def __init__(
        self,
        lm: Writer,
        canvas: Canvas,
        detail: Detail,
        regions: dict[str, Tensor],
        store: Callable[[int, Arrays], None],
        edits: Sequence[Edit] = (),
        workspace: Workspace | None = None,
        running: "Running | None" = None,
    ) -> None:
        self.lm, self.canvas, self.detail, self.running = lm, canvas, detail, running
        self._store = store
        self.edits = tuple(edits) if running is None else (running, *edits)
        self.regions = regions  # bool (sample, position), by name
        self.favourites = [Favourites(length, detail.top_keys) for length in canvas.lengths]
        self._in_passing = tuple(name for name in detail.groups if name != "predicting")
        self._workspace = workspace or Workspace()
        self._counts_per_layer = bool(self.edits) or layers_differ(lm)
        self._seen = SeenStep(reduction.SEEN_BYTES)
        self._asked: Pass | None = None
        self._landing, self._meanwhile = Landing(), lm.device.type in MEANWHILE
        # an edit may write to its own masks, and a full pattern is larger than what it is made of
        self._together_bytes = 0 if self.edits or detail.patterns else at_once(TOGETHER_BYTES, lm.device)
        self._stacked: Sequence[Stack] = ()
        self._waiting: list[_Decided] = []
        self._sent: tuple[SentSteps, list[dict[int, _SampleOfStep]]] | None = None
        self._taken_in: list[_Step] = []

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
                on_seen=self._seen.add if self._wants_predicting else _let_go,
                on_stacked=self._stack,
                later_bytes=self._together_bytes // 2,  # a step that is larger would wait for nothing
                averaged=averaged_arrays(self.detail),
            ),
        )
        with self._tap:
            try:
                yield
            except Exception:  # what is wrong with a step that waits may be why, and is the better reason
                self._send_waiting()
                self._take_in()
                raise
            self._send_waiting()
            self._take_in()
            self._store_taken_in()

    def run(self, asked: Pass) -> Tensor:
        """Run a pass, watched."""
        self._asked = asked
        self._seen.begin(asked.wanted_rows)
        if self.running is not None:
            self.running.begin(asked)
        if not self._meanwhile:
            self._take_in()  # nothing is won by waiting, and what was held of the step can go
        with nullcontext() if asked.is_step else self._tap.unrecorded():
            logits = self.lm.run_pass(asked)
        self._take_in()  # the device computes meanwhile
        return logits

    def step(self, step: Step) -> None:
        """Send the arrays of a step to the host, or let it wait for others."""
        asked, lengths = step.asked, self.canvas.lengths
        positions = {sample: step.committed[sample].nonzero()[:, 0].tolist() for sample in step.samples}
        in_passing, (rows, filled) = self._tap.take_step(), self._filling(asked, positions)
        removed = {} if self.running is None else self.running.finish(step)
        samples: dict[int, _SampleOfStep] = {}
        for sample in step.samples:
            row = asked.samples.index(sample)
            width = asked.past + asked.tokens.shape[1]
            place = Place(row, asked.offset[row] if asked.offset else 0, asked.past, width, lengths[sample])
            arrays = canvas_arrays(self.canvas, step, sample, lengths[sample]) | removed.get(sample, {})
            samples[sample] = _SampleOfStep(place, positions[sample], arrays)
        stacks, self._stacked = self._stacked, ()
        decided = _Decided(samples, rows, filled, stacks, in_passing.checks)
        if not stacks:
            self._send_waiting()
            self._send(in_passing, self._seen.layers, [decided])
        else:
            self._wait(decided)
        self._seen.begin(None)

    def _stack(self, stacks: Sequence[Stack]) -> None:
        """The layers of a pass were stacked, and not reduced."""
        self._stacked = stacks

    def _wait(self, decided: _Decided) -> None:
        """Let a step wait for others with which it is reduced together."""
        if self._waiting and not self._waiting[0].goes_with(decided):
            self._send_waiting()
        self._waiting.append(decided)
        bytes_waiting = sum(waiting.bytes for waiting in self._waiting)
        if len(self._waiting) == STEPS_AT_MOST or bytes_waiting + decided.bytes > self._together_bytes:
            self._send_waiting()

    def _send_waiting(self) -> None:
        """Reduce the steps that wait, and send what that gives to the host."""
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        checks = [check for decided in waiting for check in decided.checks]
        stacks = [side_by_side(of_steps) for of_steps in zip(*(decided.stacks for decided in waiting), strict=True)]
        in_passing = StepRecord(self._tap.reduce_later(stacks, checks), checks)
        self._send(in_passing, [stack.seen for stack in stacks], waiting)

    def _send(self, in_passing: StepRecord, seen: Sequence[SeenLayers], steps: Sequence[_Decided]) -> None:
        """Send to the host what all rows of some steps gave, and what those gave that fill positions."""
        self._take_in()
        parts = [in_passing]
        if self._wants_predicting:
            rows, filled = (_padded([getattr(step, name) for step in steps]) for name in ("rows", "filled"))
            parts.append(record_rows(seen, rows, {"predicting": filled}, self.detail, self._workspace))
        self._sent = SentSteps(*parts, landing=self._landing), [step.samples for step in steps]

    def _take_in(self) -> None:
        """Take in the steps that were sent, if any were."""
        if self._sent is None:
            return
        (sent, steps), self._sent = self._sent, None
        of_steps = [of_each(arrays, len(steps)) for arrays in sent.arrays()]
        for samples, in_passing, *predicting in zip(steps, *of_steps, strict=True):
            self._keep(_Step(in_passing, predicting[0] if predicting else None, samples))

    def _keep(self, step: _Step) -> None:
        """Keep one more step, and store those before it if it does not lie like them."""
        self.last_seen = step.in_passing
        if self.detail.keeps("top_keys"):
            assert step.predicting is not None
            for sample, known in step.samples.items():
                self.favourites[sample].add(step.predicting, known.place.row, known.committed, known.place.offset, known.place.width)
        if self._taken_in and not self._taken_in[0].lies_like(step):
            self._store_taken_in()
        self._taken_in.append(step)
        if sum(held.bytes for held in self._taken_in) > MOVED_BYTES:
            self._store_taken_in()

    def _store_taken_in(self) -> None:
        """Store steps that lie alike, with a step axis."""
        steps, self._taken_in = self._taken_in, []
        if not steps:
            return
        in_passing = together([step.in_passing for step in steps])
        chosen = [step.predicting for step in steps if step.predicting is not None]
        predicting = together(chosen) if chosen and "predicting" in self.detail.groups else None
        for sample, known in steps[0].samples.items():
            of_groups = [(self._in_passing, self._arrays(in_passing, known.place))]
            if predicting is not None:
                of_groups.append((("predicting",), self._arrays(predicting, known.place)))
            own: Arrays = {
                name: (("step", *dims), np.stack([step.samples[sample].arrays[name][1] for step in steps]))
                for name, (dims, _) in known.arrays.items()
            }
            self._store(sample, own | join_groups(of_groups, self.detail.groups))

    @property
    def _wants_predicting(self) -> bool:
        return self.detail.keeps("top_keys") or ("predicting" in self.detail.groups)

    def _arrays(self, seen: StepArrays, place: Place) -> Arrays:
        return attention_arrays(seen, place, self.detail, counts_per_layer=self._counts_per_layer, counts_per_head=bool(self.edits))

    def _filling(self, asked: Pass, positions: dict[int, list[int]]) -> tuple[Tensor, Tensor]:
        """The rows that fill these positions, (sample, row), and which of them are any: samples with fewer of them repeat row 0."""
        most = max(1, *(len(of_sample) for of_sample in positions.values()))
        rows = torch.zeros(len(asked.samples), most, dtype=torch.long)
        filled = torch.zeros_like(rows, dtype=torch.bool)
        for row, sample in enumerate(asked.samples):
            offset = asked.offset[row] if asked.offset else 0
            of_sample = [self.lm.predicting_row(position) + offset - asked.past for position in positions.get(sample, [])]
            rows[row, : len(of_sample)] = torch.tensor(of_sample, dtype=torch.long)
            filled[row, : len(of_sample)] = True
        return rows, filled

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


def _padded(of_steps: Sequence[Tensor]) -> Tensor:
    """(sample, row) of several steps below each other, filled up with zeros."""
    longest = max(rows.shape[1] for rows in of_steps)
    return torch.cat([F.pad(rows, (0, longest - rows.shape[1])) for rows in of_steps])


def _let_go(_layers: SeenLayers) -> None:
    """Nothing is to be looked at again."""


def layers_differ(lm: Writer) -> bool:
    """Whether layers of the model see different keys (sliding windows beside full attention)."""
    return len(set(getattr(lm.config, "layer_types", None) or [])) > 1
