"""What the place of a study holds besides its results: the plan, the runs, failures, the index; and what can be told from them.

| file | what it holds |
|---|---|
| `study.toml`, `plan.json` | the file as it was run last, and its units |
| `units/ID.zip` | a finished unit (`floatlens.study.sealed`) |
| `failures/ID.1.json` | why the first try of a unit failed, with the traceback |
| `runs/0001.json`, `.toml` | each run: when, by which command, versions, hardware, digests; and the file as it was then |
| `index.json` | written when a run ends: every finished unit with its SHA-256, so that one that is lost later is noticed |
| `tables/` | one Parquet file per table, as of the last run that ended |

A unit is finished if its file is there and whole; nothing else says so. A file that is damaged is removed, and its unit runs again.
"""

import hashlib
import json
import os
import platform
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from floatlens._version import __version__
from floatlens.errors import Refusal, shown
from floatlens.study.planning import Plan
from floatlens.study.sealed import Damaged, StoredUnit, unseal
from floatlens.study.store import MARK, Store
from floatlens.study.units import Unit, unit_file, unit_of
from floatlens.terminal import progress_bar

FORMAT = 1
_SEAL = slice(len(b"floatlens unit 1 "), len(b"floatlens unit 1 ") + 64)


@dataclass(frozen=True)
class StoredPlan:
    """The plan of a study as it is stored. `again` is how often a unit that fails is tried again."""

    name: str
    again: int
    units: tuple[Unit, ...]

    @property
    def by_id(self) -> dict[str, Unit]:
        """Each unit once, by its id, in the order of the plan."""
        return {unit.id: unit for unit in self.units}


@dataclass(frozen=True)
class Found:
    """The state of a study's units: `finished` with the SHA-256 of each, `damaged` with the reason, `lost` since the index was written,
    `failures` by id, and `stale`, finished units that the plan does not have any more."""

    finished: Mapping[str, str]
    damaged: Mapping[str, str]
    lost: Sequence[str]
    failures: Mapping[str, Sequence[Mapping[str, Any]]]
    stale: Mapping[str, Unit]

    def gave_up(self, unit_id: str, again: int) -> bool:
        """Whether a unit has failed as often as the file allows, or was refused, which it would be again."""
        tries = self.failures.get(unit_id, ())
        return unit_id not in self.finished and (len(tries) > again or any(each["refused"] for each in tries))


def write_plan(store: Store, plan: Plan) -> None:
    """Write the file as it is run, and its units."""
    content = {"format": FORMAT, "name": plan.study.name, "again": plan.study.run.retries, "units": [unit.as_dict() for unit in plan.units]}
    sealed = {**content, "sha256": _digest(content)}
    store.replace(MARK, (json.dumps(sealed) + "\n").encode())  # first: by it the folder is known as that of a study
    store.replace("study.toml", plan.text.encode())


def read_plan(store: Store) -> StoredPlan:
    """The plan that is stored."""
    content = store.read(MARK)
    if content is None:
        raise Refusal(f"{store.address} holds no study. Start one there: floatlens study run STUDY -o {store.address}")
    try:
        stored = json.loads(content)
        if stored["format"] != FORMAT:
            raise Refusal(
                f"{store.address} holds a study of format {shown(stored['format'])}, and this version reads {FORMAT}. Update floatlens."
            )
        if stored.pop("sha256", None) != _digest(stored):  # a number that is changed here would put results under another name
            raise Damaged("it was changed")
        return StoredPlan(stored["name"], stored["again"], tuple(map(unit_of, stored["units"])))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        if isinstance(error, Refusal):
            raise
        raise Refusal(
            f"{store.address}/{MARK} is damaged. Run the study into the same folder again: it is written anew, and finished units stay."
        ) from None


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def look_through(store: Store, units: Sequence[Unit], *, progress: bool = True) -> Found:
    """Read every finished unit, and say in which state the units of a plan are."""
    planned = {unit.id for unit in units}
    finished, damaged = dict[str, str](), dict[str, str]()
    stale: dict[str, Unit] = {}
    names = [name for name in store.names("units") if name.endswith(".zip")]
    with progress_bar(len(names), "Checking finished units", show=progress) as advance:
        for name in names:
            unit_id, content = name.removesuffix(".zip"), store.read(f"units/{name}")
            advance(1)
            if content is None:  # another runner has just removed it
                continue
            try:
                stored = unseal(content)
                if stored.unit.id != unit_id:
                    raise Damaged(f"it holds another unit, {stored.unit.id}")
            except Damaged as damage:
                damaged[unit_id] = str(damage)
                continue
            finished[unit_id] = content[_SEAL].decode()
            if unit_id not in planned:
                stale[unit_id] = stored.unit
    lost = [unit_id for unit_id in stored_index(store) if unit_id not in finished and unit_id not in damaged]
    return Found(finished, damaged, lost, _failures(store), stale)


def read_unit(store: Store, unit: Unit) -> StoredUnit:
    """A finished unit; refused if it is not there or damaged."""
    content = store.read(unit_file(unit.id))
    if content is None:
        raise Refusal(f"{unit.name} is not finished. Run the study again.")
    try:
        return unseal(content)
    except Damaged as damage:
        raise Refusal(
            f"{store.address}/{unit_file(unit.id)} is damaged: {damage}. Run `floatlens study verify`, and the study again."
        ) from None


