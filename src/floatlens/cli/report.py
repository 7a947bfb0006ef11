"""`floatlens report`: write the page of traces, evaluations, demos and curves, as one file or as a folder."""

from pathlib import Path

import typer

from floatlens.errors import Refusal
from floatlens.terminal import make_console, say


def report(
    paths: list[str] = typer.Argument(help="Traces; folders of `floatlens eval`, `floatlens demo` or `floatlens curves`.", metavar="RUN"),
    output: Path = typer.Option(..., "--output", "-o", help="The file to write, e.g. report.html; with --folder, a new folder."),
    folder: bool = typer.Option(
        False, "--folder", help="Write a folder instead of one file, for large runs; `floatlens view FOLDER` opens it."
    ),
    samples: str = typer.Option(None, help="Only these samples of every trace, separated by commas, e.g. 0,3; by default all."),
    rule: str = typer.Option("lift", help="How anchors are found: lift, additive, zscore, rate or top."),
    eps: float = typer.Option(None, help="The threshold of the rule, or the number of keys for top; by default the rule's own."),
) -> None:
    """Write a page that shows where models looked, step by step.

    The page is one file that opens offline in any browser. Values of single heads are rounded as far as its size requires, and marked
    with ≈.

    Examples:

      floatlens report run.zarr -o report.html

      floatlens report mdm.zarr arm.zarr floatlens-demo -o report.html

      floatlens report large.zarr --folder -o report

      floatlens report curves -o training.html
    """
    from floatlens.report.page.gather import Choices, find_sources
    from floatlens.report.page.html import refuse_file, write_file, write_folder

    choices = Choices(rule, eps, as_numbers(samples))
    if not folder:
        refuse_file(output)
    sources = find_sources(paths)
    if folder:
        write_folder(output, sources, choices)
        say(make_console(), f"Wrote {output}. Open it: floatlens view {output}")
    else:
        size = write_file(output, sources, choices)
        say(make_console(), f"Wrote {output} ({size / 1e6:.1f} MB). Open it in a browser.")


def as_numbers(text: str | None) -> tuple[int, ...]:
    """Numbers that are separated by commas.

    Examples
    --------
    >>> as_numbers("0,3"), as_numbers(None)
    ((0, 3), ())
    """
    try:
        return () if text is None else tuple(int(part) for part in text.split(","))
    except ValueError:
        raise Refusal(f"--samples {text!r} is not a list of numbers; write e.g. --samples 0,3.") from None
