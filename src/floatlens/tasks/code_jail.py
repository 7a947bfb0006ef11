"""The inside of `code_runs`: a script that locks itself in, runs one program, and says how it ended. Never imported, and stands on the standard library alone.

It is started in namespaces of its own (mounts, network, processes) with a job on its standard input, and then gives up, in this order: the file system (all that is left is the
interpreter and the system's libraries, read-only, and an empty folder in memory), its user if that is root, every capability and the
way to get one back, further processes and threads, memory and processor time above the limits, and its open files. Any step that fails ends it before the program is looked at: it never runs half
protected. What it says goes to what was its standard output, through a descriptor that the program is not told of: a line when all doors are closed, and one at the end, both with the job's secret.
"""

import ctypes
import json
import os
import resource
import sys

BIND, RECURSIVE_BIND, NOSUID, NODEV = 4096, 16384, 2, 4
MOUNT_SETATTR, HERE, RECURSIVELY = 442, -100, 0x8000
READ_ONLY = 1 | 2 | 4  # read-only, no set-user-id, no devices
DROP_FROM_BOUNDING_SET, NO_NEW_PRIVILEGES, DIE_WITH_PARENT, NO_CORE_AND_NO_TRACING = 24, 38, 1, 4
KILL = 9
NOBODY = 65534
CAPABILITIES_VERSION = 0x20080522
ROOM = "size=16m,nr_inodes=1000,mode=1777"

_libc = ctypes.CDLL(None, use_errno=True)


def _main() -> None:
    """Read the job, lock everything, run the program, say how it ended."""
    job = json.loads(sys.stdin.buffer.read())
    nothing = os.open(os.devnull, os.O_RDWR)
    _build_root(job["folder"], job["visible"])
    os.chroot(job["folder"])
    os.chdir("/tmp")
    verdict = os.dup(1)
    _give_up_privileges(job["as_nobody"])
    _limit(job["seconds"], job["memory"])
    for standard in (0, 1, 2):  # last: until here, what goes wrong must be heard outside
        os.dup2(nothing, standard)
    os.closerange(verdict + 1, 4096)
    os.closerange(3, verdict)
    _say(verdict, {"secret": job["secret"], "ready": True})
    _say(verdict, {"secret": job["secret"], **_run(job["program"])})
    os._exit(0)


def _build_root(folder: str, visible: list[str]) -> None:
    """A file system in memory with what may be seen, read-only, and a folder to write in."""
    _call("mount", b"none", folder.encode(), b"tmpfs", NOSUID | NODEV, b"mode=755")
    os.mkdir(folder + "/tmp")
    _call("mount", b"none", f"{folder}/tmp".encode(), b"tmpfs", NOSUID | NODEV, ROOM.encode())  # first: an interpreter may lie in /tmp
    for path in visible:
        inside = folder + path
        os.makedirs(os.path.dirname(inside), exist_ok=True)
        if os.path.islink(path):
            os.symlink(os.readlink(path), inside)
            continue
        os.makedirs(inside, exist_ok=True)
        _call("mount", path.encode(), inside.encode(), None, BIND | RECURSIVE_BIND, None)
        _read_only(inside, RECURSIVELY)
    _read_only(folder, 0)


def _read_only(folder: str, how: int) -> None:
    """Make a mount read-only, and those below it if asked to."""
    attributes = (ctypes.c_uint64 * 4)(READ_ONLY, 0, 0, 0)  # set, clear, propagation, user namespace
    _call("syscall", MOUNT_SETATTR, HERE, folder.encode(), how, ctypes.byref(attributes), ctypes.sizeof(attributes))


def _give_up_privileges(as_nobody: bool) -> None:
    """Become nobody if root, and lose every capability for good."""
    _call("prctl", NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    capability = 0
    while _libc.prctl(DROP_FROM_BOUNDING_SET, capability, 0, 0, 0) == 0:
        capability += 1
    if as_nobody:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    none = (ctypes.c_uint32 * 6)()
    _call("capset", ctypes.byref((ctypes.c_uint32 * 2)(CAPABILITIES_VERSION, 0)), ctypes.byref(none))
    _call("prctl", NO_CORE_AND_NO_TRACING, 0, 0, 0, 0)
    _call("prctl", DIE_WITH_PARENT, KILL, 0, 0, 0)  # `unshare` asked for it too, but another user forgets it


def _limit(seconds: int, memory: int) -> None:
    """Bound memory, processor time, files; allow no further process or thread."""
    limits = {
        resource.RLIMIT_AS: memory,
        resource.RLIMIT_CPU: seconds,
        resource.RLIMIT_FSIZE: 1 << 23,
        resource.RLIMIT_NOFILE: 64,
        resource.RLIMIT_NPROC: 0,
        resource.RLIMIT_CORE: 0,
    }
    for kind, most in limits.items():
        resource.setrlimit(kind, (most, most))


def _run(program: str) -> dict[str, str]:
    """Run a program to its end, or to whatever it raises."""
    try:
        exec(compile(program, "program", "exec"), {"__name__": "program"})
    except BaseException as error:  # SystemExit too: a program that leaves early did not pass
        return {"how": "failed", "detail": f"{type(error).__name__}: {error}"[:300].strip().removesuffix(":")}
    return {"how": "passed", "detail": ""}


def _say(verdict: int, what: dict[str, object]) -> None:
    """One line for the process outside."""
    os.write(verdict, json.dumps(what).encode() + b"\n")


def _call(name: str, *arguments: object) -> None:
    """A call of the C library; what it refuses is an error."""
    if getattr(_libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


if __name__ == "__main__":
    _main()
