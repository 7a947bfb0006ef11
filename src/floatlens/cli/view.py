"""`floatlens view`: open the page of runs in the browser, served from this machine."""

import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from floatlens.cli.report import as_numbers
from floatlens.errors import Refusal
from floatlens.terminal import make_console, say

if TYPE_CHECKING:
    from floatlens.report.page.gather import Choices


def view(
    paths: list[str] = typer.Argument(
        help="Traces; folders of `floatlens eval`, `floatlens demo` or `floatlens curves`; or one folder of `floatlens report --folder`.",
        metavar="RUN",
    ),
    samples: str = typer.Option(None, help="Only these samples of every trace, separated by commas, e.g. 0,3; by default all."),
    rule: str = typer.Option("lift", help="How anchors are found: lift, additive, zscore, rate or top."),
    eps: float = typer.Option(None, help="The threshold of the rule, or the number of keys for top; by default the rule's own."),
    port: int = typer.Option(0, min=0, max=65535, help="The port; by default any that is free."),
    browser: bool = typer.Option(True, "--browser/--no-browser", help="Open the browser, or only print the address."),
) -> None:
    """Watch runs in the browser, with the exact values of every head.

    The page is served to this machine only, under an address that nobody can guess. Ctrl-C ends it.

    Examples:

      floatlens view run.zarr

      floatlens view twin-mdm.zarr twin-arm.zarr
    """
    from floatlens.report.page.gather import Choices

    choices = Choices(rule, eps, as_numbers(samples))
    if len(paths) == 1 and (Path(paths[0]) / "data" / "zarr.json").is_file():
        _serve(checked_folder(Path(paths[0])), port, browser)
        return
    with tempfile.TemporaryDirectory(prefix="floatlens-view-") as made:
        _fill(Path(made), paths, choices)
        _serve(Path(made), port, browser)


def _fill(folder: Path, paths: list[str], choices: "Choices") -> None:
    from floatlens.report.page.gather import find_sources
    from floatlens.report.page.html import fill_folder

    fill_folder(folder, find_sources(paths), choices)


def checked_folder(folder: Path) -> Path:
    """A folder that `floatlens report --folder` wrote, if it is as it was written."""
    from floatlens.folders import damage

    if wrong := damage(folder):
        raise Refusal(f"{folder} is damaged: {wrong[0]} Write it again with `floatlens report --folder`.")
    return folder


def _serve(folder: Path, port: int, browser: bool) -> None:
    from floatlens.report.page.server import open_browser, serving

    console = make_console()
    with serving(folder, port) as server:
        say(console, f"The page is at {server.address}")
        if browser and not open_browser(server.address):
            say(console, "No browser could be opened; open the address yourself.")
        say(console, "Press Ctrl-C to end.")
        sys.stdout.flush()  # to a pipe, nothing would be seen before the end
        try:
            while True:  # a wait without an end is not interrupted on every system
                time.sleep(1)
        except KeyboardInterrupt:
            say(console, "Ended.")
