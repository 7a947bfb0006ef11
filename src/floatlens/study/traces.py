"""Traces of questions under conditions, so that where a model looked can be joined with whether it was right.

One trace per condition, without interventions, below the folder of an evaluation; its rows say which sample stands where in which
trace, and which regions hold the evidence.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

from floatlens.models.language_model import LanguageModel
from floatlens.study.settings import Settings
from floatlens.tasks.conditions import Condition, as_file_name
from floatlens.tasks.contexts import arrange, holds_evidence
from floatlens.tasks.samples import Sample
from floatlens.tasks.wording import fit

TRACE_COLUMNS = {"trace": pl.String, "number": pl.Int64, "model": pl.String, "context": pl.String, "sample": pl.String, "gold": pl.String}


def record_traces(
    lm: LanguageModel,
    samples: Sequence[Sample],
    conditions: Sequence[Condition],
    settings: Settings,
    folder: Path,
    *,
    progress: bool = True,
) -> list[dict[str, Any]]:
    """Record samples under each condition, without interventions: one trace per condition, `traces/MODEL/CONDITION.zarr` below `folder`.

    Returns
    -------
    list[dict]
        One row per sample and trace: trace (its path below `folder`), number (of the sample in the trace), model, context, sample, and gold
        (the regions that hold the evidence).

    Examples
    --------
    >>> import floatlens, tempfile
    >>> from floatlens.tasks.conditions import condition_of
    >>> from floatlens.tasks.world import open_book_samples
    >>> from floatlens.tasks.wording import WORLD_WORDING
    >>> lm, settings = floatlens.load("twin-arm"), Settings(wording=WORLD_WORDING, gen_length=2)
    >>> rows = record_traces(lm, open_book_samples(1), [condition_of("position:2/3")], settings, Path(tempfile.mkdtemp()))
    >>> rows[0]["trace"], rows[0]["gold"]
    ('traces/twin-arm/position-2-3.zarr', 'doc_2')
    """
    rows = []
    for condition in conditions:
        length, steps = settings.length_for(condition), settings.steps_for(lm, condition)
        fitted = [fit(lm, sample, arrange(sample, condition.context), settings.wording, length, settings.chat) for sample in samples]
        path = Path("traces") / Path(lm.name).name / f"{as_file_name(condition.text)}.zarr"
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        how = {"gen_length": length, "steps": steps, "seed": settings.seed, "chat": settings.chat, **settings.options}
        lm.trace([prompt.prompt for prompt in fitted], path=folder / path, progress=progress, **how)
        for number, (sample, prompt) in enumerate(zip(samples, fitted, strict=True)):
            shown = enumerate(prompt.passages, start=1)
            gold = " ".join(f"doc_{slot}" for slot, passage in shown if holds_evidence(sample, passage))
            about = {"model": lm.name, "context": condition.text, "sample": sample.id, "gold": gold}
            rows.append({"trace": path.as_posix(), "number": number, **about})
    return rows
