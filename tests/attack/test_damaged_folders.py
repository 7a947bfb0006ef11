"""Result folders that are damaged, foreign, taken or on a disk that fails.

Each gets one sentence, before any work where that can be, and nothing is lost.

Manifests are written by hand here, and models that do not exist are named: a place is refused before anybody looks for them.
"""

import hashlib
import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from attack_size import FULL, tries

from floatlens.errors import Refusal
from floatlens.study import one_model

Ran = tuple[int, str, str]
COMMANDS: dict[str, list[str]] = {
    "demo": ["demo", "--mdm", "no-such-model", "--into"],
    "eval": ["eval", "-m", "no-such-model", "--into"],
    "trace": ["trace", "-m", "no-such-model", "-p", "Where?", "-o"],
    "train": ["train", "twins", "--smoke", "--into"],
    "figures": ["figures", "no-such-trace.zarr", "-o"],
}
every_command = pytest.mark.parametrize("command", COMMANDS)
HELD = """
import sys
from floatlens.folders import UnfinishedFolder
unfinished = UnfinishedFolder(sys.argv[1], "floatlens eval")
print("ready", flush=True)
sys.stdin.readline()
(unfinished.folder / "results").write_text("whole")
unfinished.publish()
"""


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def earlier_demo(folder: Path) -> Path:
    """The folder of an earlier demo, as this version and those before mark it."""
    (folder / "tables").mkdir(parents=True)
    files = {"claims.json": b'{"written_by": "floatlens demo"}', "tables/answers.parquet": b"PAR1"}
    for name, content in files.items():
        (folder / name).write_bytes(content)
    records = {name: {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()} for name, content in files.items()}
    (folder / "manifest.json").write_text(json.dumps({"floatlens": "0", "written_by": "floatlens demo", "files": records}))
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


# -- places --------------------------------------------------------------------------------------------------------------------------------


@every_command
@pytest.mark.parametrize("spelling", [".", "../work", "..", "sub/.."])
def test_inside_an_earlier_demo_folder_the_working_directory_is_refused(
    floatlens: Callable[..., Ran], work: Path, command: str, spelling: str
) -> None:
    earlier_demo(work / "sub").joinpath("mine.txt").write_text("mine")
    for file in (work / "sub").iterdir():
        shutil.move(file, work)
    before = contents(work.parent)
    code, said, errors = floatlens(*COMMANDS[command], spelling)
    assert (code, said) == (2, "")
    assert errors.startswith(
        f"floatlens: '{spelling}' is the working directory or lies above it, so it cannot be replaced. Name a new folder, such as"
    )
    assert contents(work.parent) == before


@every_command
@pytest.mark.parametrize("leads_to", ["earlier", "empty", "nowhere"])
def test_a_link_is_refused(floatlens: Callable[..., Ran], work: Path, command: str, leads_to: str) -> None:
    earlier_demo(work / "earlier")
    (work / "empty").mkdir()
    (work / "link").symlink_to(leads_to)
    before = contents(work)
    assert floatlens(*COMMANDS[command], "link") == (
        2,
        "",
        "floatlens: 'link' is a link, and what it leads to is not replaced. Name the folder itself, or a new one.\n",
    )
    assert (contents(work), (work / "link").is_symlink()) == (before, True)


@pytest.mark.parametrize(
    ("name", "content"),
    [("mine.txt", "mine"), ("tables/mine.txt", "mine"), ("claims.json", '{"written_by": "floatlens demo", "note": "mine"}')],
)
def test_a_file_of_the_user_in_an_earlier_demo_is_named_and_stays(
    floatlens: Callable[..., Ran], work: Path, name: str, content: str
) -> None:
    (earlier_demo(work / "out") / name).write_text(content)
    before = contents(work)
    code, _, errors = floatlens(*COMMANDS["demo"], "out")
    assert (code, errors) == (
        2,
        f"floatlens: 'out' holds {name}, which floatlens did not write or somebody has edited since, and would be lost. "
        "Move it away, or choose another folder.\n",
    )
    assert contents(work) == before


def test_an_earlier_demo_without_a_manifest_is_left_alone(floatlens: Callable[..., Ran], work: Path) -> None:
    (earlier_demo(work / "out") / "manifest.json").unlink()
    before = contents(work)
    code, _, errors = floatlens(*COMMANDS["demo"], "out")
    assert (code, "'out' exists already and has no manifest.json" in errors) == (2, True)
    assert contents(work) == before


