"""Checkpoints are written by strangers: what is checked before one is believed, and how their mistakes become sentences.

Decided here, for every family:

- No code of a checkpoint runs unless the caller trusts it. transformers asks on standard input where nobody has said, so every call says it (`trust_remote_code=False`).
- Files are read from the checkpoint's folder only. A link may lead to the blobs of the hub's own cache, which every snapshot is made of, and nowhere else;
  an index or a tokenizer's config may not name a file elsewhere.
- An adapter beside the weights would be merged by transformers where `peft` is installed and ignored where it is not: refused.
- Whatever transformers, tokenizers and torch raise over a damaged file becomes a Refusal of one line.
"""

import json
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from transformers.utils import logging as transformers_logging

from floatlens.errors import BrokenPromise, Refusal

_READ = (".json", ".txt", ".model", ".jinja", ".tiktoken", ".safetensors", ".bin", ".pt", ".pth", ".py")
_LONGEST_REASON = 300  # characters of someone else's message
_LARGEST_JSON = 1 << 28  # bytes; the largest tokenizer.json that is published has a tenth of it
_NOT_TEXT = ("Cc", "Cf", "Cs", "Zl", "Zp")  # control characters, direction marks, halves of characters, line separators


def shown(text: object) -> str:
    """Words of a stranger on one line, control characters spelled out, cut where they become long.

    Examples
    --------
    >>> shown("a\\x1b[2Jb\\nc")
    'a\\\\x1b[2Jb\\\\nc'
    """
    said = str(text)
    spelled = "".join(sign.encode("unicode_escape").decode() if is_hidden(sign) else sign for sign in said[: _LONGEST_REASON + 1])
    return spelled if len(said) <= _LONGEST_REASON else f"{spelled[:_LONGEST_REASON]}..."


def is_hidden(sign: str) -> bool:
    """Whether a character shows as nothing, or does something to a terminal."""
    return unicodedata.category(sign) in _NOT_TEXT


def reason(error: BaseException) -> str:
    """The first line of what an error says."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return shown(lines[0] if lines else type(error).__name__).rstrip(".:")


def is_failure(error: BaseException) -> bool:
    """Whether something went wrong, a panic in Rust code among it, which is no Exception; not Ctrl-C or an exit."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


@contextmanager
def in_a_sentence(what: str, then: str) -> Iterator[None]:
    """Whatever is raised in here, as a Refusal: `what` went wrong, the reason, and `then`, what to do.

    Examples
    --------
    >>> with in_a_sentence("The weights of it cannot be read", "Download it again."):
    ...     raise RuntimeError("size mismatch\\nfor many tensors")
    Traceback (most recent call last):
    floatlens.errors.Refusal: The weights of it cannot be read (size mismatch). Download it again.
    """
    try:
        yield
    except (Refusal, BrokenPromise):
        raise
    except BaseException as error:  # damaged files make these libraries raise nearly everything
        if not is_failure(error):
            raise
        raise Refusal(f"{what} ({reason(error)}). {then}") from error


@contextmanager
def quiet() -> Iterator[None]:
    """No warnings of transformers, which quote what a stranger wrote: what matters is checked here, and said in one sentence."""
    level = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(level)


def read_json(file: Path, name: str) -> dict[str, Any]:
    """A JSON object of the checkpoint `name`."""
    try:
        if file.stat().st_size > _LARGEST_JSON:
            raise ValueError(f"{file.stat().st_size / 1e9:.1f} GB are too much for such a file")
        content = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, OSError, RecursionError) as error:  # UnicodeDecodeError is a ValueError
        raise Refusal(f"{file.name} of {name} is not JSON: {reason(error)}. Fetch the file again.") from None
    if not isinstance(content, dict):
        raise Refusal(f"{file.name} of {name} holds a {type(content).__name__}, not an object. Fetch the file again.")
    return content


def refuse_what_leads_out(folder: Path, name: str) -> None:
    """Refuse a folder with links out of it, with an adapter, or whose tokenizer names files elsewhere."""
    with in_a_sentence(f"The folder {name} cannot be read", "Check who may read it."):
        files = sorted([*folder.iterdir(), *(folder / "additional_chat_templates").glob("*")])
    for file in files:
        if file.is_symlink() and file.suffix in _READ and not is_inside(folder, file):
            raise Refusal(
                f"{shown(file.name)} of {name} is a link to a file outside the checkpoint ({shown(file.readlink())}), which could be anything on this machine. "
                "Copy the file there instead."
            )
    if (folder / "adapter_config.json").is_file():
        raise Refusal(
            f"{name} holds an adapter (adapter_config.json), which transformers applies only where peft is installed. Merge it into the weights "
            "(merge_and_unload of peft), or remove the file."
        )
    if (folder / "tokenizer_config.json").is_file():
        for field, value in read_json(folder / "tokenizer_config.json", name).items():
            for path in value if isinstance(value, list) else [value]:
                if _names_a_file(field) and isinstance(path, str) and not is_inside(folder, folder / path):
                    raise Refusal(
                        f"tokenizer_config.json of {name} says {field}={shown(path)!r}, a file outside the checkpoint. Remove that line from it."
                    )


def _names_a_file(field: str) -> bool:
    return field.endswith(("_file", "_files")) and field != "special_tokens_map_file"  # that one is kept by old versions and never opened


def is_inside(folder: Path, file: Path) -> bool:
    """Whether a file, links followed, belongs to a checkpoint: it lies in its folder, or among the blobs of the hub's cache that a snapshot is made of."""
    try:
        home, real = folder.resolve(), file.resolve()
    except (OSError, RuntimeError, ValueError):  # links in a circle; a NUL in the name
        return False
    places = [home]
    snapshots = next((parent for parent in home.parents if parent.name == "snapshots" and parent.parent.name.startswith("models--")), None)
    if snapshots is not None:
        places += [snapshots.parent / "blobs", snapshots.parent.parent / "blobs"]  # the repository's, and those that repositories share
    return any(real.is_relative_to(place) for place in places)
