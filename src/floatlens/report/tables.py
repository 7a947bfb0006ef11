"""Tables in the terminal that fit its width, and findings and contrasts in them and for programs (CSV, JSON).

Models are called by the last part of their name where that tells them apart. A number that is missing gets the number of a note, and
the notes are printed below the tables.
"""

import csv
import io
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from floatlens.measures.summary import Contrast, Finding, Summary
from floatlens.terminal import counted, on_one_line, visible

ANY_WIDTH = 10_000
NAME_WIDTH, WHOLE_WIDTH, NUMBER_WIDTH = 22, 32, 7  # columns of measures, of "all layers" with its null, of a single number


def short_names(models: Iterable[str]) -> dict[str, str]:
    """The last part of each name, since folders are long; the whole name where two models share the last part.

    Examples
    --------
    >>> short_names(["/home/me/models/twin-mdm/", "twin-arm"])
    {'/home/me/models/twin-mdm/': 'twin-mdm', 'twin-arm': 'twin-arm'}
    >>> short_names(["one/mdm", "two/mdm"])
    {'one/mdm': 'one/mdm', 'two/mdm': 'two/mdm'}
    """
    last = {model: model.rstrip("/").rpartition("/")[2] for model in models}
    short = list(last.values())
    return {model: name if short.count(name) == 1 else model for model, name in last.items()}


def print_findings(console: Console, summary: Summary, findings: Sequence[Finding], groups: Sequence[str]) -> None:
    """Print a table for each query group, one for what has none, and why numbers are missing."""
    about = summary.about
    console.print(
        f"{about['model']} ({about['family']}): {counted(len(set(summary.prompts)), 'prompt')}, "
        f"anchors by {about['rule']} > {number(about['eps'])}. "
        "Means over prompts, steps and heads with 95 % intervals; null: what even attention, chance or noise would give.\n",
        highlight=False,
    )
    notes: list[str] = []
    for group in [*groups, ""]:
        rows = [finding for finding in findings if finding.group == group]
        if rows:
            title = f"{group.capitalize()} rows" if group else "The answer's rows; masked against unmasked rows"
            for table in _tables(console.width, title, rows, notes):
                console.print(table)
    print_notes(console, notes)
    _print_skipped(console, summary.skipped)


