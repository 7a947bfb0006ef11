"""HumanEval: run what a model wrote, locked in, and see whether its tests pass.

Code that a model wrote can do anything, so it is run only if asked for (`allow_running=True`) and only in isolation that Linux offers without privileges: namespaces of its
own for users, mounts, network and processes (through `unshare`); no environment; a file system of the interpreter and the system's libraries, read-only, and an empty
temporary folder in memory; no capabilities, no further processes; bounded memory, processor time and files (`code_jail`). Run by root, it becomes nobody first. There is the
standard library and nothing else. Where any of this is not to be had (macOS, Windows, many containers) it is refused; there is no unprotected way. This guards against what
models write by accident or imitation; it is no match for an attack on the kernel itself.

Decided here: `seconds` are of processor time, so that a busy machine fails no one; the clock on the wall stops a program that waits. A program has passed only if it ran past its last test:
leaving early, with whatever exit code, is a failure. pass@1 is the share of tasks that pass with one completion each.
"""

import json
import math
import os
import platform
import re
import resource
import secrets
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from floatlens.errors import Refusal
from floatlens.progress import progress_bar
from floatlens.tasks.readers.humaneval import CodeTask
from floatlens.tasks.samples import Sample
from floatlens.tasks.scoring import Score

JAIL = Path(__file__).with_name("code_jail.py")
SYSTEM = ("/usr", "/lib", "/lib64", "/nix/store")
ENOUGH_TO_READ = 1 << 16  # bytes of what a run says
PATIENCE = 5.0  # seconds on the clock beside three times the processor time: starting up, and a busy machine

FENCE = "```"
_FENCED = re.compile(rf"{FENCE}[^\n]*\n(.*?)(?:\n{FENCE}|\Z)", re.DOTALL)
_INDENTED = re.compile(r"(\s*\n)?(\t|  )")
_UNINDENTED = re.compile(r"^\S", re.MULTILINE)


@dataclass(frozen=True)
class Outcome:
    """How a program ended: "passed", "failed" (it raised), "timed out" or "died", and what there is to say."""

    how: str
    detail: str = ""


@dataclass(frozen=True)
class CodeRun:
    """One task, the program that was run for it, and how it ended."""

    task: str
    program: str
    outcome: Outcome

    @property
    def passed(self) -> bool:
        """Whether it ran past its last test."""
        return self.outcome.how == "passed"


def run_code_tasks(
    tasks: Iterable[CodeTask],
    completions: Sequence[str],
    *,
    allow_running: bool = False,
    seconds: float = 10.0,
    memory: int = 1 << 30,
    progress: bool = True,
) -> list[CodeRun]:
    """Run one completion of every task against its tests, one after the other, each in isolation.

    Parameters
    ----------
    tasks
        What was to be completed (`floatlens.tasks.readers.read_code_tasks`).
    completions
        What the model wrote, in the order of the tasks.
    allow_running
        Must be True: running what a model wrote is for you to decide.
    seconds
        Processor time that each program may use; on the clock it may take three times as long and five seconds more.
    memory
        Bytes of address space that each program may use.
    progress
        Whether a bar may be shown.

    Examples
    --------
    >>> task = CodeTask("mine/0", "def double(number):\\n", "def check(candidate):\\n    assert candidate(2) == 4\\n", "double", "    return 2 * number\\n")
    >>> run_code_tasks([task], [task.solution])
    Traceback (most recent call last):
    floatlens.errors.Refusal: Scoring HumanEval runs code that a model wrote. If you want that, give allow_running=True; it runs isolated or not at all.
    """
    if not allow_running:
        raise Refusal(
            "Scoring HumanEval runs code that a model wrote. If you want that, give allow_running=True; it runs isolated or not at all."
        )
    tasks = list(tasks)
    if len(tasks) != len(completions):
        raise Refusal(f"There are {len(tasks)} tasks, but {len(completions)} completions; pass@1 needs one of each.")
    runs = []
    with progress_bar(len(tasks), "Running programs", show=progress) as advance:
        for task, completion in zip(tasks, completions, strict=True):
            program = whole_program(task, completion)
            runs.append(CodeRun(task.id, program, run_program(program, seconds=seconds, memory=memory)))
            advance(1)
    return runs


