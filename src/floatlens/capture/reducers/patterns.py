"""Full query x key patterns of a few chosen heads: the only place where n x m numbers are kept."""

import torch

from floatlens.capture.observation import Labelled, Observation
from floatlens.capture.walk import Block
from floatlens.errors import Refusal


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
        for at, head in enumerate(self.heads):
            for sample in range(self.observation.call.samples):
                place = sample * self.observation.call.heads + head - block.matrices.start
                if 0 <= place < len(block.weights):
                    self.weights[sample, at, block.rows, block.keys] = block.weights[place]

    def result(self) -> dict[str, Labelled]:
        live = self.observation.visibility.live_rows
        live = live[:, list(self.heads)] if live.shape[1] > 1 else live
        weights = self.observation.scene.only_real_keys(self.weights.masked_fill(~live[..., None], float("nan")))
        return {"pattern": (("sample", "chosen", "query", "key"), weights)}
