"""The block walk: recompute the attention weights of layers, a block of rows at a time, and let every reducer see each block once.

What a block costs is one QK product and one exponential per entry. Four things keep it there:

- a block holds rows of as many layers, samples and heads as fit, so that small matrices share an operator;
- scores live in base 2 (`log2 e` is folded into the scale), because torch's `exp2` keeps its speed on weights that underflow, where
  `exp` becomes 40 times slower;
- the row's logsumexp rides in the product itself, as one more component of the query against a key component of 1, so that the product
  comes out as the logarithm of the weight;
- blocks are written into two buffers that are reused, so memory does not grow with the length of the text.

The query heads that share a key head stand below each other in the product, as more rows of one matrix: keys are never copied for them.
A step with a cache has a few rows and many keys. There copying the keys to let the logsumexp ride would cost more than it saves: they are
used as they lie, and the logsumexp is added to the product. So they are wherever no logsumexp is known, and rows are normalised here.

Half precision: weights are always float32. Where a device multiplies numbers of half precision and sums them in float32 (CUDA does),
queries and keys stay what they are; elsewhere they become float32 a block at a time. Both are the same arithmetic: the product of two
such numbers is exact in float32.

A block holds whole rows of one or more matrices: see `Observation`. *Texts* are the samples of all layers, counted in one row.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Protocol

import torch
from torch import Tensor

from floatlens.capture.observation import Labelled, Observation
from floatlens.errors import Refusal

LOG2_E = math.log2(math.e)
BLOCK_ENTRIES = 1 << 20  # of a block on the CPU, whose cache it fits into
PREPARED_NUMBERS = 1 << 21  # of queries and keys that are made ready at a time
ELSEWHERE = 16  # on other devices so many times as much is done at once: there an operator costs more than its memory
FEW_ROWS = 32  # up to here keys are used as they lie: a pass over the scores is shorter than one over the keys
NOT_A_NUMBER = (
    "a score there is NaN or infinite. Look for an overflow (float16: try bfloat16 or float32), a mask that holds NaN, or broken weights."
)
SILENT = 1e30  # the logsumexp of a row that must not weigh anything


@dataclass(eq=False)
class Block:
    """Whole rows of attention weights, (matrices, rows, keys). Keys outside the slice have weight 0 for all of these rows."""

    matrices: slice
    rows: slice
    keys: slice
    weights: Tensor
    _log2_weights: Tensor | None
    _total: Tensor | None  # of each row, by which the weights were divided and their logarithms were not yet

    def take_negative_entropy(self, out: Tensor) -> None:
        """Write the sum of `p log2 p` of each row (its negative entropy, in bits) to `out` (matrices, rows). Once per block."""
        assert self._log2_weights is not None
        if self._total is not None:
            self._log2_weights.sub_(self._total.log2())
        torch.sum(self._log2_weights.mul_(self.weights), -1, out=out)
        self._log2_weights = None


class Reducer(Protocol):
    """Turns the blocks of an observation into named arrays. A new one goes into `reducers/`, one file each."""

    @property
    def needs_blocks(self) -> bool:
        """Whether `add` wants to see every block."""
        ...

    @property
    def rows(self) -> Tensor | None:
        """Sets of rows whose weights are summed by key, (sample, head or 1, set, query); None if it needs no such sums."""
        ...

    def add(self, block: Block) -> None: ...

    def result(self, sums: Tensor | None) -> dict[str, Labelled]:
        """Named arrays. `sums` are those of `rows`: (layer, sample, head, set, key). Arrays without a layer axis hold for all layers."""
        ...


@dataclass
class Workspace:
    """The reusable buffers of the walk: logarithms and weights of a block, and the queries and keys made ready.

    A block holds so many `entries`; if they are not given, as many as suit the device.
    """

    entries: int | None = None
    _buffers: dict[tuple[str, torch.dtype, torch.device], Tensor] = field(default_factory=dict)

    def entries_on(self, device: torch.device) -> int:
        """How many weights a block may hold on this device."""
        return at_once(BLOCK_ENTRIES, device) if self.entries is None else self.entries

    def room(self, purpose: str, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
        """An uninitialised tensor, valid until the next one for the same purpose. Fresh memory would cost more than what is put there."""
        size = math.prod(shape)
        kind = (purpose, dtype, device)
        if kind not in self._buffers or self._buffers[kind].numel() < size:
            with torch.inference_mode(False):  # the next step may run outside of inference mode
                self._buffers[kind] = torch.empty(size, dtype=dtype, device=device)
        return self._buffers[kind][:size].view(shape)


def at_once(on_the_cpu: int, device: torch.device) -> int:
    """How much is done at once on a device."""
    return on_the_cpu if device.type == "cpu" else on_the_cpu * ELSEWHERE


class ColumnSums:
    """Sums of weights over sets of rows: (matrix, set, key)."""

    def __init__(self, observation: Observation, rows: Tensor) -> None:
        self.rows = observation.per_matrix(rows)
        self._observation = observation
        self._sums: Tensor | None = None

    def add(self, block: Block) -> None:
        rows = self.rows[block.matrices, :, block.rows]
        if len(block.weights) == len(self.rows) and block.weights.shape[1:] == (self._observation.queries, self._observation.keys):
            self._sums = torch.bmm(rows, block.weights)  # the only block
            return
        if self._sums is None:
            self._sums = self._observation.new(self.rows.shape[1], self._observation.keys)
        self._sums[block.matrices, :, block.keys].baddbmm_(rows, block.weights)

    @property
    def sums(self) -> Tensor:
        """(layer, sample, head, set, key)."""
        assert self._sums is not None
        return self._observation.per_layer(self._sums)


def walk(observation: Observation, reducers: Sequence[Reducer | ColumnSums], workspace: Workspace) -> None:
    """Feed every block to the reducers."""
    for block in _blocks(observation, workspace):
        for reducer in reducers:
            reducer.add(block)


def refuse_broken_rows(observation: Observation, workspace: Workspace) -> None:
    """Walk again over calls whose sums are off, and name the first row whose scores are not numbers, if that is why."""
    live = observation.visibility.live_rows.expand(observation.layers, -1, observation.heads, -1).flatten(0, 2)
    logsumexp = observation.logsumexp
    for block in _blocks(observation, workspace):
        finite = block.weights.sum(-1).isfinite()
        if logsumexp is not None:
            finite &= logsumexp.flatten(0, 2)[block.matrices, block.rows].isfinite()
        broken = live[block.matrices, block.rows] & ~finite
        if bool(broken.any()):
            matrix, row = (int(index) for index in broken.nonzero()[0])
            text, head = divmod(matrix + block.matrices.start, observation.heads)
            layer, sample = divmod(text, observation.samples)
            place = f"{observation.where[layer]}, {observation.name_of(sample)}, head {head}, query {row + block.rows.start}"
            raise Refusal(f"The attention of {place} is not a number: {NOT_A_NUMBER}")


def _blocks(observation: Observation, workspace: Workspace) -> Iterator[Block]:
    as_they_lie = observation.logsumexp is None or observation.queries <= FEW_ROWS or _stays_half(observation)
    texts_at_once, heads_at_once, rows_at_once = _block_shape(observation, workspace.entries_on(observation.device), as_they_lie)
    for texts in _text_slices(observation, texts_at_once):
        for heads in _slices(0, observation.heads, heads_at_once):
            query, key, shift = _made_ready(observation, texts, heads, workspace, as_they_lie)
            for rows in _slices(0, observation.queries, rows_at_once):
                yield _block(observation, query, key, shift, texts, heads, rows, workspace)


def _block_shape(observation: Observation, entries: int, as_they_lie: bool) -> tuple[int, int, int]:
    """How many texts, heads and rows a block takes: several texts only with all their heads, so that matrices stay in one row."""
    queries, keys, heads = observation.queries, observation.keys, observation.heads
    rows = max(1, min(queries, entries // keys))
    if observation.visibility.causal or observation.visibility.mask is not None:  # in eighths, to skip most of what the rows cannot see
        rows = min(rows, max(128, -(-queries // 8)))
    matrices = max(1, entries // (rows * keys))
    if not as_they_lie or (observation.query.dtype != observation.dtype and not _stays_half(observation)):
        prepared = at_once(PREPARED_NUMBERS, observation.device) // ((queries + keys) * (observation.query.shape[-1] + 1))
        matrices = max(1, min(matrices, prepared))
    sharing = heads // observation.kv_heads
    if matrices < heads:  # heads of whole key heads, or an even share of the heads of one
        matrices = matrices // sharing * sharing or max(part for part in range(1, sharing + 1) if sharing % part == 0 and part <= matrices)
    return max(1, matrices // heads), min(heads, matrices), rows


def _stays_half(observation: Observation) -> bool:
    """Whether queries and keys are multiplied in their own half precision."""
    return observation.query.dtype != observation.dtype and multiplies_half(observation.device, observation.query.dtype)


@cache
def multiplies_half(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether a device multiplies matrices of this half precision and sums in float32. Tried out once, on a product that is known.

    Examples
    --------
    >>> multiplies_half(torch.device("cpu"), torch.bfloat16)  # torch offers it on CUDA only
    False
    """
    rows = torch.tensor([[1.0, 2.0**-7, 3.0, 0.0], [0.5, 1.0, 2.0**-6, 1.0]], device=device).to(dtype).expand(2, 2, 4)
    columns = rows.transpose(1, 2)
    expected = 1 + 0.5 * torch.bmm(rows.float(), columns.float())
    out, ones = torch.empty_like(expected), torch.ones(2, 2, 1, device=device)
    try:
        torch.baddbmm(ones, rows, columns, out_dtype=torch.float32, beta=1, alpha=0.5, out=out)
    except (NotImplementedError, RuntimeError, TypeError):
        return False
    return torch.equal(out.cpu(), expected.cpu())


