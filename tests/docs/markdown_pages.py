"""The pages of the repository, as tests read them: their blocks of code, their links and their anchors."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]

_FENCE = re.compile(r"^(?P<fence>```+)(?P<language>[\w-]*)[^\n]*\n(?P<text>.*?)^(?P=fence)$", re.MULTILINE | re.DOTALL)
_MARK = re.compile(r"<!-- (?P<kind>needs|not run): (?P<why>[^\n]+?) -->\s*\Z")
_INLINE_CODE = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)", re.DOTALL)
_LINK = re.compile(r"\]\(<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\)|^\[[^\]]+\]:\s+(\S+)|(?:src|href|srcset)=\"([^\"]+)\"", re.MULTILINE)
_HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*#*$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A block of code, and the comment above it that says what it needs or why it is not run."""

    page: str
    line: int
    language: str
    text: str
    needs: str = ""
    not_run: str = ""

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


def pages_of(root: Path) -> list[Path]:
    """Every page that people read: those at the root, those of docs/ and examples/, and the cards of bundled models."""
    inside = [page for folder in ("docs", "examples", "src") for page in (root / folder).rglob("*.md")]
    return sorted([*root.glob("*.md"), *inside])


def blocks_of(page: Path, root: Path = ROOT) -> list[Block]:
    """The blocks of code of a page, in order."""
    text = page.read_text(encoding="utf-8")
    blocks = []
    for fence in _FENCE.finditer(text):
        mark = _MARK.search(text[: fence.start()])
        why = {mark["kind"]: mark["why"]} if mark else {}
        line = text.count("\n", 0, fence.start()) + 1
        name = page.relative_to(root).as_posix()
        blocks.append(Block(name, line, fence["language"], fence["text"], why.get("needs", ""), why.get("not run", "")))
    return blocks


def links_of(page: Path) -> list[str]:
    """Where the links and pictures of a page lead; code is left out."""
    text = _INLINE_CODE.sub("", _FENCE.sub("", page.read_text(encoding="utf-8")))
    found = (link for groups in _LINK.findall(text) for link in groups if link)
    return [link.split()[0] for link in found]


def anchors_of(page: Path) -> set[str]:
    """The anchors that GitHub gives to the headings of a page."""
    anchors: set[str] = set()
    for heading in _HEADING.findall(_FENCE.sub("", page.read_text(encoding="utf-8"))):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        anchor = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        count = 1
        unique = anchor
        while unique in anchors:
            unique, count = f"{anchor}-{count}", count + 1
        anchors.add(unique)
    return anchors


def dead_links(root: Path) -> list[str]:
    """Links of all pages that lead to no file, to no anchor, or out of the repository."""
    dead = []
    for page in pages_of(root):
        for link in links_of(page):
            if re.match(r"[a-z][a-z+.-]*:", link):
                continue
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            name = page.relative_to(root).as_posix()
            if not target.is_relative_to(root.resolve()) or not target.exists():
                dead.append(f"{name}: {link} leads to no file of the repository")
            elif anchor and target.suffix == ".md" and anchor not in anchors_of(target):
                dead.append(f"{name}: {link} names a heading that the page does not have")
    return dead
