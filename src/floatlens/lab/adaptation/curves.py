"""Attention along an adaptation: every checkpoint of a run reads the same held-out texts, and is measured where it looks.

Decided here: the texts are those that the held-out loss is taken of, the first few questions and documents. An autoregressive model reads
them as they are, a diffusion model with their targets masked. Update 0 is the base under the mask of the run, before any training. For
every layer: the share of attention on the first token, on the strongest key (chosen on one half of the rows, measured on the other) and
on the anchors (rule `lift`), each with its null, per query group; and which token the strongest key is. If asked, a checkpoint also writes
on from the beginnings of some documents, and what moves meanwhile is measured (`moving`). For each checkpoint one file with its shares,
and one with what moved, is written as soon as that is measured, so an interrupted measurement resumes; its name says what was measured
on which texts, and its own SHA-256.

Refused: a folder that holds no run, runs of one name, runs of different bases or data, data that do not belong to the run.
"""

import hashlib
import io
import json
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from glob import escape
from pathlib import Path
from typing import Any

import polars as pl

from floatlens._version import __version__
from floatlens.capture.tapping import tap
from floatlens.errors import Refusal
from floatlens.folders import files_added_to, one_writer, say, write_whole
from floatlens.lab.adaptation.data import prepare
from floatlens.lab.adaptation.moving import MEASURES as MOVES
from floatlens.lab.adaptation.moving import beginnings, movement_by_layer
from floatlens.lab.adaptation.objective import visible_tokens
from floatlens.lab.adaptation.recipe import Recipe, recipe_of
from floatlens.lab.adaptation.sequences import TrainingSequence, held_out_sequences
from floatlens.lab.adaptation.shares import KEPT, shares_by_layer
from floatlens.lab.adaptation.training import RUN
from floatlens.models.adapters import ADAPTER, MASKS, OBJECTIVES, Adapter, AdapterInfo, read_adapter, write_adapter
from floatlens.models.language_model import LanguageModel
from floatlens.models.loading import load

WRITTEN_BY = "floatlens curves"
CURVES = "curves.parquet"
TEXTS_OF_A_KIND = 8
_OF_TEXTS = {"base", "mask_token", "longest", "questions", "question_files", "text_files", "evaluation_files"}
"""The fields of a recipe that decide which texts are held out."""


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

    def name(self, texts: str, written: int = 0) -> str:
        """The name under which its shares are kept, of texts with that digest; or what moved while so many of them were continued."""
        moved = [(written, MOVES)] if written else []
        measured = (self.objective, self.mask, self.seed, self.update, self.sha256, texts, *moved)
        return f"{self.run}-{self.update:06d}-{hashlib.sha256(repr(measured).encode()).hexdigest()[:16]}"


def checkpoints_of(run: Path, updates: Sequence[int] | None = None) -> list[Checkpoint]:
    """The checkpoints of a run, from update 0 on; only some updates if they are named.

    Examples
    --------
    >>> checkpoints_of(Path("nowhere"))
    Traceback (most recent call last):
    floatlens.errors.Refusal: nowhere holds no run of floatlens adapt (run.json is missing). Pass a folder that floatlens adapt wrote.
    """
    recipe, about = read_run(run)
    name = _name_of(run)
    points = [Checkpoint(name, about["objective"], about["mask"], recipe.seed, 0, None, about["base_sha256"])]
    for file in sorted(run.glob("update-*.safetensors")):
        info, digest = read_adapter(file).info, hashlib.sha256(file.read_bytes()).hexdigest()
        points.append(Checkpoint(name, info.objective, info.mask, info.seed, info.update, file, digest))
    return [point for point in points if updates is None or point.update in updates]


def read_run(run: Path) -> tuple[Recipe, dict[str, Any]]:
    """The recipe of a run, and everything that its folder says of it."""
    file = run / RUN
    if not file.is_file():
        raise Refusal(f"{run} holds no run of floatlens adapt ({RUN} is missing). Pass a folder that floatlens adapt wrote.")
    try:
        about = json.loads(file.read_text(encoding="utf-8"))
        if about["objective"] not in OBJECTIVES or about["mask"] not in MASKS or not isinstance(about["base_sha256"], str):
            raise ValueError
        return recipe_of(about["recipe"], str(file)), {**about, "data": dict(about["data"])}
    except (ValueError, KeyError, TypeError, RecursionError):
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
    written: int = 0,
    advance: Callable[[int], None] = lambda _done: None,
) -> pl.DataFrame:
    """Measure every checkpoint of the runs that the folder does not hold yet, and join them into one table.

    Parameters
    ----------
    runs, data_folder, into
        Folders of `floatlens adapt`, the data that they were trained on, and the folder to write.
    updates
        Only these.
    written
        How many documents each checkpoint continues, so that it can be measured what moves meanwhile.
    advance
        Is told of every checkpoint that is done.

    Returns
    -------
    polars.DataFrame
        One row per run, update, text, group, layer and measure: `value` and `null` in percent, `token`, the text of the strongest key.
    """
    points = [point for run in runs for point in checkpoints_of(run, updates)]
    if not points:
        raise Refusal("No checkpoint is left to measure. Name updates that the runs have kept (--updates).")
    _refuse_incomparable(runs)
    digest = digest_of_texts(runs[0])
    with one_writer(into, WRITTEN_BY) as place:
        texts: list[TrainingSequence] | None = None
        tokenizer: Any = None
        tables = []
        for point in points:
            for continued in (0, written) if written else (0,):
                name = point.name(digest, continued)
                rows = _restore(place, name)
                if rows is None:
                    if texts is None:
                        texts, tokenizer = texts_of(runs[0], data_folder)
                    recipe, _ = read_run(runs[0])
                    measured = measure_checkpoint(point, recipe.base, texts, tokenizer, recipe.mask_token, continued)
                    rows = _store(place, name, measured)
                tables.append(rows)
            advance(1)
    joined = pl.concat(tables)
    with files_added_to(into, WRITTEN_BY, [CURVES]) as folder:
        joined.write_parquet(folder / CURVES)
    return joined


