"""Heads, Why, Claims, Contexts, Training and the tour, of a demo and an evaluation, in a real browser: numbers, links and access."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from browser.browsing import HOSTILE, number, opened
from browser.test_access import serious
from floatlens.measures import absorption_of_first_token, role_shares
from floatlens.measures.anchors import find_anchors
from floatlens.measures.received_attention import mean_over_heads
from floatlens.report.page.gather import Choices, Sources
from floatlens.report.page.html import write_file
from floatlens.study.outcomes import summarise
from floatlens.trace.trace import Trace
from report.made_up_answers import answers as made_up_answers

ESTIMATE = {"value": 1.5, "low": 1.25, "high": 2.0, "prompts": 7, "reason": ""}
CLAIMS = {
    "about": {"models": {"arm": "a-model", "mdm": "b-model"}, "questions": 4, "traced": 2, "seed": 0},
    "caution": "Trained once.",
    "claims": [
        {
            "name": name,
            "paper": "arXiv:2510.15731",
            "statement": f"{statement} {HOSTILE['script']}",
            "rule": "the share lies above 4 times its null",
            "verdict": verdict,
            "reason": reason,
            "numbers": [
                {
                    "says": "share",
                    "estimate": ESTIMATE,
                    "side": "above",
                    "line": 1.0,
                    "beside": 0.5,
                    "beside_says": "null",
                    "unit": "%",
                    "verdict_of_number": verdict,
                    "reason": "",
                },
                {
                    "says": "absent",
                    "estimate": {**ESTIMATE, "value": None, "low": None, "high": None},
                    "side": "within",
                    "line": 0.1,
                    "beside": None,
                    "beside_says": "",
                    "unit": "",
                    "verdict_of_number": "not asked",
                    "reason": "it was not measured",
                },
            ],
        }
        for name, statement, verdict, reason in [
            ("fixed-sink", "An ARM piles its attention on one sink.", "holds", ""),
            ("structure-then-content", "An MDM attends to structure first.", "fails", ""),
            ("retrieval-heads", "In an ARM, few heads copy.", "inconclusive", "the interval includes the threshold"),
            ("gains-more", "An MDM gains more from passages than an ARM.", "not asked", "both are at the ceiling"),
        ]
    ],
}


@pytest.fixture(scope="module")
def answers() -> pl.DataFrame:
    table = made_up_answers(contexts=("closed-book", "gold", "noise:0", "noise:0.5"), interventions=("mask-anchors:1",))
    return table.with_columns(
        prompt=pl.concat_str(pl.lit("Where does Ben Reed live?\n"), pl.col("sample"), pl.lit(f" {HOSTILE['script']}")),
        prediction=pl.lit(HOSTILE["bidi"]),
        answer=pl.lit("Rome"),
    )


@pytest.fixture(scope="module")
def study(mdm: Trace, arm: Trace, answers: pl.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder: Path = tmp_path_factory.mktemp("study")
    (folder / "claims.json").write_text(json.dumps(CLAIMS))
    rows = [
        {
            "run": run,
            "update": update,
            "measure": "on the first token",
            "unit": "%",
            "value": update / 100,
            "low": update / 200,
            "high": update / 50,
            "null": 2.5,
            "layer": layer,
        }
        for run in ("adapted", HOSTILE["script"])
        for update in (100, 200, 400)
        for layer in (None, 0, 1)
    ]
    (folder / "training.json").write_text(json.dumps(rows))
    sources = Sources({"mdm": mdm, "arm": arm}, {"demo": folder / "claims.json"}, {"evaluation": answers}, [folder / "training.json"])
    write_file(folder / "report.html", sources, Choices(), progress=False)
    return (folder / "report.html").as_uri()


VIEWS = {
    "heads": ("#/heads/mdm/0?step=2&layer=3&head=1&group=masked", ".cell.chosen"),
    "why": ("#/why/mdm/0?step=2&layer=3&group=masked", ".point"),
    "claims": ("#/claims", ".claim"),
    "contexts": ("#/contexts", ".plot .dot"),
    "training": ("#/training", ".plot .dot"),
    "tour": ("#/tour?stop=3", ".tour h2"),
}


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
def test_every_view_fits_a_narrow_screen(browser: Any, study: str, view: str) -> None:
    link, sign = VIEWS[view]
    with opened(browser, study + link, width=390, wait_for=sign) as seen:
        assert seen.page.evaluate("document.documentElement.scrollWidth") <= 390


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


def test_claims_show_verdict_numbers_and_where_to_see_them(browser: Any, study: str) -> None:
    with opened(browser, study + "#/claims", wait_for=".claim") as seen:
        assert seen.page.locator(".verdict").all_inner_texts() == ["✓\nholds", "✕\nfails", "~\ninconclusive", "·\nnot asked"] or [
            text.split()[-1] for text in seen.page.locator(".verdict").all_inner_texts()
        ] == ["holds", "fails", "inconclusive", "asked"]
        first = seen.page.locator(".claim").first
        assert "1.500 % [1.25, 2] n = 7" in " ".join(first.inner_text().split())
        assert "it was not measured" in first.inner_text()
        label = first.locator("svg").first.get_attribute("aria-label")
        assert label == "share: 1.500 %, from 1.25 to 2; the threshold is 1" or "from 1.25 to 2" in label
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


def test_training_scrubs_the_updates(browser: Any, study: str) -> None:
    with opened(browser, study + "#/training", wait_for=".plot .dot") as seen:
        seen.page.get_by_role("slider", name="Update").fill("0")
        seen.wait_for_state(update="100")
        row = " ".join(seen.page.locator(".card", has_text="After update 100").last.locator("tbody tr").first.inner_text().split())
        assert "1 % [0.500, 2] 2.50" in row
        assert seen.page.locator(".card", has_text="by layer after update 100").count() == 1


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
