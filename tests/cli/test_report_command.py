"""`floatlens report` and `floatlens view`: what they write, what they refuse, and that a damaged run is never shown."""

from collections.abc import Callable
from pathlib import Path

import pytest

import floatlens as fl
from report.made_up_curves import made_up_curves

Ran = tuple[int, str, str]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("runs") / "mdm.zarr"
    fl.load("twin-mdm").trace(["Where does Ben Reed live?", "Where does Ann Reed live?"], gen_length=3, steps=3, progress=False, path=place)
    return place


def test_it_writes_one_file_and_replaces_its_own(floatlens: Callable[..., Ran], run: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    code, said, _ = floatlens("report", str(run), "-o", str(page), "--samples", "1")
    assert code == 0
    assert "Open it in a browser" in said
    first = page.read_bytes()
    assert b'data-key="runs/0/1/mass/zarr.json"' in first
    assert b'data-key="runs/0/0/' not in first
    assert floatlens("report", str(run), "-o", str(page), "--samples", "1")[0] == 0
    assert page.read_bytes() == first


def test_it_writes_a_folder_that_verify_accepts(floatlens: Callable[..., Ran], run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "page"
    code, said, _ = floatlens("report", str(run), "-o", str(folder), "--folder")
    assert code == 0
    assert "floatlens view" in said
    assert (folder / "index.html").is_file()
    assert (folder / "data" / "zarr.json").is_file()
    assert floatlens("verify", str(folder))[0] == 0
    (folder / "data" / "zarr.json").write_text("{}")
    code, _, wrong = floatlens("view", str(folder), "--no-browser")
    assert code == 2
    assert "is damaged" in wrong


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{run}", "-o", "{folder}"], "is a folder. Name a file"),
        (["{run}", "-o", "{folder}/nowhere/report.html"], "there is no folder"),
        (["{folder}/nothing", "-o", "{folder}/r.html"], "There is nothing to show at"),
        (["{run}", "-o", "{folder}/r.html", "--samples", "7"], "there is no sample 7"),
        (["{run}", "-o", "{folder}/r.html", "--samples", "one"], "is not a list of numbers"),
        (["{run}", "-o", "{folder}/r.html", "--rule", "none"], "none"),
    ],
)
def test_a_mistake_is_one_sentence_and_nothing_is_written(
    floatlens: Callable[..., Ran], run: Path, tmp_path: Path, arguments: list[str], message: str
) -> None:
    code, _, wrong = floatlens("report", *(part.format(run=run, folder=tmp_path) for part in arguments))
    assert code == 2
    assert message in " ".join(wrong.split())
    assert not [file for file in tmp_path.iterdir() if file.name != "cache"]


def test_damaged_data_never_reach_a_page(floatlens: Callable[..., Ran], run: Path, tmp_path: Path) -> None:
    import shutil

    damaged = tmp_path / "damaged.zarr"
    shutil.copytree(run, damaged)
    shard = damaged / "samples" / "00001" / "mass" / "c" / "0" / "0" / "0" / "0" / "0"
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(bytes(content))
    code, _, wrong = floatlens("report", str(damaged), "-o", str(tmp_path / "report.html"))
    assert code == 2
    assert "damaged" in wrong
    assert not (tmp_path / "report.html").exists()


def test_a_folder_of_curves_becomes_the_view_training(floatlens: Callable[..., Ran], tmp_path: Path) -> None:
    (tmp_path / "curves").mkdir()
    made_up_curves().write_parquet(tmp_path / "curves" / "curves.parquet")
    code, said, _ = floatlens("report", str(tmp_path / "curves"), "-o", str(tmp_path / "report.html"))
    assert code == 0
    assert "Open it in a browser" in said
    assert b'data-key="training/0/curve_low/zarr.json"' in (tmp_path / "report.html").read_bytes()
