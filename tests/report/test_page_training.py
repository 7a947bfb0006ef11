"""Curves of a training on the page: means and intervals over texts or seeds, and which tables are refused."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
import zarr

from floatlens.errors import Refusal
from floatlens.folders import write_manifest
from floatlens.lab.adaptation import curves as measured_curves
from floatlens.report.page.gather import Choices, Sources, find_sources, write_page
from floatlens.report.page.group import InFolder
from floatlens.report.page.schema import TrainingDocument
from floatlens.report.page.training import COLUMNS, CURVES
from floatlens.statistics.resampling import student_quantile
from report.made_up_curves import LAYERS, MEASURES, TEXTS, UPDATES, made_up_curves, value_of


def written(folder: Path, table: pl.DataFrame) -> tuple[TrainingDocument, dict[str, np.ndarray]]:
    """The document, and the arrays as zarr reads them: update, curve, measure, depth."""
    page = write_page(InFolder(folder), Sources(training={"curves": table}), Choices(), progress=False)
    group = zarr.open_group(folder / page.training[0].path, mode="r")
    return page.training[0], {name: np.asarray(group[name]) for name in page.training[0].arrays}


def test_a_run_alone_is_the_mean_over_texts_and_seeds_are_averaged(tmp_path: Path) -> None:
    document, arrays = written(tmp_path, made_up_curves())
    assert [(curve.name, curve.group, curve.over, curve.count) for curve in document.curves] == [
        ("arm", "unmasked", "texts", TEXTS),
        ("diffusion, bidirectional", "unmasked", "seeds", 2),
        ("diffusion, bidirectional", "masked", "seeds", 2),
    ]
    assert document.updates == list(UPDATES)
    assert document.layers == list(LAYERS)
    assert arrays["curve"].shape == (len(UPDATES), 3, len(MEASURES), 1 + len(LAYERS))
    seeds = {0: ("arm", [0]), 1: ("mdm", [0, 1]), 2: ("mdm", [0, 1])}
    for curve, (run, own) in seeds.items():
        for at, update in enumerate(UPDATES):
            for place, measure in enumerate(MEASURES):
                by_layer = [
                    np.mean([value_of(run, seed, update, text, layer, measure) for seed in own for text in range(TEXTS)]) + (curve == 2)
                    for layer in LAYERS
                ]
                assert arrays["curve"][at, curve, place].tolist() == pytest.approx([np.mean(by_layer), *by_layer])
    assert arrays["curve_null"][0, 0, 0].tolist() == pytest.approx([2.5, 1.5, 2.5, 3.5])


def test_intervals_are_over_texts_for_one_run_and_over_seeds_for_several(tmp_path: Path) -> None:
    document, arrays = written(tmp_path, made_up_curves())
    width = (arrays["curve_high"] - arrays["curve_low"])[:, :, :, 1]
    assert document.curves[0].over == "texts"
    texts = np.array([2.0 * text for text in range(TEXTS)])
    assert (width[:, 0] > texts.std(ddof=1) / 2).all()  # texts differ by two points each
    seeds = np.array([0.0, 3.0])
    assert width[:, 1] == pytest.approx(2 * student_quantile(0.95, 1) * seeds.std(ddof=1) / np.sqrt(2), rel=0.2)
    same = made_up_curves().with_columns(value=pl.col("value") - 3 * pl.col("seed"))  # seeds agree, texts do not
    _, without = written(tmp_path / "same", same)
    assert (without["curve_high"] - without["curve_low"])[:, 1:] == pytest.approx(0)


def test_a_curve_of_seeds_ends_where_one_of_them_ends(tmp_path: Path) -> None:
    document, arrays = written(tmp_path, made_up_curves(updates={"mdm-1": (0, 1)}))
    assert document.updates == [0, 1, 4]
    assert [curve.updates for curve in document.curves] == [[0, 1, 4], [0, 1], [0, 1]]
    assert np.isfinite(arrays["curve"][:2]).all()
    assert np.isfinite(arrays["curve"][2, 0]).all()
    assert np.isnan(arrays["curve"][2, 1:]).all()


def test_runs_that_differ_in_more_than_their_seed_stay_apart(tmp_path: Path) -> None:
    same = ("diffusion", "bidirectional", 0)
    document, _ = written(tmp_path, made_up_curves({"short": same, "long": same}))
    assert [curve.name for curve in document.curves] == ["short", "short", "long", "long"]


def test_the_page_takes_the_folders_of_floatlens_curves(tmp_path: Path) -> None:
    assert CURVES == measured_curves.CURVES
    made_up_curves().write_parquet(tmp_path / CURVES)
    assert list(find_sources([tmp_path]).training) == [tmp_path.name]


@pytest.mark.parametrize("column", COLUMNS)
def test_a_table_without_a_column_is_refused(tmp_path: Path, column: str) -> None:
    made_up_curves().drop(column).write_parquet(tmp_path / CURVES)
    with pytest.raises(Refusal, match=f"has no column '{column}'. Pass a folder that `floatlens curves` wrote"):
        find_sources([tmp_path])


@pytest.mark.parametrize("column", COLUMNS)
def test_a_column_of_another_kind_or_with_a_hole_is_refused(tmp_path: Path, column: str) -> None:
    whole = made_up_curves()
    another = pl.lit("x") if whole[column].dtype.is_numeric() else pl.lit(7)
    for changed in (another, pl.lit(None, dtype=whole[column].dtype)):
        whole.with_columns(changed.alias(column)).write_parquet(tmp_path / CURVES)
        with pytest.raises(Refusal, match=f"something else than it should in the column '{column}'"):
            find_sources([tmp_path])


def test_a_measurement_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    whole = made_up_curves()
    pl.concat([whole, whole.head(1).with_columns(value=pl.lit(99, dtype=whole["value"].dtype))]).write_parquet(tmp_path / CURVES)
    with pytest.raises(Refusal, match="holds a measurement twice"):
        find_sources([tmp_path])


def test_a_table_that_has_changed_since_it_was_measured_is_refused(tmp_path: Path) -> None:
    made_up_curves().write_parquet(tmp_path / CURVES)
    write_manifest(tmp_path, measured_curves.WRITTEN_BY)
    assert list(find_sources([tmp_path]).training) == [tmp_path.name]
    made_up_curves().with_columns(pl.col("value") + 1).write_parquet(tmp_path / CURVES)
    with pytest.raises(Refusal, match="is damaged: curves"):
        find_sources([tmp_path])


def test_folders_of_one_name_are_told_apart_whatever_signs_are_in_it(tmp_path: Path) -> None:
    places = [tmp_path / parent / "out[1]*" for parent in ("a", "b")]
    for number, place in enumerate(places):
        place.mkdir(parents=True)
        made_up_curves().with_columns(pl.col("value") + number).write_parquet(place / CURVES)
    found = find_sources(places).training
    assert list(found) == ["out[1]*-1", "out[1]*-2"]
    assert [table["value"][0] - found["out[1]*-1"]["value"][0] for table in found.values()] == [0, 1]


def test_an_empty_table_and_a_damaged_one_are_refused(tmp_path: Path) -> None:
    made_up_curves().head(0).write_parquet(tmp_path / CURVES)
    with pytest.raises(Refusal, match="holds no rows"):
        find_sources([tmp_path])
    (tmp_path / CURVES).write_bytes(b"PAR1 and nothing else")
    with pytest.raises(Refusal, match="cannot be read"):
        find_sources([tmp_path])
