"""Tables that fit the terminal: nothing is cut, whatever its width.

A table says which of its columns may be left out. Where all of it does not fit, those go, the last first, and their names are handed back, so that one sentence can say where else the numbers are; tables of one kind show the same columns.
Where that is not enough, intervals move below their numbers; where even that is not, names are folded.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from floatlens.report.tables import narrow_table
from floatlens.terminal import visible

ANY_WIDTH = 10_000


@dataclass(frozen=True)
class Column:
    """A heading and one cell a row. `optional` columns are left out where there is no room."""

    heading: str
    cells: Sequence[str]
    optional: bool = False
    right: bool = False

    @property
    def name(self) -> str:
        """The heading on one line."""
        return " ".join(self.heading.split())


def print_fitting(console: Console, tables: Sequence[tuple[str, Sequence[Column]]]) -> list[str]:
    """Print tables of one kind, each with its title; the first column of each holds names. Gives the names of the columns for which there was no room in one of them, and which none of them shows.

    Examples
    --------
    >>> columns = [Column("context", ["gold"]), Column("accuracy", [".500 [.250, .750]"]), Column("F1", [".510 [.260, .760]"], optional=True)]
    >>> print_fitting(Console(width=40), [("a model", columns)])  # doctest: +NORMALIZE_WHITESPACE
    a model
    context  accuracy
    ──────────────────────────
    gold     .500 [.250, .750]
    <BLANKLINE>
    ['F1']
    """
    optional = list(dict.fromkeys(column.name for _, columns in tables for column in columns if column.optional))
    left_out: list[str] = []
    while optional and not all(_fits(console, _table(columns, left_out)) for _, columns in tables):
        left_out.insert(0, optional.pop())
    for title, columns in tables:
        console.print(Text(visible(title), style="bold"), highlight=False)
        table = _table(columns, left_out)
        console.print(table if _fits(console, table) else _table(columns, left_out, stacked=True), highlight=False)
        console.print()
    return left_out


def _table(columns: Sequence[Column], left_out: Sequence[str], stacked: bool = False) -> Table:
    shown = [column for column in columns if column.name not in left_out]
    table = narrow_table()
    table.show_edge = False
    for place, column in enumerate(shown):
        table.add_column(column.heading, no_wrap=place > 0, overflow="fold", justify="right" if column.right else "left", vertical="top")
    for cells in zip(*(column.cells for column in shown), strict=True):
        table.add_row(*(Text(visible(cell.replace(" [", "\n[") if stacked else cell)) for cell in cells))
    return table


def _fits(console: Console, table: Table) -> bool:
    return Measurement.get(console, console.options.update(max_width=ANY_WIDTH), table).maximum <= console.width
