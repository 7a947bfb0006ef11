"""Start a Python script that neither sees nor reaches anything outside, and end it without a trace; for `code_runs`.

The isolation is Linux's, through `bwrap` (Debian's package `bubblewrap`): namespaces of its own for users, mounts, network, processes,
IPC and names; the user nobody inside, without any capability and without a way to a further user namespace; a session of its own; a file
system of the interpreter and the system's libraries, read-only, and an empty folder in memory; no `/proc`, no `/dev`, no environment. A
filter in the kernel (seccomp) refuses further processes and threads, since the limit of their number does not bind root, and what would
hold memory that no limit counts (System V shared memory, memfd) or only widens the kernel's surface (tracing, mounts, BPF, io_uring,
keys). The script lowers its own limits before it runs anything (`code_jail`).

Refused, with the reason and what to do: a system that is not Linux, a processor whose system calls the filter does not know, a missing
`bwrap`, namespaces that may not be made. There is no unprotected way.
"""

import json
import os
import platform
import select
import shutil
import struct
import subprocess
import sys
import sysconfig
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import psutil

from floatlens.errors import Refusal

JAIL = Path(__file__).with_name("code_jail.py")
SYSTEM = ("/usr", "/lib", "/lib64", "/nix/store")
ROOM = 1 << 24  # bytes of the folder to write in
NOBODY = "65534"
ENOUGH_TO_READ = 1 << 16  # bytes of what a script says before it is locked in
GRACE = 2.0  # seconds that a script gets to leave by itself when it is no longer needed, also on a busy machine

# What the filter refuses: the number of each system call on x86-64 and on ARM; None where there is no such call.
REFUSED_CALLS: dict[str, tuple[int | None, int | None]] = {
    "fork": (57, None),
    "vfork": (58, None),
    "clone": (56, 220),
    "clone3": (435, 435),
    "unshare": (272, 97),
    "setns": (308, 268),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "shmget": (29, 194),
    "semget": (64, 190),
    "msgget": (68, 186),
    "mq_open": (240, 180),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "mount_setattr": (442, 442),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
}
PROCESSORS = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # the column above, and the kernel's name of the architecture
OTHER_CALLS_OF_X86 = 0x40000000  # numbers of its second, rarely used set of calls
LOAD_WORD, JUMP_IF_EQUAL, JUMP_IF_AT_LEAST, RETURN = 0x20, 0x15, 0x35, 0x06
ALLOW, REFUSE, END_IT = 0x7FFF0000, 0x00050001, 0x80000000  # REFUSE: "operation not permitted"


def not_isolated(why: str) -> Refusal:
    """The refusal for a machine that cannot isolate."""
    return Refusal(
        f"Programs cannot be isolated here, so none is run: {why.strip().rstrip('.')}. It takes Linux, "
        "the command bwrap (Debian's package bubblewrap: apt install bubblewrap) and user "
        "namespaces that this user may make; in a container, they must be allowed."
    )


def can_be_read(descriptor: int, seconds: float) -> bool:
    """Wait until a descriptor has something to read, or its other end is gone; False if that takes longer."""
    waiting = select.poll()  # not select, which takes no descriptor above 1023
    waiting.register(descriptor, select.POLLIN)
    return bool(waiting.poll(1000 * seconds))


@dataclass(frozen=True)
class Ended:
    """How an isolated script ended: its exit status (above 128: 128 and the signal that ended it), and the processor time it used."""

    status: int
    processor_seconds: float


