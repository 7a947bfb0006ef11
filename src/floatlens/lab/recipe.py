"""A recipe: the twins' shape, the optimizer and the stages of training; read from TOML, checked, and written out again.

Decided here: stages end after a fixed number of updates, never at an accuracy, so that every twin gets the same. The rate rises,
stays, and falls over the last share of all updates. pydantic reads files (the classes called ...Table); everything else works with
plain frozen values.

Refused, in one sentence that names file and field: files that are not there or not TOML, fields that are missing, unknown or of
another type, numbers that make no training, scores nobody measures, and sequences that the world cannot tell (one of each shape is
drawn to see).
"""

import json
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from importlib.resources import files
from os import PathLike
from pathlib import Path
from random import Random
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_core import ErrorDetails

from floatlens.errors import Refusal, wanted_in_words
from floatlens.lab.initial_weights import Start
from floatlens.lab.scores import SCORES
from floatlens.lab.sequences import BUILDERS, LONGEST, Shape, make_batch
from floatlens.study.toml_lines import parse_toml
from floatlens.tasks.world.people import World, make_world

EXAMPLE = "floatlens/lab/twins.toml in the package"
MOST_HEADS = len(Start().offsets)


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
    """So many updates on one mixture of shapes, each with its number of sequences per update; `checks` are the scores to watch."""

    name: str
    updates: int
    checks: tuple[str, ...]
    mixture: tuple[tuple[Shape, int], ...]


@dataclass(frozen=True)
class Recipe:
    """Everything that a training needs except the kind of twin.

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


class Table(BaseModel):
    """A table of a recipe file: no field may be missing, unknown or of another type; whole numbers pass as numbers."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


class ModelTable(Table):
    """`[model]`."""

    layers: int = Field(ge=1, le=100)
    width: int = Field(ge=16, le=8192)
    heads: int = Field(ge=1, le=MOST_HEADS)
    rotary_base: float = Field(gt=1)

    @model_validator(mode="after")
    def _heads_divide_width(self) -> Self:
        if self.width % (2 * self.heads):
            raise ValueError(f"width is {self.width}, but it must be a multiple of 2 x heads, which is {2 * self.heads}")
        return self


class OptimizerTable(Table):
    """`[optimizer]`."""

    rate: float = Field(gt=0)
    weight_decay: float = Field(ge=0)
    warm_up: int = Field(ge=1)
    cooling: float = Field(gt=0, le=1)
    final_rate: float = Field(ge=0, le=1)


class ShapeTable(Table):
    """A part of a stage's mixture: a `Shape`, and how many sequences of it an update has."""

    sequences: int = Field(ge=1)
    kind: str
    passages: int = Field(Shape.passages, le=LONGEST)
    attributes: int = Field(Shape.attributes, le=LONGEST)
    fillers: int = Field(Shape.fillers, ge=0, le=LONGEST)
    questions: int = Field(Shape.questions, ge=1, le=LONGEST)
    cloze: bool = Shape.cloze
    ends: int = Field(Shape.ends, ge=0, le=LONGEST)

    @field_validator("kind")
    @classmethod
    def _is_a_kind(cls, kind: str) -> str:
        if kind not in BUILDERS:
            raise ValueError(f"there are no sequences of kind {_short(kind)}; the kinds are {', '.join(BUILDERS)}")
        return kind


class StageTable(Table):
    """`[[stages]]`."""

    name: str
    updates: int = Field(ge=1)
    checks: list[str]
    mixture: list[ShapeTable] = Field(min_length=1)

    @field_validator("checks")
    @classmethod
    def _are_scores(cls, checks: list[str]) -> list[str]:
        if unknown := [name for name in checks if name not in SCORES]:
            raise ValueError(f"checks names {_short(unknown[0])}, which is no score; the scores are {', '.join(SCORES)}")
        return checks


class RecipeTable(Table):
    """The whole file."""

    seed: int = Field(ge=0, le=1 << 40)  # torch takes 64 bits of a million times it
    check_every: int = Field(Recipe.check_every, ge=1)
    model: ModelTable
    optimizer: OptimizerTable
    stages: list[StageTable] = Field(min_length=1)


def read_recipe(path: str | PathLike[str]) -> Recipe:
    """The recipe in a file.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "own.toml")
    ...     written = file.write_text(recipe_as_toml(bundled_recipe("smoke")))
    ...     read_recipe(file) == bundled_recipe("smoke")
    True
    """
    file = Path(path)
    if "\0" in str(file) or not file.is_file():
        raise Refusal(f"There is no recipe {file}. Write one like that of the bundled twins: {EXAMPLE}.")
    return recipe_of(parse_toml(file.read_bytes(), str(file), f"Compare it with {EXAMPLE}."), str(file))


def bundled_recipe(name: str = "twins") -> Recipe:
    """A recipe that comes with floatlens: "twins" (that of the bundled twins) or "smoke" (a minute for all three; they learn little).

    Examples
    --------
    >>> recipe = bundled_recipe()
    >>> recipe.updates, recipe.stage_of(201).name, recipe.rate_at(50)
    (1700, 'bind 4', 0.001)
    """
    return read_recipe(Path(str(files("floatlens.lab"))) / f"{name}.toml")


