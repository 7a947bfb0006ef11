"""What holds in every view: it opens when served, its link restores it, its charts have twins and exports, and grey tells enough."""

import csv
import io
import itertools
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from browser.browsing import Opened, opened
from browser.made_up_study import VIEWS
from floatlens.measures import lift
from floatlens.measures.received_attention import mean_over_heads
from floatlens.report.page.server import serving
from floatlens.trace.trace import Trace

WATCH = ("#/run/mdm/0?step=3&layer=4&group=masked&with=arm", ".heat canvas")
ALL = {"watch": WATCH, **VIEWS}


@pytest.mark.parametrize("view", ALL)
def test_every_view_opens_when_served_without_errors_and_asks_only_its_server(browser: Any, study_folder: Path, view: str) -> None:
    link, sign = ALL[view]
    with serving(study_folder) as server, opened(browser, server.address + link, wait_for=sign) as seen:
        assert seen.said == []
        assert seen.page.evaluate("window.marker") is None
        assert [url for url in seen.requests if not url.startswith((server.address, "data:", "blob:"))] == []


def said_by(seen: Opened) -> str:
    """What the view says, once nothing is being read."""
    seen.page.wait_for_function("() => !document.body.innerText.includes('Reading …')")
    text: str = seen.page.inner_text("main")
    return text


STATES = {
    "heads": "#/heads/arm/0?step=2&layer=1&head=3&group=predicting&with=mdm&key=9&measure=row%20entropy",
    "why": "#/why/mdm/0?step=1&layer=2&group=predicting",
    "contexts": "#/contexts/mdm/0?step=1&layer=2&group=masked&outcome=log_likelihood&point=gold%20%7C%20%20%7C%20",
    "training": "#/training/mdm/0?step=1&layer=2&group=masked&depth=2&update=1",
    "tour": "#/tour/mdm/0?step=1&layer=4&group=masked&with=arm&stop=3",
    "row": "#/run/mdm/0?step=4&layer=2&head=1&group=masked&with=arm&key=21&row=21&heat=steps&colour=share&scale=linear",
}


@pytest.mark.parametrize("state", STATES)
def test_the_link_of_every_view_restores_its_state_after_a_reload(browser: Any, study: str, state: str) -> None:
    link = STATES[state]
    sign = ALL.get(state, (link, ".evidence li"))[1]
    with opened(browser, study + link, wait_for=sign) as seen:
        before = said_by(seen)
        assert seen.page.evaluate("location.hash") == link
        seen.page.reload()
        seen.page.wait_for_selector(sign)
        seen.page.wait_for_function("(before) => document.querySelector('main').innerText === before", arg=before)
        assert seen.page.evaluate("location.hash") == link


def test_a_click_pins_and_escape_unpins(browser: Any, two_runs: str) -> None:
    with opened(browser, two_runs + WATCH[0], wait_for=".token") as seen:
        seen.wait_for_head("step 3")
        seen.page.click('.panel [data-position="7"] >> nth=0')
        seen.wait_for_state(key="7")
        assert seen.page.locator(".token.pinned").first.get_attribute("data-position") == "7"
        assert seen.page.locator(".heat .key-now").first.is_visible()
        seen.page.keyboard.press("Escape")
        seen.page.wait_for_selector(".token.pinned", state="detached")
        seen.page.wait_for_function("() => !location.hash.includes('key=')")


# presses every button of every chart and gives back what was handed to the browser to save
EXPORTS = """async () => {
    const saved = [];
    const make = URL.createObjectURL.bind(URL);
    URL.createObjectURL = (blob) => { saved.push(blob); return make(blob); };
    HTMLAnchorElement.prototype.click = () => {};
    const until = (told) => new Promise((done) => {
        const look = () => { const got = told(); if (got) done(got); else setTimeout(look, 5); };
        look();
    });
    const charts = [...document.querySelectorAll("svg[data-chart]")].filter((own) => own.checkVisibility());
    const boxes = new Map();
    const lonely = [];
    for (const chart of charts) {
        const box = chart.closest(".card, .dock");
        const of = (name) => [...(box?.querySelectorAll("button") ?? [])].find((own) => own.textContent.trim() === name);
        if (["Table", "CSV", "SVG", "PNG"].every(of)) boxes.set(box, of); else lonely.push(chart.getAttribute("aria-label"));
    }
    const result = [];
    for (const [box, of] of boxes) {
        const words = [...box.querySelectorAll(".legend li")].map((own) => own.innerText.trim());
        const one = { words, charts: box.querySelectorAll("svg[data-chart]").length };
        for (const kind of ["CSV", "SVG"]) {
            const before = saved.length;
            of(kind).click();
            one[kind] = await (await until(() => saved[before])).text();
        }
        const before = saved.length;
        of("PNG").click();
        const png = await until(() => saved.slice(before).find((blob) => blob.type === "image/png"));
        one.PNG = [...new Uint8Array(await png.arrayBuffer())].slice(0, 8);
        of("Table").click();
        await until(() => box.querySelector("[role=region] table"));
        one.head = [...box.querySelectorAll("[role=region] th")].map((own) => own.textContent);
        one.rows = box.querySelectorAll("[role=region] tbody tr").length;
        of("Chart").click();
        await until(() => box.querySelector("svg[data-chart]"));
        result.push(one);
    }
    return [result, lonely];
}"""


