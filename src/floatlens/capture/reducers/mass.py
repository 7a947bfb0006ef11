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

import math
from collections.abc import Callable

from torch import Tensor

from floatlens.capture.checks import Check
from floatlens.capture.observation import Labelled, Observation
from floatlens.capture.walk import NOT_A_NUMBER, Block
from floatlens.errors import BrokenPromise, Refusal

ROW_SUM_TOLERANCE = 1e-4  # float32 rounding stays below 1e-5; a wrong mask or scale is off by far more
BY_KEY = ("layer", "sample", "head", "group", "key")


class Mass:
    """What each key receives from each group. Also the proof that the observed rows sum to 1."""

    needs_blocks = False

    def __init__(self, observation: Observation) -> None:
        self.observation = observation
        self.rows = observation.scene.group_rows

    def add(self, block: Block) -> None:
        """Sums are enough."""

    def result(self, sums: Tensor | None) -> dict[str, Labelled]:
        assert sums is not None
        scene = self.observation.scene
        return {"mass": (BY_KEY, scene.only_real_keys(sums, between=2)), **scene.counts}


def rows_sum_to_one(observation: Observation, sums: Tensor, explain: Callable[[], None] | None = None) -> Check:
    """Whether the weights of each group's rows, by key in `sums`, add up to the number of rows.

    If they do not, `explain` may raise what exactly is wrong with the model. It keeps alive whatever it looks at; without it, a sum that
    is not a number is refused by its layer and head.
    """
    where, names, sizes = observation.where, observation.scene.group_names, observation.scene.group_sizes
    total = sums.sum(-1)
    off = (total - sizes).abs() / sizes.clamp(min=1)

    def refuse() -> None:
        if explain is not None:
            explain()
        layer, sample, head, group = (int(index) for index in (~(off <= ROW_SUM_TOLERANCE)).nonzero()[0])
        place, summed = f"{where[layer]}, {observation.name_of(sample)}, head {head}", float(total[layer, sample, head, group])
        if not math.isfinite(summed):
            raise Refusal(f"The attention of {place} is not a number: {NOT_A_NUMBER}")
        rows = sizes.expand_as(total)[layer, sample, head, group]
        raise BrokenPromise(
            f"In {place}, the weights of the {names[group]!r} rows sum to {summed:.6g} instead of {int(rows)}. The observed weights are "
            "not the model's; nothing was recorded."
        )

    return Check(~(off.amax() <= ROW_SUM_TOLERANCE), refuse)  # true for NaN as well


class Halves:
    """What each key receives from the rows of each group at even positions, and the counts it is read against."""

    needs_blocks = False

    def __init__(self, observation: Observation) -> None:
        self.observation = observation
        self.rows = observation.scene.even_rows

    def add(self, block: Block) -> None:
        """Sums are enough."""

    def result(self, sums: Tensor | None) -> dict[str, Labelled]:
        assert sums is not None
        scene = self.observation.scene
        return {"mass_even": (BY_KEY, scene.only_real_keys(sums, between=2)), **scene.even_counts}


class Entropy:
    """Mean relative entropy of the rows of each group."""

    needs_blocks = True
    rows = None
    keeps_rows = False

    def __init__(self, observation: Observation) -> None:
        self.observation = observation
        self.negative_bits = observation.new(observation.queries)

    def add(self, block: Block) -> None:
        block.take_negative_entropy(out=self.negative_bits[block.matrices, block.rows])

    def result(self, sums: Tensor | None) -> dict[str, Labelled]:
        scene, bits = self.observation.scene, self.observation.per_layer(-self.negative_bits)
        mean = (bits[..., None, :] @ scene.entropy_weights.to(bits.dtype)).squeeze(-2)
        result: dict[str, Labelled] = {"entropy": (BY_KEY[:-1], mean)}
        if self.keeps_rows:
            relative = (bits / scene.most_bits).masked_fill(~scene.has_entropy, float("nan"))
            result["row_entropy"] = (("layer", "sample", "head", "query"), relative)
        return result


class RowEntropy(Entropy):
    """The same, and every row's own."""

    keeps_rows = True
