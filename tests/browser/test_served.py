"""The same page from `floatlens view`, from a folder, and as a widget: exact values, lazily loaded."""

import http.server
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from browser.browsing import number, opened
from browser.test_watch import AT
from floatlens.measures import lift
from floatlens.report.page.gather import Choices, Sources
from floatlens.report.page.html import asset, write_folder
from floatlens.report.page.server import serving
from floatlens.trace.trace import Trace


@pytest.fixture(scope="module")
def folder(mdm: Trace, arm: Trace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("served") / "report"
    write_folder(place, Sources({"mdm": mdm, "arm": arm}), Choices(), progress=False)
    return place


def test_a_served_page_shows_exact_values_per_head(browser: Any, folder: Path, mdm: Trace) -> None:
    exact = lift(mdm.sample(0)).sel(group="masked").isel(step=3, layer=4, head=2)
    with serving(folder) as server, opened(browser, f"{server.address}{AT}&head=2", wait_for=".token") as seen:
        seen.wait_for_head("head 2")
        for key in (0, 7, 25):
            seen.page.hover(f'.panel [data-position="{key}"] >> nth=0')
            said = seen.lines()["lift"]
            assert "≈" not in said
            assert number(said) == pytest.approx(exact[key].item(), rel=2e-4)
        assert seen.said == []
        assert all(url.startswith(server.address) for url in seen.requests if url.startswith("http"))


def test_a_served_page_reads_only_what_it_shows(browser: Any, folder: Path) -> None:
    with serving(folder) as server, opened(browser, server.address + AT, wait_for=".heat canvas") as seen:
        asked = {url.removeprefix(server.address).split("/")[4] for url in seen.requests if "/data/runs/" in url}
        assert "mass" in asked
        assert not asked & {"lift_by_head", "geometry", "role_share", "head_value"}


def test_a_folder_opened_as_a_file_says_what_to_do(browser: Any, folder: Path) -> None:
    with opened(browser, (folder / "index.html").as_uri(), wait_for=".cannot") as seen:
        assert "floatlens view" in seen.page.inner_text(".cannot")


@pytest.mark.parametrize(
    ("view", "lost"),
    [("#/run/mdm/0?step=3", "mass"), ("#/heads/mdm/0", "head_value"), ("#/why/mdm/0", "geometry"), ("#/run/mdm/0", "commits")],
)
def test_what_cannot_be_read_is_told(browser: Any, folder: Path, tmp_path: Path, view: str, lost: str) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    for chunk in (copy / "data" / "runs" / "0" / "0" / lost / "c").rglob("*"):
        if chunk.is_file():
            chunk.write_bytes(b"not gzip")
    with serving(copy) as server, opened(browser, server.address + view, wait_for="[role=alert]") as seen:
        assert "could not be read" in seen.page.inner_text("[role=alert]")


def test_the_command_serves_until_it_is_interrupted(browser: Any, folder: Path) -> None:
    # a shell that started the tests in the background has told them to ignore interrupts, and they would hand that on
    start = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from floatlens.cli import run; run()"
    command = [sys.executable, "-c", start, "view", str(folder), "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={"COLUMNS": "300"}) as running:
        assert running.stdout is not None
        address = re.search(r"http://127\.0\.0\.1:\d+/\S+/", running.stdout.readline())
        assert address
        with opened(browser, address[0], wait_for=".token") as seen:
            assert seen.said == []
        running.send_signal(signal.SIGINT)
        assert "Ended." in running.communicate(timeout=120)[0]
        assert running.returncode == 0


@pytest.fixture
def notebook(mdm: Trace, tmp_path: Path) -> Iterator[str]:
    """A page that does what anywidget's loader does: import the module and hand it a model and an element."""
    pytest.importorskip("anywidget", reason="anywidget is not installed: pip install anywidget")
    widget = mdm.view()
    assert widget._esm == asset("widget.js")
    (tmp_path / "files").mkdir()
    names = []
    for place, (key, content) in enumerate(widget.files.items()):
        (tmp_path / "files" / str(place)).write_bytes(content)
        names.append(f'"{key}"')
    (tmp_path / "widget.js").write_text(widget._esm)
    (tmp_path / "widget.css").write_text(widget._css)
    (tmp_path / "index.html").write_text(
        f"""<!doctype html><html lang="en"><title>notebook</title><link rel="stylesheet" href="widget.css">
        <main id="cell"></main><script type="module">
        import widget from "./widget.js";
        const names = [{",".join(names)}];
        const files = Object.fromEntries(await Promise.all(names.map(async (name, place) =>
            [name, new DataView(await (await fetch("files/" + place)).arrayBuffer())])));
        window.loaded = performance.getEntriesByType("resource").length;
        await widget.render({{ model: {{ get: () => files }}, el: document.getElementById("cell") }});
        </script>"""
    )
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/index.html"
        server.shutdown()


def test_a_widget_shows_the_same_and_fetches_nothing(browser: Any, notebook: str) -> None:
    with opened(browser, notebook, wait_for=".token") as seen:
        before = seen.page.evaluate("location.hash")
        for view, sign in (("Heads", ".cell"), ("Why", ".point"), ("Tour", ".tour"), ("Watch", ".heat canvas")):
            seen.page.get_by_role("button", name=view, exact=True).click()
            seen.page.wait_for_selector(sign)
        seen.page.click(".token >> nth=3")
        seen.page.keyboard.press("ArrowRight")
        seen.page.wait_for_function("() => document.querySelector('.where b').textContent === '3'")
        assert seen.page.evaluate("location.hash") == before == ""
        assert [url for url in seen.requests if "favicon" not in url][-1].endswith(tuple(f"files/{place}" for place in range(500)))
        assert [text for text in seen.said if "favicon" not in text and "404" not in text] == []
