"""Steps of a loop that are reduced together: their samples lie side by side, as if they were those of one batch.

What the layers of a step share is some four hundred operators, whatever their size; where a step is small, they cost more than its
numbers. So small steps wait, stacked (`Stack`) and in memory of their own, because a model may write to its keys in the next step. What
was reduced is divided among the steps again when it is in host memory (`of_each`).

Nothing is joined that does not lie alike: the same layers, shapes and positions, and masks of one kind.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from floatlens.capture.checks import Check
from floatlens.capture.layers import LayerIdentity
from floatlens.capture.observation import Observation, Scene
from floatlens.capture.records import NamedArrays, Record, StepArrays, record_of
from floatlens.capture.reducers import patterns_of
from floatlens.capture.reduction import Reducing, SeenLayers, reduce_layers
from floatlens.capture.visibility import Visibility

TOGETHER_BYTES = 16 << 20  # of queries, keys and values of the steps that wait, on the CPU
STEPS_AT_MOST = 16  # beyond that there is little left to share, and what is wrong with a step should be said soon


@dataclass(frozen=True, eq=False)
class Stack:
    """Layers that see the same keys, of one step or of several, not yet reduced."""

    identities: tuple[LayerIdentity, ...]
    observation: Observation

    @property
    def seen(self) -> SeenLayers:
        """What is needed to look at some of the rows again."""
        return SeenLayers(self.identities, replace(self.observation, value=None))

    @property
    def bytes(self) -> int:
        """Of its tensors, its mask included."""
        return sum(tensor.nbytes for tensor in self._tensors if tensor is not None)

    @property
    def _tensors(self) -> tuple[Tensor | None, ...]:
        observed = self.observation
        return observed.query, observed.key, observed.value, observed.logsumexp, observed.visibility.mask

    def reduced(self, how: Reducing, patterns: Sequence[tuple[int, int]], checks: list[Check]) -> Record:
        """What the reducers make of it. `patterns` are pairs of a layer and a head, of any layers."""
        of_layers, chosen = patterns_of([identity.layer for identity in self.identities], patterns)
        how = replace(how, makers=[*how.makers, *of_layers])
        return record_of(self.identities, self.observation, reduce_layers(self.observation, how, checks), chosen)

    def in_own_memory(self) -> "Stack":
        """The same, whatever the model does to its tensors. Several layers were copied when they were stacked."""
        if len(self.identities) > 1:
            return self
        query, key, value, logsumexp, _ = (None if tensor is None else tensor.clone() for tensor in self._tensors)
        assert query is not None
        assert key is not None
        return replace(self, observation=replace(self.observation, query=query, key=key, value=value, logsumexp=logsumexp))

    @property
    def _lies(self) -> tuple[Any, ...]:
        scene, visibility = self.observation.scene, self.observation.visibility
        shapes = [None if tensor is None else (tensor.shape, tensor.dtype) for tensor in self._tensors]
        about = scene.query_start, scene.key_start, scene.group_names, scene.region_names, scene.key_regions.shape
        return self.identities, shapes, about, visibility.causal, self.observation.scale, self.observation.device

    def lies_like(self, other: "Stack") -> bool:
        """Whether it may be put beside another one."""
        return self._lies == other._lies


def side_by_side(stacks: Sequence[Stack]) -> Stack:
    """Stacks of several steps that lie alike, as one whose samples are those of the first step, then those of the second, and so on."""
    if len(stacks) == 1:
        return stacks[0]
    observed = [stack.observation for stack in stacks]

    def joined(name: str) -> Tensor | None:
        tensors = [getattr(step, name) for step in observed]
        return None if tensors[0] is None else torch.cat(tensors, dim=1)

    whole = {name: joined(name) for name in ("query", "key", "value", "logsumexp")}
    steps = tuple(number for step in observed for number in step.steps)
    return replace(stacks[0], observation=replace(observed[0], scene=_scenes([step.scene for step in observed]), steps=steps, **whole))


def _scenes(scenes: Sequence[Scene]) -> Scene:
    def joined(name: str) -> Tensor:
        return torch.cat([getattr(scene, name) for scene in scenes])

    by_sample = ("length", "groups", "query_positions", "query_regions", "key_regions")
    return replace(scenes[0], visibility=_visibilities(scenes), **{name: joined(name) for name in by_sample})


def _visibilities(scenes: Sequence[Scene]) -> Visibility:
    seen, first = [scene.visibility for scene in scenes], scenes[0].visibility
    masks = [step.mask.expand(len(step.real_keys), -1, -1, -1) for step in seen if step.mask is not None]
    return Visibility(
        queries=first.queries,
        keys=first.keys,
        causal=first.causal,
        mask=torch.cat(masks) if masks else None,
        real_queries=torch.cat([step.real_queries for step in seen]),
        real_keys=torch.cat([step.real_keys for step in seen]),
        all_queries_real=all(step.all_queries_real for step in seen),
        all_keys_real=all(step.all_keys_real for step in seen),
    )


def of_each(together: StepArrays, steps: int) -> list[StepArrays]:
    """What was reduced of so many steps side by side, for each of them. Nothing is copied."""
    if steps == 1:
        return [together]
    samples = len(together.length) // steps
    own = [slice(step * samples, (step + 1) * samples) for step in range(steps)]

    def arrays(here: slice) -> NamedArrays:
        places = {name: (slice(None),) * axes.index("sample") + (here,) for name, (axes, _) in together.arrays.items()}
        return {name: (axes, array[places[name]]) for name, (axes, array) in together.arrays.items()}

    return [replace(together, length=together.length[here], arrays=arrays(here)) for here in own]
