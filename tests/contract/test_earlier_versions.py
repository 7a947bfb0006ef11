"""Traces and results that an earlier floatlens wrote still open, and give the numbers that it gave."""

import hashlib
import json
import math
import tarfile
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import floatlens as fl
from floatlens.folders import damage, read_manifest
from floatlens.measures import compare_traces, measure_trace
from floatlens.study.outcomes import as_table, summarise

DATA = Path(__file__).parents[1] / "data" / "before-0.2"
NUMBERS = json.loads((DATA / "numbers.json").read_text())
TWINS = ["twin-mdm", "twin-arm"]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folders as they were written."""
    folder = tmp_path_factory.mktemp("before")
    for archive in DATA.glob("*.tar.xz"):
        with tarfile.open(archive) as packed:
            packed.extractall(folder, filter="data")
    return folder


def rows(values: Sequence[Any]) -> list[list[Any]]:
    """Dataclasses as lists, without the reasons: sentences may change. None stands for NaN, which JSON does not know."""
    named = [[(field.name, getattr(value, field.name)) for field in fields(value)] for value in values]
    return [[None if isinstance(entry, float) and math.isnan(entry) else entry for name, entry in row if name != "reason"] for row in named]


def labels_of(row: list[Any]) -> list[Any]:
    """What a row is about: everything in it that is not a number."""
    return [entry for entry in row if not isinstance(entry, float)]


def assert_same(now: list[list[Any]], before: list[list[Any]]) -> None:
    """Every row of before is still there, with numbers that differ by no more than another processor's rounding. New rows are welcome."""
    labels = [labels_of(row) for row in before]
    kept = [row for row in now if labels_of(row) in labels]
    assert [labels_of(row) for row in kept] == labels
    for row, expected in zip(kept, before, strict=True):
        numbers = [[entry for entry in values if isinstance(entry, float)] for values in (row, expected)]
        assert numbers[0] == pytest.approx(numbers[1], rel=1e-6, abs=1e-9), row


@pytest.mark.parametrize("twin", TWINS)
def test_a_trace_of_an_earlier_version_opens_with_every_array_as_it_was(written: Path, twin: str) -> None:
    dataset = fl.open_trace(written / f"{twin}.zarr").dataset
    arrays = {str(name): values for name, values in dataset.data_vars.items() if values.dtype.kind in "biuf"}
    assert arrays.keys() >= NUMBERS["traces"][twin]["variables"].keys()
    for name, before in NUMBERS["traces"][twin]["variables"].items():
        values = np.ascontiguousarray(arrays[name].values)
        assert (str(values.dtype), list(values.shape)) == (before["dtype"], before["shape"]), name
        assert hashlib.sha256(values.tobytes()).hexdigest() == before["sha256"], name


@pytest.mark.parametrize("twin", TWINS)
def test_a_trace_of_an_earlier_version_is_measured_as_it_was(written: Path, twin: str) -> None:
    summary = measure_trace(fl.open_trace(written / f"{twin}.zarr"), gold="gold", progress=False)
    assert {*summary.skipped} >= {*NUMBERS["skipped"][twin]}
    assert_same(rows(summary.findings()), NUMBERS["findings"][twin])


def test_traces_of_an_earlier_version_compare_as_they_did(written: Path) -> None:
    mdm, arm = (fl.open_trace(written / f"{twin}.zarr") for twin in TWINS)
    contrasts, _ = compare_traces(mdm, arm, progress=False)
    assert_same(rows(contrasts), NUMBERS["contrasts"])


def test_an_evaluation_of_an_earlier_version_is_summarised_as_it_was(written: Path) -> None:
    folder = written / "evaluation"
    assert read_manifest(folder) is not None
    assert not list(damage(folder))
    summary = summarise(pl.read_parquet(folder / "results.parquet"))
    assert_same(rows(summary), NUMBERS["outcomes"])
    stored, again = pl.read_csv(folder / "summary.csv", infer_schema_length=None), as_table(summary)
    assert stored.columns == again.columns
    assert stored["estimate"].to_list() == pytest.approx(again["estimate"].to_list(), rel=1e-6, nan_ok=True)
