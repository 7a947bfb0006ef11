"""Models of our own: the twins, how they are trained, and the demo that studies them.

The twins have one recipe, one start and one stream of data; only the attention mask and the objective differ. A recipe
(`read_recipe`, `bundled_recipe`) says what to do, `train_twin` does it in a folder, `twin_at` gives the twin of a checkpoint on the
way, and `write_twin` makes a checkpoint with a model card of the end. Names are imported when they are used, because the process
that judges claims does without torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from floatlens.lab.publishing import write_twin
    from floatlens.lab.recipe import Recipe, bundled_recipe, read_recipe
    from floatlens.lab.runs import FinishedRun, train_twin, twin_at
    from floatlens.lab.updates import data_hash

_HOMES = {
    "FinishedRun": "runs",
    "Recipe": "recipe",
    "bundled_recipe": "recipe",
    "data_hash": "updates",
    "read_recipe": "recipe",
    "train_twin": "runs",
    "twin_at": "runs",
    "write_twin": "publishing",
}

__all__ = ["FinishedRun", "Recipe", "bundled_recipe", "data_hash", "read_recipe", "train_twin", "twin_at", "write_twin"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'floatlens.lab' has no attribute {name!r}")
    return getattr(import_module(f"floatlens.lab.{_HOMES[name]}"), name)