def score_program(programs: Mapping[str, CodeTask], text: str, sample: Sample) -> Score:
    """Whether what a model wrote for the program of that id passes its tests: 1 or 0, whose mean is pass@1. Runs it, in isolation.

    Examples
    --------
    >>> task = CodeTask("mine/0", "def double(number):\\n", "def check(candidate):\\n    assert candidate(2) == 4\\n", "double", "")
    >>> try:
    ...     passed = score_program({task.id: task}, "    return 2 * number\\n", Sample(task.id, task.prompt, ("-",))).accuracy
    ... except Refusal:
    ...     passed = 1.0  # where namespaces are not available
    >>> passed
    1.0
    """
    outcome = run_program(whole_program(programs[sample.id], text))
    return Score(text, float(outcome.how == "passed"), None, None)


def pass_at_one(runs: Sequence[CodeRun]) -> float:
    """The share of tasks that pass; NaN if there is none, since none was tried.

    Examples
    --------
    >>> pass_at_one([CodeRun("a", "", Outcome("passed")), CodeRun("b", "", Outcome("timed out"))])
    0.5
    """
    return sum(run.passed for run in runs) / len(runs) if runs else math.nan


def whole_program(task: CodeTask, completion: str) -> str:
    """The program that is run: the prompt, what was written, the tests.

    What begins indented continues the prompt, up to the first line that is no longer indented. Otherwise, if the model fenced its code, the first fence counts. If it
    wrote the function anew, that comes behind the prompt, whose imports and helpers stay.

    Examples
    --------
    >>> task = CodeTask("mine/0", "def double(number):\\n", "def check(candidate):\\n    assert candidate(2) == 4\\n", "double", "")
    >>> print(whole_program(task, "    return 2 * number\\nprint(double(3))"))
    def double(number):
        return 2 * number
    <BLANKLINE>
    def check(candidate):
        assert candidate(2) == 4
    <BLANKLINE>
    check(double)
    """
    function = re.compile(rf"^def {task.entry_point}\b", re.MULTILINE)
    written = completion if _INDENTED.match(completion) else _fenced(completion, function)
    if not _INDENTED.match(written) and function.search(written):
        body = f"    pass\n\n{written}"
    else:
        outside = _UNINDENTED.search(written)
        body = _as_indented_as(task.prompt, written[: outside.start()] if outside else written)
    return f"{task.prompt}{body.rstrip()}\n\n{task.tests}\ncheck({task.entry_point})"


def _fenced(completion: str, function: re.Pattern[str]) -> str:
    """What stands in the first fence; before it, if the function is there already and the fence only closes it; everything, if there is none."""
    before, fence, _ = completion.partition(FENCE)
    fenced = _FENCED.search(completion)
    return before if not fence or fenced is None or function.search(before) else fenced.group(1)


def _as_indented_as(prompt: str, body: str) -> str:
    """A body whose first line has the blank back that a tokenizer's decoder takes from the beginning of a text."""
    last = prompt.rstrip().rpartition("\n")[2]
    indented = last[: len(last) - len(last.lstrip())]
    return f" {body}" if indented and body.startswith(indented[1:]) and not body.startswith(indented) else body


