"""Whatever a model or a data set says is shown as text; nothing of it runs."""

import csv
from pathlib import Path
from typing import Any

from browser.browsing import HOSTILE, opened, save_page, with_words
from floatlens.trace.trace import Trace


def test_hostile_tokens_and_titles_are_text(browser: Any, mdm: Trace, tmp_path: Path) -> None:
    ids = list(dict.fromkeys(mdm.sample(0)["final"].values.tolist()))[: len(HOSTILE)]
    words = dict(zip(ids, HOSTILE.values(), strict=True))
    hostile = with_words(mdm, words, prompt=HOSTILE["script"])
    hostile.attributes["model"] = HOSTILE["script"]
    hostile.attributes["revision"] = HOSTILE["bidi"]
    address = save_page(tmp_path / "hostile.html", {HOSTILE["script"]: hostile, "</title><script>window.marker='ran'</script>": hostile})
    with opened(browser, address, wait_for=".token") as seen:
        texts = "".join(seen.page.locator(".token").all_inner_texts())
        assert "</script><img src=x onerror=" in texts
        assert "\\u202eevil\\u2066" in texts
        assert "\\ud800" in texts
        assert "\\u001b[31mred\\u0007" in texts
        assert "x" * 47 + "…" in texts
        assert "x" * 100 not in texts
        assert "{@html" in texts
        assert "a\\u{e0041}\\u034fb" in texts
        assert "\\u200d" in texts
        with seen.page.expect_download() as download:
            seen.page.get_by_role("button", name="CSV", exact=True).first.click()
        cells = [cell for row in csv.reader(download.value.path().read_text().splitlines()) for cell in row]
        assert "'" + HOSTILE["formula"] in cells  # a spreadsheet would run it
        assert not [cell for cell in cells if cell.startswith("=")]
        token = seen.page.locator(".token", has_text="xxxxxxxx").first
        token.hover()
        assert "(10000 characters)" in seen.page.inner_text(".hover b")
        for view in ("heads", "why", "tour"):
            seen.page.get_by_role("button", name=view.capitalize(), exact=True).click()
            seen.page.wait_for_function("(view) => location.hash.startsWith('#/' + view)", arg=view)
        assert seen.page.evaluate("window.marker") is None
        assert seen.page.locator("img").count() == 0
        assert seen.said == []
        assert all(url.startswith(("file:", "data:", "blob:")) for url in seen.requests)


def test_inline_scripts_and_outside_requests_are_blocked_by_the_policy(browser: Any, two_runs: str) -> None:
    with opened(browser, two_runs, wait_for=".token") as seen:
        seen.page.evaluate("""() => {
            const script = document.createElement("script");
            script.textContent = "window.marker = 'ran'";
            document.body.append(script);
        }""")
        assert seen.page.evaluate("window.marker") is None
        # later, on the page's own account: what the test itself runs is exempt
        evaluated = """() => new Promise((resolve) => setTimeout(() => {
            try { resolve(String(window.eval("1 + 1"))); } catch { resolve("blocked"); }
        }))"""
        assert seen.page.evaluate(evaluated) == "blocked"
        fetched = "() => fetch('http://127.0.0.1:9/').then(() => 'sent', () => 'blocked')"
        assert seen.page.evaluate(fetched) == "blocked"
        assert any("Content Security Policy" in said for said in seen.said)
