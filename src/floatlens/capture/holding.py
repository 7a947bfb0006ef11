"""What a tap holds of a forward until it is reduced, and how calls find together.

Calls that share a scene and have the same shapes are stacked and reduced as one, as many at a time as fit into the memory set aside for
copies; a call that is larger than that is reduced by itself, without a copy.

Refused: a model that writes to queries or keys that it has already used. What is held would no longer be what the kernel got.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from torch import Tensor

from floatlens.capture.call import AttentionCall, full_precision
from floatlens.capture.checks import Check, fetch
from floatlens.capture.layers import LayerIdentity
from floatlens.capture.observation import Labelled, Scene, observe_together, stacked
from floatlens.capture.records import Record
from floatlens.capture.reducers.geometry import Norms
from floatlens.capture.reduction import Reducing, SeenLayers
from floatlens.capture.steps import Stack
from floatlens.capture.walk import at_once
from floatlens.errors import Refusal

OfCall = TypeVar("OfCall")
HELD_BYTES = 256 << 20
STACKED_NUMBERS = 1 << 22  # of queries and keys that are copied side by side, on the CPU


class Held:
    """One call as it ran, and what was measured before edits, (sample, head, group, key)."""

    def __init__(
        self, identity: LayerIdentity, call: AttentionCall, scene: Scene, logsumexp: Tensor | None, mass_before_edits: Tensor | None = None
    ) -> None:
        self.identity, self.call, self.scene, self.logsumexp = identity, call, scene, logsumexp
        self.mass_before_edits = mass_before_edits
        self._versions = self._written()

    @property
    def bytes(self) -> int:
        """What holding it keeps from being freed, its scene not counted."""
        return sum(tensor.nbytes for tensor in (self.call.query, self.call.key, self.call.value))

    @property
    def goes_with(self) -> tuple[object, ...]:
        """Calls for which this is the same are reduced together."""
        call = self.call
        shapes = call.query.shape, call.key.shape, call.value.shape
        kind = call.query.dtype, call.query.device, call.scale
        return id(self.scene), *shapes, *kind, self.logsumexp is None, self.mass_before_edits is None

    def refuse_if_overwritten(self, remedy: str = "Pass held_bytes=0 to the tap, which then observes every call at once.") -> None:
        """Raise if the queries or keys are not what they were."""
        if self._written() != self._versions:
            raise Refusal(
                f"The model wrote to the queries, keys or values of {self.call.where} after its attention had run, before they were "
                f"observed. {remedy}"
            )

    def _written(self) -> tuple[int, ...]:
        """How often each tensor was written to; inference tensors do not tell."""
        return tuple(0 if tensor.is_inference() else tensor._version for tensor in (self.call.query, self.call.key, self.call.value))


@dataclass(eq=False)
class HeldCalls:
    """The calls of a forward that wait to be reduced, the records of those that were, and stacks of those that will be with others.

    `step` is the number of the forward, if it is to be named in messages.
    """

    how: Reducing
    patterns: Sequence[tuple[int, int]] = ()
    checks: list[Check] = field(default_factory=list)
    on_seen: Callable[[SeenLayers], None] | None = None
    step: int | None = None
    records: list[Record] = field(default_factory=list)
    stacks: list[Stack] = field(default_factory=list)
    bytes: int = 0
    _waiting: list[Held] = field(default_factory=list)

    def add(self, held: Held, at_most: int) -> None:
        """Hold one more call; what is held then is reduced if it is more than so many bytes."""
        mask = held.scene.visibility.mask
        if mask is not None and all(other.scene is not held.scene for other in self._waiting):
            self.bytes += mask.untyped_storage().nbytes()
        self._waiting.append(held)
        self.bytes += held.bytes
        if self.bytes > at_most:
            self.reduce()
            fetch([], self.checks)  # a check keeps alive what it would explain
            self.checks.clear()

    def reduce(self, later: int = 0) -> None:
        """Reduce what waits, and hold no call any more. A whole forward of at most `later` bytes is only stacked."""
        stack_only = not self.records and self.bytes <= later
        waiting, self._waiting, self.bytes = self._waiting, [], 0
        together: dict[tuple[object, ...], list[Held]] = {}
        for held in waiting:
            held.refuse_if_overwritten()
            together.setdefault(held.goes_with, []).append(held)
        for alike in together.values():
            for layers in as_many_as_fit(alike, alike[0].call):
                with full_precision(layers[0].call.query.device):
                    self._reduce(layers, stack_only=stack_only)

    def _reduce(self, layers: Sequence[Held], *, stack_only: bool) -> None:
        calls, logsumexp, with_values = [held.call for held in layers], [held.logsumexp for held in layers], Norms in self.how.makers
        observation = observe_together(calls, layers[0].scene, logsumexp, with_values=with_values)
        if self.step is not None:
            observation = replace(observation, steps=(self.step,))
        stack = Stack(tuple(held.identity for held in layers), observation)
        before = [held.mass_before_edits for held in layers if held.mass_before_edits is not None]
        if stack_only and not before:
            stack = stack.in_own_memory()
            self.stacks.append(stack)
        else:
            record = stack.reduced(self.how, self.patterns, self.checks)
            if before:
                mass: Labelled = (("layer", "sample", "head", "group", "key"), stacked(before))
                record = replace(record, values={**record.values, "mass_before_edits": mass})
            self.records.append(record)
        if self.on_seen is not None:
            self.on_seen(stack.seen)


def as_many_as_fit(alike: Sequence[OfCall], call: AttentionCall) -> Iterator[Sequence[OfCall]]:
    """What belongs to calls of one shape, of as many at a time as may be copied side by side; at least one."""
    together = max(1, at_once(STACKED_NUMBERS, call.query.device) // max(1, call.query.numel() + call.key.numel()))
    for first in range(0, len(alike), together):
        yield alike[first : first + together]
