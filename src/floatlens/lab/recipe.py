"""A recipe: the twins' shape, the optimizer and the stages of training, as values.

Decided here: stages end after a fixed number of updates, never at an accuracy, so that every twin gets the same. The rate rises, stays, and falls over
the last share of all updates. `recipe_files.py` reads recipes and refuses those that cannot be trained.
"""

from dataclasses import dataclass

from floatlens.lab.sequences import Shape


@dataclass(frozen=True)
class ModelShape:
    """The size of a twin."""

    layers: int
    width: int
    heads: int
    rotary_base: float


@dataclass(frozen=True)
class Optimizer:
    """AdamW's settings; `warm_up` counts updates, `cooling` and `final_rate` are shares."""

    rate: float
    weight_decay: float
    warm_up: int
    cooling: float
    final_rate: float


@dataclass(frozen=True)
class Stage:
    """That many updates on one mixture of shapes, each with its number of sequences an update; `checks` are the scores to watch."""

    name: str
    updates: int
    checks: tuple[str, ...]
    mixture: tuple[tuple[Shape, int], ...]


@dataclass(frozen=True)
class Recipe:
    """Everything a training needs but the kind of twin.

    Examples
    --------
    >>> stages = tuple(Stage(name, 10, (), ((Shape("closed"), 4),)) for name in ("first", "second"))
    >>> recipe = Recipe(0, ModelShape(2, 64, 2, 10_000.0), Optimizer(1e-3, 0.1, 4, 0.5, 0.1), stages)
    >>> recipe.updates, recipe.stage_of(11).name
    (20, 'second')
    >>> recipe.rate_at(1), recipe.rate_at(8), recipe.rate_at(20)
    (0.00025, 0.001, 0.0001)
    """

    seed: int
    model: ModelShape
    optimizer: Optimizer
    stages: tuple[Stage, ...]
    check_every: int = 50  # updates between two states to resume from, each with its entry in the log

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
