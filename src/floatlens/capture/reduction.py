"""Reduce observed layers, or chosen rows of them, during a forward or after it.

Every reducer sees each block once, and the rows are checked to sum to 1 before anything is handed out.

Which rows predict is known only once a step has decided what to commit. `SeenLayers` are what is needed to look again then: queries and
keys as the kernel got them, the logsumexp of their rows, and who saw whom; `ChosenRows` says which rows to look at. A `SeenStep` holds
them until then: all of them up to a number of bytes, and beyond it, of the queries, only those of rows that may predict.
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
from floatlens.errors import BrokenPromise

SEEN_BYTES = 512 << 20  # of the queries and keys of a step that are held until it is known which rows predict


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
    """Layers as they ran, edits included. If `rows` are given, the queries of the observation are those of these rows only.

    `rows` are indices of queries, (row,) in ascending order and in host memory. The scene is always that of all rows.
    """

    identities: tuple[LayerIdentity, ...]
    observation: Observation
    rows: Tensor | None = None

    @property
    def bytes(self) -> int:
        """What holding them keeps from being freed, the scene not counted."""
        seen = self.observation
        held = [seen.query, seen.key, *([] if seen.logsumexp is None else [seen.logsumexp])]
        return sum({storage.data_ptr(): storage.nbytes() for storage in (tensor.untyped_storage() for tensor in held)}.values())

    def only(self, rows: Tensor) -> "SeenLayers":
        """The same with the queries of these rows alone. What a fused projection keeps beside the keys is let go as well."""
        if self.rows is not None:
            return self
        seen, there = self.observation, rows.to(self.observation.device)
        key = seen.key.clone() if seen.key.untyped_storage().nbytes() > seen.key.nbytes else seen.key
        logsumexp = None if seen.logsumexp is None else seen.logsumexp.index_select(3, there)
        return replace(self, rows=rows, observation=replace(seen, query=seen.query.index_select(3, there), key=key, logsumexp=logsumexp))


@dataclass(eq=False)
class SeenStep:
    """The layers of a step, held until it is known which of their rows predict.

    Up to `at_most` bytes they are held as they are. Beyond that only the queries of `candidates` stay, the rows that may predict; keys
    always do, because whatever row it is, it looks at all of them.
    """

    at_most: int
    candidates: Tensor | None = None  # indices of queries in ascending order; None if any row may predict
    layers: list[SeenLayers] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        """What is kept from being freed."""
        return sum(layers.bytes for layers in self.layers)

    def begin(self, candidates: Tensor | None) -> None:
        """Another step begins, in which these rows may predict."""
        self.candidates = candidates
        self.layers.clear()

    def add(self, layers: SeenLayers) -> None:
        """Hold more layers."""
        self.layers.append(layers)
        if self.candidates is not None and self.bytes > self.at_most:
            for place, held in enumerate(self.layers):
                self.layers[place] = held.only(self.candidates)


@dataclass(frozen=True, eq=False)
class ChosenRows:
    """Rows to be looked at in every layer of a forward; in host memory.

    `rows` are indices of queries, (sample, chosen); samples with fewer rows than others repeat any. `groups` say which of the chosen rows
    belong to each group, bool (sample, chosen); a row in no group is not looked at.
    """

    rows: Tensor
    groups: Mapping[str, Tensor]
    _scenes: dict[int, tuple[Scene, Tensor, Scene]] = field(default_factory=dict)

    def observe(self, observation: Observation, held: Tensor | None = None) -> Observation:
        """These rows of the layers, whose queries are those of all rows or of the `held` ones. Layers that shared a scene share the new."""
        rows, chosen = self.scene_of(observation.scene)
        query, logsumexp = observation.query, observation.logsumexp
        places = rows if held is None else self._places(held).to(observation.device)
        index = places[:, None, :, None].expand(*query.shape[:3], -1, query.shape[4])
        logsumexp = None if logsumexp is None else logsumexp.gather(3, index[..., 0])
        return replace(observation, scene=chosen, query=query.gather(3, index), logsumexp=logsumexp)

    def scene_of(self, scene: Scene) -> tuple[Tensor, Scene]:
        """The rows where the scene is, and what layers share as these rows see it."""
        if id(scene) not in self._scenes:
            rows = self.rows.to(scene.groups.device)
            self._scenes[id(scene)] = (scene, rows, self._scene(scene, rows))  # holding the scene keeps its id from being reused
        return self._scenes[id(scene)][1:]

    def record(self, seen: SeenLayers, how: Reducing, checks: list[Check]) -> Record:
        """What the reducers make of these rows."""
        observation = self.observe(seen.observation, seen.rows)
        return record_of(seen.identities, observation, reduce_layers(observation, how, checks))

    def _places(self, held: Tensor) -> Tensor:
        """Where the chosen rows stand among those that are held."""
        places = torch.searchsorted(held, self.rows).clamp(max=len(held) - 1)
        looked_at = torch.stack([*self.groups.values()]).any(0)
        if bool((looked_at & (held[places] != self.rows)).any()):
            raise BrokenPromise("A row has predicted that was not among the candidates of its step, so its queries are gone.")
        return places

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
