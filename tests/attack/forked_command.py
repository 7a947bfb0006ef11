"""Run a floatlens command in a fork of this process, which has imported everything already."""

import os
import sys
from collections.abc import Callable
from typing import Any

import torch

from floatlens.cli import run


def start(words: list[str], said: str, first: Callable[[], object]) -> int:
    """Run a command in a fork, where `first` is called before; what it says goes to a file. The number of the process."""
    if child := os.fork():
        return child
    output = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    torch.set_num_threads(1)  # makes torch's pool of threads anew: two threads that did so at once, as weights are read, would race
    first()
    sys.argv = ["floatlens", *words]
    code: Any = 1
    try:
        run()
    except SystemExit as ended:
        code = ended.code or 0
    except BaseException as error:
        print(f"Traceback: {error!r}", flush=True)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def exit_code(process: int) -> int:
    """That of a fork, once it has ended; negative for a signal."""
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
