"""What a model wrote runs isolated or not at all, and is judged from outside.

Where this machine cannot isolate, the tests that need it say so and are skipped; the refusal itself is tested everywhere.
"""

import math
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from floatlens.errors import Refusal
from floatlens.tasks import code_isolation, code_runs
from floatlens.tasks.code_runs import (
    CodeRun,
    Outcome,
    pass_at_one,
    require_isolation,
    run_code_tasks,
    whole_program,
)
from floatlens.tasks.readers import CodeTask
from jailed_programs import isolated, isolation_works, judged_by, processes, run

PROMPT = 'import math\n\n\ndef root(number):\n    """The square root, rounded down."""\n'
TESTS = "def check(candidate):\n    assert candidate(17) == 4\n    assert candidate(0) == 0\n"
RIGHT = "    return math.isqrt(number)\n"
TASK = CodeTask("mine/0", PROMPT, TESTS, "root", RIGHT)


@pytest.mark.skipif(isolation_works(), reason="this machine can isolate")
def test_without_namespaces_nothing_is_run() -> None:
    with pytest.raises(Refusal, match="cannot be isolated here, so none is run"):
        require_isolation()


REASONS = {
    "another system": "this is Darwin, and the namespaces are Linux's",
    "another processor": "system calls are filtered on x86_64 and aarch64, and this is riscv64",
    "no bwrap": "the command bwrap is not installed",
    "a bwrap that fails": "bwrap: No permissions to create new namespace",
    "a bwrap that does nothing": "bwrap said nothing",
    "a bwrap that cannot be started": "[Errno 8] Exec format error: ",
}


@pytest.mark.parametrize("obstacle", REASONS)
def test_where_isolation_is_not_available_nothing_is_run(obstacle: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    marker, fake = tmp_path / "ran", tmp_path / "bwrap"
    monkeypatch.setattr("platform.system", lambda: "Darwin" if obstacle == "another system" else "Linux")
    machines = {"another processor": "riscv64", "another system": "arm64"}
    monkeypatch.setattr("platform.machine", lambda: machines.get(obstacle, "x86_64"))
    if obstacle != "no bwrap":
        fails = "#!/bin/sh\necho bwrap: No permissions to create new namespace. >&2; exit 1\n"
        fake.write_text({"a bwrap that fails": fails, "a bwrap that does nothing": "#!/bin/sh\nexit 0\n"}.get(obstacle, "nothing"))
        fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Refusal) as refused:
        run(f"open({str(marker)!r}, 'w')")
    why = REASONS[obstacle] + (repr(str(fake)) if obstacle == "a bwrap that cannot be started" else "")
    assert str(refused.value) == (
        f"Programs cannot be isolated here, so none is run: {why}. It takes Linux, "
        "the command bwrap (Debian's package bubblewrap: apt install bubblewrap) and user "
        "namespaces that this user may make; in a container, they must be allowed."
    )
    assert not marker.exists()


def test_nothing_is_run_unless_asked_for() -> None:
    with pytest.raises(Refusal, match="allow_running=True"):
        run_code_tasks([TASK], [RIGHT])


@isolated
def test_right_solutions_pass_and_wrong_ones_do_not() -> None:
    wrong = ["    return 4\n", "    return\n", "    return number +\n", "    raise SystemExit(0)\n", "    import os\n    os._exit(0)\n"]
    fenced = f"Here it is:\n```python\n{PROMPT}{RIGHT}```\nI hope it helps.\n"
    runs = run_code_tasks([TASK] * 7, [RIGHT, fenced, *wrong], allow_running=True)
    assert [run.passed for run in runs] == [True, True] + [False] * 5
    assert pass_at_one(runs) == 2 / 7
    assert [run.outcome.how for run in runs[2:]] == ["failed", "failed", "failed", "failed", "died"]
    assert [run.outcome.detail.split(":")[0] for run in runs[2:6]] == ["AssertionError", "AssertionError", "SyntaxError", "SystemExit"]


@isolated
@pytest.mark.parametrize("where", ["in the program", "in the tests"])
def test_an_endless_loop_is_stopped(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_runs, "PATIENCE", 600.0)  # a busy machine may take long to give it a second
    endless = "while True:\n    try:\n        while True: pass\n    except BaseException: pass"
    if where == "in the program":
        assert run(endless, seconds=1) == Outcome("timed out", "it was stopped after 1 s of processor time")
    else:
        outcome = judged_by(endless, "def answer(): pass", seconds=1)
        assert outcome == Outcome("timed out", "the process of its tests was stopped after 1 s of processor time")


