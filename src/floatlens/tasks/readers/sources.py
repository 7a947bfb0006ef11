"""Where records come from: a file, or a data set of the Hugging Face hub.

A hub data set is named "hf:NAME/SPLIT", or "hf:NAME:CONFIGURATION/SPLIT" where it has several configurations, and is streamed. Refused, each in one sentence: the `datasets` package is
not installed, the hub cannot be reached, there is no such data set.
"""

import importlib
import os
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from floatlens.errors import Refusal
from floatlens.tasks.readers.records import Record, read_records

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
            f"{source!r} does not say which data set and split. Write hf:NAME/SPLIT or hf:NAME:CONFIGURATION/SPLIT, as in hf:openai/gsm8k:main/test."
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
        said = str(error).strip().splitlines()
        raise Refusal(f"{source} could not be read from the Hugging Face hub: {said[0] if said else type(error).__name__}.") from error
