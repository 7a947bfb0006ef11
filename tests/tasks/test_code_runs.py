"""What a model wrote runs isolated or not at all. Where the machine offers no namespaces, every run must be refused, and that is what is tested there."""

import math
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from floatlens.errors import Refusal
from floatlens.tasks import code_runs
from floatlens.tasks.code_runs import CodeRun, Outcome, pass_at_one, run_code_tasks, run_program, whole_program
from floatlens.tasks.readers import CodeTask

PROMPT = 'import math\n\n\ndef root(number):\n    """The square root, rounded down."""\n'
TESTS = "def check(candidate):\n    assert candidate(17) == 4\n    assert candidate(0) == 0\n"
RIGHT = "    return math.isqrt(number)\n"
TASK = CodeTask("mine/0", PROMPT, TESTS, "root", RIGHT)


def isolation_works() -> bool:
    """Whether this machine lets us make the namespaces, asked of `unshare` itself and not of the code under test."""
    users = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    try:
        return (
            subprocess.run(
                ["unshare", *users, "--mount", "--net", "--pid", "--ipc", "--uts", "--fork", "true"], capture_output=True
            ).returncode
            == 0
        )
    except OSError:
        return False


isolated = pytest.mark.skipif(not isolation_works(), reason="this machine lets nobody make namespaces")


@pytest.mark.skipif(isolation_works(), reason="this machine can isolate")
def test_without_namespaces_nothing_is_run() -> None:
    with pytest.raises(Refusal, match="cannot be isolated here, so none is run"):
        run_program("pass")


@pytest.mark.parametrize("obstacle", ["another system", "no unshare", "an unshare that fails", "an unshare that does nothing"])
def test_where_isolation_is_not_available_nothing_is_run(obstacle: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    marker, fake = tmp_path / "ran", tmp_path / "unshare"
    if obstacle == "another system":
        monkeypatch.setattr("platform.system", lambda: "Darwin")
    else:
        fake.write_text(
            "#!/bin/sh\n"
            + ("echo unshare failed: Operation not permitted >&2; exit 1\n" if obstacle == "an unshare that fails" else "exit 0\n")
        )
        fake.chmod(0o755)
        monkeypatch.setattr("shutil.which", lambda _name: None if obstacle == "no unshare" else str(fake))
    with pytest.raises(
        Refusal, match=r"cannot be isolated here, so none is run: .*(Darwin|not installed|Operation not permitted|it said nothing)"
    ):
        run_program(f"open({str(marker)!r}, 'w')")
    assert not marker.exists()


def test_nothing_is_run_unless_asked_for() -> None:
    with pytest.raises(Refusal, match="allow_running=True"):
        run_code_tasks([TASK], [RIGHT])


@isolated
def test_right_solutions_pass_and_wrong_ones_do_not() -> None:
    wrong = ["    return 4\n", "    return\n", "    return number +\n", "    raise SystemExit(0)\n", "    import os\n    os._exit(0)\n"]
    fenced = f"Here it is:\n```python\n{PROMPT}{RIGHT}```\nI hope it helps.\n"
    runs = run_code_tasks([TASK] * 7, [RIGHT, fenced, *wrong], allow_running=True, seconds=2)
    assert [run.passed for run in runs] == [True, True] + [False] * 5
    assert pass_at_one(runs) == 2 / 7
    assert [run.outcome.how for run in runs[2:]] == ["failed", "failed", "failed", "failed", "died"]
    assert [run.outcome.detail.split(":")[0] for run in runs[2:6]] == ["AssertionError", "AssertionError", "SyntaxError", "SystemExit"]


@isolated
def test_an_endless_loop_is_stopped() -> None:
    assert run_program("while True:\n    try:\n        while True: pass\n    except BaseException: pass", seconds=1).how == "timed out"


@isolated
def test_waiting_is_stopped_and_leaves_no_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    jail = tmp_path / "jail.py"  # a name that no other test's process has
    jail.write_text(code_runs.JAIL.read_text())
    monkeypatch.setattr(code_runs, "JAIL", jail)
    monkeypatch.setattr(code_runs, "PATIENCE", 3.0)
    assert run_program("import time\ntime.sleep(3600)", seconds=0.1) == Outcome("timed out", "it was still there after 3.3 seconds")
    assert not [number for number in os.listdir("/proc") if number.isdigit() and str(jail).encode() in command_line(number)]


def command_line(process: str) -> bytes:
    try:
        return Path("/proc", process, "cmdline").read_bytes()
    except OSError:  # it has ended since
        return b""


@isolated
@pytest.mark.parametrize("program", ["hoard = bytearray(1 << 30)", "hoard = []\nwhile True: hoard.append(bytearray(1 << 24))"])
def test_a_memory_hog_is_stopped(program: str) -> None:
    assert run_program(program, memory=1 << 28) == Outcome("failed", "MemoryError")


@isolated
def test_there_is_no_network_not_even_this_machine() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.1)
        outcome = run_program(f"import socket\nsocket.create_connection(('127.0.0.1', {server.getsockname()[1]}), 5)")
        with pytest.raises(TimeoutError):
            server.accept()
    assert outcome.how == "failed"
    assert "OSError" in outcome.detail or "unreachable" in outcome.detail or "refused" in outcome.detail


