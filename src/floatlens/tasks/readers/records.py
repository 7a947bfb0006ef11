"""The records of a file, one at a time, each with its place: questions, passages and prompts are all read here.

A file holds one JSON object per line, or is one JSON document: a list of objects, or a single object over many lines; gz or plain, told by
its first bytes and not by its name; UTF-8, with or without a byte-order mark. Lines end at line feeds alone and are read one by one; only a
document is read whole. A data set of the Hugging Face hub is named "hf:NAME/SPLIT", or "hf:NAME:CONFIGURATION/SPLIT" where it has several
configurations, and is streamed.

Refused, with file, line (in a document: item) and field: what is asked of a record and is not there. Refused too: what is not UTF-8, not
JSON, not an object (a prompt may also be a bare text: `bare_text`); damaged or truncated gz; a file without records; an id that occurs
twice; a hub that cannot be reached, or without the package `datasets`.
"""

import gzip
import importlib
import json
import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Protocol, TypeVar

from floatlens.errors import Refusal
from floatlens.tasks.samples import Passage, Sample

_GZ = b"\x1f\x8b"


@dataclass(frozen=True)
class Record:
    """A JSON object, where it stands, and what may serve as its id: its line, item or row, counted from 1.

    Examples
    --------
    >>> record = Record({"question": "Where?", "ctxs": [{"text": ""}]}, "qa.jsonl, line 3", "3")
    >>> record.text("question")
    'Where?'
    >>> record.parts("ctxs")[0].text("text")
    Traceback (most recent call last):
    floatlens.errors.Refusal: qa.jsonl, line 3, ctxs[0]: the field 'text' is empty.
    """

    value: dict[str, Any]
    where: str
    number: str

    def refusal(self, what: str) -> Refusal:
        """What is wrong, with its place."""
        return Refusal(f"{self.where}: {what}")

    def field(self, name: str) -> Any:
        """What a field holds; refused if there is none."""
        if name not in self.value:
            raise self.refusal(f"there is no field {name!r}. There are: {', '.join(self.value) or 'none'}.")
        return self.value[name]

    def text(self, name: str) -> str:
        """A field that holds a text, which is not empty."""
        return self.as_text(self.field(name), name)

    def texts(self, name: str) -> tuple[str, ...]:
        """A field that holds a list of texts, none of them empty."""
        return tuple(self.as_text(value, f"{name}[{number}]") for number, value in enumerate(self.items(name)))

    def text_or_texts(self, name: str) -> tuple[str, ...]:
        """A field that holds one text or a list of them."""
        return self.texts(name) if isinstance(self.field(name), list) else (self.text(name),)

    def title(self, name: str = "title") -> str:
        """A field that may be missing, empty or null; otherwise a text."""
        return self.text(name).strip() if self.value.get(name) not in (None, "") else ""

    def flag(self, name: str) -> bool:
        """A field that holds true or false."""
        value = self.field(name)
        if not isinstance(value, bool):
            raise self.refusal(f"the field {name!r} must be true or false, not {_shown(value)}.")
        return value

    def items(self, name: str) -> list[Any]:
        """A field that holds a list."""
        value = self.field(name)
        if not isinstance(value, list):
            raise self.refusal(f"the field {name!r} must be a list, not {_shown(value)}.")
        return value

    def part(self, name: str) -> "Record":
        """A field that holds an object, as a record whose place names it."""
        return self.as_part(self.field(name), name)

    def parts(self, name: str) -> list["Record"]:
        """A field that holds a list of objects, each as a record whose place names it."""
        return [self.as_part(value, f"{name}[{number}]") for number, value in enumerate(self.items(name))]

    def own_id(self, kind: str, name: str = "id") -> str:
        """An id from the record's own, or else from its line; `kind` keeps samples of different files apart."""
        own = self.value.get(name)
        if own is None:
            return f"{kind}-{self.number}"
        if isinstance(own, bool) or not isinstance(own, str | int) or not str(own).strip():
            raise self.refusal(f"the field {name!r} must be a text or a whole number, since it names the sample; it is {_shown(own)}.")
        return f"{kind}-{own}"

    def sample(
        self, id: str, question: str, answers: tuple[str, ...], passages: Iterable[Passage] = (), gold: Iterable[int] = ()
    ) -> Sample:
        """A sample; what `Sample` refuses is refused with this record's place. Answers that repeat are kept once."""
        try:
            return Sample(id, question.strip(), tuple(dict.fromkeys(answers)), tuple(passages), tuple(gold))
        except Refusal as refusal:
            raise self.refusal(str(refusal)) from None

    def as_text(self, value: Any, name: str) -> str:
        """What the record holds at `name`, if it is a text that is not empty."""
        if not isinstance(value, str):
            raise self.refusal(f"the field {name!r} must be a text, not {_shown(value)}.")
        if not value.strip():
            raise self.refusal(f"the field {name!r} is empty.")
        try:
            value.encode()
        except UnicodeEncodeError:
            raise self.refusal(f"the field {name!r} holds half of a surrogate pair, which no tokenizer can read.") from None
        return value

    def as_part(self, value: Any, name: str) -> "Record":
        """What the record holds at `name`, if it is an object: a record whose place names it."""
        if not isinstance(value, dict):
            raise self.refusal(f"the field {name!r} must be an object, not {_shown(value)}.")
        return Record(value, f"{self.where}, {name}", self.number)


