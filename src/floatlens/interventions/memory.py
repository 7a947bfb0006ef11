"""The keys that were picked in each sample's last step, wherever those keys stand now.

Remembered by sample, half and attention call. Keys are known by their position: a sliding-window cache that has moved on holds the same key under another index,
and a key it has forgotten cannot be picked any more. What a pass shows counts only once its step is done: until then the step before stands.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from floatlens.capture.call import AttentionCall


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
    at: int
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
        for at, row in enumerate(rows):
            self._shown[call.module, call.repeat, row] = _Picked(call.key_start, keys, at, there_were[at])

    def keep(self, samples: Sequence[int]) -> None:
        """The pass was a step of these samples."""
        self._last |= {name: picked for name, picked in self._shown.items() if name[2].sample in samples}

    def recall(self, number: int, call: AttentionCall, rows: Sequence[Row]) -> Recalled:
        """What an intervention picked in the step before, on the keys of this call."""
        keys = torch.zeros(call.samples, call.heads, call.keys, dtype=torch.bool, device=call.query.device)
        found = [self._last.get((call.module, call.repeat, row)) for row in rows]
        for picked, there, here in _together(found):
            of_rows = picked.keys[number]
            first = picked.first - call.key_start  # below 0 where the first keys are forgotten
            begin, stop = max(first, 0), min(first + of_rows.shape[-1], call.keys)
            keys[here, :, begin:stop] = of_rows[there, :, begin - first : stop - first]
        known = torch.tensor([picked is not None for picked in found], device=keys.device)
        return Recalled(keys, known, [0 if picked is None else picked.there_were for picked in found])


def _together(found: Sequence[_Picked | None]) -> Iterator[tuple[_Picked, slice, slice]]:
    """Runs of rows that were picked in one call, one after the other then and now: where they stood, and where they stand. Usually all of them."""
    at = 0
    while at < len(found):
        picked, rows = found[at], 1
        if picked is not None:
            while at + rows < len(found) and _follows(picked, found[at + rows], rows):
                rows += 1
            yield picked, slice(picked.at, picked.at + rows), slice(at, at + rows)
        at += rows


def _follows(picked: _Picked, other: _Picked | None, rows: int) -> bool:
    """Whether another row stood this many rows below in the same call."""
    return other is not None and other.keys is picked.keys and other.at == picked.at + rows