def _restore(folder: Path, name: str) -> pl.DataFrame | None:
    """The rows that are kept under a name; None if there are none. A file that was changed is named and removed."""
    for file in sorted(folder.glob(f"{escape(name)}-*.parquet")):
        content = file.read_bytes()
        if file.name == _file_name(name, content):
            return pl.read_parquet(io.BytesIO(content))
        say(f"{file} is damaged: it is removed, and what it held is measured again.")
        file.unlink()
    return None


def _store(folder: Path, name: str, rows: pl.DataFrame) -> pl.DataFrame:
    content = io.BytesIO()
    rows.write_parquet(content)
    write_whole(folder / _file_name(name, content.getvalue()), content.getvalue())
    return rows


def _file_name(name: str, content: bytes) -> str:
    return f"{name}-{hashlib.sha256(content).hexdigest()}.parquet"


def _refuse_incomparable(runs: Sequence[Path]) -> None:
    """Refuse runs whose rows could not be told apart, or would not compare."""
    names = [_name_of(run) for run in runs]
    if twice := next((name for number, name in enumerate(names) if name in names[:number]), None):
        raise Refusal(
            f"Two runs are called {twice}, but their rows are told apart by name. Rename one, or measure them into different folders."
        )
    about = [read_run(run)[1] for run in runs]
    for what, of in (("bases", "base_sha256"), ("data", "data")):
        if any(each[of] != about[0][of] for each in about):
            raise Refusal(f"The runs have different {what}, so their curves would not compare. Measure them into different folders.")


def _name_of(run: Path) -> str:
    return Path(os.path.abspath(run)).name  # also of `.` and `..`


def digest_of_texts(run: Path) -> str:
    """A hash of all that the held-out texts of a run and their measures follow from."""
    recipe, about = read_run(run)
    drawn = recipe.model_dump_json(include=_OF_TEXTS)
    return hashlib.sha256(repr((__version__, drawn, sorted(about["data"].items()), TEXTS_OF_A_KIND)).encode()).hexdigest()


def measure_checkpoint(
    point: Checkpoint, base: str, texts: Sequence[TrainingSequence], tokenizer: Any, mask_token: str, continued: int = 0
) -> pl.DataFrame:
    """The rows of one checkpoint: its shares on the texts, or what moves while it continues some of them."""
    mask_token_id = tokenizer.get_vocab()[mask_token]
    lm = _load(point, base, mask_token_id)
    if continued:
        rows = [{"kind": "written", **row} for row in movement_by_layer(lm, beginnings(texts, continued))]
    else:
        rows = [row for number, text in enumerate(texts) for row in _shares(lm, point, text, number, mask_token_id)]
    of_point = {"run": point.run, "objective": point.objective, "mask": point.mask, "seed": point.seed, "update": point.update}
    return pl.DataFrame([{**of_point, **row} for row in rows])


def _load(point: Checkpoint, base: str, mask_token_id: int) -> LanguageModel:
    with tempfile.TemporaryDirectory() as folder:
        file = point.adapter
        if file is None:
            file = Path(folder) / ADAPTER
            write_adapter(file, _untrained(point, base, mask_token_id))
        return load(file, dtype="float32")


def _shares(lm: LanguageModel, point: Checkpoint, sequence: TrainingSequence, number: int, mask_token_id: int) -> list[dict[str, Any]]:
    """The rows of one text, which a diffusion model reads with its targets masked."""
    module: Any = lm.module
    tokens = visible_tokens(sequence, point.objective, mask_token_id)  # type: ignore[arg-type]  # as it was written
    masked = (tokens == mask_token_id)[None]
    groups = {"unmasked": ~masked, "masked": masked} if masked.any() else {"unmasked": ~masked}
    with tap(module, keep=KEPT, groups=groups) as seen:
        module(input_ids=tokens[None], use_cache=False)
    return [{"kind": sequence.kind, "text": number, **row} for row in shares_by_layer(seen.dataset, tokens, lm.tokenizer)]


def _untrained(point: Checkpoint, base: str, mask_token_id: int) -> Adapter:
    """An adapter that changes nothing but the mask over attention; the digest of an untrained point is that of the base."""
    return Adapter(AdapterInfo(base, point.sha256, "all", 1, 1.0, point.objective, point.mask, mask_token_id, point.seed, 0), {})


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
