"""From a name to a folder with a checkpoint in it, and what that folder says before any weight is read.

A name is a bundled model, a folder, an adapter, a file of a kind that `sources` converts, or a repository of the model hub. Checkpoints
are written by strangers, so for every family:

- No code of a checkpoint runs unless the caller trusts it. transformers asks on standard input if it is not told, so every call tells it
  (`trust_remote_code=False`).
- Files are read from the checkpoint's folder only. A link may lead to the blobs of the hub's own cache, of which every snapshot is made,
  and nowhere else; an index or a tokenizer's config may not name a file elsewhere.
- Weights are safetensors; pickled ones can run any code when they are opened and are refused unless the caller allows them.
- An adapter beside the weights would be merged by transformers where `peft` is installed and ignored where it is not: refused.

Refused as well: an index that does not match its files, a tensor that two files hold, weights that are no floating-point numbers, and an
installation without the bundled twins.
"""

import hashlib
import json
import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from importlib.resources import files
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

from floatlens.errors import Refusal, in_a_sentence, is_hidden, reason, shown, suggestion
from floatlens.models.adapters import ADAPTER, bundled_adapters, read_adapter
from floatlens.models.sources.cache import converted

_READ = (".json", ".txt", ".model", ".jinja", ".tiktoken", ".safetensors", ".bin", ".pt", ".pth", ".py")
_LARGEST_JSON = 1 << 28  # bytes; the largest tokenizer.json that is published has a tenth of it


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
                f"{shown(file.name)} of {name} is a link to a file outside the checkpoint ({shown(file.readlink())}), which could be "
                "anything on this machine. Copy the file there instead."
            )
    if (folder / "adapter_config.json").is_file():
        raise Refusal(
            f"{name} holds an adapter (adapter_config.json), which transformers applies only where peft is installed. Merge it into the "
            "weights (merge_and_unload of peft), or remove the file."
        )
    if (folder / "tokenizer_config.json").is_file():
        for field, value in read_json(folder / "tokenizer_config.json", name).items():
            for path in value if isinstance(value, list) else [value]:
                if _names_a_file(field) and isinstance(path, str) and not is_inside(folder, folder / path):
                    raise Refusal(
                        f"tokenizer_config.json of {name} says {field}={shown(path)!r}, a file outside the checkpoint. Remove that line "
                        "from it."
                    )


def _names_a_file(field: str) -> bool:
    return field.endswith(("_file", "_files")) and field != "special_tokens_map_file"  # that one is kept by old versions and never opened


def is_inside(folder: Path, file: Path) -> bool:
    """Whether a file, links followed, belongs to a checkpoint.

    It lies in the checkpoint's folder, or among the blobs of the hub's cache that a snapshot is made of.
    """
    try:
        home, real = folder.resolve(), file.resolve()
    except (OSError, RuntimeError, ValueError):  # links in a circle; a NUL in the name
        return False
    places = [home]
    snapshots = next((parent for parent in home.parents if parent.name == "snapshots" and parent.parent.name.startswith("models--")), None)
    if snapshots is not None:
        places += [snapshots.parent / "blobs", snapshots.parent.parent / "blobs"]  # the repository's, and those that repositories share
    return any(real.is_relative_to(place) for place in places)


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


def _smollm2_135m() -> Path:
    from floatlens.models.sources.smollm2 import smollm2_135m  # other kinds of files have readers of their own, and few models need one

    return smollm2_135m()


def _antiberty() -> Path:
    from floatlens.models.sources.antiberty import antiberty

    return antiberty()


BUNDLED: dict[str, Callable[[], Path]] = {
    "smollm2-135m": _smollm2_135m,
    "antiberty": _antiberty,
    **{name: partial(bundled_twin, name) for name in TWINS},
}


def bundled_names() -> tuple[str, ...]:
    """The models that can be loaded by name."""
    return (*BUNDLED, *bundled_adapters())


_TEXT_FILES = ["*.json", "*.txt", "*.model", "*.jinja", "*.tiktoken"]
_PICKLED = re.compile(r"(pytorch_model.*\.bin|.*\.(pt|pth|ckpt))$")
_BYTES = {"F64": 8, "I64": 8, "F32": 4, "I32": 4, "BF16": 2, "F16": 2, "I16": 2, "U8": 1, "I8": 1, "BOOL": 1, "F8_E4M3": 1, "F8_E5M2": 1}
_FLOATS = ("F64", "F32", "BF16", "F16")
_LONGEST_STEM = 80  # characters of a file's name that a converted model keeps
_LONGEST_NAME = 4096  # no file system has longer paths


