"""The page of a demo: what was found just now, and what was recorded of real models, in one file that opens from the folder of the demo.

Decided here: it shows the first two texts of every model; more would make the file large and slow to write, and `floatlens view FOLDER`
shows all. Runs that were recorded beforehand are called by their models, because roles name the runs of the demo itself.
"""

from dataclasses import replace
from pathlib import Path

from floatlens.report.page.gather import Choices, Sources, find_sources
from floatlens.report.page.html import write_file
from floatlens.report.recorded import Recorded

PAGE = "index.html"
SHOWN = (0, 1)


def write_demo_page(folder: Path, name: str, recorded: Recorded | None, *, progress: bool = True) -> int:
    """Write the page into the folder of a demo, which is going to have that name; how many bytes the page has."""
    sources = called(find_sources([folder]), folder.name, name)
    if recorded is not None:
        sources = joined(sources, find_sources(recorded.sources), recorded.title)
    return write_file(folder / PAGE, sources, Choices(samples=SHOWN), progress=progress)


def called(sources: Sources, before: str, name: str) -> Sources:
    """The same sources, with another name for the folder of a demo."""
    changed = {kind: {name if key == before else key: value for key, value in getattr(sources, kind).items()} for kind in OF_FOLDERS}
    return replace(sources, **changed)


OF_FOLDERS = ("claims", "tables", "runs")
"""What is named after folders."""


def joined(own: Sources, others: Sources, title: str) -> Sources:
    """Both, with the runs of the second called after it; what the page opens with stays that of the first."""
    names = {name: f"{title}-{name}" for name in others.traces}
    runs = {source: {role: names[name] for role, name in of_role.items()} for source, of_role in others.runs.items()}
    return replace(
        own,
        traces={**own.traces, **{names[name]: trace for name, trace in others.traces.items()}},
        claims={**own.claims, **others.claims},
        tables={**own.tables, **others.tables},
        training={**own.training, **others.training},
        runs={**own.runs, **runs},
    )
