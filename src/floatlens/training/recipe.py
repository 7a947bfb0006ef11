"""A recipe: the model's shape, the optimizer, and the stages of training, read from one TOML file.

Stages end after a fixed number of updates, never at an accuracy: every twin gets the same. The rate rises, stays, and falls over the last share
of all updates, so that the stages' lengths can be changed without changing what comes before the fall.
"""

import tomllib
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from floatlens.training.sequences import Shape


@dataclass(frozen=True)
class ModelShape:
    """The size of a twin."""

    layers: int
    width: int
    heads: int
    rotary_base: float


@dataclass(frozen=True)
class Optimizer:
    """AdamW's settings; `cooling` and `final_rate` are shares."""

    rate: float
    weight_decay: float
    warm_up: int
    cooling: float
    final_rate: float


@dataclass(frozen=True)
class Stage:
    """That many updates on one mixture of shapes, each with its number of sequences an update; `checks` are scores to watch."""

    name: str
    updates: int
    mixture: tuple[tuple[Shape, int], ...]
    checks: tuple[str, ...]


@dataclass(frozen=True)
class Recipe:
    """Everything a training needs but the kind of twin."""

    seed: int
    model: ModelShape
    optimizer: Optimizer
    stages: tuple[Stage, ...]

    @property
    def updates(self) -> int:
        return sum(stage.updates for stage in self.stages)

    def stage_of(self, update: int) -> Stage:
        """The stage of an update; updates count from 1."""
        last = 0
        for stage in self.stages:
            last += stage.updates
            if update <= last:
                return stage
        raise IndexError(f"The recipe has {self.updates} updates, so there is no update {update}.")

    def rate_at(self, update: int) -> float:
        """The learning rate of an update."""
        settings = self.optimizer
        left = 1 - update / self.updates
        falling = settings.final_rate + (1 - settings.final_rate) * left / settings.cooling
        return settings.rate * min(1.0, update / settings.warm_up, falling)


def read_recipe(path: str | PathLike[str]) -> Recipe:
    """The recipe in a file.

    Examples
    --------
    >>> recipe = read_recipe("twins.toml")
    >>> recipe.updates, recipe.stage_of(201).name, recipe.rate_at(50)
    (2800, 'bind 4', 0.001)
    """
    given = tomllib.loads(Path(path).read_text())
    stages = []
    for stage in given["stages"]:
        mixture = tuple(
            (Shape(**{name: value for name, value in part.items() if name != "sequences"}), part["sequences"]) for part in stage["mixture"]
        )
        stages.append(Stage(stage["name"], stage["updates"], mixture, tuple(stage["checks"])))
    return Recipe(given["seed"], ModelShape(**given["model"]), Optimizer(**given["optimizer"]), tuple(stages))
