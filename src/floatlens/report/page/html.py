"""The page as files: one HTML file with everything inside, or a folder that loads what it shows.

Decided here: nothing of a run is ever part of the HTML. Data are base64 in `<script>` elements of a type that browsers do not execute,
one for each file of the page group. The only script that may run is the bundle, by its hash, and the only style is the page's own; no
request may leave the page (`default-src 'none'`). A folder differs in one thing: it may read files beside itself.
"""

import base64
import hashlib
import os
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path

from floatlens.errors import Refusal
from floatlens.folders import disk_failures, unfinished_folder, write_whole
from floatlens.folders.places import place_for
from floatlens.report.page.gather import Choices, Sources, write_page
from floatlens.report.page.group import InFolder, InMemory

WRITTEN_BY = "floatlens report"
LARGEST_FILE = 25_000_000  # bytes of a single file
BASE64 = 4 / 3
TITLE = "<title>floatlens</title>"


@cache
def asset(name: str) -> str:
    """A file of the built bundle."""
    return (files("floatlens") / "report" / "app" / name).read_text(encoding="utf-8")


def document(data: Mapping[str, bytes] | None) -> str:
    """The page, with its data or, without any, one that reads them from `data/` beside it.

    Examples
    --------
    >>> page = document({"zarr.json": b"</script>"})
    >>> "</script>" in page.partition('data-key="zarr.json">')[2].partition("</script>")[0]
    False
    """
    # in a script element, these two would end or change how the rest is read; a backslash means nothing inside strings
    script = asset("page.js").replace("</script", "<\\/script").replace("<!--", "<\\!--")
    style = asset("page.css")
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src '{_hash(script)}'",
            f"style-src '{_hash(style)}'",
            "img-src data: blob:",
            *(["connect-src 'self'"] if data is None else []),
            "base-uri 'none'",
            "form-action 'none'",
        )
    )
    parts = [
        "<!doctype html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="referrer" content="no-referrer">',
        TITLE,
        f"<style>{style}</style>",
        "</head>",
        '<body><div id="floatlens"></div>',
        "<noscript>This page draws everything with JavaScript, which is switched off in this browser.</noscript>",
        *(_element(key, content) for key, content in (data or {}).items()),
        f"<script>{script}</script>",
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _element(key: str, content: bytes) -> str:
    return f'<script type="application/octet-stream" data-key="{key}">{base64.b64encode(content).decode()}</script>'


def write_file(path: Path, sources: Sources, choices: Choices, *, largest: int = LARGEST_FILE, progress: bool = True) -> int:
    """Write the page and all its data into one file; how many bytes it has.

    What is known of each head gets the room that is left. Refused: runs that do not fit even without that.
    """
    place = refuse_file(path)
    sink = InMemory()
    own = len(document({}).encode())
    page = write_page(
        sink, sources, choices, room=lambda: max(0.0, (largest - own) / BASE64 - 1.05 * sink.bytes - 200_000), progress=progress
    )
    content = document(sink.files).encode()
    if len(content) > largest:
        samples = sum(len(run.samples) for run in page.runs)
        raise Refusal(
            f"{path} would have {len(content) / 1e6:.0f} MB with all {samples} samples, and a single file may have {largest / 1e6:.0f}. "
            "Choose some with --samples, write a folder with --folder, or use `floatlens view`."
        )
    with disk_failures(place):
        write_whole(place, content)
    return len(content)


def refuse_file(path: Path) -> Path:
    """Refuse a place where a file cannot be written, before anything runs."""
    place = path.expanduser().absolute()
    if place.is_symlink():
        raise Refusal(f"{path} is a link, and what it leads to is not replaced. Name the file itself, or a new one.")
    if place.is_dir():
        raise Refusal(f"{path} is a folder. Name a file, such as {path / 'report.html'}, or pass --folder to write a new folder.")
    if not place.parent.is_dir():
        raise Refusal(f"{path} cannot be written: there is no folder {place.parent}. Create it first.")
    if not os.access(place.parent, os.W_OK | os.X_OK):
        raise Refusal(f"{path} cannot be written: nothing may be written into {place.parent}. Choose another place.")
    if place.exists() and TITLE not in place.read_bytes()[:4000].decode(errors="replace"):
        raise Refusal(f"{path} exists and is not a page of floatlens. Choose another name.")
    return place


def write_folder(path: Path, sources: Sources, choices: Choices, *, progress: bool = True) -> None:
    """Write the page as a folder that loads what it shows; an earlier page of floatlens is replaced."""
    place_for(path, replacing=WRITTEN_BY)
    with unfinished_folder(path, WRITTEN_BY, replacing=WRITTEN_BY) as unfinished:
        fill_folder(unfinished.folder, sources, choices, progress=progress)


def fill_folder(folder: Path, sources: Sources, choices: Choices, *, progress: bool = True) -> None:
    """Write page and data into a folder that is there."""
    write_page(InFolder(folder / "data"), sources, choices, progress=progress)
    (folder / "index.html").write_text(document(None), encoding="utf-8")
