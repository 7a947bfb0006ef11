"""Which keys an intervention picks: the anchors of the step before, wherever they stand now, and random other keys for its control.

All tensors are over (sample, head, key). Ties are decided by position and not by rounding: what differs by less than rounding counts as
equal, and the left key goes first; a margin must exceed eps by more than rounding. Otherwise, in float32 too, a batch could choose
another key than a single prompt.

The keys picked in a sample's last step are remembered by sample, half and attention call, and known by their position: a sliding-window
cache that has moved on holds the same key under another index, and a key it has forgotten cannot be picked any more. What a pass shows
counts only once its step is done.

Random numbers depend on what they are for and on nothing else: no generator, no order of calls, no batch. A number is a hash of the seed,
the sample's own seed, its step, the layer, the head and the position of the key, so the same control draws the same keys whatever other
prompts run beside it. The host draws and sorts them, which needs nothing from the device; which of the keys are taken, in that order, is
decided where the attention is.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from floatlens import anchor_rules
from floatlens.capture.call import AttentionCall
from floatlens.capture.checks import Check
from floatlens.capture.edits import Received
from floatlens.errors import Refusal
from floatlens.interventions.specification import KeyPicker, MaskAbove

_ALL_BITS = (1 << 64) - 1
DRAWN_AT_ONCE = 1 << 20  # random numbers, of as many layers as that is


def random_numbers(*parts: int | Sequence[int] | np.ndarray) -> np.ndarray:
    """Numbers in [0, 1), one for each combination of the parts, which broadcast against each other.

    Examples
    --------
    >>> drawn = random_numbers(0, np.arange(3)[:, None], np.arange(4))
    >>> drawn.shape, bool((drawn[1] == random_numbers(0, 1, np.arange(4))).all())  # whatever is drawn beside it
    ((3, 4), True)
    """
    state = np.zeros((), np.uint64)
    for part in parts:
        whole = np.uint64(part & _ALL_BITS) if isinstance(part, int) else np.asarray(part).astype(np.int64).astype(np.uint64)
        state = _scrambled(state ^ whole)
    return (state >> np.uint64(11)).astype(np.float64) / (1 << 53)


def _scrambled(state: np.ndarray) -> np.ndarray:
    """The output function of SplitMix64 one step on: every bit of the result depends on every bit of the state."""
    with np.errstate(over="ignore"):  # products and sums are meant to wrap around
        state = state + np.uint64(0x9E3779B97F4A7C15)
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return state ^ (state >> np.uint64(31))


class Row(NamedTuple):
    """One row of a batch: a sample, its conditional half (0) or the other (1) under guidance, and the padding before its text."""

    sample: int
    half: int = 0
    offset: int = 0


@dataclass(frozen=True, eq=False)
class _Picked:
    """What was picked in one call for one row: that row of bool (row, head, key), by the number of the intervention."""

    first: int  # position of the first key
    keys: Mapping[int, Tensor]
    row: int  # of those tensors
    there_were: Tensor  # (row,): keys to pick from


@dataclass(frozen=True, eq=False)
class Recalled:
    """What was picked in the step before, on the keys of a call: bool (row, head, key). Rows that had no step before are not `known`."""

    keys: Tensor
    known: list[bool]  # by row
    there_were: Tensor  # (row,): keys to pick from


@dataclass(eq=False)
class Memory:
    """Picks by row and call.

    Examples
    --------
    >>> q = torch.zeros(1, 1, 2, 4)
    >>> call = AttentionCall(q, q, q, mask=None, causal=False, scale=0.5)
    >>> memory = Memory()
    >>> memory.note(call, [Row(0)], {0: torch.tensor([[[True, False]]])}, torch.tensor([2]))
    >>> memory.recall(0, call, [Row(0)]).known  # the step is not done yet
    [False]
    >>> memory.keep([0])
    >>> memory.recall(0, call, [Row(0)]).keys.tolist()
    [[[True, False]]]
    """

    _last: dict[tuple[str, int, Row], _Picked] = field(default_factory=dict)
    _shown: dict[tuple[str, int, Row], _Picked] = field(default_factory=dict)

    def forget_pass(self) -> None:
        """Another pass begins; what the one before has shown and was not kept is nobody's step."""
        self._shown = {}

    def note(self, call: AttentionCall, rows: Sequence[Row], keys: Mapping[int, Tensor], there_were: Tensor) -> None:
        """What is picked by this call: bool (row, head, key), by the number of the intervention."""
        for number, row in enumerate(rows):
            self._shown[call.module, call.repeat, row] = _Picked(call.key_start, keys, number, there_were)

    def keep(self, samples: Sequence[int]) -> None:
        """The pass was a step of these samples."""
        self._last |= {name: picked for name, picked in self._shown.items() if name[2].sample in samples}

    def recall(self, number: int, call: AttentionCall, rows: Sequence[Row]) -> Recalled:
        """What an intervention picked in the step before, on the keys of this call."""
        last = [self._last.get((call.module, call.repeat, row)) for row in rows]
        together = list(_together(last))
        if len(together) == 1 and together[0][2] == slice(0, len(last)):  # all rows, in one call; usually over the same keys
            picked, there, _ = together[0]
            if picked.first == call.key_start and picked.keys[number].shape[-1] == call.keys:
                keys, there_were = picked.keys[number], picked.there_were
                if len(keys) > len(last):
                    keys, there_were = keys[there], there_were[there]
                return Recalled(keys, [True] * len(last), there_were)
        keys = torch.zeros(call.samples, call.heads, call.keys, dtype=torch.bool, device=call.query.device)
        there_were = torch.zeros(call.samples, dtype=torch.long, device=keys.device)
        for picked, there, here in together:
            of_rows = picked.keys[number]
            first = picked.first - call.key_start  # below 0 where the first keys are forgotten
            begin, stop = max(first, 0), min(first + of_rows.shape[-1], call.keys)
            keys[here, :, begin:stop] = of_rows[there, :, begin - first : stop - first]
            there_were[here] = picked.there_were[there]
        return Recalled(keys, [picked is not None for picked in last], there_were)


