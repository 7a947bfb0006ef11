"""Reduce observed layers, or chosen rows of them, during a forward or after it.

Every reducer sees each block once, and the rows are checked to sum to 1 before anything is handed out.

Which rows predict is known only once a step has decided what to commit. `SeenLayers` are what is needed to look again then: queries and
keys as the kernel got them, the logsumexp of their rows, and who saw whom; `ChosenRows` says which rows to look at.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from floatlens.capture.checks import Check
from floatlens.capture.layers import LayerIdentity
from floatlens.capture.observation import Labelled, Observation, Scene
from floatlens.capture.records import Record, record_of
from floatlens.capture.reducers import ReducerMaker
from floatlens.capture.reducers.mass import Mass, rows_sum_to_one
from floatlens.capture.visibility import Visibility
from floatlens.capture.walk import ColumnSums, Workspace, refuse_broken_rows, walk


@dataclass(frozen=True, eq=False)
class Reducing:
    """How to reduce: what is kept, in which buffers, and which arrays are averaged over heads before they leave the device."""

    makers: Sequence[ReducerMaker]
    workspace: Workspace
    averaged: frozenset[str] = frozenset()


def reduce_layers(observation: Observation, how: Reducing, checks: list[Check]) -> dict[str, Labelled]:
    """What the reducers make of the layers, by name. What must be checked before that is handed out is added to `checks`."""
    reducers = [make(observation) for make in how.makers]
    needs_weights = [reducer for reducer in reducers if reducer.needs_blocks or reducer.rows is not None]
    sums: dict[int, Tensor] = {}
    if needs_weights:
        mass = next((reducer for reducer in reducers if isinstance(reducer, Mass)), None) or Mass(observation)
        summing = [mass, *(reducer for reducer in reducers if reducer.rows is not None and reducer is not mass)]
        sets = [reducer.rows for reducer in summing if reducer.rows is not None]
        columns = ColumnSums(observation, torch.cat(_with_as_many_heads(sets), dim=2) if len(sets) > 1 else sets[0])
        walk(observation, [columns, *(reducer for reducer in reducers if reducer.needs_blocks)], how.workspace)
        parts = columns.sums.split([of_reducer.shape[2] for of_reducer in sets], dim=-2)
        sums = {id(reducer): part for reducer, part in zip(summing, parts, strict=True)}
        checks.append(rows_sum_to_one(observation, sums[id(mass)], lambda: refuse_broken_rows(observation, how.workspace)))
    results = {name: value for reducer in reducers for name, value in reducer.result(sums.get(id(reducer))).items()}
    alike = observation.visibility.live_rows.shape[1] == 1  # every head sees the same, so what is NaN for one is NaN for all
    return {
        name: _mean_over_heads(*value, alike and name != "cosine") if name in how.averaged else value for name, value in results.items()
    }  # a key of length 0 has no cosine, and may have it in one head only


def _with_as_many_heads(sets: Sequence[Tensor]) -> list[Tensor]:
    """Sets of rows (sample, head or 1, set, query) with the same number of heads."""
    heads = max(rows.shape[1] for rows in sets)
    return [rows.expand(-1, heads, -1, -1) for rows in sets]


def _mean_over_heads(axes: tuple[str, ...], values: Tensor, alike: bool) -> Labelled:
    """The mean over the heads for which there is something."""
    if "head" not in axes:
        return axes, values
    axis = axes.index("head")
    return (*axes[:axis], *axes[axis + 1 :]), values.mean(axis) if alike else values.nanmean(axis)


@dataclass(frozen=True, eq=False)
class SeenLayers:
    """Layers as they ran, edits included."""

    identities: tuple[LayerIdentity, ...]
    observation: Observation


@dataclass(frozen=True, eq=False)
class ChosenRows:
    """Rows to be looked at in every layer of a forward; in host memory.

    `rows` are indices of queries, (sample, chosen); samples with fewer rows than others repeat any. `groups` say which of the chosen rows
    belong to each group, bool (sample, chosen); a row in no group is not looked at.
    """

    rows: Tensor
    groups: Mapping[str, Tensor]
    _scenes: dict[int, tuple[Scene, Tensor, Scene]] = field(default_factory=dict)

    def observe(self, observation: Observation) -> Observation:
        """These rows of the layers. Layers that shared a scene share the new one."""
        scene = observation.scene
        if id(scene) not in self._scenes:
            rows = self.rows.to(observation.device)
            self._scenes[id(scene)] = (scene, rows, self._scene(scene, rows))  # holding the scene keeps its id from being reused
        _, rows, chosen = self._scenes[id(scene)]
        query, logsumexp = observation.query, observation.logsumexp
        index = rows[:, None, :, None].expand(*query.shape[:3], -1, query.shape[4])
        logsumexp = None if logsumexp is None else logsumexp.gather(3, index[..., 0])
        return replace(observation, scene=chosen, query=query.gather(3, index), logsumexp=logsumexp)

    def record(self, seen: SeenLayers, how: Reducing, checks: list[Check]) -> Record:
        """What the reducers make of these rows."""
        observation = self.observe(seen.observation)
        return record_of(seen.identities, observation, reduce_layers(observation, how, checks))

    def _scene(self, scene: Scene, rows: Tensor) -> Scene:
        in_groups = torch.stack([*self.groups.values()], dim=1)
        in_any, visibility = in_groups.any(1), scene.visibility
        all_real = visibility.all_queries_real and bool(in_any.all())
        in_groups, in_any = in_groups.to(rows.device), in_any.to(rows.device)
        seen = Visibility(
            queries=rows.shape[1],
            keys=visibility.keys,
            causal=False,
            mask=_mask_of_rows(visibility, rows),
            real_queries=in_any if visibility.all_queries_real else in_any & visibility.real_queries.gather(1, rows),
            real_keys=visibility.real_keys,
            all_queries_real=all_real,
            all_keys_real=visibility.all_keys_real,
        )
        return replace(
            scene,
            visibility=seen,
            query_start=0,
            group_names=tuple(self.groups),
            groups=in_groups,
            query_positions=scene.query_positions.gather(1, rows),
            query_regions=scene.query_regions.gather(2, rows[:, None].expand(-1, scene.query_regions.shape[1], -1)),
        )


def _mask_of_rows(visibility: Visibility, rows: Tensor) -> Tensor | None:
    """The mask of these rows: (sample or 1, head or 1, chosen, key)."""
    if visibility.causal:
        return (rows[..., None] >= torch.arange(visibility.keys, device=rows.device))[:, None]
    if visibility.mask is None:
        return None
    mask = visibility.mask.expand(len(rows), -1, -1, -1)
    return mask.gather(2, rows[:, None, :, None].expand(-1, mask.shape[1], -1, mask.shape[3]))
