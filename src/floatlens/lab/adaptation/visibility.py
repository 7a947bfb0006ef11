"""Attention while a causal mask is lifted: an autoregressive model reads the same texts while its rows see more and more of what is later.

Nothing is trained. The mask is the one that the `annealed` adaptation passes through: every pair of a row and a later position has a fixed
random number, and becomes visible when the share exceeds it; a share of 0 is the causal mask, 1 the bidirectional one. Each text has
pairs of its own. Every text has the same number of tokens, so that nulls compare.

Refused: models that write other than from left to right, texts that are longer than a sliding window (whose mask this is not), and files
without enough documents of that length.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import polars as pl
import torch
import xarray as xr

from floatlens.capture.tapping import tap
from floatlens.errors import Refusal, shown
from floatlens.lab.adaptation.data import documents_of
from floatlens.lab.adaptation.objective import annealed_mask
from floatlens.lab.adaptation.shares import KEPT, shares_by_layer
from floatlens.models.language_model import LanguageModel
from floatlens.models.loading import load
from floatlens.statistics.resampling import bootstrap
from floatlens.terminal import counted

WRITTEN_BY = "floatlens visibility"
TABLE = "visibility.parquet"
SHARES = (0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)


def lift_masks(
    models: Sequence[str],
    text_file: Path,
    *,
    shares: Sequence[float] = SHARES,
    texts: int = 16,
    length: int = 192,
    advance: Callable[[int], None] = lambda _done: None,
) -> pl.DataFrame:
    """Measure where models look at every visible share.

    Parameters
    ----------
    models
        Autoregressive models, by what `floatlens.load` takes.
    text_file
        Documents, separated by lines that are `<|endoftext|>`. The first ones that are long enough are read.
    shares
        Of the later positions that a row sees, from 0 to 1.
    texts, length
        How many documents, and their first so many tokens.

    Returns
    -------
    polars.DataFrame
        One row per model, share, text, layer and measure: `value` and `null` in percent, `key` and `token` of the strongest key.
    """
    names = [Path(model).name for model in models]
    if twice := next((name for number, name in enumerate(names) if name in names[:number]), None):
        raise Refusal(f"Two models are called {shown(twice)}, but their rows are told apart by name. Measure them into a folder each.")
    documents = list(documents_of(text_file))
    tables = []
    for model in models:
        lm = load(model, dtype="float32")
        _refuse_other_masks(lm, model, length)
        for number, tokens in enumerate(_cut(lm, documents, texts, length, text_file)):
            for share in shares:
                mask = annealed_mask(length, share, seed=number, dtype=torch.float32)
                with tap(lm.module, keep=KEPT) as seen:
                    lm.module(input_ids=tokens[None], attention_mask=mask, use_cache=False)
                rows = shares_by_layer(seen.dataset, tokens, lm.tokenizer)
                tables.append(pl.DataFrame([{"model": Path(model).name, "share": share, "text": number, **row} for row in rows]))
                advance(1)
    return pl.concat(tables)


def _refuse_other_masks(lm: LanguageModel, model: str, length: int) -> None:
    if lm.family != "autoregressive":
        raise Refusal(
            f"{model} is a model of the family {lm.family}, whose mask is not lifted. Name one of the family autoregressive, such as "
            "smollm2-135m."
        )
    window = getattr(lm.module.config, "sliding_window", None)
    if window is not None and length > window:
        raise Refusal(f"{model} has layers that see no more than {window} tokens back; read at most that many (--length {window}).")


def _cut(lm: LanguageModel, documents: Sequence[str], texts: int, length: int, file: Path) -> list[torch.Tensor]:
    """The first tokens of the first documents that have as many."""
    cut: list[torch.Tensor] = []
    for document in documents:
        tokens = lm.tokenizer(document)["input_ids"]
        if len(tokens) >= length:
            cut.append(torch.tensor(tokens[:length]))
        if len(cut) == texts:
            return cut
    raise Refusal(
        f"{file} has {counted(len(cut), 'document')} of {length} tokens or more, not {texts}; ask for fewer or shorter ones "
        "(--texts, --length)."
    )


def sink_layers(table: pl.DataFrame, model: str) -> list[int]:
    """The layers in which the first token is a sink under the causal mask: at least 10 % of attention, and ten times its null.

    Examples
    --------
    >>> row = dict(model="m", share=0.0, text=0, group="all", measure="on the first token", null=0.5, key=0, token="")
    >>> sink_layers(pl.DataFrame([{**row, "layer": layer, "value": value} for layer, value in enumerate((4.0, 40.0))]), "m")
    [1]
    """
    first = table.filter(model=model, share=0.0, measure="on the first token").group_by("layer").agg(pl.col("value", "null").mean())
    return sorted(first.filter((pl.col("value") >= 10) & (pl.col("value") >= 10 * pl.col("null")))["layer"].to_list())


def over_sink_layers(table: pl.DataFrame) -> pl.DataFrame:
    """The mean over a model's sink layers, with its 95 % interval over texts: one row per model, share and measure. Models without sink
    layers have none.

    Examples
    --------
    >>> row = dict(model="m", share=0.0, group="all", layer=0, measure="on the first token", null=0.5, key=0, token="")
    >>> over_sink_layers(pl.DataFrame([{**row, "text": text, "value": 30.0 + text} for text in range(3)]))["value"].to_list()
    [31.0]
    """
    rows = []
    for model in table["model"].unique(maintain_order=True):
        own = table.filter(pl.col("model") == model, pl.col("layer").is_in(sink_layers(table, model)))
        for (share, measure), cell in own.group_by("share", "measure", maintain_order=True):
            by_text = cell.group_by("text").agg(pl.col("value", "null").mean()).sort("text")
            found = bootstrap(xr.DataArray(by_text["value"].to_numpy(), dims="sample"))
            of_cell = {"model": model, "share": share, "measure": measure, "null": by_text["null"].mean()}
            rows.append({**of_cell, "value": float(found["estimate"]), "low": float(found["low"]), "high": float(found["high"])})
    return pl.DataFrame(rows)
