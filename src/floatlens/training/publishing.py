"""A trained twin as a checkpoint that `fl.load` and transformers' Auto classes load, with its model card.

Decided here: weights are stored in float16 and run in float32 (the config says so), and the scores on the card are those of the stored weights. The folder
is there whole, or not at all (`floatlens.folders`).
Refused: a folder that is there already, or cannot be written, and a log that is not that of the whole recipe.
"""

import csv
import io
import json
from collections.abc import Sequence
from os import PathLike
from pathlib import Path

import torch
from safetensors.torch import save
from transformers import LlamaForCausalLM

from floatlens.errors import Refusal
from floatlens.folders import refuse_place, unfinished_folder
from floatlens.tasks.world.people import make_world
from floatlens.tasks.world.tokenizer import make_tokenizer
from floatlens.training.model_card import Facts, card_text
from floatlens.training.recipe import Recipe
from floatlens.training.recipe_files import recipe_as_toml
from floatlens.training.runs import WRITTEN_BY, as_language_model
from floatlens.training.scores import SCORES, scores, shortcuts
from floatlens.training.state import Entry, half_weights
from floatlens.training.training_data import data_hash
from floatlens.training.updates import make_twin
from floatlens.training.written_scores import written_scores

CARD_QUESTIONS = 200


def write_twin(
    folder: str | PathLike[str],
    kind: str,
    recipe: Recipe,
    model: LlamaForCausalLM,
    log: Sequence[Entry],
    *,
    threads: Sequence[int],
    questions: int = CARD_QUESTIONS,
) -> dict[str, float]:
    """Write a trained twin: config, weights in float16, tokenizer, recipe.toml, training.csv and the model card, README.md.

    Parameters
    ----------
    folder
        What to write; it must not be there yet.
    kind, recipe
        What was trained.
    model
        The weights at the end of the recipe.
    log
        The entries of the whole training.
    threads
        With how many threads torch trained, each number once.
    questions
        How many questions each score of the card is measured on.

    Returns
    -------
    dict
        The scores of the stored weights, those that the recipe's last stage checks.

    Examples
    --------
    >>> import tempfile
    >>> from dataclasses import replace
    >>> from floatlens.training.recipe_files import bundled_recipe
    >>> recipe = bundled_recipe("smoke")
    >>> recipe = replace(recipe, stages=(replace(recipe.stages[0], updates=1),))
    >>> log = [{"update": 1, "stage": "all", "loss": 5.4, "cpu_seconds": 1}]
    >>> with tempfile.TemporaryDirectory() as place:
    ...     found = write_twin(Path(place, "twin-arm"), "arm", recipe, make_twin("arm", recipe), log, threads=[1], questions=4)
    ...     sorted(file.name for file in Path(place, "twin-arm").iterdir())[:4], list(found)
    (['README.md', 'config.json', 'manifest.json', 'model.safetensors'], ['recall2', 'closed'])
    """
    place = Path(folder)
    refuse_place(place)
    if not log or log[-1]["update"] != recipe.updates:
        reached = log[-1]["update"] if log else 0
        raise Refusal(f"The log ends at update {reached}, but the recipe has {recipe.updates}. Train the twin to the end first.")
    stored, world, checks = as_stored(kind, recipe, model), make_world(), recipe.stages[-1].checks
    found = scores(stored, kind, world, checks, questions)
    answered = [name for name in checks if SCORES[name].make is not None]
    written = written_scores(as_language_model(kind, stored), world, answered, questions)
    facts = Facts(
        kind, recipe, data_hash(recipe), tuple(log), found, written, shortcuts(world, checks), questions, tuple(threads), torch.__version__
    )
    with unfinished_folder(place, WRITTEN_BY) as unfinished:
        files = unfinished.folder
        stored.config.architectures = [type(stored).__name__]
        config = {**stored.config.to_dict(), "dtype": "float32"}
        (files / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
        (files / "model.safetensors").write_bytes(save(half_weights(stored), metadata={"format": "pt"}))
        make_tokenizer().save_pretrained(files)
        (files / "recipe.toml").write_text(recipe_as_toml(recipe))
        (files / "training.csv").write_text(_as_csv(log))
        (files / "README.md").write_text(card_text(facts))
    return found


def as_stored(kind: str, recipe: Recipe, model: LlamaForCausalLM) -> LlamaForCausalLM:
    """A copy of a twin with its weights rounded to float16, as they are stored, in float32, as they are run."""
    copy = make_twin(kind, recipe)
    rounded = half_weights(model)
    for name, weights in copy.named_parameters():
        weights.data.copy_(rounded[name])
    return copy.eval()


def _as_csv(log: Sequence[Entry]) -> str:
    """All entries of a log, one a row; what was not measured is empty."""
    columns = list(dict.fromkeys(name for entry in log for name in entry))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(log)
    return text.getvalue()
