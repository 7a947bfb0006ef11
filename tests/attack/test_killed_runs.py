"""Runs that are killed at any moment.

Nothing is lost, nothing is done twice, nothing is left behind, and the next run gives what an uninterrupted one gives. The moments are
drawn once (seeded), spread over the time that an uninterrupted run took; a run that ends before it is killed is tried again. `write` is
killed at every single file operation (a fifth of them in the sample).
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from attack_size import tries

from floatlens.errors import Refusal
from floatlens.folders import damage, refuse_place, unfinished_folder, write_whole
from floatlens.lab.publishing import write_twin
from floatlens.lab.recipe import read_recipe
from floatlens.lab.updates import make_twin
from floatlens.models.families.twin import KINDS

RECIPE = """
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
updates = 16
checks = ["closed"]
mixture = [{ sequences = 2, kind = "closed" }]
"""
COMMANDS = {
    "trace": ["trace", "-m", "twin-mdm", "-p", "Where does Ben Reed live?", "--gen-length", "4", "--set", "block_length=4", "-o", "out"],
    "eval": [
        "eval",
        "-m",
        "twin-arm",
        "--context",
        "noise",
        "--levels",
        "0,.4",
        "-n",
        "4",
        "--trace",
        "1",
        "--workers",
        "0",
        "--into",
        "out",
    ],
    "train": ["train", "twins", "--only", "arm", "--recipe", "../recipe.toml", "--into", "out"],
    "demo": ["demo", "--questions", "4", "--no-figures", "--into", "out"],
}


class Zygote:
    """Runs commands in forks of a process that has imported everything."""

    def __init__(self) -> None:
        script = Path(__file__).with_name("command_zygote.py")
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "COLUMNS": "120"}
        self.process = subprocess.Popen([sys.executable, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)

        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"

    def _ask(self, **told: object) -> int:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(told) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def run(self, words: list[str], folder: Path, kill_after: float | None = None) -> int:
        """Run a command in a folder, kill it after some seconds or not at all; its exit code, negative for a signal."""
        started = self._ask(run=words, **{"in": str(folder)}, log=str(folder.parent / "log"), said=str(folder.parent / "said"))
        if kill_after is not None:
            time.sleep(kill_after)
            os.kill(started, signal.SIGKILL)  # a run that has ended waits to be waited for, so the number is still its own
        return self._ask(wait=started)

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    started = Zygote()
    yield started
    started.end()


@dataclass(frozen=True)
class Uninterrupted:
    """What a run gives that nobody kills, and how long it takes."""

    files: dict[str, bytes]
    log: list[str]
    seconds: float


def prepare(folder: Path) -> Path:
    """A working directory with files of the user's beside where the result will be."""
    work = folder / "work"
    work.mkdir(parents=True)
    (folder / "recipe.toml").write_text(RECIPE)
    (work / "mine.txt").write_text("mine")
    (work / ".out.mine").mkdir()
    (work / ".out.mine" / "notes").write_text("mine")
    return work


def check_untouched(work: Path) -> None:
    assert (work / "mine.txt").read_text() == "mine"
    assert (work / ".out.mine" / "notes").read_text() == "mine"


def contents(folder: Path) -> dict[str, bytes]:
    """Every file that is promised to be the same again: all but those of a training that say how long it took."""
    timed = ("state.safetensors", "log.jsonl", "training.csv", "README.md", "manifest.json")
    training = (folder / "runs").exists()
    files = (file for file in folder.rglob("*") if file.is_file() and not (training and file.name in timed))
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in files}


def log_of(work: Path) -> list[str]:
    log = work.parent / "log"
    return log.read_text().splitlines() if log.exists() else []


def uninterrupted(zygote: Zygote, words: list[str], folder: Path) -> Uninterrupted:
    work = prepare(folder)
    began = time.monotonic()
    assert zygote.run(words, work) == 0, (work.parent / "said").read_text()
    seconds = time.monotonic() - began
    return Uninterrupted(contents(work / "out"), log_of(work), seconds)


