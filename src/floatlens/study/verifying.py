"""Check the place of a study: every finished unit's checksum and columns, and whether all that was finished is still there."""

from dataclasses import dataclass

import polars as pl

from floatlens.study.measured import MEASUREMENTS
from floatlens.study.outcomes import SCHEMA
from floatlens.study.records import index_is_damaged, look_through, read_plan, read_unit, stored_index
from floatlens.study.store import Store
from floatlens.study.units import QUESTIONS, Unit, unit_file
from floatlens.terminal import counted, progress_bar


@dataclass(frozen=True)
class Checked:
    """What was found: a sentence for each fault, sentences about what is merely not done yet, and how many units are whole."""

    faults: tuple[str, ...]
    said: tuple[str, ...]
    whole: int


def verify_study(store: Store, *, progress: bool = True) -> Checked:
    """Check every unit of a study.

    Parameters
    ----------
    store
        Where it is.
    progress
        Show a progress bar.
    """
    plan = read_plan(store)
    found = look_through(store, plan.units, progress=progress)
    faults = [f"{unit_file(unit_id)} is damaged: {why}." for unit_id, why in found.damaged.items()]
    units = {**plan.by_id, **found.stale}
    for unit_id in found.lost:
        faults.append(f"{unit_file(unit_id)} is missing: {units[unit_id].name if unit_id in units else 'a unit of an earlier plan'}.")
    if index_is_damaged(store):
        faults.append("index.json is damaged, so units that were lost since it was written cannot be named.")
    index, whole = stored_index(store), 0
    with progress_bar(len(found.finished), "Checking tables", show=progress) as advance:
        for unit_id, digest in found.finished.items():
            if unit_id in index and index[unit_id] != digest:
                faults.append(f"{unit_file(unit_id)} is whole, but not the file that the index names: it was replaced.")
            elif unit_id in plan.by_id and (fault := _fault(store, plan.by_id[unit_id])):
                faults.append(f"{unit_file(unit_id)}: {fault}.")
            else:
                whole += 1
            advance(1)
    waiting = [unit_id for unit_id in plan.by_id if unit_id not in found.finished and unit_id not in found.failures]
    failed = [unit_id for unit_id in plan.by_id if unit_id not in found.finished and unit_id in found.failures]
    said = []
    if open_units := [unit_id for unit_id in waiting if unit_id not in found.damaged and unit_id not in found.lost]:
        said.append(f"{counted(len(open_units), 'unit')} {'has' if len(open_units) == 1 else 'have'} not been run yet.")
    if failed:
        said.append(f"{counted(len(failed), 'unit')} failed: floatlens study status {store.address}")
    if found.stale:
        said.append(
            f"{counted(len(found.stale), 'stale unit')} of earlier versions of the file {'is' if len(found.stale) == 1 else 'are'} kept."
        )
    return Checked(tuple(faults), tuple(said), whole)


def _fault(store: Store, unit: Unit) -> str:
    """What is wrong with the tables of a unit whose file is whole; "" if nothing is."""
    stored = read_unit(store, unit)
    name, schema = ("results", SCHEMA) if unit.kind == QUESTIONS else ("measurements", MEASUREMENTS)
    table = stored.table(name)
    if table is None:
        return f"it has no table {name}"
    if table.schema != pl.Schema(schema):
        return f"its table {name} has other columns than this version writes"
    if unit.kind == QUESTIONS and len(table) != unit.count:
        return f"its table {name} has {len(table)} rows instead of {unit.count}"
    return ""
