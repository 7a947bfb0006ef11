"""floatlens without lm-eval and inspect_ai: what it says, and what it shows all the same."""

from collections.abc import Callable
from importlib.metadata import entry_points

import pytest

from floatlens.harnesses import lm_eval_command

Ran = tuple[int, str, str]


def test_a_missing_lm_eval_is_one_sentence(floatlens: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lm_eval_command, "find_spec", lambda _name: None)
    code, said, errors = floatlens("lm-eval", "--model", "floatlens", "--tasks", "arc_easy")
    assert (code, said) == (2, "")
    assert errors == "floatlens: lm-eval is not installed. Install it with pip install 'floatlens[lm-eval]'.\n"


@pytest.mark.parametrize("words", [[], ["--help"]])
def test_help_needs_no_lm_eval(words: list[str], floatlens: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lm_eval_command, "find_spec", lambda _name: None)
    code, said, errors = floatlens("lm-eval", *words)
    assert (code, errors) == (0, "")
    assert all(name in said for name in ("--model_args", "mc_samples", "greedy", "intervention=mask-anchors:1"))


def test_inspect_ai_finds_the_provider_by_an_entry_point() -> None:
    (found,) = entry_points(group="inspect_ai", name="floatlens")
    assert found.value == "floatlens.harnesses.inspect_model"