def _together(last: Sequence[_Picked | None]) -> Iterator[tuple[_Picked, slice, slice]]:
    """Runs of rows that were picked in one call, adjacent then and now: where they stood, and where they stand. Usually all of them."""
    first = 0
    while first < len(last):
        picked, rows = last[first], 1
        if picked is not None:
            while first + rows < len(last) and _follows(picked, last[first + rows], rows):
                rows += 1
            yield picked, slice(picked.row, picked.row + rows), slice(first, first + rows)
        first += rows


def _follows(picked: _Picked, other: _Picked | None, rows: int) -> bool:
    """Whether another row stood this many rows below in the same call."""
    return other is not None and other.keys is picked.keys and other.row == picked.row + rows


def anchors(picker: KeyPicker, received: Received, measured: Tensor | None = None) -> Tensor:
    """The keys that an intervention picks by what keys received in a step (from the first group of rows): bool (sample, head, key).

    With a layer axis before these, if what they received has one. `measured` are the keys that it may pick, if they are known already.

    Examples
    --------
    >>> import torch
    >>> from floatlens.interventions import MaskAnchors
    >>> mass = torch.tensor([[[[0.5, 1.2, 0.3]]]])  # two rows looked at three keys
    >>> seen = torch.full_like(mass, 2.0)
    >>> anchors(MaskAnchors(1), Received(("all",), 0, mass, seen, seen / 6, torch.tensor([[[2.0]]]))).tolist()
    [[[False, True, False]]]
    """
    measured = measured_keys(received.visible, received.rows) if measured is None else measured
    mass, visible = received.mass.select(-2, 0), received.visible.select(-2, 0)
    if isinstance(picker, MaskAbove):
        null, rows = received.null.select(-2, 0), received.rows.select(-1, 0)
        return measured & (anchor_rules.margin(picker.rule, mass, visible, null, rows) > picker.eps + anchor_rules.ROUNDING)
    return strongest((mass / visible).masked_fill(~measured, float("-inf")), picker.k)


def measured_keys(visible: Tensor, rows: Tensor) -> Tensor:
    """Keys that enough rows (of the first group) saw to tell: bool (sample, head or 1, key)."""
    return anchor_rules.eligible(visible.select(-2, 0), rows.select(-1, 0))


def strongest(values: Tensor, count: int) -> Tensor:
    """The `count` largest values along the last axis, equal ones from the left; minus infinity is never among them.

    Examples
    --------
    >>> strongest(torch.tensor([0.1, 0.4, 0.1, 0.4 + 1e-7]), 2).tolist()
    [False, True, False, True]
    >>> strongest(torch.tensor([0.3, 0.3 + 1e-8, 0.4]), 2).tolist()
    [True, False, True]
    """
    return anchor_rules.strongest(values, count, rounding=anchor_rules.ROUNDING)


@dataclass(frozen=True, eq=False)
class Others:
    """Random other keys in place of the picked ones, and what they are short of an equal mass: (sample, head)."""

    keys: Tensor
    shortfall: Tensor
    checks: tuple[Check, ...] = ()


