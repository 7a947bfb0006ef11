"""Reduce one observed call, or chosen rows of it, during the call or after it.

Every reducer sees each block once, and the rows are checked to sum to 1 before anything is handed out.

Which rows predict is known only once a step has decided what to commit. A `SeenCall` holds what is needed to look at a call again then:
queries and keys as the kernel got them (no copies), the logsumexp of its rows, and who saw whom; `ChosenRows` says which rows to look at.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from floatlens.capture.call import AttentionCall, as_four_axes
from floatlens.capture.layers import LayerIdentity
from floatlens.capture.observation import CallRecord, Labelled, Observation, Scene, record_of
from floatlens.capture.reducers import ReducerMaker
from floatlens.capture.reducers.mass import Mass
from floatlens.capture.visibility import see
from floatlens.capture.walk import Workspace, refuse_broken_rows, walk


def reduce_call(
    observation: Observation, logsumexp: Tensor | None, makers: Sequence[ReducerMaker], workspace: Workspace
) -> dict[str, Labelled]:
    """What the reducers make of the call, by name."""
    reducers = [make(observation) for make in makers]
    in_blocks = [reducer for reducer in reducers if reducer.needs_blocks]
    if in_blocks:
        mass = next((reducer for reducer in in_blocks if isinstance(reducer, Mass)), None) or Mass(observation)
        walk(observation, logsumexp, [mass, *(reducer for reducer in in_blocks if reducer is not mass)], workspace)
        mass.check_rows_sum_to_one(lambda: refuse_broken_rows(observation, logsumexp, workspace))
    return {name: value for reducer in reducers for name, value in reducer.result().items()}


@dataclass(frozen=True, eq=False)
class SeenCall:
    """A call as it ran, edits included."""

    identity: LayerIdentity
    observation: Observation
    logsumexp: Tensor | None  # (sample, head, query)


@dataclass(frozen=True, eq=False)
class ChosenRows:
    """Rows to be looked at in every call of a forward.

    `rows` are indices of queries, (sample, chosen); samples with fewer rows than others repeat any. `groups` say which of the chosen rows
    belong to each group, bool (sample, chosen); a row in no group is not looked at.
    """

    rows: Tensor
    groups: Mapping[str, Tensor]
    _scenes: dict[int, tuple[Scene, Scene]] = field(default_factory=dict)

    def observe(self, observation: Observation) -> Observation:
        """These rows of a call. Layers that shared a scene share the new one."""
        call, scene = observation.call, observation.scene
        picked = replace(call, query=_gather(call.query, self.rows), mask=_mask_of_rows(call, self.rows), causal=False)
        if id(scene) not in self._scenes:
            self._scenes[id(scene)] = (scene, self._scene(picked, scene))  # holding the scene keeps its id from being reused
        return Observation(picked, self._scenes[id(scene)][1])

    def record(self, seen: SeenCall, makers: Sequence[ReducerMaker], workspace: Workspace) -> CallRecord:
        """What the reducers make of these rows."""
        observation = self.observe(seen.observation)
        logsumexp = None if seen.logsumexp is None else _gather(seen.logsumexp[..., None], self.rows)[..., 0]
        return record_of(seen.identity, observation, reduce_call(observation, logsumexp, makers, workspace))

    def _scene(self, picked: AttentionCall, scene: Scene) -> Scene:
        in_groups = torch.stack([group.to(self.rows.device) for group in self.groups.values()], dim=1)
        real = in_groups.any(1) & scene.visibility.real_queries.gather(1, self.rows)
        return replace(
            scene,
            visibility=see(picked, real, scene.visibility.real_keys),
            query_start=0,
            group_names=tuple(self.groups),
            groups=in_groups,
            query_positions=scene.query_positions.gather(1, self.rows),
            query_regions=scene.query_regions.gather(2, self.rows[:, None].expand(-1, scene.query_regions.shape[1], -1)),
        )


def _mask_of_rows(call: AttentionCall, rows: Tensor) -> Tensor | None:
    """The mask of these rows: (sample or 1, head or 1, chosen or 1, key)."""
    if call.causal:
        return (rows[..., None] >= torch.arange(call.keys, device=rows.device))[:, None]
    if call.mask is None:
        return None
    mask = as_four_axes(call.mask)
    return mask if mask.shape[2] == 1 else _gather(mask.expand(call.samples, -1, -1, -1), rows)


def _gather(values: Tensor, rows: Tensor) -> Tensor:
    """(sample, head, query, ...) at these rows: (sample, head, chosen, ...)."""
    index = rows[:, None, :, None].expand(-1, values.shape[1], -1, values.shape[3])
    return values.gather(2, index)
