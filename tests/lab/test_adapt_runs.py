"""Adaptation as it is run: the loss falls, a killed run ends as an uninterrupted one, and folders keep to their run."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from adapt_data import STORIES, recipe_file, recipe_table, small_recipe, stories_model, write_data
from safetensors.torch import load_file

import floatlens as fl
from floatlens.errors import Refusal
from floatlens.lab.adaptation.objective import visible_tokens
from floatlens.lab.adaptation.recipe import Recipe
from floatlens.lab.adaptation.training import Standing, begin, run
from floatlens.models.adapters import read_adapter
from floatlens.tasks.readers import read_samples

Command = Callable[..., tuple[int, str, str]]
KILLED_RUN = """
import json, os, signal, sys
import torch
from pathlib import Path
import floatlens as fl
from floatlens.lab.adaptation.recipe import recipe_of
from floatlens.lab.adaptation.training import begin, run

torch.set_num_threads(1)
recipe, data, folder, moment = json.loads(sys.argv[1]), *sys.argv[2:]
clip, rename, updates, states = torch.nn.utils.clip_grad_norm_, os.replace, 0, 0


def clip_or_die(*given):  # between the gradients and the step
    global updates
    updates += 1
    if moment == "update" and updates == 7:
        os.kill(os.getpid(), signal.SIGKILL)
    return clip(*given)


def rename_or_die(source, target):  # the second state is written, but not in its place
    global states
    states += Path(target).name == "state.safetensors"
    if moment == "state" and states == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    rename(source, target)


