"""A process that has imported everything and runs `floatlens study` in forks of itself, whose workers come from one fork server.

It says "ready", and then reads one JSON object per line: {"run": [words], "said": file} starts a command and answers with its process
number; {"wait": process} answers with its exit code, negative for a signal; {"workers": true} answers with the numbers of the worker
processes that live.
"""

import json
import os
import sys
from multiprocessing import forkserver, get_context
from typing import Any

import psutil
import torch

import floatlens.study.running
import floatlens.study.settling
from floatlens.cli import run
from floatlens.models.loading import load

SERVER: Any = forkserver._forkserver  # type: ignore[attr-defined]  # the module keeps its one server private


def start(words: list[str], said: str) -> int:
    """Run a command in a fork; its process number."""
    if child := os.fork():
        return child
    output = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    SERVER.ensure_running = lambda: None  # it is the server of this process's parent, and runs
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


def serve() -> None:
    """Answer line by line."""
    torch.set_num_threads(1)
    load("twin-arm").generate("Where?", gen_length=1)  # what is imported at first use
    assert floatlens.study.settling.LOST_AT_MOST > 1
    get_context("forkserver").set_forkserver_preload(["floatlens.study.worker"])
    forkserver.ensure_running()
    print("ready", flush=True)
    for line in sys.stdin:
        told = json.loads(line)
        if "run" in told:
            answer: Any = start(told["run"], told["said"])
        elif "workers" in told:
            answer = [worker.pid for worker in psutil.Process(SERVER._forkserver_pid).children(recursive=True)]
        else:
            answer = os.waitstatus_to_exitcode(os.waitpid(told["wait"], 0)[1])
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    serve()