@dataclass(frozen=True)
class Format:
    """A format of question files: its name, what its records must hold, whether a record looks like one, and the samples of a record."""

    name: str
    fields: str
    recognises: Callable[[dict[str, Any]], bool]
    samples: Callable[[Record], Iterator[Sample]]


def has_fields(*names: str) -> Callable[[dict[str, Any]], bool]:
    """A test whether a record has all these fields.

    Examples
    --------
    >>> has_fields("key", "value")({"key": 1, "value": 2, "more": 3})
    True
    """
    return lambda value: value.keys() >= set(names)


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a text, gz or plain, with their numbers from 1, one at a time.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "two.txt.gz"
    >>> _ = path.write_bytes(gzip.compress(b"one\\ntwo"))
    >>> list(read_lines(path))
    [(1, 'one\\n'), (2, 'two')]
    """
    number = 0
    try:
        with path.open("rb") as plain:
            stream = gzip.GzipFile(fileobj=plain) if plain.peek(2)[:2] == _GZ else plain
            for number, line in enumerate(stream, 1):
                yield number, line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise Refusal(f"{path}, line {number}: byte {error.start + 1} is not UTF-8. Write the file as UTF-8.") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise Refusal(f"{path}, after line {number}: the gz data are damaged or cut off ({error}). Fetch the file again.") from None
    except OSError as error:
        raise Refusal(f"{path} cannot be read: {error.strerror or error}.") from None
    except ValueError:  # a name that no file can have: it holds a zero byte
        raise Refusal(f"{str(path)!r} cannot be the name of a file. Give another.") from None


def read_records(path: Path, bare_text: str | None = None) -> Iterator[Record]:
    """The records of a file: one per line, or those of the JSON document that it is. With `bare_text`, a bare text is a record with that
    field.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "two.jsonl"
    >>> _ = path.write_text('{"question": "Where?"}\\n{"question": "When?"}\\n')
    >>> [(record.number, record.text("question")) for record in read_records(path)]
    [('1', 'Where?'), ('2', 'When?')]
    """
    lines = ((number, line) for number, line in read_lines(path) if line.strip())
    first = next(lines, None)
    if first is None:
        raise Refusal(f"{path} is empty: there is no record to read.")
    if _begins_a_document(first[1]):
        yield from _document(path, bare_text)
        return
    for number, line in chain([first], lines):
        yield _line_record(path, number, line, bare_text)


class Named(Protocol):
    """Something with an id."""

    @property
    def id(self) -> str: ...


NamedThing = TypeVar("NamedThing", bound=Named)


def distinct(things: Iterable[tuple[Record, NamedThing]]) -> Iterator[NamedThing]:
    """The things that records hold, refusing an id that occurs twice.

    Examples
    --------
    >>> [line_3, line_7] = [Record({}, f"qa.jsonl, line {number}", str(number)) for number in (3, 7)]
    >>> sample = Sample("a", "Where?", ("Oslo",))
    >>> list(distinct([(line_3, sample), (line_7, sample)]))
    Traceback (most recent call last):
    floatlens.errors.Refusal: qa.jsonl, line 7: the id 'a' was given before, in qa.jsonl, line 3. \
