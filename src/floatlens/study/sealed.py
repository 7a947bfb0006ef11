"""The file of a finished unit: whole and unchanged, or not at all.

The first line is `floatlens unit 1 SHA256`; behind it stands a ZIP archive, of which that is the SHA-256. (Tools that open archives skip
the line.) The archive holds `unit.json` (what the unit is and all it depends on), `run.json` (when, where and with which versions it
ran, and how long), its tables as Parquet, and, if it keeps one, its trace. The file says by itself whether it is whole, wherever it
is stored, so that a folder and an object store need no index to tell.

Refused, as `Damaged`: a file that was cut, changed, or that something else wrote.
"""

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from floatlens.study.units import Unit, unit_of

_MAGIC = b"floatlens unit 1 "
_HEADER = len(_MAGIC) + 64 + 1
_DATE = (1980, 1, 1, 0, 0, 0)  # of every member, so that equal content is equal bytes
TRACE_FOLDER = "trace.zarr/"


class Damaged(ValueError):
    """A file that is not what was written."""


@dataclass(frozen=True, eq=False)
class StoredUnit:
    """What the file of a unit holds."""

    unit: Unit
    run: Mapping[str, Any]
    archive: zipfile.ZipFile

    def table(self, name: str) -> pl.DataFrame | None:
        """A table by name; None if the unit has none of that name."""
        member = f"{name}.parquet"
        return pl.read_parquet(io.BytesIO(self.archive.read(member))) if member in self.archive.namelist() else None

    def rows(self, name: str) -> pl.DataFrame:
        """A table that this unit has."""
        table = self.table(name)
        assert table is not None, f"{self.unit.name} has no table {name}"
        return table

    @property
    def trace_files(self) -> list[str]:
        """The names of the files of its trace."""
        return [name for name in self.archive.namelist() if name.startswith(TRACE_FOLDER)]


def seal(unit: Unit, run: Mapping[str, Any], tables: Mapping[str, pl.DataFrame], files: Mapping[str, bytes] | None = None) -> bytes:
    """The file of a unit.

    Examples
    --------
    >>> unit = Unit("questions", "world", "twin-arm", "gold", "", "", None, 0, "default", 0, 1, {"model": "abc"})
    >>> content = seal(unit, {"seconds": 1.5}, {"results": pl.DataFrame({"accuracy": [1.0]})})
    >>> stored = unseal(content)
    >>> stored.unit == unit, stored.run["seconds"], stored.table("results").rows()
    (True, 1.5, [(1.0,)])
    >>> unseal(content[:-1])
    Traceback (most recent call last):
    floatlens.study.sealed.Damaged: it was cut or changed since it was written
    """
    members = {"unit.json": _json(unit.as_dict()), "run.json": _json(run)}
    for name, table in tables.items():
        parquet = io.BytesIO()
        table.write_parquet(parquet)
        members[f"{name}.parquet"] = parquet.getvalue()
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as opened:  # Parquet and traces are compressed already
        for name, content in {**members, **(files or {})}.items():
            opened.writestr(zipfile.ZipInfo(name, _DATE), content)
    return _MAGIC + hashlib.sha256(archive.getvalue()).hexdigest().encode() + b"\n" + archive.getvalue()


def unseal(content: bytes) -> StoredUnit:
    """What the file of a unit holds; `Damaged` if it is not what was written."""
    if len(content) < _HEADER or not content.startswith(_MAGIC):
        raise Damaged("it was cut, or floatlens did not write it")
    if hashlib.sha256(memoryview(content)[_HEADER:]).hexdigest().encode() != content[len(_MAGIC) : _HEADER - 1]:
        raise Damaged("it was cut or changed since it was written")
    try:
        archive = zipfile.ZipFile(io.BytesIO(content[_HEADER:]))
        unit, run = (json.loads(archive.read(name)) for name in ("unit.json", "run.json"))
        return StoredUnit(unit_of(unit), run, archive)
    except (zipfile.BadZipFile, KeyError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise Damaged(f"it holds no unit ({type(error).__name__})") from None


def _json(content: Mapping[str, Any]) -> bytes:
    return (json.dumps(content, indent=1, sort_keys=True) + "\n").encode()