@every_command
@pytest.mark.parametrize(
    ("place", "sentence"),
    [
        ("s3://bucket/out", "is an address, and floatlens writes to a local folder"),
        ("nowhere/out", "There is no folder 'nowhere' to write 'out' into. Make it first."),
        ("file", "'file' is a file"),
        ("n" * 250, "has 250 bytes, and at most 243 fit here. Choose a shorter one."),
        ("file/out", "There is no folder 'file' to write 'out' into."),
    ],
)
def test_a_place_that_cannot_be_is_refused_by_every_command(
    floatlens: Callable[..., Ran], work: Path, command: str, place: str, sentence: str
) -> None:
    (work / "file").write_text("mine")
    code, said, errors = floatlens(*COMMANDS[command], place)
    assert (code, said) == (2, "")
    assert sentence in errors
    assert errors.count("\n") == 1
    assert contents(work) == {"file": b"mine"}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """Mounts, and mounts anew, a small disk of its own."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount")
    place = tmp_path / "disk"
    place.mkdir()

    def mount(options: str) -> Path:
        options = f"remount,{options}" if place.is_mount() else options
        if subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", place], capture_output=True).returncode:
            pytest.skip("mounting is not allowed here")
        return place

    yield mount
    if place.is_mount():
        subprocess.run(["umount", "--lazy", place], check=True)


@every_command
def test_a_read_only_disk_and_a_mount_point_are_refused(floatlens: Callable[..., Ran], disk: Callable[..., Path], command: str) -> None:
    place = disk("ro")
    code, said, errors = floatlens(*COMMANDS[command], place / "out")
    assert (code, said) == (2, "")
    assert errors == f"floatlens: '{place / 'out'}' cannot be written: it is on a read-only file system. Choose another place.\n"
    code, _, errors = floatlens(*COMMANDS[command], place)
    assert (code, f"'{place}' is a mount point, so it cannot be replaced." in errors) == (2, True)


# -- two at once ---------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["demo", "eval", "trace"])
def test_the_second_run_into_a_place_is_refused_by_name_and_the_first_is_unharmed(
    floatlens: Callable[..., Ran], work: Path, command: str
) -> None:
    first = subprocess.Popen([sys.executable, "-c", HELD, "out"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert first.stdout is not None
    assert first.stdout.readline() == "ready\n"
    sentence = f"Process {first.pid} (`floatlens eval`) is writing {work / 'out'} now. Wait until it has ended, or choose another folder."
    assert floatlens(*COMMANDS[command], "out") == (2, "", f"floatlens: {sentence}\n")
    first.communicate("\n", timeout=60)
    assert first.returncode == 0
    assert contents(work).keys() == {"out/results", "out/manifest.json"}


# -- what an evaluation and a training go on from ------------------------------------------------------------------------------------------

EVALUATION = ["eval", "-m", "twin-arm", "--no-likelihood", "-n", "2", "--workers", "0", "--into"]


def stopped_evaluation(floatlens: Callable[..., Ran], into: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An evaluation that is stopped when one of its two conditions is finished."""
    asked: list[Any] = []
    really: Any = one_model._ask

    def ask_or_stop(*given: Any) -> pl.DataFrame:
        asked.append(given)
        if len(asked) == 2:
            raise KeyboardInterrupt
        return really(*given)

    with monkeypatch.context() as stopping:
        stopping.setattr(one_model, "_ask", ask_or_stop)
        assert floatlens(*EVALUATION, into)[0] == 130


