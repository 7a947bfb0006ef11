"""The cells of smollm2-triplet.md, "What decides whether it comes back": write their recipes, and print the table of what was measured.

    python docs/results/what_brings_it_back.py recipes cells
    for recipe in cells/*.toml; do for seed in 0 1; do
      floatlens adapt --recipe $recipe --data data --seed $seed --into runs/$(basename $recipe .toml)-$seed
    done; done
    floatlens curves runs/smollm2-mdm runs/*-[01] --data data --updates 0,64 --layers 12-28 -o cells-measured
    python docs/results/what_brings_it_back.py table cells-measured

A cell is what is trained on and what is trained: stories (all positions), questions with the gold passage (answers only, or all
positions), or the data of the bundled recipe; LoRA, LoRA and the gains of the norms, or all weights. Everything else is the bundled
recipe's, with 64 updates and, for all weights, a fifth of the learning rate. All cells read the same held-out texts.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import polars as pl

from floatlens.lab.adaptation.curves import CURVES
from floatlens.lab.adaptation.recipe import bundled_recipe, read_recipe

UPDATES, DEEP = 64, range(12, 29)
STORIES = "text/tinystories_sample_2MiB.txt"
TRAINED_ON: dict[str, dict[str, Any]] = {
    "stories": {"text_share": 1.0, "question_files": [], "text_files": [{"file": STORIES}]},
    "answers": {"text_share": 0.0, "text_files": [], "targets": {"passages": 0.0}},
    "questions": {"text_share": 0.0, "text_files": [], "questions": {"targets": "everything"}},
    "both": {},
}
TRAINED: dict[str, dict[str, Any]] = {
    "lora": {"adapter": {"trains": "lora"}},
    "norms": {"adapter": {"trains": "lora+norms"}},
    "all": {"adapter": {"trains": "all", "frozen_in": "float32"}, "optimizer": {"rate": 2e-4}},
}


def recipe_of_cell(trained_on: str, trained: str) -> dict[str, Any]:
    """The bundled recipe with what the cell changes."""
    table = bundled_recipe("smollm2").model_dump(mode="json", exclude_none=True)
    table["updates"], table["optimizer"]["cooling"] = UPDATES, 0
    for changes in (TRAINED_ON[trained_on], TRAINED[trained]):
        for name, value in changes.items():
            table[name] = {**table[name], **value} if isinstance(value, dict) else value
    return table


def as_toml(table: dict[str, Any]) -> str:
    """A recipe as TOML: its numbers first, then its tables, then its lists of tables."""
    scalars = {name: value for name, value in table.items() if not _is_table(value)}
    lines = [f"{name} = {json.dumps(value)}" for name, value in scalars.items() if value != []]
    for name, value in table.items():
        for part in value if isinstance(value, list) else [value] if isinstance(value, dict) else []:
            lines += ["", f"[[{name}]]" if isinstance(value, list) else f"[{name}]"]
            lines += [f"{key} = {json.dumps(own)}" for key, own in part.items() if own is not None]
    return "\n".join(lines) + "\n"


def _is_table(value: object) -> bool:
    return isinstance(value, dict) or (isinstance(value, list) and bool(value) and isinstance(value[0], dict))


def write_recipes(folder: Path) -> None:
    """One file per cell, read back so that a mistake shows at once."""
    folder.mkdir(parents=True, exist_ok=True)
    for trained_on in TRAINED_ON:
        for trained in TRAINED:
            file = folder / f"{trained_on}-{trained}.toml"
            file.write_text(as_toml(recipe_of_cell(trained_on, trained)), encoding="utf-8")
            print(file, read_recipe(file).updates)


def print_table(folder: Path) -> None:
    """The strongest key of the deep layers in every cell, on texts and on questions, seed by seed, and which token it is most often."""
    curves = pl.read_parquet(folder / CURVES).filter(
        pl.col("layer").is_in(list(DEEP)), pl.col("measure") == "on the strongest key", pl.col("group") == "unmasked"
    )
    print("| cell | texts | questions | most often (texts) |\n|---|---|---|---|")
    for (cell,), own in curves.with_columns(cell=pl.col("run").str.replace(r"-\d+$", "")).group_by("cell", maintain_order=True):
        for update in sorted(own["update"].unique()):
            here = own.filter(update=update)
            cells = [_by_seed(here.filter(kind=kind)) for kind in ("text", "question")]
            token, count = here.filter(kind="text")["token"].value_counts(sort=True).row(0)
            print(f"| {cell}, update {update} | {' | '.join(cells)} | {json.dumps(token)} ({count} of {here.filter(kind='text').height}) |")


def _by_seed(rows: pl.DataFrame) -> str:
    values = rows.group_by("seed").agg(pl.col("value", "null").mean()).sort("seed")
    return f"{' / '.join(f'{value:.1f}' for value in values['value'])} ({values['null'].mean():.1f})"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("recipes", "table"))
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    {"recipes": write_recipes, "table": print_table}[arguments.what](arguments.folder)
