"""A run in a folder: killed at any time it ends with the same weights, it leaves checkpoints behind, and it keeps to its recipe."""

import json
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from micro_recipe import MICRO
from safetensors.torch import load_file

from floatlens.errors import Refusal
from floatlens.lab.recipe import recipe_as_toml
from floatlens.lab.runs import FinishedRun, train_twin, twin_at, updates_done
from floatlens.lab.updates import data_hash

KILLED_RUN = """
import os, signal, sys
import torch
from pathlib import Path
from floatlens.lab.recipe import read_recipe
from floatlens.lab.runs import train_twin
from floatlens.lab.updates import data_hash

torch.set_num_threads(1)
recipe_file, folder, moment = sys.argv[1:]
clip, rename, updates, states = torch.nn.utils.clip_grad_norm_, os.replace, 0, 0


def clip_or_die(*given):  # between the gradients and the step
    global updates
    updates += 1
    if moment == "update" and updates == 13:
        os.kill(os.getpid(), signal.SIGKILL)
    return clip(*given)


def rename_or_die(source, target):  # the second state is written, but not in its place
    global states
    states += Path(target).name == "state.safetensors"
    if moment == "state" and states == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    rename(source, target)


torch.nn.utils.clip_grad_norm_, os.replace = clip_or_die, rename_or_die
recipe = read_recipe(recipe_file)
print(data_hash(recipe), flush=True)
train_twin("mdm", folder, recipe)
"""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, FinishedRun]:
    """An uninterrupted run. Tests do not write there."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    return folder, train_twin("mdm", folder, MICRO, progress=False)


def without_time(run: FinishedRun) -> list[dict[str, object]]:
    return [{name: value for name, value in entry.items() if name != "cpu_seconds"} for entry in run.standing.log]


def test_a_run_killed_at_any_time_ends_with_the_weights_of_an_uninterrupted_one(whole: tuple[Path, FinishedRun], tmp_path: Path) -> None:
    (tmp_path / "micro.toml").write_text(recipe_as_toml(MICRO))
    command = [sys.executable, "-c", KILLED_RUN, str(tmp_path / "micro.toml")]
    runs = {
        moment: subprocess.Popen([*command, str(tmp_path / moment), moment], stdout=subprocess.PIPE, text=True)
        for moment in ("update", "state")
    }
    expected_folder, expected = whole
    for moment, process in runs.items():
        folder, said = tmp_path / moment, process.communicate()[0]
        assert process.returncode == -signal.SIGKILL
        assert said.strip() == data_hash(MICRO)  # the same in another process
        assert updates_done(folder) == 8
        assert (folder / ".state.safetensors.unfinished").exists() == (moment == "state")
        reported: list[int] = []
        again = train_twin("mdm", folder, MICRO, report=lambda entry, reported=reported: reported.append(entry["update"]), progress=False)
        assert reported == [16, 24]
        for (name, weights), (_, others) in zip(again.model.named_parameters(), expected.model.named_parameters(), strict=True):
            assert torch.equal(weights, others), (moment, name)
        assert (folder / "update-000016.safetensors").read_bytes() == (expected_folder / "update-000016.safetensors").read_bytes()
        assert without_time(again) == without_time(expected)
        assert [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()] == list(again.standing.log)
        state, other_state = (load_file(place / "state.safetensors") for place in (folder, expected_folder))
        assert state.keys() == other_state.keys()
        assert all(torch.equal(state[name], other_state[name]) for name in state)


def test_a_finished_run_is_not_run_again(whole: tuple[Path, FinishedRun]) -> None:
    folder, run = whole
    before = (folder / "state.safetensors").read_bytes()
    again = train_twin("mdm", folder, MICRO, report=lambda entry: pytest.fail("there was nothing to do"), progress=False)
    assert again.standing == run.standing
    assert all(torch.equal(one, other) for one, other in zip(again.model.parameters(), run.model.parameters(), strict=True))
    assert (folder / "state.safetensors").read_bytes() == before


def test_the_log_says_what_the_updates_lost_and_what_each_stage_checks(whole: tuple[Path, FinishedRun]) -> None:
    log = whole[1].standing.log
    assert [(entry["update"], entry["stage"]) for entry in log] == [(8, "bind"), (16, "ask"), (24, "ask")]
    assert [sorted(set(entry) - {"update", "stage", "loss", "cpu_seconds"}) for entry in log] == [["recall2"], ["closed"], ["closed"]]
    assert whole[1].standing.threads == (torch.get_num_threads(),)


def test_a_checkpoint_is_the_twin_at_that_update_and_can_write(whole: tuple[Path, FinishedRun]) -> None:
    folder, _ = whole
    assert [file.name for file in sorted(folder.glob("update-*"))] == ["update-000016.safetensors"]
    stored = load_file(folder / "update-000016.safetensors")
    lm = twin_at(folder, 16)
    assert (lm.name, lm.family, lm.sampler, lm.dtype) == ("twin-mdm", "twin", "llada", torch.float32)
    for name, weights in lm.module.named_parameters():
        assert stored[name].dtype == torch.float16
        assert torch.equal(weights, stored[name].float())
    assert len(lm.generate("Where does Marta Olsen live?", gen_length=3, progress=False)[0].tokens) == 3
    with pytest.raises(Refusal, match=r"no checkpoint of update 8\. It holds: 16\."):
        twin_at(folder, 8)


def test_a_folder_of_another_recipe_or_kind_is_refused(whole: tuple[Path, FinishedRun], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(whole[0], folder)
    for kind, recipe in (("arm", MICRO), ("mdm", replace(MICRO, seed=4))):
        with pytest.raises(Refusal, match="another recipe or kind"):
            train_twin(kind, folder, recipe, progress=False)
    (folder / "state.safetensors").write_bytes(b"half a state")
    with pytest.raises(Refusal, match="is not the state of a training"):
        train_twin("mdm", folder, MICRO, progress=False)
    (folder / "recipe.json").unlink()
    with pytest.raises(Refusal, match="does not say of which recipe"):
        train_twin("mdm", folder, MICRO, progress=False)
    with pytest.raises(Refusal, match="There is no twin 'amr'; the twins are arm, mdm, causal-mdm"):
        train_twin("amr", tmp_path / "other", MICRO, progress=False)
    assert not (tmp_path / "other").exists()
