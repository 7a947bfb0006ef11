"""The block walk: recompute a call's attention weights, a block of rows at a time, and let every reducer see each block once.

What a block costs is one QK product and one exponential per entry. Three things keep it there:

- scores live in base 2 (`log2 e` is folded into the scale), because torch's `exp2` keeps its speed on weights that underflow, where
  `exp` becomes 40 times slower;
- the row's logsumexp rides in the product itself, as one more component of the query against a key component of 1, so that the product
  comes out as the logarithm of the weight;
- blocks are written into two buffers that are reused, so memory does not grow with the length of the text.

A step with a cache has a few rows and many keys. There the second saves less than copying the keys would cost: they are used as they lie,
once for all query heads that share them, and what rode in the product is added to it.

A block holds whole rows of one or more *matrices*: the attention matrices of all samples and heads, counted in one row (sample-major).
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from floatlens.capture.call import AttentionCall
from floatlens.capture.observation import Labelled, Observation
from floatlens.capture.visibility import part
from floatlens.errors import Refusal

LOG2_E = math.log2(math.e)
BLOCK_ENTRIES = 1 << 20
PREPARED_NUMBERS = 1 << 21
FEW_ROWS = 32  # up to here keys are used as they lie: a pass over the scores is shorter than one over the keys
SILENT = 1e30  # the logsumexp of a row that must not weigh anything


@dataclass(eq=False)
class Block:
    """Whole rows of attention weights, (matrices, rows, keys). Keys outside the slice have weight 0 for all of these rows."""

    matrices: slice
    rows: slice
    keys: slice
    weights: Tensor
    _log2_weights: Tensor | None

    def take_negative_entropy(self, out: Tensor) -> None:
        """Write the sum of `p log2 p` of each row (its negative entropy, in bits) to `out` (matrices, rows). Once per block."""
        assert self._log2_weights is not None
        torch.sum(self._log2_weights.mul_(self.weights), -1, out=out)
        self._log2_weights = None


class Reducer(Protocol):
    """Turns the blocks of one call into named arrays. A new one goes into `reducers/`, one file each."""

    needs_blocks: bool

    def add(self, block: Block) -> None: ...
    def result(self) -> dict[str, Labelled]: ...


@dataclass
class Workspace:
    """The reusable buffers of the walk: logarithms and weights of a block (`entries` each), and the queries and keys made ready."""

    entries: int = BLOCK_ENTRIES
    _buffers: dict[tuple[str, torch.dtype, torch.device], Tensor] = field(default_factory=dict)

    def room(self, purpose: str, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
        """An uninitialised tensor, valid until the next one for the same purpose. Fresh memory would cost more than what is put there."""
        size = math.prod(shape)
        kind = (purpose, dtype, device)
        if kind not in self._buffers or self._buffers[kind].numel() < size:
            with torch.inference_mode(False):  # the next step may run outside of inference mode
                self._buffers[kind] = torch.empty(size, dtype=dtype, device=device)
        return self._buffers[kind][:size].view(shape)


def walk(observation: Observation, logsumexp: Tensor | None, reducers: Sequence[Reducer], workspace: Workspace) -> None:
    """Feed every block of the call to the reducers."""
    for block in _blocks(observation, logsumexp, workspace):
        for reducer in reducers:
            reducer.add(block)


def refuse_broken_rows(observation: Observation, logsumexp: Tensor | None, workspace: Workspace) -> None:
    """Walk again over a call whose sums are off, and name the first row whose scores are not numbers, if that is why."""
    call = observation.call
    live = observation.visibility.live_rows.expand(-1, call.heads, -1).flatten(0, 1)
    for block in _blocks(observation, logsumexp, workspace):
        finite = block.weights.sum(-1).isfinite()
        if logsumexp is not None:
            finite &= logsumexp.flatten(0, 1)[block.matrices, block.rows].isfinite()
        broken = live[block.matrices, block.rows] & ~finite
        if bool(broken.any()):
            matrix, row = (int(index) for index in broken.nonzero()[0])
            sample, head = divmod(matrix + block.matrices.start, call.heads)
            raise Refusal(
                f"The attention of {call.where}, sample {sample}, head {head}, query {row + block.rows.start} is not a number: a score "
                "there is "
                "NaN or infinite. Look for an overflow (float16: try bfloat16 or float32), a mask that holds NaN, or broken weights."
            )


def _blocks(observation: Observation, logsumexp: Tensor | None, workspace: Workspace) -> Iterator[Block]:
    call, visibility = observation.call, observation.visibility
    if call.queries <= FEW_ROWS and call.heads * call.queries * call.keys <= workspace.entries:
        yield from _blocks_of_few_rows(observation, logsumexp, workspace)
        return
    samples_at_once, heads_at_once, rows_at_once = _block_shape(call, workspace.entries)
    for samples in _slices(0, call.samples, samples_at_once):
        for prepared in _slices(0, call.heads, heads_at_once if samples_at_once > 1 else _heads_to_prepare(call, heads_at_once)):
            all_queries, all_keys = _augmented(observation, logsumexp, samples, prepared, workspace)
            for heads in _slices(prepared.start, prepared.stop, heads_at_once):
                here = slice(heads.start - prepared.start, heads.stop - prepared.start)
                query, key = all_queries[:, here].flatten(0, 1), all_keys[:, here].flatten(0, 1)
                for rows in _slices(0, call.queries, rows_at_once):
                    keys = visibility.key_range(rows)
                    shape = (len(query), rows.stop - rows.start, keys.stop - keys.start)
                    log2_weights = workspace.room("log2 weights", shape, query.dtype, query.device)
                    torch.bmm(query[:, rows], key[:, keys].transpose(1, 2), out=log2_weights)
                    yield _weighed(observation, log2_weights, samples, heads, rows, keys, workspace, normalised=logsumexp is not None)


def _blocks_of_few_rows(observation: Observation, logsumexp: Tensor | None, workspace: Workspace) -> Iterator[Block]:
    """Blocks of all rows and heads of one or more samples.

    The query heads that share a key head stand below each other, as more rows of one product.
    """
    call, visibility = observation.call, observation.visibility
    dtype, device = observation.dtype, call.query.device
    rows, heads, sharing = slice(0, call.queries), slice(0, call.heads), call.heads // call.kv_heads
    keys = visibility.key_range(rows)
    for samples in _slices(0, call.samples, workspace.entries // (call.heads * call.queries * call.keys)):
        query, shift = _live_queries(observation, logsumexp, samples, heads)
        key = call.key[samples, :, keys].to(dtype).flatten(0, 1)
        product = workspace.room("log2 weights", (len(key), sharing * call.queries, key.shape[1]), dtype, device)
        below, added = query.reshape(len(key), -1, query.shape[-1]), shift.reshape(len(key), -1, 1)
        torch.baddbmm(added, below, key.transpose(1, 2), alpha=call.scale * LOG2_E, out=product)
        log2_weights = product.view(len(query) * call.heads, call.queries, -1)
        if not visibility.all_keys_real:  # what lies in padding may be anything, here too
            padding = ~visibility.real_keys[samples, None, None, keys]
            log2_weights.masked_fill_(_as_matrices(padding, samples, heads), -SILENT)
        yield _weighed(observation, log2_weights, samples, heads, rows, keys, workspace, normalised=logsumexp is not None)


def _weighed(
    observation: Observation,
    log2_weights: Tensor,
    samples: slice,
    heads: slice,
    rows: slice,
    keys: slice,
    workspace: Workspace,
    *,
    normalised: bool,
) -> Block:
    """A block from its products: masked, and made weights."""
    visibility = observation.visibility
    if (masked := visibility.masked_range(rows)) is not None:
        tile = visibility.additive_tile(rows, masked, samples, heads, LOG2_E, log2_weights.dtype)
        tile = tile if tile.dim() == 2 else _as_matrices(tile, samples, heads)
        log2_weights[..., masked.start - keys.start : masked.stop - keys.start].add_(tile)
    weights = workspace.room("weights", tuple(log2_weights.shape), log2_weights.dtype, log2_weights.device)
    if normalised:
        torch.exp2(log2_weights, out=weights)
    else:
        _normalise(observation, log2_weights, weights, samples, heads, rows)
    first = samples.start * observation.call.heads + heads.start
    return Block(slice(first, first + len(log2_weights)), rows, keys, weights, log2_weights)


def _block_shape(call: AttentionCall, entries: int) -> tuple[int, int, int]:
    """How many samples, heads and rows a block takes: several samples only with all their heads, so that matrices stay in one row."""
    rows = max(1, min(call.queries, entries // call.keys))
    if call.causal or call.mask is not None:  # in eighths, to skip most of what the rows cannot see
        rows = min(rows, max(128, -(-call.queries // 8)))
    matrices = max(1, min(entries // (rows * call.keys), _matrices_to_prepare(call)))
    return max(1, matrices // call.heads), min(call.heads, matrices), rows


def _heads_to_prepare(call: AttentionCall, heads_at_once: int) -> int:
    """Queries and keys are made ready for several blocks at a time: small operations cost most."""
    return min(call.heads, max(1, _matrices_to_prepare(call) // heads_at_once) * heads_at_once)


def _matrices_to_prepare(call: AttentionCall) -> int:
    """For how many matrices queries and keys fit into the memory set aside for them."""
    return max(1, PREPARED_NUMBERS // ((call.queries + call.keys) * (call.query.shape[-1] + 1)))


def _augmented(
    observation: Observation, logsumexp: Tensor | None, samples: slice, heads: slice, workspace: Workspace
) -> tuple[Tensor, Tensor]:
    """Queries (sample, head, query, depth + 1) and keys (sample, head, key, depth + 1) whose product is log2 of the weight."""
    call, visibility = observation.call, observation.visibility
    dtype, device = observation.dtype, call.query.device
    kv_head = [head * call.kv_heads // call.heads for head in range(heads.start, heads.stop)]
    query, shift = _live_queries(observation, logsumexp, samples, heads)
    key = call.key[samples, kv_head[0] : kv_head[-1] + 1].to(dtype) * (call.scale * LOG2_E)
    if not visibility.all_keys_real:
        key = key.masked_fill(~visibility.real_keys[samples, None, :, None], 0.0)
    deep = query.shape[-1] + 1
    query = torch.cat([query, shift[..., None]], dim=-1, out=workspace.room("queries", (*query.shape[:-1], deep), dtype, device))
    ones = key.new_ones(()).expand(*key.shape[:-1], 1)
    key = torch.cat([key, ones], dim=-1, out=workspace.room("keys", (*key.shape[:-1], deep), dtype, device))
    if len(kv_head) == key.shape[1]:
        return query, key
    which = torch.tensor(kv_head, device=device) - kv_head[0]
    room = workspace.room("keys of query heads", (key.shape[0], len(kv_head), *key.shape[2:]), dtype, device)
    return query, torch.index_select(key, 1, which, out=room)


def _live_queries(observation: Observation, logsumexp: Tensor | None, samples: slice, heads: slice) -> tuple[Tensor, Tensor]:
    """Queries (sample, head, query, depth), and what shifts the logarithms of their weights (sample, head, query).

    The shift is the logsumexp, where there is one.
    """
    call, visibility, dtype = observation.call, observation.visibility, observation.dtype
    query = call.query[samples, heads].to(dtype)
    shift = query.new_zeros(query.shape[:-1]) if logsumexp is None else logsumexp[samples, heads].to(dtype) * -LOG2_E
    if visibility.all_rows_live:
        return query, shift
    dead = ~part(visibility.live_rows, samples, heads)  # what lies in padding may be anything, NaN included
    return query.masked_fill(dead[..., None], 0.0), shift.masked_fill(dead, -SILENT)


def _normalise(observation: Observation, log2_weights: Tensor, weights: Tensor, samples: slice, heads: slice, rows: slice) -> None:
    """A softmax in base 2, for kernels that do not hand out their logsumexp."""
    log2_weights.sub_(log2_weights.amax(-1, keepdim=True))
    total = torch.exp2(log2_weights, out=weights).sum(-1, keepdim=True)
    log2_weights.sub_(total.log2())
    live = _as_matrices(part(observation.visibility.live_rows, samples, heads)[:, :, rows, None], samples, heads)
    weights.mul_(live / total)


def _as_matrices(values: Tensor, samples: slice, heads: slice) -> Tensor:
    """(sample or 1, head or 1, ...) spelled out to (matrix, ...)."""
    return values.expand(samples.stop - samples.start, heads.stop - heads.start, *values.shape[2:]).flatten(0, 1)


def _slices(start: int, stop: int, at_once: int) -> Iterator[slice]:
    for here in range(start, stop, at_once):
        yield slice(here, min(here + at_once, stop))
