"""Heads, Why, Claims, Contexts, Training and the tour, of a demo and an evaluation, in a real browser: numbers, links and access."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from browser.browsing import HOSTILE, number, opened
from browser.made_up_study import CLAIMS, VIEWS
from browser.test_access import serious, unreached
from floatlens.measures import absorption_of_first_token, role_shares, rollout
from floatlens.measures.anchors import find_anchors
from floatlens.measures.received_attention import mean_over_heads
from floatlens.report.page.gather import Choices, Sources
from floatlens.report.page.html import write_file
from floatlens.study.outcomes import summarise
from floatlens.trace.trace import Trace
from report.made_up_answers import answers as made_up_answers
from report.made_up_curves import MEASURES, TEXTS, made_up_curves, value_of


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("view", VIEWS)
def test_every_view_opens_and_axe_finds_nothing_serious(browser: Any, study: str, view: str, scheme: str) -> None:
    link, sign = VIEWS[view]
    with opened(browser, study + link, scheme=scheme, wait_for=sign) as seen:
        assert seen.said == []
        assert seen.page.evaluate("window.marker") is None
        assert serious(seen.page) == []
        assert all(url.startswith(("file:", "blob:", "data:")) for url in seen.requests)


@pytest.mark.parametrize("view", VIEWS)
def test_every_control_of_every_view_is_reached_by_keyboard_and_shows_its_focus(browser: Any, study: str, view: str) -> None:
    link, sign = VIEWS[view]
    with opened(browser, study + link, wait_for=sign) as seen:
        assert unreached(seen.page) == ([], [])


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_fits_a_narrow_screen(browser: Any, study: str, view: str) -> None:
    link, sign = VIEWS[view]
    with opened(browser, study + link, width=390, wait_for=sign) as seen:
        assert seen.page.evaluate("document.documentElement.scrollWidth") <= 390
        tabs = seen.page.locator("nav .tab")
        assert tabs.count() == 7
        assert all((box := tab.bounding_box()) and box["x"] >= 0 and box["x"] + box["width"] <= 390 for tab in tabs.all())


def test_heads_show_what_measures_say(browser: Any, study: str, mdm: Trace) -> None:
    first = absorption_of_first_token(mdm.sample(0)).sel(group="masked").mean("step")
    with opened(browser, study + VIEWS["heads"][0], wait_for=".cell") as seen:
        for layer, head in ((0, 0), (4, 3)):
            seen.page.locator(".cell").nth(layer * 4 + head).hover()
            said = seen.lines()
            assert number(said["share of the first token"]) == pytest.approx(first["share"].isel(layer=layer, head=head).item(), rel=2e-4)
            assert number(said["null"]) == pytest.approx(
                first["null"].item()
                if first["null"].ndim == 0
                else first["null"].isel(layer=layer, head=head, missing_dims="ignore").item(),
                rel=2e-4,
            )
        seen.page.locator(".cell").nth(2 * 4 + 3).click()
        seen.wait_for_state(layer="2", head="3")


def test_two_runs_are_drawn_with_the_same_bounds(browser: Any, study: str) -> None:
    with opened(browser, study + "#/heads/mdm/0?step=2&layer=3&head=1&group=predicting&with=arm", wait_for=".panel >> nth=1") as seen:
        seen.page.wait_for_function("""() => {
            const ends = [...document.querySelectorAll('.heat:has(.cell) .ramp-line')].map((line) => line.innerText.split('%')[0]);
            return ends.length === 2 && ends[0] === ends[1];
        }""")
        assert seen.said == []


def test_why_shows_what_measures_say(browser: Any, study: str, mdm: Trace) -> None:
    data = mdm.sample(0)
    averaged = mean_over_heads(data)
    roles = role_shares(data.assign(dict(averaged[["mass", "visible", "null", "rows"]].data_vars)), find_anchors(averaged)).sel(
        group="masked"
    )
    with opened(browser, study + VIEWS["why"][0], wait_for=".point") as seen:
        card = seen.page.locator(".card", has=seen.page.get_by_role("heading", name="Enrichment of roles by depth"))
        card.get_by_role("button", name="Table").click()
        head = card.locator("th").all_inner_texts()
        for role in ("mask", "punctuation", "structural"):
            column = head.index(f"{role}, enrichment") + 1
            shown = [number(text) for text in card.locator(f"tbody td:nth-child({column})").all_inner_texts()]
            assert shown == pytest.approx(roles["enrichment"].sel(role=role).values.tolist(), rel=1e-3, nan_ok=True)


def test_a_recorded_pattern_and_the_rollout_with_its_null_are_shown(browser: Any, study: str, mdm: Trace) -> None:
    pattern = mdm.sample(0)["pattern"].isel(step=2, chosen=0)
    with opened(browser, study + VIEWS["heads"][0], wait_for=".pattern image") as seen:
        chart = seen.page.locator(".pattern image")
        box = chart.bounding_box()
        size = pattern.sizes["query"]
        for query, key in ((25, 3), (4, 20)):
            chart.hover(position={"x": (key + 0.5) / size * box["width"], "y": (query + 0.5) / size * box["height"]})
            assert seen.page.inner_text(".hover b") == f"row {query} on key {key}"
            assert number(seen.lines()["weight"]) == pytest.approx(pattern.isel(query=query, key=key).item(), rel=1e-3, abs=1e-6)
        seen.page.keyboard.press("]")
        seen.page.wait_for_selector(".pattern", state="detached")  # the next head was not recorded
    with opened(browser, study + VIEWS["why"][0], wait_for=".point") as seen:
        card = seen.page.locator(".card", has=seen.page.get_by_role("heading", name="Rollout of the answer, with its null"))
        regions = card.locator("path.line").count()
        assert regions >= 2
        assert card.locator("path.null").count() == regions
        card.get_by_role("button", name="Table").click()
        rolled = rollout(mdm.sample(0), pooled=True, cumulative=True).sel(query_region="answer")
        head = card.locator("th").all_inner_texts()
        for region in ("prompt", "answer"):
            for name, column in (("rollout", region), ("null", f"{region}, null")):
                shown = [number(text) for text in card.locator(f"tbody td:nth-child({head.index(column) + 1})").all_inner_texts()]
                assert shown == pytest.approx(rolled[name].sel(key_region=region).values.tolist(), rel=1e-3)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_paper_there_are_charts_in_dark_ink_and_no_controls(browser: Any, study: str, scheme: str) -> None:
    with opened(browser, study, scheme=scheme, wait_for=".heat canvas") as seen:
        seen.page.emulate_media(media="print")
        for control in (".top nav", ".chooser", ".play", ".card .tools", ".strip input"):
            assert not seen.page.locator(control).first.is_visible(), control
        cells = seen.page.locator(".heat image.saved").first  # part of the chart: paper has another width than the screen
        cells.wait_for(state="attached")
        assert cells.evaluate("(own) => getComputedStyle(own).opacity") == "1"
        assert not seen.page.locator(".heat canvas").first.is_visible()
        ink, ground = seen.page.evaluate("""() => {
            const look = getComputedStyle(document.querySelector(".card"));
            return [look.color, look.backgroundColor];
        }""")
        assert ground == "rgb(255, 255, 255)"
        assert max(int(part) for part in ink.removeprefix("rgb(").removesuffix(")").split(",")) < 64


def test_claims_show_verdict_numbers_and_where_to_see_them(browser: Any, study: str) -> None:
    with opened(browser, study + "#/claims", wait_for=".claim") as seen:
        verdicts = [" ".join(text.split()) for text in seen.page.locator(".verdict").all_inner_texts()]
        assert verdicts == ["✓ holds", "✕ fails", "~ inconclusive", "· not asked"]
        assert "checked on a-model, b-model: 4 questions in each context, 2 traced texts" in seen.page.inner_text(".lede")
        first = seen.page.locator(".claim").first
        assert "1.50 % [1.25, 2] 7 prompts" in " ".join(first.inner_text().split())
        assert "it was not measured" in first.inner_text()
        label = first.locator("svg").first.get_attribute("aria-label")
        assert label == "share: 1.50 %, from 1.25 to 2; the threshold is 1"
        assert HOSTILE["script"] in first.inner_text()
        seen.page.get_by_role("button", name="fails 1").click()
        assert seen.page.locator(".claim").count() == 1
        seen.page.get_by_role("button", name="See it in Why").click()
        seen.page.wait_for_function("() => location.hash.startsWith('#/why/mdm/0')")


def test_contexts_show_the_summary_and_lead_to_the_questions(browser: Any, study: str, answers: pl.DataFrame) -> None:
    with opened(browser, study + "#/contexts", wait_for=".plot .dot") as seen:
        outcomes = [entry for entry in summarise(answers) if entry.outcome == "accuracy"]
        rows = seen.page.locator(".wide-card tbody tr")
        assert rows.count() == len(outcomes)
        seen.page.get_by_role("button", name="value").click()
        values = [number(text) for text in seen.page.locator(".wide-card tbody td:nth-child(7)").all_inner_texts()]
        known = [value for value in values if value == value]
        assert known == sorted(known)
        assert known == pytest.approx(sorted(entry.estimate for entry in outcomes if entry.estimate == entry.estimate), rel=6e-3)
        link = seen.page.locator(".wide-card .link").first
        context = link.inner_text()
        link.click()
        seen.page.wait_for_selector(".answers details")
        asked = answers.filter(pl.col("context") == context)["sample"].n_unique()
        assert seen.page.locator(".answers details").count() == asked
        seen.page.locator(".answers summary").first.click()
        shown = seen.page.locator(".answers details pre").first.inner_text()
        assert shown.strip() in [prompt.strip() for prompt in answers["prompt"].to_list()]
        seen.page.wait_for_function("() => location.hash.includes('point=')")  # links follow the state a moment later
        seen.page.reload()
        seen.page.wait_for_selector(".answers details")


def test_contexts_draw_what_models_gain_beyond_each_other_with_intervals(browser: Any, study: str, answers: pl.DataFrame) -> None:
    with opened(browser, study + "#/contexts", wait_for=".plot .dot") as seen:
        for title, quantity in (("Gain of one model minus another's", "interaction"), ("Gain over closed-book", "gain")):
            wanted = [entry for entry in summarise(answers) if (entry.quantity, entry.outcome) == (quantity, "accuracy")]
            known = [entry for entry in wanted if entry.estimate == entry.estimate]
            assert known
            card = seen.page.locator(".card", has=seen.page.get_by_role("heading", name=f"{title}: accuracy"))
            assert card.locator("svg[data-chart] .dot").count() == len(known)
            assert card.locator("svg[data-chart] .interval").count() == len([entry for entry in known if entry.low == entry.low])
            first = known[0]
            card.locator("svg[data-chart] g").first.hover()
            said = seen.lines()[" \N{MINUS SIGN} ".join(filter(None, (first.model, first.other)))]
            assert number(said) == pytest.approx(first.estimate, rel=6e-3)
            assert number(said.partition("[")[2].partition(",")[0]) == pytest.approx(first.low, rel=6e-3)
        assert "mdm \N{MINUS SIGN} arm" in seen.page.inner_text("main")


def test_levels_stand_in_their_order_whatever_the_order_they_were_asked_in(browser: Any, tmp_path: Path) -> None:
    contexts = ("closed-book", "noise:0.8", "noise:0.4", "position:9/10", "position:1/10", "noise:0")
    asked = made_up_answers(contexts=contexts).with_columns(prompt=pl.lit("Where?"), prediction=pl.lit("Rome"), answer=pl.lit("Rome"))
    write_file(tmp_path / "page.html", Sources(tables={"asked": asked}), Choices(), progress=False)
    with opened(browser, (tmp_path / "page.html").as_uri(), wait_for=".plot .dot") as seen:
        card = seen.page.locator(".card", has=seen.page.get_by_role("heading", name="Noise: accuracy"))
        card.get_by_role("button", name="Table").click()
        column = card.locator("th").all_inner_texts().index("context") + 1
        shown = list(dict.fromkeys(card.locator(f"tbody td:nth-child({column})").all_inner_texts()))
        assert shown == ["noise:0", "noise:0.4", "noise:0.8"]
        gains = seen.page.locator(".card", has=seen.page.get_by_role("heading", name="Gain over closed-book")).locator(".row-name")
        assert gains.all_text_contents() == ["noise:0", "noise:0.4", "noise:0.8", "position:1/10", "position:9/10"]


def test_training_scrubs_the_updates(browser: Any, study: str) -> None:
    with opened(browser, study + "#/training", wait_for=".plot .dot") as seen:
        rows = seen.page.locator(".card", has_text="After update").last.locator("tbody tr")
        assert rows.count() == 2 * 3  # measures, curves
        slider = seen.page.get_by_role("slider", name="Update")
        for place, update in enumerate((0, 1, 4)):
            slider.fill(str(place))
            seen.wait_for_state(update=str(update))
            seen.page.wait_for_selector(f"h3:has-text('By layer, after update {update}')")
            every = [(seed, text, layer) for seed in (0, 1) for text in range(TEXTS) for layer in range(3)]
            mean = sum(value_of("mdm", seed, update, text, layer, MEASURES[0]) for seed, text, layer in every) / len(every)
            cells = rows.nth(1).locator("td").all_inner_texts()
            assert cells[1] == "diffusion, bidirectional, unmasked rows (2 seeds)"
            assert number(cells[2]) == pytest.approx(mean, rel=5e-3)
            assert cells[3].startswith("[")
            assert number(cells[4]) == 2.5
        assert HOSTILE["script"] in rows.first.inner_text()


def test_a_training_shows_the_curves_that_have_a_measure_and_no_empty_ones(browser: Any, tmp_path: Path) -> None:
    read = made_up_curves()
    of_first = read.filter(pl.col("measure") == MEASURES[0], pl.col("group") == "unmasked")
    written = of_first.with_columns(group=pl.lit("predicting"), measure=pl.lit("changes of the path"))
    write_file(tmp_path / "page.html", Sources(training={"runs": pl.concat([read, written])}), Choices(), progress=False)
    with opened(browser, (tmp_path / "page.html").as_uri(), wait_for=".plot .dot") as seen:
        legend = seen.page.locator(".card").first.locator(".legend")
        assert "unmasked rows" in legend.inner_text()
        assert "predicting rows" not in legend.inner_text()
        seen.page.locator("label.field:has-text('Measure') select").select_option("changes of the path")
        seen.page.wait_for_selector("h3:has-text('Changes of the path, mean over 3 layers')")
        assert "predicting rows" in legend.inner_text()
        assert "unmasked rows" not in legend.inner_text()
        rows = seen.page.locator(".card", has_text="After update").last.locator("tbody tr")
        assert rows.count() == 2 * 3 + 2  # shares of three curves that read, changes of two that write
        assert seen.said == []


def test_keys_and_clicks_move_along_a_training(browser: Any, study: str) -> None:
    with opened(browser, study + "#/training?update=0", wait_for=".plot .dot") as seen:
        for key, wanted in (
            ("ArrowRight", {"update": "1"}),
            ("End", {"update": "4"}),
            ("Home", {"update": "0"}),
            ("ArrowDown", {"depth": "1"}),
            (" ", {"update": "[14]"}),  # it plays
        ):
            seen.page.keyboard.press(key)
            seen.wait_for_state(**wanted)
        seen.page.keyboard.press(" ")
        seen.page.wait_for_selector("h3:has-text('layer 0')")
        chart = seen.page.locator("svg[aria-label='Attention by layer']")
        box = chart.bounding_box()
        chart.click(position={"x": box["width"] - 14, "y": 60})
        seen.wait_for_state(depth="3")
        table = seen.page.locator(".card", has=seen.page.get_by_role("heading", name="By layer, after update"))
        table.get_by_role("button", name="Table").click()
        assert "null" in table.locator("th").last.inner_text()
        assert seen.said == []


def test_the_tour_has_six_stops_over_real_views_and_says_what_holds(browser: Any, study: str) -> None:
    with opened(browser, study + "#/tour?stop=0", wait_for=".tour h2") as seen:
        assert "An ARM piles its attention on one sink." in seen.page.inner_text(".finding")
        assert "holds" in seen.page.inner_text(".finding")
        signs = (".token", ".token", ".heat", ".point", ".plot", ".plot")
        for stop, sign in enumerate(signs):
            seen.page.wait_for_selector(sign)
            assert f"Stop {stop + 1} of 6" in seen.page.inner_text(".tour")
            if stop < 5:
                seen.page.get_by_role("button", name="Next").click()
                seen.wait_for_state(stop=str(stop + 1))
        assert "was not asked (both are at the ceiling)" in seen.page.inner_text(".finding")
        assert seen.said == []


def test_the_tour_tells_the_verdict_on_the_models_it_shows_and_keeps_to_them(browser: Any, mdm: Trace, arm: Trace, tmp_path: Path) -> None:
    for name, sink in (("first", "The first study has a sink."), ("second", "The second study has a sink.")):
        claims = {**CLAIMS, "claims": [{**CLAIMS["claims"][0], "statement": sink}]}
        (tmp_path / f"{name}.json").write_text(json.dumps(claims))
    sources = Sources(
        {"mdm": mdm, "arm": arm, "real-mdm": mdm, "real-arm": arm},
        {name: tmp_path / f"{name}.json" for name in ("first", "second")},
        runs={"first": {"mdm": "mdm", "arm": "arm"}, "second": {"mdm": "real-mdm", "arm": "real-arm"}},
    )
    write_file(tmp_path / "page.html", sources, Choices(), progress=False)
    with opened(browser, (tmp_path / "page.html").as_uri() + "#/tour/real-mdm/0?with=real-arm", wait_for=".tour .finding") as seen:
        for stop in range(3):
            seen.page.wait_for_function("(stop) => document.querySelector('.tour').innerText.includes(`Stop ${stop} of 6`)", arg=stop + 1)
            assert seen.page.locator(".panel h2").all_inner_texts() == ["real-mdm", "real-arm"]
            if not stop:
                assert "The second study has a sink." in seen.page.inner_text(".finding")
                seen.page.wait_for_function("() => document.querySelectorAll('.pinned-key').length === 2")
            seen.page.get_by_role("button", name="Next").click()
        assert seen.said == []
