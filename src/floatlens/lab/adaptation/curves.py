"""Attention along an adaptation: every checkpoint of a run reads the same held-out texts, and is measured where it looks.

Decided here: the texts are those that the held-out loss is taken of, the first few questions and documents. An autoregressive model reads
them as they are, a diffusion model with their targets masked. Update 0 is the base under the mask of the run, before any training. For
every layer: the share of attention on the first token, on the strongest key (chosen on one half of the rows, measured on the other) and
on the anchors (rule `lift`), each with its null, per query group; and which token the strongest key is. One file per checkpoint is
written as soon as it is measured, so an interrupted measurement resumes.

Refused: a folder that holds no run, runs of different bases, data that do not belong to the run.
"""

import hashlib
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import torch
import xarray as xr

from floatlens.capture.tapping import tap
from floatlens.errors import Refusal
from floatlens.folders import one_writer, write_whole
from floatlens.lab.adaptation.data import prepare
from floatlens.lab.adaptation.objective import visible_tokens
from floatlens.lab.adaptation.recipe import Recipe, recipe_of
from floatlens.lab.adaptation.sequences import TrainingSequence, held_out_sequences
from floatlens.lab.adaptation.shares import KEPT, shares_by_layer
from floatlens.lab.adaptation.training import RUN
from floatlens.models.adapters import Adapter, AdapterInfo, merge_adapter, read_adapter, refuse_other_base
from floatlens.models.loading import load

WRITTEN_BY = "floatlens curves"
CURVES = "curves.parquet"
TEXTS_OF_A_KIND = 8


@dataclass(frozen=True)
class Checkpoint:
    """One point of a curve: a run, an update, and the adapter of that update (None before the first)."""

    run: str
    objective: str
    mask: str
    seed: int
    update: int
    adapter: Path | None
    sha256: str

    @property
    def file(self) -> str:
        return f"{self.run}-{self.update:06d}-{self.sha256[:12]}.parquet"


def checkpoints_of(run: Path, updates: Sequence[int] | None = None) -> list[Checkpoint]:
    """The checkpoints of a run, from update 0 on; only some updates if they are named.

    Examples
    --------
    >>> checkpoints_of(Path("nowhere"))
    Traceback (most recent call last):
    floatlens.errors.Refusal: nowhere holds no run of floatlens adapt (run.json is missing). Pass a folder that floatlens adapt wrote.
    """
    _, about = read_run(run)
    base = about["base_sha256"]
    points = [Checkpoint(run.name, about["objective"], about["mask"], about["recipe"]["seed"], 0, None, base)]
    for file in sorted(run.glob("update-*.safetensors")):
        info, digest = read_adapter(file).info, hashlib.sha256(file.read_bytes()).hexdigest()
        points.append(Checkpoint(run.name, info.objective, info.mask, info.seed, info.update, file, digest))
    return [point for point in points if updates is None or point.update in updates]


def read_run(run: Path) -> tuple[Recipe, dict[str, Any]]:
    """The recipe of a run, and everything that its folder says of it."""
    file = run / RUN
    if not file.is_file():
        raise Refusal(f"{run} holds no run of floatlens adapt ({RUN} is missing). Pass a folder that floatlens adapt wrote.")
    try:
        about = json.loads(file.read_text(encoding="utf-8"))
        return recipe_of(about["recipe"], str(file)), about
    except (ValueError, KeyError, TypeError):
        raise Refusal(f"{file} does not say which run the folder holds. Pass a folder that floatlens adapt wrote.") from None


