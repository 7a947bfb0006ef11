"""One browser, two traces of the same prompt, and a study around them, for all browser tests."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import floatlens as fl
from browser.browsing import PROMPT, chromium, save_page
from browser.made_up_study import hostile_answers, sources_of
from floatlens.report.page.gather import Choices, Sources
from floatlens.report.page.html import write_file, write_folder
from floatlens.trace.trace import Trace


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    path = chromium()
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed: pip install playwright")
    with playwright.sync_playwright() as started:
        running = started.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture(scope="session")
def mdm() -> Trace:
    """With everything that a page can show: flow, and the full pattern of one head."""
    return fl.load("twin-mdm").trace([PROMPT], gen_length=6, steps=6, patterns=[(3, 1)], detail={"flow": "layer"}, progress=False)


@pytest.fixture(scope="session")
def arm() -> Trace:
    return fl.load("twin-arm").trace([PROMPT], gen_length=6, progress=False)


@pytest.fixture(scope="session")
def two_runs(mdm: Trace, arm: Trace, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of a page with both."""
    folder: Path = tmp_path_factory.mktemp("page")
    return save_page(folder / "report.html", {"mdm": mdm, "arm": arm})


@pytest.fixture(scope="session")
def answers() -> pl.DataFrame:
    return hostile_answers()


@pytest.fixture(scope="session")
def study_sources(mdm: Trace, arm: Trace, answers: pl.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Sources:
    return sources_of(tmp_path_factory.mktemp("study"), mdm, arm, answers)


@pytest.fixture(scope="session")
def study(study_sources: Sources, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of one file with everything."""
    file: Path = tmp_path_factory.mktemp("study-file") / "report.html"
    write_file(file, study_sources, Choices(), progress=False)
    return file.as_uri()


@pytest.fixture(scope="session")
def study_folder(study_sources: Sources, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same as a folder, to be served."""
    folder: Path = tmp_path_factory.mktemp("study-folder") / "report"
    write_folder(folder, study_sources, Choices(), progress=False)
    return folder
