"""Interventions while they run on one batch: what is done to each call, and the account of what that removed.

A `Running` is an edit of a tap. It is told which samples each pass runs and which of them took part in a step, because samples leave a
batch when they are done, and a batch may run on for samples that have nothing left to do: steps, statistics and draws are those of the
sample, whatever runs beside it. Both halves of a batch doubled by guidance have statistics of their own; the conditional half is
reported.

A pass that only stores a cache is part of the step that follows it: the same anchors, no statistics, nothing reported. Where a model runs
its own loop, every forward is a step (`EachForward`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from floatlens.capture.call import AttentionCall
from floatlens.capture.edits import Before, Edit, Received, apply_edits, received, uses_statistics
from floatlens.capture.observation import Observation, Scene
from floatlens.capture.reduction import ChosenRows
from floatlens.capture.walk import Workspace
from floatlens.decoding.canvas import Pass, Step
from floatlens.errors import Refusal
from floatlens.interventions.acting import (
    append_sink,
    hide_keys,
    mass_within,
    outside_window,
    removed_share,
    share_of_keys,
    silence,
    silenced_heads,
    zero_values,
)
from floatlens.interventions.choosing import (
    Memory,
    Others,
    Recalled,
    Row,
    anchors,
    as_many_others,
    as_much_from_others,
    measured_keys,
    random_numbers,
)
from floatlens.interventions.specification import (
    ExtraSinkToken,
    Intervention,
    KeepSinks,
    KeyPicker,
    MaskAbove,
    MaskHeads,
    RandomHeads,
    RandomKeys,
    ZeroAnchorValues,
)
from floatlens.interventions.wording import to_text

Reported = dict[str, tuple[tuple[str, ...], np.ndarray]]
"""What is reported of a step of a sample, as a trace keeps it: names of the axes and values, by variable."""


@dataclass(eq=False)
class _Pass:
    """The pass that is running: its rows, and what was removed from its calls, (row, head) by layer."""

    rows: list[Row] = field(default_factory=list)
    removed: dict[int, Tensor] = field(default_factory=dict)
    shortfall: dict[int, Tensor] = field(default_factory=dict)
    scenes: dict[int, tuple[Scene, Scene]] = field(default_factory=dict)
    last_rows: ChosenRows | None = None  # where only those choose


@dataclass(frozen=True, eq=False)
class _Done:
    """What was done to a call so far: the call as it is now, the keys that no longer count, and those of them whose values were zeroed.

    `lost` is bool (sample, head, key), the same for all rows; None if something else was done as well, and only the call itself can tell.
    """

    call: AttentionCall
    lost: Tensor | None
    silenced: Tensor | None = None

    def then(self, call: AttentionCall, lost: Tensor | None = None, silenced: Tensor | None = None) -> "_Done":
        """One more change; none if it left the call alone."""
        if call is self.call:
            return self
        if self.silenced is not None:
            silenced = self.silenced if silenced is None else self.silenced | silenced
        return _Done(call, None if self.lost is None or lost is None else self.lost | lost, silenced)


class Running:
    """Interventions on one batch. `begin` every pass; `finish` every step that the loop yields. `seeds` are those of the samples."""

    def __init__(self, interventions: Sequence[Intervention | Edit], seeds: Sequence[int], *, last_row_only: bool = False) -> None:
        self.interventions = tuple(interventions)
        self.reports: list[list[Reported]] = [[] for _ in seeds]  # by sample, step by step
        self.layers: list[int] = []  # once a step is done
        self._seeds = list(seeds)
        self._last_row_only = last_row_only  # an autoregressive step is its last row
        self._memory = Memory()
        self._pass = _Pass()
        self._workspace = Workspace()

    @property
    def uses_statistics(self) -> bool:
        """Whether the tap must measure for an edit that is a plain function; interventions measure for themselves."""
        return any(not isinstance(intervention, Intervention) and uses_statistics(intervention) for intervention in self.interventions)

    def begin(self, asked: Pass) -> None:
        """A pass begins that a loop has asked for."""
        offset = asked.offset or [0] * len(asked.samples)
        halves = (0,) if asked.unguided is None else (0, 1)
        self.begin_rows([Row(sample, half, offset[index]) for half in halves for index, sample in enumerate(asked.samples)])

    def begin_rows(self, rows: list[Row]) -> None:
        """A pass begins over these rows."""
        self._memory.forget_pass()
        self._pass = _Pass(rows)

    def finish(self, step: Step) -> dict[int, Reported]:
        """A step is done: what is reported of it, by sample."""
        return self.finish_samples(step.samples)

    def finish_samples(self, samples: Sequence[int]) -> dict[int, Reported]:
        """A step is done in which these samples took part."""
        self.layers[:] = sorted(self._pass.removed)
        self._refuse_missing_layers()
        self._memory.keep(samples)
        values = {"removed": _by_layer(self._pass.removed)}
        if any(isinstance(intervention, RandomKeys) and intervention.equal == "mass" for intervention in self.interventions):
            values["shortfall"] = _by_layer(self._pass.shortfall)
        reported: dict[int, Reported] = {
            row.sample: {name: (("layer", "head"), array[index]) for name, array in values.items()}
            for index, row in enumerate(self._pass.rows)
            if row.half == 0 and row.sample in samples
        }
        for sample, report in reported.items():
            self.reports[sample].append(report)
        return reported

    def mean_removed(self, sample: int) -> float:
        """The share of the attention removed from a sample so far: the mean over its steps, the layers and the heads."""
        steps = [report["removed"][1] for report in self.reports[sample]]
        return float(np.nanmean(steps)) if steps else float("nan")

    def __call__(self, call: AttentionCall, before: Before) -> AttentionCall:
        """Do to one attention call what the interventions say."""
        here = [
            (index, intervention)
            for index, intervention in enumerate(self.interventions)
            if not isinstance(intervention, Intervention) or intervention.in_layer(call.layer)
        ]
        nothing = torch.zeros(call.samples, call.heads, device=call.query.device)
        self._pass.removed[call.layer] = self._pass.shortfall[call.layer] = nothing
        if not here:
            return call
        observation = before.forward.observe(call)
        pickers = {index: intervention for index, intervention in here if isinstance(intervention, KeyPicker | RandomKeys)}
        now = received(self._choosing_rows(observation), self._workspace) if pickers else None
        done = _Done(call, lost=torch.zeros(call.samples, call.heads, call.keys, dtype=torch.bool, device=call.query.device))
        for index, intervention in here:
            if now is not None and isinstance(intervention, KeyPicker | RandomKeys):
                done = self._on_keys(index, intervention, done, observation, now)
            elif isinstance(intervention, ExtraSinkToken | MaskHeads | RandomHeads):
                done = done.then(self._on_heads(intervention, done.call))
            elif not isinstance(intervention, Intervention):
                done = done.then(apply_edits((intervention,), done.call, before))
        if now is not None:
            picked = {
                index: anchors(intervention.of if isinstance(intervention, RandomKeys) else intervention, now)
                for index, intervention in pickers.items()
            }
            self._memory.note(call, self._pass.rows, picked, measured_keys(now).sum(-1).amin(-1).tolist())
        if done.call is not call:
            if now is not None and done.lost is not None and (call.queries == 1 or not self._last_row_only):  # `now` is of all its rows
                self._pass.removed[call.layer] = share_of_keys(done.lost, now)
            else:
                self._pass.removed[call.layer] = removed_share(before.forward, observation, done.call, done.silenced, self._workspace)
        return done.call

    def _on_keys(self, index: int, intervention: KeyPicker | RandomKeys, done: _Done, observation: Observation, now: Received) -> _Done:
        """What is done after an intervention on keys as well."""
        call, visibility = observation.call, observation.visibility
        picker = intervention.of if isinstance(intervention, RandomKeys) else intervention
        recalled = self._memory.recall(index, call, self._pass.rows)
        acting = self._in_step(intervention, call) & recalled.known & visibility.live_rows.any(-1).any(-1)
        available = now.visible[:, :, 0] > 0
        self._refuse_too_many(picker, acting, recalled, available, call)
        keys = recalled.keys & acting[:, None, None]
        if isinstance(intervention, RandomKeys):
            others = self._others(intervention, keys, available, observation, now)
            keys = others.keys & acting[:, None, None]
            self._pass.shortfall[call.layer] = self._pass.shortfall[call.layer] + others.shortfall
        if isinstance(picker, KeepSinks):
            entries = ~keys[:, :, None] & outside_window(call, call.keys, picker.window) & acting[:, None, None, None]
            return done.then(hide_keys(done.call, entries, visibility.real_queries, visibility.real_keys).call)
        if not bool(keys.any()):
            return done
        if isinstance(picker, ZeroAnchorValues):
            return done.then(zero_values(done.call, keys), keys, silenced=keys)
        hidden = hide_keys(done.call, keys[:, :, None], visibility.real_queries, visibility.real_keys)
        return done.then(hidden.call, keys if hidden.whole else None)

    def _on_heads(self, intervention: ExtraSinkToken | MaskHeads | RandomHeads, edited: AttentionCall) -> AttentionCall:
        acting = self._in_step(intervention, edited)
        if not bool(acting.any()):
            return edited
        return (
            append_sink(edited, acting)
            if isinstance(intervention, ExtraSinkToken)
            else silence(edited, silenced_heads(intervention, edited), acting)
        )

    def _others(self, intervention: RandomKeys, keys: Tensor, available: Tensor, observation: Observation, now: Received) -> Others:
        """Random keys in place of those that the original picks."""
        call, rows = observation.call, self._pass.rows
        seeds = np.array([self._seeds[row.sample] for row in rows])[:, None, None]
        steps = np.array([self._step(row) for row in rows])[:, None, None]
        positions = call.key_start - np.array([row.offset for row in rows])[:, None, None] + np.arange(call.keys)
        drawn = random_numbers(intervention.seed, seeds, steps, call.layer, np.arange(call.heads)[:, None], positions)
        order = torch.from_numpy(drawn)
        if intervention.equal == "count":
            return as_many_others(keys, available, order, call.where)
        mass = now.mass[:, :, 0]
        if isinstance(intervention.of, KeepSinks):  # only queries that do not have a key in their window lose or keep it
            mass = mass_within(observation, outside_window(call, call.keys, intervention.of.window)[None, None], self._workspace, "by_key")
        return as_much_from_others(keys, available, order, mass / now.rows)

    def _step(self, row: Row) -> int:
        return len(self.reports[row.sample])

    def _in_step(self, intervention: Intervention, call: AttentionCall) -> Tensor:
        """In which rows it acts: bool (row,)."""
        return torch.tensor([intervention.in_step(self._step(row)) for row in self._pass.rows], device=call.query.device)

    def _choosing_rows(self, observation: Observation) -> Observation:
        """The call with one group: the rows by whose attention keys are chosen. Layers that share a scene share the new one."""
        call, scene = observation.call, observation.scene
        one_group = torch.ones(call.samples, 1, call.queries, dtype=torch.bool, device=call.query.device)
        if self._last_row_only and call.queries > 1:
            if self._pass.last_rows is None:
                last = torch.full((call.samples, 1), call.queries - 1, device=call.query.device)
                self._pass.last_rows = ChosenRows(last, {"choosing": one_group[:, 0, -1:]})
            return self._pass.last_rows.observe(observation)
        if id(scene) not in self._pass.scenes:
            self._pass.scenes[id(scene)] = (scene, replace(scene, group_names=("choosing",), groups=one_group))
        return Observation(call, self._pass.scenes[id(scene)][1])

    def _refuse_too_many(self, picker: KeyPicker, acting: Tensor, recalled: Recalled, available: Tensor, call: AttentionCall) -> None:
        if isinstance(picker, MaskAbove):
            return
        seen = available.sum(-1).amin(-1).tolist()
        for index in acting.nonzero()[:, 0].tolist():
            most = recalled.there_were[index] if isinstance(picker, KeepSinks) else min(recalled.there_were[index], seen[index] - 1)
            if picker.k > most:
                raise Refusal(
                    f"{to_text(picker)} picks {picker.k} keys, but at step {self._step(self._pass.rows[index])} in {call.where} there are "
                    f"{seen[index]} keys in sight and at most {most} can be picked. Choose a smaller k."
                )

    def _refuse_missing_layers(self) -> None:
        for intervention in self.interventions:
            missing = (
                next((layer for layer in intervention.named_layers() if layer not in self.layers), None)
                if isinstance(intervention, Intervention)
                else None
            )
            if isinstance(intervention, Intervention) and missing is not None:
                raise Refusal(
                    f"{to_text(intervention)} names layer {missing}; the layers of this model are {self.layers[0]} to {self.layers[-1]}."
                )


def _by_layer(values: dict[int, Tensor]) -> np.ndarray:
    """The values (row, head) of all layers: (row, layer, head); NaN for heads that a layer does not have."""
    rows, widest = (max(of_layer.shape[axis] for of_layer in values.values()) for axis in (0, 1))
    result = np.full((rows, len(values), widest), np.nan, np.float32)
    for index, layer in enumerate(sorted(values)):
        result[:, index, : values[layer].shape[1]] = values[layer].cpu().numpy()
    return result


class EachForward:
    """An edit that treats every forward of a tap as a step of one sample, for loops that do not say what a step is."""

    def __init__(self, running: "Running") -> None:
        self.running = running
        self._step: int | None = None

    @property
    def uses_statistics(self) -> bool:
        return self.running.uses_statistics

    def __call__(self, call: AttentionCall, before: Before) -> AttentionCall:
        if call.samples != 1:
            raise Refusal(
                "This model's generate runs several samples at once (guidance?), and interventions cannot tell them apart. Switch that off."
            )
        if call.step != self._step:
            if self._step is not None:
                self.running.finish_samples([0])
            self.running.begin_rows([Row(0)])
            self._step = call.step
        return self.running(call, before)

    def finish(self) -> "list[Reported]":
        """The last forward was the last step; what is reported of all of them."""
        self.running.finish_samples([0])
        return self.running.reports[0]
