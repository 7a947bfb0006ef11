"""Traces of questions under conditions, so that what a model looked at can be joined with whether it was right."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from floatlens.models.language_model import LanguageModel
from floatlens.tasks.conditions import Condition, as_file_name
from floatlens.tasks.contexts import arrange, holds_evidence
from floatlens.tasks.samples import Sample
from floatlens.tasks.wording import QA_WORDING, Wording, fit


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
        As for `floatlens.tasks.evaluation.evaluate`.

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
