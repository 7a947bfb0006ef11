"""Take a picture of every view of a page, light and dark, wide and narrow: `python benchmarks/page_pictures.py report.html -o pictures`.

Pictures are whole pages in 256 colours, small enough to be committed; `--screen` takes what one screen shows instead. Look at each of them
after a change of the page: tests do not see what is ugly.
"""

import argparse
import io
from pathlib import Path
from typing import Any

from PIL import Image

from page_speed import browsing

VIEWS = {
    "watch": ("#/run", ".heat canvas"),
    "heads": ("#/heads?head=1", ".chosen.over, .lacking"),
    "why": ("#/why", ".point, .lacking"),
    "claims": ("#/claims", ".claim"),
    "contexts": ("#/contexts", ".plot .dot"),
    "training": ("#/training", ".plot .dot"),
    "tour": ("#/tour", ".tour .finding"),
}
SCHEMES = ("light", "dark")
WIDTHS = {1280: 800, 390: 844}


def settled(page: Any) -> None:
    """Until nothing is being read and what was read is drawn."""
    page.wait_for_function("() => !document.body.innerText.includes('Reading …')")
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => setTimeout(done, 500)))")


def picture(page: Any, whole: bool, upper: int | None = None) -> Image.Image:
    if whole:  # as on a screen that is tall enough: the scrubber sticks to its lower edge, and everything is drawn
        page.set_viewport_size({"width": page.viewport_size["width"], "height": page.evaluate("document.documentElement.scrollHeight")})
        settled(page)
    clip = {"x": 0, "y": 0, "width": page.viewport_size["width"], "height": upper} if upper else None
    taken = Image.open(io.BytesIO(page.screenshot(clip=clip)))
    return taken.convert("RGB").quantize(256, dither=Image.Dither.NONE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=Path, help="a file that `floatlens report` wrote")
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder for the pictures")
    parser.add_argument("--view", nargs="+", choices=VIEWS, default=list(VIEWS), help="only these views")
    parser.add_argument("--scheme", nargs="+", choices=SCHEMES, default=list(SCHEMES), help="only these themes")
    parser.add_argument("--width", nargs="+", type=int, choices=WIDTHS, default=list(WIDTHS), help="only these widths")
    parser.add_argument("--link", help="instead of the views: one link, as the address bar shows it, e.g. '#/run/mdm/0?step=4'")
    parser.add_argument("--upper", type=int, metavar="PIXELS", help="only so much of the whole page, from its top")
    parser.add_argument("--screen", action="store_true", help="what one screen shows, not the whole page")
    asked = parser.parse_args()
    asked.output.mkdir(parents=True, exist_ok=True)
    links = {"link": (asked.link, ".card")} if asked.link else {view: VIEWS[view] for view in asked.view}
    with browsing() as browser:
        for width in asked.width:
            for scheme in asked.scheme:
                page = browser.new_context(viewport={"width": width, "height": WIDTHS[width]}, color_scheme=scheme).new_page()
                page.set_default_timeout(600_000)
                for view, (link, sign) in links.items():
                    page.goto("about:blank")
                    page.set_viewport_size({"width": width, "height": WIDTHS[width]})
                    page.goto(asked.page.resolve().as_uri() + link)
                    page.wait_for_selector(".floatlens nav")
                    if not asked.link and not page.get_by_role("button", name=view.capitalize(), exact=True).count():
                        continue  # the page holds nothing for it
                    page.wait_for_selector(sign)
                    settled(page)
                    file = asked.output / f"{view}-{scheme}-{width}.png"
                    picture(page, not asked.screen, asked.upper).save(file, optimize=True)
                    print(f"{file} ({file.stat().st_size / 1e3:.0f} kB)", flush=True)
                page.context.close()


if __name__ == "__main__":
    main()
