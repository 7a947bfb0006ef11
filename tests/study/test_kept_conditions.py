"""An evaluation that was stopped goes on from the conditions that are done, and from nothing else."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from polars.testing import assert_frame_equal

import floatlens as fl
from floatlens.study import one_model
from floatlens.study.one_model import evaluate_model
from floatlens.tasks.samples import Sample
from floatlens.tasks.scoring import Score, score_text
from floatlens.tasks.wording import WORLD_WORDING
from floatlens.tasks.world import open_book_samples
from world_models import arm


class Strict:
    """A scorer that is no function."""

    def __call__(self, text: str, sample: Sample) -> Score:
        return replace(score_text(text, sample), accuracy=0.0)


CONTEXTS = ["position:1/3", "position:3/3"]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The conditions that were really run."""
    names: list[str] = []
    real: Any = one_model._ask

    def noted(lm: fl.LanguageModel, samples: Any, condition: Any, *others: Any) -> pl.DataFrame:
        names.append(condition.name)
        if len(names) == 3 and getattr(noted, "stops", False):
            raise KeyboardInterrupt
        return real(lm, samples, condition, *others)

    noted.stops = True  # type: ignore[attr-defined]  # the first run is stopped in its third condition
    monkeypatch.setattr(one_model, "_ask", noted)
    return names


def ask(keep: Path | None, lm: fl.LanguageModel | None = None, **changed: Any) -> pl.DataFrame:
    settings: dict[str, Any] = {"wording": WORLD_WORDING, "gen_length": 2, "likelihood": True, "progress": False, **changed}
    return evaluate_model(lm or arm(), settings.pop("samples", open_book_samples(2, passages=3)), CONTEXTS, keep=keep, **settings)


def test_a_stopped_run_goes_on_and_gives_what_a_whole_one_gives(tmp_path: Path, asked: list[str]) -> None:
    keep = tmp_path / "kept"
    with pytest.raises(KeyboardInterrupt):
        ask(keep)
    assert asked == ["closed-book", "gold", "position:1/3"]
    asked.extend(["-"])  # past the third: it is not stopped again
    continued = ask(keep)
    assert asked[4:] == ["position:1/3", "position:3/3"]
    assert_frame_equal(continued, ask(None))
    assert [path for path in keep.iterdir() if path.suffix != ".parquet"] == []


def test_nothing_is_taken_up_that_something_else_left(tmp_path: Path, asked: list[str]) -> None:
    keep = tmp_path / "kept"
    asked.extend(["-"] * 3)
    ask(keep)
    done = len(asked)
    ask(keep)
    ask(keep, batch_size=1)
    assert len(asked) == done, "how many prompts run together changes nothing"
    other_weights = arm()
    with torch.no_grad():
        other_weights.module.get_parameter("lm_head.weight")[5] += 1
    other_config = arm()
    other_config.config.rms_norm_eps *= 2
    other_answers = [replace(sample, answers=("Oslo", "Rome")) for sample in open_book_samples(2, passages=3)]
    changes: list[dict[str, Any]] = [
        {"gen_length": 3},
        {"seed": 1},
        {"likelihood": False},
        {"lm": other_weights},
        {"samples": other_answers},
        {"temperature": 0.5},
        {"lm": other_config},
        {"scorer": partial(score_text, whole_words=False)},
        {"scorer": partial(score_text, whole_words=True)},
        {"scorer": lambda text, sample: score_text(text, sample)},
        {"scorer": Strict()},
    ]
    for changed in changes:
        before = len(asked)
        ask(keep, **changed)
        assert len(asked) == before + 4, f"{list(changed)} is another run"


def test_rows_with_other_columns_are_not_restored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep = tmp_path / "kept"
    ask(keep)
    before = len(list(keep.iterdir()))
    monkeypatch.setattr(one_model, "SCHEMA", {name: kind for name, kind in one_model.SCHEMA.items() if name != "gold_cut"})
    assert "gold_cut" not in ask(keep).columns
    assert len(list(keep.iterdir())) == 2 * before