class Isolated:
    """A script of `code_jail` that runs isolated, with a job on its standard input and the descriptors it is given.

    `stop` ends it, and must be called.
    """

    def __init__(self, part: str, job: dict[str, Any], channels: list[int]) -> None:
        self._ended: Ended | None = None
        script = [os.path.realpath(sys.executable), "-I", "-S", "-B", "-X", "utf8", "/jail.py", part, *map(str, channels)]
        isolator = _isolator()
        with _file_with(json.dumps(job).encode()) as given, _file_with(system_call_filter()) as filtered:
            command = [isolator, *_isolating(filtered.fileno()), *script]
            self._complaints: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (`close` closes it)
            try:
                self._process = subprocess.Popen(
                    command,
                    stdin=given,
                    stdout=subprocess.DEVNULL,
                    stderr=self._complaints,
                    env={},
                    cwd="/",
                    pass_fds=(filtered.fileno(), *channels),
                    start_new_session=True,
                )
                self._watched = os.pidfd_open(self._process.pid)
            except OSError as error:
                self._complaints.close()
                raise not_isolated(str(error)) from None

    def complaint(self) -> str:
        """The last line of what it said before it was locked in; nothing if it said nothing."""
        self._complaints.seek(0)
        lines = self._complaints.read(ENOUGH_TO_READ).decode(errors="replace").split("\n")
        return next((line for line in reversed(lines) if line.strip()), "")

    def stop(self, *, at_once: bool = False) -> Ended:
        """End it, at once or if it does not leave by itself, and wait until it and everything in its namespaces is gone."""
        if self._ended is None:
            if at_once or not can_be_read(self._watched, GRACE):
                self._kill()
            _, status, used = os.wait4(self._process.pid, 0)
            self._process.returncode = os.waitstatus_to_exitcode(status)
            self._ended = Ended(self._process.returncode, used.ru_utime + used.ru_stime)
            os.close(self._watched)
        return self._ended

    def close(self) -> None:
        """End it, and forget what it said."""
        self.stop()
        self._complaints.close()

    def _kill(self) -> None:
        """Kill the first process of its namespace, which takes the others along and is waited for by `bwrap`; `bwrap` itself if that does
        not help.
        """
        try:
            for inside in psutil.Process(self._process.pid).children():
                inside.kill()
        except psutil.Error:  # it has just ended
            pass
        if not can_be_read(self._watched, GRACE):
            self._process.kill()


def _file_with(content: bytes) -> IO[bytes]:
    """A file without a name, to be read from its beginning."""
    file = tempfile.TemporaryFile()  # noqa: SIM115 (the caller closes it)
    file.write(content)
    file.seek(0)
    return file


def _isolator() -> str:
    """Where `bwrap` lies."""
    if platform.system() != "Linux":
        raise not_isolated(f"this is {platform.system()}, and the namespaces are Linux's")
    isolator = shutil.which("bwrap")
    if isolator is None:
        raise not_isolated("the command bwrap is not installed")
    return isolator


def _isolating(filter_descriptor: int) -> list[str]:
    """What `bwrap` is told, before the command that it is to run."""
    namespaces = ["user", "ipc", "pid", "net", "uts", "cgroup-try"]
    command = [*(f"--unshare-{namespace}" for namespace in namespaces), "--disable-userns", "--uid", NOBODY, "--gid", NOBODY]
    command += ["--cap-drop", "ALL", "--seccomp", str(filter_descriptor), "--new-session", "--die-with-parent", "--as-pid-1"]
    command += ["--hostname", "jail", "--size", str(ROOM), "--perms", "1777", "--tmpfs", "/tmp"]  # first: an interpreter may lie in /tmp
    for path in visible():
        command += ["--symlink", os.readlink(path), path] if os.path.islink(path) else ["--ro-bind", path, path]
    return [*command, "--ro-bind", str(JAIL), "/jail.py", "--remount-ro", "/", "--"]


def visible() -> list[str]:
    """What a script may see: the system's libraries and the folders of the interpreter, each under its own name and none twice."""
    itself = {"platbase": sys.base_exec_prefix}  # not the virtual environment, whose packages a program has no business with
    interpreter = (sys.executable, sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib", vars=itself))
    wanted = [*SYSTEM, *(os.path.dirname(os.path.realpath(path)) for path in interpreter)]
    chosen: list[str] = []
    for path in wanted:
        if os.path.isdir(path) and path != "/" and not any(path == other or path.startswith(f"{other}/") for other in chosen):
            chosen.append(path)
    return chosen


def system_call_filter() -> bytes:
    """The filter as the kernel takes it (classic BPF): end a program of another architecture, refuse the calls above, allow the others."""
    machine = platform.machine()
    if machine not in PROCESSORS:
        raise not_isolated(f"system calls are filtered on {' and '.join(PROCESSORS)}, and this is {machine or 'an unknown processor'}")
    column, architecture = PROCESSORS[machine]
    numbers = [row[column] for row in REFUSED_CALLS.values()]
    refused = [number for number in numbers if number is not None]
    steps = [(LOAD_WORD, 0, 0, 4), (JUMP_IF_EQUAL, 1, 0, architecture), (RETURN, 0, 0, END_IT), (LOAD_WORD, 0, 0, 0)]
    steps += [(JUMP_IF_AT_LEAST, len(refused) + 1, 0, OTHER_CALLS_OF_X86)]
    steps += [(JUMP_IF_EQUAL, len(refused) - place, 0, number) for place, number in enumerate(refused)]
    steps += [(RETURN, 0, 0, ALLOW), (RETURN, 0, 0, REFUSE)]
    return b"".join(struct.pack("=HBBI", *step) for step in steps)
