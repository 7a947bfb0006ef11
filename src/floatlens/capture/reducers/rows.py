"""What single rows look at: their favourite keys, full patterns of a few heads, and the flow between regions of the text.

`top_key` holds key positions (-1 where a row gives weight to fewer than k keys, or was not chosen), `top_weight` their weights,
`top_retained` the sum: a list of favourites means little without knowing how much of the row it leaves out.

`pattern` is the only place where n x m numbers are kept, for the heads that were asked for.

`flow[a, b]` sums the weights of the rows in region `a` on the keys in region `b`; `flow_null[a, b]` is that sum if every row spread evenly
over what it sees; their ratio is the fair flow, 1 for a fair share. `region_rows[a]` counts the rows of region `a`.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from floatlens.capture.observation import Labelled, Observation
from floatlens.capture.walk import Block
from floatlens.errors import Refusal


class TopKeys:
    """The `count` favourite keys of every row, or of the rows of one group."""

    needs_blocks = True
    rows = None

    def __init__(self, observation: Observation, count: int, group: str | None = None) -> None:
        self.observation = observation
        scene, visibility = observation.scene, observation.visibility
        if group is not None and group not in scene.group_names:
            raise Refusal(f"keep=['top_keys:{count}@{group}'] names no group; the groups are {', '.join(map(repr, scene.group_names))}.")
        chosen = visibility.real_queries if group is None else scene.groups[:, scene.group_names.index(group)]
        self.chosen = chosen[:, None] & visibility.live_rows  # (sample, head or 1, query)
        self.weight = observation.new(observation.queries, count, fill=float("nan"))
        self.key = torch.full_like(self.weight, -1, dtype=torch.int32)

    def add(self, block: Block) -> None:
        count = min(self.key.shape[-1], block.weights.shape[-1])
        weight, key = block.weights.topk(count, dim=-1)
        self.weight[block.matrices, block.rows, :count] = weight
        self.key[block.matrices, block.rows, :count] = (key + block.keys.start).int()

    def result(self, sums: Tensor | None) -> dict[str, Labelled]:
        weight, key = self.observation.per_layer(self.weight), self.observation.per_layer(self.key)
        rank = torch.arange(key.shape[-1], device=key.device)
        seen = self.observation.visibility.keys_seen[..., None]
        missing = ~(self.chosen[..., None] & (rank < seen) & (weight > 0))  # a weight of 0 may be a hidden key's
        weight, key = weight.masked_fill(missing, float("nan")), key.masked_fill(missing, -1)
        retained = weight.nansum(-1).masked_fill(~self.chosen, float("nan"))
        axes = ("layer", "sample", "head", "query", "rank")
        return {"top_key": (axes, key), "top_weight": (axes, weight), "top_retained": (axes[:-1], retained)}


class Patterns:
    """All weights of chosen heads: `chosen` are pairs of a layer of the observation, by its place there, and a head."""

    needs_blocks = True
    rows = None

    def __init__(self, observation: Observation, chosen: Sequence[tuple[int, int]]) -> None:
        self.observation = observation
        self.chosen = chosen
        for layer, head in chosen:
            if not 0 <= head < observation.heads:
                where = observation.where[layer]
                raise Refusal(f"patterns asks for head {head} of {where}, which has heads 0 to {observation.heads - 1}.")
        self.weights = torch.zeros(len(chosen), observation.samples, observation.queries, observation.keys, device=observation.device)

    def add(self, block: Block) -> None:
        observation = self.observation
        for number, (layer, head) in enumerate(self.chosen):
            for sample in range(observation.samples):
                place = (layer * observation.samples + sample) * observation.heads + head - block.matrices.start
                if 0 <= place < len(block.weights):
                    self.weights[number, sample, block.rows, block.keys] = block.weights[place]

    def result(self, sums: Tensor | None) -> dict[str, Labelled]:
        live = self.observation.visibility.live_rows.transpose(0, 1)
        live = live[[head for _, head in self.chosen]] if len(live) > 1 else live
        weights = self.weights.masked_fill(~live[..., None], float("nan"))
        return {"pattern": (("chosen", "sample", "query", "key"), self.observation.scene.only_real_keys(weights, between=1))}


class Flow:
    """Mass from region to region."""

    needs_blocks = False

    def __init__(self, observation: Observation) -> None:
        if not observation.scene.region_names:
            raise Refusal("keep=['flow'] needs regions: pass regions={name: (start, stop) or a boolean tensor over positions, ...}.")
        self.observation = observation
        self.rows = observation.scene.region_rows

    def add(self, block: Block) -> None:
        """Sums are enough."""

    def result(self, sums: Tensor | None) -> dict[str, Labelled]:
        assert sums is not None
        scene = self.observation.scene
        into = scene.key_regions[:, None].transpose(-1, -2).to(sums.dtype)  # (sample, 1, key, region)
        return {
            "flow": (("layer", "sample", "head", "query_region", "key_region"), sums @ into),
            "flow_null": scene.labelled(scene.flow_null, "query_region", "key_region"),
            "region_rows": scene.labelled(scene.region_rows.sum(-1), "query_region"),
        }
