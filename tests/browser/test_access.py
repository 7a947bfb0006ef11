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


def test_every_control_is_reached_by_keyboard_and_shows_its_focus(browser: Any, two_runs: str) -> None:
    with opened(browser, two_runs, wait_for=".heat canvas") as seen:
        wanted = seen.page.evaluate("""() => [...document.querySelectorAll('button, select, input, a[href]')]
            .filter((own) => !own.disabled && own.tabIndex >= 0 && own.offsetParent).length""")
        reached = set()
        for _ in range(wanted + 5):
            seen.page.keyboard.press("Tab")
            focus = seen.page.evaluate("""() => {
                const own = document.activeElement;
                if (own === document.body) return null;
                const every = [...document.querySelectorAll('button, select, input, a[href]')];
                return [every.indexOf(own), getComputedStyle(own).outlineStyle];
            }""")
            if focus:
                reached.add(focus[0])
                assert focus[1] != "none"
        assert len(reached) >= wanted
