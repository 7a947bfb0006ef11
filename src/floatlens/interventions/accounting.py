"""How much attention a call lost to what was done to it: the share that, before, lay where it now cannot go or counts for nothing.

The account is taken from the call as it was and as it runs, not from what an intervention meant to do (where all that happened is that the same keys were hidden
from all rows, that is what these rows gave them). Row by row: the share on keys that are now hidden, or
whose values were zeroed; then of what is left the share that appended keys draw; all of it for a head that is scaled to 0. Reported is the mean over the
real rows of the forward, by sample and head. A bias or another change of keys and values moves attention and removes none.
"""

import torch
from torch import Tensor

from floatlens.capture.call import AttentionCall
from floatlens.capture.edits import Received
from floatlens.capture.forward import Forward
from floatlens.capture.observation import Labelled, Observation
from floatlens.capture.visibility import see
from floatlens.capture.walk import Block, Workspace, walk


class MassWithin:
    """Sums of the weights of some entries of the attention matrices: by row and by key."""

    needs_blocks = True

    def __init__(self, observation: Observation, entries: Tensor) -> None:
        self.observation = observation
        self.entries = entries  # bool (sample or 1, head or 1, query or 1, key)
        self._rows, self._keys = observation.new(observation.call.queries), observation.new(observation.call.keys)

    def add(self, block: Block) -> None:
        within = block.weights * self._entries(block)
        self._rows[block.matrices, block.rows] += within.sum(-1)
        self._keys[block.matrices, block.keys] += within.sum(-2)

    def _entries(self, block: Block) -> Tensor:
        """The entries of a block: (matrices or 1, rows or 1, keys)."""
        samples, heads, rows = self.entries.shape[:3]
        matrix = torch.arange(block.matrices.start, block.matrices.stop, device=self.entries.device)
        sample, head = matrix // self.observation.call.heads, matrix % self.observation.call.heads
        chosen = self.entries[sample if samples > 1 else sample * 0, head if heads > 1 else head * 0]
        return chosen[:, block.rows if rows > 1 else slice(None), block.keys]

    def result(self) -> dict[str, Labelled]:
        """`by_row` (sample, head, query) and `by_key` (sample, head, key)."""
        per_head = self.observation.per_head
        return {
            "by_row": (("sample", "head", "query"), per_head(self._rows)),
            "by_key": (("sample", "head", "key"), per_head(self._keys)),
        }


def mass_within(observation: Observation, entries: Tensor, workspace: Workspace, by: str) -> Tensor:
    """The mass of some entries of a call, bool and broadcastable to (sample, head, query, key), "by_row" or "by_key".

    Examples
    --------
    >>> from floatlens.capture.forward import Forward
    >>> q = torch.zeros(1, 1, 2, 4)
    >>> even = Forward(0, {}).observe(AttentionCall(q, q, q, mask=None, causal=False, scale=0.5))
    >>> mass_within(even, torch.tensor([[[[True, False], [True, True]]]]), Workspace(), "by_row").tolist()
    [[[0.5, 1.0]]]
    """
    reducer = MassWithin(observation, entries)
    walk(observation, None, [reducer], workspace)
    return reducer.result()[by][1]


def share_of_keys(keys: Tensor, received: Received) -> Tensor:
    """The share of the attention on keys, bool (sample, head, key), of the rows by which `received` was measured (its first group): (sample, head).

    What a call loses if these are hidden from all of those rows, without looking at its attention again.

    Examples
    --------
    >>> mass, seen = torch.tensor([[[[0.5, 1.2, 0.3]]]]), torch.full((1, 1, 1, 3), 2.0)  # two rows looked at three keys
    >>> share_of_keys(torch.tensor([[[True, False, True]]]), Received(("all",), 0, mass, seen, seen / 6, torch.tensor([[[2.0]]]))).tolist()
    [[0.4000000059604645]]
    """
    return received.mass[:, :, 0].masked_fill(~keys, 0.0).sum(-1) / received.rows[:, :, 0]


def removed_share(forward: Forward, before: Observation, after: AttentionCall, silenced: Tensor | None, workspace: Workspace) -> Tensor:
    """The share of the attention that a call lost, (sample, head); `silenced` are the keys whose values were zeroed, bool (sample, head, key).

    Examples
    --------
    >>> q = torch.zeros(1, 1, 2, 4)
    >>> forward, call = Forward(0, {}), AttentionCall(q, q, q, mask=None, causal=False, scale=0.5)
    >>> after = call.hide(torch.tensor([True, False]))  # of two keys that every query looks at alike
    >>> removed_share(forward, forward.observe(call), after, None, Workspace()).tolist()
    [[0.5]]
    """
    call = before.call
    lost = torch.zeros(call.samples, call.heads, call.queries, dtype=before.dtype, device=call.query.device)
    unheard = _hidden(after, call.keys) if after.mask is not call.mask or after.causal != call.causal else None
    if silenced is not None:
        unheard = silenced[:, :, None] if unheard is None else unheard | silenced[:, :, None]
    if unheard is not None:
        lost = mass_within(before, unheard, workspace, "by_row")
    if after.appended > call.appended:
        new = torch.arange(after.keys, device=lost.device) >= call.keys
        drawn = mass_within(forward.observe(after, edited=True), new[None, None, None], workspace, "by_row")
        lost = 1 - (1 - lost) * (1 - drawn)
    if after.head_scale is not None:
        lost = lost.masked_fill((after.head_scale == 0)[:, :, None], 1.0)
    live = before.visibility.live_rows.to(lost.dtype)
    return (lost * live).sum(-1) / live.sum(-1)


def _hidden(call: AttentionCall, keys: int) -> Tensor | None:
    """What an edited call hides of the first `keys` keys: bool (sample or 1, head or 1, query, key)."""
    return None if call.mask is None else ~see(call).visible[..., :keys]
