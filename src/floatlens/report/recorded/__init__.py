"""Findings on real models that were recorded beforehand and come with the package, because to make them takes hours.

`smollm2-triplet/` is the folder of a demo of the SmolLM2 triplet, made light by `bundle.py`: its `claims.json` and tables as `floatlens
demo` wrote them, light traces of the same two questions for every model, curves along the adaptation where they were recorded, and
`about.json`, which says on how much it rests and by which command it is made again. Its manifest covers every file.

Refused: a folder that is damaged, which a package should never be.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from floatlens.errors import Refusal
from floatlens.folders import damage

BUNDLED = Path(__file__).parent / "smollm2-triplet"
ABOUT, CURVES = "about.json", "curves"
KEYS = ("title", "again", "said")


@dataclass(frozen=True)
class Recorded:
    """What was recorded: its folder, what it is called in a table, how it is made again, what it rests on, and its claims by name."""

    folder: Path
    title: str
    again: str
    said: str
    claims: dict[str, dict[str, Any]]

    @property
    def sources(self) -> list[Path]:
        """The folders of which a page can be made."""
        return [self.folder, *([self.folder / CURVES] if (self.folder / CURVES).is_dir() else [])]


def read_recorded(folder: Path = BUNDLED) -> Recorded | None:
    """What was recorded; None where nothing is bundled.

    Examples
    --------
    >>> read_recorded(Path("nowhere")) is None
    True
    """
    if not folder.is_dir():
        return None
    if wrong := damage(folder):
        raise Refusal(f"{folder}, which comes with floatlens, is damaged: {wrong[0]} Install floatlens again.")
    about, findings = (json.loads((folder / name).read_text(encoding="utf-8")) for name in (ABOUT, "claims.json"))
    return Recorded(folder, **{key: str(about[key]) for key in KEYS}, claims={claim["name"]: claim for claim in findings["claims"]})
