"""The page that an installed floatlens wrote with its demo; `.ci/release` says where it is."""

import os
from pathlib import Path
from typing import Any

import pytest

from browser.browsing import opened
from floatlens.claims.findings import CLAIMS

PAGE = os.environ.get("FLOATLENS_PAGE")


@pytest.mark.skipif(PAGE is None, reason=".ci/release installs the wheel, runs its demo and opens the page here")
def test_the_page_of_the_demo_opens_and_shows_every_claim(browser: Any) -> None:
    assert PAGE is not None
    with opened(browser, Path(PAGE).absolute().as_uri() + "#/claims", wait_for=".claim") as seen:
        assert seen.page.locator(".claim").count() == len(CLAIMS)
        seen.page.get_by_role("button", name="Watch").or_(seen.page.get_by_role("link", name="Watch")).first.click()
        seen.page.wait_for_selector(".panel-head")
        assert seen.said == []
        assert all(url.startswith(("file:", "blob:", "data:")) for url in seen.requests)