def truncate(content: bytes) -> bytes:
    return content[: len(content) // 2]


def flip(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


@pytest.mark.parametrize("harm", [flip, truncate, lambda _: b"", lambda _: b"garbage"][: tries(1, 4)])
def test_a_kept_condition_that_is_damaged_is_named_and_computed_again(
    floatlens: Callable[..., Ran], work: Path, monkeypatch: pytest.MonkeyPatch, harm: Callable[[bytes], bytes]
) -> None:
    stopped_evaluation(floatlens, "out", monkeypatch)
    (kept,) = (work / ".out.unfinished").rglob("*.zip")
    kept.write_bytes(harm(kept.read_bytes()))
    code, said, errors = floatlens(*EVALUATION, "out")
    assert code == 0, errors
    assert f"{kept} is damaged (it was cut" in errors
    assert "it is removed, and what it held is computed again." in errors
    assert floatlens(*EVALUATION, "whole")[0] == 0
    assert contents(work / "out") == contents(work / "whole")
    assert sorted(file.name for file in work.iterdir()) == ["out", "whole"]
    assert "Resuming from what was done" in said


def test_no_bit_of_a_training_state_changes_weights_silently(tmp_path: Path) -> None:
    import torch

    from floatlens.lab.recipe import read_recipe
    from floatlens.lab.runs import Standing, load_state, save_state
    from floatlens.lab.updates import make_optimizer, make_twin

    (tmp_path / "recipe.toml").write_text(RECIPE)
    recipe = read_recipe(tmp_path / "recipe.toml")

    def begin() -> tuple[Any, Any]:
        model = make_twin("arm", recipe)
        optimizer = make_optimizer(model, recipe)
        for weights in model.parameters():
            optimizer.state[weights] = {moment: torch.zeros_like(weights) for moment in ("exp_avg", "exp_avg_sq")}
        return model, optimizer

    file = tmp_path / "state.safetensors"
    model, optimizer = begin()
    save_state(file, model, optimizer, Standing(8, 1.0, (1,), ({"update": 8, "loss": 1.5},)))
    content = file.read_bytes()
    header = 8 + int.from_bytes(content[:8], "little")
    places = [*range(0, header, tries(101, 7)), *range(header, len(content), len(content) // tries(10, 200))]
    refused = 0
    for at in places:
        file.write_bytes(content[:at] + bytes([content[at] ^ 1 << at % 8]) + content[at + 1 :])
        other, its_optimizer = begin()
        try:
            standing = load_state(file, other, its_optimizer)
        except Refusal as refusal:
            refused += str(file) in str(refusal)
            continue
        assert (standing.done, standing.log) == (8, ({"update": 8, "loss": 1.5},)), at
        assert all(torch.equal(one, two) for one, two in zip(model.parameters(), other.parameters(), strict=True)), at
    assert refused > 0.9 * len(places)


# -- disks that are full -------------------------------------------------------------------------------------------------------------------

FILLING = {
    "trace": ["trace", "-m", "twin-arm", "-p", "Where does Ben Reed live?", "--gen-length", "2", "-o"],
    "eval": ["eval", "-m", "twin-arm", "--no-likelihood", "-n", "2", "--into"],
    "train": ["train", "twins", "--only", "arm", "--recipe", "recipe.toml", "--into"],
}
RECIPE = """
seed = 1
check_every = 2
model = { layers = 1, width = 16, heads = 1, rotary_base = 10_000 }
optimizer = { rate = 1e-3, weight_decay = 0.1, warm_up = 2, cooling = 0.3, final_rate = 0.1 }
[[stages]]
name = "heart"
updates = 4
checks = ["closed"]
mixture = [{ sequences = 2, kind = "closed" }]
"""


@pytest.mark.parametrize("command", FILLING)
def test_a_full_disk_is_one_sentence_and_with_more_room_the_same_command_ends_well(
    floatlens: Callable[..., Ran], work: Path, disk: Callable[..., Path], command: str
) -> None:
    if command != "eval" and not FULL:
        pytest.skip("one command is the sample; all of them: make attack")
    (work / "recipe.toml").write_text(RECIPE)
    refused = 0
    for pages in (*(1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256, 1024)[:: tries(3, 1)], 4096):
        place = disk(f"size={4 * pages}k") / "out"
        code, _, errors = floatlens(*FILLING[command], place)
        if code == 0:
            break
        refused += 1
        assert code == 2
        assert errors.count("\n") == 1, errors
        foreseen = command == "trace" and "are free" in errors  # by the estimate, before anything is written
        assert foreseen or errors.startswith("floatlens: No space left on the disk of ")
        assert foreseen or "Free some room and run the same command again" in errors
        assert command == "train" or not place.exists()
        assert not list(place.parent.rglob("new")), "nothing half-written is left"
    else:
        raise AssertionError("it never fitted")
    assert refused > 1
    assert (work.parent / "disk" / "out").is_dir()
    assert [file.name for file in (work.parent / "disk").iterdir()] == ["out"]


@pytest.mark.parametrize("command", FILLING)
def test_a_limit_on_the_size_of_files_is_one_sentence(floatlens: Callable[..., Ran], work: Path, command: str) -> None:
    if not FULL:
        pytest.skip("make attack")
    (work / "recipe.toml").write_text(RECIPE)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (600, before[1]))
    try:
        code, _, errors = floatlens(*FILLING[command], "out")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert code == 2
    assert "cannot be written: it would be larger than the file system or `ulimit -f` allows." in errors
    assert floatlens(*FILLING[command], "out")[0] == 0
