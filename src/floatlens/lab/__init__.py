"""How the twins are trained: one recipe, one start, one stream of data; only the mask and the objective differ.

A recipe (`read_recipe`, `bundled_recipe`) says what to do, `train_twin` does it in a folder, `twin_at` gives the twin of a checkpoint on the way, and
`write_twin` makes a checkpoint with a model card of the end.
"""

from floatlens.lab.publishing import write_twin
from floatlens.lab.recipe import Recipe, bundled_recipe, read_recipe
from floatlens.lab.runs import FinishedRun, train_twin, twin_at
from floatlens.lab.updates import data_hash

__all__ = ["FinishedRun", "Recipe", "bundled_recipe", "data_hash", "read_recipe", "train_twin", "twin_at", "write_twin"]
