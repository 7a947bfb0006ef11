"""`floatlens train twins`: a smoke training for real, going on after a stop, and what is refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import floatlens as fl
from floatlens.lab.runs import updates_done

Ran = tuple[int, str, str]
TINY = """
seed = 1
check_every = 2
[model]
layers = 1
width = 16
heads = 1
rotary_base = 10_000
[optimizer]
rate = 1e-3
weight_decay = 0.1
warm_up = 2
cooling = 0.3
final_rate = 0.1
[[stages]]
name = "heart"
updates = 4
checks = ["closed"]
mixture = [{ sequences = 2, kind = "closed" }]
"""


def test_a_smoke_training_makes_the_loss_of_every_twin_fall_and_twins_that_load(floatlens: Callable[..., Ran], tmp_path: Path) -> None:
    code, said, errors = floatlens("train", "twins", "--smoke", "--into", tmp_path / "out")
    assert code == 0, errors
    assert "Training twin-arm, twin-mdm, twin-causal-mdm" in said
    for kind in ("arm", "mdm", "causal-mdm"):
        log = [json.loads(line) for line in (tmp_path / "out" / "runs" / f"twin-{kind}" / "log.jsonl").read_text().splitlines()]
        assert log[-1]["loss"] < 0.75 * log[0]["loss"], kind
        (row,) = [line for line in said.splitlines() if f"│ twin-{kind} " in line]
        assert f"{log[0]['loss']:.3f}" in row
        assert f"{log[-1]['loss']:.3f}" in row
        assert f"twin-{kind} 60 of 60, stage 'all': loss {log[-1]['loss']:.3f}" in said
        assert f"recall2 {100 * log[-1]['recall2']:.0f} % (50 %)" in said, "the shortcut stands beside the score"
        lm = fl.load(tmp_path / "out" / f"twin-{kind}")
        assert (lm.family, str(lm.dtype)) == ("twin", "torch.float32")
    assert f'Next: lm = fl.load("{tmp_path / "out" / "twin-causal-mdm"}")' in said


def test_a_stopped_training_goes_on_and_says_from_where(
    floatlens: Callable[..., Ran], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tiny.toml").write_text(TINY)
    words = ["train", "twins", "--only", "arm", "--recipe", tmp_path / "tiny.toml", "--into", tmp_path / "out"]
    clip, updates = torch.nn.utils.clip_grad_norm_, []

    def clip_or_stop(*given: Any) -> Any:
        updates.append(1)
        if len(updates) == 3:
            raise KeyboardInterrupt
        return clip(*given)

    with monkeypatch.context() as interrupted:
        interrupted.setattr(torch.nn.utils, "clip_grad_norm_", clip_or_stop)  # the user stops it in the middle of the third update
        code, _, errors = floatlens(*words)
    assert code == 130
    assert "floatlens: interrupted; no half-written result was left behind." in errors
    assert "run the same command again" in errors
    assert updates_done(tmp_path / "out" / "runs" / "twin-arm") == 2
    code, said, errors = floatlens(*words)
    assert code == 0, errors
    assert "twin-arm resumes from update 2 of 4." in said
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == ["runs", "twin-arm"]
    code, said, _ = floatlens(*words)
    assert (code, "twin-arm is trained already." in said) == (0, True)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["train", "triplets"], "There is no training of 'triplets'. What can be trained: twins."),
        (["train", "twins", "--only", "amr"], "There is no twin 'amr' to train. --only takes arm, mdm, causal-mdm."),
        (["train", "twins", "--smoke", "--recipe", "own.toml"], "--smoke has a recipe of its own"),
        (["train", "twins", "--recipe", "nowhere.toml"], "There is no recipe nowhere.toml"),
    ],
    ids=str,
)
def test_a_training_that_cannot_be_is_refused(floatlens: Callable[..., Ran], tmp_path: Path, words: list[str], sentence: str) -> None:
    code, _, errors = floatlens(*words, "--into", tmp_path / "out")
    assert code == 2
    assert sentence in errors
    assert not (tmp_path / "out").exists()


def test_a_folder_of_another_recipe_is_refused_and_left_alone(floatlens: Callable[..., Ran], tmp_path: Path) -> None:
    (tmp_path / "tiny.toml").write_text(TINY)
    (tmp_path / "other.toml").write_text(TINY.replace("seed = 1", "seed = 2"))
    words = ["train", "twins", "--only", "mdm", "--into", tmp_path / "out", "--recipe"]
    assert floatlens(*words, tmp_path / "tiny.toml")[0] == 0
    before = {file: file.read_bytes() for file in (tmp_path / "out").rglob("*") if file.is_file()}
    code, _, errors = floatlens(*words, tmp_path / "other.toml")
    assert (code, "holds a run of another recipe or kind" in errors) == (2, True)
    assert {file: file.read_bytes() for file in (tmp_path / "out").rglob("*") if file.is_file()} == before
