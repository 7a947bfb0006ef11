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

NUMBERS_AT_ONCE = 1 << 22  # of queries: more heads than that take turns
TILE_ENTRIES_AT_ONCE = 1 << 20


class Geometry:
    """Mean score, cosine and norm product of each key."""

    needs_blocks = False
    rows = None

    def __init__(self, observation: Observation) -> None:
        self.observation = observation

    def add(self, block: Block) -> None:
        """Geometry needs no weights."""

    def result(self, sums: Tensor | None) -> dict[str, Labelled]:
        observation, scene, visibility = self.observation, self.observation.scene, self.observation.visibility
        query_norm = observation.query_norm
        if not visibility.all_rows_live:
            query_norm = torch.where(visibility.live_rows, query_norm, 0.0)
        rows = scene.group_rows.to(query_norm.dtype)
        over_norm = rows / query_norm.clamp(min=torch.finfo(query_norm.dtype).tiny)[..., None, :]  # a query of length 0 has cosine 0
        both = torch.cat([rows.expand_as(over_norm), over_norm], dim=-2)  # plain sums, then sums of unit queries
        score, cosine = self._summed_products(both).chunk(2, dim=-2)
        norm_sum = visibility.sum_over_seeing_rows(rows * query_norm[..., None, :])
        key_norm, seeing = observation.key_norm[..., None, :], scene.seeing_rows
        axes = ("layer", "sample", "head", "group", "key")
        arrays = {"score": score / seeing, "cosine": cosine / (seeing * key_norm), "norm_product": norm_sum / seeing * key_norm}
        return {name: (axes, scene.only_real_keys(values, between=2)) for name, values in arrays.items()}

    def _summed_products(self, weights: Tensor) -> Tensor:
        """Sum over the rows i that see key j of `weights[i] q_i . k_j`: (layer, sample, head, set, query) -> (..., set, key)."""
        observation, visibility = self.observation, self.observation.visibility
        repeats = observation.heads // observation.kv_heads
        texts, longest = observation.layers * observation.samples, max(observation.queries, observation.keys)
        vectors = texts * repeats * longest * observation.query.shape[-1]
        done = []
        for first in range(0, observation.kv_heads, kv_heads_at_once := max(1, NUMBERS_AT_ONCE // vectors)):
            kv_heads = slice(first, min(first + kv_heads_at_once, observation.kv_heads))
            heads = slice(kv_heads.start * repeats, kv_heads.stop * repeats)
            query, key = observation.query[:, :, heads].to(weights.dtype), observation.key[:, :, kv_heads].to(weights.dtype)
            if not visibility.all_rows_live:
                query = torch.where(part(visibility.live_rows, slice(None), heads)[..., None], query, 0.0)
            if not visibility.all_keys_real:
                key = torch.where(visibility.real_keys[:, None, :, None], key, 0.0)
            if visibility.mask is None and not visibility.causal:
                summed = (weights[:, :, heads] @ query).unflatten(2, (-1, repeats))  # (layer, sample, kv_head, repeat, set, depth)
                products = summed.flatten(3, 4) @ key.transpose(-1, -2)
                done.append(products.unflatten(3, (repeats, -1)).flatten(2, 3))
            else:
                done.append(self._by_tiles(weights[:, :, heads], query, key.repeat_interleave(repeats, dim=2), heads))
        return done[0] if len(done) == 1 else torch.cat(done, dim=2)

    def _by_tiles(self, weights: Tensor, query: Tensor, key: Tensor, heads: slice) -> Tensor:
        visibility = self.observation.visibility
        tiles = visibility.tiles
        # (layer, sample, head, tile, TILE, depth), (..., tile, depth, TILE), (..., tile, set, TILE)
        query, key = _cut(query), _cut(key).transpose(-1, -2)
        weights = _cut(weights.transpose(-1, -2)).transpose(-1, -2)
        tile_sums = weights @ query  # (layer, sample, head, query tile, set, depth)
        seen_whole = (tiles.full.to(query.dtype) @ tile_sums.flatten(-2)).unflatten(-1, tile_sums.shape[-2:])
        products = seen_whole @ key  # (layer, sample, head, key tile, set, TILE)
        tiles_at_once = max(1, TILE_ENTRIES_AT_ONCE // (query.shape[:3].numel() * TILE * TILE))
        for first in range(0, len(tiles.query_tile), tiles_at_once):
            these = slice(first, min(first + tiles_at_once, len(tiles.query_tile)))
            # under the causal flag the partial tiles are the diagonal in order: views, no copies
            at_query, at_key = (these, these) if visibility.mask is None else (tiles.query_tile[these], tiles.key_tile[these])
            square = query[:, :, :, at_query] @ key[:, :, :, at_key]
            visible = part(tiles.visible, slice(None), heads)
            square *= (visible if visible.shape[2] == 1 else visible[:, :, these]).to(square.dtype)
            products.index_add_(3, tiles.key_tile[these], weights[:, :, :, at_query] @ square)
        return products.transpose(-3, -2).flatten(-2)[..., : self.observation.keys]


def _cut(rows: Tensor) -> Tensor:
    """(..., row, column) into tiles of rows, the last one filled up with zeros."""
    missing = -rows.shape[-2] % TILE
    return (F.pad(rows, (0, 0, 0, missing)) if missing else rows).unflatten(-2, (-1, TILE))


class Norms:
    """Norms of the vectors that make the scores and the output."""

    needs_blocks = False
    rows = None

    def __init__(self, observation: Observation) -> None:
        self.observation = observation

    def add(self, block: Block) -> None:
        """Norms need no weights."""

    def result(self, sums: Tensor | None) -> dict[str, Labelled]:
        observation, scene, visibility = self.observation, self.observation.scene, self.observation.visibility
        query_norm = observation.query_norm
        if not visibility.all_queries_real:
            query_norm = query_norm.masked_fill(~visibility.real_queries[:, None], float("nan"))
        axes = ("layer", "sample", "head")
        return {
            "query_norm": ((*axes, "query"), query_norm),
            "key_norm": ((*axes, "key"), scene.only_real_keys(observation.key_norm, between=1)),
            "value_norm": ((*axes, "key"), scene.only_real_keys(observation.value_norm, between=1)),
        }
