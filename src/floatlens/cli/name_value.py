"""Options of the command line that are written name=value."""

import json
from collections.abc import Callable, Sequence
from inspect import signature
from typing import Any

from floatlens.errors import Refusal

MOST_SEED = 2**62
"""The largest seed of the command line: seed plus the number of a sample must be a number that torch takes."""


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
    named = [(text.split("=", 1)[0].strip(), text.split("=", 1)[1].strip()) for text in texts]
    names = [name for name, _ in named]
    if twice := [name for name in names if names.count(name) > 1]:
        raise Refusal(f"{option} gives {twice[0]!r} twice; give it once.")
    return named


def sampler_options(texts: Sequence[str], taken_by: Callable[..., Any], *others: str) -> dict[str, Any]:
    """The sampler options that `--set` names; refused are `others`, which have an option of their own, and what the call they go to takes besides.

    Examples
    --------
    >>> def write(prompt, gen_length=32, progress=True, **options): ...
    >>> sampler_options(["threshold=0.9", "remasking=low_confidence"], write, "gen_length")
    {'threshold': 0.9, 'remasking': 'low_confidence'}
    >>> sampler_options(["gen_length=8"], write, "gen_length")
    Traceback (most recent call last):
    floatlens.errors.Refusal: --set gen_length=... is not a sampler option of its own; use --gen-length.
    >>> sampler_options(["progress=false"], write, "gen_length")
    Traceback (most recent call last):
    floatlens.errors.Refusal: --set progress=... is not a sampler option.
    """
    options = {name: _value(value) for name, value in pairs(texts, "--set")}
    for name in others:
        if name in options:
            own = "raw" if name == "chat" else name.replace("_", "-")
            raise Refusal(f"--set {name}=... is not a sampler option of its own; use --{own}.")
    for name in signature(taken_by).parameters:
        if name in options:
            raise Refusal(f"--set {name}=... is not a sampler option.")
    return options


def _value(text: str) -> Any:
    """A number, true or false, or the word itself."""
    try:
        return json.loads(text.lower() if text.lower() in ("true", "false", "null", "none") else text) if text.lower() != "none" else None
    except (ValueError, RecursionError):
        return text
