"""Interventions while they run on one batch: what is done to each call, and the account of what that removed.

A `Running` is an edit of a tap. It is told which samples each pass runs and which of them took part in a step, because samples leave a batch when they are
done, and a batch may run on for samples that have nothing left to do: steps, statistics and draws are those of the sample, whatever runs beside it. Both
halves of a batch doubled by guidance have statistics of their own; the conditional one is reported.

A pass that only stores a cache is part of the step that follows it: the same anchors, no statistics, nothing reported.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from floatlens.capture.call import AttentionCall
from floatlens.capture.edits import Before, Edit, Received, apply_edits, received, uses_statistics
from floatlens.capture.observation import Observation, Scene
from floatlens.capture.walk import Workspace
from floatlens.decoding.canvas import Pass, Step
from floatlens.errors import Refusal
from floatlens.interventions.accounting import mass_within, removed_share
from floatlens.interventions.acting import append_sink, hide_keys, outside_window, silence, silenced_heads, zero_values
from floatlens.interventions.choosing import Others, anchors, as_many_others, as_much_from_others, measured_keys
from floatlens.interventions.lots import lots
from floatlens.interventions.memory import Memory, Recalled, Row
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
        return any(not isinstance(one, Intervention) and uses_statistics(one) for one in self.interventions)

    def begin(self, asked: Pass) -> None:
        """A pass begins that a loop has asked for."""
        offset = asked.offset or [0] * len(asked.samples)
        halves = (0,) if asked.unguided is None else (0, 1)
        self.begin_rows([Row(sample, half, offset[at]) for half in halves for at, sample in enumerate(asked.samples)])

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
        reported = {row.sample: self._report(at) for at, row in enumerate(self._pass.rows) if row.half == 0 and row.sample in samples}
        for sample, report in reported.items():
            self.reports[sample].append(report)
        return reported

    def mean_removed(self, sample: int) -> float:
        """The share of the attention removed from a sample so far: the mean over its steps, the layers and the heads."""
        steps = [report["removed"][1] for report in self.reports[sample]]
        return float(np.nanmean(steps)) if steps else float("nan")

    def __call__(self, call: AttentionCall, before: Before) -> AttentionCall:
        """Do to one attention call what the interventions say."""
        here = [(at, one) for at, one in enumerate(self.interventions) if not isinstance(one, Intervention) or one.in_layer(call.layer)]
        nothing = torch.zeros(call.samples, call.heads, device=call.query.device)
        self._pass.removed[call.layer] = self._pass.shortfall[call.layer] = nothing
        if not here:
            return call
        observation = before.forward.observe(call)
        pickers = {at: one for at, one in here if isinstance(one, KeyPicker | RandomKeys)}
        now = received(self._choosing_rows(observation), self._workspace) if pickers else None
        edited, silenced = call, None
        for at, one in here:
            if now is not None and isinstance(one, KeyPicker | RandomKeys):
                edited, unheard = self._on_keys(at, one, edited, observation, now)
                if unheard is not None:
                    silenced = unheard if silenced is None else silenced | unheard
            elif isinstance(one, ExtraSinkToken | MaskHeads | RandomHeads):
                edited = self._on_heads(one, edited)
            elif not isinstance(one, Intervention):
                edited = apply_edits((one,), edited, before)
        if now is not None:
            picked = {at: anchors(one.of if isinstance(one, RandomKeys) else one, now) for at, one in pickers.items()}
            self._memory.note(call, self._pass.rows, picked, measured_keys(now).sum(-1).amin(-1).tolist())
        if edited is not call:
            self._pass.removed[call.layer] = removed_share(before.forward, observation, edited, silenced, self._workspace)
        return edited

    def _on_keys(
        self, at: int, one: KeyPicker | RandomKeys, edited: AttentionCall, observation: Observation, now: Received
    ) -> tuple[AttentionCall, Tensor | None]:
        """The call after an intervention on keys, and the keys whose values were zeroed."""
        call, visibility = observation.call, observation.visibility
        picker = one.of if isinstance(one, RandomKeys) else one
        recalled = self._memory.recall(at, call, self._pass.rows)
        acting = self._in_step(one, call) & recalled.known & visibility.live_rows.any(-1).any(-1)
        available = now.visible[:, :, 0] > 0
        self._refuse_too_many(picker, acting, recalled, available, call)
        keys = recalled.keys & acting[:, None, None]
        if isinstance(one, RandomKeys):
            others = self._others(one, keys, available, observation, now)
            keys = others.keys & acting[:, None, None]
            self._pass.shortfall[call.layer] = self._pass.shortfall[call.layer] + others.shortfall
        if isinstance(picker, KeepSinks):
            entries = ~keys[:, :, None] & outside_window(call, call.keys, picker.window) & acting[:, None, None, None]
            return hide_keys(edited, entries, visibility.real_queries, visibility.real_keys), None
        if not bool(keys.any()):
            return edited, None
        if isinstance(picker, ZeroAnchorValues):
            return zero_values(edited, keys), keys
        return hide_keys(edited, keys[:, :, None], visibility.real_queries, visibility.real_keys), None

    def _on_heads(self, one: ExtraSinkToken | MaskHeads | RandomHeads, edited: AttentionCall) -> AttentionCall:
        acting = self._in_step(one, edited)
        if not bool(acting.any()):
            return edited
        return append_sink(edited, acting) if isinstance(one, ExtraSinkToken) else silence(edited, silenced_heads(one, edited), acting)

    def _others(self, one: RandomKeys, keys: Tensor, available: Tensor, observation: Observation, now: Received) -> Others:
        """Random keys in place of those that the original picks."""
        call, rows = observation.call, self._pass.rows
        seeds = np.array([self._seeds[row.sample] for row in rows])[:, None, None]
        steps = np.array([self._step(row) for row in rows])[:, None, None]
        positions = call.key_start - np.array([row.offset for row in rows])[:, None, None] + np.arange(call.keys)
        drawn = lots(one.seed, seeds, steps, call.layer, np.arange(call.heads)[:, None], positions)
        order = torch.from_numpy(drawn).to(call.query.device)
        if one.equal == "count":
            return as_many_others(keys, available, order, call.where)
        mass = now.mass[:, :, 0]
        if isinstance(one.of, KeepSinks):  # only queries that do not have a key in their window lose or keep it
            mass = mass_within(observation, outside_window(call, call.keys, one.of.window)[None, None], self._workspace, "by_key")
        return as_much_from_others(keys, available, order, mass / now.rows)

    def _step(self, row: Row) -> int:
        return len(self.reports[row.sample])

    def _in_step(self, one: Intervention, call: AttentionCall) -> Tensor:
        """In which rows it acts: bool (row,)."""
        return torch.tensor([one.in_step(self._step(row)) for row in self._pass.rows], device=call.query.device)

    def _choosing_rows(self, observation: Observation) -> Observation:
        """The call with one group: the rows by whose attention keys are chosen. Layers that share a scene share the new one."""
        scene = observation.scene
        if id(scene) not in self._pass.scenes:
            rows = torch.ones(observation.call.samples, 1, observation.call.queries, dtype=torch.bool, device=observation.call.query.device)
            if self._last_row_only:
                rows[..., :-1] = False
            self._pass.scenes[id(scene)] = (scene, replace(scene, group_names=("choosing",), groups=rows))
        return Observation(observation.call, self._pass.scenes[id(scene)][1])

    def _report(self, at: int) -> Reported:
        """What is reported of one row of the pass."""
        reported = {"removed": (("layer", "head"), _by_layer(self._pass.removed, at))}
        if any(isinstance(one, RandomKeys) and one.equal == "mass" for one in self.interventions):
            reported["shortfall"] = (("layer", "head"), _by_layer(self._pass.shortfall, at))
        return reported

    def _refuse_too_many(self, picker: KeyPicker, acting: Tensor, recalled: Recalled, available: Tensor, call: AttentionCall) -> None:
        if isinstance(picker, MaskAbove):
            return
        seen = available.sum(-1).amin(-1).tolist()
        for at in acting.nonzero()[:, 0].tolist():
            most = recalled.there_were[at] if isinstance(picker, KeepSinks) else min(recalled.there_were[at], seen[at] - 1)
            if picker.k > most:
                raise Refusal(
                    f"{to_text(picker)} picks {picker.k} keys, but at step {self._step(self._pass.rows[at])} in {call.where} there are "
                    f"{seen[at]} keys in sight and at most {most} can be picked. Choose a smaller k."
                )

    def _refuse_missing_layers(self) -> None:
        for one in self.interventions:
            if isinstance(one, Intervention) and (missing := [layer for layer in one.named_layers() if layer not in self.layers]):
                raise Refusal(
                    f"{to_text(one)} names layer {missing[0]}; the layers of this model are {self.layers[0]} to {self.layers[-1]}."
                )


def _by_layer(values: dict[int, Tensor], row: int) -> np.ndarray:
    """One row of the values of all layers, (layer, head); NaN for heads that a layer does not have."""
    widest = max(of_layer.shape[1] for of_layer in values.values())
    result = np.full((len(values), widest), np.nan, np.float32)
    for at, (_, of_layer) in enumerate(sorted(values.items())):
        result[at, : of_layer.shape[1]] = of_layer[row].cpu().numpy()
    return result
