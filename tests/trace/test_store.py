"""Traces on disk: what is written is what was recorded, in few files, read as needed, and never half."""

import json
import shutil
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
import torch
import xarray as xr
import zarr

import floatlens as fl
from floatlens.folders import write_manifest
from writers import PROMPTS, autoregressive_model, diffusion_model


@pytest.mark.parametrize("sampler", ["llada", "dream", "sdar", "autoregressive"])
def test_a_trace_written_as_it_goes_equals_the_one_in_memory(sampler: str, tmp_path: Path) -> None:
    lm = autoregressive_model() if sampler == "autoregressive" else diffusion_model(sampler)
    options: dict[str, Any] = {"gen_length": 6, "batch_size": 2, "patterns": [(0, 1)], "detail": "full", "progress": False}
    in_memory = lm.trace(PROMPTS, **options)
    streamed = lm.trace(PROMPTS, path=tmp_path / "streamed.zarr", **options)
    in_memory.save(tmp_path / "saved.zarr")
    expected = in_memory.dataset.load()
    for name in ("streamed.zarr", "saved.zarr"):
        found = fl.open_trace(tmp_path / name)
        xr.testing.assert_identical(found.dataset.load(), expected)
        assert found.attributes == in_memory.attributes
        assert [found.completion(number) for number in range(3)] == [in_memory.completion(number) for number in range(3)]
    assert streamed.attributes == in_memory.attributes
    assert sorted(file.name for file in tmp_path.iterdir()) == ["saved.zarr", "streamed.zarr"]


def test_an_array_is_two_files_and_one_more_for_every_32_steps(tmp_path: Path) -> None:
    lm = diffusion_model("llada")
    lm.trace([PROMPTS[0]], gen_length=40, path=tmp_path / "long.zarr", progress=False)
    sample = tmp_path / "long.zarr" / "samples" / "00000"
    files = {name: [file for file in (sample / name).rglob("*") if file.is_file()] for name in ("mass", "canvas", "final", "top_key")}
    assert {name: len(found) for name, found in files.items()} == {"mass": 3, "canvas": 3, "final": 2, "top_key": 2}
    mass: Any = zarr.open_group(sample, mode="r")["mass"]
    assert mass.shape[0] == 40
    assert mass.chunks[:2] == (32, 1), "a chunk is one layer of a shard's steps"
    assert mass.shards[:2] == (32, 3)


def test_a_long_trace_saved_at_once_is_whole(tmp_path: Path) -> None:
    trace = diffusion_model("llada").trace([PROMPTS[0]], gen_length=40, progress=False)
    trace.save(tmp_path / "long.zarr")
    xr.testing.assert_identical(fl.open_trace(tmp_path / "long.zarr").dataset.load(), trace.dataset.load())


def test_large_steps_without_layers_are_chunks_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("floatlens.trace.store.LARGE_STEP", 100)
    trace = diffusion_model("llada").trace([PROMPTS[0]], gen_length=6, patterns=[(0, 1)], path=tmp_path / "run.zarr", progress=False)
    stored: Any = zarr.open_group(tmp_path / "run.zarr/samples/00000", mode="r")
    assert stored["pattern"].chunks[0] == 1
    assert stored["state"].chunks[0] == 6
    assert np.isfinite(trace.dataset["pattern"].values).all()


def test_a_whole_trace_that_cannot_get_its_name_is_kept(tmp_path: Path) -> None:
    def take_the_name(call: fl.AttentionCall, before: fl.Before) -> fl.AttentionCall:
        (tmp_path / "run.zarr").mkdir(exist_ok=True)
        (tmp_path / "run.zarr" / "taken").touch()
        return call

    with pytest.raises(fl.Refusal, match=r"The result is whole, but it is in .*run\.zarr-2, because"):
        diffusion_model("llada").trace([PROMPTS[0]], gen_length=4, edits=[take_the_name], path=tmp_path / "run.zarr", progress=False)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["run.zarr", "run.zarr-2"]
    assert len(fl.open_trace(tmp_path / "run.zarr-2")) == 1
    assert [file.name for file in (tmp_path / "run.zarr").iterdir()] == ["taken"]


def test_any_zarr_reader_finds_named_axes(tmp_path: Path) -> None:
    lm = diffusion_model("llada")
    trace = lm.trace(PROMPTS, gen_length=6, path=tmp_path / "run.zarr", progress=False)
    plain = xr.open_zarr(tmp_path / "run.zarr", group="samples/00001", consolidated=False)
    assert plain["mass"].dims == ("step", "layer", "head", "group", "key")
    np.testing.assert_array_equal(plain["mass"].values, trace.sample(1)["mass"].values)


def test_samples_of_different_lengths_are_padded_with_what_does_not_exist(tmp_path: Path) -> None:
    trace = diffusion_model("llada").trace(PROMPTS, gen_length=6, path=tmp_path / "run.zarr", progress=False)
    dataset, short = trace.dataset, len(PROMPTS[1]) + 6
    assert dataset["mass"].sizes["key"] == len(PROMPTS[2]) + 6
    assert np.isnan(dataset["mass"].isel(sample=1, key=slice(short, None)).values).all()
    assert (dataset["canvas"].isel(sample=1, position=slice(short, None)).values == -1).all()
    assert (dataset["state"].isel(sample=1, position=slice(short, None)).values == 0).all()
    assert not dataset["in_region"].isel(sample=1, position=slice(short, None)).values.any()


