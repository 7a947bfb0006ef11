"""Keep the conditions of an evaluation that are done, so that one that was stopped goes on where it was.

Each condition is one Parquet file, named by a hash of everything its rows depend on: the model's config and weights (the sum and a sample of every tensor), the prompts with their answers, the settings and the version of
floatlens. Other settings, another model or other questions have other names, so nothing of theirs is taken up. The name ends in the SHA-256 of the file: one that was truncated or changed is named, removed, and its condition
computed again. Not part of the name: floatlens' own code within a version. Whoever changes it removes the folder.

Traces of questions under conditions, so that what a model looked at can be joined with whether it was right.
"""

import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import torch

from floatlens._version import __version__
from floatlens.folders import say, write_whole
from floatlens.models.language_model import LanguageModel
from floatlens.tasks.conditions import Condition, as_file_name
from floatlens.tasks.contexts import arrange, holds_evidence
from floatlens.tasks.samples import Sample
from floatlens.tasks.wording import QA_WORDING, Wording, fit

SAMPLED = 64  # numbers of each tensor


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
    told = json.dumps([__version__, model, condition, [*prompts], {name: str(value) for name, value in settings.items()}])
    return hashlib.sha256(told.encode()).hexdigest()[:32]


def record(
    lm: LanguageModel,
    samples: Sequence[Sample],
    conditions: Sequence[Condition],
    into: Path,
    *,
    wording: Wording = QA_WORDING,
    gen_length: int = 32,
    steps: int | None = None,
    seed: int = 0,
    chat: bool | None = None,
    **options: Any,
) -> list[dict[str, Any]]:
    """Record samples under each condition, unedited, one trace a condition below `into`/traces, and say which is which.

    Parameters
    ----------
    lm, samples, conditions
        What is asked of whom.
    into
        The folder; traces go to `traces/MODEL/CONDITION.zarr` in it.
    wording, gen_length, steps, seed, chat, options
        As for `floatlens.study.evaluation.evaluate`.

    Returns
    -------
    list[dict]
        A row for each sample of each trace: trace (below `into`), number (in the trace), model, context, sample, gold (the regions that hold the evidence).

    Examples
    --------
    >>> import floatlens, tempfile
    >>> from floatlens.tasks.conditions import condition_of
    >>> from floatlens.tasks.world import open_book_samples
    >>> from floatlens.tasks.wording import WORLD_WORDING
    >>> lm, folder = floatlens.load("twin-arm"), Path(tempfile.mkdtemp())
    >>> rows = record(lm, open_book_samples(1), [condition_of("position:2/3")], folder, wording=WORLD_WORDING, gen_length=2)
    >>> rows[0]["trace"], rows[0]["gold"]
    ('traces/twin-arm/position-2-3.zarr', 'doc_2')
    """
    rows = []
    for condition in conditions:
        length = condition.masks or gen_length
        fitted = [fit(lm, sample, arrange(sample, condition.context), wording, length, chat) for sample in samples]
        path = Path("traces") / Path(lm.name).name / f"{as_file_name(condition.text)}.zarr"
        taken = None if steps is None or lm.sampler == "autoregressive" else min(steps, length)
        (into / path).parent.mkdir(parents=True, exist_ok=True)
        lm.trace([one.prompt for one in fitted], gen_length=length, steps=taken, seed=seed, chat=chat, path=into / path, **options)
        for number, (sample, one) in enumerate(zip(samples, fitted, strict=True)):
            gold = " ".join(f"doc_{slot}" for slot, passage in enumerate(one.passages, start=1) if holds_evidence(sample, passage))
            about = {"model": lm.name, "context": condition.text, "sample": sample.id, "gold": gold}
            rows.append({"trace": path.as_posix(), "number": number, **about})
    return rows
