"""Gather the pages of the site in build/pages, for mkdocs or zensical to build: `make docs`.

Pages link to each other as files of the repository, so that they can be read on GitHub as they lie. The site keeps these links by keeping
the layout: README.md, CONTRIBUTING.md, CHANGELOG.md, docs/ and examples/ are copied as they are, together with every other file that one
of them links to. One thing changes: a comment `<!-- ::: floatlens.load -->`, which GitHub does not show, becomes the line with which
mkdocstrings writes the docstring of that name.
"""

import re
import shutil
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "build" / "pages"
GATHERED = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE", "CITATION.cff", "docs", "examples")

LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
DIRECTIVE = re.compile(r"^<!-- (::: [\w.]+) -->$", re.MULTILINE)


def gather(root: Path = ROOT, pages: Path = PAGES) -> None:
    """Copy everything the site shows or links to from the repository into a folder that is made anew."""
    shutil.rmtree(pages, ignore_errors=True)
    pages.mkdir(parents=True)
    for name in GATHERED:
        source = root / name
        if source.is_dir():
            shutil.copytree(source, pages / name, ignore=shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints"))
        elif source.exists():
            shutil.copy(source, pages / name)
    for page in sorted(pages.rglob("*.md")):
        copy_what_it_links_to(page, root, pages)
    for page in sorted(pages.rglob("*.md")):
        page.write_text(DIRECTIVE.sub(r"\1", page.read_text(encoding="utf-8")), encoding="utf-8")


def copy_what_it_links_to(page: Path, root: Path, pages: Path) -> None:
    """Copy the files of the repository that a page links to and that are not among the pages yet; links that lead nowhere stay."""
    for link in LINK.findall(page.read_text(encoding="utf-8")):
        if "://" in link:
            continue
        wanted = (page.parent / link).resolve()
        if wanted.exists() or not wanted.is_relative_to(pages.resolve()):
            continue
        source = root / wanted.relative_to(pages.resolve())
        if source.is_file():
            wanted.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, wanted)


if __name__ == "__main__":
    gather()
