"""`floatlens figures` as a newcomer uses it: it draws what it can, and says what it left out and why."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import floatlens as fl
from floatlens.cli.figures import short_names
from floatlens.folders import damage
from writers import autoregressive_model, diffusion_model

Ran = tuple[int, str, str]
OF_ONE = (
    "absorption_by_layer",
    "float_index_by_layer",
    "path_by_layer",
    "path_on_prompt",
    "qk_geometry",
    "region_flow",
    "temporal_drift",
    "threshold_sweep",
)


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny trace of each kind, and one that holds next to nothing."""
    folder = tmp_path_factory.mktemp("traces")
    prompts = [list(range(5, 25)), list(range(40, 60))]
    unmasking = diffusion_model("llada")
    unmasking.trace(prompts, gen_length=4, steps=2, path=folder / "mdm.zarr", progress=False)
    autoregressive_model().trace(prompts, gen_length=16, path=folder / "arm.zarr", progress=False)
    nothing = {"mass": "off", "halves": "off", "geometry": "off", "norms": "off", "top_keys": "off"}
    unmasking.trace(prompts, gen_length=4, steps=2, detail=nothing, path=folder / "bare.zarr", progress=False)
    return folder


def test_what_can_be_drawn_is_written_and_the_rest_is_listed_with_the_reason(
    floatlens: Callable[..., Ran], traces: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "figures"
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    drawn = []
    for eps in ("0.1", "0.2"):
        code, said, errors = floatlens("figures", traces / "mdm.zarr", "-o", folder, "--format", "svg", "--eps", eps)
        assert code == 0, errors
        written = sorted(folder.glob("*.svg"))
        assert [file.name for file in written] == [f"{name}.svg" for name in OF_ONE]
        assert all(str(file) in said for file in written)
        drawn.append([file.read_bytes() for file in written])
    assert drawn[0] != drawn[1], "figures that were drawn before are replaced"
    assert sorted(file.name for file in folder.iterdir() if file.suffix != ".svg") == ["manifest.json", "notes.txt"]
    assert damage(folder) == ["notes.txt is not in the manifest: floatlens did not write it."]
    assert [file.name for file in tmp_path.iterdir() if file.name.startswith(".")] == []
    left_out = said[said.index("Left out:") :]
    assert "roles_by_depth: The tokens of this trace have no texts" in left_out
    assert "retrieval_heads: There is no region 'gold'" in left_out


def test_several_traces_are_compared_and_each_is_drawn(floatlens: Callable[..., Ran], traces: Path, tmp_path: Path) -> None:
    only = "temporal_drift,roles_by_depth,absorption_by_layer,absorption_on_shared_rectangle,path_by_layer"
    options = ["--format", "svg", "--rule", "top", "--eps", "2", "--group", "predicting", "--sample", "1", "--only", only]
    code, said, errors = floatlens("figures", traces / "mdm.zarr", traces / "arm.zarr", "-o", tmp_path / "figures", *options)
    assert code == 0, errors
    names = {file.name for file in (tmp_path / "figures").iterdir()}
    assert names - {"manifest.json"} == {
        "absorption_by_layer.svg",
        "absorption_on_shared_rectangle.svg",
        "path_by_layer.svg",
        "temporal_drift-mdm.svg",
        "temporal_drift-arm.svg",
    }
    assert "roles_by_depth-arm: The tokens of this trace have no texts" in said


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["mdm.zarr", "--format", "svg,jpg"], "Figures are not written as 'jpg'; the formats are pdf, svg, png."),
        (["mdm.zarr", "--rule", "loudest"], "There is no anchor rule 'loudest'"),
        (["mdm.zarr", "--rule", "top", "--eps", "0.5"], "it is the number of keys, 1 or more"),
        (["arm.zarr", "--group", "masked"], "arm has no group 'masked'; it has predicting."),
        (["mdm.zarr", "--sample", "2"], "mdm has 2 samples, counted from 0; there is no sample 2."),
        (
            ["mdm.zarr", "--only", "temporal_drift,portrait"],
            "There is no figure 'portrait'; the figures are absorption_by_layer, path_by_layer, path_on_prompt, temporal_drift,",
        ),
        (["mdm.zarr", "--only", " , "], "--only names no figure; the figures are absorption_by_layer, path_by_layer,"),
        (["nowhere.zarr"], "There is no trace at"),
        (["mdm.zarr", "mdm.zarr"], "would have figures of the same name"),
        (["bare.zarr"], "No figure could be drawn. absorption_by_layer: Anchors needs mass"),
    ],
    ids=str,
)
def test_a_mistake_is_one_sentence_and_nothing_is_written(
    floatlens: Callable[..., Ran], traces: Path, tmp_path: Path, words: list[str], sentence: str
) -> None:
    given = [traces / word if word.endswith(".zarr") else word for word in words]
    code, _, errors = floatlens("figures", *given, "-o", tmp_path / "figures")
    assert (code, sentence in errors) == (2, True), errors
    assert errors.startswith("floatlens: ")
    assert not (tmp_path / "figures").exists()


def test_a_file_is_no_folder_for_figures(floatlens: Callable[..., Ran], traces: Path, tmp_path: Path) -> None:
    (tmp_path / "figures").write_text("mine")
    code, _, errors = floatlens("figures", traces / "mdm.zarr", "-o", tmp_path / "figures")
    assert (code, errors) == (2, f"floatlens: '{tmp_path / 'figures'}' is a file. Name a folder.\n")
    assert (tmp_path / "figures").read_text() == "mine"


@pytest.mark.parametrize("edited", [False, True])
def test_a_file_that_is_not_ours_is_never_drawn_over(floatlens: Callable[..., Ran], traces: Path, tmp_path: Path, edited: bool) -> None:
    words = ["figures", traces / "mdm.zarr", "-o", tmp_path / "figures", "--format", "svg", "--only", "temporal_drift"]
    (tmp_path / "figures").mkdir()
    if edited:
        assert floatlens(*words)[0] == 0
    (tmp_path / "figures" / "temporal_drift.svg").write_text("mine")
    code, _, errors = floatlens(*words)
    assert code == 2
    assert "holds temporal_drift.svg, which floatlens did not write or somebody has edited since, and would be overwritten." in errors
    assert (tmp_path / "figures" / "temporal_drift.svg").read_text() == "mine"


def test_names_of_traces_are_short_and_differ() -> None:
    assert short_names(["runs/mdm.zarr", "s3://bucket/arm.zarr/", "plain"]) == ["mdm", "arm", "plain"]
    assert short_names(["1/run.zarr", "2/run.zarr"]) == ["1-run", "2-run"]
    with pytest.raises(fl.Refusal, match="same name"):
        short_names(["x/1/run.zarr", "y/1/run.zarr"])


def test_help_shows_examples_and_does_not_wait_for_matplotlib(floatlens: Callable[..., Ran]) -> None:
    code, said, _ = floatlens("figures", "--help")
    assert code == 0
    assert "floatlens figures run.zarr -o figures" in said
    imports = "import sys, floatlens.cli; sys.exit('matplotlib' in sys.modules or 'xarray' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", imports], check=False).returncode == 0