def refuse_twice(log: list[str]) -> None:
    """What was stored is never computed again."""
    finished: set[str] = set()
    reached = 0
    for line in log:
        what, _, name = line.partition(" ")
        if what == "stored":
            finished.add(name)
        if what == "saved":
            reached = int(name)
        assert not (what == "asked" and name in finished), f"{name} was computed again"
        assert not (what == "updated" and int(name) <= reached), f"update {name} was made again"


def check_finished(work: Path, whole: Uninterrupted) -> None:
    check_untouched(work)
    assert sorted(file.name for file in work.iterdir()) == [".out.mine", "mine.txt", "out"], "something hidden is left behind"
    assert not list((work / "out").rglob(".*")), "something hidden is left behind"
    found = contents(work / "out")
    assert {name for name in found.keys() | whole.files.keys() if found.get(name) != whole.files.get(name)} == set()
    if (work / "out" / "manifest.json").exists():
        assert damage(work / "out") == []
    refuse_twice(log_of(work))


@pytest.mark.parametrize("command", ["trace", "eval", "train"])
def test_a_run_that_is_killed_goes_on_and_gives_what_an_uninterrupted_one_gives(zygote: Zygote, tmp_path: Path, command: str) -> None:
    wanted = tries(2 if command == "train" else 0, 20)
    if not wanted:
        pytest.skip("the cheapest command is the sample; all of them: make attack")
    words = COMMANDS[command]
    whole = uninterrupted(zygote, words, tmp_path / "whole")
    moments = random.Random(14)
    seconds, killed, kept = whole.seconds, 0, 0
    while killed < wanted:
        work = prepare(tmp_path / f"{killed}-{moments.random()}")
        spread = (killed + moments.random()) / wanted
        code = zygote.run(words, work, kill_after=spread * seconds)
        check_untouched(work)
        if code == 0:  # it was quicker this time
            seconds *= 0.9
            continue
        assert code == -signal.SIGKILL, (work.parent / "said").read_text()
        killed += 1
        finished = [line for line in log_of(work) if line.startswith(("stored", "saved"))]
        kept += bool(finished)
        done = (work / "out" / "manifest.json").exists()  # killed when nothing but clearing up was left to do
        assert zygote.run(words, work) == (2 if done else 0), (work.parent / "said").read_text()
        assert not done or "'out' exists already, and nothing is overwritten." in (work.parent / "said").read_text()
        check_finished(work, whole)
        if command == "eval" and finished and not done:
            assert "Resuming from what was done" in (work.parent / "said").read_text()
    print(f"{command}: {killed} killed over {whole.seconds:.1f} s, {kept} after something was finished")


def write_tiny_twins(folder: Path) -> list[str]:
    """Twins with one layer, untrained, and the options with which the demo takes them: it then spends its time on files, not on layers."""
    (folder / "recipe.toml").write_text(RECIPE)
    recipe = read_recipe(folder / "recipe.toml")
    options = []
    for kind in KINDS:
        log = [{"update": recipe.updates, "stage": "heart", "loss": 1.0, "cpu_seconds": 1}]
        write_twin(folder / f"twin-{kind}", kind, recipe, make_twin(kind, recipe), log, threads=(1,), questions=2)
        options += [f"--{kind}", str(folder / f"twin-{kind}")]
    return options


