"""The widget in a real JupyterLab: a cell shows a trace, slider and keys work, and nothing leaves the machine."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from browser.browsing import Opened, opened
from floatlens.trace.trace import Trace

pytest.importorskip("jupyterlab", reason="JupyterLab is not installed: pip install 'floatlens[notebook]' to run the test in a notebook")
CELL = 'import floatlens as fl\n\nfl.open_trace("mdm.zarr").view()'
STARTS_WITHIN = 300  # seconds, on a busy machine; a failed start ends the process, and is noticed at once


def notebook() -> dict[str, Any]:
    cell = {"cell_type": "code", "id": "show", "metadata": {}, "source": CELL, "outputs": [], "execution_count": None}
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": [cell], "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


@pytest.fixture(scope="module")
def laboratory(mdm: Trace, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A JupyterLab with a notebook in it; the address of the notebook."""
    home = tmp_path_factory.mktemp("jupyter")
    work = home / "work"
    work.mkdir()
    mdm.save(work / "mdm.zarr")
    (work / "show.ipynb").write_text(json.dumps(notebook()))
    settings = [
        "--no-browser",
        "--ServerApp.ip=127.0.0.1",
        "--ServerApp.port=0",
        "--ServerApp.allow_root=True",
        f"--ServerApp.root_dir={work}",
        "--LabApp.news_url=",
        "--LabApp.check_for_updates_class=jupyterlab.handlers.announcements.NeverCheckForUpdate",
    ]
    own = {f"JUPYTER_{name}_DIR": str(home / name.lower()) for name in ("CONFIG", "DATA", "RUNTIME")}
    environment = {**os.environ, **own, "HOME": str(home), "JUPYTERLAB_SETTINGS_DIR": str(home / "settings")}
    with (home / "log").open("w") as log:
        server = subprocess.Popen([sys.executable, "-m", "jupyterlab", *settings], stdout=log, stderr=log, env=environment)
    try:
        yield _address(server, home)
    finally:
        server.terminate()
        server.wait(60)


def _address(server: subprocess.Popen[bytes], home: Path) -> str:
    end = time.monotonic() + STARTS_WITHIN
    while time.monotonic() < end and server.poll() is None:
        for file in (home / "runtime").glob("jpserver-*.json"):
            about = json.loads(file.read_text())
            return f"{about['url']}lab/tree/show.ipynb?token={about['token']}"
        time.sleep(0.2)
    pytest.fail(f"JupyterLab did not start:\n{(home / 'log').read_text()[-2000:]}")


@pytest.fixture
def cell(browser: Any, laboratory: str) -> Iterator[Opened]:
    """The notebook, after its cell has run."""
    with opened(browser, laboratory, wait_for=".jp-Cell .cm-content") as seen:
        seen.page.set_default_timeout(1000 * STARTS_WITHIN)  # a kernel starts and imports floatlens meanwhile
        seen.page.wait_for_function("() => document.querySelector('#jp-main-statusbar')?.innerText.includes('| Idle')")
        seen.page.click(".jp-Cell .cm-content")
        seen.page.keyboard.press("Control+Enter")
        seen.page.wait_for_function("() => document.querySelector('.jp-InputPrompt').textContent !== '[ ]:'")
        seen.page.wait_for_selector(".jp-OutputArea .floatlens .token")
        seen.page.set_default_timeout(60_000)
        yield seen


def wait_for_cursor(page: Any, *words: str) -> None:
    """Until the line above the text says all of them, such as `step 3` and `layer 2`."""
    page.wait_for_function(
        "(words) => words.every((own) => document.querySelector('.floatlens .panel-head p').textContent.includes(own))", arg=words
    )


