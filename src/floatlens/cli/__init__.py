"""The command line: one file a command, thin. A command parses, calls the public API and prints; a mistake is one sentence and exit code 2."""

import sys
import warnings
from typing import Any

import typer

from floatlens.cli.adapt import adapt
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
from floatlens.errors import BrokenPromise, Caution, Refusal
from floatlens.terminal import make_console, say, spell_out_what_cannot_be_encoded

INTERRUPTED = 130  # what typer gives back at Ctrl-C
LONGEST_SENTENCE = 2000  # characters

app = typer.Typer(
    no_args_is_help=True, add_completion=False, rich_markup_mode="rich", help="See where a language model looks while it writes."
)
for command in (demo, models, doctor, trace, show, measure, figures, verify, train, adapt):
    app.command()(command)
app.command("eval")(evaluate)


@app.callback()
def main() -> None:
    """See where a language model looks while it writes."""


def run() -> None:
    """The command line, with mistakes as sentences."""
    spell_out_what_cannot_be_encoded()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("default", Caution)
            warnings.showwarning = _show_warning
            ended = app(standalone_mode=False)
    except Refusal as refusal:
        _say(str(refusal))
        sys.exit(2)
    except BrokenPromise as broken:
        _say(f"{broken} Please report this with the command you ran.")
        sys.exit(1)
    except OSError as error:  # a disk, a folder or a name that the system does not take
        _say(f"{error.filename or 'A file'} cannot be read or written: {error.strerror or error}.")
        sys.exit(2)
    except Exception as mistake:
        if not hasattr(mistake, "format_message"):  # typer's mistakes in options and arguments
            raise
        _say_how_it_is_used(mistake)
        sys.exit(2)
    if ended == INTERRUPTED:
        _say("stopped; no half-written result was left behind. `eval` and `train` go on when the same command is given again.")
    sys.exit(ended or 0)


def _say_how_it_is_used(mistake: Any) -> None:
    """What is wrong with the options; the whole help where nothing was asked for."""
    if type(mistake).__name__ == "NoArgsIsHelpError":  # its message is the help, which is printed by now
        return
    sentence = mistake.format_message().strip().rstrip(".")
    context = getattr(mistake, "ctx", None)
    help_ = f" Run `{context.command_path} --help` to see what it takes." if context is not None else ""
    _say(f"{sentence}.{help_}")


def _show_warning(message: Warning | str, category: type[Warning], filename: str, line: int, *_: Any) -> None:
    """Cautions of floatlens as sentences; warnings of other packages as Python has them."""
    _say(str(message) if issubclass(category, Caution) else warnings.formatwarning(message, category, filename, line).strip())


def _say(sentence: str) -> None:
    if len(sentence) > LONGEST_SENTENCE:  # it quotes something endless
        sentence = f"{sentence[: LONGEST_SENTENCE // 2]} ... {sentence[-LONGEST_SENTENCE // 2 :]}"
    say(make_console(stderr=True), f"floatlens: {sentence}")
