"""Options of the command line that are written name=value."""

import json
from collections.abc import Sequence
from typing import Any

from floatlens.errors import Refusal


def pairs(texts: Sequence[str], option: str) -> list[tuple[str, str]]:
    """Names and values of texts like "threshold=0.9".

    Examples
    --------
    >>> pairs(["threshold=0.9"], "--set")
    [('threshold', '0.9')]
    """
    for text in texts:
        if "=" not in text:
            raise Refusal(f"{option} takes name=value; this is {text!r}.")
    return [(text.split("=", 1)[0].strip(), text.split("=", 1)[1].strip()) for text in texts]


def sampler_options(texts: Sequence[str], *others: str) -> dict[str, Any]:
    """The sampler options that `--set` names; refused are the names that have an option of their own.

    Examples
    --------
    >>> sampler_options(["threshold=0.9", "remasking=low_confidence"])
    {'threshold': 0.9, 'remasking': 'low_confidence'}
    >>> sampler_options(["gen_length=8"], "gen_length")
    Traceback (most recent call last):
    floatlens.errors.Refusal: --set gen_length=... is not a sampler option of its own; use --gen-length.
    """
    options = {name: _value(value) for name, value in pairs(texts, "--set")}
    for name in others:
        if name in options:
            own = "raw" if name == "chat" else name.replace("_", "-")
            raise Refusal(f"--set {name}=... is not a sampler option of its own; use --{own}.")
    return options


def _value(text: str) -> Any:
    """A number, true or false, or the word itself."""
    try:
        return json.loads(text.lower() if text.lower() in ("true", "false", "null", "none") else text) if text.lower() != "none" else None
    except ValueError:
        return text
