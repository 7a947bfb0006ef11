"""`floatlens visibility`: where an autoregressive model looks while its causal mask is lifted, without any training."""

from pathlib import Path

import typer
from rich.table import Table

from floatlens.errors import Refusal
from floatlens.terminal import make_console, progress_bar, say

FORMATS = ("svg", "png")


def visibility(
    models: list[str] = typer.Argument(help="Autoregressive models: names, folders or GGUF files.", metavar="MODEL"),
    text: Path = typer.Option(..., help="A text file, gzipped or not; its documents are separated by lines that are <|endoftext|>."),
    into: Path = typer.Option(Path("visibility"), "--into", "-o", help="Folder for the table and the figure."),
    shares: str = typer.Option("0,.001,.003,.01,.03,.1,.3,1", help="Shares of the later positions that a row sees."),
    texts: int = typer.Option(16, min=2, max=10_000, help="Documents to read: the first that are long enough."),
    length: int = typer.Option(192, min=8, max=100_000, help="Tokens of each document."),
) -> None:
    """Lift the causal mask of models step by step, without training them, and measure where they look.

    Writes visibility.parquet, with every layer and text, and a figure. The printed layers are those in which the first token is a
    sink under the causal mask.

    Examples:

      floatlens visibility smollm2-135m --text stories.txt -o visibility

      floatlens visibility smollm2-135m gemma-3-270m.gguf --text stories.txt --shares 0,.01,.1,1 --texts 32
    """
    from floatlens.folders import files_added_to, refuse_folder_to_fill
    from floatlens.lab.adaptation.shares import MEASURES
    from floatlens.lab.adaptation.visibility import TABLE, WRITTEN_BY, lift_masks, over_sink_layers, sink_layers
    from floatlens.report.figures import against_visible_share, save_figure

    wanted = _shares(shares)
    pictures = [f"visibility.{ending}" for ending in FORMATS]
    refuse_folder_to_fill(into, WRITTEN_BY, [TABLE, *pictures])
    console = make_console()
    with progress_bar(len(models) * texts * len(wanted), "Lifting masks") as advance:
        table = lift_masks(models, text, shares=wanted, texts=texts, length=length, advance=advance)
    with files_added_to(into, WRITTEN_BY, [TABLE]) as folder:
        table.write_parquet(folder / TABLE)
    for model in table["model"].unique(maintain_order=True):
        if not sink_layers(table, model):
            say(console, f"{model} has no layer in which the first token is a sink under the causal mask (10 %, ten times its null).")
    drawn = over_sink_layers(table)
    if drawn.is_empty():
        say(console, f"Wrote {into / TABLE}.")
        return
    printed = Table(title="% of attention in the layers with a sink [95 % interval over texts] (null)", title_justify="left")
    for heading in ("model", "visible", *MEASURES[:2]):
        printed.add_column(heading, justify="left" if heading == "model" else "right")
    for model, share in drawn.select("model", "share").unique(maintain_order=True).rows():
        own = {row["measure"]: row for row in drawn.filter(model=model, share=share).to_dicts()}
        cells = [own[name] for name in MEASURES[:2]]
        printed.add_row(
            model, f"{100 * share:g} %", *(f"{row['value']:.1f} [{row['low']:.1f}, {row['high']:.1f}] ({row['null']:.1f})" for row in cells)
        )
    console.print(printed)
    with files_added_to(into, WRITTEN_BY, pictures) as folder:
        save_figure(against_visible_share(drawn, MEASURES[:2]), folder / "visibility", FORMATS)
    say(console, f"Wrote {into / TABLE}, {' and '.join(str(into / picture) for picture in pictures)}.")


def _shares(text: str) -> list[float]:
    try:
        chosen = sorted({float(part) for part in text.split(",")})
    except ValueError:
        raise Refusal(f"--shares {text!r} is not a list of numbers; write for instance 0,.01,.1,1") from None
    if not all(0 <= share <= 1 for share in chosen) or chosen[0] != 0:
        raise Refusal(f"--shares {text!r} must be numbers from 0 to 1, 0 among them: the causal mask is what the others are compared with.")
    return chosen