@pytest.mark.parametrize(
    "where",
    [
        {"sample": 1},
        {"sample": [2, 0], "layer": 1, "key": slice(2, 9)},
        {"sample": slice(None, None, 2), "head": [3, 1], "key": [0, 11, 12, 5]},
        {"step": -1, "group": [2]},
        {"key": slice(None, None, -1)},
        {"sample": xr.DataArray([0, 1], dims="pick"), "key": xr.DataArray([3, 4], dims="pick")},
    ],
    ids=str,
)
def test_what_is_read_lazily_is_what_is_there(where: dict[str, Any], tmp_path: Path) -> None:
    trace = diffusion_model("llada").trace(PROMPTS, gen_length=6, progress=False)
    trace.save(tmp_path / "run.zarr")
    expected = trace.dataset["mass"].load().isel(where)
    np.testing.assert_array_equal(fl.open_trace(tmp_path / "run.zarr").dataset["mass"].isel(where).values, expected.values)


def test_looking_at_one_layer_reads_no_other_variable(tmp_path: Path) -> None:
    diffusion_model("llada").trace(PROMPTS, gen_length=6, path=tmp_path / "run.zarr", progress=False)
    trace = fl.open_trace(tmp_path / "run.zarr")
    for shard in (tmp_path / "run.zarr").rglob("score/c"):
        shutil.rmtree(shard)
    assert float(trace.dataset["mass"].isel(layer=1).sum()) > 0


def test_a_trace_is_read_from_any_fsspec_url(tmp_path: Path) -> None:
    trace = diffusion_model("llada").trace(PROMPTS, gen_length=6, path=tmp_path / "run.zarr", progress=False)
    memory = fsspec.filesystem("memory")
    memory.put(str(tmp_path / "run.zarr"), "/bucket/run.zarr", recursive=True)
    found = fl.open_trace("memory://bucket/run.zarr")
    xr.testing.assert_identical(found.dataset.load(), trace.dataset.load())


def test_a_run_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    class Broken(Exception):
        pass

    def fail_at_step_3(call: fl.AttentionCall, before: fl.Before) -> fl.AttentionCall:
        if call.step == 3:
            raise Broken
        return call

    with pytest.raises(Broken):
        diffusion_model("llada").trace(PROMPTS, gen_length=6, edits=[fail_at_step_3], path=tmp_path / "run.zarr", progress=False)
    assert list(tmp_path.iterdir()) == []


def test_a_trace_is_never_overwritten(tmp_path: Path) -> None:
    lm = diffusion_model("llada")
    lm.trace(PROMPTS, gen_length=6, path=tmp_path / "run.zarr", progress=False)
    with pytest.raises(fl.Refusal, match="exists already"):
        lm.trace(PROMPTS, gen_length=6, path=tmp_path / "run.zarr", progress=False)
    with pytest.raises(fl.Refusal, match="There is no folder"):
        lm.trace(PROMPTS, gen_length=6, path=tmp_path / "nowhere" / "run.zarr", progress=False)
    with pytest.raises(fl.Refusal, match="local folder"):
        lm.trace(PROMPTS, gen_length=6, path="memory://bucket/new.zarr", progress=False)


def test_what_is_not_a_readable_trace_is_refused_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(fl.Refusal, match="not a folder"):
        fl.open_trace(tmp_path / "nothing.zarr")
    (tmp_path / "empty.zarr").mkdir()
    with pytest.raises(fl.Refusal, match="is not a trace"):
        fl.open_trace(tmp_path / "empty.zarr")
    zarr.open_group(tmp_path / "other.zarr", mode="w", zarr_format=3)
    with pytest.raises(fl.Refusal, match="not a trace of floatlens"):
        fl.open_trace(tmp_path / "other.zarr")
    diffusion_model("llada").trace(PROMPTS, gen_length=6, path=tmp_path / "run.zarr", progress=False)
    root = tmp_path / "run.zarr" / "zarr.json"
    said = json.loads(root.read_text())
    said["attributes"]["floatlens"]["schema_version"] = 2
    root.write_text(json.dumps(said))
    write_manifest(tmp_path / "run.zarr", "floatlens trace")  # as a later floatlens would
    with pytest.raises(fl.Refusal, match=r"version 2 of the trace format.*reads up to 1.*Update floatlens"):
        fl.open_trace(tmp_path / "run.zarr")


def test_attributes_say_what_was_run(tmp_path: Path) -> None:
    lm = diffusion_model("dream")
    trace = lm.trace(PROMPTS, gen_length=6, steps=3, order="maskgit_plus", seed=11, path=tmp_path / "run.zarr", progress=False)
    said = trace.attributes
    assert said["sampler"] == {
        "name": "dream",
        "gen_length": 6,
        "steps": 3,
        "order": "maskgit_plus",
        "order_temperature": 0.0,
        "temperature": 0.0,
        "top_p": None,
        "top_k": None,
        "eps": 1e-3,
        "threshold": None,
    }
    assert (said["schema_version"], said["seed"], said["dtype"], said["threads"]) == (1, 11, "float32", torch.get_num_threads())
    assert (said["family"], said["row_offset"], said["mask_token_id"], said["layers"], said["heads"]) == ("dream", 1, 95, 3, 4)
    assert set(said["versions"]) == {"floatlens", "torch", "transformers", "zarr", "numpy", "python"}
    assert said["modules"][2] == "model.layers.2.self_attn"


def test_what_does_not_fit_is_refused_before_anything_runs(tmp_path: Path) -> None:
    lm = diffusion_model("llada")
    lm.config.max_position_embeddings = 10**9
    huge: Any = {"gen_length": 10**6, "detail": "full", "progress": False}
    with pytest.raises(fl.Refusal, match=r"needs .*B of memory, and .*B are free"):
        lm.trace(PROMPTS[0], **huge)
    with pytest.raises(fl.Refusal, match=r"(needs .*B of memory|may take .*B on disk)"):
        lm.trace(PROMPTS[0], path=tmp_path / "run.zarr", **huge)
    assert list(tmp_path.iterdir()) == []
