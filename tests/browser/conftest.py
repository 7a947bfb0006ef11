"""One browser and two traces of the same prompt for all browser tests."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import floatlens as fl
from browser.browsing import PROMPT, chromium, save_page
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
