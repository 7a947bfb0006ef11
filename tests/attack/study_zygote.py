"""A process that has imported everything and runs `floatlens study` in forks of itself, whose workers come from one fork server.

It says "ready", and then reads one JSON object per line: {"run": [words], "said": file} starts a command and answers with its process
number; {"wait": process} answers with its exit code, negative for a signal; {"workers": true} answers with the numbers of the worker
processes that live.
"""

import json
import sys
from multiprocessing import forkserver, get_context
from typing import Any

import psutil
import torch
from forked_command import exit_code, start

import floatlens.study.running
import floatlens.study.settling
from floatlens.models.loading import load

SERVER: Any = forkserver._forkserver  # type: ignore[attr-defined]  # the module keeps its one server private


def use_our_server() -> None:
    """In a fork: workers come from the server of this process's parent, which runs."""
    SERVER.ensure_running = lambda: None


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
            answer: Any = start(told["run"], told["said"], use_our_server)
        elif "workers" in told:
            answer = [worker.pid for worker in psutil.Process(SERVER._forkserver_pid).children(recursive=True)]
        else:
            answer = exit_code(told["wait"])
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    serve()
