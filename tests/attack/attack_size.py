"""How hard the tests in this folder try: a sample in `make test`, everything in `make attack`."""

import os

FULL = os.environ.get("FLOATLENS_ATTACK") == "full"


def tries(sample: int, full: int) -> int:
    """How many cases to try: `sample` in `make test`, `full` in `make attack`."""
    return full if FULL else sample
