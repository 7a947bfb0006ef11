"""Write the generated pages of the reference: commands.md from `--help`, api.md from docstrings.

Run `python docs/reference/generate.py` after changing a command or a public name; tests/docs/test_reference.py compares the pages with the
code. api.md lists each public name with the first sentence of its docstring, which is what GitHub shows. Below each table stand comments
such as `<!-- ::: floatlens.load -->`; in the site (`make docs`), mkdocstrings puts the whole docstring there.

Which names there are is read from `__all__` of the public modules. A new name of `fl` must be given a section here; nothing else is
listed by hand.
"""

import inspect
import os
import re
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from typing import Any

import typer

import floatlens as fl
from floatlens import interventions, measures
from floatlens.cli import app, first_sentence, run
from floatlens.report import figures
from floatlens.tasks import contexts

HERE = Path(__file__).parent
COLUMNS = 80

_WRITING = ("load", "LanguageModel", "Generation", "Prompt")
_TRACES = ("Trace", "open_trace", "verify", "view")
_TAPPING = ("tap", "Tap", "Forward", "AttentionCall", "Edit", "Before", "Received")
_EVALUATION = ("evaluate", "Evaluation")
_ERRORS = ("Refusal", "BrokenPromise")
_RUNS = ("InterventionRun",)


def commands_page() -> str:
    """The page of all commands, as `--help` prints them."""
    commands = list(commands_of())
    parts = [
        "# Commands",
        "After reading this page you know every command of floatlens and all of its options. It is what `floatlens --help` and\n"
        "`floatlens COMMAND --help` print (`python docs/reference/generate.py` writes it).",
        " · ".join(f"[{' '.join(words)}](#{'-'.join(('floatlens', *words))})" for words in commands if words),
        *(f"## {' '.join(('floatlens', *words))}\n\n```text\n{help_of(*words)}```" for words in commands),
    ]
    return "\n\n".join(parts) + "\n"


def commands_of(*words: str, group: Any = None) -> Iterator[tuple[str, ...]]:
    """The words of a command, and of those below it."""
    yield words
    for name, command in (group or typer.main.get_command(app)).commands.items():
        yield from commands_of(*words, name, group=command) if hasattr(command, "commands") else [(*words, name)]


def help_of(*words: str) -> str:
    """What a command prints for `--help` in a terminal of `COLUMNS` columns."""
    said = StringIO()
    given = sys.argv, os.environ.get("COLUMNS")
    sys.argv, os.environ["COLUMNS"] = ["floatlens", *words, "--help"], str(COLUMNS)
    try:
        with redirect_stdout(said), suppress(SystemExit):
            run()
    finally:
        sys.argv, columns = given
        if columns is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = columns
    return re.sub("^Usage: .*?floatlens", "Usage: floatlens", said.getvalue())  # whatever program runs this


def api_page() -> str:
    """The page of all public names."""
    parts = [
        "# Python API",
        "After reading this page you know what `floatlens` offers in Python, and where to look for it. This page lists every\n"
        "public name with the first sentence of its docstring; `help(fl.load)` prints the whole of it, and the site that\n"
        "`make docs` builds shows it below. `python docs/reference/generate.py` writes this page.",
        "`import floatlens as fl` is cheap: what needs torch is imported when it is first used.",
    ]
    for title, text, module, names in sections():
        rows = [f"| `{_called(module, name)}` | {_in_a_cell(summary_of(getattr(module, name)))} |" for name in names]
        parts += [f"## {title}", text, "\n".join(["| name | what it is |", "|---|---|", *rows])]
        parts += [f"<!-- ::: {module.__name__}.{name} -->" for name in names]
    return "\n\n".join(parts) + "\n"


def sections() -> Iterator[tuple[str, str, Any, tuple[str, ...]]]:
    """Title, opening sentence, module and names of each section; every public name is in one of them."""
    statistical = tuple(name for name in _documented(measures) if getattr(measures, name).__module__.startswith("floatlens.statistics"))
    of_measures = tuple(name for name in _documented(measures) if name not in statistical)
    placed = {*_WRITING, *_TRACES, *_TAPPING, *_EVALUATION, *_ERRORS, *_RUNS, *measures.__all__, *interventions.__all__}
    if missing := [name for name in _documented(fl) if name not in placed]:
        raise RuntimeError(f"fl.{missing[0]} is public and has no section; add it to one in docs/reference/generate.py.")
    yield "Load and write", "From a name to a model that writes ([decoding](decoding.md)).", fl, _WRITING
    yield "Traces", "What was recorded while a model wrote ([trace format](trace-format.md)).", fl, _TRACES
    yield "Measures", "From a trace to numbers ([measures](measures.md)). Many are also names of `fl`.", measures, of_measures
    yield "Statistics", "Intervals, tests and effect sizes over prompts ([statistics](statistics.md)).", measures, statistical
    text = "What a model may not look at ([interventions](interventions.md)). The classes are also names of `fl`."
    yield "Interventions", text, interventions, tuple(_documented(interventions))
    yield "Runs under interventions", "What `lm.intervene` hands out.", fl, _RUNS
    yield "Evaluation", "Questions under several conditions ([evaluation](evaluation.md)).", fl, _EVALUATION
    yield "Contexts", "Which passages stand before a question ([contexts](evaluation.md#contexts)).", contexts, _contexts()
    yield "Figures", "One function per figure; each returns a matplotlib `Figure`.", figures, tuple(figures.__all__)
    yield "The tap", "Watch or change the attention of any torch module ([the tap](../how-to/tap.md)).", fl, _TAPPING
    yield "Errors", "What floatlens raises ([footguns](../footguns.md)).", fl, _ERRORS


def summary_of(value: Any) -> str:
    """The first sentence of a docstring."""
    return first_sentence(inspect.getdoc(value) or "")


def _documented(module: Any) -> Iterator[str]:
    """The public functions and classes of a module; constants have no docstring."""
    return (name for name in module.__all__ if inspect.isfunction(getattr(module, name)) or inspect.isclass(getattr(module, name)))


def _contexts() -> tuple[str, ...]:
    return tuple(name for name, value in vars(contexts).items() if inspect.isclass(value) and value.__module__ == contexts.__name__)


def _called(module: Any, name: str) -> str:
    return f"fl.{name}" if module is fl else f"{module.__name__.rpartition('.')[2]}.{name}"


def _in_a_cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    (HERE / "commands.md").write_text(commands_page(), encoding="utf-8")
    (HERE / "api.md").write_text(api_page(), encoding="utf-8")
