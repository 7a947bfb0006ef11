"""What a page shows before anybody touches it, and what it says where a trace keeps little."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import floatlens as fl
from browser.browsing import PROMPT, opened, save_page, with_words
from browser.made_up_study import CLAIMS
from floatlens.report.page.gather import Choices, Sources
from floatlens.report.page.html import write_file
from floatlens.trace.trace import Trace


@pytest.fixture(scope="module")
def light(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Trace]]:
    """A page of two traces without anything per head."""
    traces = {
        "mdm": fl.load("twin-mdm").trace([PROMPT], gen_length=4, steps=4, detail="light", progress=False),
        "arm": fl.load("twin-arm").trace([PROMPT], gen_length=4, detail="light", progress=False),
    }
    return save_page(tmp_path_factory.mktemp("light") / "report.html", traces), traces


def test_watch_opens_along_the_steps_on_rows_that_both_runs_have(browser: Any, two_runs: str) -> None:
    with opened(browser, two_runs, wait_for=".panel:nth-child(2) .heat canvas") as seen:
        heads = seen.page.locator(".panel-head p").all_inner_texts()
        assert [("diffusion" in head, "autoregressive" in head) for head in heads] == [(True, False), (False, True)]
        assert all("predicting rows" in head for head in heads)
        assert seen.page.locator(".below h3:has-text('Steps \N{MULTIPLICATION SIGN} keys')").count() == 2
        seen.wait_for_state(group="predicting", heat="steps")
        box = seen.page.locator(".heat canvas").first.bounding_box()
        assert box["y"] < seen.page.locator(".dock").bounding_box()["y"]  # in sight without scrolling


def test_what_is_written_comes_into_sight_where_the_text_is_longer_than_its_card(browser: Any, arm: Trace, tmp_path: Path) -> None:
    ids = {int(token) for token in arm.sample(0)["final"].values}
    address = save_page(tmp_path / "page.html", {"arm": with_words(arm, {token: f"a rather long word {token}" * 2 for token in ids})})
    visible = """() => {
        const [card, token] = [".reading", ".token.now"].map((own) => document.querySelector(own).getBoundingClientRect());
        return token.top >= card.top && token.bottom <= card.bottom;
    }"""
    with opened(browser, f"{address}#/run/arm/0?step=0&layer=1", width=700, wait_for=".token.now") as seen:
        assert not seen.page.evaluate(visible)  # a text opens at its beginning
        top = seen.page.evaluate("scrollY")
        seen.page.keyboard.press("ArrowRight")
        seen.page.wait_for_function(visible)
        assert seen.page.evaluate("scrollY") == top


def test_a_trace_without_values_per_head_says_so_once_and_draws_no_empty_charts(browser: Any, light: tuple[str, dict[str, Trace]]) -> None:
    with opened(browser, f"{light[0]}#/heads/mdm/0?step=1&layer=3&head=1&group=predicting&with=arm", wait_for=".lacking") as seen:
        seen.page.wait_for_function("() => document.querySelectorAll('.lacking').length === 2")
        assert seen.page.inner_text("main").count("mass per head") == 2  # once in each panel
        assert seen.page.locator("main .plot, main .token, main .heat, main .card .tools button").count() == 0
    with opened(browser, f"{light[0]}#/why/mdm/0?step=1&layer=3&group=predicting&with=arm", wait_for=".lacking") as seen:
        seen.page.wait_for_function("() => document.querySelectorAll('.plot').length > 0")
        assert seen.page.locator(".lacking").count() == 2
        cards = seen.page.locator(".card:not(.lacking)")
        assert cards.count() == cards.filter(has=seen.page.locator("svg[data-chart]")).count() > 0
        assert "Norm product by layer; Value norms by layer. It needs cosine" in " ".join(
            seen.page.locator(".lacking").first.inner_text().split()
        )


def test_claims_lead_only_to_runs_that_keep_enough_and_to_experiments_of_their_study(
    browser: Any, light: tuple[str, dict[str, Trace]], answers: pl.DataFrame, tmp_path: Path
) -> None:
    asked = answers.filter(pl.col("intervention") == "").with_columns(experiment=pl.lit("noise"))
    only_closed = asked.filter(pl.col("context") == "closed-book").with_columns(experiment=pl.lit("closed"))
    (tmp_path / "claims.json").write_text(json.dumps(CLAIMS))
    sources = Sources(light[1], {"demo": tmp_path / "claims.json"}, {"another": asked, "demo": only_closed})
    write_file(tmp_path / "page.html", sources, Choices(), progress=False)
    with opened(browser, (tmp_path / "page.html").as_uri() + "#/claims", wait_for=".claim") as seen:
        ways = [
            seen.page.locator(".claim", has_text=words).locator("button.see").count()
            for words in ("one sink", "structure first", "few heads copy", "gains more")
        ]
        assert ways == [1, 1, 0, 0]
        kept = seen.page.locator(".claim", has_text="few heads copy").inner_text()
        assert "The runs on this page keep too little to see it in Heads." in kept


def test_a_model_has_one_colour_and_mark_in_all_charts_of_contexts(browser: Any, tmp_path: Path, answers: pl.DataFrame) -> None:
    models = answers["model"].unique(maintain_order=True).to_list()
    reversed_ = pl.concat([answers.filter(pl.col("model") == model) for model in reversed(models)])
    write_file(tmp_path / "page.html", Sources(tables={"one": answers, "two": reversed_}), Choices(), progress=False)
    marks = """() => {
        const found = {};
        for (const own of document.querySelectorAll(".legend li")) {
            const mark = own.querySelector(".dot");
            if (mark) (found[own.innerText.trim()] ??= new Set()).add(`${mark.tagName} ${mark.getAttribute("class")}`);
        }
        return Object.fromEntries(Object.entries(found).map(([name, own]) => [name, [...own]]));
    }"""
    address = (tmp_path / "page.html").as_uri()
    seen_marks = []
    for table in (0, 1):
        with opened(browser, f"{address}#/contexts?table={table}", wait_for=".plot .dot") as seen:
            seen_marks.append(seen.page.evaluate(marks))
    first, second = seen_marks
    assert set(models) <= set(first)
    assert all(len(own) == 1 for own in first.values())
    assert {name: first[name] for name in models} == {name: second[name] for name in models}
    assert len({first[name][0] for name in models}) == len(models)


def test_ratios_are_drawn_on_a_log_scale_with_their_fair_share_at_one(browser: Any, study: str) -> None:
    with opened(browser, f"{study}#/why/mdm/0?step=2&layer=3&group=masked", wait_for=".point") as seen:
        card = seen.page.locator(".card", has=seen.page.get_by_role("heading", name="Fair flow into regions"))
        ticks = card.locator("svg[data-chart] text.tick[text-anchor=end]")
        heights = {
            float(ticks.nth(place).text_content() or "nan"): float(ticks.nth(place).get_attribute("y")) for place in range(ticks.count())
        }
        assert 1.0 in heights
        assert min(heights) > 0
        steps = [heights[10 * tick] - heights[tick] for tick in heights if 10 * tick in heights]
        assert steps
        assert steps == pytest.approx([steps[0]] * len(steps), abs=0.2)
        null = card.locator("svg[data-chart] path.null").first.get_attribute("d")
        assert float(null.split()[1].split("L")[0]) == pytest.approx(heights[1.0] - 3.5, abs=0.2)
