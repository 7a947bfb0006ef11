"""Who may see whom in one attention call: the mask, read once and asked many times.

A model says it with the causal flag, a boolean mask or an additive one; padding says which queries and keys are real. Everything that
counts or averages "over the queries that may see a key" (visible counts, nulls, QK geometry) comes from here. All layers of a model
usually share one mask, so a `Visibility` is built once per forward and mask.

Nothing here waits for the device, except once per mask where its shape decides what is computed: which keys a stripe of rows can see
(`key_range`, long texts only), which squares of a mask are partly visible (`tiles`, for QK geometry), and how few keys a row sees
(`reach`, for interventions).

Axes start with `(sample or 1, head or 1, ...)`; a 1 means "the same for all". A *dead* row is real but has nothing to see.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from floatlens.capture.call import AttentionCall, as_four_axes

HIDING_BIAS = -9e3  # an additive mask hides a key from here down (bfloat16 makes -9984 of -10000)
HIDDEN = -1e30  # what is added to a hidden score: whatever the score, its weight is exactly 0, and 0 times its logarithm is 0
ROWS_AT_ONCE = 256  # masks become numbers in stripes of this many query rows
TILE = 64  # side of the squares into which a mask is sorted


class Tiles(NamedTuple):
    """A mask cut into squares of `TILE` x `TILE`: those that are all visible, and those that are partly so."""

    full: Tensor  # float (key tile, query tile): 1 where every pair of the square may see each other, for every sample and head
    query_tile: Tensor  # (partial,)
    key_tile: Tensor  # (partial,)
    visible: Tensor  # uint8 (sample or 1, head or 1, partial or 1, TILE, TILE)


@dataclass(frozen=True, eq=False)
class Visibility:
    """What each query of a call may see.

    Examples
    --------
    >>> import torch
    >>> q = torch.zeros(1, 1, 3, 4)
    >>> causal = see(AttentionCall(q, q, q, mask=None, causal=True, scale=0.5))
    >>> causal.keys_seen[0, 0].tolist()
    [1.0, 2.0, 3.0]
    >>> causal.sum_over_seeing_rows(torch.ones(1, 1, 1, 3))[0, 0, 0].tolist()  # how many queries see each key
    [3.0, 2.0, 1.0]
    """

    queries: int
    keys: int
    causal: bool
    mask: Tensor | None  # (sample or 1, head or 1, query, key), boolean or additive
    real_queries: Tensor  # bool (sample, query)
    real_keys: Tensor  # bool (sample, key)
    all_queries_real: bool  # known without looking; False if some may be padding
    all_keys_real: bool
    _triangles: dict[tuple[int, int, int, torch.dtype], Tensor] = field(default_factory=dict)

    @cached_property
    def visible(self) -> Tensor:
        """An explicit mask as booleans."""
        assert self.mask is not None
        return self.mask if self.mask.dtype == torch.bool else ~(self.mask <= HIDING_BIAS)  # NaN hides nothing: it must be noticed

    @cached_property
    def keys_seen(self) -> Tensor:
        """How many real keys each query may see: (sample or 1, head or 1, query)."""
        if self.mask is not None:
            return (self.visible & self.real_keys[:, None, None]).sum(-1).float()
        if self.all_keys_real and not self.causal:
            return torch.full((1, 1, self.queries), float(self.keys), device=self.real_keys.device)
        reach = torch.full((self.queries,), self.keys, device=self.real_keys.device)
        if self.causal:
            reach = torch.arange(1, self.queries + 1, device=reach.device).clamp(max=self.keys)
        return F.pad(self.real_keys.cumsum(-1), (1, 0))[:, reach][:, None].float()

    @cached_property
    def live_rows(self) -> Tensor:
        """Real queries with at least one key to see: bool (sample, head or 1, query)."""
        return self.real_queries[:, None] if self.all_rows_live else self.real_queries[:, None] & (self.keys_seen > 0)

    @cached_property
    def dead_rows(self) -> Tensor:
        """Real queries with nothing to see: bool (sample, head or 1, query)."""
        return self.real_queries[:, None] & (self.keys_seen == 0)

    @property
    def all_rows_live(self) -> bool:
        """Whether every row is known to be real and to see something; an explicit mask would have to be looked at."""
        return self.mask is None and self.all_queries_real and self.all_keys_real

    @cached_property
    def reach(self) -> tuple[int, bool]:
        """The fewest keys that a row with something to see can see, and whether all of those see every real key of their text.

        An explicit mask is looked at for this, once.
        """
        if self.mask is None and (self.causal or self.all_keys_real):
            return (1, False) if self.causal else (self.keys, True)
        everything = self.keys_seen == self.real_keys.sum(-1)[:, None, None]
        fewest = self.keys_seen.masked_fill(~self.live_rows, self.keys).amin()
        fewest_seen, sees_all = torch.stack([fewest, (everything | ~self.live_rows).all().to(fewest)]).tolist()
        return int(fewest_seen), bool(sees_all)

    def key_range(self, rows: slice) -> slice:
        """The keys outside which none of these rows sees anything."""
        if self.mask is None:
            return slice(0, min(rows.stop, self.keys) if self.causal else self.keys)
        if rows.stop - rows.start == self.queries:
            return slice(0, self.keys)
        first, stop = self._row_reach
        start = min(min(first[rows]), self.keys - 1)
        return slice(start, max(max(stop[rows]), start + 1))

    def masked_range(self, rows: slice) -> slice | None:
        """The keys for which some of these rows need a mask, or None if they see all of their range."""
        if self.mask is not None:
            return self.key_range(rows)
        diagonal = slice(rows.start + 1, min(rows.stop, self.keys))
        return diagonal if self.causal and diagonal.start < diagonal.stop else None

    def additive_tile(self, rows: slice, keys: slice, samples: slice, heads: slice, scale: float, dtype: torch.dtype) -> Tensor:
        """`scale` times what to add to the scaled scores: the model's bias, or `HIDDEN`. (sample or 1, head or 1, row, key)."""
        if self.mask is None:
            return self._triangle(rows.stop - rows.start, keys.stop - keys.start, rows.start - keys.start + 1, dtype)[None, None]
        visible = part(self.visible, samples, heads)[:, :, rows, keys]
        hiding = visible.view(torch.uint8).to(dtype).sub_(1).mul_(-HIDDEN)  # as a byte: 25 times faster than torch.where
        if self.mask.dtype == torch.bool:
            return hiding
        return hiding.add_(part(self.mask, samples, heads)[:, :, rows, keys].to(dtype).clamp(min=HIDING_BIAS), alpha=scale)

    def _triangle(self, rows: int, keys: int, diagonal: int, dtype: torch.dtype) -> Tensor:
        """The causal edge of a block. All blocks of a size have the same one."""
        known_as = (rows, keys, diagonal, dtype)
        if known_as not in self._triangles:
            hidden = torch.full((rows, keys), HIDDEN, dtype=dtype, device=self.real_keys.device)
            self._triangles[known_as] = hidden.triu_(diagonal)
        return self._triangles[known_as]

    def sum_over_seeing_rows(self, weights: Tensor) -> Tensor:
        """For each key, the sum of `weights` over the queries that may see it: (..., group, query) -> (..., group, key)."""
        if self.mask is None and not self.causal:
            return weights.sum(-1, keepdim=True).expand(*weights.shape[:-1], self.keys)
        if self.mask is None:
            from_here_on = weights.flip(-1).cumsum(-1).flip(-1)[..., : self.keys]
            return F.pad(from_here_on, (0, self.keys - from_here_on.shape[-1]))
        total = weights.new_zeros(())
        for start in range(0, self.queries, ROWS_AT_ONCE):
            rows = slice(start, start + ROWS_AT_ONCE)
            total = total + weights[..., rows] @ self.visible[:, :, rows].contiguous().view(torch.uint8).to(weights.dtype)
        return total

    @cached_property
    def tiles(self) -> Tiles:
        """The mask sorted into squares. Causal, block and window masks have few partial ones: their number grows with n, not n x m."""
        down, across = -(-self.queries // TILE), -(-self.keys // TILE)
        device = self.real_keys.device
        if self.mask is None:
            query_tile, key_tile = torch.arange(down, device=device)[:, None], torch.arange(across, device=device)
            full = (query_tile > key_tile) if self.causal else torch.ones(down, across, dtype=torch.bool, device=device)
            diagonal = torch.arange(min(down, across) if self.causal else 0, device=device)
            triangle = torch.ones(1, 1, 1, TILE, TILE, dtype=torch.uint8, device=device).tril_()
            return Tiles(full.T.float(), diagonal, diagonal, triangle)
        beyond = (0, across * TILE - self.keys, 0, down * TILE - self.queries)
        squares = F.pad(self.visible, beyond).unflatten(-1, (across, TILE)).unflatten(-3, (down, TILE))
        # axes: sample or 1, head or 1, query tile, query, key tile, key
        full = squares.all(5).all(3).flatten(0, 1).all(0)
        partial = squares.any(5).any(3).flatten(0, 1).any(0) & ~full
        query_tile, key_tile = partial.nonzero(as_tuple=True)
        chosen = squares.permute(0, 1, 2, 4, 3, 5)[:, :, query_tile, key_tile]
        return Tiles(full.T.float(), query_tile, key_tile, chosen.contiguous().view(torch.uint8))

    @cached_property
    def _row_reach(self) -> tuple[list[int], list[int]]:
        """First key and one past the last that any sample and head of each row sees, by row."""
        seen = self.visible.flatten(0, 1).any(0).view(torch.uint8)
        first = seen.argmax(-1)
        stop = self.keys - seen.flip(-1).argmax(-1)
        nothing = seen.amax(-1) == 0
        reach = torch.stack([first.masked_fill(nothing, self.keys), stop.masked_fill(nothing, 0)])
        begins, ends = reach.tolist()
        return begins, ends


def see(call: AttentionCall, real: "Real | None" = None) -> Visibility:
    """Read a call's mask; what is not said to be padding is real."""
    if real is None:
        real = everything_real(call)
    mask = None if call.mask is None else as_four_axes(call.mask)
    if mask is not None:
        mask = mask.expand(*mask.shape[:2], call.queries, call.keys)
    return Visibility(call.queries, call.keys, call.causal, mask, real.queries, real.keys, real.all_queries, real.all_keys)


class Real(NamedTuple):
    """What of a call is no padding, and whether that is known to be all of it."""

    queries: Tensor  # bool (sample, query)
    keys: Tensor  # bool (sample, key)
    all_queries: bool
    all_keys: bool


def everything_real(call: AttentionCall) -> Real:
    """A call without padding."""
    device = call.query.device
    queries = torch.ones(call.samples, call.queries, dtype=torch.bool, device=device)
    return Real(queries, torch.ones(call.samples, call.keys, dtype=torch.bool, device=device), True, True)


def part(values: Tensor, samples: slice, heads: slice) -> Tensor:
    """Some samples and heads of `(sample or 1, head or 1, ...)`, where a 1 stands for all."""
    return values[samples if values.shape[0] > 1 else slice(None), heads if values.shape[1] > 1 else slice(None)]
