"""axe finds nothing serious, light and dark, wide and narrow; every control is reached by keyboard."""

from typing import Any

import pytest

from browser.browsing import opened


def serious(page: Any) -> list[str]:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed: pip install axe-playwright-python")
    found = axe.Axe().run(page).response["violations"]
    return [
        f"{one['id']}: {one['nodes'][0]['html'][:160]} {one['nodes'][0]['failureSummary'][:200]}"
        for one in found
        if one["impact"] in ("serious", "critical")
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_serious_is_wrong_with_watch(browser: Any, two_runs: str, scheme: str, width: int) -> None:
    with opened(browser, two_runs, scheme=scheme, width=width, wait_for=".token") as seen:
        seen.page.wait_for_selector(".heat canvas")
        assert serious(seen.page) == []
        assert seen.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


OPENED = {
    "help": ("?", ".help"),
    "search": ("/", ".search input:focus"),
    "row": ("", ".evidence li"),
    "table": ("", "[role=region] table"),
}
ROW = "#/run/mdm/0?step=5&layer=4&head=1&group=masked&with=arm&key=22&row=22"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("what", OPENED)
def test_nothing_serious_is_wrong_with_what_opens_on_demand(browser: Any, two_runs: str, what: str, scheme: str) -> None:
    key, sign = OPENED[what]
    with opened(browser, two_runs + ROW, scheme=scheme, wait_for=".heat canvas") as seen:
        if key:
            seen.page.keyboard.press(key)
        if what == "table":
            seen.page.get_by_role("button", name="Table", exact=True).first.click()
        seen.page.wait_for_selector(sign)
        assert serious(seen.page) == []
        assert unreached(seen.page) == ([], [])
        assert seen.said == []


CONTROLS = "button, select, input, textarea, a[href], summary, [tabindex='0']"


def unreached(page: Any) -> tuple[list[str], list[str]]:
    """Controls that Tab does not reach, and those that do not show that they have the focus."""
    wanted = page.evaluate(
        """(controls) => {
            // of the tokens, one is reached by Tab and the others from there; everything else has to be reached
            const meant = (own) => !own.disabled && own.checkVisibility() && !own.matches(".token[tabindex='-1']");
            const all = [...document.querySelectorAll(controls)];
            return all.flatMap((own, place) => (meant(own) ? [[place, own.outerHTML.slice(0, 120)]] : []));
        }""",
        CONTROLS,
    )
    left, hidden = dict(wanted), []
    for _ in range(len(wanted) + 5):
        page.keyboard.press("Tab")
        focus = page.evaluate(
            """(controls) => {
                const own = document.activeElement, look = getComputedStyle(own);
                const drawn = look.outlineStyle !== "none" && parseFloat(look.outlineWidth) >= 1;
                const shows = drawn && !/, 0\\)|transparent/.test(look.outlineColor);
                return [[...document.querySelectorAll(controls)].indexOf(own), shows, own.outerHTML.slice(0, 120)];
            }""",
            CONTROLS,
        )
        if focus[0] >= 0:
            left.pop(focus[0], None)
            hidden += [] if focus[1] else [focus[2]]
    return list(left.values()), hidden


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_every_control_is_reached_by_keyboard_and_shows_its_focus(browser: Any, two_runs: str, scheme: str, width: int) -> None:
    with opened(browser, two_runs, scheme=scheme, width=width, wait_for=".heat canvas") as seen:
        assert unreached(seen.page) == ([], [])
