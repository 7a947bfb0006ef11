"""The twins that come with floatlens, as checkpoint folders inside the package. Nothing is fetched or converted.

Refused: an installation without them, such as a source tree before `floatlens train twins` has filled it.
"""

from importlib.resources import files
from pathlib import Path

from floatlens.errors import Refusal

TWINS = ("twin-arm", "twin-mdm", "twin-causal-mdm")


def bundled_twin(name: str) -> Path:
    """The checkpoint folder of a bundled twin.

    Examples
    --------
    >>> bundled_twin("twin-mdm").name
    'twin-mdm'
    """
    folder = Path(str(files("floatlens.models"))) / "twins" / name
    if not (folder / "config.json").is_file():
        raise Refusal(f"{name} is missing from this installation ({folder}). Install floatlens again, or train it: floatlens train twins")
    return folder
