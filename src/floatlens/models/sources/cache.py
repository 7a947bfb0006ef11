"""The cache in which converted models are kept, so that each is converted once.

A folder of the cache that has its final name is complete (`floatlens.folders`). Of two processes that want the same model at once, one
converts and the other waits; a conversion that fails or is interrupted leaves nothing behind.

Refused: a name that would leave the cache, a cache that cannot be written.
"""

import os
from collections.abc import Callable
from pathlib import Path

import platformdirs

from floatlens.errors import Refusal
from floatlens.folders import folder_once

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
