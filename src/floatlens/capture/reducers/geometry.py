"""QK geometry of each key, by query group, without an n x m matrix; and the norms of queries, keys and values.

Over the rows of a group that may see key `j`: `score` is the mean of `q . k_j` (no scale, no bias), `cosine` the mean of `q/|q| .
k_j/|k_j|`, `norm_product` the mean of `|q|` times `|k_j|`. Means over queries are linear in the query, so summing the queries first and
taking one product afterwards is exact: O(n d) per head. Under a mask, queries are summed by tiles of `TILE` rows, which covers every
square of the mask that is wholly visible; only the squares at its edge are multiplied out. Causal, block and window masks have O(n) of
those. Nothing is ever subtracted, so a key that few rows see is as exact as any other.

Norms are Euclidean, per query head, of vectors as the kernel sees them: keys after rotary embedding.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from floatlens.capture.observation import Labelled, Observation
from floatlens.capture.visibility import TILE, part
from floatlens.capture.walk import Block

ENTRIES_AT_ONCE = 1 << 20


class Geometry:
    """Mean score, cosine and norm product of each key."""

    needs_blocks = False

    def __init__(self, observation: Observation) -> None:
        self.observation = observation

    def add(self, block: Block) -> None:
        """Geometry needs no weights."""

    def result(self) -> dict[str, Labelled]:
        observation, scene, visibility = self.observation, self.observation.scene, self.observation.visibility
        query_norm = observation.query_norm
        if not visibility.all_rows_live:
            query_norm = torch.where(visibility.live_rows, query_norm, 0.0)
        rows = scene.group_rows.to(query_norm.dtype)
        over_norm = rows / query_norm.clamp(min=torch.finfo(query_norm.dtype).tiny)[:, :, None]  # a query of length 0 has cosine 0
        both = torch.cat([rows.expand_as(over_norm), over_norm], dim=2)  # plain sums, then sums of unit queries
        score, cosine = self._summed_products(both).chunk(2, dim=2)
        norm_sum = visibility.sum_over_seeing_rows(rows * query_norm[:, :, None])
        key_norm = observation.key_norm[:, :, None]
        axes = ("sample", "head", "group", "key")
        return {
            "score": (axes, scene.only_real_keys(score / scene.seeing_rows)),
            "cosine": (axes, scene.only_real_keys(cosine / (scene.seeing_rows * key_norm))),
            "norm_product": (axes, scene.only_real_keys(norm_sum / scene.seeing_rows * key_norm)),
        }

    def _summed_products(self, weights: Tensor) -> Tensor:
        """Sum over the rows i that see key j of `weights[i] q_i . k_j`: (sample, head, group, query) -> (sample, head, group, key)."""
        call, visibility = self.observation.call, self.observation.visibility
        repeats = call.heads // call.kv_heads
        vectors = call.samples * repeats * max(call.queries, call.keys) * call.query.shape[-1]
        kv_heads_at_once = max(1, ENTRIES_AT_ONCE // vectors)
        done = []
        for first in range(0, call.kv_heads, kv_heads_at_once):
            kv_heads = slice(first, min(first + kv_heads_at_once, call.kv_heads))
            heads = slice(kv_heads.start * repeats, kv_heads.stop * repeats)
            query, key = call.query[:, heads].to(weights.dtype), call.key[:, kv_heads].to(weights.dtype)
            if not visibility.all_rows_live:
                query = torch.where(part(visibility.live_rows, slice(None), heads)[..., None], query, 0.0)
            if not visibility.all_keys_real:
                key = torch.where(visibility.real_keys[:, None, :, None], key, 0.0)
            if visibility.mask is None and not visibility.causal:
                sums = (weights[:, heads] @ query).unflatten(1, (-1, repeats))  # (sample, kv_head, repeat, group, depth)
                products = sums.flatten(2, 3) @ key.transpose(-1, -2)
                done.append(products.unflatten(2, (repeats, -1)).flatten(1, 2))
            else:
                done.append(self._by_tiles(weights[:, heads], query, key.repeat_interleave(repeats, dim=1), heads))
        return torch.cat(done, dim=1)

    def _by_tiles(self, weights: Tensor, query: Tensor, key: Tensor, heads: slice) -> Tensor:
        visibility = self.observation.visibility
        tiles = visibility.tiles
        query, key = _cut(query), _cut(key).transpose(-1, -2)  # (sample, head, tile, TILE, depth), (sample, head, tile, depth, TILE)
        weights = _cut(weights.transpose(-1, -2)).transpose(-1, -2)  # (sample, head, tile, group, TILE)
        tile_sums = weights @ query  # (sample, head, query tile, group, depth)
        seen_whole = (tiles.full.to(query.dtype) @ tile_sums.flatten(3)).unflatten(3, tile_sums.shape[3:])
        products = seen_whole @ key  # (sample, head, key tile, group, TILE)
        tiles_at_once = max(1, ENTRIES_AT_ONCE // (query.shape[0] * query.shape[1] * TILE * TILE))
        for first in range(0, len(tiles.query_tile), tiles_at_once):
            these = slice(first, min(first + tiles_at_once, len(tiles.query_tile)))
            # under the causal flag the partial tiles are the diagonal in order: views, no copies
            at_query, at_key = (these, these) if visibility.mask is None else (tiles.query_tile[these], tiles.key_tile[these])
            square = query[:, :, at_query] @ key[:, :, at_key]
            visible = part(tiles.visible, slice(None), heads)
            square *= (visible if visible.shape[2] == 1 else visible[:, :, these]).to(square.dtype)
            products.index_add_(2, tiles.key_tile[these], weights[:, :, at_query] @ square)
        return products.transpose(2, 3).flatten(3)[..., : self.observation.call.keys]


def _cut(rows: Tensor) -> Tensor:
    """(sample, head, row, column) into tiles of rows, the last one filled up with zeros."""
    missing = -rows.shape[2] % TILE
    return (F.pad(rows, (0, 0, 0, missing)) if missing else rows).unflatten(2, (-1, TILE))


class Norms:
    """Norms of the vectors that make the scores and the output."""

    needs_blocks = False

    def __init__(self, observation: Observation) -> None:
        self.observation = observation

    def add(self, block: Block) -> None:
        """Norms need no weights."""

    def result(self) -> dict[str, Labelled]:
        observation, visibility = self.observation, self.observation.visibility
        query_norm = observation.query_norm
        if not visibility.all_queries_real:
            query_norm = query_norm.masked_fill(~visibility.real_queries[:, None], float("nan"))
        return {
            "query_norm": (("sample", "head", "query"), query_norm),
            "key_norm": (("sample", "head", "key"), observation.scene.only_real_keys(observation.key_norm)),
            "value_norm": (("sample", "head", "key"), observation.scene.only_real_keys(observation.value_norm)),
        }