@pytest.mark.parametrize("view", ALL)
def test_every_chart_of_every_view_has_a_table_and_can_be_saved(browser: Any, study: str, view: str) -> None:
    link, sign = ALL[view]
    with opened(browser, study + link, wait_for=sign) as seen:
        said_by(seen)
        charts, lonely = seen.page.evaluate(EXPORTS)
        assert lonely == []
        assert charts
        for chart in charts:
            rows = list(csv.reader(io.StringIO(chart["CSV"])))
            assert len({len(row) for row in rows}) == 1
            assert rows[0] == chart["head"]
            assert min(400, len(rows) - 1) == chart["rows"] > 0
            picture = ElementTree.fromstring(chart["SVG"])
            assert picture.tag == "{http://www.w3.org/2000/svg}svg"
            drawings = [own for own in picture if own.tag.endswith("svg") and float(own.get("width", 0)) > 100]
            assert len(drawings) == chart["charts"]
            written = " ".join(own.text or "" for own in picture if own.tag.endswith("text"))
            for words in chart["words"]:
                assert " ".join(words.split()) in written
            assert bytes(chart["PNG"]) == b"\x89PNG\r\n\x1a\n"
        assert seen.said == []


def test_without_colour_states_series_and_amounts_are_still_told_apart(browser: Any, two_runs: str, mdm: Trace) -> None:
    with opened(browser, two_runs + WATCH[0], wait_for=".heat canvas") as seen:
        seen.wait_for_head("step 3")
        look = seen.page.evaluate("""() => {
            const of = (sign, part) => getComputedStyle(document.querySelector(sign), part);
            const ground = (sign) => of(sign, "::before").backgroundImage + of(sign).backgroundImage;
            const frame = (sign) => of(sign).outlineStyle + of(sign).boxShadow;
            return { masked: ground(".masked"), prompt: ground(".prompt"), now: frame(".token.now"), before: frame(".token.before") };
        }""")
        assert "gradient" in look["masked"]
        assert "gradient" not in look["prompt"]
        assert look["now"] != look["before"]
        series = seen.page.evaluate("""() => [...document.querySelectorAll(".plot")].map((plot) =>
            [...plot.querySelectorAll("svg[data-chart] path.line")].map((line) => getComputedStyle(line).strokeDasharray))""")
        nulls = seen.page.evaluate("""() => [...new Set([...document.querySelectorAll("svg[data-chart] .null")].map((line) =>
            getComputedStyle(line).strokeDasharray))]""")
        assert len(nulls) == 1
        assert all(nulls[0] not in dashes for dashes in series)
        assert any(len(dashes) == 3 for dashes in series)
        for dashes in series:
            assert len(set(dashes)) == len(dashes)
        # from the least to the most, the ramp only gets lighter
        greys = seen.page.evaluate("""() => {
            const parts = (own) => getComputedStyle(own).backgroundColor.match(/\\d+/g).map(Number);
            return [...document.querySelectorAll(".token")].map(parts).map(([r, g, b]) => 0.2126 * r + 0.7152 * g + 0.0722 * b);
        }""")
        amounts = lift(mean_over_heads(mdm.sample(0))).sel(group="masked").isel(step=3, layer=4).values
        pairs = sorted(zip(amounts.tolist(), greys[: len(amounts)], strict=True))
        assert all(later[1] >= earlier[1] - 0.5 for earlier, later in itertools.pairwise(pairs))
        assert pairs[-1][1] - pairs[0][1] > 40
