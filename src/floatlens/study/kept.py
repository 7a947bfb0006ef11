"""Keep the conditions of an evaluation that are done, so that an interrupted one resumes where it was.

Each condition is one Parquet file. Its name begins with a hash of everything its rows depend on: the model's config and weights (the
sum and a sample of every tensor), the prompts with their answers, the settings, the columns of the table and the version of floatlens.
Other settings, another model or other questions have other names, so their rows are never reused. The name ends with the SHA-256 of the
file: one that was truncated or changed is reported, removed, and its condition computed again.

Not part of the name: floatlens' own code within a version. Whoever changes it removes the folder.
"""

import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from functools import partial
from inspect import isfunction
from pathlib import Path
from typing import Any

import polars as pl
import torch

from floatlens._version import __version__
from floatlens.folders import say, write_whole
from floatlens.models.language_model import LanguageModel

SAMPLED = 64  # numbers per tensor


def restore(folder: Path | None, name: str) -> pl.DataFrame | None:
    """The rows that are kept under a name; None if there are none, or no folder.

    Examples
    --------
    >>> restore(None, "a") is None
    True
    """
    for file in [] if folder is None else sorted(folder.glob(f"{name}-*.parquet")):
        content = file.read_bytes()
        if file.name == _file_name(name, content):
            return pl.read_parquet(io.BytesIO(content))
        say(f"{file} is damaged: it is removed, and what it held is computed again.")
        file.unlink()
    return None


def store(folder: Path | None, name: str, rows: pl.DataFrame) -> pl.DataFrame:
    """The rows, kept under a name where there is a folder.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp()) / "kept"
    >>> rows = store(folder, "a", pl.DataFrame({"x": [1, 2]}))
    >>> rows.equals(restore(folder, "a"))
    True
    """
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        content = io.BytesIO()
        rows.write_parquet(content)
        write_whole(folder / _file_name(name, content.getvalue()), content.getvalue())
    return rows


def _file_name(name: str, content: bytes) -> str:
    return f"{name}-{hashlib.sha256(content).hexdigest()}.parquet"


def fingerprint(lm: LanguageModel) -> str:
    """A hash of a model: how it writes, its config, the names and shapes of its tensors, evenly spaced numbers of each and their sum.

    Examples
    --------
    >>> from torch import nn
    >>> one, other = (LanguageModel(nn.Linear(3, 3)) for _ in range(2))
    >>> fingerprint(one) == fingerprint(one), fingerprint(one) == fingerprint(other)
    (True, False)
    """
    how = (lm.name, lm.family, lm.sampler, lm.row_offset, lm.mask_token_id, lm.end_tokens, lm.suffix, lm.sampler_defaults)
    config = lm.config.to_dict() if hasattr(lm.config, "to_dict") else {}
    digest = hashlib.sha256(repr((how, sorted(config.items()))).encode())
    for name, tensor in lm.module.state_dict().items():
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        flat = tensor.detach().flatten()
        digest.update(flat[:: max(1, len(flat) // SAMPLED)].double().cpu().numpy().tobytes())
        digest.update(repr(flat.sum(dtype=torch.float64).item()).encode())
    return digest.hexdigest()


def name_of(model: str, condition: str, prompts: Sequence[tuple[str, ...]], settings: Mapping[str, Any]) -> str:
    """The name under which a condition is kept: a hash of what it depends on.

    Examples
    --------
    >>> name_of("m", "gold", [("Where?", "Oslo")], {"seed": 0}) == name_of("m", "gold", [("Where?", "Oslo")], {"seed": 1})
    False
    """
    dependencies = json.dumps([__version__, model, condition, [*prompts], {name: str(value) for name, value in settings.items()}])
    return hashlib.sha256(dependencies.encode()).hexdigest()[:32]


def function_name(function: Any) -> str | None:
    """A function by its module and name, with the arguments of a `partial`; the `repr` of a lambda or an object, which have no name.

    Examples
    --------
    >>> function_name(partial(restore, None))
    'floatlens.study.kept.restore (None,) {}'
    """
    if function is None:
        return None
    if isinstance(function, partial):
        return f"{function_name(function.func)} {function.args} {function.keywords}"
    return f"{function.__module__}.{function.__name__}" if isfunction(function) and "<" not in function.__qualname__ else repr(function)
