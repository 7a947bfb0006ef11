"""What is pinned stays in sight while one scrubs, in one run or in two; and what a claim is about can be reached from it."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from browser.browsing import null_of, number, opened
from browser.made_up_study import VIEWS
from floatlens.claims.findings import CLAIMS
from floatlens.measures import lift, token_roles
from floatlens.measures.received_attention import mean_over_heads
from floatlens.measures.roles import ROLES
from floatlens.trace.schema import STATES
from floatlens.trace.trace import Trace

AT = "#/run/mdm/0?step=3&layer=4&group=masked&with=arm"
PLACES = Path(__file__).parents[2] / "web" / "src" / "lib" / "places.ts"


def pinned(page: Any, panel: int = 0) -> dict[str, str]:
    """What the line of the pinned key says, by name."""
    line = page.locator(".panel").nth(panel).locator(".pinned-key div")
    return {own.locator("dt").inner_text(): own.locator("dd").inner_text() for own in line.all()}


def test_numbers_of_a_pinned_key_stay_in_sight_and_follow_the_step(browser: Any, two_runs: str, mdm: Trace) -> None:
    data = mean_over_heads(mdm.sample(0))
    expected = lift(data).sel(group="masked").isel(layer=4)
    with opened(browser, two_runs + AT, wait_for=".token") as seen:
        seen.wait_for_head("step 3")
        seen.page.click('.panel [data-position="7"] >> nth=0')
        seen.page.wait_for_selector(".pinned-key")
        for step in (3, 4, 0):
            seen.page.locator(".dock input[type=range]").fill(str(step))
            seen.page.wait_for_function("(step) => document.querySelector('.panel').dataset.shown === String(step)", arg=step)
            said = pinned(seen.page)
            assert said["position"] == "7"
            assert number(said["lift"]) == pytest.approx(expected.isel(step=step, key=7).item(), rel=2e-4)
            assert null_of(said["lift"]) == 1
        seen.page.click('.panel [data-position="7"] >> nth=0')
        seen.page.wait_for_selector(".pinned-key", state="detached")


def test_a_key_that_both_runs_have_is_pinned_in_both(browser: Any, two_runs: str, mdm: Trace, arm: Trace) -> None:
    with opened(browser, two_runs + AT, wait_for=".panel >> nth=1") as seen:
        seen.page.wait_for_selector('.panel >> nth=1 >> [data-position="7"]')
        for panel, key in ((0, 7), (1, 0)):
            seen.page.locator(".panel").nth(panel).locator(f'[data-position="{key}"]').click()
            seen.page.wait_for_function("() => document.querySelectorAll('.pinned-key').length === 2")
            own = seen.page.locator(".panel").nth(panel).locator(".token.pinned")
            assert own.get_attribute("data-position") == str(key)
            seen.page.keyboard.press("Escape")
            seen.page.wait_for_selector(".pinned-key", state="detached")
        final = mdm.sample(0)["final"].values, arm.sample(0)["final"].values
        other = int(np.flatnonzero(final[0][: len(final[1])] != final[1][: len(final[0])])[0])
        seen.page.keyboard.press("End")
        seen.page.locator(".panel").nth(0).locator(f'[data-position="{other}"]').click()
        seen.page.wait_for_selector(".pinned-key")
        assert seen.page.locator(".token.pinned").count() == 1


def test_a_written_token_of_the_second_run_shows_where_its_row_looked_there(browser: Any, two_runs: str, arm: Trace) -> None:
    data = arm.sample(0)
    position = int(np.flatnonzero(data["committed"].values == 1)[0])
    with opened(browser, f"{two_runs}{AT}&head=1", wait_for=".panel >> nth=1") as seen:
        second = seen.page.locator(".panel").nth(1)
        seen.wait_for_head("head 1")
        second.locator(f'[data-position="{position}"]').click()
        second.locator(".evidence li").first.wait_for()
        assert seen.page.locator(".panel h2").all_inner_texts() == ["mdm", "arm"]
        strongest = int(data["top_key"].isel(layer=4, head=1, position=position)[0])
        assert f"at {strongest}" in second.locator(".evidence li").first.inner_text()
        seen.wait_for_state(otherRow=str(position), otherKey=str(position))
        seen.page.reload()
        second.locator(".evidence li").first.wait_for()
        assert seen.said == []


def test_a_cell_of_the_second_heat_map_moves_both_runs_to_its_layer(browser: Any, two_runs: str) -> None:
    with opened(browser, two_runs + AT, wait_for=".panel:nth-child(2) .heat canvas") as seen:
        box = seen.page.locator(".panel:nth-child(2) .heat canvas").bounding_box()
        seen.page.mouse.click(box["x"] + 3, box["y"] + 1.5 * box["height"] / 6)
        seen.wait_for_state(layer="1", otherKey="0")
        heads = "[...document.querySelectorAll('.panel-head p')]"
        seen.page.wait_for_function(f"() => {heads}.every((own) => own.textContent.includes('layer 1'))")


def test_a_cell_of_another_step_tells_what_stood_there_at_that_step(browser: Any, two_runs: str, mdm: Trace) -> None:
    data = mdm.sample(0)
    position = int(np.flatnonzero(data["committed"].values == 4)[0])
    roles = token_roles(data)
    with opened(browser, f"{two_runs}{AT}&heat=steps", wait_for=".heat canvas") as seen:
        seen.page.wait_for_selector(".heat text:has-text('step \N{MULTIPLICATION SIGN} key position')")
        box = seen.page.locator(".heat canvas").first.bounding_box()
        steps, keys = data.sizes["step"], data.sizes["position"]
        for step in (2, 5):
            seen.page.mouse.move(box["x"] + (position + 0.5) * box["width"] / keys, box["y"] + (step + 0.5) * box["height"] / steps)
            told = "(text) => document.querySelector('.hover')?.textContent.includes(text)"
            seen.page.wait_for_function(told, arg=f"{step} · masked rows")
            said = seen.lines()
            assert said["state"] == STATES[int(data["state"].isel(step=step, position=position))]
            assert said["role"] == ROLES[int(roles.isel(step=step, position=position))]


def test_playing_ends_at_the_last_step_without_loop_and_begins_anew_from_there(browser: Any, two_runs: str) -> None:
    with opened(browser, two_runs + AT, wait_for=".heat canvas") as seen:
        seen.page.get_by_label("loop").uncheck()
        seen.page.get_by_label("speed").select_option("16")
        seen.page.get_by_role("button", name="Play").click()
        seen.wait_for_state(step="5")
        seen.page.get_by_role("button", name="Play").wait_for()
        seen.page.get_by_label("speed").select_option("1")
        seen.page.get_by_role("button", name="Play").click()
        seen.wait_for_state(step="[0-4]")
        seen.page.get_by_role("button", name="Pause").click()


@pytest.mark.parametrize(
    ("claim", "state", "sign"),
    [
        ("An ARM piles its attention on one sink.", "#/run/arm/0?", ".token.pinned[data-position='0']"),
        ("An MDM attends to structure first.", "#/why/mdm/0?", "h3:text('Enrichment of roles by depth')"),
        ("In an ARM, few heads copy.", "#/heads/arm/0?", ".cell"),
        ("An MDM gains more from passages than an ARM.", "#/contexts", "h3:text('Brackets: accuracy')"),
    ],
)
def test_a_claim_leads_to_where_one_can_see_it(browser: Any, study: str, claim: str, state: str, sign: str) -> None:
    with opened(browser, study + VIEWS["claims"][0], wait_for=".claim") as seen:
        seen.page.locator(".claim", has_text=claim).get_by_role("button", name="See it in").click()
        seen.page.wait_for_function("(state) => location.hash.startsWith(state)", arg=state)
        shown = seen.page.locator(sign).first
        shown.wait_for()
        seen.page.wait_for_function(
            "(own) => { const box = own.getBoundingClientRect(); return box.top >= 0 && box.bottom <= innerHeight; }",
            arg=shown.element_handle(),
        )
        assert seen.said == []


def test_every_claim_has_a_place_that_exists(browser: Any, study: str) -> None:
    text = PLACES.read_text()
    places = {name.strip('"') for name in re.findall(r'^  ("[a-z-]+"):', text, re.MULTILINE)}
    known = {claim.name for claim, _ in CLAIMS}
    assert places <= known
    assert known - places == {"absorbs-less", "threshold-keeps-few"}  # seen in Watch as it opens
    with opened(browser, study + VIEWS["why"][0], wait_for=".point") as seen:
        titles = set(seen.page.locator("h3, .lacking b").all_text_contents())
    assert set(re.findall(r'card: "([^"]+)"', text)) <= titles
