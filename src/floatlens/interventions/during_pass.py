"""What is known while a pass runs under interventions: what its calls see, what was done to each, and which wait to be measured."""

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from torch import Tensor

from floatlens.capture.call import AttentionCall
from floatlens.capture.edits import Received
from floatlens.capture.holding import Held
from floatlens.capture.observation import Scene
from floatlens.capture.reduction import ChosenRows
from floatlens.capture.visibility import Visibility
from floatlens.interventions.choosing import Draws, Row
from floatlens.interventions.specification import KeyPicker, MaskAbove, RandomKeys


@dataclass(frozen=True, eq=False)
class Sight:
    """What layers that see the same keys share: the keys in sight, and those that enough rows see to be picked from."""

    scene: Scene  # holding it keeps its id from being reused
    choosing: Scene  # the same, with one group: the rows by whose attention keys are chosen
    available: Tensor  # bool (row, head or 1, key)
    in_sight: Tensor  # (row,): the fewest of them that a head has
    measured: Tensor  # bool (row, head or 1, key)
    there_were: Tensor  # (row,): the fewest of those
    acting: dict[tuple[bool, ...], Tensor] = field(default_factory=dict)  # bool (row,), for the rows in which an intervention acts
    checked: set[int] = field(default_factory=set)  # interventions whose number of keys was compared with this


@dataclass(frozen=True, eq=False)
class Waiting:
    """A call as it was before anything was done to it, until it is looked at what its keys receive."""

    held: Held
    pickers: dict[int, KeyPicker]  # by the number of the intervention
    lost: Tensor | None  # bool (sample, head, key): the keys whose share was removed; None if nothing was, or that is known already
    received: Received | None  # if it had to be known during the pass


@dataclass(eq=False)
class CurrentPass:
    """The pass that is running: its rows, what was removed from its calls, (row, head) by layer, and those that wait to be measured."""

    rows: list[Row] = field(default_factory=list)
    removed: dict[int, Tensor] = field(default_factory=dict)
    shortfall: dict[int, Tensor] = field(default_factory=dict)
    waiting: list[Waiting] = field(default_factory=list)
    bytes_waiting: int = 0
    sights: dict[int, Sight] = field(default_factory=dict)
    draws: Draws = field(default_factory=Draws)
    last_rows: ChosenRows | None = None  # where only those choose
    nothing: Tensor | None = None  # removed


@dataclass(frozen=True, eq=False)
class Done:
    """What was done to a call so far: the call as it is now, the keys that no longer count, and those of them whose values were zeroed.

    `lost` is bool (sample, head, key), the same for all rows; False if nothing was done yet; None if something else was done as well, and
    only the call itself can tell. `hidden` is how many keys are hidden from a query at most; None if nobody knows.
    """

    call: AttentionCall
    lost: "Tensor | Literal[False] | None" = False
    silenced: Tensor | None = None
    hidden: int | None = 0

    def then(self, call: AttentionCall, lost: Tensor | None = None, *, silenced: Tensor | None = None, hidden: int | None = None) -> "Done":
        """One more change, which hides so many keys more; none if it left the call alone."""
        if call is self.call:
            return self
        if self.silenced is not None:
            silenced = self.silenced if silenced is None else self.silenced | silenced
        if self.lost is not False:
            lost = None if self.lost is None or lost is None else self.lost | lost
        return Done(call, lost, silenced, None if self.hidden is None or hidden is None else self.hidden + hidden)


def hides_at_most(
    intervention: KeyPicker | RandomKeys, picker: KeyPicker, hidden: int | None, visibility: Visibility
) -> tuple[int | None, bool]:
    """How many keys an intervention hides from a query at most (None: nobody knows), and whether that is known to leave it something.

    So many are `hidden` already. Where everyone sees every key, a control leaves those of its original, and a refusal sees to it that k
    keys are not all.
    """
    of_equal_mass = isinstance(intervention, RandomKeys) and intervention.equal == "mass"
    count = None if isinstance(picker, MaskAbove) or of_equal_mass else picker.k
    fewest_seen, everyone_sees_all = visibility.reach
    if everyone_sees_all and hidden == 0:
        return count, isinstance(intervention, RandomKeys) or count is not None
    return count, hidden is not None and count is not None and hidden + count < fewest_seen


def side_by_side(layers: list[np.ndarray]) -> np.ndarray:
    """Values (row, head) of layers: (row, layer, head); NaN for heads that a layer does not have."""
    rows, widest = (max(of_layer.shape[axis] for of_layer in layers) for axis in (0, 1))
    result = np.full((rows, len(layers), widest), np.nan, np.float32)
    for index, of_layer in enumerate(layers):
        result[:, index, : of_layer.shape[1]] = of_layer
    return result
