"""What reaches the terminal: text as text, never as a command to the terminal; and progress bars.

Prompts, tokens, names of models, files, regions and data sets, and the messages of other packages may contain escape codes, which
would colour, move or hide what is printed, or turn it into a link. Everything that floatlens prints goes through a console made here:
control characters come out as visible text (`\\x1b`, `\\u202e`), the markup of rich (`[red]`) is not interpreted, and a character that
the terminal's encoding lacks is spelled out as well.

Decided here: line breaks and tabs stay. All other control characters become visible (C0, C1, DEL), as do line and paragraph
separators, halves of surrogate pairs, and format characters, which change the direction of a text or take no room (bidirectional
controls, zero-width spaces, the byte-order mark, tags, soft hyphens). The zero-width joiner and non-joiner stay: Persian, Hindi and
emoji are written with them. A progress bar appears for what takes longer than two seconds.
"""

import contextlib
import re
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.segment import Segment
from rich.text import Text

_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 without tab and line break, DEL, C1
    "\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e007f]"
)


def visible(text: str) -> str:
    """A text with its control characters spelled out; visible characters, line breaks and tabs stay as they are.

    Examples
    --------
    >>> print(visible("\\x1b[31mred\\x1b[0m and \\u202eright to left, \\ud800"))
    \\x1b[31mred\\x1b[0m and \\u202eright to left, \\ud800
    >>> visible("Grüße,\\n中文")
    'Grüße,\\n中文'
    """
    return _UNSEEN.sub(_spelled_out, text)


def on_one_line(text: str) -> str:
    """A text with its line breaks and tabs shown as well, for tokens and names.

    Examples
    --------
    >>> on_one_line("one\\ntwo\\tthree")
    'one⏎two⇥three'
    """
    return visible(text).replace("\n", "⏎").replace("\t", "⇥")


def make_console(*, stderr: bool = False, quiet: bool = False) -> Console:
    """The console that everything is printed with; a quiet one prints nothing.

    Examples
    --------
    >>> make_console().print("[red]not red[/red], \\x1b[31mnor this")
    [red]not red[/red], \\x1b[31mnor this
    """
    return _TextConsole(stderr=stderr, quiet=quiet, emoji=False, markup=False, highlight=False)


def say(console: Console, sentence: str) -> None:
    """Print a sentence: in a terminal wrapped between words, with the sentence's own indent; in a file or pipe on one line.

    A word that is longer than a line, such as a path, stays whole, so that it can be copied.

    Examples
    --------
    >>> say(make_console(), "Wrote [link=x]results[/link].")
    Wrote [link=x]results[/link].
    >>> terminal = Console(width=24, force_terminal=True, color_system=None)
    >>> say(terminal, "  Wrote the results to /a/rather/long/path/of/yours.")
      Wrote the results to
      /a/rather/long/path/of/yours.
    """
    text = visible(sentence)
    if not console.is_terminal:
        console.print(Text(text), soft_wrap=True)
        return
    for line in text.split("\n"):
        indent = line[: len(line) - len(line.lstrip(" "))]
        wrapped = textwrap.wrap(line, console.width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
        console.print(Text("\n".join(wrapped)), soft_wrap=True)


def spell_out_what_cannot_be_encoded() -> None:
    """Let standard output and error spell out what their encoding lacks, instead of failing: \\u2588 for a block in ASCII."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure: Any = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            with contextlib.suppress(ValueError, OSError):  # a stream that is closed has nothing to say
                reconfigure(errors="backslashreplace")


class _TextConsole(Console):
    """A console on which nothing but rich's own styles reaches the terminal as a code."""

    def render_str(self, text: str, **how: Any) -> Text:
        return super().render_str(visible(text), **how)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(visible(segment.text), segment.style)


def _spelled_out(match: "re.Match[str]") -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


PATIENCE = 2.0


@contextmanager
def progress_bar(total: int, title: str, *, show: bool = True) -> Iterator[Callable[..., None]]:
    """Yield a function that reports progress: how much was done and, if `title=` is given, what is being done now.

    The bar appears on stderr after two seconds, if stderr is a terminal.

    Examples
    --------
    >>> with progress_bar(3, "Counting") as advance:
    ...     for _ in range(3):
    ...         advance(1)
    """
    if not show or not sys.stderr.isatty():
        yield lambda _count, title="": None
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=make_console(stderr=True), transient=True)
    task = bar.add_task(on_one_line(title), total=total)
    began = time.monotonic()

    def advance(count: int, title: str = "") -> None:
        bar.advance(task, count)
        if title:
            bar.update(task, description=on_one_line(title))
        if not bar.live.is_started and time.monotonic() - began > PATIENCE:
            bar.start()

    try:
        yield advance
    finally:
        bar.stop()


def counted(count: int, what: str) -> str:
    """A number of things, in words.

    Examples
    --------
    >>> counted(1, "model"), counted(2, "model")
    ('1 model', '2 models')
    """
    return f"{count} {what}{'s' * (count != 1)}"
