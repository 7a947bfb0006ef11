"""What a reducer is told: the calls of layers that see the same keys, stacked, and their `Scene`.

A scene is everything that does not depend on the layer: who sees whom, and into which groups and regions rows and keys fall, with the
counts and nulls that follow. Layers that share a mask share a scene, so that these are computed once per forward.

An `Observation` holds the queries and keys of one layer or of several, `(layer, sample, head, ...)`. Its *matrices* are the attention
matrices of all layers, samples and heads in one row, in that order; what an operator does to one of them it does to all.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from floatlens.capture.call import AttentionCall
from floatlens.capture.visibility import Visibility, part

Labelled = tuple[tuple[str, ...], Tensor]
"""Names of the axes, and the values."""


@dataclass(frozen=True, eq=False)
class Scene:
    """What the layers of a forward share. Regions are empty unless they were given."""

    visibility: Visibility
    query_start: int  # position of the first query: above 0 with a cache
    key_start: int  # position of the first key: above 0 for a sliding-window cache
    length: Tensor  # (sample,): real positions up to the last query, cached ones included
    group_names: tuple[str, ...]
    groups: Tensor  # bool (sample, group, query)
    query_positions: Tensor  # (sample, query): position of each row in its sample's own text, padding left out
    region_names: tuple[str, ...]
    query_regions: Tensor  # bool (sample, region, query)
    key_regions: Tensor  # bool (sample, region, key)

    @cached_property
    def group_rows(self) -> Tensor:
        """1 for every row that counts for a group: in the group, real, and with something to see. (sample, head or 1, group, query)."""
        return (self.groups[:, None] & self.visibility.live_rows[:, :, None]).float()

    @cached_property
    def group_sizes(self) -> Tensor:
        """How many rows count for each group: (sample, head or 1, group)."""
        return self.group_rows.sum(-1)

    @cached_property
    def rows_without_keys(self) -> Tensor:
        """How many real rows of each group have nothing to see: (sample, head or 1, group)."""
        if self.visibility.all_rows_live:
            return torch.zeros_like(self.group_sizes)
        return (self.groups[:, None] & self.visibility.dead_rows[:, :, None]).sum(-1).float()

    @cached_property
    def even_rows(self) -> Tensor:
        """As `group_rows`, of the rows at even positions only."""
        return self.group_rows * (self.query_positions % 2 == 0)[:, None, None]

    @cached_property
    def seeing_rows(self) -> Tensor:
        """How many rows of each group may see each key: (sample, head or 1, group, key). NaN at padding."""
        return self._seeing(self.group_rows)

    @cached_property
    def null(self) -> Tensor:
        """Mean, over the rows that see a key, of one over the keys each sees: (sample, head or 1, group, key). NaN if no row sees it."""
        return self._spread_evenly(self.group_rows) / self.seeing_rows

    def _seeing(self, rows: Tensor) -> Tensor:
        return self.only_real_keys(self.visibility.sum_over_seeing_rows(rows), between=2)

    @cached_property
    def counts(self) -> dict[str, Labelled]:
        """What mass is read against: visible queries, null, rows, and rows with nothing to see."""
        return {
            "visible": self.labelled(self.seeing_rows, "group", "key"),
            "null": self.labelled(self.null, "group", "key"),
            "rows": self.labelled(self.group_sizes, "group"),
            "rows_without_keys": self.labelled(self.rows_without_keys, "group"),
        }

    @cached_property
    def even_counts(self) -> dict[str, Labelled]:
        """As `counts`, for the rows at even positions."""
        seeing = self._seeing(self.even_rows)
        return {
            "visible_even": self.labelled(seeing, "group", "key"),
            "null_even": self.labelled(self._spread_evenly(self.even_rows) / seeing, "group", "key"),
            "rows_even": self.labelled(self.even_rows.sum(-1), "group"),
        }

    @cached_property
    def has_entropy(self) -> Tensor:
        """Rows that see at least two keys: bool (sample, head or 1, query)."""
        return self.visibility.live_rows & (self.visibility.keys_seen > 1)

    @cached_property
    def most_bits(self) -> Tensor:
        """The largest entropy each row could have: (sample, head or 1, query)."""
        return self.visibility.keys_seen.clamp(min=2).log2()

    @cached_property
    def entropy_weights(self) -> Tensor:
        """What turns the bits of each row into the group's mean relative entropy: (sample, head or 1, query, group)."""
        rows = self.group_rows * self.has_entropy[:, :, None]
        return (rows / self.most_bits[:, :, None] / rows.sum(-1, keepdim=True)).transpose(-1, -2)

    @cached_property
    def region_rows(self) -> Tensor:
        """As `group_rows`, for regions of queries: (sample, head or 1, region, query)."""
        return (self.query_regions[:, None] & self.visibility.live_rows[:, :, None]).float()

    @cached_property
    def flow_null(self) -> Tensor:
        """The mass from region to region if every row spread evenly: (sample, head or 1, query region, key region)."""
        return self._spread_evenly(self.region_rows) @ self.key_regions[:, None].transpose(-1, -2).float()

    def _spread_evenly(self, rows: Tensor) -> Tensor:
        """The mass each key would get from `rows` (sample, head or 1, group, query) if each spread evenly over what it sees."""
        return self.visibility.sum_over_seeing_rows(rows / self.visibility.keys_seen.clamp(min=1)[:, :, None])

    def only_real_keys(self, values: Tensor, between: int) -> Tensor:
        """NaN at padding keys: `values` ends in (sample, ..., key), with so many axes between the two."""
        if self.visibility.all_keys_real:
            return values
        real = self.visibility.real_keys.reshape(-1, *(1,) * between, values.shape[-1])
        return values.masked_fill(~real, float("nan"))

    def labelled(self, values: Tensor, *axes: str) -> Labelled:
        """Name the axes of `values` (sample or 1, head or 1, ...); the head axis goes where all heads are alike."""
        if values.shape[0] != self.groups.shape[0]:
            values = values.expand(self.groups.shape[0], *values.shape[1:])
        return (("sample", *axes), values.squeeze(1)) if values.shape[1] == 1 else (("sample", "head", *axes), values)


