"""Measures against the update: a table of what a model in training measured at its checkpoints.

The table is Parquet, CSV or JSON (a list of objects); docs/reference/page-format.md says what its columns are. Only `update`, `measure` and
`value` are required. Refused: a table without them, and an update that is not a whole number.
"""

import json
import math
from pathlib import Path
from typing import Any

import polars as pl

from floatlens.errors import Refusal
from floatlens.report.page.schema import TrainingDocument, TrainingPoint

ENDINGS = (".parquet", ".csv", ".json")
REQUIRED = ("update", "measure", "value")


def read_training(file: Path) -> TrainingDocument:
    """Read a table of measures by update.

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "sink.json"
    >>> _ = file.write_text('[{"update": 100, "measure": "on the first token", "value": 3.5, "null": 2.0, "unit": "%"}]')
    >>> read_training(file).points[0].null
    2.0
    """
    rows = _rows(file)
    if not rows:
        raise Refusal(f"{file} holds no rows. A table for the page has the columns {', '.join(REQUIRED)} and at least one row.")
    for name in REQUIRED:
        if name not in rows[0]:
            raise Refusal(f"{file} has no column {name!r}. A table for the page has the columns {', '.join(REQUIRED)}.")
    try:
        points = [_point(row) for row in rows]
    except (TypeError, ValueError) as error:
        raise Refusal(f"{file} holds a value that is not a number where one is needed ({error}). Correct the table.") from None
    return TrainingDocument(file.stem, sorted(points, key=lambda point: (point.run, point.measure, point.update)))


def _rows(file: Path) -> list[dict[str, Any]]:
    try:
        if file.suffix == ".parquet":
            return pl.read_parquet(file).to_dicts()
        if file.suffix == ".csv":
            return pl.read_csv(file).to_dicts()
        rows = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, pl.exceptions.PolarsError) as error:
        raise Refusal(f"{file} cannot be read as a table ({error}). Tables are Parquet, CSV or a JSON list of objects.") from None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise Refusal(f"{file} is not a JSON list of objects.")
    return rows


def _point(row: dict[str, Any]) -> TrainingPoint:
    update = row["update"]
    if isinstance(update, bool) or update is None or int(update) != float(update):
        raise ValueError(f"update {update!r}")
    layer = row.get("layer")
    return TrainingPoint(
        run=str(row.get("run") or ""),
        update=int(update),
        measure=str(row["measure"]),
        unit=str(row.get("unit") or ""),
        layer=None if layer is None else int(layer),
        group=str(row.get("group") or ""),
        **{name: _number(row.get(name)) for name in ("value", "low", "high", "null")},
    )


def _number(value: Any) -> float | None:
    return None if value is None or not math.isfinite(float(value)) else float(value)
