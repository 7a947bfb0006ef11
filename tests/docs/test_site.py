"""What `make docs` gives to mkdocs: the pages in their own layout, with what they link to, and docstrings in the place of comments."""

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest
from markdown_pages import ROOT, dead_links


@pytest.fixture(scope="module")
def gatherer() -> Any:
    spec = spec_from_file_location("gather_pages", ROOT / "docs" / "gather_pages.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_pages_are_gathered_with_what_they_link_to(gatherer: Any, tmp_path: Path) -> None:
    for name in ("docs", "src/model", "examples"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "README.md").write_text("[docs](docs/page.md)\n")
    (tmp_path / "docs" / "page.md").write_text("[card](../src/model/card.md#top), [out](https://example.org)\n")
    (tmp_path / "src" / "model" / "card.md").write_text("# Top\n")
    (tmp_path / "src" / "model" / "weights.bin").write_text("not linked")
    pages = tmp_path / "build" / "pages"
    (pages / "docs").mkdir(parents=True)
    (pages / "docs" / "of-an-earlier-build.md").write_text("gone")
    gatherer.gather(tmp_path, pages)
    found = {file.relative_to(pages).as_posix() for file in pages.rglob("*") if file.is_file()}
    assert found == {"README.md", "docs/page.md", "src/model/card.md"}


def test_comments_become_docstrings_in_the_site_only(gatherer: Any, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    page = "# API\n\n<!-- ::: floatlens.load -->\n\n<!-- needs: SmolLM2 -->\n\nIn a line: `<!-- ::: floatlens.tap -->`\n"
    (tmp_path / "docs" / "api.md").write_text(page)
    gatherer.gather(tmp_path, tmp_path / "pages")
    assert (tmp_path / "pages" / "docs" / "api.md").read_text() == page.replace("<!-- ::: floatlens.load -->", "::: floatlens.load")
    assert (tmp_path / "docs" / "api.md").read_text() == page


def test_no_link_is_lost_when_the_pages_are_gathered(gatherer: Any, tmp_path: Path) -> None:
    gatherer.gather(ROOT, tmp_path / "pages")
    assert dead_links(tmp_path / "pages") == []