Ids pair the conditions of a question, so each must occur once.
    """
    places: dict[str, str] = {}
    for record, thing in things:
        if thing.id in places:
            raise record.refusal(
                f"the id {thing.id!r} was given before, in {places[thing.id]}. "
                "Ids pair the conditions of a question, so each must occur once."
            )
        places[thing.id] = record.where
        yield thing


def _begins_a_document(line: str) -> bool:
    """Whether a first line opens a JSON document that goes on: a list, or an object that ends on a later line."""
    if line.lstrip().startswith("["):
        return True
    try:
        json.loads(line)
    except json.JSONDecodeError as error:
        return line.lstrip().startswith("{") and error.pos >= len(line.rstrip())
    except (ValueError, RecursionError):  # a number of too many digits, too deep a nesting: refused where the line is read
        return False
    return False


def _line_record(path: Path, number: int, line: str, bare_text: str | None) -> Record:
    where = f"{path}, line {number}"
    wanted = "one JSON object" if bare_text is None else f'a JSON object with "{bare_text}", or a JSON text'
    try:
        value = json.loads(line)
    except json.JSONDecodeError as error:
        raise Refusal(f"{where}: this is not JSON ({error.msg} at column {error.colno}). Each line must be {wanted}.") from None
    except RecursionError:
        raise Refusal(f"{where}: this is nested too deeply to be read. Each line must be {wanted}.") from None
    except ValueError:  # Python's limit on the digits of a whole number
        raise Refusal(f"{where}: this holds a number of too many digits to be read. Each line must be {wanted}.") from None
    if bare_text is not None and isinstance(value, str):
        value = {bare_text: value}
    if not isinstance(value, dict):
        raise Refusal(f"{where}: this is JSON, but not an object ({line.strip()[:60]}). Each line must be {wanted}.")
    return Record(value, where, str(number))


def _document(path: Path, bare_text: str | None) -> Iterator[Record]:
    try:
        content = json.loads("".join(line for _, line in read_lines(path)))
    except json.JSONDecodeError as error:
        raise Refusal(
            f"{path}, line {error.lineno}: this is not JSON ({error.msg}). The file begins like one JSON document; "
            "if it should have one record per line, line 1 is not whole."
        ) from None
    except RecursionError:
        raise Refusal(f"{path} is nested too deeply to be read.") from None
    except ValueError:
        raise Refusal(f"{path} holds a number of too many digits to be read.") from None
    if isinstance(content, dict):
        yield Record(content, str(path), "1")
        return
    if not content:
        raise Refusal(f"{path} is an empty list: there is no record to read.")
    for number, value in enumerate(content, 1):
        if bare_text is not None and isinstance(value, str):
            value = {bare_text: value}
        if not isinstance(value, dict):
            raise Refusal(f"{path}, item {number}: this must be a JSON object, not {_shown(value)}.")
        yield Record(value, f"{path}, item {number}", str(number))


def _shown(value: Any) -> str:
    """The beginning of a value as JSON, or as it shows itself where JSON has no such thing (rows of the hub hold dates and bytes)."""
    return json.dumps(value, default=repr)[:60]


HUB = "hf:"


def open_records(source: str | os.PathLike[str]) -> Iterator[Record]:
    """The records of a file or hub data set. The first is read at once, so that what cannot be opened is refused here and not later.

    Examples
    --------
    >>> open_records("nowhere.jsonl")
    Traceback (most recent call last):
    floatlens.errors.Refusal: nowhere.jsonl cannot be read: No such file or directory.
    """
    name = os.fspath(source)
    records = _hub_records(name) if name.startswith(HUB) else read_records(Path(name).expanduser())
    first = next(records, None)
    if first is None:
        raise Refusal(f"{name} is empty: there is no record to read.")
    return chain([first], records)


def _hub_records(source: str) -> Iterator[Record]:
    data_set, _, split = source.removeprefix(HUB).rpartition("/")
    name, _, configuration = data_set.partition(":")
    if not name or not split:
        raise Refusal(
            f"{source!r} does not say which data set and split. Write hf:NAME/SPLIT or hf:NAME:CONFIGURATION/SPLIT, "
            "as in hf:openai/gsm8k:main/test."
        )
    try:
        datasets: Any = importlib.import_module("datasets")
    except ImportError:
        raise Refusal(
            f"{source} needs the package `datasets`, which is not installed; pip install 'floatlens[hub]', or give a file."
        ) from None
    try:
        rows = datasets.load_dataset(name, configuration or None, split=split, streaming=True)
        for number, row in enumerate(rows, 1):
            yield Record(dict(row), f"{source}, row {number}", str(number))
    except Exception as error:  # the package, the hub and the network each have their own; none is floatlens' fault
        lines = str(error).strip().splitlines()
        raise Refusal(f"{source} could not be read from the Hugging Face hub: {lines[0] if lines else type(error).__name__}.") from error
