"""How quick the page is, in Chromium: a LLaDA-shaped run in one file, and a long run in a folder.

Goals: first view within 2 s, a scrubbed step within 33 ms at the median and 50 ms at the 95th percentile, one file of at most 25 MB, a
bundle of at most 300 kB gzipped; 128 steps of 2,048 keys open within 3 s and stay below 1 GB of browser memory. The machine should have
nothing else to do. `--write` also writes docs/benchmarks/page-speed.md.
"""

import argparse
import gzip
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from rich.console import Console

from page import write_table

LONG_STEPS, LONG_LAYERS, LONG_KEYS = 128, 32, 2048
FIRST_VIEW = """() => new Promise((resolve) => {
    const drawn = () => document.querySelector('.heat canvas');
    const look = () => drawn() ? requestAnimationFrame(() => resolve(performance.now())) : setTimeout(look, 4);
    look();
})"""
SCRUB = """async (steps) => {
    const slider = document.querySelector('.dock input[type=range]');
    const shown = () => document.querySelector('.panel').dataset.shown;
    const took = [];
    for (const step of steps) {
        const began = performance.now();
        slider.value = String(step);
        slider.dispatchEvent(new Event('input', { bubbles: true }));
        await new Promise((resolve) => {
            const look = () => shown() === String(step) ? requestAnimationFrame(() => setTimeout(resolve)) : setTimeout(look, 1);
            look();
        });
        took.push(performance.now() - began);
    }
    return took;
}"""


def long_trace() -> Any:
    """A trace of 128 steps and 2,048 keys that kept means over heads."""
    from floatlens.trace.schema import PRESETS
    from floatlens.trace.store import SampleInMemory
    from floatlens.trace.trace import SampleArrays, Trace
    from llada_shaped import _said

    draw, groups = np.random.default_rng(0), ("masked", "unmasked", "predicting")
    shape = (LONG_STEPS, LONG_LAYERS, len(groups), LONG_KEYS)
    committed = np.full(LONG_KEYS, -1, np.int32)
    committed[-2 * LONG_STEPS :] = draw.permutation(np.repeat(np.arange(LONG_STEPS), 2))
    when = np.arange(LONG_STEPS)[:, None]
    state = np.where(committed < when, 4, np.where(committed == when, 3, 2)).astype(np.int8)
    state[:, : -2 * LONG_STEPS] = 1
    masked = np.isin(state, (2, 3))
    rows = np.stack([masked, ~masked, state == 3], axis=1).sum(-1).astype(np.float32)
    mass = np.exp(draw.gumbel(size=shape).astype(np.float32))
    mass *= rows[:, None, :, None] / mass.sum(-1, keepdims=True)
    seen = np.repeat(rows[..., None], LONG_KEYS, axis=-1)
    canvas = (state + draw.integers(0, 9, LONG_KEYS)).astype(np.int32)
    sample = SampleInMemory()
    sample.append(
        {
            "canvas": (("step", "position"), canvas),
            "state": (("step", "position"), state),
            "confidence": (("step", "position"), np.where(masked, draw.random(masked.shape), np.nan).astype(np.float32)),
            "mass": (("step", "layer", "group", "key"), mass),
            "visible": (("step", "group", "key"), seen),
            "null": (("step", "group", "key"), np.where(seen > 0, np.float32(1 / LONG_KEYS), np.float32(np.nan))),
            "rows": (("step", "group"), rows),
            "rows_without_keys": (("step", "group"), np.zeros_like(rows)),
            "entropy": (("step", "layer", "group"), draw.random(shape[:3], dtype=np.float32)),
        }
    )
    flat = np.zeros(LONG_KEYS, bool)
    whole = {
        "final": canvas[-1],
        "committed": committed,
        "char_start": np.full(LONG_KEYS, -1, np.int32),
        "char_stop": np.full(LONG_KEYS, -1, np.int32),
        "template": flat,
        "special": flat,
    }
    arrays = {name: (("position",), values) for name, values in whole.items()}
    inside = (("region", "position"), np.stack([~masked[0], masked[0]]))
    vocabulary = {str(number): f" word{number}" for number in range(20)}
    sample.finish({**arrays, "in_region": inside}, {"prompt": "", "completion": "", "vocabulary": vocabulary})
    said = {**_said(), "detail": dict(PRESETS["light"]), "heads": 32, "layers": LONG_LAYERS}
    return Trace([SampleArrays(sample.arrays, sample.attributes)], said)