@dataclass(frozen=True, eq=False)
class Observation:
    """Calls that see the same keys, one for each layer, ready to be reduced together."""

    where: tuple[str, ...]  # the name of each layer in messages
    scene: Scene
    scale: float
    query: Tensor  # (layer, sample, head, query, depth)
    key: Tensor  # (layer, sample, kv_head, key, depth)
    value: Tensor | None = None  # (layer, sample, kv_head, key, depth), if anything is to be said about values
    logsumexp: Tensor | None = None  # (layer, sample, head, query), of the scaled and masked scores, where the kernel hands it out
    steps: tuple[int, ...] = ()  # of a loop, whose samples lie side by side; empty where nobody counts steps

    @property
    def visibility(self) -> Visibility:
        return self.scene.visibility

    @property
    def layers(self) -> int:
        return self.query.shape[0]

    @property
    def samples(self) -> int:
        return self.query.shape[1]

    @property
    def heads(self) -> int:
        return self.query.shape[2]

    @property
    def kv_heads(self) -> int:
        return self.key.shape[2]

    @property
    def queries(self) -> int:
        return self.query.shape[3]

    @property
    def keys(self) -> int:
        return self.key.shape[3]

    @property
    def device(self) -> torch.device:
        return self.query.device

    @cached_property
    def dtype(self) -> torch.dtype:
        """What weights are computed in: at least float32."""
        return torch.promote_types(self.query.dtype, torch.float32)

    @cached_property
    def query_norm(self) -> Tensor:
        """(layer, sample, head, query), in at least float32."""
        return _norm(self.query)

    @cached_property
    def key_norm(self) -> Tensor:
        """(layer, sample, head, key), in at least float32."""
        return self._per_query_head(_norm(self.key))

    @cached_property
    def value_norm(self) -> Tensor:
        """(layer, sample, head, key), in at least float32."""
        assert self.value is not None
        return self._per_query_head(_norm(self.value))

    def _per_query_head(self, values: Tensor) -> Tensor:
        repeats = self.heads // values.shape[2]
        return values if repeats == 1 else values.repeat_interleave(repeats, dim=2)

    def per_matrix(self, rows: Tensor) -> Tensor:
        """(sample or 1, head or 1, group, query) spelled out to (matrix, group, query)."""
        return rows.to(self.dtype).expand(self.layers, self.samples, self.heads, -1, -1).flatten(0, 2)

    def per_layer(self, values: Tensor) -> Tensor:
        """(matrix, ...) as (layer, sample, head, ...)."""
        return values.unflatten(0, (self.layers, self.samples, self.heads))

    def new(self, *shape: int, fill: float = 0.0) -> Tensor:
        """Room for a result, (matrix, *shape), in at least float32."""
        return torch.full((self.layers * self.samples * self.heads, *shape), fill, dtype=self.dtype, device=self.device)

    def name_of(self, sample: int) -> str:
        """What a sample is called in messages: its number in the batch, and the step if steps are counted."""
        step, own = divmod(sample, self.samples // max(1, len(self.steps)))
        return f"step {self.steps[step]}, sample {own}" if self.steps else f"sample {own}"

    def samples_of(self, texts: slice) -> slice:
        """Which samples some texts are of. Texts are the samples of all layers in one row; those of several layers must be all of each."""
        first = texts.start % self.samples
        return slice(first, first + min(texts.stop - texts.start, self.samples))

    def for_texts(self, values: Tensor, texts: slice) -> Tensor:
        """What belongs to the samples of some texts, `(sample or 1, ...)`, for each of their layers."""
        repeats = 1 if values.shape[0] == 1 else (texts.stop - texts.start) // values.shape[0]
        return values if repeats == 1 else values.repeat(repeats, *(1,) * (values.dim() - 1))

    def of_texts(self, values: Tensor, texts: slice, heads: slice) -> Tensor:
        """Those of `(sample or 1, head or 1, ...)` that belong to some texts and heads."""
        return self.for_texts(part(values, self.samples_of(texts), heads), texts)


def observe_together(
    calls: Sequence[AttentionCall], scene: Scene, logsumexp: Sequence[Tensor | None], *, with_values: bool = False
) -> Observation:
    """Calls that share a scene and have the same shapes, as one observation."""
    known = [of_call for of_call in logsumexp if of_call is not None]
    return Observation(
        where=tuple(call.where for call in calls),
        scene=scene,
        scale=calls[0].scale,
        query=stacked([call.query for call in calls]),
        key=stacked([call.key for call in calls]),
        value=stacked([call.value for call in calls]) if with_values else None,
        logsumexp=stacked(known) if len(known) == len(calls) else None,
    )


def observe_alone(call: AttentionCall, scene: Scene) -> Observation:
    """One call by itself."""
    return observe_together([call], scene, [None])


def stacked(tensors: Sequence[Tensor]) -> Tensor:
    """The tensors along a new first axis; a single one is not copied."""
    return tensors[0][None] if len(tensors) == 1 else torch.stack(list(tensors))


def _norm(vectors: Tensor) -> Tensor:
    return torch.linalg.vector_norm(vectors, dim=-1, dtype=torch.promote_types(vectors.dtype, torch.float32))
