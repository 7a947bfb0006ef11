"""The command line: one file a command, thin. A command parses, calls the public API and prints."""

import typer

from floatlens.cli.demo import demo

app = typer.Typer(no_args_is_help=True, add_completion=False, help="See where a language model looks while it writes.")
app.command()(demo)


@app.callback()
def main() -> None:
    """See where a language model looks while it writes."""