torch.nn.utils.clip_grad_norm_, os.replace = clip_or_die, rename_or_die
recipe = recipe_of(recipe, "recipe")
run(begin(fl.load(recipe.base, dtype="float32"), recipe, "diffusion", "bidirectional", data), folder)
"""


def adapt(folder: Path, data: Path, recipe: Recipe, objective: Any = "diffusion", mask: Any = "bidirectional") -> Standing:
    return run(begin(stories_model(), recipe, objective, mask, data), folder)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data(tmp_path_factory.mktemp("adapt") / "data")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, data: Path) -> tuple[Path, Standing]:
    """An uninterrupted run. Tests do not write there."""
    folder = tmp_path_factory.mktemp("adapt") / "whole"
    return folder, adapt(folder, data, small_recipe())


def held_out(standing: Standing, kind: str) -> list[float]:
    return [entry[f"held-out {kind}"] for entry in standing.log if f"held-out {kind}" in entry]


@pytest.mark.parametrize(
    ("objective", "mask"), [("ar", "causal"), ("diffusion", "bidirectional"), ("diffusion", "causal"), ("diffusion", "annealed")]
)
def test_adapting_lowers_the_held_out_loss(tmp_path: Path, data: Path, objective: Any, mask: Any) -> None:
    standing = adapt(tmp_path / "run", data, small_recipe(updates=40, optimizer={"rate": 1e-2, "warm_up": 4}), objective, mask)
    for kind in ("question", "text"):
        losses = held_out(standing, kind)
        assert losses[-1] < losses[0] - 0.3


@pytest.mark.parametrize("trains", ["lora", "all"])
def test_adapters_without_norms_and_all_weights_are_trained_as_well(tmp_path: Path, data: Path, trains: str) -> None:
    recipe = small_recipe(adapter={"trains": trains, "rank": 4}, updates=8)
    standing = adapt(tmp_path / "run", data, recipe)
    assert held_out(standing, "text")[-1] < held_out(standing, "text")[0]
    names = {name.partition(".")[0] for name in read_adapter(tmp_path / "run" / "adapter.safetensors").tensors}
    assert names == {"lora_a", "lora_b", "mask_offset"} if trains == "lora" else {"weight", "mask_offset"}


@pytest.mark.parametrize("moment", ["update", "state"])
def test_a_run_killed_at_any_time_ends_with_the_weights_of_an_uninterrupted_one(
    whole: tuple[Path, Standing], tmp_path: Path, data: Path, moment: str
) -> None:
    killed = subprocess.run([sys.executable, "-c", KILLED_RUN, json.dumps(recipe_table()), data, tmp_path / "run", moment], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert not (tmp_path / "run" / "adapter.safetensors").exists()
    standing = adapt(tmp_path / "run", data, small_recipe())
    folder, uninterrupted = whole
    assert standing.log == uninterrupted.log
    assert (standing.done, standing.seen, standing.supervised) == (12, uninterrupted.seen, uninterrupted.supervised)
    for name in sorted(file.name for file in folder.glob("*.safetensors")):
        ours, theirs = load_file(tmp_path / "run" / name), load_file(folder / name)
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[part], theirs[part]) for part in ours), name
    assert (tmp_path / "run" / "log.jsonl").read_bytes() == (folder / "log.jsonl").read_bytes()


def test_adapters_are_kept_at_powers_of_two_and_the_state_is_float32(whole: tuple[Path, Standing]) -> None:
    folder, standing = whole
    names = [file.name for file in sorted(folder.glob("update-*"))]
    assert names == [f"update-{update:06d}.safetensors" for update in (1, 2, 4, 8, 12)]
    assert read_adapter(folder / names[2]).info.update == 4
    assert {tensor.dtype for tensor in load_file(folder / "state.safetensors").values()} == {torch.float32}
    assert [entry["update"] for entry in standing.log if "held-out text" in entry] == [0, 1, 2, 4, 8, 12]


def test_the_stored_adapter_gives_the_trained_model(whole: tuple[Path, Standing], data: Path) -> None:
    folder, _ = whole
    adaptation = begin(stories_model(), small_recipe(), "diffusion", "bidirectional", data)
    standing = run(adaptation, folder)  # it is done, and continues nothing
    assert standing.done == 12
    sequence = adaptation.held_out[0]
    read = visible_tokens(sequence, "diffusion", adaptation.mask_token_id)
    with torch.no_grad():
        trained = adaptation.predictor.logits(read, torch.arange(len(read)))
        stored = fl.load(folder).module(input_ids=read[None]).logits[0]
    stored[:, adaptation.mask_token_id] = -torch.inf
    torch.testing.assert_close(stored, trained, rtol=0, atol=0.05)  # float16


def test_a_longer_run_continues_a_shorter_one_and_equals_it(tmp_path: Path, data: Path, whole: tuple[Path, Standing]) -> None:
    adapt(tmp_path / "run", data, small_recipe(updates=8))
    assert adapt(tmp_path / "run", data, small_recipe()).done == 12
    ours, theirs = (load_file(folder / "adapter.safetensors") for folder in (tmp_path / "run", whole[0]))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_a_run_that_was_stopped_early_is_the_beginning_of_the_whole_one(tmp_path: Path, data: Path, whole: tuple[Path, Standing]) -> None:
    recipe = small_recipe()
    stopped = run(begin(stories_model(), recipe, "diffusion", "bidirectional", data), tmp_path / "run", stop_after=8)
    assert (stopped.done, read_adapter(tmp_path / "run" / "adapter.safetensors").info.update) == (8, 8)
    early, later = (load_file(folder / "update-000008.safetensors") for folder in (tmp_path / "run", whole[0]))
    assert all(torch.equal(early[name], later[name]) for name in later)
    assert adapt(tmp_path / "run", data, recipe).done == 12
    ours, theirs = (load_file(folder / "adapter.safetensors") for folder in (tmp_path / "run", whole[0]))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_weights_that_are_frozen_in_bfloat16_train_nearly_the_same_model(tmp_path: Path, data: Path, whole: tuple[Path, Standing]) -> None:
    settings = recipe_table()["adapter"]
    standing = adapt(tmp_path / "run", data, small_recipe(adapter={**settings, "frozen_in": "bfloat16"}))
    for kind in ("question", "text"):
        assert held_out(standing, kind) != held_out(whole[1], kind)  # the products are rounded
        assert held_out(standing, kind) == pytest.approx(held_out(whole[1], kind), abs=0.05)
    assert {tensor.dtype for tensor in load_file(tmp_path / "run" / "state.safetensors").values()} == {torch.float32}
    with pytest.raises(Refusal, match="leaves nothing frozen"):
        small_recipe(adapter={"trains": "all", "frozen_in": "bfloat16"})


def test_two_processes_train_the_adapter_of_one(tmp_path: Path, data: Path, whole: tuple[Path, Standing]) -> None:
    recipe = recipe_file(tmp_path)
    launch = [sys.executable, "-m", "accelerate.commands.launch", "--cpu", "--num_processes", "2", "--num_machines", "1"]
    launch += ["--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", "0"]
    command = [*launch, "-m", "floatlens", "adapt", "--recipe", recipe, "--data", data, "--into", tmp_path / "run"]
    done = [
        subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"}) for _ in range(2)
    ]  # the second time it finds that everything is done
    assert [once.returncode for once in done] == [0, 0], done[0].stderr
    assert [once.stdout.count("Wrote ") for once in done] == [1, 1]  # one process prints
    ours, theirs = (load_file(folder / "adapter.safetensors") for folder in (tmp_path / "run", whole[0]))
    moved = {name: tensor for name, tensor in theirs.items() if name.startswith("lora_b")}
    assert all(tensor.abs().max() > 1e-3 for tensor in moved.values())
    for name in theirs:  # sums in another order
        torch.testing.assert_close(ours[name].float(), theirs[name].float(), rtol=0, atol=2e-3)


def test_a_folder_keeps_to_its_run(tmp_path: Path, data: Path, whole: tuple[Path, Standing]) -> None:
    folder = tmp_path / "run"
    shutil.copytree(whole[0], folder)
    for changes, words in (
        ({"seed": 1}, "another seed"),
        ({"updates": 8}, "12 updates done, more than the 8"),
        ({"longest": 128}, "another longest"),
    ):
        with pytest.raises(Refusal, match=words):
            adapt(folder, data, small_recipe(**changes))
    with pytest.raises(Refusal, match="another mask"):
        adapt(folder, data, small_recipe(), mask="causal")
    adapt(tmp_path / "annealed", data, small_recipe(updates=4), mask="annealed")
    with pytest.raises(Refusal, match=r"with 24, update 1 would have been another"):
        adapt(tmp_path / "annealed", data, small_recipe(updates=24), mask="annealed")
    with pytest.raises(Refusal, match="another data"):
        adapt(folder, write_changed(tmp_path / "changed"), small_recipe())
    state = folder / "state.safetensors"
    content = bytearray(state.read_bytes())
    content[-2] ^= 1
    state.write_bytes(content)
    with pytest.raises(Refusal, match="was changed since it was written"):
        adapt(folder, data, small_recipe())
    state.write_bytes(b"nothing")
    with pytest.raises(Refusal, match="is not the state of an adaptation"):
        adapt(folder, data, small_recipe())


def write_changed(folder: Path) -> Path:
    write_data(folder)
    with (folder / "stories.txt").open("a") as file:
        file.write("One more story, in which a cat and a dog went to the sea and came home in the evening.\n")
    return folder


def test_what_cannot_be_trained_is_refused_before_it_starts(data: Path) -> None:
    with pytest.raises(Refusal, match="would show each row the token it predicts"):
        begin(stories_model(), small_recipe(), "ar", "bidirectional", data)
    with pytest.raises(Refusal, match="more than the 512"):
        begin(stories_model(), small_recipe(longest=513), "ar", "causal", data)
    half = stories_model()
    half.module.half()
    with pytest.raises(Refusal, match="training needs float32"):
        begin(half, small_recipe(), "ar", "causal", data)


def test_the_command_says_its_plan_and_a_dry_run_trains_nothing(floatlens: Command, tmp_path: Path, data: Path) -> None:
    given = ("adapt", STORIES, "--recipe", recipe_file(tmp_path), "--data", data, "--into", tmp_path / "run")
    code, output, errors = floatlens(*given, "--dry-run")
    assert (code, errors) == (0, "")
    for words in (
        "12 updates left",
        "tokens seen",
        "of them predicted",
        "tokens per second",
        "GB of memory",
        "20 used, 12 left out (held out)",
    ):
        assert words in output
    assert not (tmp_path / "run").exists()


def test_the_command_trains_writes_a_card_and_goes_on(floatlens: Command, tmp_path: Path, data: Path) -> None:
    given = ("adapt", "--recipe", recipe_file(tmp_path), "--data", data, "--into", tmp_path / "tiny-arm", "--objective", "ar")
    code, output, _ = floatlens(*given, "--updates", 4)
    assert code == 0
    assert "update 4 of 4" in output
    code, output, _ = floatlens(*given)
    assert code == 0
    assert "continues from update 4 of 12" in output
    card = (tmp_path / "tiny-arm" / "README.md").read_text()
    hashes = json.loads((tmp_path / "tiny-arm" / "run.json").read_text())["data"]
    assert all(f"| {file} |" in card and sha256 in card for file, sha256 in hashes.items())
    standing = [json.loads(line) for line in (tmp_path / "tiny-arm" / "log.jsonl").read_text().splitlines()][-1]
    assert f"{standing['seen']:,} tokens seen, {standing['supervised']:,} of them predicted" in card
    samples = list(read_samples(tmp_path / "tiny-arm" / "held-out.jsonl"))
    assert len(samples) == 12
    assert {sample.question for sample in samples} >= {"Where did Lily live?", "What is the home of Tom?"}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("--objective", "both"), "There is no objective 'both'. --objective takes ar, diffusion."),
        (("--mask", "none"), "There is no mask 'none'. --mask takes causal, bidirectional, annealed."),
        (("--recipe", "nowhere.toml"), "There is no recipe nowhere.toml."),
        (("--data", "nowhere"), "There is no folder nowhere (--data)."),
        (("--objective", "ar", "--mask", "bidirectional"), "would show each row the token it predicts"),
    ],
)
def test_mistakes_are_one_sentence(floatlens: Command, tmp_path: Path, data: Path, given: tuple[str, ...], words: str) -> None:
    options = {"--recipe": recipe_file(tmp_path), "--data": data, "--into": tmp_path / "run"}
    options |= dict(zip(given[::2], given[1::2], strict=True))
    code, _, errors = floatlens("adapt", *(word for option in options.items() for word in option))
    assert code == 2
    assert words in errors
    assert errors.count("\n") == 1
    assert not (tmp_path / "run").exists()
