"""Which keys an intervention picks: the anchors of the step before, wherever they stand now, and random other keys for its control.

All tensors are over (sample, head, key). Ties are decided by position and not by rounding: what differs by less than rounding counts as
equal, and the left key goes first; a margin must exceed eps by more than rounding. Otherwise a batch could choose another key than a
single prompt.

The keys picked in a sample's last step are remembered by sample, half and attention call, and known by their position: a sliding-window
cache that has moved on holds the same key under another index, and a key it has forgotten cannot be picked any more. What a pass shows
counts only once its step is done.

Random numbers depend on what they are for and on nothing else: no generator, no order of calls, no batch. A number is a hash of the seed,
the sample's own seed, its step, the layer, the head and the position of the key, so the same control draws the same keys whatever other
prompts run beside it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from floatlens import anchor_rules
from floatlens.capture.call import AttentionCall
from floatlens.capture.edits import Received
from floatlens.errors import Refusal
from floatlens.interventions.specification import KeyPicker, MaskAbove

_ALL_BITS = (1 << 64) - 1


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


@dataclass(frozen=True)
class Row:
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
    there_were: int  # keys to pick from


@dataclass(frozen=True, eq=False)
class Recalled:
    """What was picked in the step before, on the keys of a call: bool (row, head, key). Rows that had no step before are not `known`."""

    keys: Tensor
    known: Tensor  # bool (row,)
    there_were: list[int]  # keys to pick from, by row


@dataclass(eq=False)
class Memory:
    """Picks by row and call.

    Examples
    --------
    >>> q = torch.zeros(1, 1, 2, 4)
    >>> call = AttentionCall(q, q, q, mask=None, causal=False, scale=0.5)
    >>> memory = Memory()
    >>> memory.note(call, [Row(0)], {0: torch.tensor([[[True, False]]])}, [2])
    >>> memory.recall(0, call, [Row(0)]).known.tolist()  # the step is not done yet
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

    def note(self, call: AttentionCall, rows: Sequence[Row], keys: Mapping[int, Tensor], there_were: Sequence[int]) -> None:
        """What is picked by this call: bool (row, head, key), by the number of the intervention."""
        for number, row in enumerate(rows):
            self._shown[call.module, call.repeat, row] = _Picked(call.key_start, keys, number, there_were[number])

    def keep(self, samples: Sequence[int]) -> None:
        """The pass was a step of these samples."""
        self._last |= {name: picked for name, picked in self._shown.items() if name[2].sample in samples}

    def recall(self, number: int, call: AttentionCall, rows: Sequence[Row]) -> Recalled:
        """What an intervention picked in the step before, on the keys of this call."""
        keys = torch.zeros(call.samples, call.heads, call.keys, dtype=torch.bool, device=call.query.device)
        last = [self._last.get((call.module, call.repeat, row)) for row in rows]
        for picked, there, here in _together(last):
            of_rows = picked.keys[number]
            first = picked.first - call.key_start  # below 0 where the first keys are forgotten
            begin, stop = max(first, 0), min(first + of_rows.shape[-1], call.keys)
            keys[here, :, begin:stop] = of_rows[there, :, begin - first : stop - first]
        known = torch.tensor([picked is not None for picked in last], device=keys.device)
        return Recalled(keys, known, [0 if picked is None else picked.there_were for picked in last])


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


def anchors(picker: KeyPicker, received: Received) -> Tensor:
    """The keys that an intervention picks by what keys received in a step (from the first group of rows): bool (sample, head, key).

    Examples
    --------
    >>> import torch
    >>> from floatlens.interventions import MaskAnchors
    >>> mass = torch.tensor([[[[0.5, 1.2, 0.3]]]])  # two rows looked at three keys
    >>> seen = torch.full_like(mass, 2.0)
    >>> anchors(MaskAnchors(1), Received(("all",), 0, mass, seen, seen / 6, torch.tensor([[[2.0]]]))).tolist()
    [[[False, True, False]]]
    """
    measured = measured_keys(received)
    mass, visible, null, rows = (values[:, :, 0] for values in (received.mass, received.visible, received.null, received.rows))
    if isinstance(picker, MaskAbove):
        return measured & (anchor_rules.margin(picker.rule, mass, visible, null, rows) > picker.eps + anchor_rules.ROUNDING)
    return strongest((mass / visible).masked_fill(~measured, float("-inf")), picker.k)


