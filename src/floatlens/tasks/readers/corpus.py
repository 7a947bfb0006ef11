"""A corpus of passages to search in: JSON lines, or the tab-separated form in which Wikipedia is published for retrieval.

A JSON record holds its passage in `text`, `contents`, `segment` or `passage`, with a `title` or without. A tab-separated file begins with the line
`id<TAB>text<TAB>title`. gz or plain, one passage at a time. Refused, with file and line: a record without a passage, an empty one, a line with other columns.
"""

import csv
import os
from collections.abc import Iterator
from pathlib import Path

from floatlens.errors import Refusal
from floatlens.tasks.readers.records import Record, read_lines, read_records
from floatlens.tasks.samples import Passage

TEXT = ("text", "contents", "segment", "passage")
COLUMNS = ["id", "text", "title"]


def read_passages(path: str | os.PathLike[str]) -> Iterator[Passage]:
    """The passages of a file, one at a time.

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "corpus.jsonl"
    >>> _ = file.write_text('{"title": "Marta", "contents": "Marta lives in Oslo."}')
    >>> list(read_passages(file))
    [Passage(text='Marta lives in Oslo.', title='Marta', conflicting=False)]
    """
    file = Path(path).expanduser()
    first = next(read_lines(file), (1, ""))[1]
    if first.rstrip("\r\n").split("\t") == COLUMNS:
        yield from _rows(file)
        return
    for record in read_records(file):
        yield Passage(record.text(_field(record)), record.title())


def _field(record: Record) -> str:
    found = [name for name in TEXT if name in record.value]
    if len(found) != 1:
        raise record.refusal(f"a passage stands in exactly one of the fields {', '.join(TEXT)}. There are: {', '.join(record.value)}.")
    return found[0]


def _rows(file: Path) -> Iterator[Passage]:
    """Rows below the head; quotes that hold tabs or quotes are those of CSV."""
    lines = read_lines(file)
    next(lines)
    for number, line in lines:
        row = next(csv.reader([line.rstrip("\r\n")], delimiter="\t"), [])
        if len(row) != len(COLUMNS) or not row[1].strip():
            raise Refusal(f"{file}, line {number}: this is not a passage with {', '.join(COLUMNS)}, separated by tabs.")
        yield Passage(row[1], row[2].strip())
