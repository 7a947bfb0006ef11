"""floatlens' own formats, for files of your own: questions (`plain`), prompts to trace, and a corpus of passages to search.

All are read like the others (`records`): gz or plain, JSON lines or one JSON document. A corpus may also be tab-separated, the form in
which Wikipedia is published for retrieval. Refused, always with file and line: what `records` refuses, and what each function says.
"""

import csv
import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from floatlens.decoding.prompts import Prompt
from floatlens.errors import Refusal
from floatlens.interventions.specification import is_count
from floatlens.tasks.readers.records import Format, Record, read_lines, read_records
from floatlens.tasks.samples import Passage, Sample


def plain(record: Record) -> Iterator[Sample]:
    """Questions of your own: `question`, `answers`, and optionally `id`, `passages`, `gold`.

    `answers` is a text or a list of texts that all count as right. A passage is a text, or an object with `text`, and optionally `title`
    and `conflicting` (true if it contradicts the gold passages). `gold` lists the passages that hold the evidence, counted from 0. Ids
    are used as they are, or made from line numbers. Refused: any other field, since a misspelt one ("passage") would
    silently turn a question with passages into one without.

    Examples
    --------
    >>> value = {"question": "Where?", "answers": "Oslo", "passages": ["In Oslo.", {"text": "In Rome.", "conflicting": True}], "gold": [0]}
    >>> sample = next(plain(Record(value, "mine.jsonl, line 4", "4")))
    >>> sample.id, sample.evidence[0].text, sample.conflicts[0].text
    ('plain-4', 'In Oslo.', 'In Rome.')
    """
    _refuse_other_fields(record, {"id", "question", "answers", "passages", "gold"})
    gold = record.items("gold") if "gold" in record.value else []
    if not all(isinstance(slot, int) and not isinstance(slot, bool) for slot in gold):
        raise record.refusal("the field 'gold' must list whole numbers: which passages hold the evidence, counted from 0.")
    own = record.value.get("id")
    id = record.own_id("plain")
    yield record.sample(id if own is None else str(own), record.text("question"), record.text_or_texts("answers"), _passages(record), gold)


def _passages(record: Record) -> Iterator[Passage]:
    for number, passage in enumerate(record.items("passages") if "passages" in record.value else []):
        name = f"passages[{number}]"
        if isinstance(passage, str):
            yield Passage(record.as_text(passage, name))
            continue
        entry = record.as_part(passage, name)
        _refuse_other_fields(entry, {"text", "title", "conflicting"})
        yield Passage(entry.text("text"), entry.title(), entry.flag("conflicting") if "conflicting" in entry.value else False)


def _refuse_other_fields(record: Record, known: set[str]) -> None:
    unknown = [name for name in record.value if name not in known]
    if unknown:
        raise record.refusal(f"there is a field {unknown[0]!r}, which this format does not have. It has: {', '.join(sorted(known))}.")


PLAIN = Format(
    "plain",
    "question, answers, id, passages (texts, or text, title, conflicting), gold (counted from 0)",
    lambda value: {"question", "answers"} <= value.keys() and not {"ctxs", "passage", "context"} & value.keys(),
    plain,
)


def read_prompts(path: str | os.PathLike[str], limit: int | None = None) -> list[Prompt]:
    """The prompts of a file, or its first ones, for `floatlens trace --prompt-file`: JSON texts, or objects with `prompt` and `regions`.

    `regions`, which may be missing, maps names to [start, stop], in characters of the prompt. Other fields of an object are ignored, so
    that a file of another tool can be used as it is. Refused: a prompt that is no text, regions that are no spans of it or lie outside.

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "prompts.jsonl"
    >>> _ = file.write_text('"Who wrote Faust?"\\n{"prompt": "Anna wrote it.", "regions": {"doc_1": [0, 14]}}')
    >>> [prompt.text for prompt in read_prompts(file)]
    ['Who wrote Faust?', 'Anna wrote it.']
    """
    return list(islice(_prompts(Path(path).expanduser()), limit))


def _prompts(file: Path) -> Iterator[Prompt]:
    for record in read_records(file, bare_text="prompt"):
        text = record.text("prompt")
        regions = record.part("regions").value if "regions" in record.value else {}
        for name, span in regions.items():
            record.as_text(name, "regions")
            if not _is_span(span):
                raise record.refusal(f"the region {name!r} must be [start, stop], in characters of the prompt.")
        try:
            yield Prompt(text, {name: (start, stop) for name, (start, stop) in regions.items()})
        except Refusal as refusal:
            raise record.refusal(str(refusal)) from None


def _is_span(span: Any) -> bool:
    return isinstance(span, list) and len(span) == 2 and all(map(is_count, span))


TEXT = ("text", "contents", "segment", "passage")
COLUMNS = ["id", "text", "title"]


def read_passages(path: str | os.PathLike[str]) -> Iterator[Passage]:
    """The passages of a corpus, one at a time.

    A JSON record holds its passage in `text`, `contents`, `segment` or `passage`, with a `title` or without. A tab-separated file begins
    with the line `id<TAB>text<TAB>title`. Refused: a record without a passage, an empty one, a line with other columns.

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
        yield from _tab_separated(file)
        return
    for record in read_records(file):
        yield Passage(record.text(_text_field(record)), record.title())


def _text_field(record: Record) -> str:
    names = [name for name in TEXT if name in record.value]
    if len(names) != 1:
        raise record.refusal(f"a passage stands in exactly one of the fields {', '.join(TEXT)}. There are: {', '.join(record.value)}.")
    return names[0]


def _tab_separated(file: Path) -> Iterator[Passage]:
    """Rows below the head; quotes that hold tabs or quotes are those of CSV."""
    lines = read_lines(file)
    next(lines)
    for number, line in lines:
        row = next(csv.reader([line.rstrip("\r\n")], delimiter="\t"), [])
        if len(row) != len(COLUMNS) or not row[1].strip():
            raise Refusal(f"{file}, line {number}: this is not a passage with {', '.join(COLUMNS)}, separated by tabs.")
        yield Passage(row[1], row[2].strip())