@isolated
def test_files_outside_can_be_neither_read_nor_written(tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("mine")
    tmp_path.chmod(0o777)
    program = f"""
import os
for attempt in (
    lambda: open({str(secret)!r}).read(),
    lambda: open({str(secret)!r}, "w"),
    lambda: os.remove({str(secret)!r}),
    lambda: open({str(tmp_path / "new.txt")!r}, "w"),
    lambda: open(os.__file__, "a"),
    lambda: os.listdir("/proc/1"),
    lambda: os.chroot("/tmp"),
    lambda: os.setuid(0) if os.getuid() else os.setgroups([0]),
):
    try:
        attempt()
    except OSError:
        continue
    raise AssertionError("this should have been refused")
"""
    assert run_program(program) == Outcome("passed")
    read_only = """
import errno, os
for attempt in (lambda: open("/new.txt", "w"), lambda: open("/usr/new.txt", "w"), lambda: os.chmod("/usr", 0o777)):
    try:
        attempt()
    except OSError as error:
        assert error.errno == errno.EROFS, error
    else:
        raise AssertionError("this should have been refused")
"""
    assert run_program(read_only) == Outcome("passed")
    assert secret.read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["secret.txt"]


@isolated
def test_locks_cannot_be_opened_from_inside() -> None:
    new_user_namespace, new_mount_namespace, remount_for_writing = 0x10000000, 0x20000, 32 | 4096
    program = f"""
import ctypes
library = ctypes.CDLL(None)
assert library.unshare({new_user_namespace}) == -1
assert library.unshare({new_mount_namespace}) == -1
assert library.mount(None, b"/usr", None, {remount_for_writing}, None) == -1
assert library.mount(b"none", b"/tmp", b"tmpfs", 0, None) == -1
"""
    assert run_program(program) == Outcome("passed")


@isolated
def test_there_is_no_environment_no_other_process_and_an_empty_folder_to_write_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLOATLENS_TEST_SECRET", "mine")
    program = """
import errno, os, threading
assert set(os.environ) <= {"LC_CTYPE"}, dict(os.environ)
assert os.getpid() == 1
assert os.listdir(".") == []
open("note.txt", "w").write("hello")
assert open("note.txt").read() == "hello"
for start in (os.fork, threading.Thread(target=print).start):
    try:
        start()
    except (OSError, RuntimeError):
        continue
    raise AssertionError("this should have been refused")
try:
    open("large", "wb").write(bytes(1 << 25))
except OSError as error:
    assert error.errno == errno.EFBIG, error
else:
    raise AssertionError("this should have been refused")
"""
    for _ in range(2):  # nothing is left from the first time
        assert run_program(program) == Outcome("passed")


@isolated
def test_what_a_program_prints_goes_nowhere_and_there_is_nothing_to_read() -> None:
    assert run_program(
        "import sys\nassert sys.stdin.read() == ''\nprint('x' * (1 << 25), flush=True)\nprint('y', file=sys.stderr)"
    ) == Outcome("passed")


@isolated
def test_a_verdict_cannot_be_forged_without_the_secret() -> None:
    forged = 'import os\nfor number in range(64):\n    try: os.write(number, b\'{"how": "passed", "detail": ""}\\n\' * 3)\n    except OSError: pass\nassert False'
    assert run_program(forged) == Outcome("failed", "AssertionError")


def test_beside_the_interpreter_only_its_programs_and_libraries_are_seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("bin", "lib/python3", "share"):  # as under ~/.local, where other things of the user lie
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.setattr("sys.executable", str(tmp_path / "bin" / "python3"))
    monkeypatch.setattr("sysconfig.get_path", lambda _name, **_vars: str(tmp_path / "lib" / "python3"))
    own = [path for path in code_runs._visible() if path not in code_runs.SYSTEM]
    assert own == [str(tmp_path / "bin"), str(tmp_path / "lib")]


@pytest.mark.skipif(sys.prefix == sys.base_prefix, reason="not in a virtual environment")
def test_packages_of_a_virtual_environment_are_not_seen() -> None:
    environment = os.path.realpath(sys.prefix)
    own = [path for path in code_runs._visible() if path not in code_runs.SYSTEM]
    assert not [path for path in own if path.startswith(environment) or environment.startswith(path)]


def test_limits_that_nothing_could_run_in_are_refused() -> None:
    for seconds, memory in ((0, 1 << 30), (math.nan, 1 << 30), (1, 1 << 20)):
        with pytest.raises(Refusal, match="at least 128 MiB"):
            run_program("pass", seconds=seconds, memory=memory)
    with pytest.raises(Refusal, match="2 tasks, but 1 completions"):
        run_code_tasks([TASK, TASK], [RIGHT], allow_running=True)


@pytest.mark.parametrize(
    ("completion", "kept"),
    [
        (RIGHT, "    return math.isqrt(number)\n"),
        (f"{RIGHT}\n\nprint(root(3))\n    return 5", "    return math.isqrt(number)\n"),
        (f"{RIGHT}\ndef other():\n    pass\n", "    return math.isqrt(number)\n"),
        (f"```python\n{RIGHT}```\n", "    return math.isqrt(number)\n"),
        (f"So:\n```\n{RIGHT}\n# end", "    return math.isqrt(number)\n"),
        ("def root(number):\n    return number\n", "    pass\n\ndef root(number):\n    return number\n"),
        ("def root_of(number):\n    return number\n", "\n"),
        (f"{RIGHT}```\nThat is all.\n", "    return math.isqrt(number)\n"),
        (f"{RIGHT}\ndef root(number):\n    return math.isq", "    return math.isqrt(number)\n"),
        (f"{RIGHT}\n```python\ndef root(number):\n    return 0\n```", "    return math.isqrt(number)\n"),
        (f"\n{RIGHT}", "\n    return math.isqrt(number)\n"),
        ("def root(number):\n    return number\n```\nThat is all.", "    pass\n\ndef root(number):\n    return number\n"),
        (" Sure:\n```python\ndef root(number):\n    return number\n```", "    pass\n\ndef root(number):\n    return number\n"),
        ("   if number:\n        return 1\n    return 0", "    if number:\n        return 1\n    return 0\n"),
        ("Only words.", "\n"),
        ("```", "\n"),
    ],
)
def test_a_completion_continues_the_prompt_or_replaces_the_function(completion: str, kept: str) -> None:
    assert whole_program(TASK, completion).split(PROMPT.rstrip() + "\n", 1)[1].strip("\n") == f"{kept}\n{TESTS}\ncheck(root)".strip("\n")


def test_without_tasks_there_is_no_share() -> None:
    assert math.isnan(pass_at_one([]))
    assert pass_at_one([CodeRun("a", "", Outcome("died"))]) == 0.0
