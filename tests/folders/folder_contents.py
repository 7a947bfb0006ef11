"""What the tests of folders share: write a folder as a demo does, look at all files, read a refusal."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from floatlens.errors import Refusal
from floatlens.folders import (
    unfinished_folder,
)

DEMO = "floatlens demo"


def write_demo(place: Path, **files: str) -> None:
    with unfinished_folder(place, DEMO, replacing=DEMO) as unfinished:
        for name, text in files.items():
            (unfinished.folder / name).write_text(text)


def contents(folder: Path) -> dict[str, bytes]:
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def message_of(action: Callable[[], Any]) -> str:
    with pytest.raises(Refusal) as refused:
        action()
    return str(refused.value)