def run_program(program: str, *, seconds: float = 10.0, memory: int = 1 << 30) -> Outcome:
    """Run a Python program in isolation, and say how it ended; refused where it cannot be isolated.

    Examples
    --------
    >>> try:
    ...     outcome = run_program("assert 1 + 1 == 3, 'no'")
    ... except Refusal:
    ...     outcome = Outcome("failed", "AssertionError: no")  # where namespaces are not available
    >>> outcome
    Outcome(how='failed', detail='AssertionError: no')
    """
    if not seconds > 0 or memory < 1 << 27:
        raise Refusal(f"A program needs some time and at least 128 MiB; it was given {seconds} seconds and {memory:,} bytes.")
    command, secret = _isolated_interpreter(), secrets.token_hex(16)
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as complaints:
        job = {
            "program": program,
            "folder": os.path.realpath(folder),
            "visible": _visible(),
            "as_nobody": os.geteuid() == 0,
            "seconds": math.ceil(seconds),
            "memory": memory,
            "secret": secret,
        }
        longest, used_before = 3 * seconds + PATIENCE, _processor_time_of_children()
        try:
            ended = subprocess.run(
                command, input=json.dumps(job).encode(), stdout=said, stderr=complaints, env={}, cwd="/", timeout=longest
            ).returncode
        except subprocess.TimeoutExpired:
            ended = None
        except OSError as error:
            raise _not_isolated(str(error)) from None
        lines = [line for line in _lines(said) if line.get("secret") == secret]
        if not lines and ended is None:
            raise Refusal(
                f"The isolated interpreter did not start within {longest:g} seconds, so nothing was run. Try again when the machine is less busy."
            )
        if not lines:
            raise _not_isolated(next(reversed(_text(complaints).splitlines()), "it said nothing"))
    if len(lines) > 1:
        return Outcome(str(lines[1]["how"]), str(lines[1]["detail"]))
    if ended is None:
        return Outcome("timed out", f"it was still there after {longest:g} seconds")
    if _processor_time_of_children() - used_before > 0.9 * math.ceil(seconds):  # the kernel counts in ticks, and may stop it a little early
        return Outcome("timed out", f"it was stopped after {math.ceil(seconds)} s of processor time")
    return Outcome("died", f"it ended with status {ended} before its tests did")


def _processor_time_of_children() -> float:
    """Seconds that ended child processes used; `unshare` does not tell a program that was stopped from others that ended early."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _isolated_interpreter() -> list[str]:
    """The command that starts the jail in namespaces of its own."""
    unshare = shutil.which("unshare")
    if platform.system() != "Linux":
        raise _not_isolated(f"this is {platform.system()}, and the namespaces are Linux's")
    if unshare is None:
        raise _not_isolated("the command `unshare` (util-linux) is not installed")
    namespaces = ["--mount", "--net", "--ipc", "--uts", "--pid", "--fork", "--kill-child"]
    users = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return [unshare, *users, *namespaces, os.path.realpath(sys.executable), "-I", "-S", "-B", "-X", "utf8", str(JAIL)]


def _visible() -> list[str]:
    """What a program may see: the system's libraries, and the folders of the interpreter and its own, each as it is called and none twice."""
    itself = {"platbase": sys.base_exec_prefix}  # not the virtual environment, whose packages a program has no business with
    interpreter = (sys.executable, sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib", vars=itself))
    wanted = [*SYSTEM, *(os.path.dirname(os.path.realpath(path)) for path in interpreter)]
    chosen: list[str] = []
    for path in wanted:
        if os.path.isdir(path) and path != "/" and not any(path == other or path.startswith(f"{other}/") for other in chosen):
            chosen.append(path)
    return chosen


def _not_isolated(why: str) -> Refusal:
    return Refusal(
        f"Programs cannot be isolated here, so none is run: {why.rstrip('.')}. It takes Linux 5.12 with namespaces that this user may make; "
        "in a container, they must be allowed."
    )


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read(ENOUGH_TO_READ).decode(errors="replace")


def _lines(file: IO[bytes]) -> list[dict[str, object]]:
    """The lines that are JSON objects; a program that got hold of the file could write others."""
    lines = []
    for line in _text(file).splitlines():
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            lines.append(value)
    return lines
