"""Edits: change an attention call before it runs.

An edit is a callable `edit(call, before) -> call`. It gets the call as it would run and returns it changed (`call.hide`, `call.add_bias`,
`call.with_keys`, `call.append_keys`, `call.expand_heads`, `call.scale_heads`) or as it is. Edits run one after the other, each on what
the one before returned.

`before` holds what each key receives *without* any edit, in this step and in the step before, by the tap's query groups: chosen after an
edit, a hidden key would never show again. Computing it costs one more walk; an edit that has no use for it says `uses_statistics = False`.
`before.forward` says what is known of the forward that the call belongs to: what is padding, and where the cache ends.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Protocol

from torch import Tensor

from floatlens.capture.call import AttentionCall
from floatlens.capture.checks import Check
from floatlens.capture.forward import Forward
from floatlens.capture.observation import Observation
from floatlens.capture.reducers.mass import rows_sum_to_one
from floatlens.capture.walk import ColumnSums, Workspace, walk
from floatlens.errors import Refusal


@dataclass(frozen=True, eq=False)
class Received:
    """What each key receives in one call before any edit, for the whole batch. NaN at padding keys.

    `key_start` is the position of the first key: with a sliding-window cache the same key has another index in the next step.
    """

    groups: tuple[str, ...]
    key_start: int
    mass: Tensor  # (sample, head, group, key)
    visible: Tensor  # (sample, head or 1, group, key)
    null: Tensor  # (sample, head or 1, group, key)
    rows: Tensor  # (sample, head or 1, group)


@dataclass(frozen=True, eq=False)
class Before:
    """The statistics before the edit: of this call, and of the same layer's call in the step before (None in the first step)."""

    now: Received | None
    previous: Received | None
    forward: Forward


class Edit(Protocol):
    """A function that changes an attention call before it runs.

    A class may say `uses_statistics = False` to save the walk that computes `before`.
    """

    def __call__(self, call: AttentionCall, before: Before) -> AttentionCall: ...


def refuse_uncallable(edits: Iterable[Edit]) -> tuple[Edit, ...]:
    """The edits; refuses the first that cannot be called."""
    edits = tuple(edits) if isinstance(edits, Iterable) else (edits,)
    for edit in edits:
        if not callable(edit):
            raise Refusal(
                f"{edit!r} is not an edit: an edit is a function of the call and what was before it. An intervention goes to "
                "lm.generate(..., intervention=...) or lm.trace(..., intervention=...)."
            )
    return edits


def uses_statistics(edit: Edit) -> bool:
    """Whether an edit wants `before`; it does unless it says otherwise."""
    return getattr(edit, "uses_statistics", True)


def received(observation: Observation, workspace: Workspace, checks: list[Check]) -> Received:
    """Measure what each key of one call receives. What must be checked before that leaves the device is added to `checks`."""
    of_layers = received_by_layer(observation, workspace, checks)
    return replace(of_layers, mass=of_layers.mass[0])


def received_by_layer(observation: Observation, workspace: Workspace, checks: list[Check]) -> Received:
    """The same for several layers that see the same keys: the mass has a layer axis, before the others."""
    scene = observation.scene
    columns = ColumnSums(observation, scene.group_rows)
    walk(observation, [columns], workspace)
    checks.append(rows_sum_to_one(observation, columns.sums))
    mass = scene.only_real_keys(columns.sums, between=2)
    return Received(scene.group_names, scene.key_start, mass, scene.seeing_rows, scene.null, scene.group_sizes)


def apply_edits(edits: tuple[Edit, ...], call: AttentionCall, before: Before) -> AttentionCall:
    """The call after all edits."""
    for edit in edits:
        changed = edit(call, before)
        if not isinstance(changed, AttentionCall):
            raise Refusal(f"The edit {describe(edit)} returned a {type(changed).__name__}; an edit returns the call, changed or as it is.")
        if changed.query.shape != call.query.shape:
            raise Refusal(
                f"The edit {describe(edit)} changed the queries from shape {tuple(call.query.shape)} to {tuple(changed.query.shape)}; "
                "edits may change mask, bias, keys, values and the scale of heads."
            )
        call = changed
    return call


def describe(edit: Edit) -> str:
    """How an edited trace names the edit: its repr for a dataclass, its name for a function."""
    return getattr(edit, "__qualname__", None) or repr(edit)
