"""Region to region flow: the mass that the queries of one region put on the keys of another, beside its null.

`flow[a, b]` sums the weights of the rows in region `a` on the keys in region `b`; `flow_null[a, b]` is that sum if every row spread evenly
over what it sees; their ratio is the fair flow, 1 for a fair share. `region_rows[a]` counts the rows of region `a`.
"""

from floatlens.capture.observation import Labelled, Observation
from floatlens.capture.reducers.mass import ColumnSums
from floatlens.capture.walk import Block
from floatlens.errors import Refusal


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
