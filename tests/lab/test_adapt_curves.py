"""Curves along an adaptation: every checkpoint is measured once, on the same texts, and equals a dense computation."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from adapt_data import small_recipe, stories_model, write_data

import floatlens as fl
from floatlens.errors import Refusal
from floatlens.folders import write_manifest
from floatlens.lab.adaptation.curves import checkpoints_of, digest_of_texts, measure_checkpoints, over_layers, texts_of
from floatlens.lab.adaptation.objective import visible_tokens
from floatlens.lab.adaptation.training import begin, run
from floatlens.report.figures.curves import along_updates
from floatlens.report.page.gather import Choices, find_sources, write_page
from floatlens.report.page.group import InMemory


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("curves")


@pytest.fixture(scope="module")
def runs(folder: Path) -> list[Path]:
    data = write_data(folder / "data")
    for name, objective, mask in (("arm", "ar", "causal"), ("mdm", "diffusion", "bidirectional")):
        run(begin(stories_model(), small_recipe(updates=4), objective, mask, data), folder / name)  # type: ignore[arg-type]
    return [folder / "arm", folder / "mdm"]


@pytest.fixture(scope="module")
def table(folder: Path, runs: list[Path]) -> pl.DataFrame:
    return measure_checkpoints(runs, folder / "data", folder / "measured")


def dense_share_of_first_token(path: Path, tokens: torch.Tensor, rows: torch.Tensor) -> list[float]:
    """Percent of the attention of some rows on key 0, by layer, from the eager attention of transformers."""
    module: Any = fl.load(path).module
    module.set_attn_implementation("eager")
    with torch.no_grad():
        attentions = module(input_ids=tokens[None], output_attentions=True, use_cache=False).attentions
    return [100 * float(layer[0][:, rows, 0].mean()) for layer in attentions]


@pytest.mark.parametrize(("name", "objective"), [("arm", "ar"), ("mdm", "diffusion")])
def test_the_share_of_the_first_token_equals_eager_attention(
    folder: Path, runs: list[Path], table: pl.DataFrame, name: str, objective: Any
) -> None:
    texts, tokenizer = texts_of(runs[0], folder / "data")
    mask = tokenizer.get_vocab()["<0x01>"]
    tokens = visible_tokens(texts[-1], objective, mask)
    expected = dense_share_of_first_token(folder / name / "update-000004.safetensors", tokens, tokens != mask)
    measured = table.filter(run=name, update=4, text=len(texts) - 1, group="unmasked", measure="on the first token").sort("layer")
    assert measured["value"].to_list() == pytest.approx(expected, rel=1e-4)


@pytest.fixture(scope="module")
def moved(folder: Path, runs: list[Path]) -> pl.DataFrame:
    return measure_checkpoints(runs, folder / "data", folder / "moved", updates=[0, 4], written=2)


@pytest.mark.parametrize(("name", "options"), [("arm", {}), ("mdm", {"sampler": "llada", "block_length": 1})])
def test_changes_of_the_strongest_key_are_counted_step_by_step_while_a_checkpoint_writes(
    folder: Path, runs: list[Path], moved: pl.DataFrame, name: str, options: dict[str, Any]
) -> None:
    documents = [text.tokens for text in texts_of(runs[0], folder / "data")[0] if text.kind == "text" and len(text.tokens) >= 48]
    lm = fl.load(folder / name / "update-000004.safetensors", dtype="float32")
    for number, tokens in enumerate(documents[:2]):
        data = lm.trace([list(tokens[:32])], gen_length=16, progress=False, **options).dataset.isel(sample=0)
        on_prompt = data["mass"].sel(group="predicting").isel(key=slice(32)).transpose("layer", "step", "head", "key").values
        strongest = (on_prompt / on_prompt.sum(-1, keepdims=True)).mean(2).argmax(-1)  # what each head gives to the prompt counts alike
        expected = 100 * (strongest[:, 1:] != strongest[:, :-1]).mean(1)
        assert expected.max() > 0
        found = moved.filter(run=name, update=4, kind="written", text=number, measure="changes of the path").sort("layer")
        assert found["value"].to_list() == pytest.approx(expected.tolist())


def test_what_moves_is_measured_beside_the_shares_which_are_not_measured_again(
    folder: Path, runs: list[Path], table: pl.DataFrame, moved: pl.DataFrame, tmp_path: Path
) -> None:
    assert moved.filter(pl.col("kind") != "written").equals(table.filter(pl.col("update").is_in([0, 4])))
    shutil.copytree(folder / "moved", tmp_path / "without")
    assert (
        measure_checkpoints(runs, folder / "nowhere", tmp_path / "without", updates=[0, 4]).height
        == moved.filter(pl.col("kind") != "written").height
    ), "what was kept is enough"
    written = moved.filter(kind="written")
    assert set(written["measure"]) == {"changes of the path", "movement of the path", "float index (no memory)"}
    assert written.select("run", "update", "text").n_unique() == 2 * 2 * 2
    page = write_page(InMemory(), find_sources([folder / "moved"]), Choices(), progress=False).training[0]
    assert [(curve.name, curve.count) for curve in page.curves if curve.group == "predicting"] == [("arm", 2), ("mdm", 2)]


def test_every_checkpoint_is_measured_from_the_base_on_and_update_0_has_the_mask_of_the_run(runs: list[Path], table: pl.DataFrame) -> None:
    assert [point.update for point in checkpoints_of(runs[0])] == [0, 1, 2, 4]
    assert sorted(table["update"].unique()) == [0, 1, 2, 4]
    first = over_layers(table.filter(update=0, measure="on the first token"), range(5)).sort("run")
    assert first["run"].to_list() == ["arm", "mdm"]
    assert first["value"][0] > 1.5 * first["value"][1]  # under the causal mask it is seen by all, and alone by itself
    assert set(table.filter(run="arm")["group"]) == {"unmasked"}
    assert set(table.filter(run="mdm")["group"]) == {"unmasked", "masked"}


def test_what_is_measured_is_not_measured_again(folder: Path, runs: list[Path], table: pl.DataFrame) -> None:
    files = {file: file.stat().st_mtime_ns for file in (folder / "measured").glob("*-0000*.parquet")}
    assert len(files) == 8
    again = measure_checkpoints(runs, folder / "nowhere", folder / "measured")  # the data are not needed any more
    assert again.equals(table)
    assert {file: file.stat().st_mtime_ns for file in files} == files


@pytest.mark.parametrize("how", ["cut", "empty", "exchanged"])
def test_a_damaged_measurement_is_named_and_taken_again(
    how: str, folder: Path, runs: list[Path], table: pl.DataFrame, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = sorted((folder / "measured").glob("arm-0000*.parquet"))
    (tmp_path / "out").mkdir()
    for file in kept:
        shutil.copy(file, tmp_path / "out")
    damaged = tmp_path / "out" / kept[0].name
    damaged.write_bytes({"cut": kept[0].read_bytes()[:-20], "empty": b"", "exchanged": kept[1].read_bytes()}[how])
    again = measure_checkpoints(runs[:1], folder / "data", tmp_path / "out")
    assert again.equals(table.filter(run="arm"))
    assert f"{damaged} is damaged: it is removed" in " ".join(capsys.readouterr().err.split())
    assert fl.verify(tmp_path / "out") == [], "what was joined is whole"


def test_runs_that_could_not_be_told_apart_or_compared_are_refused(folder: Path, runs: list[Path], tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="Two runs are called arm"):
        measure_checkpoints([runs[0], runs[0]], folder / "data", tmp_path / "out")
    for what, changed in (("data", {"data": {"stories.txt": "0" * 64}}), ("bases", {"base_sha256": "0" * 64})):
        shutil.copytree(runs[0], tmp_path / what)
        about = json.loads((runs[0] / "run.json").read_text())
        (tmp_path / what / "run.json").write_text(json.dumps({**about, **changed}))
        with pytest.raises(Refusal, match=f"The runs have different {what}"):
            measure_checkpoints([runs[0], tmp_path / what], folder / "data", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_what_was_measured_on_other_texts_is_not_taken(runs: list[Path], tmp_path: Path) -> None:
    """The first run named says which texts all of them read."""
    shutil.copytree(runs[0], tmp_path / "run")
    point = checkpoints_of(runs[0])[0]
    about = json.loads((runs[0] / "run.json").read_text())
    names = {point.name(digest_of_texts(runs[0]))}
    for changed in ({"longest": 100}, {"question_files": [{**about["recipe"]["question_files"][0], "hold_out_first": 3}]}):
        (tmp_path / "run" / "run.json").write_text(json.dumps({**about, "recipe": {**about["recipe"], **changed}}))
        names.add(point.name(digest_of_texts(tmp_path / "run")))
    (tmp_path / "run" / "run.json").write_text(json.dumps({**about, "data": {**about["data"], "stories.txt": "0" * 64}}))
    assert len({*names, point.name(digest_of_texts(tmp_path / "run"))}) == 4
    (tmp_path / "run" / "run.json").write_text(json.dumps({**about, "recipe": {**about["recipe"], "seed": 5, "updates": 99}}))
    assert point.name(digest_of_texts(tmp_path / "run")) in names, "seeds read the same texts"


@pytest.mark.parametrize(
    "changes", [{"objective": None}, {"objective": "x"}, {"mask": 3}, {"base_sha256": None}, {"data": 3}, "[" * 100_000]
)
def test_a_run_that_does_not_say_what_it_is_cannot_be_measured(runs: list[Path], tmp_path: Path, changes: Any) -> None:
    about = json.loads((runs[0] / "run.json").read_text())
    (tmp_path / "run.json").write_text(changes if isinstance(changes, str) else json.dumps({**about, **changes}))
    with pytest.raises(Refusal, match="does not say which run the folder holds"):
        checkpoints_of(tmp_path)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--updates", "9" * 5000), "is not a whole number"),
        (("--layers", "9" * 5000), "is not a whole number"),
        (("--layers", "2-"), "'' is not a whole number"),
        (("--layers", "3-1"), "Write the lower number first"),
    ],
)
def test_an_option_of_the_command_that_makes_no_sense_is_refused_before_anything_is_measured(
    floatlens: Callable[..., tuple[int, str, str]], folder: Path, runs: list[Path], tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    code, _, errors = floatlens("curves", runs[0], "--data", folder / "data", "-o", tmp_path / "out", *words)
    assert (code, said in errors, (tmp_path / "out").exists()) == (2, True, False), errors


@pytest.mark.parametrize("name", ["curves.svg", "curves.parquet", "manifest.json"])
def test_a_file_of_the_user_or_of_another_command_is_not_overwritten(
    floatlens: Callable[..., tuple[int, str, str]], folder: Path, runs: list[Path], tmp_path: Path, name: str
) -> None:
    if name == "manifest.json":
        write_manifest(tmp_path, "floatlens eval")
    else:
        (tmp_path / name).write_text("mine")
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    code, _, errors = floatlens("curves", runs[0], "--data", folder / "data", "-o", tmp_path)
    assert code == 2
    assert ("was written by `floatlens eval`" if name == "manifest.json" else f"holds {name}") in errors
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir() if file.name != "cache"} == before


def test_the_page_shows_what_was_measured(folder: Path, table: pl.DataFrame) -> None:
    sink = InMemory()
    page = write_page(sink, find_sources([folder / "measured"]), Choices(), progress=False)
    assert [(curve.name, curve.group, curve.over) for curve in page.training[0].curves] == [
        ("arm", "unmasked", "texts"),
        ("mdm", "unmasked", "texts"),
        ("mdm", "masked", "texts"),
    ]
    assert page.training[0].updates == [0, 1, 2, 4]
    assert page.training[0].measures == table["measure"].unique(maintain_order=True).to_list()
    assert "training/0/curve/zarr.json" in sink.files


def test_what_cannot_be_compared_is_refused(folder: Path, runs: list[Path], tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="holds no run"):
        checkpoints_of(tmp_path)
    with pytest.raises(Refusal, match="No checkpoint is left"):
        measure_checkpoints(runs, folder / "data", tmp_path / "out", updates=[3])
    other = write_data(tmp_path / "other")
    (other / "stories.txt").write_text((other / "stories.txt").read_text() + "One more story about a cat and a very big dog, at last. " * 4)
    with pytest.raises(Refusal, match="are not those that"):
        measure_checkpoints(runs, other, tmp_path / "out")


def test_the_figure_has_a_line_for_each_kind_and_its_null(table: pl.DataFrame) -> None:
    shares = over_layers(table, range(5))
    figure = along_updates(shares, ["on the first token", "on the strongest key"], "unmasked rows")
    lines = {line.get_label(): line for line in figure.axes[0].get_lines() if not str(line.get_label()).startswith("_")}
    assert set(lines) == {"next token, causal", "diffusion, bidirectional"}
    expected = shares.filter(measure="on the first token", run="mdm").sort("update")["value"].to_list()
    assert np.asarray(lines["diffusion, bidirectional"].get_ydata()).tolist() == pytest.approx(expected)
    with pytest.raises(Refusal, match="has no measure 'nothing'"):
        along_updates(shares, ["nothing"])
