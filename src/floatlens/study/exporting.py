"""Write the tables of a study, one Parquet file each, and the traces that it kept, into a folder of their own."""

from pathlib import Path

from floatlens.folders import unfinished_folder
from floatlens.study.records import Found, look_through, read_plan, read_unit
from floatlens.study.sealed import TRACE_FOLDER
from floatlens.study.store import Store
from floatlens.study.tables import all_tables, write_tables
from floatlens.study.units import TRACE, Unit
from floatlens.tasks.conditions import as_file_name
from floatlens.terminal import progress_bar

WRITTEN_BY = "floatlens study export"


def export_study(store: Store, into: Path | None = None, *, progress: bool = True) -> tuple[list[str], list[str]]:
    """Write the tables. Returns the names of the files, and a sentence for each thing that is missing in them.

    Parameters
    ----------
    store
        Where the study is.
    into
        A new folder, which then also holds the traces; by default `tables/` in the study's own place.
    progress
        Show a progress bar.
    """
    plan = read_plan(store)
    found = look_through(store, plan.units, progress=progress)
    if into is None:
        with store.running():
            said = write_tables(store, plan.units, found)
        return store.names("tables"), said
    with unfinished_folder(into, WRITTEN_BY) as unfinished:
        tables, said = all_tables(store, plan.units, found)
        for name, table in tables.items():
            table.write_parquet(unfinished.folder / f"{name}.parquet")
        traces = _write_traces(store, plan.units, found, unfinished.folder, progress)
    return [*(f"{name}.parquet" for name in tables), *(["traces"] if traces else [])], said


def _write_traces(store: Store, units: tuple[Unit, ...], found: Found, folder: Path, progress: bool) -> int:
    """Unpack the traces that were kept; how many."""
    traced = [unit for unit in units if unit.kind == TRACE and unit.id in found.finished]
    count = 0
    with progress_bar(len(traced), "Writing traces", show=progress) as advance:
        for unit in traced:
            stored = read_unit(store, unit)
            count += bool(stored.trace_files)
            for name in stored.trace_files:
                file = folder / "traces" / trace_name(unit) / name.removeprefix(TRACE_FOLDER)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(stored.archive.read(name))
            advance(1)
    return count


def trace_name(unit: Unit) -> str:
    """The folder of a unit's trace below `traces`.

    Examples
    --------
    >>> trace_name(Unit(TRACE, "world", "twin-arm", "noise:0.8", "", "", None, 0, "default", 25, 2, {}))
    'world/twin-arm/noise-0.8-default-seed-0-from-26.zarr'
    """
    context = as_file_name(unit.context) or "prompts"
    name = f"{context}-{as_file_name(unit.sampler)}-seed-{unit.seed}-from-{unit.first + 1}.zarr"
    return f"{as_file_name(unit.task)}/{as_file_name(unit.model)}/{name}"
