"""Watch in a real browser, from one file: numbers, keys, links, two runs, exports."""

import csv
import io
import math
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from browser.browsing import null_of, number, opened
from floatlens.measures import absorption_of_anchors, find_anchors, lift
from floatlens.measures.received_attention import mean_over_heads
from floatlens.trace.trace import Trace

AT = "#/run/mdm/0?step=3&layer=4&group=masked&with=arm"


def test_one_file_opens_without_errors_and_asks_for_nothing_outside(browser: Any, two_runs: str) -> None:
    with opened(browser, two_runs) as seen:
        seen.page.wait_for_selector(".token")
        assert seen.said == []
        assert [url for url in seen.requests if not url.startswith(("file:", "blob:", "data:"))] == []
        policy = seen.page.get_attribute('meta[http-equiv="Content-Security-Policy"]', "content")
        assert "unsafe" not in policy
        assert "default-src 'none'" in policy
        assert "connect-src" not in policy


def test_hovered_numbers_equal_those_of_the_dataset(browser: Any, two_runs: str, mdm: Trace) -> None:
    data = mean_over_heads(mdm.sample(0))
    at = {"step": 3, "layer": 4}
    expected = lift(data).sel(group="masked").isel(at)
    mass = data["mass"].sel(group="masked").isel(at)
    fair = (data["visible"] * data["null"]).sel(group="masked").isel(step=3)
    with opened(browser, two_runs + AT) as seen:
        seen.wait_for_head("step 3")
        for key in (0, 7, 20, 25):
            seen.page.hover(f'.panel [data-position="{key}"] >> nth=0')
            said = seen.lines()
            assert said["position"] == str(key)
            assert number(said["lift"]) == pytest.approx(expected[key].item(), rel=2e-4)
            assert number(said["share"]) == pytest.approx(100 * (mass[key] / mass.sum()).item(), rel=2e-4)
            assert null_of(said["share"]) == pytest.approx(100 * (fair[key] / fair.sum()).item(), rel=2e-4)
            assert int(said["rank"].split()[0]) == 1 + int((expected > expected[key]).sum())


def test_values_of_a_head_are_marked_and_true_to_their_quantum(browser: Any, two_runs: str, mdm: Trace) -> None:
    exact = lift(mdm.sample(0)).sel(group="masked").isel(step=3, layer=4, head=2)
    with opened(browser, f"{two_runs}{AT}&head=2") as seen:
        seen.wait_for_head("head 2")
        for key in (0, 7, 20, 25):
            seen.page.hover(f'.panel [data-position="{key}"] >> nth=0')
            said = seen.lines()["lift"]
            assert said.startswith("≈")
            low, high = (number(part) for part in said.partition("(")[2].partition(")")[0].split(" to "))
            assert low * 0.95 <= exact[key].item() <= high * 1.05


def test_a_cell_of_the_heat_map_says_the_same_as_the_dataset(browser: Any, two_runs: str, mdm: Trace) -> None:
    expected = lift(mean_over_heads(mdm.sample(0))).sel(group="masked").isel(step=3)
    with opened(browser, two_runs + AT) as seen:
        seen.wait_for_head("step 3")
        seen.page.wait_for_selector(".heat canvas")
        box = seen.page.locator(".heat canvas").first.bounding_box()
        keys, layers = expected.sizes["key"], expected.sizes["layer"]
        for layer, key in ((0, 5), (5, 25)):
            seen.page.mouse.move(box["x"] + (key + 0.5) * box["width"] / keys, box["y"] + (layer + 0.5) * box["height"] / layers)
            seen.page.wait_for_function(
                "(text) => document.querySelector('.hover')?.textContent.includes(text)", arg=f"{layer}, mean over heads"
            )
            said = seen.lines()
            assert said["position"] == str(key)
            assert number(said["lift"]) == pytest.approx(expected.isel(layer=layer, key=key).item(), rel=2e-4)


def test_keys_move_the_cursor(browser: Any, two_runs: str) -> None:
    with opened(browser, two_runs + AT) as seen:
        seen.wait_for_head("step 3")
        press = seen.page.keyboard.press
        for keys, wanted in (
            (["ArrowRight"], {"step": "4"}),
            (["ArrowLeft", "ArrowLeft"], {"step": "2"}),
            (["ArrowUp"], {"layer": "3"}),
            (["ArrowDown", "ArrowDown"], {"layer": "5"}),
            (["]"], {"head": "0"}),
            (["[", "["], {"head": "3"}),
            (["."], {"key": "0"}),
            (["Home"], {"step": "0"}),
            ([" "], {"step": "[1-5]"}),  # it plays
        ):
            for key in keys:
                press(key)
            seen.wait_for_state(**wanted)
        press(" ")
        press("?")
        seen.page.wait_for_selector(".help")
        press("/")
        seen.page.wait_for_selector(".search input:focus")
        seen.page.keyboard.type("Rome")
        press("Enter")
        place = seen.page.locator(".token.pinned").first.get_attribute("data-position")
        assert seen.page.locator(f'[data-position="{place}"]').first.inner_text() == "Rome"
        assert seen.said == []


def test_a_link_restores_the_state_after_a_reload(browser: Any, two_runs: str) -> None:
    link = "#/run/arm/0?step=2&layer=1&head=3&group=predicting&with=mdm&key=9&heat=steps&colour=share&scale=linear"
    with opened(browser, two_runs + link) as seen:
        seen.wait_for_head("step 2")
        assert seen.page.evaluate("location.hash") == link
        seen.page.reload()
        seen.wait_for_head("step 2")
        assert seen.page.evaluate("location.hash") == link
        assert seen.page.locator(".token.pinned").first.get_attribute("data-position") == "9"


