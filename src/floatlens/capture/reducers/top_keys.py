"""The k keys each chosen row looks at most, their weights, and how much of the row they retain together.

`top_key` holds key positions (-1 where a row gives weight to fewer than k keys, or was not chosen), `top_weight` their weights, `top_retained` the sum:
a list of favourites means little without knowing how much of the row it leaves out.
"""

import torch

from floatlens.capture.observation import Labelled, Observation
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
