"""Units of work: one experiment with one twin each. What a unit gives depends on nothing but the unit, so it does not matter which process runs it, and when."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from floatlens.claims.design import EXPERIMENTS
from floatlens.claims.sizes import Sizes

Tables = Mapping[str, pl.DataFrame]
"""Rows for the tables of the evidence, by the name of the table."""


@dataclass(frozen=True)
class Unit:
    """One experiment with one twin, which writes its trace into the folder, and its figures if they are wanted."""

    twin: str
    model: str
    experiment: str
    folder: Path
    sizes: Sizes
    seed: int
    figures: bool


def planned_units(models: Mapping[str, str], folder: Path, sizes: Sizes, seed: int, *, figures: bool = True) -> list[Unit]:
    """Everything that has to be done, the longest first, so that processes end together.

    Examples
    --------
    >>> models = {"arm": "twin-arm", "mdm": "twin-mdm", "causal-mdm": "twin-causal-mdm"}
    >>> units = planned_units(models, Path("floatlens-demo"), Sizes(), seed=0)
    >>> units[0].experiment, units[0].twin, len(units)
    ('trace', 'mdm', 21)
    """
    slowest_first = sorted(models, key=lambda twin: (twin == "arm", twin != "mdm"))
    return [Unit(twin, models[twin], experiment, folder, sizes, seed, figures) for experiment in EXPERIMENTS for twin in slowest_first]


def short_name(model: str) -> str:
    """The name of a model, or the last part of its folder: where a folder lies says nothing about the model.

    Examples
    --------
    >>> short_name("runs/today/twin-arm"), short_name("twin-arm")
    ('twin-arm', 'twin-arm')
    """
    return Path(model).name