def as_many_others(picked: Tensor, available: Tensor, ranked: Tensor, where: str) -> Others:
    """As many keys as are picked, of those that are available and not picked, in the order of `ranked`: indices (sample, head, key).

    Examples
    --------
    >>> picked = torch.tensor([[[True, False, False, False]]])
    >>> ranked = torch.tensor([[[0, 2, 3, 1]]])
    >>> as_many_others(picked, torch.ones_like(picked), ranked, "layer 0").keys.tolist()
    [[[False, False, True, False]]]
    """
    others = available & ~picked
    wanted, there = (picked & available).sum(-1), others.sum(-1)
    too_few = wanted > there

    def refuse() -> None:
        sample, head = (int(index) for index in too_few.nonzero()[0])
        raise Refusal(
            f"random-keys is to take {int(wanted[sample, head])} other keys in {where}, head {head}, and there are only "
            f"{int(there[sample, head])}. Pick fewer keys, or use longer prompts."
        )

    in_order = others.gather(-1, ranked)
    keys = _by_key(in_order & (in_order.cumsum(-1) <= wanted[..., None]), ranked)
    return Others(keys, torch.zeros_like(wanted, dtype=torch.float64), (Check(too_few.any(), refuse),))


def as_much_from_others(picked: Tensor, available: Tensor, ranked: Tensor, share: Tensor) -> Others:
    """Keys that hold as much as the picked ones, of those that are available and not picked, in the order of `ranked`, as above.

    Up to the first key with which they reach it, or one less if that is closer; all but one where all together do not reach it.

    Examples
    --------
    >>> picked = torch.tensor([[[True, False, False, False]]])
    >>> ranked, share = torch.tensor([[[0, 2, 3, 1]]]), torch.tensor([[[0.3, 0.4, 0.2, 0.1]]])
    >>> as_much_from_others(picked, torch.ones_like(picked), ranked, share).keys.tolist()  # .2, and .1 more
    [[[False, False, True, True]]]
    """
    share = share.double().nan_to_num()
    target = (share * (picked & available)).sum(-1, keepdim=True)
    others = (available & ~picked).gather(-1, ranked)
    held = share.gather(-1, ranked) * others
    up_to, numbers = held.cumsum(-1), others.cumsum(-1)  # what each key in this order and those before it hold, and how many they are
    before = F.pad(up_to[..., :-1], (1, 0))
    enough = up_to[..., -1:] >= target
    # the key with which the target is reached is left out if it is missed by less without it
    taken = others & (before < target) & (up_to - target <= target - before) & (enough | (numbers < numbers[..., -1:]))
    missing = target - (held * taken).sum(-1, keepdim=True)
    return Others(_by_key(taken, ranked), missing.masked_fill(enough, 0.0)[..., 0])


@dataclass(eq=False)
class Draws:
    """The orders in which controls take the keys of a pass. Numbers are drawn for several layers at a time."""

    _drawn: dict[tuple[int, ...], dict[int, Tensor]] = field(default_factory=dict)  # by control and keys, then by layer

    def ranked(
        self,
        number: int,
        seed: int,
        call: AttentionCall,
        rows: Sequence[Row],
        seeds: Sequence[int],
        steps: Sequence[int],
        layers: Sequence[int],
    ) -> Tensor:
        """The indices of the keys of a call, (row, head, key), in the order in which a control takes them.

        It is told the seed and the step of each row, and which layers the pass has. The host sorts what it has drawn: numpy is four
        times as fast as torch.
        """
        known_as = number, call.key_start, call.keys, call.heads
        if call.layer not in self._drawn.get(known_as, {}):
            upcoming = [call.layer, *(layer for layer in layers if layer > call.layer)]
            upcoming = upcoming[: max(1, DRAWN_AT_ONCE // (len(rows) * call.heads * call.keys))]
            positions = call.key_start - np.array([row.offset for row in rows])[:, None, None] + np.arange(call.keys)
            of_rows = [np.array(of_each)[:, None, None] for of_each in (seeds, steps)]
            drawn = random_numbers(seed, *of_rows, np.array(upcoming)[:, None, None, None], np.arange(call.heads)[:, None], positions)
            self._drawn[known_as] = dict(zip(upcoming, torch.from_numpy(drawn.argsort(-1)).to(call.query.device), strict=True))
        return self._drawn[known_as][call.layer].to(call.query.device)  # a model may be spread over several devices


def _by_key(in_order: Tensor, ranked: Tensor) -> Tensor:
    """Booleans in the order of `ranked` as booleans over keys."""
    return torch.zeros_like(in_order).scatter_(-1, ranked, in_order)
