"""Received attention of each key by query group, of all rows and of half of them, and the entropy of rows.

`mass[j]` sums the weights that the group's rows put on key `j`; `visible[j]` counts the rows that may see it; `null[j]` is the mean,
over those rows, of one over the number of keys each can see: what `mass / visible` would be if every row spread evenly. `rows` counts the
rows of the group, `rows_without_keys` those left out because they have nothing to see.

`halves` keeps the same of the rows at even positions of the sample's own text, padding left out. The rest comes from the other half, so
that a key can be chosen on one half and measured on the other (choosing and measuring on the same rows mistakes noise for attention), and
the difference between the halves of one step shows how much of a difference between steps is noise.

`entropy` is the mean over the rows of each group of row entropy over its maximum, the logarithm of the number of visible keys: 1 is even
attention, 0 a single key. `row_entropy` (asked for as `entropy:rows`) keeps every row. A row that sees one key has no entropy: it is NaN
and in no mean.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from floatlens.capture.observation import Labelled, Observation
from floatlens.capture.walk import Block
from floatlens.errors import BrokenPromise

ROW_SUM_TOLERANCE = 1e-4  # float32 rounding stays below 1e-5; a wrong mask or scale is off by far more


class ColumnSums:
    """Sums of weights over the rows of each group: (matrix, group, key)."""

    def __init__(self, observation: Observation, rows: Tensor) -> None:
        self.rows = observation.per_matrix(rows)
        self.sums = observation.new(self.rows.shape[1], observation.call.keys)

    def add(self, block: Block) -> None:
        sums = self.sums[block.matrices, :, block.keys]
        sums.add_(torch.bmm(self.rows[block.matrices, :, block.rows], block.weights))


class Mass:
    """What each key receives from each group. Also the proof that the observed rows sum to 1."""

    needs_blocks = True

    def __init__(self, observation: Observation) -> None:
        self.observation = observation
        self.columns = ColumnSums(observation, observation.scene.group_rows)

    def add(self, block: Block) -> None:
        self.columns.add(block)

    def result(self) -> dict[str, Labelled]:
        scene = self.observation.scene
        mass = self.observation.per_head(self.columns.sums)
        return {"mass": (("sample", "head", "group", "key"), scene.only_real_keys(mass)), **scene.counts}

    def check_rows_sum_to_one(self, explain: Callable[[], None]) -> None:
        """Raise a `BrokenPromise` if the weights of a group's rows do not add up to their number, unless `explain` raises before."""
        scene = self.observation.scene
        total = self.observation.per_head(self.columns.sums.sum(-1))
        off = (total - scene.group_sizes).abs() / scene.group_sizes.clamp(min=1)
        if float(off.max()) <= ROW_SUM_TOLERANCE:  # false for NaN as well
            return
        explain()
        sample, head, group = (int(index) for index in (~(off <= ROW_SUM_TOLERANCE)).nonzero()[0])
        rows = scene.group_sizes.expand_as(total)[sample, head, group]
        raise BrokenPromise(
            f"In {self.observation.call.where}, sample {sample}, head {head}, the weights of the {scene.group_names[group]!r} rows sum to "
            f"{float(total[sample, head, group]):.6g} instead of {int(rows)}. The observed weights are not the model's; nothing was "
            "recorded."
        )


class Halves:
    """What each key receives from the rows of each group at even positions, and the counts it is read against."""

    needs_blocks = True

    def __init__(self, observation: Observation) -> None:
        self.observation = observation
        self.columns = ColumnSums(observation, observation.scene.even_rows)

    def add(self, block: Block) -> None:
        self.columns.add(block)

    def result(self) -> dict[str, Labelled]:
        scene = self.observation.scene
        mass = self.observation.per_head(self.columns.sums)
        return {"mass_even": (("sample", "head", "group", "key"), scene.only_real_keys(mass)), **scene.even_counts}


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
