"""The generated pages of the reference say what the code says; docs/reference/generate.py writes them."""

import re
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from typing import Any

import pytest
import typer
from markdown_pages import ROOT

import floatlens as fl
from floatlens import interventions, measures
from floatlens.cli import app
from floatlens.report import figures

REFERENCE = ROOT / "docs" / "reference"
GROUP: Any = typer.main.get_command(app)
AGAIN = "run `python docs/reference/generate.py`"


@pytest.fixture(scope="module")
def generator() -> Any:
    spec = spec_from_file_location("generate_reference", REFERENCE / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_of_commands_is_what_help_prints(floatlens: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch) -> None:
    page = (REFERENCE / "commands.md").read_text(encoding="utf-8")
    monkeypatch.setenv("COLUMNS", "80")
    studies = GROUP.commands["study"].commands
    assert studies
    for words in ([], *([name] for name in GROUP.commands), *(["study", name] for name in studies)):
        _, said, _ = floatlens(*words, "--help")
        said = re.sub("^Usage: .*?floatlens", "Usage: floatlens", said)  # `python -m pytest` calls it by another name
        heading = " ".join(["## floatlens", *words])
        assert f"{heading}\n\n```text\n{said}```\n" in page, AGAIN


def test_the_generated_pages_are_up_to_date(generator: Any) -> None:
    assert (REFERENCE / "commands.md").read_text(encoding="utf-8") == generator.commands_page(), AGAIN
    assert (REFERENCE / "api.md").read_text(encoding="utf-8") == generator.api_page(), AGAIN


def test_every_public_name_is_in_the_api() -> None:
    page = (REFERENCE / "api.md").read_text(encoding="utf-8")
    names = {*fl.__all__, *measures.__all__, *interventions.__all__, *figures.__all__} - {"__version__", "RULES", "KINDS"}
    assert [name for name in sorted(names) if f".{name}` |" not in page] == []


def test_a_public_name_without_a_section_is_refused(generator: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fl, "__all__", [*fl.__all__, "open_box"])
    monkeypatch.setattr(fl, "open_box", lambda: None, raising=False)
    with pytest.raises(RuntimeError, match=r"fl\.open_box is public and has no section"):
        generator.api_page()