def recipe_of(table: Mapping[str, Any], where: str) -> Recipe:
    """A recipe from the content of a file; `where` names the file in refusals.

    Examples
    --------
    >>> recipe_of({**recipe_as_table(bundled_recipe("smoke")), "seed": -1}, "own.toml")
    Traceback (most recent call last):
    floatlens.errors.Refusal: own.toml: seed is -1, but it must be at least 0.
    """
    try:
        read = RecipeTable.model_validate(dict(table))
    except ValidationError as error:
        raise Refusal(_sentence(error.errors()[0], table, where)) from None
    stages = tuple(
        Stage(
            stage.name,
            stage.updates,
            tuple(stage.checks),
            tuple((Shape(**part.model_dump(exclude={"sequences"})), part.sequences) for part in stage.mixture),
        )
        for stage in read.stages
    )
    recipe = Recipe(read.seed, ModelShape(**read.model.model_dump()), Optimizer(**read.optimizer.model_dump()), stages, read.check_every)
    _refuse_sequences(recipe, make_world(), where)
    return recipe


def recipe_as_table(recipe: Recipe) -> dict[str, Any]:
    """A recipe as its file has it: numbers, texts, lists and tables only. Defaults of a shape are left out.

    Examples
    --------
    >>> recipe = bundled_recipe("smoke")
    >>> recipe_of(recipe_as_table(recipe), "here") == recipe
    True
    """
    return {
        "seed": recipe.seed,
        "check_every": recipe.check_every,
        "model": _table(recipe.model),
        "optimizer": _table(recipe.optimizer),
        "stages": [
            {
                "name": stage.name,
                "updates": stage.updates,
                "checks": list(stage.checks),
                "mixture": [{"sequences": count, **_table(shape)} for shape, count in stage.mixture],
            }
            for stage in recipe.stages
        ],
    }


def recipe_as_toml(recipe: Recipe) -> str:
    """A recipe as the text of a file that `read_recipe` reads.

    Examples
    --------
    >>> print("\\n".join(recipe_as_toml(bundled_recipe()).splitlines()[:5]))
    seed = 0
    check_every = 50
    <BLANKLINE>
    [model]
    layers = 6
    """
    table = recipe_as_table(recipe)
    lines = [f"seed = {recipe.seed}", f"check_every = {recipe.check_every}"]
    for part in ("model", "optimizer"):
        lines += ["", f"[{part}]", *(f"{name} = {_as_toml(value)}" for name, value in table[part].items())]
    for stage in table["stages"]:
        lines += ["", "[[stages]]", *(f"{name} = {_as_toml(stage[name])}" for name in ("name", "updates", "checks")), "mixture = ["]
        lines += [f"  {{ {', '.join(f'{name} = {_as_toml(value)}' for name, value in part.items())} }}," for part in stage["mixture"]]
        lines += ["]"]
    return "\n".join(lines) + "\n"


def _as_toml(value: Any) -> str:
    """A value in TOML's spelling: that of JSON, except for characters beyond U+FFFF, which JSON escapes in halves, and U+007F."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _table(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in fields(value) if getattr(value, field.name) != field.default}


TABLES: dict[str, type[Table]] = {"model": ModelTable, "optimizer": OptimizerTable}


def _sentence(error: ErrorDetails, table: Mapping[str, Any], where: str) -> str:
    """What is wrong, in which table of which file, and what would be right, from a complaint of pydantic."""
    kind, value = error["type"], _short(error["input"])
    holder, table_type, field = where, RecipeTable, ""
    match error["loc"]:  # field is "" where the table itself is wrong
        case ("model" | "optimizer" as part, *rest) if rest or kind == "value_error":
            holder, table_type, field = f"{where}, [{part}]", TABLES[part], rest[0] if rest else ""
        case ("stages", int(stage), *rest):
            holder, table_type = f"{where}, stage {stage + 1} ({_name_of(table['stages'][stage])})", StageTable
            match rest:
                case ("mixture", int(part), *fields_of_part):
                    holder, table_type = f"{holder}, part {part + 1} of the mixture", ShapeTable
                    field = fields_of_part[0] if fields_of_part else ""
                case ("checks", int()):
                    field = "an entry of checks"
                case _:
                    field = rest[0] if rest else ""
        case (name, *_):
            field = name
    if kind == "missing" and field == "stages":
        return f"{holder} has no [[stages]], so there is nothing to train. Give at least one."
    if kind in ("missing", "extra_forbidden"):
        what = f"does not say {field}" if kind == "missing" else f"says {str(field)[:40]}, which no recipe has"
        return f"{holder} {what}. The fields there are: {', '.join(table_type.model_fields)}."
    if kind == "value_error":
        return f"{holder}: {error['msg'].removeprefix('Value error, ')}."
    wanted = wanted_in_words(kind, error["msg"])
    return f"{holder}: {field} is {value}, but it {wanted}." if field else f"{holder} is {value}, but it {wanted}."


def _name_of(stage: Any) -> str:
    return str(stage.get("name", "no name"))[:40] if isinstance(stage, Mapping) else "no table"


def _short(value: Any) -> str:
    return reprlib.repr(value)


def _refuse_sequences(recipe: Recipe, world: World, where: str) -> None:
    """Draw one sequence of every shape."""
    for stage in recipe.stages:
        for number, (shape, _) in enumerate(stage.mixture, start=1):
            place = f"{where}, stage {stage.name!r}, part {number} of the mixture"
            try:
                length = make_batch(Random(0), world, shape, 1).tokens.shape[1]
            except (ValueError, ZeroDivisionError) as error:  # a Refusal is a ValueError
                raise Refusal(f"{place} cannot be told: {error}. Change its passages, attributes or questions.") from None
            if length > LONGEST:
                raise Refusal(f"{place} is {length} tokens long, and twins see {LONGEST}. Ask for fewer passages, fillers or questions.")
