"""The command line: one file per command, thin. A command parses, calls the public API and prints.

Decided here: a mistake is one sentence and exit code 2. `--help` is plain text in which nothing is cut: names of options and commands
are whole at any width, and an example that is too long for a line goes on behind a backslash, so that it can still be copied.
"""

import inspect
import re
import sys
import textwrap
import warnings
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from floatlens._version import __version__
from floatlens.cli import study
from floatlens.cli.adapt import adapt
from floatlens.cli.curves import curves
from floatlens.cli.demo import demo
from floatlens.cli.doctor import doctor
from floatlens.cli.eval import evaluate
from floatlens.cli.figures import figures
from floatlens.cli.lm_eval import lm_eval
from floatlens.cli.measure import measure
from floatlens.cli.models import models
from floatlens.cli.report import report
from floatlens.cli.show import show
from floatlens.cli.trace import trace
from floatlens.cli.train import train
from floatlens.cli.verify import verify
from floatlens.cli.view import view
from floatlens.cli.visibility import visibility
from floatlens.errors import BrokenPromise, Caution, Refusal, bounds_in_words
from floatlens.seeds import LARGEST_SEED
from floatlens.terminal import make_console, say, spell_out_what_cannot_be_encoded

INTERRUPTED = 130  # what typer gives back at Ctrl-C
LONGEST_SENTENCE = 2000  # characters

VALUES = {"<str>": "TEXT", "<list[str]>": "TEXT", "<path>": "PATH", "<int>": "N", "<int range>": "N", "<float>": "X", "<float range>": "X"}
"""What an option takes: the type as typer has it, and as `--help` says it."""
NAMES_UP_TO = 24  # columns; help begins below a longer name


class Command(TyperCommand):
    """A command whose `--help` is printed by `write_help`."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help into typer's formatter."""
        write_help(self, ctx, formatter)


class Group(TyperGroup):
    """All commands; their list shows the whole first sentence of each."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help into typer's formatter."""
        write_help(self, ctx, formatter)
        own = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        rows = [(name, first_sentence(command.help or "")) for name, command in own.items() if command is not None and not command.hidden]
        formatter.write("\nCommands:\n" + "".join(f"{line}\n" for line in in_two_columns(rows, formatter.width)))


app = typer.Typer(cls=Group, no_args_is_help=True, add_completion=True, rich_markup_mode=None)
for command in (demo, models, doctor, trace, show, view, report, measure, figures, verify, train, adapt, curves, visibility):
    app.command(cls=Command)(command)
app.command("eval", cls=Command)(evaluate)
handed_on = {"ignore_unknown_options": True, "allow_extra_args": True, "allow_interspersed_args": False}
app.command("lm-eval", cls=Command, context_settings=handed_on)(lm_eval)
studies = typer.Typer(cls=Group, no_args_is_help=True, rich_markup_mode=None, help=study.HELP)
for command in (study.check, study.run, study.status, study.retry, study.results, study.verify, study.export):
    studies.command(cls=Command)(command)
app.add_typer(studies, name="study")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"floatlens {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: bool = typer.Option(False, "--version", is_eager=True, callback=_print_version, help="Print the version and exit."),
) -> None:
    """See where a language model looks while it writes.

    Start with `floatlens demo`, which takes about two minutes on two cores.
    """


def write_help(command: Any, context: Any, formatter: Any) -> None:
    """Usage, text, arguments and options of a command, nothing of them cut."""
    width = formatter.width
    usage = " ".join([context.command_path, *(piece.replace("{", "").replace("}", "") for piece in _usage(command, context))])
    lines = [*textwrap.wrap(f"Usage: {usage}", width, break_on_hyphens=False), ""]
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        lines += [*_paragraph(paragraph, width), ""]
    records = {"argument": [], "option": []}
    for parameter in command.get_params(context):
        if record := parameter.get_help_record(context):
            kind, (names, meaning) = parameter.param_type_name, record
            name = re.sub(r"<[^>]+>", lambda value: VALUES.get(value[0], value[0]), names)
            records[kind].append((name.split()[0].upper() if kind == "argument" else name, _with_range_in_words(meaning)))
    for title, rows in (("Arguments:", records["argument"]), ("Options:", records["option"])):
        lines += [title, *in_two_columns(rows, width), ""] if rows else []
    formatter.write("\n".join(lines[:-1]) + "\n")


