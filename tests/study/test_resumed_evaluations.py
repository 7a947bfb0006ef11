"""An evaluation that was stopped goes on from the units that are finished, and from nothing else."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from polars.testing import assert_frame_equal

import floatlens as fl
from floatlens.study import evaluation, one_model
from floatlens.tasks.registry import Task
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
SAMPLES = tuple(open_book_samples(2, passages=3))
WORLD = Task("world", SAMPLES, WORLD_WORDING, gen_length=2)


class Asked:
    """The conditions that were really run; once `left` of them have run, Ctrl-C is pressed."""

    def __init__(self) -> None:
        self.names, self.left, self._real = list[str](), -2, one_model._ask

    def __call__(self, lm: fl.LanguageModel, samples: Any, condition: Any, *others: Any) -> pl.DataFrame:
        self.left -= 1
        if self.left == -1:
            raise KeyboardInterrupt
        self.names.append(condition.name)
        return self._real(lm, samples, condition, *others)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    noted = Asked()
    monkeypatch.setattr(one_model, "_ask", noted)
    return noted


def ask(into: Path | None, lm: fl.LanguageModel | None = None, task: Task = WORLD, **changed: Any) -> fl.Evaluation:
    return fl.evaluate(lm or arm(), task, CONTEXTS, into=into, progress=False, **changed)


def test_a_stopped_run_goes_on_and_gives_what_a_whole_one_gives(tmp_path: Path, asked: Asked) -> None:
    asked.left = 2
    with pytest.raises(KeyboardInterrupt):
        ask(tmp_path / "out")
    assert asked.names == ["closed-book", "gold"]
    assert not (tmp_path / "out").exists()
    said: list[str] = []
    continued = ask(tmp_path / "out", tell=said.append)
    assert asked.names[2:] == ["position:1/3", "position:3/3"]
    assert any(sentence.startswith("Resuming from what was done") for sentence in said)
    assert_frame_equal(continued.rows, ask(None).rows)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_nothing_is_taken_up_that_something_else_left(tmp_path: Path, asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_given: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(evaluation, "summarise", stop)  # everything is asked by then

    def run(**changed: Any) -> int:
        """How many conditions were asked anew."""
        before = len(asked.names)
        with pytest.raises(KeyboardInterrupt):
            ask(tmp_path / "out", **changed)
        return len(asked.names) - before

    assert (run(), run()) == (4, 0)
    other_weights = arm()
    with torch.no_grad():
        other_weights.module.get_parameter("lm_head.weight")[5] += 1
    other_config = arm()
    other_config.config.rms_norm_eps *= 2
    other_answers = tuple(replace(sample, answers=("Oslo", "Rome")) for sample in SAMPLES)
    scorers: list[Callable[..., Score]] = [
        partial(score_text, whole_words=False),
        partial(score_text, whole_words=True),
        lambda text, sample: score_text(text, sample),
        Strict(),
    ]
    changes: list[dict[str, Any]] = [
        {"gen_length": 3},
        {"seed": 1},
        {"likelihood": False},
        {"lm": other_weights},
        {"task": replace(WORLD, samples=other_answers)},
        {"temperature": 0.5},
        {"lm": other_config},
        {"batch_size": 1},
        *({"task": replace(WORLD, scorer=scorer)} for scorer in scorers),
    ]
    for changed in changes:
        assert run(**changed) == 4, f"{list(changed)} is another run"


@pytest.mark.parametrize("harm", ["cut", "flip", "empty"])
def test_a_damaged_unit_is_named_and_computed_again(tmp_path: Path, asked: Asked, capsys: pytest.CaptureFixture[str], harm: str) -> None:
    asked.left = 2
    with pytest.raises(KeyboardInterrupt):
        ask(tmp_path / "out")
    file = sorted((tmp_path / ".out.unfinished" / "kept" / "units").iterdir())[0]
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 4
    file.write_bytes(b"" if harm == "empty" else content[:-9] if harm == "cut" else content)
    assert_frame_equal(ask(tmp_path / "out").rows, ask(None).rows)
    assert f"{file} is damaged" in "".join(capsys.readouterr())


def test_traces_that_are_whole_are_taken_up_and_damaged_ones_recorded_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    traced: list[int] = []
    real = fl.LanguageModel.trace
    monkeypatch.setattr(fl.LanguageModel, "trace", lambda *given, **how: traced.append(1) or real(*given, **how))

    def stop(*_given: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(evaluation, "summarise", stop)
        with pytest.raises(KeyboardInterrupt):
            ask(tmp_path / "out", trace=1)
    assert len(traced) == len(CONTEXTS)
    first = sorted((tmp_path / ".out.unfinished" / "kept").glob("trace-*/trace.zarr/zarr.json"))[0]
    first.write_bytes(first.read_bytes() + b" ")
    ask(tmp_path / "out", trace=1)
    assert len(traced) == len(CONTEXTS) + 1
    for place in sorted((tmp_path / "out" / "traces").rglob("*.zarr")):
        assert fl.verify(place) == []