@contextmanager
def browsing() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    path = shutil.which("chromium") or shutil.which("google-chrome")
    if path is None:
        raise SystemExit("No Chromium was found: install the Debian package chromium.")
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


def browser_memory() -> int:
    """Bytes of all processes of the browser; shared pages are counted once (PSS)."""
    below = psutil.Process().children(recursive=True)
    return sum(process.memory_full_info().pss for process in below if "chrom" in process.name())


@dataclass(frozen=True)
class Shown:
    """Seconds to the first view, milliseconds of each step, those of the main thread's own work, bytes of memory."""

    first: float
    steps: list[float]
    work: float
    memory: int


def show(browser: Any, address: str, steps: list[int]) -> Shown:
    """Open a page and scrub through it. The work of the main thread is counted in its own time, whatever else the machine does."""
    page = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
    page.set_default_timeout(600_000)
    page.goto(address, wait_until="commit")
    page.wait_for_selector("#floatlens", state="attached")
    first = page.evaluate(FIRST_VIEW) / 1000
    page.evaluate(SCRUB, [steps[0]])
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    before = _work(session)
    took = page.evaluate(SCRUB, steps[1:])
    work = 1000 * (_work(session) - before) / len(took)
    memory = browser_memory()
    page.close()
    return Shown(first, took, work, memory)


def _work(session: Any) -> float:
    """Seconds that the main thread has worked."""
    metrics = {metric["name"]: metric["value"] for metric in session.send("Performance.getMetrics")["metrics"]}
    return metrics["TaskDuration"]


def verdict(value: float, goal: float) -> str:
    return "met" if value <= goal else "missed"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write docs/benchmarks/page-speed.md")
    parser.add_argument("--make", metavar="FOLDER", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    from floatlens.report.page.html import asset
    from floatlens.report.page.server import serving

    if asked.make:
        make(Path(asked.make))
        return
    with tempfile.TemporaryDirectory() as folder:
        # in a process of its own, so that its memory is not that of the browser's parent
        subprocess.run([sys.executable, __file__, "--make", folder], check=True)
        file = Path(folder, "report.html")
        with browsing() as browser:
            one = show(browser, file.as_uri(), [*range(1, 32), *range(30, -1, -1)])
            with serving(Path(folder, "long")) as server:
                long = show(browser, server.address, list(range(0, LONG_STEPS, 3)))
        size = file.stat().st_size / 1e6
    median, late = statistics.median(one.steps), float(np.percentile(one.steps, 95))
    bundle = len(gzip.compress((asset("page.js") + asset("page.css")).encode())) / 1e3
    lines = [
        "| what | measured | goal | |",
        "|---|---|---|---|",
        f"| LLaDA-shaped run, one file: size | {size:.1f} MB | 25 MB | {verdict(size, 25)} |",
        f"| first view | {one.first:.2f} s | 2 s | {verdict(one.first, 2)} |",
        f"| a scrubbed step, median | {median:.0f} ms | 33 ms | {verdict(median, 33)} |",
        f"| a scrubbed step, 95th percentile | {late:.0f} ms | 50 ms | {verdict(late, 50)} |",
        f"| work of the main thread per step, in its own time | {one.work:.0f} ms | | |",
        f"| 128 steps, 2,048 keys, folder: first view | {long.first:.2f} s | 3 s | {verdict(long.first, 3)} |",
        f"| memory of the browser after scrubbing through it | {long.memory / 1e9:.2f} GB | 1 GB | {verdict(long.memory / 1e9, 1)} |",
        f"| a scrubbed step there, median | {statistics.median(long.steps):.0f} ms | | |",
        f"| work of the main thread per step there | {long.work:.0f} ms | | |",
        f"| bundle, gzipped | {bundle:.0f} kB | 300 kB | {verdict(bundle, 300)} |",
    ]
    Console().print("\n".join(lines), markup=False, highlight=False)
    if asked.write:
        busy = os.getloadavg()[0]
        write_table("page-speed.md", "page_speed.py", lines, f", while {busy:.0f} processes wanted to run" if busy > 1.5 else "")


def make(folder: Path) -> None:
    """Both pages."""
    from floatlens.report.page.gather import Choices, Sources
    from floatlens.report.page.html import write_file, write_folder
    from llada_shaped import llada_shaped

    write_file(folder / "report.html", Sources({"synthetic": llada_shaped()}), Choices())
    write_folder(folder / "long", Sources({"long": long_trace()}), Choices())


if __name__ == "__main__":
    main()