def test_a_demo_that_is_killed_again_and_again_spares_the_earlier_one_until_it_is_done(tmp_path: Path) -> None:
    """Each run is the rerun of the one that was killed before it; the earlier demo stands until the last has ended."""
    wanted = tries(0, 20)
    if not wanted:
        pytest.skip("a demo takes twenty seconds: make attack")
    twins = write_tiny_twins(tmp_path)
    work = prepare(tmp_path / "demo")

    def demo(kill_after: float | None = None) -> tuple[int, float]:
        command = [sys.executable, "-c", "from floatlens.cli import run; run()", *COMMANDS["demo"], *twins]
        began = time.monotonic()
        process = subprocess.Popen(command, cwd=work, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if kill_after is not None:
            time.sleep(kill_after)
            started = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
            process.kill()
            _, alive = psutil.wait_procs(started, timeout=120)
            assert alive == [], "processes that a killed demo has started end with it"
        _, errors = process.communicate()
        assert "Traceback" not in errors
        return process.returncode, time.monotonic() - began

    code, seconds = demo()
    assert code == 0
    whole = Uninterrupted(contents(work / "out"), [], seconds)
    moments = random.Random(14)
    killed = 0
    while killed < wanted:
        code, _ = demo(kill_after=(killed + moments.random()) / wanted * seconds)
        assert code in (0, -signal.SIGKILL)
        killed += code != 0
        check_untouched(work)
        assert contents(work / "out") == whole.files
    assert demo()[0] == 0
    check_finished(work, whole)


# -- every file operation ------------------------------------------------------------------------------------------------------------------

OPERATIONS = ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate", "shutil.rmtree", "fcntl.flock")


def write(place: Path, text: str) -> None:
    with unfinished_folder(place, "floatlens demo", replacing="floatlens demo") as unfinished:
        (unfinished.folder / "below").mkdir()
        (unfinished.folder / "below" / "file").write_text(text)
        (unfinished.folder / text).write_text(text)


def killed_at(number: int, action: Callable[[], None]) -> bool:
    """Whether a process that does something was killed when it began its file operation of that number."""
    if (child := os.fork()) == 0:
        left = number

        def count(event: str, _given: tuple) -> None:
            nonlocal left
            if event in OPERATIONS:
                left -= 1
                if left < 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        sys.addaudithook(count)
        try:
            action()
        except BaseException:
            os._exit(1)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, -signal.SIGKILL)
    return code != 0


@pytest.mark.parametrize("earlier", [False, True])
def test_a_folder_survives_being_killed_at_every_file_operation(tmp_path: Path, earlier: bool) -> None:
    number = 0
    while True:
        work = tmp_path / str(number)
        work.mkdir()
        place = work / "out"
        if earlier:
            write(place, "first")
        if not killed_at(number, lambda place=place: write(place, "second")):
            break
        if place.exists():
            assert damage(place) == [], "what bears the name is whole"
        elif earlier:
            assert damage(work / ".out.unfinished" / "old") == [], "what was there before is whole, and goes back"
        write(place, "third")
        assert sorted(file.name for file in work.iterdir()) == ["out"]
        assert contents(place).keys() == {"third", "below/file", "manifest.json"}
        assert (place / "below" / "file").read_text() == "third"
        number += tries(5, 1)
    assert number > (30 if earlier else 15), "the operations were counted"


def test_what_a_run_keeps_survives_being_killed_at_every_file_operation(tmp_path: Path) -> None:
    def write_once(place: Path) -> None:
        with unfinished_folder(place, "floatlens eval", keeps=True) as unfinished:
            write_whole(unfinished.kept / "finished", b"finished")
            (unfinished.folder / "results").write_text("results")

    number = 0
    while True:
        place = tmp_path / str(number) / "out"
        place.parent.mkdir()
        first = tmp_path / str(number) / ".out.unfinished" / "kept" / "finished"
        if not killed_at(number, lambda place=place: write_once(place)):
            break
        if place.exists():
            assert damage(place) == []
            with pytest.raises(Refusal, match="exists already"):
                refuse_place(place)
        else:
            used = first.parent.with_name("used") / "finished"
            was_kept = first.exists() or used.exists()
            with unfinished_folder(place, "floatlens eval", keeps=True) as unfinished:
                assert (unfinished.kept / "finished").exists() == was_kept
        assert [file.name for file in place.parent.iterdir()] == ["out"]
        number += tries(5, 1)
    assert number > 20, "the operations were counted"
