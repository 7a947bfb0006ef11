"""From a name to a folder with a checkpoint in it, and what that folder says before any weight is read.

A name is a bundled model, a folder, a file of a kind that `sources` converts, or a repository of the model hub. Weights are safetensors;
pickled ones can run any code when they are opened and are refused unless the caller allows them.
"""

import difflib
import json
import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from huggingface_hub import snapshot_download
from huggingface_hub.errors import (
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from safetensors import SafetensorError, safe_open

from floatlens.errors import Refusal
from floatlens.models.sources import gguf, llama2c
from floatlens.models.sources.cache import converted
from floatlens.models.sources.smollm2 import smollm2_135m
from floatlens.models.sources.twins import TWINS, bundled_twin

BUNDLED: dict[str, Callable[[], Path]] = {"smollm2-135m": smollm2_135m, **{name: partial(bundled_twin, name) for name in TWINS}}
_TEXT_FILES = ["*.json", "*.txt", "*.model", "*.jinja", "*.tiktoken"]
_PICKLED = re.compile(r"(pytorch_model.*\.bin|.*\.(pt|pth|ckpt))$")
_BYTES = {"F64": 8, "I64": 8, "F32": 4, "I32": 4, "BF16": 2, "F16": 2, "I16": 2, "U8": 1, "I8": 1, "BOOL": 1, "F8_E4M3": 1, "F8_E5M2": 1}


@dataclass(frozen=True)
class Checkpoint:
    """A folder with a config and, usually, weights and a tokenizer."""

    name: str
    folder: Path
    revision: str | None

    @cached_property
    def config(self) -> dict[str, Any]:
        file = self.folder / "config.json"
        if not file.is_file():
            raise Refusal(f"{self.name} has no config.json, so it cannot be told what model it is. Name the folder that holds one.")
        try:
            config = json.loads(file.read_text())
        except ValueError as error:
            raise Refusal(f"config.json of {self.name} is not JSON: {error}. Fetch the file again.") from None
        if not isinstance(config, dict):
            raise Refusal(f"config.json of {self.name} holds a {type(config).__name__}, not an object. Fetch the file again.")
        return config

    @cached_property
    def weight_files(self) -> list[Path]:
        """The safetensors files: those of the index if there is one, else all."""
        index = self.folder / "model.safetensors.index.json"
        if not index.is_file():
            return sorted(self.folder.glob("*.safetensors"))
        try:
            named = sorted(set(json.loads(index.read_text())["weight_map"].values()))
        except (ValueError, KeyError, TypeError, AttributeError):
            raise Refusal(f"{index.name} of {self.name} does not say which file holds which tensor. Download it again.") from None
        missing = [name for name in named if not (self.folder / name).is_file()]
        if len(missing) == len(named):
            return []  # only described here, not fetched
        if missing:
            raise Refusal(
                f"{self.name} is incomplete: {', '.join(missing[:3])} {'is' if len(missing) == 1 else 'are'} missing "
                f"({len(missing)} of {len(named)} files). Download it again."
            )
        return [self.folder / name for name in named]

    @cached_property
    def tensors(self) -> Mapping[str, tuple[tuple[int, ...], str]]:
        """Shape and type of every tensor, from the headers of the files."""
        found: dict[str, tuple[tuple[int, ...], str]] = {}
        for file in self.weight_files:
            try:
                with safe_open(file, framework="pt") as tensors:
                    for name in tensors.keys():  # noqa: SIM118 - safe_open is no mapping
                        part = tensors.get_slice(name)
                        found[name] = (tuple(part.get_shape()), part.get_dtype())
            except SafetensorError as error:
                raise Refusal(f"{file.name} of {self.name} is not a whole safetensors file ({error}). Download it again.") from None
        return found

    @property
    def parameters(self) -> int:
        return sum(math.prod(shape) for shape, _ in self.tensors.values())

    @property
    def bytes(self) -> int:
        return sum(math.prod(shape) * _BYTES.get(dtype, 4) for shape, dtype in self.tensors.values())

    def has(self, *names: str) -> bool:
        return all((self.folder / name).is_file() for name in names)

    def refuse_missing_weights(self, allow_pickle: bool) -> None:
        """Refuse a folder without weights, or with pickled ones only."""
        if self.weight_files:
            return
        pickled = sorted(file.name for file in self.folder.iterdir() if _PICKLED.match(file.name))
        if not pickled:
            raise Refusal(f"{self.name} has no weights: there is no .safetensors file in {self.folder}. Download it whole.")
        if not allow_pickle:
            raise Refusal(
                f"{self.name} has only pickled weights ({pickled[0]}), which can run any code when they are opened. Convert them to safetensors, or say "
                "allow_pickle=True (--allow-pickle) if you trust where they come from."
            )


def find_checkpoint(
    name: str | os.PathLike[str],
    revision: str | None = None,
    *,
    weights: bool = True,
    trust_remote_code: bool = False,
    allow_pickle: bool = False,
) -> Checkpoint:
    """The checkpoint of that name, fetched or converted if it must be; with `weights=False` only what describes it is fetched."""
    text = os.fspath(name)
    if text.lower() in BUNDLED:
        return Checkpoint(text.lower(), BUNDLED[text.lower()](), None)
    path = Path(text).expanduser()
    if path.exists() and revision is not None:
        raise Refusal(f"{text} is on this machine and has no revisions; leave revision={revision!r} out, or give a hub name.")
    if path.is_dir():
        return Checkpoint(text, path, None)
    if path.is_file():
        return Checkpoint(text, _converted_file(path), None)
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", text) or text.startswith(("./", "../")):
        raise Refusal(_unknown(text))
    return _from_hub(text, revision, weights, trust_remote_code, allow_pickle)


def _unknown(text: str) -> str:
    close = difflib.get_close_matches(text.lower(), BUNDLED, n=1, cutoff=0.5)
    hint = f" Did you mean {close[0]!r}?" if close else f" Bundled: {', '.join(BUNDLED)}."
    return f"There is no model {text!r}: it is neither bundled, nor a folder or file here, nor a hub name of the form owner/name.{hint}"


def _converted_file(path: Path) -> Path:
    key = f"{path.stat().st_size}-{path.stat().st_mtime_ns}"
    if path.suffix == ".gguf":
        key = f"{key}-{gguf.CONVERSION_VERSION}"
        return converted(path.stem, key, lambda folder: gguf.convert(path, folder))
    if path.suffix == ".bin":
        tokenizers = sorted(path.parent.glob("tok*.bin"))
        key = "-".join([key, *(str(file.stat().st_mtime_ns) for file in tokenizers), str(llama2c.CONVERSION_VERSION)])
        return converted(path.stem, key, lambda folder: llama2c.convert(path, None, folder))
    raise Refusal(
        f"{path} is not a kind of file that floatlens reads. It reads checkpoint folders (safetensors), .gguf files and llama2.c .bin files."
    )


def _from_hub(name: str, revision: str | None, weights: bool, trust_remote_code: bool, allow_pickle: bool) -> Checkpoint:
    patterns = [*_TEXT_FILES]
    patterns += ["*.safetensors"] * weights + ["*.py"] * trust_remote_code + ["*.bin", "*.pt", "*.pth"] * (weights and allow_pickle)
    try:
        folder = Path(snapshot_download(name, revision=revision, allow_patterns=patterns))
    except RevisionNotFoundError:
        raise Refusal(f"The model hub has {name}, but no revision {revision!r} of it.") from None
    except RepositoryNotFoundError:
        raise Refusal(f"The model hub knows no {name!r}, or it is private and needs a login (hf auth login).") from None
    except LocalEntryNotFoundError:
        raise Refusal(
            f"{name} is not on this machine, and the model hub cannot be reached. Connect, or copy the model here and give the path of its folder."
        ) from None
    except (HfHubHTTPError, HFValidationError, OSError) as error:
        raise Refusal(f"{name} could not be fetched from the model hub: {str(error).splitlines()[0]}") from None
    return Checkpoint(name, folder, folder.name)
