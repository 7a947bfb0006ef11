"""The figures of a demo: every figure of a twin's trace, masking against its controls, and, for all twins together, absorption and the context curves.

A figure that cannot be drawn is left out, and `left_out-....txt` beside the others says why.
"""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import polars as pl
from matplotlib.figure import Figure

from floatlens.claims.evidence import Evidence
from floatlens.claims.masking_rows import masking_table
from floatlens.errors import Refusal
from floatlens.report import figures
from floatlens.report.figures.contexts import context_curves
from floatlens.trace.trace import Trace

FORMATS = ("svg",)
OF_EVERY_TWIN: dict[str, Callable[[Trace], Figure]] = {
    "temporal_drift": figures.temporal_drift,
    "float_index_by_layer": figures.float_index_by_layer,
    "retrieval_heads": figures.retrieval_heads,
}
OF_THE_MDM: dict[str, Callable[[Trace], Figure]] = {"qk_geometry": figures.qk_geometry, "roles_by_depth": figures.roles_by_depth}
"""What claims are about the MDM alone; `floatlens figures` draws everything from the stored traces."""


def draw_trace(twin: str, trace: Trace, folder: Path) -> None:
    """The figures of one twin's trace."""
    wanted = OF_EVERY_TWIN | (OF_THE_MDM if twin == "mdm" else {})
    save_drawn({f"{name}-{twin}": partial(draw, trace) for name, draw in wanted.items()}, folder, f"traces-{twin}")


def draw_masking(twin: str, experiment: str, evidence: Evidence, folder: Path) -> None:
    """One twin under masking, beside both controls."""
    name = f"{experiment.replace(' ', '_')}-{twin}"
    save_drawn({name: lambda: figures.masking_against_controls(masking_table(evidence, experiment, twin))}, folder, name)


def draw_absorption(traces: Mapping[str, Trace], folder: Path) -> None:
    """Absorption of all twins on the rectangle they share."""
    draw = partial(figures.absorption_by_layer, dict(traces), rectangle=True)
    save_drawn({"absorption_on_shared_rectangle": draw}, folder, "absorption")


def draw_contexts(evidence: Evidence, folder: Path) -> None:
    """The context curves of all twins."""
    asked = evidence.answers.filter(pl.col("experiment").is_in(["noise", "position", "layout"])).with_columns(model=pl.col("twin"))
    save_drawn({"contexts": partial(context_curves, asked)}, folder, "contexts")


def save_drawn(drawings: Mapping[str, Callable[[], Figure]], folder: Path, of: str) -> None:
    """Draw and save figures by name; those that cannot be drawn are listed with the reason."""
    left_out = []
    for name, draw in drawings.items():
        try:
            figures.save_figure(draw(), folder / name, FORMATS)
        except Refusal as refusal:
            left_out.append(f"{name}: {refusal}\n")
    if left_out:
        (folder / f"left_out-{of}.txt").write_text("".join(left_out), encoding="utf-8")
