"""What single rows look at: their favourite keys, full patterns of a few heads, and the flow between regions of the text.

`top_key` holds key positions (-1 where a row gives weight to fewer than k keys, or was not chosen), `top_weight` their weights,
`top_retained` the sum: a list of favourites means little without knowing how much of the row it leaves out.

`pattern` is the only place where n x m numbers are kept, for the heads that were asked for.

`flow[a, b]` sums the weights of the rows in region `a` on the keys in region `b`; `flow_null[a, b]` is that sum if every row spread evenly
over what it sees; their ratio is the fair flow, 1 for a fair share. `region_rows[a]` counts the rows of region `a`.
"""

import torch

from floatlens.capture.observation import Labelled, Observation
from floatlens.capture.reducers.mass import ColumnSums
from floatlens.capture.walk import Block
from floatlens.errors import Refusal


class TopKeys:
    """The `count` favourite keys of every row, or of the rows of one group."""

    needs_blocks = True

    def __init__(self, observation: Observation, count: int, group: str | None = None) -> None:
        self.observation = observation
        call, visibility = observation.call, observation.visibility
        if group is not None and group not in observation.scene.group_names:
            raise Refusal(
                f"keep=['top_keys:{count}@{group}'] names no group; the groups are {', '.join(map(repr, observation.scene.group_names))}."
            )
        chosen = visibility.real_queries if group is None else observation.scene.groups[:, observation.scene.group_names.index(group)]
        self.chosen = chosen[:, None] & visibility.live_rows  # (sample, head or 1, query)
        self.weight = observation.new(call.queries, count, fill=float("nan"))
        self.key = torch.full_like(self.weight, -1, dtype=torch.int32)

    def add(self, block: Block) -> None:
        wanted = self.chosen[..., block.rows].flatten(0, 1).any(0).nonzero()[:, 0]
        if not len(wanted):
            return
        count = min(self.key.shape[-1], block.weights.shape[-1])
        weight, key = block.weights[:, wanted].topk(count, dim=-1)
        rows = wanted + block.rows.start
        self.weight[block.matrices, :, :count].index_copy_(1, rows, weight)
        self.key[block.matrices, :, :count].index_copy_(1, rows, (key + block.keys.start).int())

    def result(self) -> dict[str, Labelled]:
        weight, key = self.observation.per_head(self.weight), self.observation.per_head(self.key)
        rank = torch.arange(key.shape[-1], device=key.device)
        seen = self.observation.visibility.keys_seen[..., None]
        missing = ~(self.chosen[..., None] & (rank < seen) & (weight > 0))  # a weight of 0 may be a hidden key's
        weight, key = weight.masked_fill(missing, float("nan")), key.masked_fill(missing, -1)
        retained = weight.nansum(-1).masked_fill(~self.chosen, float("nan"))
        axes = ("sample", "head", "query", "rank")
        return {"top_key": (axes, key), "top_weight": (axes, weight), "top_retained": (axes[:-1], retained)}


class Patterns:
    """All weights of chosen heads of one call."""

    needs_blocks = True

    def __init__(self, observation: Observation, heads: tuple[int, ...]) -> None:
        self.observation = observation
        self.heads = heads
        call = observation.call
        for head in heads:
            if not 0 <= head < call.heads:
                raise Refusal(f"patterns asks for head {head} of {call.where}, which has heads 0 to {call.heads - 1}.")
        self.weights = torch.zeros(call.samples, len(heads), call.queries, call.keys, device=call.query.device)

    def add(self, block: Block) -> None:
        for number, head in enumerate(self.heads):
            for sample in range(self.observation.call.samples):
                place = sample * self.observation.call.heads + head - block.matrices.start
                if 0 <= place < len(block.weights):
                    self.weights[sample, number, block.rows, block.keys] = block.weights[place]

    def result(self) -> dict[str, Labelled]:
        live = self.observation.visibility.live_rows
        live = live[:, list(self.heads)] if live.shape[1] > 1 else live
        weights = self.observation.scene.only_real_keys(self.weights.masked_fill(~live[..., None], float("nan")))
        return {"pattern": (("sample", "chosen", "query", "key"), weights)}


class Flow:
    """Mass from region to region."""

    needs_blocks = True

    def __init__(self, observation: Observation) -> None:
        if not observation.scene.region_names:
            raise Refusal("keep=['flow'] needs regions: pass regions={name: (start, stop) or a boolean tensor over positions, ...}.")
        self.observation = observation
        self.columns = ColumnSums(observation, observation.scene.region_rows)

    def add(self, block: Block) -> None:
        self.columns.add(block)

    def result(self) -> dict[str, Labelled]:
        scene = self.observation.scene
        mass = self.observation.per_head(self.columns.sums)
        into = scene.key_regions[:, None].transpose(-1, -2).to(mass.dtype)  # (sample, 1, key, region)
        return {
            "flow": (("sample", "head", "query_region", "key_region"), mass @ into),
            "flow_null": scene.labelled(scene.flow_null, "query_region", "key_region"),
            "region_rows": scene.labelled(scene.region_rows.sum(-1), "query_region"),
        }
