"""The twins that come with floatlens: they load by name, are small, and are what their cards say."""

import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import floatlens as fl
from floatlens.lab.recipe import bundled_recipe, read_recipe
from floatlens.lab.scores import written_scores
from floatlens.lab.updates import data_hash
from floatlens.models.checkpoint import TWINS, bundled_twin
from floatlens.tasks.world.people import make_world

QUESTIONS = 100
MEASURED_AGAIN = ("closed", "open2", "open6")  # short answers: the others take longer to ask


def stated(folder: Path) -> dict[str, tuple[float, float, int]]:
    """The scores on a card: share of answers that were written right, shortcut, questions."""
    row = re.compile(r"^\| (\w+) \| [^|]+ \| ([\d.]+) % \| [\d.]+ % \| ([\d.]+) % \| (\d+) \|$", re.MULTILINE)
    found = row.findall((folder / "README.md").read_text())
    return {name: (float(share) / 100, float(shortcut) / 100, int(count)) for name, share, shortcut, count in found}


@pytest.mark.parametrize("name", TWINS)
def test_a_bundled_twin_loads_by_name_in_float32_and_writes(name: str) -> None:
    lm = fl.load(name)
    assert (lm.name, lm.family, lm.dtype) == (name, "twin", torch.float32)
    assert lm.config.is_causal == (name != "twin-mdm")
    assert lm.sampler == ("autoregressive" if name == "twin-arm" else "llada")
    (written,) = lm.generate("Marta Olsen lives in Oslo.\nWhere does Marta Olsen live?", gen_length=3, progress=False)
    assert written.tokens


def test_the_twins_are_of_one_shape_and_small_together() -> None:
    stored = [load_file(bundled_twin(name) / "model.safetensors") for name in TWINS]
    shapes = [{name: (tensor.shape, tensor.dtype) for name, tensor in tensors.items()} for tensors in stored]
    assert shapes[0] == shapes[1] == shapes[2]
    assert {dtype for _, dtype in shapes[0].values()} == {torch.float16}
    assert sum(file.stat().st_size for name in TWINS for file in bundled_twin(name).iterdir()) < 12e6
    tokenizers = {(bundled_twin(name) / "tokenizer.json").read_bytes() for name in TWINS}
    assert len(tokenizers) == 1


@pytest.mark.parametrize("name", TWINS)
def test_the_card_holds_the_recipe_and_the_hash_of_its_data(name: str) -> None:
    folder, recipe = bundled_twin(name), bundled_recipe()
    card = (folder / "README.md").read_text()
    assert read_recipe(folder / "recipe.toml") == recipe
    assert f"`{data_hash(recipe)}`" in card
    assert f"{recipe.updates:,} updates" in card
    assert "one training run" in card.lower()
    assert set(stated(folder)) == set(recipe.stages[-1].checks)


@pytest.mark.parametrize("name", TWINS)
def test_the_scores_on_the_card_are_found_again(name: str) -> None:
    lm = fl.load(name)
    card = stated(bundled_twin(name))
    found = written_scores(lm, make_world(), MEASURED_AGAIN, QUESTIONS)
    for score, share in found.items():
        expected, shortcut, count = card[score]
        assert count >= QUESTIONS
        right, again = round(expected * count), round(share * QUESTIONS)  # the card's first questions are these
        assert right - (count - QUESTIONS) - 2 <= again <= right + 2, (score, share, expected)  # another machine may round two otherwise
        assert abs(share - expected) <= 0.1, (score, share, expected)
        assert share > 1.5 * shortcut, (score, share, shortcut)  # the person is not ignored
