"""The pictures of an evaluation, beside its tables: `contexts.svg`, and `interventions.svg` where there are interventions.

Interventions in several contexts are one picture with the contexts along the axis; several interventions in several contexts are one picture a context, `interventions-CONTEXT.svg`. What cannot be drawn, such as six models in one picture,
is left out, and the reason is handed back: an evaluation that took hours is not lost over a picture.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import polars as pl
from matplotlib.figure import Figure

from floatlens.errors import Refusal
from floatlens.progress import progress_bar
from floatlens.report.figures.contexts import context_curves
from floatlens.report.figures.interventions import intervention_damage
from floatlens.report.figures.style import save_figure
from floatlens.tasks.conditions import as_file_name
from floatlens.tasks.outcomes import Outcome

FORMATS = ("svg",)


def write_pictures(folder: Path, table: pl.DataFrame, outcomes: Sequence[Outcome]) -> tuple[list[Path], list[str]]:
    """Draw an evaluation into its folder.

    Parameters
    ----------
    folder
        Where the pictures are written; those that stand there are replaced.
    table, outcomes
        Rows of `floatlens.tasks.evaluation.evaluate`, of one model or several, and what `floatlens.tasks.outcomes.summarise` makes of them.

    Returns
    -------
    tuple
        The files that were written, and a sentence for each picture that could not be drawn.

    Examples
    --------
    >>> import tempfile
    >>> rows = [dict(model="m", sample=str(at), context="gold", intervention="", accuracy=1.0) for at in range(3)]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     [path.name for path in write_pictures(Path(folder), pl.DataFrame(rows), [])[0]]
    ['contexts.svg']
    """
    drawings = _drawings(table, outcomes)
    written, left_out = list[Path](), list[str]()
    with progress_bar(len(drawings), "Drawing") as advance:
        for name, draw in drawings.items():
            try:
                written += save_figure(draw(), folder / name, FORMATS)
            except Refusal as refusal:
                left_out.append(f"{name} was not drawn: {refusal}")
            advance(1)
    return written, left_out


def _drawings(table: pl.DataFrame, outcomes: Sequence[Outcome]) -> dict[str, Callable[[], Figure]]:
    drawings: dict[str, Callable[[], Figure]] = {"contexts": partial(context_curves, table)}
    edited = table.filter(pl.col("intervention") != "")
    contexts = edited["context"].unique(maintain_order=True).to_list()
    if len(contexts) <= 1 or edited["intervention"].n_unique() == 1:
        return drawings | ({"interventions": partial(intervention_damage, table, outcomes)} if contexts else {})
    for context in contexts:
        found = [one for one in outcomes if one.context == context]
        drawings[f"interventions-{as_file_name(context)}"] = partial(intervention_damage, table.filter(pl.col("context") == context), found)
    return drawings
