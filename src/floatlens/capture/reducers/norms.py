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
        observation, visibility = self.observation, self.observation.visibility
        query_norm = observation.query_norm
        if not visibility.all_queries_real:
            query_norm = query_norm.masked_fill(~visibility.real_queries[:, None], float("nan"))
        return {
            "query_norm": (("sample", "head", "query"), query_norm),
            "key_norm": (("sample", "head", "key"), observation.scene.only_real_keys(observation.key_norm)),
            "value_norm": (("sample", "head", "key"), observation.scene.only_real_keys(observation.value_norm)),
        }
