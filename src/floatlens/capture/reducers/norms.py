"""Euclidean norms of queries, keys (after rotary embedding, as the kernel sees them) and values, per query head."""

from floatlens.capture.observation import Labelled, Observation
from floatlens.capture.walk import Block


class Norms:
    """Norms of the vectors that make the scores and the output."""

    needs_blocks = False

    def __init__(self, observation: Observation) -> None:
        self.observation = observation

    def add(self, block: Block) -> None:
        """Norms need no weights."""

    def result(self) -> dict[str, Labelled]:
        observation = self.observation
        padding = ~observation.visibility.real_queries[:, None]
        keys = [observation.scene.only_real_keys(observation.per_query_head(n)) for n in (observation.key_norm, observation.value_norm)]
        return {
            "query_norm": (("sample", "head", "query"), observation.query_norm.masked_fill(padding, float("nan"))),
            "key_norm": (("sample", "head", "key"), keys[0]),
            "value_norm": (("sample", "head", "key"), keys[1]),
        }
