"""Programs that are run isolated and judged, and whether this machine can do that at all."""

import platform
import subprocess

import psutil
import pytest

from floatlens.tasks.code_runs import Outcome, run_program
from floatlens.tasks.readers import CodeTask


def isolation_works() -> bool:
    """Whether this machine lets us isolate, asked of `bwrap` itself and not of the code under test."""
    command = ["bwrap", "--unshare-all", "--unshare-user", "--disable-userns", "--ro-bind", "/", "/", "true"]
    try:
        return platform.machine() in ("x86_64", "aarch64") and subprocess.run(command, capture_output=True).returncode == 0
    except OSError:
        return False


isolated = pytest.mark.skipif(not isolation_works(), reason="this machine has no bwrap, or lets nobody make namespaces")


def processes() -> set[psutil.Process]:
    """Everything that this process has started, directly or not, and that is still there; other tests may have started something too."""
    return set(psutil.Process().children(recursive=True))


def judged_by(tests: str, program: str, **limits: float) -> Outcome:
    """How a program ends whose function `answer` is tested by lines of a `check`."""
    check = "def check(candidate):\n" + "".join(f"    {line}\n" for line in tests.splitlines())
    return run_program(CodeTask("mine/1", "def answer(*given):\n", check, "answer", ""), program, **limits)  # type: ignore[arg-type]  # seconds, memory


def run(statements: str, **limits: float) -> Outcome:
    """How a program ends that consists of these statements, and passes if they raise nothing."""
    return judged_by("assert candidate() == 'at the end'", f"{statements}\ndef answer():\n    return 'at the end'\n", **limits)
