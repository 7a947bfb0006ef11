"""What an intervention does to a call, and how much attention the call lost by it.

Keys are hidden, their values zeroed, heads silenced, a key appended. No query is left with nothing to see: if everything it sees would be
hidden, it keeps the nearest key, which is its own where it sees itself. Rows that are padding are left alone.

The share of the attention that was removed is computed from the call as it was and as it runs, not from what an intervention meant to do.
Row by row: the share on keys that are now hidden, or whose values were zeroed; then, of what is left, the share that appended keys draw;
all of it for a head that is scaled to 0. Reported is the mean over the real rows of the forward, by sample and head. A bias, or another
change of keys and values, moves attention and removes none.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from floatlens.capture.call import AttentionCall
from floatlens.capture.edits import Received
from floatlens.capture.forward import Forward
from floatlens.capture.observation import Labelled, Observation
from floatlens.capture.visibility import Real, Visibility, see
from floatlens.capture.walk import Block, Workspace, walk
from floatlens.errors import Refusal
from floatlens.interventions.choosing import random_numbers
from floatlens.interventions.specification import MaskHeads, RandomHeads


class MassWithin:
    """Sums of the weights of some entries of the attention matrices of one call: by row and by key."""

    needs_blocks = True
    rows = None

    def __init__(self, observation: Observation, entries: Tensor) -> None:
        self.observation = observation
        self.entries = entries  # bool (sample or 1, head or 1, query or 1, key)
        self._rows, self._keys = observation.new(observation.queries), observation.new(observation.keys)

    def add(self, block: Block) -> None:
        within = block.weights * self._entries(block)
        self._rows[block.matrices, block.rows] += within.sum(-1)
        self._keys[block.matrices, block.keys] += within.sum(-2)

    def _entries(self, block: Block) -> Tensor:
        """The entries of a block: (matrices or 1, rows or 1, keys)."""
        samples, heads, rows = self.entries.shape[:3]
        here = self.entries[:, :, block.rows if rows > 1 else slice(None), block.keys]
        if samples == heads == 1:
            return here[0]
        matrix = torch.arange(block.matrices.start, block.matrices.stop, device=here.device)
        sample, head = matrix // self.observation.heads, matrix % self.observation.heads
        return here[sample if samples > 1 else sample * 0, head if heads > 1 else head * 0]

    def result(self, sums: Tensor | None) -> dict[str, Labelled]:
        """`by_row` (sample, head, query) and `by_key` (sample, head, key)."""
        by_row, by_key = (self.observation.per_layer(values)[0] for values in (self._rows, self._keys))
        return {"by_row": (("sample", "head", "query"), by_row), "by_key": (("sample", "head", "key"), by_key)}


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
    walk(observation, [reducer], workspace)
    return reducer.result(None)[by][1]


def share_of_keys(keys: Tensor, received: Received) -> Tensor:
    """The share of the attention on these keys, (sample, head), of the rows by which `received` was measured (its first group).

    `keys` is bool (sample, head, key); both may have a layer axis before these.

    What a call loses if these are hidden from all of those rows, without looking at its attention again.

    Examples
    --------
    >>> mass, seen = torch.tensor([[[[0.5, 1.2, 0.3]]]]), torch.full((1, 1, 1, 3), 2.0)  # two rows looked at three keys
    >>> share_of_keys(torch.tensor([[[True, False, True]]]), Received(("all",), 0, mass, seen, seen / 6, torch.tensor([[[2.0]]]))).tolist()
    [[0.4000000059604645]]
    """
    return received.mass.select(-2, 0).masked_fill(~keys, 0.0).sum(-1) / received.rows.select(-1, 0)


def removed_share(forward: Forward, call: AttentionCall, after: AttentionCall, silenced: Tensor | None, workspace: Workspace) -> Tensor:
    """The share of the attention that a call lost, (sample, head).

    `silenced` are the keys whose values were zeroed, bool (sample, head, key).

    Examples
    --------
    >>> q = torch.zeros(1, 1, 2, 4)
    >>> forward, call = Forward(0, {}), AttentionCall(q, q, q, mask=None, causal=False, scale=0.5)
    >>> after = call.hide(torch.tensor([True, False]))  # of two keys that every query looks at alike
    >>> removed_share(forward, call, after, None, Workspace()).tolist()
    [[0.5]]
    """
    before = forward.observe(call)
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


class Hidden(NamedTuple):
    """A call after entries were hidden, and whether it is known that all of them are, from every real query."""

    call: AttentionCall
    whole: bool


def hide_keys(call: AttentionCall, entries: Tensor, real: Real, *, safe: bool = False) -> Hidden:
    """Hide entries, bool (sample, head, query or 1, key), where that leaves every real query something to see.

    `real` is about the keys of the text; appended ones are none. `safe` says that it leaves every query something anyway, which saves
    looking for those from which everything would be hidden.

    Examples
    --------
    >>> from floatlens.capture.visibility import everything_real
    >>> q = torch.zeros(1, 1, 2, 4)
    >>> call = AttentionCall(q, q, q, mask=None, causal=True, scale=0.5)
    >>> hidden = hide_keys(call, torch.tensor([[[[True, False]]]]), everything_real(call))
    >>> hidden.call.mask.int().tolist(), hidden.whole  # the first query sees only key 0, itself
    ([[[[1, 0], [0, 1]]]], False)
    """
    if call.keys > entries.shape[-1]:
        entries = F.pad(entries, (0, call.keys - entries.shape[-1]))
    if not real.all_queries:
        entries = entries & real.queries[:, None, :, None]
    if safe:
        return Hidden(call.hide(entries), whole=True)
    seen = see(call, real._replace(keys=F.pad(real.keys, (0, call.keys - real.keys.shape[-1]), value=True)))
    return Hidden(call.hide(entries & ~_last_resort(call, entries, seen)), whole=False)


def _last_resort(call: AttentionCall, entries: Tensor, seen: Visibility) -> Tensor:
    """For each query from which all it sees would be hidden, the nearest of that: bool (sample, head, query, key)."""
    explicit = call.hide(torch.zeros(call.keys, dtype=torch.bool, device=entries.device))
    visible = see(explicit).visible & seen.real_keys[:, None, None]
    left_alone = visible.any(-1) & ~(visible & ~entries).any(-1)
    query = torch.arange(call.query_start, call.query_start + call.queries, device=entries.device)
    key = torch.arange(call.key_start, call.key_start + call.keys, device=entries.device)
    distance = (query[:, None] - key).abs().float().masked_fill(~visible, float("inf"))
    nearest = distance.argmin(-1, keepdim=True) == torch.arange(call.keys, device=entries.device)
    return nearest & left_alone[..., None]


def outside_window(call: AttentionCall, keys: int, window: int) -> Tensor:
    """Entries whose query and key stand more than `window` positions apart: bool (query, key).

    Examples
    --------
    >>> q = torch.zeros(1, 1, 3, 4)
    >>> outside_window(AttentionCall(q, q, q, mask=None, causal=True, scale=0.5), 3, 1).int().tolist()
    [[0, 0, 1], [0, 0, 0], [1, 0, 0]]
    """
    query = torch.arange(call.query_start, call.query_start + call.queries, device=call.query.device)
    key = torch.arange(call.key_start, call.key_start + keys, device=call.query.device)
    return (query[:, None] - key).abs() > window


def zero_values(call: AttentionCall, keys: Tensor) -> AttentionCall:
    """Zero the values of keys, bool (sample, head, key), for each query head by itself.

    Examples
    --------
    >>> kv = torch.ones(1, 1, 2, 1)
    >>> call = AttentionCall(torch.zeros(1, 2, 1, 1), kv, kv, mask=None, causal=False, scale=1.0, grouped=True)
    >>> zero_values(call, torch.tensor([[[True, False], [False, False]]])).value.squeeze(-1).tolist()
    [[[0.0, 1.0], [1.0, 1.0]]]
    """
    spelled_out = call.expand_heads()
    keys = F.pad(keys, (0, call.keys - keys.shape[-1]))
    return spelled_out.with_keys(spelled_out.key, spelled_out.value.masked_fill(keys[..., None], 0.0))


def append_sink(call: AttentionCall, acting: Sequence[bool]) -> AttentionCall:
    """One more key of score 0 and value 0, seen by all queries of the samples in which it acts.

    Examples
    --------
    >>> q = torch.zeros(1, 1, 2, 4)
    >>> append_sink(AttentionCall(q, q, q, mask=None, causal=False, scale=0.5), [True]).keys
    3
    """
    longer = call.append_keys(torch.zeros_like(call.key[:, :, :1]), torch.zeros_like(call.value[:, :, :1]))
    if all(acting):
        return longer
    new = torch.arange(longer.keys, device=call.query.device) == call.keys
    return longer.hide(~torch.tensor(acting, device=call.query.device)[:, None, None, None] & new)


def silenced_heads(spec: MaskHeads | RandomHeads, call: AttentionCall) -> list[int]:
    """The heads of this call's layer that are silenced, or a refusal of those that do not exist.

    Examples
    --------
    >>> q = torch.zeros(1, 4, 2, 4)
    >>> call = AttentionCall(q, q, q, mask=None, causal=False, scale=0.5, layer=3)
    >>> silenced_heads(MaskHeads([(3, 1), (5, 0)]), call)
    [1]
    """
    named = (spec.of if isinstance(spec, RandomHeads) else spec).of_layer(call.layer)
    if max(named) >= call.heads:
        raise Refusal(f"{spec.kind} names head {max(named)} of {call.where}, which has heads 0 to {call.heads - 1}.")
    if isinstance(spec, MaskHeads):
        return named
    others = [head for head in range(call.heads) if head not in named]
    if len(others) < len(named):
        raise Refusal(
            f"random-heads is to silence {len(named)} other heads of {call.where}, and there are only {len(others)}. Mask at most half "
            "of a layer's heads."
        )
    drawn = random_numbers(spec.seed, call.layer, range(call.heads))
    return sorted(others, key=lambda head: drawn[head])[: len(named)]


def silence(call: AttentionCall, heads: list[int], acting: Sequence[bool]) -> AttentionCall:
    """Scale the output of heads to 0, in the samples in which it acts.

    Examples
    --------
    >>> q = torch.zeros(1, 4, 2, 4)
    >>> call = AttentionCall(q, q, q, mask=None, causal=False, scale=0.5)
    >>> silence(call, [1, 3], [True]).head_scale.tolist()
    [[1.0, 0.0, 1.0, 0.0]]
    """
    factors = torch.ones(call.samples, call.heads)
    factors[:, heads] = 1.0 - torch.tensor(acting, dtype=factors.dtype)[:, None]
    return call.scale_heads(factors.to(call.query.device))
