"""`floatlens show`: a trace in the terminal."""

import typer

from floatlens.terminal import make_console


def show(
    path: str = typer.Argument(help="A trace: a folder or an fsspec URL.", metavar="TRACE"),
    sample: int = typer.Option(0, help="Which sample, counted from 0."),
    group: str = typer.Option(None, help="Rows whose attention is shown: predicting, masked, unmasked or prompt; by default predicting."),
    prompt: bool = typer.Option(False, help="Show the prompt as well."),
    top: int = typer.Option(3, min=1, max=10, help="How many keys to show of each layer."),
) -> None:
    """Show a trace: the text step by step, and the keys that draw most attention in each layer.

    Example:

      floatlens show run.zarr --sample 0
    """
    from floatlens.report.show import print_trace
    from floatlens.trace.trace import open_trace

    print_trace(make_console(), open_trace(path), path, sample, group, prompt, top)
