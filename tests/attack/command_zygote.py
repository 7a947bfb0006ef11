"""A process that has imported everything and runs commands in forks of itself.

A run that is to be killed thus takes as long as its work, not as long as importing torch.

It says "ready", and then reads one JSON object per line: {"run": [words], "in": folder, "log": file, "said": file} starts a command and
answers with its process number; {"wait": process} answers with its exit code, negative for a signal. A run appends to the log what it
finishes: "asked NAME" and "stored NAME" for each condition of an evaluation, "updated N" and "saved N" for each update of a training.
"""

import functools
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from forked_command import exit_code, start

import floatlens.lab.runs as runs
import floatlens.study.one_model as one_model
from floatlens.models.loading import load
from floatlens.study.sealed import unseal
from floatlens.study.store import FolderStore


def noting(log: Path, line: Callable[..., str], function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which appends a line to the log when it has ended."""

    @functools.wraps(function)
    def noted(*given: Any, **options: Any) -> Any:
        result = function(*given, **options)
        with log.open("a") as file:
            file.write(line(*given) + "\n")
        return result

    return noted


def prepare(folder: str, log: Path) -> None:
    """In a fork: go to its folder, and note what is finished."""
    os.chdir(folder)
    for place, name, note in (
        (one_model, "_ask", lambda lm, samples, condition, *_: f"asked {condition.name}"),
        (FolderStore, "create", lambda _store, _name, content: f"stored {unseal(content).unit.context}"),
        (runs, "run_update", lambda *given: f"updated {given[-1]}"),
        (runs, "save_state", lambda path, model, optimizer, standing: f"saved {standing.done}"),
    ):
        setattr(place, name, noting(log, note, getattr(place, name)))


def serve() -> None:
    """Answer line by line."""
    torch.set_num_threads(1)
    load("twin-arm").generate("Where?", gen_length=1)  # what is imported at first use
    print("ready", flush=True)
    for line in sys.stdin:
        told = json.loads(line)
        if "run" in told:
            print(start(told["run"], told["said"], functools.partial(prepare, told["in"], Path(told["log"]))), flush=True)
        else:
            print(exit_code(told["wait"]), flush=True)


if __name__ == "__main__":
    serve()
