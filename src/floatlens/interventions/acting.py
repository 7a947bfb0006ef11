"""Do to a call what an intervention says: hide keys, zero their values, silence heads, append a key.

No query is ever left with nothing to see: one from which everything it sees would be hidden keeps the nearest of it, which is itself where it sees itself.
Rows that are padding are left alone.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from floatlens.capture.call import AttentionCall
from floatlens.capture.visibility import Visibility, see
from floatlens.errors import Refusal
from floatlens.interventions.lots import lots
from floatlens.interventions.specification import MaskHeads, RandomHeads


class Hidden(NamedTuple):
    """A call after entries were hidden, and whether all of them are, from every real query."""

    call: AttentionCall
    whole: bool


def hide_keys(call: AttentionCall, entries: Tensor, real_queries: Tensor, real_keys: Tensor) -> Hidden:
    """Hide entries, bool (sample, head, query or 1, key), where that leaves every real query something to see.

    Examples
    --------
    >>> q = torch.zeros(1, 1, 2, 4)
    >>> call = AttentionCall(q, q, q, mask=None, causal=True, scale=0.5)
    >>> real = torch.ones(1, 2, dtype=torch.bool)
    >>> hidden = hide_keys(call, torch.tensor([[[[True, False]]]]), real, real)
    >>> hidden.call.mask.int().tolist(), hidden.whole  # the first query sees only key 0, itself
    ([[[[1, 0], [0, 1]]]], False)
    """
    entries = F.pad(entries, (0, call.keys - entries.shape[-1]))  # appended keys are no keys of the text
    if not bool(real_queries.all()):
        entries = entries & real_queries[:, None, :, None]
    if not bool(entries.any()):
        return Hidden(call, whole=True)
    seen = see(call, real_queries, F.pad(real_keys, (0, call.keys - real_keys.shape[-1]), value=True))
    at_risk = (entries.sum(-1) >= seen.keys_seen) & real_queries[:, None]  # fewer hidden than seen can leave nobody without a key
    if not bool(at_risk.any()):
        return Hidden(call.hide(entries), whole=True)
    kept = _last_resort(call, entries, seen)
    return Hidden(call.hide(entries & ~kept), whole=not bool(kept.any()))


def _last_resort(call: AttentionCall, entries: Tensor, seen: Visibility) -> Tensor:
    """For each query from which all it sees would be hidden, the nearest of that: bool (sample, head, query, key)."""
    explicit = call.hide(torch.zeros(call.keys, dtype=torch.bool, device=entries.device))
    visible = see(explicit).visible & seen.real_keys[:, None, None]
    left_alone = visible.any(-1) & ~(visible & ~entries).any(-1)
    query = torch.arange(call.query_start, call.query_start + call.queries, device=entries.device)
    key = torch.arange(call.key_start, call.key_start + call.keys, device=entries.device)
    distance = (query[:, None] - key).abs().float().masked_fill(~visible, float("inf"))
    return F.one_hot(distance.argmin(-1), call.keys).bool() & left_alone[..., None]


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


def append_sink(call: AttentionCall, acting: Tensor) -> AttentionCall:
    """One more key of score 0 and value 0, seen by all queries of the samples in which it acts, bool (sample,).

    Examples
    --------
    >>> q = torch.zeros(1, 1, 2, 4)
    >>> append_sink(AttentionCall(q, q, q, mask=None, causal=False, scale=0.5), torch.tensor([True])).keys
    3
    """
    longer = call.append_keys(torch.zeros_like(call.key[:, :, :1]), torch.zeros_like(call.value[:, :, :1]))
    if bool(acting.all()):
        return longer
    new = torch.arange(longer.keys, device=call.query.device) == call.keys
    return longer.hide((~acting)[:, None, None, None] & new)


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
            f"random-heads is to silence {len(named)} other heads of {call.where}, and there are only {len(others)}. Mask at most half of a layer's heads."
        )
    drawn = lots(spec.seed, call.layer, range(call.heads))
    return sorted(others, key=lambda head: drawn[head])[: len(named)]


def silence(call: AttentionCall, heads: list[int], acting: Tensor) -> AttentionCall:
    """Scale the output of heads to 0, in the samples in which it acts, bool (sample,).

    Examples
    --------
    >>> q = torch.zeros(1, 4, 2, 4)
    >>> call = AttentionCall(q, q, q, mask=None, causal=False, scale=0.5)
    >>> silence(call, [1, 3], torch.tensor([True])).head_scale.tolist()
    [[1.0, 0.0, 1.0, 0.0]]
    """
    factors = torch.ones(call.samples, call.heads, device=call.query.device)
    factors[:, heads] = (~acting).to(factors)[:, None]
    return call.scale_heads(factors)