@pytest.mark.parametrize(
    "link", ["#/run/nothing/99?step=999&layer=77&head=-4&key=1e9", "#/%E0%A4%A/%", "#//?step=NaN&group=__proto__", "#" + "a" * 5000]
)
def test_a_link_that_means_nothing_still_opens(browser: Any, two_runs: str, link: str) -> None:
    with opened(browser, two_runs + link, wait_for=".token") as seen:
        assert seen.said == []


def test_two_runs_of_one_prompt_stay_linked(browser: Any, two_runs: str) -> None:
    with opened(browser, two_runs + AT) as seen:
        heads = seen.page.locator(".panel-head p")
        for step in (4, 5, 0):
            seen.page.locator('input[type="range"]').fill(str(step))
            seen.page.wait_for_function(
                "(text) => [...document.querySelectorAll('.panel-head p')].filter((own) => own.textContent.includes(text)).length === 2",
                arg=f"step {step} of 5",
            )
        assert "diffusion" in heads.nth(0).inner_text()
        assert "autoregressive" in heads.nth(1).inner_text()


def test_a_written_token_shows_where_its_row_looked(browser: Any, two_runs: str, mdm: Trace) -> None:
    data = mdm.sample(0)
    position = int(np.flatnonzero(data["committed"].values == 1)[0])
    with opened(browser, f"{two_runs}{AT}&head=1") as seen:
        seen.wait_for_head("head 1")
        seen.page.click(f'.panel [data-position="{position}"] >> nth=0')
        seen.page.wait_for_selector(".evidence li")
        rows = seen.page.locator(".evidence li").all_inner_texts()
        top = data[["top_key", "top_weight"]].isel(layer=4, head=1, position=position)
        for rank in range(3):
            assert (
                f"at {top['top_key'][rank].item()}\n" in rows[rank].replace(" %", "\n %")
                or f"at {top['top_key'][rank].item()}" in rows[rank]
            )
            assert number(rows[rank].split("\n")[-1]) == pytest.approx(100 * top["top_weight"][rank].item(), abs=0.21)
        fair = data["null"].sel(group="predicting").isel(step=1, key=top["top_key"][0].item()).item()
        assert number(seen.page.inner_text(".evidence p.dim").partition("give ")[2]) == pytest.approx(100 * fair, rel=5e-3)
        assert seen.page.locator(".arcs path").count() >= 2
        seen.wait_for_state(row=str(position))


def test_exports_are_what_is_shown(browser: Any, two_runs: str, mdm: Trace) -> None:
    data = mean_over_heads(mdm.sample(0))
    absorbed = absorption_of_anchors(data, find_anchors(data)).sel(group="masked").isel(step=3)
    expected = lift(data).sel(group="masked").isel(step=3)
    with opened(browser, two_runs + AT) as seen:
        seen.wait_for_head("step 3")
        seen.page.wait_for_selector(".heat image.saved")
        cards = seen.page.locator(".panel >> nth=0").locator(".card:has(.tools)")

        def saved(card: int, kind: str) -> bytes:
            with seen.page.expect_download() as download:
                cards.nth(card).get_by_role("button", name=kind, exact=True).click()
            with open(download.value.path(), "rb") as file:
                return file.read()

        heat = list(csv.DictReader(io.StringIO(saved(0, "CSV").decode())))
        assert len(heat) == expected.size
        for row in heat:
            assert math.isclose(float(row["lift"]), expected.sel(layer=int(row["layer"]))[int(row["position"])].item(), rel_tol=1e-5)
        layers = list(csv.DictReader(io.StringIO(saved(1, "CSV").decode())))
        assert [float(row["anchors"]) for row in layers] == pytest.approx(absorbed["share"].values.tolist(), rel=1e-5)
        assert [float(row["anchors, null"]) for row in layers] == pytest.approx(absorbed["null"].values.tolist(), rel=1e-5)
        for card in (0, 1):
            root = ElementTree.fromstring(saved(card, "SVG"))
            assert root.tag == "{http://www.w3.org/2000/svg}svg"
            assert len(list(root.iter())) > 10
            assert saved(card, "PNG").startswith(b"\x89PNG")
        assert seen.said == []


def test_the_table_says_what_the_chart_draws(browser: Any, two_runs: str, mdm: Trace) -> None:
    entropy = mdm.sample(0)["entropy"].sel(group="masked").isel(step=3).mean("head")
    with opened(browser, two_runs + AT) as seen:
        seen.wait_for_head("step 3")
        card = seen.page.locator(".card", has_text="Row entropy by layer").first
        card.get_by_role("button", name="Table").click()
        shown = [number(text) for text in card.locator("tbody td:nth-child(2)").all_inner_texts()]
        assert shown == pytest.approx(entropy.values.tolist(), rel=1e-3)


def test_the_theme_can_be_chosen_and_stays(browser: Any, two_runs: str) -> None:
    with opened(browser, two_runs) as seen:
        ground = "getComputedStyle(document.querySelector('.floatlens')).backgroundColor"
        light = seen.page.evaluate(ground)
        button = seen.page.get_by_role("button", name="Theme")
        button.click()
        button.click()
        dark = seen.page.evaluate(ground)
        assert light != dark
        seen.page.reload()
        seen.page.wait_for_selector(".floatlens")
        assert seen.page.evaluate(ground) == dark