def _usage(command: Any, context: Any) -> list[str]:
    return [piece.upper() if piece.startswith("{") else piece for piece in command.collect_usage_pieces(context)]


def _with_range_in_words(meaning: str) -> str:
    """Bounds as typer writes them, "x>=1" or "1<=x<=9", in words."""
    number = r"(\d+(?:\.\d+)?)"
    meaning = re.sub(rf"{number}<=x<={number}(?=[];])", r"from \1 to \2", re.sub(rf"x>={number}(?=[];])", r"at least \1", meaning))
    return meaning.replace(str(LARGEST_SEED), "2^62")


def in_two_columns(rows: list[tuple[str, str]], width: int) -> list[str]:
    """Names and what they mean, as lines; words and names are never broken.

    Examples
    --------
    >>> print("\\n".join(in_two_columns([("--raw", "Leave the chat template out."), ("--a-name-that-is-rather-long TEXT", "Short.")], 40)))
      --raw  Leave the chat template out.
      --a-name-that-is-rather-long TEXT
             Short.
    """
    column = max((len(name) for name, _ in rows if len(name) <= NAMES_UP_TO), default=NAMES_UP_TO) + 4
    lines = []
    for name, meaning in rows:
        text = " ".join(meaning.split())
        first, *others = textwrap.wrap(text, max(20, width - column), break_on_hyphens=False, break_long_words=False) or [""]
        lines += [f"  {name:<{column - 2}}{first}"] if len(name) <= column - 4 else [f"  {name}", " " * column + first]
        lines += [" " * column + line for line in others]
    return [line.rstrip() for line in lines]


def first_sentence(text: str) -> str:
    """The first sentence of a text.

    Examples
    --------
    >>> first_sentence("Show a trace: the canvas by step. More follows.")
    'Show a trace: the canvas by step.'
    """
    return re.split(r"(?<=\.)\s", " ".join(text.split()), maxsplit=1)[0]


def _paragraph(text: str, width: int) -> list[str]:
    """A paragraph in lines: words are wrapped; an indented example is kept, and goes on behind a backslash where it is too long."""
    if not text.startswith(" "):
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)
    lines = [""]
    for piece in re.split(r" (?=-)", " ".join(text.split())):
        if lines[-1] and len(lines[-1]) + len(piece) + len(" \\") + 4 > width:
            lines[-1] += " \\"
            lines.append("   ")
        lines[-1] += " " * bool(lines[-1]) + piece
    return [f"  {line}" for line in lines]


def run() -> None:
    """Run the command line, with mistakes as sentences."""
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
        _say(
            "interrupted; no half-written result was left behind. "
            "To resume `adapt`, `curves`, `demo`, `eval`, `study` or `train`, run the same command again."
        )
    sys.exit(ended or 0)


def _say_how_it_is_used(mistake: Any) -> None:
    """Say what is wrong with the options; print the whole help where nothing was asked for."""
    if type(mistake).__name__ == "NoArgsIsHelpError":  # its message is the help
        typer.echo(mistake.format_message())
        return
    sentence = bounds_in_words(mistake.format_message().strip())
    context = getattr(mistake, "ctx", None)
    help_ = f" Run `{context.command_path} --help` to see what it takes." if context is not None else ""
    _say(f"{sentence if sentence.endswith(('.', '?')) else f'{sentence}.'}{help_}")


def _show_warning(message: Warning | str, category: type[Warning], filename: str, line: int, *_: Any) -> None:
    """Print cautions of floatlens as sentences, and warnings of other packages as Python does."""
    _say(str(message) if issubclass(category, Caution) else warnings.formatwarning(message, category, filename, line).strip())


def _say(sentence: str) -> None:
    if len(sentence) > LONGEST_SENTENCE:  # it quotes something endless
        sentence = f"{sentence[: LONGEST_SENTENCE // 2]} ... {sentence[-LONGEST_SENTENCE // 2 :]}"
    say(make_console(stderr=True), f"floatlens: {sentence}")
