"""Run commands in tests as the shell does."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from floatlens.cli import run


@pytest.fixture
def floatlens(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Callable[..., tuple[int, str, str]]:
    """Run a command; exit code, output, errors."""
    monkeypatch.setenv("FLOATLENS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "120")

    def command(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["floatlens", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            run()
        said = capsys.readouterr()
        return int(ended.value.code or 0), said.out, said.err

    return command
