"""A progress bar for what takes longer than two seconds, and nothing for what does not."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from floatlens.terminal import make_console, on_one_line

PATIENCE = 2.0


@contextmanager
def progress_bar(total: int, title: str, *, show: bool = True) -> Iterator[Callable[[int], None]]:
    """Yields a function that reports progress. The bar appears on stderr once two seconds have passed, if stderr is a terminal.

    Examples
    --------
    >>> with progress_bar(3, "Counting") as advance:
    ...     for _ in range(3):
    ...         advance(1)
    """
    if not show or not sys.stderr.isatty():
        yield lambda _count: None
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=make_console(stderr=True), transient=True)
    task = bar.add_task(on_one_line(title), total=total)
    began = time.monotonic()

    def advance(count: int) -> None:
        bar.advance(task, count)
        if not bar.live.is_started and time.monotonic() - began > PATIENCE:
            bar.start()

    try:
        yield advance
    finally:
        bar.stop()
