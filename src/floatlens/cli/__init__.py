"""The command line: one file a command, thin. A command parses, calls the public API and prints; a mistake is one sentence and exit code 2."""

import sys

import typer
from rich.console import Console

from floatlens.cli.demo import demo
from floatlens.cli.doctor import doctor
from floatlens.cli.eval import evaluate
from floatlens.cli.figures import figures
from floatlens.cli.measure import measure
from floatlens.cli.models import models
from floatlens.cli.show import show
from floatlens.cli.trace import trace
from floatlens.cli.train import train
from floatlens.cli.verify import verify
from floatlens.errors import BrokenPromise, Refusal

INTERRUPTED = 130  # what typer exits with at Ctrl-C

app = typer.Typer(
    no_args_is_help=True, add_completion=False, rich_markup_mode="rich", help="See where a language model looks while it writes."
)
for command in (demo, models, doctor, trace, show, measure, figures, verify, train):
    app.command()(command)
app.command("eval")(evaluate)


@app.callback()
def main() -> None:
    """See where a language model looks while it writes."""


def run() -> None:
    """The command line, with mistakes as sentences."""
    try:
        app()
    except Refusal as refusal:
        _say(f"floatlens: {refusal}")
        sys.exit(2)
    except BrokenPromise as broken:
        _say(f"floatlens: {broken} Please report this with the command you ran.")
        sys.exit(1)
    except SystemExit as ended:
        if ended.code == INTERRUPTED:
            _say(
                "floatlens: stopped; no half-written result was left behind. `eval` and `train` go on when the same command is given again."
            )
        raise


def _say(sentence: str) -> None:
    Console(stderr=True, emoji=False).print(sentence, markup=False, highlight=False, soft_wrap=True)
