"""Who shows traces in a notebook: a trace asks here, and the package says it when it is imported (`floatlens/__init__.py`).

The page knows traces, and traces do not know the page: what makes the widget is handed down to them.
"""

from collections.abc import Callable
from typing import Any

from floatlens.errors import BrokenPromise

_viewers: list[Callable[..., Any]] = []


def show_traces_with(viewer: Callable[..., Any]) -> None:
    """Let `trace.view()` call this function, with the trace and what the user chose."""
    _viewers[:] = [viewer]


def viewer() -> Callable[..., Any]:
    """The function that shows traces."""
    if not _viewers:
        raise BrokenPromise("Nothing that shows traces was registered when floatlens was imported (floatlens/__init__.py).")
    return _viewers[0]
