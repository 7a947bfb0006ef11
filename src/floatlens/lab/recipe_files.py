"""Recipes as TOML files: read, checked before anything is trained, and written out again for a model card or a run's folder.

Refused: files that are not there or not TOML, fields that are missing, unknown or of another type, numbers that make no training, scores nobody
measures, and sequences that the world cannot tell (one of each shape is drawn to see).
"""

import json
import math
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields
from importlib.resources import files
from os import PathLike
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from floatlens.errors import Refusal
from floatlens.lab.initial_weights import Start
from floatlens.lab.recipe import ModelShape, Optimizer, Recipe, Stage
from floatlens.lab.scores import SCORES
from floatlens.lab.sequences import BUILDERS, LONGEST, Shape, make_batch
from floatlens.tasks.world.people import World, make_world

Filled = TypeVar("Filled")


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
        raise Refusal(f"There is no recipe {file}. The one of the bundled twins: floatlens/training/twins.toml in the package.")
    try:
        return recipe_of(tomllib.loads(file.read_text(encoding="utf-8")), str(file))
    except Refusal:
        raise
    except (ValueError, RecursionError) as error:  # not UTF-8, not TOML, a number of too many digits, too deep a nesting
        raise Refusal(f"{file} is not TOML: {error}. Compare it with floatlens/training/twins.toml.") from None


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
    """A recipe from what a file says; `where` names the file in refusals."""
    given = dict(table)
    stages = given.pop("stages", None)
    if not isinstance(stages, list) or not stages:
        raise Refusal(f"{where} has no [[stages]], so there is nothing to train. Give at least one.")
    model = _filled(ModelShape, given.pop("model", {}), f"{where}, [model]")
    optimizer = _filled(Optimizer, given.pop("optimizer", {}), f"{where}, [optimizer]")
    parsed = tuple(_stage(stage, f"{where}, stage {number}") for number, stage in enumerate(stages, start=1))
    recipe = _filled(Recipe, {**given, "model": model, "optimizer": optimizer, "stages": parsed}, where)
    _refuse_numbers(recipe, where)
    _refuse_sequences(recipe, make_world(), where)
    return recipe


def recipe_as_table(recipe: Recipe) -> dict[str, Any]:
    """A recipe as its file says it: numbers, texts, lists and tables only. What is left out of a shape is its default.

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
    """A value in TOML's spelling: JSON's, but for characters beyond U+FFFF, which JSON escapes in halves, and U+007F, which TOML wants escaped."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _table(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in fields(value) if getattr(value, field.name) != field.default}


def _stage(given: Any, where: str) -> Stage:
    if not isinstance(given, dict):
        raise Refusal(f"{where} is a {type(given).__name__}, not a table. Write it as [[stages]].")
    where = f"{where} ({given.get('name', 'no name')})"
    mixture, checks = given.get("mixture"), given.get("checks")
    if not isinstance(mixture, list) or not all(isinstance(part, dict) for part in mixture) or not mixture:
        raise Refusal(f"{where}: mixture is a list of tables, at least one. Write it as in floatlens/training/twins.toml.")
    if not isinstance(checks, list) or not all(isinstance(name, str) and name in SCORES for name in checks):
        raise Refusal(f"{where}: checks is a list of scores, which are {', '.join(SCORES)}; it is {checks!r}.")
    parts = []
    for number, part in enumerate(mixture, start=1):
        count = part.get("sequences")
        if type(count) is not int or count < 1:
            raise Refusal(f"{where}, part {number} of the mixture: sequences is a whole number from 1, not {count!r}.")
        shape = {name: value for name, value in part.items() if name != "sequences"}
        parts.append((_filled(Shape, shape, f"{where}, part {number} of the mixture"), count))
    return _filled(Stage, {**given, "checks": tuple(checks), "mixture": tuple(parts)}, where)


def _filled(kind: type[Filled], given: Any, where: str) -> Filled:
    """A dataclass from a table of the file."""
    if not isinstance(given, Mapping):
        raise Refusal(f"{where} is {given!r}, not a table of fields.")
    known: dict[str, Field[Any]] = {field.name: field for field in fields(kind)}  # type: ignore[arg-type]  # all are dataclasses
    missing = [name for name, field in known.items() if field.default is MISSING and name not in given]
    unknown = [name for name in given if name not in known]
    if missing or unknown:
        said = f"does not say {', '.join(missing)}" if missing else f"says {', '.join(unknown)}, which no recipe has"
        raise Refusal(f"{where} {said}. The fields there are: {', '.join(known)}.")
    values = {name: float(value) if known[name].type is float and type(value) is int else value for name, value in given.items()}
    for name, value in values.items():
        wanted = known[name].type
        if wanted in (int, float, str, bool) and type(value) is not wanted:
            raise Refusal(f"{where}: {name} is {value!r}, but it must be of type {getattr(wanted, '__name__', wanted)}.")
    return kind(**values)


def _refuse_numbers(recipe: Recipe, where: str) -> None:
    model, optimizer, most_heads = recipe.model, recipe.optimizer, len(Start().offsets)
    conditions = {
        "seed is at least 0": recipe.seed >= 0,
        "check_every is at least 1": recipe.check_every >= 1,
        "every stage has at least 1 update": all(stage.updates >= 1 for stage in recipe.stages),
        "layers is 1 to 100": 1 <= model.layers <= 100,
        f"heads is 1 to {most_heads}": 1 <= model.heads <= most_heads,
        "width is 2 x heads times a whole number, 16 to 8192": model.heads >= 1
        and model.width % (2 * model.heads) == 0
        and 16 <= model.width <= 8192,
        "rotary_base is a number above 1": 1 < model.rotary_base < math.inf,
        "rate is a number above 0": 0 < optimizer.rate < math.inf,
        "weight_decay is a number of at least 0": 0 <= optimizer.weight_decay < math.inf,
        "warm_up is at least 1": optimizer.warm_up >= 1,
        "cooling is above 0 and at most 1": 0 < optimizer.cooling <= 1,
        "final_rate is 0 to 1": 0 <= optimizer.final_rate <= 1,
    }
    for condition, holds in conditions.items():
        if not holds:
            raise Refusal(f"{where} cannot be trained: it must hold that {condition}.")


def _refuse_sequences(recipe: Recipe, world: World, where: str) -> None:
    """Draw one sequence of every shape."""
    for stage in recipe.stages:
        for number, (shape, _) in enumerate(stage.mixture, start=1):
            place = f"{where}, stage {stage.name!r}, part {number} of the mixture"
            if shape.kind not in BUILDERS:
                raise Refusal(f"{place}: there are no sequences of kind {shape.kind!r}; the kinds are {', '.join(BUILDERS)}.")
            if shape.questions < 1 or shape.ends < 0 or shape.fillers < 0:
                raise Refusal(f"{place}: questions is at least 1, fillers and ends at least 0.")
            if longest := [field.name for field in fields(shape) if field.type is int and getattr(shape, field.name) > LONGEST]:
                raise Refusal(
                    f"{place}: {longest[0]} is {getattr(shape, longest[0])}, and twins see {LONGEST} tokens in all. Ask for fewer."
                )
            try:
                length = make_batch(Random(0), world, shape, 1).tokens.shape[1]
            except (ValueError, ZeroDivisionError) as error:  # a Refusal is a ValueError
                raise Refusal(f"{place} cannot be told: {error}. Change its passages, attributes or questions.") from None
            if length > LONGEST:
                raise Refusal(f"{place} is {length} tokens long, and twins see {LONGEST}. Ask for fewer passages, fillers or questions.")