@dataclass(frozen=True)
class Checkpoint:
    """A folder with a config and, usually, weights and a tokenizer; for an adapted model the folder of its base, and the adapter."""

    name: str
    folder: Path
    revision: str | None
    adapter: Path | None = None

    @property
    def _no_config(self) -> str:
        return f"{self.name} has no config.json, so it is unknown what kind of model it is. Name the folder that holds one."

    @cached_property
    def config(self) -> dict[str, Any]:
        file = self.folder / "config.json"
        if not file.is_file():
            raise Refusal(self._no_config)
        return read_json(file, self.name)

    @cached_property
    def weight_files(self) -> list[Path]:
        """The safetensors files: those of the index if there is one, else the only one."""
        index = self.folder / "model.safetensors.index.json"
        if not index.is_file():
            return self._single_file
        weight_map = read_json(index, self.name).get("weight_map")
        if not isinstance(weight_map, dict) or not all(isinstance(file, str) and file for file in weight_map.values()):
            raise Refusal(f"{index.name} of {self.name} does not say which file holds which tensor. Download it again.")
        named = sorted(set(weight_map.values()))
        for name in named:
            if not is_inside(self.folder, self.folder / name):
                raise Refusal(
                    f"{index.name} of {self.name} names {shown(name)!r}, a file outside the checkpoint. Download it again, or correct it."
                )
        missing = [name for name in named if not (self.folder / name).is_file()]
        if len(missing) == len(named):
            return []  # only described here, not fetched
        if missing:
            raise Refusal(
                f"{self.name} is incomplete: {shown(', '.join(missing[:3]))} {'is' if len(missing) == 1 else 'are'} missing "
                f"({len(missing)} of {len(named)} files). Download it again."
            )
        return [self.folder / name for name in named]

    @property
    def _single_file(self) -> list[Path]:
        files = sorted(file for file in self.folder.glob("*.safetensors") if file.is_file())
        if len(files) > 1 and self.folder / "model.safetensors" in files:
            return [self.folder / "model.safetensors"]  # what transformers reads, too
        if files and files != [self.folder / "model.safetensors"]:
            raise Refusal(
                f"{self.name} has {shown(files[0].name)}, but neither model.safetensors nor model.safetensors.index.json, which says "
                "which file holds which tensor. Rename a single file to model.safetensors, or fetch the index."
            )
        return files

    @cached_property
    def tensors(self) -> Mapping[str, tuple[tuple[int, ...], str]]:
        """Shape and type of every tensor, from the headers of the files."""
        tensors_by_name: dict[str, tuple[tuple[int, ...], str]] = {}
        for file in self.weight_files:
            try:
                with safe_open(file, framework="pt") as tensors:
                    for name in tensors.keys():  # noqa: SIM118 - safe_open is no mapping
                        if name in tensors_by_name:
                            raise Refusal(
                                f"{self.name} holds tensor {shown(name)} twice, the second time in {shown(file.name)}; it is unclear "
                                "which of the two is meant. Remove the file that does not belong there."
                            )
                        part = tensors.get_slice(name)
                        tensors_by_name[name] = (tuple(part.get_shape()), part.get_dtype())
            except (SafetensorError, OSError, OverflowError, MemoryError) as error:
                raise Refusal(
                    f"{shown(file.name)} of {self.name} is not a complete safetensors file ({reason(error)}). Download it again."
                ) from None
        return tensors_by_name

    def refuse_wrong_types(self) -> None:
        """Refuse weights that are not floating-point numbers, unless the config says how they were quantised."""
        if self.config.get("quantization_config") is not None:
            return
        for name, (_, dtype) in self.tensors.items():
            if name.endswith((".weight", ".bias")) and dtype not in _FLOATS:
                raise Refusal(
                    f"Tensor {shown(name)} of {self.name} is stored as {dtype}, and the config does not say how to turn that into "
                    f"numbers (quantization_config). Use a checkpoint in one of {', '.join(_FLOATS)}."
                )

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
        if not self.has("config.json"):
            raise Refusal(self._no_config)
        if self.weight_files:
            return
        pickled = sorted(file.name for file in self.folder.iterdir() if _PICKLED.match(file.name))
        if not pickled:
            raise Refusal(f"{self.name} has no weights: there is no .safetensors file in {self.folder}. Download it whole.")
        if not allow_pickle:
            raise Refusal(
                f"{self.name} has only pickled weights ({pickled[0]}), which can run any code when they are opened. Convert them to "
                "safetensors, or pass allow_pickle=True (--allow-pickle) if you trust where they come from."
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
    text = _plain_name(name)
    if text.lower() in BUNDLED:
        return Checkpoint(text.lower(), BUNDLED[text.lower()](), None)
    if text.lower() in bundled_adapters():
        return _adapted(text.lower(), bundled_adapters()[text.lower()])
    with in_a_sentence(f"There is no model {shown(text)!r}: it cannot be looked for", "Check the name."):
        path = Path(text).expanduser()
        is_folder, is_file = path.is_dir(), path.is_file()
        there = path.exists()
    if there and revision is not None:
        raise Refusal(f"{text} is on this machine and has no revisions; leave revision={revision!r} out, or give a hub name.")
    if is_folder and (path / ADAPTER).is_file() and not (path / "config.json").is_file():
        return _adapted(text, path / ADAPTER)
    if is_file and path.suffix == ".safetensors":
        return _adapted(text, path)
    if is_folder:
        refuse_what_leads_out(path, text)
        return Checkpoint(text, path, None)
    if is_file:
        return Checkpoint(text, _converted_file(path), None)
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", text) or text.startswith(("./", "../")):
        raise Refusal(_unknown(text))
    checkpoint = _from_hub(text, revision, weights, trust_remote_code, allow_pickle)
    refuse_what_leads_out(checkpoint.folder, text)
    return checkpoint


def _adapted(name: str, adapter: Path) -> Checkpoint:
    """The checkpoint of an adapter's base, with the adapter to merge into it; its revision is the adapter's SHA-256."""
    base = find_checkpoint(read_adapter(adapter).info.base)
    if base.adapter is not None:
        raise Refusal(f"{name} is an adapter of {base.name}, which is one itself. Save that one as a checkpoint first (lm.save).")
    with adapter.open("rb") as file:
        return replace(base, name=name, revision=hashlib.file_digest(file, "sha256").hexdigest()[:16], adapter=adapter)


def _plain_name(name: Any) -> str:
    """The name as a text that can be printed; refuses everything else."""
    try:
        text = os.fspath(name)
    except TypeError:
        text = None
    if not isinstance(text, str):
        raise Refusal(f"A model is named by a text or a path, not by {shown(repr(name))}, a {type(name).__name__}.")
    if not text.strip():
        raise Refusal(f"The name of the model is empty. Bundled: {', '.join(bundled_names())}.")
    if any(map(is_hidden, text)):
        raise Refusal(f"The name '{shown(text)}' holds characters that cannot be seen. Check what was pasted, or rename the folder.")
    if len(os.fsencode(text)) > _LONGEST_NAME:
        raise Refusal(f"The name '{shown(text)}' has {len(text)} characters, more than any path. Check what was pasted.")
    return text


def _unknown(text: str) -> str:
    names = bundled_names()
    hint = suggestion(text, names) or f" Bundled: {', '.join(names)}."
    return (
        f"There is no model {shown(text)!r}: it is neither bundled, nor a folder or file here, nor a hub name of the form owner/name.{hint}"
    )


def _converted_file(path: Path) -> Path:
    from floatlens.models.sources import gguf, llama2c

    key = f"{path.stat().st_size}-{path.stat().st_mtime_ns}"
    if path.suffix == ".gguf":
        key = f"{key}-{gguf.CONVERSION_VERSION}"
        return converted(path.stem[:_LONGEST_STEM], key, lambda folder: gguf.convert(path, folder))
    if path.suffix == ".bin":
        tokenizers = sorted(path.parent.glob("tok*.bin"))
        key = "-".join([key, *(str(file.stat().st_mtime_ns) for file in tokenizers), str(llama2c.CONVERSION_VERSION)])
        return converted(path.stem[:_LONGEST_STEM], key, lambda folder: llama2c.convert(path, None, folder))
    raise Refusal(
        f"{path} is not a kind of file that floatlens reads. It reads checkpoint folders (safetensors), adapters (.safetensors), .gguf "
        "files and llama2.c .bin files."
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
            f"{name} is not on this machine, and the model hub cannot be reached. Connect, or copy the model here and give the path of "
            "its folder."
        ) from None
    except (HfHubHTTPError, HFValidationError, OSError, ValueError) as error:
        raise Refusal(f"{name} could not be fetched from the model hub: {reason(error)}. Check the name, or try again later.") from None
    return Checkpoint(name, folder, folder.name)
