"""Prompts from a file, for `floatlens trace --prompt-file`: one JSON text a line, or an object with `prompt` and, if you like, `regions`.

`regions` maps names to [start, stop], in characters of the prompt. Read like questions: gz or plain, JSON lines or one JSON document (`records`). Other fields of an object are left alone, so that
a file of another tool can be used as it is. Refused, with file and line: what `records` refuses, a prompt that is no text, regions that are no spans of it or lie outside.
"""

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from floatlens.decoding.prompts import Prompt
from floatlens.errors import Refusal
from floatlens.interventions.specification import is_count
from floatlens.tasks.readers.records import read_records


def read_prompts(path: str | os.PathLike[str], limit: int | None = None) -> list[Prompt]:
    """The prompts of a file, or its first ones.

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
