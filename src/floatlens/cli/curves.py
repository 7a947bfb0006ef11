"""`floatlens curves`: where a model looks along its adaptation, checkpoint by checkpoint."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.table import Table

from floatlens.errors import Refusal, shown
from floatlens.terminal import make_console, progress_bar, say

if TYPE_CHECKING:
    import polars as pl

FORMATS = ("svg", "png")


def curves(
    runs: list[Path] = typer.Argument(help="Folders that `floatlens adapt` has written.", metavar="RUN"),
    data: Path = typer.Option(..., help="The folder of the training data; held-out texts are read from there."),
    into: Path = typer.Option(Path("curves"), "--into", "-o", help="Folder for the table and the figure."),
    updates: str = typer.Option(None, help="Only these updates, for instance 0,16,64; all that were kept by default."),
    layers: str = typer.Option(None, help="Layers of the printed table and the figure, for instance 12-28; all by default."),
    group: str = typer.Option("unmasked", help="Rows of the printed table and the figure: unmasked or masked."),
    written: int = typer.Option(
        0,
        min=0,
        max=1000,
        metavar="N",
        help="Also let each checkpoint continue the beginnings of N held-out documents, and measure what moves while it writes.",
    ),
) -> None:
    """Measure attention at every checkpoint of adaptations: the first token, the strongest key, the anchors.

    Every checkpoint reads the same held-out texts. Writes curves.parquet, with every layer and text, and figures. If it is
    interrupted, run the same command again to resume.

    Examples:

      floatlens curves runs/smollm2-arm runs/smollm2-mdm --data data -o curves

      floatlens curves runs/seed-* --data data --updates 0,1,2,4,8,16,32,64 --layers 12-28 --written 8 -o seeds
    """
    from floatlens.folders import files_added_to, refuse_folder_to_fill
    from floatlens.lab.adaptation import moving, shares
    from floatlens.lab.adaptation.curves import CURVES, WRITTEN_BY, checkpoints_of, measure_checkpoints, over_layers
    from floatlens.report.figures import save_figure
    from floatlens.report.figures.curves import along_updates

    if not data.is_dir():
        raise Refusal(f"There is no folder {data} (--data). Give the folder that the runs were trained with.")
    if group not in ("unmasked", "masked"):
        raise Refusal(f"There is no group {group!r}. --group takes unmasked, masked.")
    wanted = None if updates is None else [_whole(number, "--updates") for number in updates.split(",")]
    chosen = None if layers is None else _layers(layers)
    names = ["curves", *(["moving"] if written else [])]
    pictures = [f"{name}.{ending}" for name in names for ending in FORMATS]
    refuse_folder_to_fill(into, WRITTEN_BY, [CURVES, *pictures])
    console = make_console()
    count = sum(len(checkpoints_of(run, wanted)) for run in runs)
    with progress_bar(count, "Measuring checkpoints") as advance:
        table = measure_checkpoints(runs, data, into, updates=wanted, written=written, advance=advance)
    highest = int(table["layer"].max())  # type: ignore[arg-type]  # a number
    first, last = chosen or (0, highest)
    if last > highest:
        raise Refusal(f"There are no layers {layers} (--layers). The models have the layers 0 to {highest}.")
    inside = range(first, last + 1)
    drawn = over_layers(table, inside, group=group)
    if drawn.is_empty():
        raise Refusal(f"The runs have no {group} rows: autoregressive models read nothing masked. Leave --group out.")
    where = f"{group} rows, layers {first} to {last}"
    console.print(_table(drawn, shares.MEASURES, f"% of the attention of {where} (null)"))
    figures = [along_updates(drawn, shares.MEASURES[:2], f"% of the attention of\n{where}")]
    if written:
        moved = over_layers(table, inside, group=moving.GROUP)
        console.print(_table(moved, moving.MEASURES, f"% of the steps while writing {written} texts, layers {first} to {last} (null)"))
        figures.append(along_updates(moved, moving.MEASURES, f"% of the steps, layers {first} to {last}"))
    with files_added_to(into, WRITTEN_BY, pictures) as folder:
        for name, figure in zip(names, figures, strict=True):
            save_figure(figure, folder / name, FORMATS)
    say(console, f"Wrote {into / CURVES}, {' and '.join(str(into / picture) for picture in pictures)}.")


def _table(drawn: "pl.DataFrame", measures: Sequence[str], title: str) -> Table:
    """One line per run and update."""
    printed = Table(title=title, title_justify="left")
    for heading in ("run", "update", *measures):
        printed.add_column(heading, justify="left" if heading == "run" else "right")
    for run, update in drawn.select("run", "update").unique(maintain_order=True).rows():
        own = {row["measure"]: row for row in drawn.filter(run=run, update=update).to_dicts()}
        printed.add_row(run, f"{update:,}", *(_cell(own[name]["value"], own[name]["null"]) for name in measures if name in own))
    return printed


def _cell(value: float, null: float) -> str:
    return f"{value:.1f}" if math.isnan(null) else f"{value:.1f} ({null:.1f})"


def _layers(text: str) -> tuple[int, int]:
    begin, to, end = text.partition("-")
    chosen = _whole(begin, "--layers"), _whole(end if to else begin, "--layers")
    if chosen[0] > chosen[1]:
        raise Refusal(f"There are no layers {text} (--layers). Write the lower number first.")
    return chosen


def _whole(text: str, option: str) -> int:
    if not text.strip().isdecimal() or len(text) > 18:
        raise Refusal(f"{shown(text)!r} is not a whole number of at most 18 digits ({option}).")
    return int(text)