def measured_keys(received: Received) -> Tensor:
    """Keys that enough rows saw to tell: bool (sample, head or 1, key)."""
    return anchor_rules.eligible(received.visible[:, :, 0], received.rows[:, :, 0])


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


def as_many_others(picked: Tensor, available: Tensor, order: Tensor, where: str) -> Others:
    """As many keys as are picked, of those that are available and not picked, smallest `order` first.

    Examples
    --------
    >>> picked = torch.tensor([[[True, False, False, False]]])
    >>> order = torch.tensor([[[0.1, 0.9, 0.2, 0.5]]])
    >>> as_many_others(picked, torch.ones_like(picked), order, "layer 0").keys.tolist()
    [[[False, False, True, False]]]
    """
    others = available & ~picked
    wanted, there = (picked & available).sum(-1), others.sum(-1)
    if bool((wanted > there).any()):
        sample, head = (int(index) for index in (wanted > there).nonzero()[0])
        raise Refusal(
            f"random-keys is to take {int(wanted[sample, head])} other keys in {where}, head {head}, and there are only "
            f"{int(there[sample, head])}. Pick fewer keys, or use longer prompts."
        )
    return Others(_first_of(_drawn(others, order), wanted), torch.zeros_like(wanted, dtype=torch.float64))


def as_much_from_others(picked: Tensor, available: Tensor, order: Tensor, share: Tensor) -> Others:
    """Keys that hold as much as the picked ones, of those that are available and not picked, smallest `order` first.

    Up to the first key with which they reach it, or one less if that is closer; all but one where all together do not reach it.

    Examples
    --------
    >>> picked = torch.tensor([[[True, False, False, False]]])
    >>> order, share = torch.tensor([[[0.1, 0.9, 0.2, 0.5]]]), torch.tensor([[[0.3, 0.4, 0.2, 0.1]]])
    >>> as_much_from_others(picked, torch.ones_like(picked), order, share).keys.tolist()  # .2, and .1 more
    [[[False, False, True, True]]]
    """
    others, there = available & ~picked, (available & ~picked).sum(-1)
    share = share.double().nan_to_num()
    target = (share * (picked & available)).sum(-1)
    drawn = _drawn(others, order)
    real = torch.arange(drawn.shape[-1], device=drawn.device) < there[..., None]
    sums = F.pad((share.gather(-1, drawn) * real).cumsum(-1), (1, 0))  # what the first 0, 1, 2, ... keys hold
    reached = (sums >= target[..., None]) & F.pad(real, (1, 0), value=True)
    first = reached.int().argmax(-1)
    above = sums.gather(-1, first[..., None])[..., 0] - target
    below = target - sums.gather(-1, (first - 1).clamp(min=0)[..., None])[..., 0]
    enough = reached.any(-1)
    count = torch.where(enough, first - ((below < above) & (first > 0)).int(), (there - 1).clamp(min=0))
    missing = target - sums.gather(-1, count[..., None])[..., 0]
    return Others(_first_of(drawn, count), torch.where(enough, 0.0, missing))


def _drawn(keys: Tensor, order: Tensor) -> Tensor:
    """These keys' indices, smallest order first; after them those of all others."""
    ranks = order.to(keys.device).masked_fill(~keys, float("inf")).cpu().numpy()
    return torch.from_numpy(ranks.argsort(-1)).to(keys.device)  # numpy sorts these four times as fast as torch


def _first_of(drawn: Tensor, count: Tensor) -> Tensor:
    """The first `count` (sample, head) of the indices that were drawn, as booleans over keys."""
    among_first = torch.arange(drawn.shape[-1], device=drawn.device) < count[..., None]
    return torch.zeros_like(among_first).scatter_(-1, drawn, among_first)