def test_a_cell_shows_a_trace_whose_scrubber_works_and_nothing_leaves_the_machine(browser: Any, laboratory: str) -> None:
    host = laboratory.partition("lab/tree")[0]
    with opened(browser, laboratory, wait_for=".jp-Cell .cm-content") as seen:
        seen.page.set_default_timeout(1000 * STARTS_WITHIN)  # a kernel starts and imports floatlens meanwhile
        sockets: list[str] = []
        errors: list[str] = []  # JupyterLab warns of its own slow plugins
        seen.page.on("websocket", lambda socket: sockets.append(socket.url))
        seen.page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        seen.page.on("pageerror", lambda error: errors.append(str(error)))
        seen.page.wait_for_function("() => document.querySelector('#jp-main-statusbar')?.innerText.includes('| Idle')")
        seen.page.click(".jp-Cell .cm-content")
        seen.page.keyboard.press("Control+Enter")
        seen.page.wait_for_function("() => document.querySelector('.jp-InputPrompt').textContent !== '[ ]:'")
        seen.page.wait_for_selector(".jp-OutputArea .floatlens .token")
        assert seen.page.locator(".jp-OutputArea .floatlens .panel-head h2").inner_text() == "twin-mdm"
        shown = seen.page.locator(".floatlens .where b")
        slider = seen.page.locator(".floatlens .dock input[type=range]")
        for step in ("5", "1"):
            slider.fill(step)
            seen.page.wait_for_function("(step) => document.querySelector('.floatlens .panel').dataset.shown === step", arg=step)
            assert shown.inner_text() == step
        for view, sign in (("Heads", ".cell"), ("Why", ".point"), ("Tour", ".tour")):
            seen.page.locator(".floatlens").get_by_role("button", name=view, exact=True).click()
            seen.page.wait_for_selector(f".floatlens {sign}")
        assert [url for url in seen.requests if not url.startswith((host, "data:", "blob:"))] == []
        assert [url for url in sockets if not url.startswith(host.replace("http:", "ws:"))] == []
        assert errors == []


def test_keys_pressed_in_the_widget_move_its_cursor_and_never_reach_the_notebook(cell: Opened) -> None:
    press, page = cell.page.keyboard.press, cell.page
    wait_for_cursor(page, "step 2", "layer 3", "all heads")
    for place in (".panel-head h2", ".token >> nth=3", ".dock input[type=range]"):
        page.click(f".floatlens {place}")
        press("Home")
        wait_for_cursor(page, "step 0")
        press("ArrowRight")
        wait_for_cursor(page, "step 1")
        press("ArrowRight")
        wait_for_cursor(page, "step 2")
        press("ArrowLeft")
        wait_for_cursor(page, "step 1", "layer 3")
        press("ArrowUp")
        wait_for_cursor(page, "layer 2", "all heads")
        press("ArrowDown")
        wait_for_cursor(page, "layer 3")
        press("]")
        wait_for_cursor(page, "head 0")
        press("[")
        wait_for_cursor(page, "all heads")
    press("d")  # twice, JupyterLab deletes a cell; b inserts one, and Enter edits it
    press("d")
    press("b")
    press("/")
    page.wait_for_selector(".floatlens .search input:focus")
    page.keyboard.type("Rome")
    press("Enter")
    page.wait_for_selector(".floatlens .token.pinned >> text=Rome")
    press("Escape")
    page.wait_for_selector(".floatlens .search", state="detached")
    press("End")
    wait_for_cursor(page, "step 5")
    assert page.locator(".jp-Notebook .jp-Cell").count() == 1
    assert "jp-mod-commandMode" in page.get_attribute(".jp-Notebook", "class")


def test_keys_of_the_notebook_with_control_still_reach_it(cell: Opened) -> None:
    before = cell.page.inner_text(".jp-Cell .jp-InputPrompt")
    cell.page.click(".floatlens .panel-head h2")
    cell.page.keyboard.press("Control+Enter")  # runs the cell again
    cell.page.set_default_timeout(1000 * STARTS_WITHIN)
    cell.page.wait_for_function(
        "(before) => ![before, '[ ]:', '[*]:'].includes(document.querySelector('.jp-Cell .jp-InputPrompt').textContent)", arg=before
    )


def test_what_is_hovered_stands_beside_the_token_and_in_one_line_each(cell: Opened) -> None:
    token = cell.page.locator(".floatlens .token").nth(8)
    token.hover()
    said = cell.lines()
    assert said["position"] == "8"
    place, box = token.bounding_box(), cell.page.locator(".floatlens .hover").bounding_box()
    assert 0 < box["x"] - place["x"] < 60
    assert 0 < box["y"] - place["y"] - place["height"] < 30
    heights = [term.bounding_box()["height"] for term in cell.page.locator(".floatlens .hover dt").all()]
    assert max(heights) < 25
