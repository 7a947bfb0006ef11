"""Row entropy over its maximum, the logarithm of the number of visible keys: 1 is even attention, 0 a single key.

`entropy` is the mean over the rows of each group; `row_entropy` (asked for as `entropy:rows`) keeps every row. A row that sees one key
has no entropy to speak of: it is NaN and in no mean.
"""

from floatlens.capture.observation import Labelled, Observation
from floatlens.capture.walk import Block


class Entropy:
    """Mean relative entropy of the rows of each group."""

    needs_blocks = True
    keeps_rows = False

    def __init__(self, observation: Observation) -> None:
        self.observation = observation
        self.negative_bits = observation.new(observation.call.queries)

    def add(self, block: Block) -> None:
        block.take_negative_entropy(out=self.negative_bits[block.matrices, block.rows])

    def result(self) -> dict[str, Labelled]:
        scene, bits = self.observation.scene, self.observation.per_head(-self.negative_bits)
        mean = (bits[:, :, None] @ scene.entropy_weights.to(bits.dtype)).squeeze(2)
        result: dict[str, Labelled] = {"entropy": (("sample", "head", "group"), mean)}
        if self.keeps_rows:
            result["row_entropy"] = (("sample", "head", "query"), (bits / scene.most_bits).masked_fill(~scene.has_entropy, float("nan")))
        return result


class RowEntropy(Entropy):
    """The same, and every row's own."""

    keeps_rows = True
