"""A page in Chromium: open it, listen to everything it says, read what it shows. And traces to show."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from floatlens.trace.trace import SampleArrays, Trace

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PROMPT = "Marta Olsen lives in Oslo.\nBen Reed lives in Rome.\nWhere does Ben Reed live?"
HOSTILE = {
    "script": "</script><img src=x onerror=\"window.marker='ran'\">",
    "bidi": "\u202eevil\u2066",
    "half": "\ud800",
    "long": "x" * 10_000,
    "ansi": "\x1b[31mred\x07",
    "tags": "a\U000e0041\u034fb",
    "joiner": "\u200d",
    "formula": '=HYPERLINK("http://127.0.0.1:9/")',
    "brace": "{@html '<b>x</b>'} ${window.marker='ran'}",
}


def chromium() -> str:
    """Where Chromium is; the test is skipped where there is none."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("no Chromium was found: install the Debian package chromium to run the browser tests")
    return found


@dataclass(eq=False)
class Opened:
    """A page, and what it said and asked for."""

    page: Any
    said: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def lines(self) -> dict[str, str]:
        """What the hover box says, by name."""
        self.page.wait_for_selector(".hover dd")
        names, values = self.page.locator(".hover dt").all_inner_texts(), self.page.locator(".hover dd").all_inner_texts()
        return dict(zip(names, values, strict=True))

    def state(self) -> dict[str, str]:
        """The link, as its parts."""
        query = self.page.evaluate("location.hash").partition("?")[2]
        return dict(part.split("=", 1) for part in query.split("&"))

    def wait_for_state(self, **wanted: str) -> None:
        for name, value in wanted.items():
            self.page.wait_for_function(
                "([name, value]) => new RegExp('[?&]' + name + '=' + value + '(&|$)').test(location.hash)", arg=[name, value]
            )

    def wait_for_head(self, text: str) -> None:
        """Until the first panel says so above its text."""
        self.page.wait_for_function("(text) => document.querySelector('.panel-head p')?.textContent.includes(text)", arg=text)


@contextmanager
def opened(browser: Any, address: str, *, width: int = 1280, scheme: str = "light", wait_for: str = ".floatlens") -> Iterator[Opened]:
    """Open an address in a context of its own; outside requests are refused and remembered."""
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, accept_downloads=True)
    page = context.new_page()
    page.set_default_timeout(60_000)  # a busy machine; nothing waits that long unless it is broken
    seen = Opened(page)
    page.on("console", lambda message: seen.said.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: seen.said.append(str(error)))
    page.on("request", lambda request: seen.requests.append(request.url))
    try:
        page.goto(address)
        page.wait_for_selector(wait_for)
        yield seen
    finally:
        context.close()


def number(text: str) -> float:
    """The first number of a text, as the page writes it."""
    first = text.replace("≈", "").replace("≥", "").replace("\N{MINUS SIGN}", "-").split()[0]
    return float("nan") if first == "\N{EN DASH}" else float(first)


def null_of(text: str) -> float:
    return number(text.partition("null ")[2])


def with_words(trace: Trace, words: dict[int, str], prompt: str | None = None) -> Trace:
    """The same trace with other texts for some token ids, and another prompt."""
    samples = []
    for sample in trace._samples:  # the arrays themselves: there is no public way to change a text, and should be none
        vocabulary = {**sample.attributes["vocabulary"], **{str(token): text for token, text in words.items()}}
        changed = {**sample.attributes, "vocabulary": vocabulary}
        samples.append(SampleArrays(sample.arrays, changed if prompt is None else {**changed, "completion": prompt}))
    return Trace(samples, trace.attributes)


def save_page(path: Path, traces: dict[str, Trace]) -> str:
    """A single file of traces; its address."""
    from floatlens.report.page.gather import Choices, Sources
    from floatlens.report.page.html import write_file

    write_file(path, Sources(traces), Choices(), progress=False)
    return path.as_uri()
