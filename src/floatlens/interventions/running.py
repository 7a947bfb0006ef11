"""Interventions while they run on one batch: what is done to each call, and the account of what that removed.

A `Running` is an edit of a tap. It is told which samples each pass runs and which of them took part in a step, because samples leave a
batch when they are done, and a batch may run on for samples that have nothing left to do: steps, statistics and draws are those of the
sample, whatever runs beside it. Both halves of a batch doubled by guidance have statistics of their own; the conditional half is
reported.

A pass that only stores a cache is part of the step that follows it: the same anchors, no statistics, nothing reported. Where a model runs
its own loop, every forward is a step (`EachForward`).

Nothing is asked of the device while a pass runs: keys are chosen and hidden where the attention is, what cannot be done is noted as a
check, and the account of a step is fetched once, together with the checks, when it is done. What is hidden was chosen a step before, so
that a pass only hides; what its layers show is measured when it is over, for all of them together (`Waiting`). Only a control of equal
mass has to know during the pass how much each key receives.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from floatlens.capture.call import AttentionCall, full_precision
from floatlens.capture.checks import Check, fetch
from floatlens.capture.edits import Before, Edit, Received, apply_edits, received_by_layer, uses_statistics
from floatlens.capture.holding import HELD_BYTES, Held, as_many_as_fit
from floatlens.capture.layers import LayerIdentity
from floatlens.capture.observation import Observation, Scene, observe_alone, observe_together
from floatlens.capture.reduction import ChosenRows
from floatlens.capture.visibility import Real
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
)
from floatlens.interventions.during_pass import CurrentPass, Done, Sight, Waiting, hides_at_most, side_by_side
from floatlens.interventions.specification import (
    ExtraSinkToken,
    Intervention,
    KeepSinks,
    KeyPicker,
    MaskAbove,
    MaskAnchors,
    MaskHeads,
    RandomHeads,
    RandomKeys,
    ZeroAnchorValues,
)
from floatlens.interventions.wording import to_text

Reported = dict[str, tuple[tuple[str, ...], np.ndarray]]
"""What is reported of a step of a sample, as a trace keeps it: names of the axes and values, by variable."""


class Running:
    """Interventions on one batch. `begin` every pass; `finish` every step that the loop yields. `seeds` are those of the samples."""

    def __init__(self, interventions: Sequence[Intervention | Edit], seeds: Sequence[int], *, last_row_only: bool = False) -> None:
        self.interventions = tuple(interventions)
        self.reports: list[list[Reported]] = [[] for _ in seeds]  # by sample, step by step
        self.layers: list[int] = []  # once a step is done
        self._seeds = list(seeds)
        self._last_row_only = last_row_only  # an autoregressive step is its last row
        self._memory = Memory()
        self._pass = CurrentPass()
        self._unread: list[list[Check]] = []  # of each forward; those of a pass that is no step are read with the step that follows
        self._workspace = Workspace()
        self.held_bytes = HELD_BYTES  # of calls that wait; 0 where a model may write to its keys before the step is over

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
        self._pass = CurrentPass(rows)

    def finish(self, step: Step) -> dict[int, Reported]:
        """A step is done: what is reported of it, by sample."""
        return self.finish_samples(step.samples)

    def finish_samples(self, samples: Sequence[int]) -> dict[int, Reported]:
        """A step is done in which these samples took part."""
        self._measure_waiting()
        self.layers[:] = sorted(self._pass.removed)
        self._refuse_missing_layers()
        self._memory.keep(samples)
        by_layer = {"removed": self._pass.removed}
        if any(isinstance(intervention, RandomKeys) and intervention.equal == "mass" for intervention in self.interventions):
            by_layer["shortfall"] = self._pass.shortfall
        values = self._fetched(by_layer)
        reported: dict[int, Reported] = {
            row.sample: {name: (("layer", "head"), array[index]) for name, array in values.items()}
            for index, row in enumerate(self._pass.rows)
            if row.half == 0 and row.sample in samples
        }
        for sample, report in reported.items():
            self.reports[sample].append(report)
        return reported

    def _fetched(self, by_layer: dict[str, dict[int, Tensor]]) -> dict[str, np.ndarray]:
        """The account of a pass, (row, layer, head) by name, once its checks have passed."""
        checks = [check for of_forward in self._unread for check in of_forward]
        self._unread.clear()
        arrived = iter(fetch([values[layer] for values in by_layer.values() for layer in self.layers], checks))
        return {name: side_by_side([next(arrived) for _ in self.layers]) for name in by_layer}

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
        self._pass.removed[call.layer] = self._pass.shortfall[call.layer] = self._nothing_removed(call)
        checks = before.forward.checks
        if all(of_forward is not checks for of_forward in self._unread):
            self._unread.append(checks)
        if not here:
            return call
        scene = before.forward.scene(call)
        pickers: dict[int, KeyPicker] = {
            index: intervention.of if isinstance(intervention, RandomKeys) else intervention
            for index, intervention in here
            if isinstance(intervention, KeyPicker | RandomKeys)
        }
        now = None
        if any(isinstance(intervention, RandomKeys) and intervention.equal == "mass" for _, intervention in here):
            now = received_by_layer(self._choosing_rows(observe_alone(call, scene)), self._workspace, checks)
        done = Done(call)
        for index, intervention in here:
            if isinstance(intervention, KeyPicker | RandomKeys):
                done = self._on_keys(index, intervention, done, call, scene, now, checks)
            elif isinstance(intervention, ExtraSinkToken | MaskHeads | RandomHeads):
                done = done.then(self._on_heads(intervention, done.call))
            elif not isinstance(intervention, Intervention):
                done = done.then(apply_edits((intervention,), done.call, before))
        lost = done.lost if isinstance(done.lost, Tensor) and pickers and (call.queries == 1 or not self._last_row_only) else None
        if done.call is not call and lost is None:  # else it is a share of what all its rows will have shown
            self._pass.removed[call.layer] = removed_share(before.forward, call, done.call, done.silenced, self._workspace)
        if pickers:
            self._wait(Waiting(Held(LayerIdentity(call.layer, call.module, call.repeat), call, scene, None), pickers, lost, now))
        return done.call

    def _nothing_removed(self, call: AttentionCall) -> Tensor:
        """Zeros (sample, head): what was removed from a call to which nothing was done."""
        nothing = self._pass.nothing
        if nothing is None or nothing.shape != call.query.shape[:2] or nothing.device != call.query.device:
            nothing = self._pass.nothing = torch.zeros(call.samples, call.heads, device=call.query.device)
        return nothing

    def _wait(self, waiting: Waiting) -> None:
        """Hold one more call; look at what is held if that is too much by now."""
        self._pass.waiting.append(waiting)
        self._pass.bytes_waiting += waiting.held.bytes
        if self._pass.bytes_waiting > self.held_bytes:
            self._measure_waiting()

    def _measure_waiting(self) -> None:
        """Look at what the keys of the calls that wait receive: of all layers together that see the same keys."""
        waiting, self._pass.waiting, self._pass.bytes_waiting = self._pass.waiting, [], 0
        together: dict[tuple[object, ...], list[Waiting]] = {}
        for call in waiting:
            if call.received is None:
                call.held.refuse_if_overwritten(
                    "Interventions need them until the step is over; give the model a cache that it does not reuse."
                )
            together.setdefault((*call.held.goes_with, *call.pickers, call.lost is None, call.received is None), []).append(call)
        for alike in together.values():
            for layers in as_many_as_fit(alike, alike[0].held.call):
                with full_precision(alike[0].held.call.query.device):
                    self._note(layers, self._received(layers))

    def _received(self, layers: Sequence[Waiting]) -> Received:
        """What the keys of some calls receive that see the same ones; measured now where that is not known."""
        known = [layer.received for layer in layers if layer.received is not None]
        if known:
            return replace(known[0], mass=torch.cat([received.mass for received in known]))
        seen = observe_together([layer.held.call for layer in layers], layers[0].held.scene, [None] * len(layers))
        return received_by_layer(self._choosing_rows(seen), self._workspace, self._unread[-1])

    def _note(self, layers: Sequence[Waiting], now: Received) -> None:
        """Remember what is picked in calls whose keys received this, (layer, ...), and what those lost that were hidden from them."""
        sight = self._sight(layers[0].held.scene)
        picked = {index: anchors(picker, now, sight.measured) for index, picker in layers[0].pickers.items()}
        lost = [layer.lost for layer in layers if layer.lost is not None]
        shares = share_of_keys(torch.stack(lost), now) if lost else None
        for place, layer in enumerate(layers):
            call = layer.held.call
            self._memory.note(call, self._pass.rows, {index: keys[place] for index, keys in picked.items()}, sight.there_were)
            if shares is not None:
                self._pass.removed[call.layer] = shares[place]

    def _on_keys(
        self,
        index: int,
        intervention: KeyPicker | RandomKeys,
        done: Done,
        call: AttentionCall,
        scene: Scene,
        now: Received | None,
        checks: list[Check],
    ) -> Done:
        """What is done after an intervention on keys as well."""
        visibility = scene.visibility
        picker = intervention.of if isinstance(intervention, RandomKeys) else intervention
        recalled = self._memory.recall(index, call, self._pass.rows)
        acts = tuple(known and acting for known, acting in zip(recalled.known, self._in_step(intervention), strict=True))
        if not any(acts):
            return done
        sight = self._sight(scene)
        if acts not in sight.acting:
            sight.acting[acts] = torch.tensor(acts, device=call.query.device) & visibility.live_rows.any(-1).any(-1)
        acting, available = sight.acting[acts], sight.available
        if not isinstance(picker, MaskAbove) and index not in sight.checked:
            sight.checked.add(index)
            checks.append(self._too_many(picker, acting, recalled, sight.in_sight, call))
        keys = recalled.keys & acting[:, None, None]
        if isinstance(intervention, RandomKeys):
            others = self._others(index, intervention, keys, available, call, scene, now)
            checks += others.checks
            keys = others.keys & acting[:, None, None]
            self._pass.shortfall[call.layer] = self._pass.shortfall[call.layer] + others.shortfall
        real = Real(visibility.real_queries, visibility.real_keys, visibility.all_queries_real, visibility.all_keys_real)
        if isinstance(picker, KeepSinks):
            entries = ~keys[:, :, None] & outside_window(call, call.keys, picker.window) & acting[:, None, None, None]
            sees_itself = visibility.mask is None and done.call is call
            return done.then(hide_keys(done.call, entries, real, safe=sees_itself).call)
        if isinstance(picker, ZeroAnchorValues):
            return done.then(zero_values(done.call, keys), keys, silenced=keys, hidden=0)
        hides, safe = hides_at_most(intervention, picker, done.hidden, visibility)
        hidden = hide_keys(done.call, keys[:, :, None], real, safe=safe)
        return done.then(hidden.call, keys if hidden.whole else None, hidden=hides)

    def _sight(self, scene: Scene) -> Sight:
        """What is in sight in a call. Layers that share a scene share it."""
        if id(scene) not in self._pass.sights:
            choosing = self._choosing_scene(scene)
            available, measured = choosing.seeing_rows.select(-2, 0) > 0, measured_keys(choosing.seeing_rows, choosing.group_sizes)
            in_sight, there_were = (keys.sum(-1).amin(-1) for keys in (available, measured))
            self._pass.sights[id(scene)] = Sight(scene, choosing, available, in_sight, measured, there_were)
        return self._pass.sights[id(scene)]

    def _on_heads(self, intervention: ExtraSinkToken | MaskHeads | RandomHeads, edited: AttentionCall) -> AttentionCall:
        acting = self._in_step(intervention)
        if not any(acting):
            return edited
        return (
            append_sink(edited, acting)
            if isinstance(intervention, ExtraSinkToken)
            else silence(edited, silenced_heads(intervention, edited), acting)
        )

    def _others(
        self,
        index: int,
        intervention: RandomKeys,
        keys: Tensor,
        available: Tensor,
        call: AttentionCall,
        scene: Scene,
        now: Received | None,
    ) -> Others:
        """Random keys in place of those that the original picks."""
        rows = self._pass.rows
        seeds, steps = [self._seeds[row.sample] for row in rows], [self._step(row) for row in rows]
        in_order = self._pass.draws.ranked(index, intervention.seed, call, rows, seeds, steps, self.layers)
        if intervention.equal == "count":
            return as_many_others(keys, available, in_order, call.where)
        assert now is not None
        mass = now.mass[0, :, :, 0]
        if isinstance(intervention.of, KeepSinks):  # only queries that do not have a key in their window lose or keep it
            outside = outside_window(call, call.keys, intervention.of.window)[None, None]
            mass = mass_within(observe_alone(call, scene), outside, self._workspace, "by_key")
        return as_much_from_others(keys, available, in_order, mass / now.rows)

    def _step(self, row: Row) -> int:
        return len(self.reports[row.sample])

    def _in_step(self, intervention: Intervention) -> list[bool]:
        """In which rows it acts."""
        steps = [self._step(row) for row in self._pass.rows]
        acting = {step: intervention.in_step(step) for step in {*steps}}
        return [acting[step] for step in steps]

    def _choosing_rows(self, observation: Observation) -> Observation:
        """Calls with one group: the rows by whose attention keys are chosen."""
        choosing = self._sight(observation.scene).choosing
        if self._last_row_only and observation.queries > 1:
            assert self._pass.last_rows is not None
            return self._pass.last_rows.observe(observation)
        return replace(observation, scene=choosing)

    def _choosing_scene(self, scene: Scene) -> Scene:
        """What is shared by calls as the rows see it by whose attention keys are chosen."""
        queries = scene.visibility.queries
        if not self._last_row_only or queries == 1:
            return replace(scene, group_names=("choosing",), groups=torch.ones_like(scene.groups[:, :1]))
        if self._pass.last_rows is None:
            last = torch.full((len(scene.groups), 1), queries - 1)
            self._pass.last_rows = ChosenRows(last, {"choosing": torch.ones_like(last, dtype=torch.bool)})
        return self._pass.last_rows.scene_of(scene)[1]

    def _too_many(
        self, picker: MaskAnchors | ZeroAnchorValues | KeepSinks, acting: Tensor, recalled: Recalled, seen: Tensor, call: AttentionCall
    ) -> Check:
        """Whether more keys are to be picked than there are."""
        most = recalled.there_were if isinstance(picker, KeepSinks) else torch.minimum(recalled.there_were, seen - 1)
        too_many = acting & (picker.k > most)
        steps = [self._step(row) for row in self._pass.rows]

        def refuse() -> None:
            row = int(too_many.nonzero()[0])
            raise Refusal(
                f"{to_text(picker)} picks {picker.k} keys, but at step {steps[row]} in {call.where} there are "
                f"{int(seen[row])} keys in sight and at most {int(most[row])} can be picked. Choose a smaller k."
            )

        return Check(too_many.any(), refuse)

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


class EachForward:
    """An edit that treats every forward of a tap as a step of one sample, for loops that do not say what a step is."""

    def __init__(self, running: "Running") -> None:
        self.running = running
        self.running.held_bytes = 0  # the loop says nothing when a step is over: by the next one its keys may be written to
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