def texts_of(run: Path, data_folder: Path) -> tuple[list[TrainingSequence], Any]:
    """The held-out texts that every checkpoint reads, and the tokenizer they are written in."""
    recipe, about = read_run(run)
    lm = load(recipe.base, dtype="float32")
    data = prepare(recipe, data_folder, lm.tokenizer)
    if data.hashes() != about["data"]:
        raise Refusal(f"The files below {data_folder} (--data) are not those that {run} was trained on. Pass the folder of that training.")
    chosen: list[TrainingSequence] = []
    drawn = held_out_sequences(data, recipe, lm)
    for kind in ("question", "text"):
        of_kind = [sequence for sequence in drawn if sequence.kind == kind]
        chosen += of_kind[:: max(1, len(of_kind) // TEXTS_OF_A_KIND)][:TEXTS_OF_A_KIND]  # evenly over the files
    return chosen, lm.tokenizer


def measure_checkpoints(
    runs: Sequence[Path],
    data_folder: Path,
    into: Path,
    *,
    updates: Sequence[int] | None = None,
    advance: Callable[[int], None] = lambda _done: None,
) -> pl.DataFrame:
    """Measure every checkpoint of the runs that the folder does not hold yet, and join them into one table.

    Returns
    -------
    polars.DataFrame
        One row per run, update, text, group, layer and measure: `value` and `null` in percent, `token`, the text of the strongest key.
    """
    points = [point for run in runs for point in checkpoints_of(run, updates)]
    if not points:
        raise Refusal("No checkpoint is left to measure. Name updates that the runs have kept (--updates).")
    bases = {read_run(run)[1]["base_sha256"] for run in runs}
    if len(bases) > 1:
        raise Refusal("The runs have different bases, so their curves would not compare. Measure them into different folders.")
    with one_writer(into, WRITTEN_BY) as place:
        texts: list[TrainingSequence] | None = None
        tokenizer: Any = None
        tables = []
        for point in points:
            file = place / point.file
            if not file.is_file():
                if texts is None:
                    texts, tokenizer = texts_of(runs[0], data_folder)
                recipe, _ = read_run(runs[0])
                write_table(file, measure_checkpoint(point, recipe.base, texts, tokenizer, recipe.mask_token))
            tables.append(pl.read_parquet(file))
            advance(1)
        joined = pl.concat(tables)
        write_table(place / CURVES, joined)
    return joined


def measure_checkpoint(point: Checkpoint, base: str, texts: Sequence[TrainingSequence], tokenizer: Any, mask_token: str) -> pl.DataFrame:
    """The rows of one checkpoint."""
    mask_token_id = tokenizer.get_vocab()[mask_token]
    lm = load(base, dtype="float32")
    adapter = _untrained(point, base, mask_token_id) if point.adapter is None else read_adapter(point.adapter)
    if point.adapter is not None:
        refuse_other_base(lm.module, adapter, point.adapter.name)
    module: Any = merge_adapter(lm.module, adapter)
    tables = []
    for number, sequence in enumerate(texts):
        tokens = visible_tokens(sequence, adapter.info.objective, mask_token_id)  # type: ignore[arg-type]  # as it was written
        masked = (tokens == mask_token_id)[None]
        groups = {"unmasked": ~masked, "masked": masked} if masked.any() else {"unmasked": ~masked}
        with tap(module, keep=KEPT, groups=groups) as seen:
            module(input_ids=tokens[None], use_cache=False)
        tables.append(_rows(seen.dataset, point, sequence.kind, number, tokens, tokenizer))
    return pl.concat(tables)


def _untrained(point: Checkpoint, base: str, mask_token_id: int) -> Adapter:
    """An adapter that changes nothing but the mask over attention."""
    return Adapter(AdapterInfo(base, "", "all", 1, 1.0, point.objective, point.mask, mask_token_id, point.seed, 0), {})


def _rows(data: xr.Dataset, point: Checkpoint, kind: str, number: int, tokens: torch.Tensor, tokenizer: Any) -> pl.DataFrame:
    of_point = {"run": point.run, "objective": point.objective, "mask": point.mask, "seed": point.seed, "update": point.update}
    return pl.DataFrame([{**of_point, "kind": kind, "text": number, **row} for row in shares_by_layer(data, tokens, tokenizer)])


def write_table(file: Path, table: pl.DataFrame) -> None:
    """Write a table as Parquet, whole or not at all."""
    content = io.BytesIO()
    table.write_parquet(content)
    write_whole(file, content.getvalue())


def over_layers(curves: pl.DataFrame, layers: range, *, group: str = "unmasked", kind: str | None = None) -> pl.DataFrame:
    """The mean over some layers and all texts, by run, update and measure.

    Examples
    --------
    >>> row = dict(run="a", objective="ar", mask="causal", seed=0, update=0, kind="text", text=0, group="unmasked", measure="m", null=1.0)
    >>> curves = pl.DataFrame([{**row, "layer": layer, "value": 10.0 * layer, "key": 0, "token": ""} for layer in range(4)])
    >>> over_layers(curves, range(2, 4))["value"].to_list()
    [25.0]
    """
    chosen = curves.filter(pl.col("layer").is_in(list(layers)) & (pl.col("group") == group) & (pl.col("value").is_not_nan()))
    if kind is not None:
        chosen = chosen.filter(pl.col("kind") == kind)
    by = ["run", "objective", "mask", "seed", "update", "measure"]
    return chosen.group_by(by).agg(pl.col("value").mean(), pl.col("null").mean()).sort(by)