def write_index(store: Store, found: Found) -> None:
    """Write down what is finished; the last file that a run writes about its units."""
    content = {"format": FORMAT, "units": dict(sorted(found.finished.items()))}
    store.replace("index.json", (json.dumps(content, indent=1) + "\n").encode())


def stored_index(store: Store) -> dict[str, str]:
    """The finished units that the index names, with the SHA-256 of each."""
    return _read_index(store) or {}


def index_is_damaged(store: Store) -> bool:
    """Whether there is an index that cannot be read, so that a unit that was lost since is not noticed."""
    return _read_index(store) is None


def _read_index(store: Store) -> dict[str, str] | None:
    """None where it is damaged; it is written again when the next run ends."""
    content = store.read("index.json")
    if content is None:
        return {}
    try:
        units = json.loads(content)["units"]
        return {str(unit_id): str(digest) for unit_id, digest in units.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _failures(store: Store) -> dict[str, list[dict[str, Any]]]:
    by_id: dict[str, list[dict[str, Any]]] = {}
    for name in store.names("failures"):
        try:
            record = json.loads(store.read(f"failures/{name}") or b"")
            by_id.setdefault(name.partition(".")[0], []).append({"error": "", "traceback": "", "refused": False, **record})
        except (ValueError, TypeError, RecursionError):
            by_id.setdefault(name.partition(".")[0], []).append({"error": f"{name} is damaged", "traceback": "", "refused": False})
    return by_id


def differences(stale: Mapping[str, Unit], units: Sequence[Unit]) -> dict[str, list[Unit]]:
    """Why finished units are not part of a plan any more: the units by what changed."""
    by_place = {unit.place: unit for unit in units}
    reasons: dict[str, list[Unit]] = {}
    for old in stale.values():
        new = by_place.get(old.place)
        if new is None:
            why = "not in the file any more"
        else:
            changed = sorted(name for name in {*old.depends, *new.depends} if old.depends.get(name) != new.depends.get(name))
            short = [
                f"{name} was {old.depends.get(name, 'not there')}, is {new.depends.get(name, 'not there')}"
                if len(old.depends.get(name, "")) < 40
                else f"{name} changed"
                for name in changed
            ]
            why = "; ".join(short) or "changed"
        reasons.setdefault(why, []).append(old)
    return reasons


def provenance(plan: Plan, command: Sequence[str], engine: str) -> dict[str, Any]:
    """Where, when and with what a run began."""
    import polars
    import torch
    import transformers

    memory = psutil.virtual_memory().total
    gpus = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
    return {
        "began": datetime.now(UTC).isoformat(),
        "command": list(command),
        "engine": engine,
        "host": socket.gethostname(),
        "system": platform.platform(),
        "python": sys.version.split()[0],
        "versions": {
            "floatlens": __version__,
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "polars": polars.__version__,
        },
        "processors": os.cpu_count(),
        "memory_bytes": memory,
        "gpus": gpus,
        "device": plan.device,
        "folder": str(plan.folder),
        "seeds": list(plan.study.seeds),
        "models": {model.choice.label: {"digest": model.choice.digest, "revision": model.examined.revision} for model in plan.models},
        "data": {Path(file).name: digest for file, digest in plan.data.items()},
        "git_commit": git_commit(),
    }


def git_commit() -> str | None:
    """The commit of the repository in which the command was started, with a plus if files in it were changed; None if there is none."""
    try:
        how: dict[str, Any] = {"capture_output": True, "text": True, "timeout": 10, "check": True}
        commit = subprocess.run(["git", "rev-parse", "HEAD"], **how).stdout.strip()
        changed = subprocess.run(["git", "status", "--porcelain", "--untracked-files=no"], **how).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
    return commit + "+" * bool(changed)


def write_run(store: Store, plan: Plan, about: Mapping[str, Any]) -> None:
    """Store the provenance of a run under the next number, with the file as it was run."""
    number = 1 + max((int(name[:4]) for name in store.names("runs") if name[:4].isdecimal()), default=0)
    while not store.create(f"runs/{number:04d}.json", (json.dumps(about, indent=1) + "\n").encode()):
        number += 1
    store.replace(f"runs/{number:04d}.toml", plan.text.encode())
    store.replace("README.md", README.format(name=plan.study.name, version=__version__).encode())


README = """# The study {name}

Written by `floatlens study run`, version {version}.

| file | what |
|---|---|
| `study.toml` | the file as it was run last |
| `tables/results.parquet` | every question under every condition: the exact prompt, what was written, how it was scored |
| `tables/summary.parquet` | means, gains, damage and interactions, with paired intervals over questions |
| `tables/measurements.parquet`, `measures.parquet` | every measure of every traced text, and their means (if the study traces) |
| `tables/units.parquet` | every unit: where it ran, how long it took, or why it failed |
| `units/` | the results of single units; each file says by itself whether it is whole |
| `failures/` | tries that failed, with tracebacks |
| `runs/` | when, where, with which versions, models (digests) and data (digests) each run was made |
| `plan.json`, `index.json` | the units of the study; those that were finished when the last run ended |

To reproduce it: install the same versions (`runs/*.json`), put the models and data files where `study.toml` looks for them, and

```sh
floatlens study run study.toml -o again
```

On the same kind of machine, with the same versions, `again/tables/results.parquet` is equal byte for byte.

```sh
floatlens study status .     # what is done and what failed
floatlens study results .    # the tables, printed
floatlens study verify .     # whether every file is still what was written
```
"""