def _text_slices(observation: Observation, at_once: int) -> Iterator[slice]:
    """All texts in order: whole layers together, or some samples of one layer."""
    samples, texts = observation.samples, observation.layers * observation.samples
    if at_once >= samples:
        yield from _slices(0, texts, at_once // samples * samples)
        return
    for first in range(0, texts, samples):
        yield from _slices(first, first + samples, at_once)


def _made_ready(
    observation: Observation, texts: slice, heads: slice, workspace: Workspace, as_they_lie: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Queries (text, head, query, depth), keys (text, kv_head, key, depth), and what is to be added to the logarithms of the weights.

    The last is (text, head, query), and None if there is nothing to add, or it rides in the product.
    """
    visibility, dtype, scale = observation.visibility, observation.dtype, observation.scale * LOG2_E
    sharing = observation.heads // observation.kv_heads
    kv_heads = slice(heads.start // sharing, -(-heads.stop // sharing))
    multiplied = observation.query.dtype if _stays_half(observation) else dtype
    query = observation.query.flatten(0, 1)[texts, heads].to(multiplied)
    key = observation.key.flatten(0, 1)[texts, kv_heads].to(multiplied)
    shift = None if observation.logsumexp is None else observation.logsumexp.flatten(0, 1)[texts, heads].to(dtype) * -LOG2_E
    if not visibility.all_rows_live:  # what lies in padding may be anything, NaN included
        dead = observation.of_texts(~visibility.live_rows, texts, heads)
        query = query.masked_fill(dead[..., None], 0.0)
        shift = None if shift is None else shift.masked_fill(dead, -SILENT)
    if as_they_lie or shift is None:
        return query, key, shift
    if not visibility.all_keys_real:
        padding = observation.of_texts(~visibility.real_keys[:, None], texts, slice(None))
        key = key.masked_fill(padding[..., None], 0.0)
    deep = query.shape[-1] + 1
    room = workspace.room("queries", (*query.shape[:-1], deep), dtype, observation.device)
    query = torch.cat([query, (shift / scale)[..., None]], dim=-1, out=room)
    ones = key.new_ones(()).expand(*key.shape[:-1], 1)
    room = workspace.room("keys", (*key.shape[:-1], deep), dtype, observation.device)
    return query, torch.cat([key, ones], dim=-1, out=room), None


def _block(
    observation: Observation,
    query: Tensor,
    key: Tensor,
    shift: Tensor | None,
    texts: slice,
    heads: slice,
    rows: slice,
    workspace: Workspace,
) -> Block:
    """Rows of these texts and heads: multiplied, masked, and made weights."""
    visibility, count = observation.visibility, rows.stop - rows.start
    keys = visibility.key_range(rows)
    matrices, kv_matrices = query.shape[0] * query.shape[1], key.shape[0] * key.shape[1]
    below = query[:, :, rows].reshape(kv_matrices, -1, query.shape[-1])  # heads of one key head as more rows of it
    across = key[:, :, keys].flatten(0, 1).transpose(1, 2)
    log2_weights = workspace.room("log2 weights", (matrices, count, keys.stop - keys.start), observation.dtype, query.device)
    product = log2_weights.view(kv_matrices, -1, keys.stop - keys.start)
    added = product if shift is None else shift[:, :, rows].reshape(kv_matrices, -1, 1)
    how = {"beta": 0 if shift is None else 1, "alpha": observation.scale * LOG2_E, "out": product}
    if query.dtype == observation.dtype:
        torch.baddbmm(added, below, across, **how)
    else:
        torch.baddbmm(added, below, across, out_dtype=observation.dtype, **how)
    if (masked := visibility.masked_range(rows)) is not None:
        tile = visibility.additive_tile(rows, masked, observation.samples_of(texts), heads, LOG2_E, log2_weights.dtype)
        here = log2_weights[..., masked.start - keys.start : masked.stop - keys.start].unflatten(0, query.shape[:2])
        here.add_(observation.for_texts(tile, texts))
    if not visibility.all_keys_real and key.shape[-1] == observation.key.shape[-1]:  # as they lie: what is in padding was multiplied
        padding = observation.of_texts(~visibility.real_keys[:, None, None, keys], texts, heads)
        log2_weights.unflatten(0, query.shape[:2]).masked_fill_(padding, -SILENT)
    weights = workspace.room("weights", tuple(log2_weights.shape), log2_weights.dtype, log2_weights.device)
    total = None
    if observation.logsumexp is not None:
        torch.exp2(log2_weights, out=weights)
    else:
        total = _normalise(observation, log2_weights, weights, texts, heads, rows)
    first = texts.start * observation.heads + heads.start
    return Block(slice(first, first + matrices), rows, keys, weights, log2_weights, total)


def _normalise(observation: Observation, log2_weights: Tensor, weights: Tensor, texts: slice, heads: slice, rows: slice) -> Tensor:
    """A softmax in base 2, for kernels that do not hand out their logsumexp. The totals of rows, which the logarithms still hold."""
    log2_weights.sub_(log2_weights.amax(-1, keepdim=True))
    total = torch.exp2(log2_weights, out=weights).sum(-1, keepdim=True)
    if observation.visibility.all_rows_live:
        weights.div_(total)
        return total
    live = observation.of_texts(observation.visibility.live_rows, texts, heads)[..., rows, None]
    in_matrices = weights.unflatten(0, (texts.stop - texts.start, heads.stop - heads.start))
    in_matrices.mul_(live / total.view(*in_matrices.shape[:3], 1))
    return total


def _slices(start: int, stop: int, at_once: int) -> Iterator[slice]:
    for here in range(start, stop, at_once):
        yield slice(here, min(here + at_once, stop))
