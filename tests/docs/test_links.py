"""Links inside the repository lead somewhere, and every page of docs/ can be found from the index and in the site."""

import re
from pathlib import Path

import pytest
from markdown_pages import ROOT, anchors_of, dead_links, links_of

import floatlens as fl


def test_no_link_inside_the_repository_is_dead() -> None:
    assert dead_links(ROOT) == []


@pytest.mark.parametrize(
    ("text", "dead"),
    [
        ("[there](docs/there.md)", False),
        ("[there](docs/there.md#what-it-does)", False),
        ("[there](docs/there.md#twice-1)", False),
        ("[a link over\ntwo lines](docs/there.md)", False),
        ("`[in code](nowhere.md)` and [there](docs/there.md)", False),
        ("```\n[in code](nowhere.md)\n```", False),
        ("[outwards](https://example.org/nowhere)", False),
        ("[not there](docs/gone.md)", True),
        ("[no such heading](docs/there.md#gone)", True),
        ("[no such heading here](#gone)", True),
        ("[out of the repository](../README.md)", True),
        ("![picture](docs/gone.png)", True),
        ('<img src="docs/gone.png">', True),
        ("[by reference][x]\n\n[x]: docs/gone.md", True),
    ],
)
def test_dead_links_are_noticed(text: str, dead: bool, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "there.md").write_text("# There\n\n## What it `does`\n\n## Twice\n\n## Twice\n\n```sh\n# Gone\n```\n")
    (tmp_path / "README.md").write_text(f"# Read me\n\n{text}\n")
    assert bool(dead_links(tmp_path)) is dead


def test_anchors_are_those_of_github(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# `score` is unscaled\n\n## What is promised, and tested\n\n## [A link](x.md) in it\n\n## Dashes - here\n")
    assert anchors_of(page) == {"score-is-unscaled", "what-is-promised-and-tested", "a-link-in-it", "dashes---here"}


def test_the_index_and_the_site_name_every_page_of_docs() -> None:
    docs = ROOT / "docs"
    listed = {(docs / link.partition("#")[0]).resolve() for link in links_of(docs / "README.md") if "://" not in link}
    in_the_site = set(re.findall(r"docs/[\w./-]+\.md", (ROOT / "mkdocs.yml").read_text(encoding="utf-8")))
    pages = [page for page in sorted(docs.rglob("*.md")) if page != docs / "README.md"]
    assert [page.name for page in pages if page.resolve() not in listed] == [], "docs/README.md lists every page"
    assert [page.name for page in pages if page.relative_to(ROOT).as_posix() not in in_the_site] == [], (
        "`nav` of mkdocs.yml names every page"
    )


def test_the_citation_names_this_version() -> None:
    assert f"\nversion: {fl.__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
