"""TOML files of users: what they hold, and on which line each value stands, so that a mistake can be reported where it is. (`tomllib`
gives values without lines.)

A value is named by its path: `("tasks", 0, "contexts", 2)` is the third context of the first task. The scanner follows tables, arrays of
tables, dotted keys, arrays and inline tables. It takes for granted that `tomllib` has read the same text before, and checks nothing.
"""

import re
import tomllib
from typing import Any

from floatlens.errors import Refusal, shown

Path = tuple[str | int, ...]

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_STRING = re.compile(
    r'"""(?:[^\\]|\\.)*?"""(?:"{1,2}(?!"))?|\'\'\'.*?\'\'\'(?:\'{1,2}(?!\'))?|"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\'',
    re.DOTALL,
)
_SCALAR = re.compile(r"[^,\]}\n#]+")


def parse_toml(text: str | bytes, where: str, then: str) -> dict[str, Any]:
    """What a text holds; refused if it is not TOML. `where` names its file, and `then` says what to do.

    Examples
    --------
    >>> parse_toml("rate = 1e-3", "own.toml", "Correct it there.")
    {'rate': 0.001}
    >>> parse_toml("rate =", "own.toml", "Correct it there.")
    Traceback (most recent call last):
    floatlens.errors.Refusal: own.toml is not TOML: Invalid value (at end of document). Correct it there.
    """
    try:
        return tomllib.loads(text if isinstance(text, str) else text.decode("utf-8"))
    except (ValueError, RecursionError) as error:  # not UTF-8, not TOML, a number of too many digits, too deep a nesting
        raise Refusal(f"{where} is not TOML: {shown(error)}. {then}") from None


def line_of(text: str, path: Path) -> int:
    """The line, from 1, on which a value begins; for a path that is not there, that of the table or list it would stand in.

    Examples
    --------
    >>> text = 'name = "a"\\n\\n[[tasks]]\\ntask = "world"\\ncontexts = [\\n  "gold",\\n  "noize:.4",\\n]\\n'
    >>> line_of(text, ("tasks", 0, "contexts", 1)), line_of(text, ("tasks", 0, "samples")), line_of(text, ("models",))
    (7, 3, 1)
    """
    lines = lines_of(text)
    while path and path not in lines:
        path = path[:-1]
    return lines.get(path, 1)


def lines_of(text: str) -> dict[Path, int]:
    """The line of every table, key and entry of a list.

    Examples
    --------
    >>> lines_of("run.threads = 2\\nmodels = [\\n  { name = 'a' },\\n]")[("models", 0, "name")]
    3
    """
    scanner = _Scanner(text)
    scanner.document()
    return scanner.lines


class _Scanner:
    """Reads a text from its beginning to its end; `place` is how far it has come."""

    def __init__(self, text: str) -> None:
        self.text, self.place = text, 0
        self.lines: dict[Path, int] = {}
        self._last: dict[Path, int] = {}  # of each array of tables: the number of its last table

    def document(self) -> None:
        table: Path = ()
        while not self._at_end():
            if self._here("[["):
                array = self._resolved(self._header("[[", "]]"))
                self._last[array] = self._last.get(array, -1) + 1
                table = (*array, self._last[array])
                self._note(table)
            elif self._here("["):
                table = self._resolved(self._header("[", "]"))
                self._note(table)
            else:
                self._key_and_value(table)

    def _header(self, opening: str, closing: str) -> Path:
        self.place += len(opening)
        names = self._key()
        self._skip_to(closing)
        return names

    def _resolved(self, names: Path) -> Path:
        """The path of a header: a name of an array of tables means its last table."""
        path: Path = ()
        for number, name in enumerate(names):
            path = (*path, name)
            if path in self._last and number < len(names) - 1:
                path = (*path, self._last[path])
        return path

    def _key_and_value(self, table: Path) -> None:
        began = self.place
        path = (*table, *self._key())
        self._note(path, began)
        self._skip_to("=")
        self._value(path)

    def _key(self) -> Path:
        names: list[str] = []
        while True:
            self._blanks()
            quoted = _STRING.match(self.text, self.place)
            match = quoted or _BARE.match(self.text, self.place)
            if match is None:  # not TOML
                self.place = len(self.text)
                return tuple(names)
            names.append(match[0][1:-1] if quoted else match[0])
            self.place = match.end()
            self._blanks()
            if not self._here("."):
                return tuple(names)
            self.place += 1

    def _value(self, path: Path) -> None:
        self._blanks()
        if self._here("["):
            self._entries("]", path)
        elif self._here("{"):
            self._entries("}", path)
        else:
            match = _STRING.match(self.text, self.place) or _SCALAR.match(self.text, self.place)
            self.place = match.end() if match else len(self.text)

    def _entries(self, closing: str, path: Path) -> None:
        """What stands in a list, or in an inline table."""
        self.place += 1
        number = 0
        while not self._at_end() and not self._here(closing):
            if closing == "}":
                self._key_and_value(path)
            else:
                self._note((*path, number))
                self._value((*path, number))
            number += 1
            self._blanks()
            if self._here(","):
                self.place += 1
        self.place += 1

    def _note(self, path: Path, place: int | None = None) -> None:
        line = self.text.count("\n", 0, self.place if place is None else place) + 1
        for length in range(1, len(path) + 1):  # a dotted key makes the tables before it
            self.lines.setdefault(path[:length], line)

    def _here(self, text: str) -> bool:
        return self.text.startswith(text, self.place)

    def _blanks(self) -> None:
        match = _BLANK.match(self.text, self.place)
        self.place = match.end() if match else self.place

    def _at_end(self) -> bool:
        self._blanks()
        return self.place >= len(self.text)

    def _skip_to(self, text: str) -> None:
        found = self.text.find(text, self.place)
        self.place = len(self.text) if found < 0 else found + len(text)