def _tables(width: int, title: str, findings: Sequence[Finding], notes: list[str]) -> Iterator[Table]:
    """The findings in as many tables as it takes to fit the width: all layers and thirds of the depth, or layers."""
    depths = list(dict.fromkeys(finding.depth for finding in findings if finding.depth != "all"))
    with_whole = any(finding.depth == "all" for finding in findings)
    together = max(1, (width - NAME_WIDTH - with_whole * WHOLE_WIDTH) // NUMBER_WIDTH)
    yield _table(title, findings, depths[:together], with_whole, notes)
    rest = depths[together:]
    together = max(1, (width - NAME_WIDTH) // NUMBER_WIDTH)
    for first in range(0, len(rest), together):
        yield _table(f"{title}, continued", findings, rest[first : first + together], False, notes)


def _table(title: str, findings: Sequence[Finding], depths: Sequence[str], with_whole: bool, notes: list[str]) -> Table:
    by_depth = {(finding.measure, finding.part, finding.depth): finding for finding in findings}
    table = narrow_table(title)
    table.add_column("")
    if with_whole:
        table.add_column("all layers", no_wrap=True)
        table.add_column("null", justify="right", no_wrap=True)
    for depth in depths:
        table.add_column(depth, justify="right", no_wrap=True)
    measures: dict[str, list[str]] = {}
    for finding in findings:
        parts = measures.setdefault(finding.measure, [])
        if finding.part not in parts and (finding.prompts or not finding.part):
            parts.append(finding.part)  # no role that the text does not have, no region of no tokens
    for measure, parts in measures.items():
        unit, reason = next((finding.unit, finding.reason) for finding in findings if finding.measure == measure)
        if not parts:
            missing = [number(math.nan) + note_mark(reason, notes), number(math.nan)] if with_whole else []
            table.add_row(Text(_named(measure, unit)), *missing, *(number(math.nan) for _ in depths))
        elif parts != [""]:
            table.add_row(Text(_named(measure, unit)))
        for part in parts:
            whole = by_depth.get((measure, part, "all"))
            numbers = [by_depth.get((measure, part, depth)) for depth in depths]
            cells = ["", ""] if with_whole else []
            if whole and with_whole:
                cells = [with_interval(whole.value, whole.low, whole.high) + note_mark(whole.reason, notes), number(whole.null)]
            name = f"  {on_one_line(part)}" if part else _named(measure, unit)
            table.add_row(Text(name), *cells, *(number(finding.value) if finding else "" for finding in numbers))
    return table


@dataclass(frozen=True)
class Column:
    """A heading and one cell per row. `optional` columns are left out where there is no room."""

    heading: str
    cells: Sequence[str]
    optional: bool = False
    right: bool = False

    @property
    def name(self) -> str:
        """The heading on one line."""
        return " ".join(self.heading.split())


def print_fitting(console: Console, tables: Sequence[tuple[str, Sequence[Column]]]) -> list[str]:
    """Print tables of one kind, each with its title; the first column of each holds names. Nothing is cut, whatever the width.

    Where a table does not fit, optional columns are left out of all of them, the last first; the names of these columns are
    returned. Where that is not enough, intervals move below their numbers; where even that is not, names are folded.

    Examples
    --------
    >>> columns = [Column("context", ["gold"]), Column("accuracy", [".500 [.250, .750]"])]
    >>> columns += [Column("F1", [".510 [.260, .760]"], optional=True)]
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
    while optional and not all(_fits(console, _fitting_table(columns, left_out)) for _, columns in tables):
        left_out.insert(0, optional.pop())
    for title, columns in tables:
        console.print(Text(visible(title), style="bold"), highlight=False)
        table = _fitting_table(columns, left_out)
        console.print(table if _fits(console, table) else _fitting_table(columns, left_out, stacked=True), highlight=False)
        console.print()
    return left_out


def _fitting_table(columns: Sequence[Column], left_out: Sequence[str], stacked: bool = False) -> Table:
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


def narrow_table(title: str | None = None) -> Table:
    """A table without frames, for terminals of 80 columns.

    Examples
    --------
    >>> narrow_table("Masked rows").title
    'Masked rows'
    """
    return Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)


def _named(measure: str, unit: str) -> str:
    return f"{measure}, {unit}" if unit in ("%", "steps", "ratio", "slope") else measure


def print_contrasts(console: Console, names: tuple[str, str], contrasts: Sequence[Contrast], skipped: dict[str, str], paired: bool) -> None:
    """Print two traces side by side, over all layers."""
    prompts = max((contrast.prompts for contrast in contrasts), default=0)
    how = f"{counted(prompts, 'prompt')}, paired" if paired else f"{counted(prompts, 'prompt')} in all, not paired"
    console.print(
        f"a: {names[0]}   b: {names[1]}   ({how})\n"
        "Predicting rows and prompt keys, rescaled to the prompt; means over all layers (--csv and --json also give thirds of the depth). "
        "In parentheses the null, in brackets the 95 % interval; p of no difference, below .05 where the interval excludes 0.\n",
        highlight=False,
    )
    table = narrow_table()
    table.add_column("")
    for name in ("a", "b", "a - b"):
        table.add_column(name, no_wrap=True)
    table.add_column("p", justify="right", no_wrap=True)
    notes: list[str] = []
    for contrast in contrasts:
        if contrast.depth != "all":
            continue
        table.add_row(
            Text(_named(contrast.measure, contrast.unit)),
            f"{number(contrast.a)} ({number(contrast.a_null)})",
            f"{number(contrast.b)} ({number(contrast.b_null)})",
            with_interval(contrast.difference, contrast.low, contrast.high) + note_mark(contrast.reason, notes),
            number(contrast.p_value),
        )
    console.print(table)
    print_notes(console, notes)
    _print_skipped(console, skipped)


def as_csv(rows: Sequence[Finding] | Sequence[Contrast]) -> str:
    """One line per number; empty where there is none.

    Examples
    --------
    >>> print(as_csv([Finding("anchors", "keys", "masked", "", "all", 2.0, 1.0, 3.0, float("nan"), 4, "")]))
    measure,unit,group,part,depth,value,low,high,null,prompts,reason
    anchors,keys,masked,,all,2.0,1.0,3.0,,4,
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([field.name for field in fields(rows[0])] if rows else [])
    writer.writerows([["" if _is_nan(value) else value for value in asdict(row).values()] for row in rows])
    return text.getvalue().rstrip("\n")


def as_json(about: dict[str, Any], rows: Sequence[Finding] | Sequence[Contrast], skipped: dict[str, str]) -> str:
    """What was measured, the numbers (null where there is none), and what was left out and why."""
    numbers = [{name: None if _is_nan(value) else value for name, value in asdict(row).items()} for row in rows]
    return json.dumps({**about, "findings": numbers, "skipped": skipped}, indent=1)  # ASCII: valid in every encoding, inert in a terminal


def note_mark(reason: str, notes: list[str]) -> str:
    """The number of the note that says why something is missing, to print after it; a new reason is added to the notes.

    Examples
    --------
    >>> notes = ["one prompt, so no interval"]
    >>> note_mark("", notes), note_mark("nothing was removed", notes), note_mark("one prompt, so no interval", notes)
    ('', ' (2)', ' (1)')
    """
    if not reason:
        return ""
    if reason not in notes:
        notes.append(reason)
    return f" ({notes.index(reason) + 1})"


def print_notes(console: Console, notes: Sequence[str]) -> None:
    """Print the notes with their numbers, below the tables that they belong to.

    Examples
    --------
    >>> print_notes(Console(), ["one prompt, so no interval"])
    (1) one prompt, so no interval
    """
    for place, note in enumerate(notes, start=1):
        console.print(f"({place}) {note}", style="dim", markup=False, highlight=False)


def _print_skipped(console: Console, skipped: dict[str, str]) -> None:
    by_reason: dict[str, list[str]] = {}
    for measure, reason in skipped.items():
        by_reason.setdefault(reason, []).append(measure)
    for reason, measures in by_reason.items():
        console.print(f"Left out: {', '.join(measures)}. {reason}", style="dim", markup=False, highlight=False)


def with_interval(value: float, low: float, high: float) -> str:
    """A number and its interval, the number alone where there is none, or a dash.

    Examples
    --------
    >>> with_interval(0.5, 0.25, 0.75), with_interval(0.5, float("nan"), float("nan"))
    ('.500 [.250, .750]', '.500')
    """
    if _is_nan(value):
        return "-"
    return number(value) if _is_nan(low) else f"{number(value)} [{number(low)}, {number(high)}]"


def number(value: float) -> str:
    """Three digits that matter, or a dash.

    Examples
    --------
    >>> [number(value) for value in (0.0123, -0.5, 1.5, 38.61, 1234.5, float("nan"), 0.0)]
    ['.012', '-.500', '1.50', '38.6', '1234', '-', '0']
    """
    if _is_nan(value):
        return "-"
    if abs(value) < 5e-4:
        return "0"
    size = abs(value)
    return (
        f"{value:.3f}".replace("0.", ".", 1)
        if size < 0.9995
        else f"{value:.2f}"
        if size < 10
        else f"{value:.1f}"
        if size < 100
        else f"{value:.0f}"
    )


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)