@isolated
def test_waiting_is_stopped_and_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    before = processes()
    monkeypatch.setattr(code_runs, "PATIENCE", 1.0)
    assert run("import time\ntime.sleep(3600)", seconds=0.1) == Outcome("timed out", "it was still there after 1.3 seconds")
    assert processes() <= before, "each is waited for, and bwrap waits for what it started"


@isolated
def test_an_interrupted_run_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    before = processes()
    monkeypatch.setattr(code_runs, "_said", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run("import time\ntime.sleep(3600)")
    assert processes() <= before


@isolated
def test_when_floatlens_is_killed_its_programs_die_with_it() -> None:
    script = "from jailed_programs import run; print('started', flush=True); run('import time; time.sleep(3600)', seconds=1000)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*filter(None, sys.path)])}
    with subprocess.Popen([sys.executable, "-c", script], env=environment, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"started\n"
        itself = psutil.Process(other.pid)
        started: list[psutil.Process] = []
        while sorted(process.name() == "bwrap" for process in started) != [False, False, True, True]:  # each bwrap and its interpreter
            assert other.poll() is None
            time.sleep(0.05)
            started = itself.children(recursive=True)
        other.kill()
    while running := [process for process in started if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]:
        psutil.wait_procs(running, timeout=1)  # as long as it takes: what hangs here is a process that lives on


@isolated
@pytest.mark.parametrize("program", ["hoard = bytearray(1 << 30)", "hoard = []\nwhile True: hoard.append(bytearray(1 << 24))"])
def test_a_memory_hog_is_stopped(program: str) -> None:
    assert run(program, memory=1 << 28) == Outcome("failed", "MemoryError")


@isolated
def test_there_is_no_network_not_even_this_machine() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.1)
        outcome = run(f"import socket\nsocket.create_connection(('127.0.0.1', {server.getsockname()[1]}), 5)")
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
    assert run(program) == Outcome("passed")
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
    assert run(read_only) == Outcome("passed")
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
    assert run(program) == Outcome("passed")


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
        assert run(program) == Outcome("passed")


@isolated
def test_what_a_program_prints_goes_nowhere_and_there_is_nothing_to_read() -> None:
    assert run("import sys\nassert sys.stdin.read() == ''\nprint('x' * (1 << 25), flush=True)\nprint('y', file=sys.stderr)") == Outcome(
        "passed"
    )


def test_beside_the_interpreter_only_its_programs_and_libraries_are_seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("bin", "lib/python3", "share"):  # as under ~/.local, where other things of the user lie
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.setattr("sys.executable", str(tmp_path / "bin" / "python3"))
    monkeypatch.setattr("sysconfig.get_path", lambda _name, **_vars: str(tmp_path / "lib" / "python3"))
    own = [path for path in code_isolation.visible() if path not in code_isolation.SYSTEM]
    assert own == [str(tmp_path / "bin"), str(tmp_path / "lib")]


@pytest.mark.skipif(sys.prefix == sys.base_prefix, reason="not in a virtual environment")
def test_packages_of_a_virtual_environment_are_not_seen() -> None:
    environment = os.path.realpath(sys.prefix)
    own = [path for path in code_isolation.visible() if path not in code_isolation.SYSTEM]
    assert not [path for path in own if path.startswith(environment) or environment.startswith(path)]


def test_limits_that_nothing_could_run_in_are_refused() -> None:
    for seconds, memory in ((0, 1 << 30), (math.nan, 1 << 30), (math.inf, 1 << 30), (1e9, 1 << 30), (1, 1 << 20), (1, 1 << 70)):
        with pytest.raises(Refusal, match="at least 128 MiB"):
            run("pass", seconds=seconds, memory=memory)
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
    assert whole_program(TASK, completion).split(PROMPT.rstrip() + "\n", 1)[1].strip("\n") == kept.strip("\n")


def test_without_tasks_there_is_no_share() -> None:
    assert math.isnan(pass_at_one([]))
    assert pass_at_one([CodeRun("a", "", Outcome("died"))]) == 0.0
