"""Received attention from half of the rows: those at even positions of the text.

The rest comes from the other half, so that a key can be chosen on one half and measured on the other (choosing and measuring on the same rows mistakes noise for attention), and
the difference between the halves of one step shows how much of a difference between steps is noise. Positions are counted over the sample's own text, padding left out.
"""

from floatlens.capture.observation import Labelled, Observation
from floatlens.capture.reducers.mass import ColumnSums
from floatlens.capture.walk import Block


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
