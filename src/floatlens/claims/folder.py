"""The folder that a demo writes: what is in it, and whether a folder that is there already may be replaced.

Everything is written into a folder of its own beside the final place and moved there when it is whole. A folder is replaced only if a demo wrote it, which its `claims.json` says; anything else is refused.
"""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp

from floatlens.errors import Refusal

MARK = "floatlens demo"
"""What `claims.json` of a demo says under "written_by"."""


@contextmanager
def demo_folder(into: Path) -> Iterator[Path]:
    """A folder to write to, which takes the place of `into` when the context ends well and vanishes when it does not."""
    refuse_foreign(into)
    if not into.absolute().parent.is_dir():
        raise Refusal(f"There is no folder {into.parent} to write {into.name} into.")
    building = Path(mkdtemp(prefix=f".{into.name}-", dir=into.absolute().parent))
    try:
        for name in ("traces", "tables", "figures"):
            (building / name).mkdir()
        yield building
        refuse_foreign(into)
        if into.exists():
            shutil.rmtree(into)
        building.chmod(0o755)  # a temporary folder is its owner's alone
        building.rename(into)
    finally:
        if building.exists():
            shutil.rmtree(building)


def refuse_foreign(into: Path) -> None:
    """Refuse a folder that holds anything but a demo.

    Examples
    --------
    >>> refuse_foreign(Path("a-folder-that-is-not-there"))
    """
    if not into.exists():
        return
    if into.is_dir() and (not any(into.iterdir()) or _is_demo(into)):
        return
    raise Refusal(f"{into} is there already and was not written by a demo, so it is left alone. Name another folder: --into other-folder")


def _is_demo(folder: Path) -> bool:
    try:
        said = json.loads((folder / "claims.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(said, dict) and said.get("written_by") == MARK
