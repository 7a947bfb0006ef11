"""Recipes say what is trained: their schedule, their files, and what is refused before anything is trained."""

from dataclasses import replace
from pathlib import Path

import pytest
from micro_recipe import MICRO

from floatlens.errors import Refusal
from floatlens.lab.recipe import bundled_recipe, read_recipe, recipe_as_toml


def test_the_rate_rises_stays_and_falls() -> None:
    recipe = replace(MICRO, stages=(replace(MICRO.stages[0], updates=100),))  # warm-up 4, falls over the last 50 to a tenth
    expected = {1: 0.25, 2: 0.5, 4: 1.0, 25: 1.0, 50: 1.0, 75: 0.55, 100: 0.1}
    for update, share in expected.items():
        assert recipe.rate_at(update) == pytest.approx(3e-3 * share), update
    rates = [recipe.rate_at(update) for update in range(1, 101)]
    assert rates[:4] == sorted(rates[:4])
    assert rates[49:] == sorted(rates[49:], reverse=True)


def test_every_update_belongs_to_one_stage_and_stages_come_in_order() -> None:
    names = [MICRO.stage_of(update).name for update in range(1, MICRO.updates + 1)]
    assert names == ["bind"] * 12 + ["ask"] * 12
    with pytest.raises(IndexError, match="no update 25"):
        MICRO.stage_of(25)


@pytest.mark.parametrize("recipe", [bundled_recipe(), bundled_recipe("smoke"), MICRO], ids=["twins", "smoke", "micro"])
def test_a_recipe_written_out_is_read_as_itself(recipe: object, tmp_path: Path) -> None:
    assert not isinstance(recipe, str)
    (tmp_path / "again.toml").write_text(recipe_as_toml(recipe))  # type: ignore[arg-type]  # the parameter's type is lost in the decorator
    assert read_recipe(tmp_path / "again.toml") == recipe


MIXTURE = 'kind = "closed", questions = 2 },'


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("seed = 3", "seed = ", "is not TOML"),
        ("seed = 3\n", "", "does not say seed"),
        ("seed = 3", "seed = -1", "own.toml: seed is -1, but it must be at least 0."),
        ("seed = 3", 'seed = "three"', "seed is 'three', but it must be a whole number."),
        ("rate = 0.003", "rate = inf", "[optimizer]: rate is inf, but it must be a finite number."),
        ("seed = 3", "model = 3\nseed = 3", "is not TOML"),
        ('checks = ["closed"]', "checks = [3]", "stage 2 (ask): an entry of checks is 3, but it must be a text."),
        ('checks = ["closed"]', "checks = 3", "stage 2 (ask): checks is 3, but it must be a list."),
        ("seed = 3", "seed = 3\nwarmth = 1", "says warmth, which no recipe has"),
        ("check_every = 8", "check_every = 0", "check_every is 0, but it must be at least 1."),
        ("layers = 2", "layers = 0", "own.toml, [model]: layers is 0, but it must be at least 1."),
        ("layers = 2", "layers = true", "layers is True, but it must be a whole number."),
        ("heads = 2", "heads = 5", "heads is 5, but it must be at most 4."),
        ("width = 32", "width = 34", "own.toml, [model]: width is 34, but it must be a multiple of 2 x heads, which is 4."),
        ("warm_up = 4", "warm_up = 0", "own.toml, [optimizer]: warm_up is 0, but it must be at least 1."),
        ("cooling = 0.5", "cooling = 0", "cooling is 0, but it must be above 0."),
        ("final_rate = 0.1", "final_rate = 2", "final_rate is 2, but it must be at most 1."),
        ("updates = 12", "updates = 0", "stage 1 (bind): updates is 0, but it must be at least 1."),
        ('checks = ["closed"]', 'checks = ["closde"]', "stage 2 (ask): checks names 'closde', which is no score; the scores are recall2,"),
        (MIXTURE, 'kind = "closde" },', "stage 2 (ask), part 1 of the mixture: there are no sequences of kind 'closde'"),
        (MIXTURE, 'kind = "closed", colour = 2 },', "stage 2 (ask), part 1 of the mixture says colour"),
        (MIXTURE, 'kind = "closed", questions = 0 },', "questions is 0, but it must be at least 1."),
        (MIXTURE, 'kind = "open", passages = 99 },', "cannot be told"),
        (MIXTURE, 'kind = "two-hop", passages = 2, questions = 9 },', "cannot be told"),
        (MIXTURE, 'kind = "open", passages = 20, fillers = 9 },', "tokens long, and twins see 1024"),
        ("sequences = 4, kind", "sequences = 0, kind", "stage 1 (bind), part 1 of the mixture: sequences is 0, but it must be at least 1."),
    ],
)
def test_what_cannot_be_trained_is_refused_before_it_is(old: str, new: str, sentence: str, tmp_path: Path) -> None:
    text = recipe_as_toml(MICRO)
    assert old in text
    (tmp_path / "own.toml").write_text(text.replace(old, new))
    with pytest.raises(Refusal) as refused:
        read_recipe(tmp_path / "own.toml")
    assert sentence in str(refused.value)
    assert "own.toml" in str(refused.value)


def test_a_recipe_that_is_not_there_or_has_no_stages_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="There is no recipe"):
        read_recipe(tmp_path / "own.toml")
    (tmp_path / "own.toml").write_text(recipe_as_toml(MICRO).split("[[stages]]")[0])
    with pytest.raises(Refusal, match="nothing to train"):
        read_recipe(tmp_path / "own.toml")
