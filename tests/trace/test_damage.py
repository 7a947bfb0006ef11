"""A damaged trace is refused in a sentence that names what is broken; old traces still open; `floatlens verify` names everything."""

import errno
import hashlib
import itertools
import json
import os
import pickle
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
import xarray as xr
import zarr
from xarray.core import indexing
from zarr.storage import LocalStore

import floatlens as fl
from floatlens.folders import write_manifest
from floatlens.trace import trace as trace_module
from floatlens.trace.store import TraceFolder
from floatlens.trace.trace import RaggedArray
from writers import PROMPTS, diffusion_model

Ran = tuple[int, str, str]
OLD = Path(__file__).parents[1] / "data" / "before-checksums.tar.xz"
OLD_NUMBERS = {  # dtype, shape, sum, first half of the SHA-256: computed by the floatlens that wrote the trace
    "canvas": ("int32", (1, 33, 37), 13676.0, "0d8bf79e335bbd6a"),
    "char_start": ("int32", (1, 37), 3258.0, "aac80978e6de3617"),
    "char_stop": ("int32", (1, 37), 3442.0, "a46243aa91a3597a"),
    "committed": ("int32", (1, 37), 524.0, "16c2648dc3baaa11"),
    "confidence": ("float32", (1, 33, 37), 246.83303489536047, "e0c61bb392f6b20e"),
    "entropy": ("float32", (1, 33, 6, 1), 76.28636597841978, "1b5a0ecf8de14e0e"),
    "final": ("int32", (1, 37), 1000.0, "bbe720d15513c6ae"),
    "in_region": ("bool", (1, 3, 37), 37.0, "fe63425895ca45bd"),
    "mass": ("float32", (1, 33, 6, 1, 37), 198.00006481919382, "6c56ca517eea3d81"),
    "null": ("float32", (1, 33, 1, 37), 33.00000079907477, "b6ed654a4b82dcb3"),
    "rows": ("float32", (1, 33, 1), 33.0, "2344abc1fc802560"),
    "rows_without_keys": ("float32", (1, 33, 1), 0.0, "115bad14f1c9f2c0"),
    "special": ("bool", (1, 37), 17.0, "3a2e8b66e4b0d72f"),
    "state": ("int8", (1, 33, 37), 3399.0, "288aee22d1d07b01"),
    "template": ("bool", (1, 37), 1.0, "61c3a516478dd4cd"),
    "visible": ("float32", (1, 33, 1, 37), 1221.0, "4f25b3266d8d86ba"),
}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace of two samples whose steps fill a shard and begin another."""
    path = tmp_path_factory.mktemp("written") / "run.zarr"
    diffusion_model("llada").trace(PROMPTS[:2], gen_length=34, batch_size=2, patterns=[(0, 1)], path=path, progress=False)
    return path


@pytest.fixture
def run(written: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    return Path(shutil.copytree(written, tmp_path / "run.zarr"))


def edit_metadata(run: Path, edit: Callable[[dict[str, Any], dict[str, Any]], object]) -> None:
    """Change the root (its attributes, and the metadata by path that Zarr reads from it), and vouch for it in the manifest."""
    root = json.loads((run / "zarr.json").read_text())
    edit(root["attributes"]["floatlens"], root["consolidated_metadata"]["metadata"])
    (run / "zarr.json").write_text(json.dumps(root))
    write_manifest(run, "floatlens trace")


def shards(run: Path, array: str, sample: int = 0) -> list[Path]:
    return sorted(file for file in (run / f"samples/{sample:05d}/{array}/c").rglob("*") if file.is_file())


def test_one_of_two_shards_deleted_is_refused_by_name(run: Path) -> None:
    first, second = shards(run, "mass")
    second.unlink()
    with pytest.raises(fl.Refusal) as refused:
        fl.open_trace(run)
    name = second.relative_to(run).as_posix()
    assert str(refused.value) == (
        f"{run} is damaged: {name} is missing. Copy or record the trace again; `floatlens verify {run}` lists everything that is broken "
        "in it."
    )
    assert first.exists()


def test_a_trace_that_is_removed_while_open_is_an_error_and_not_zero(run: Path) -> None:
    trace = fl.open_trace(run)
    mass = trace.dataset["mass"]
    shutil.rmtree(run)
    with pytest.raises(fl.Refusal, match=r"samples/0000[01]/mass/c/[01]/0/0/0/0 is missing"):
        mass.sum().compute()
    with pytest.raises(fl.Refusal, match="samples/00001/canvas/c/0/0 is missing"):
        trace.tokens(1, step=0)
    with pytest.raises(fl.Refusal, match="is missing"):
        trace.save(run.with_name("again.zarr"))
    assert list(run.parent.glob("*again*")) == [], "nothing half-written stays"


def test_every_chunk_is_written_also_where_there_is_nothing(written: Path, tmp_path: Path) -> None:
    for sample in ("00000", "00001"):
        group = zarr.open_group(written / "samples" / sample, mode="r")
        for name, array in group.arrays():
            assert array.nchunks_initialized == array.nchunks, name
            assert [type(codec).__name__ for codec in array.compressors] == ["BloscCodec", "Crc32cCodec"]
    folder = TraceFolder(tmp_path / "nothing.zarr")
    sample = folder.sample(0)
    sample.append({"confidence": (("step", "position"), np.full((33, 4), np.nan, np.float32))})
    sample.finish({}, {})
    folder.finish({})
    assert len(shards(tmp_path / "nothing.zarr", "confidence")) == 2


def test_a_shard_in_the_place_of_another_is_refused_though_its_checksums_are_right(run: Path) -> None:
    trace = fl.open_trace(run)
    files = sorted(file for file in run.glob("samples/00000/*/c/**/*") if file.is_file())
    one, other = next(
        pair
        for pair in itertools.combinations(files, 2)
        if pair[0].stat().st_size == pair[1].stat().st_size and pair[0].read_bytes() != pair[1].read_bytes()
    )
    content = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(content)
    names = [file.relative_to(run).as_posix() for file in (one, other)]
    for opened in (trace, fl.open_trace(run)):
        for name in names:
            with pytest.raises(
                fl.Refusal, match=f"{name} was changed since it was written: a checksum in it is not the one that was written down"
            ):
                opened.dataset[name.split("/")[2]].load()
    assert [fault.split(" ", 1)[0] for fault in fl.verify(run)] == names


@pytest.mark.parametrize(
    ("edit", "sentence"),
    [
        (lambda said, _: said.update(schema_version="1"), "schema_version is '1' and must be a number from 1 to 1"),
        (lambda said, _: said.update(schema_version=True), "schema_version is True and must be a number from 1 to 1"),
        (lambda said, _: said.update(schema_version=-3), "schema_version is -3 and must be a number from 1 to 1"),
        (
            lambda said, _: said.pop("schema_version"),
            "its attributes do not say which version of the trace format it is (schema_version is missing)",
        ),
        (lambda said, _: said.update(samples=3), "it has 2 samples where its attributes say 3"),
        (lambda said, _: said.update(samples=10**15), "the attribute samples is 1000000000000000 and must be a number above 0"),
        (lambda said, _: said.update(samples="2"), "the attribute samples is '2' and must be a number above 0"),
        (lambda said, _: said["groups"].pop(), "has 3 entries along group, where the trace has 2"),
        (lambda said, _: said.update(groups="masked"), "the attribute groups is 'masked' and must be a list of different names"),
        (lambda said, _: said["regions"].append("more"), "sample 0: array in_region has 2 entries along region, where the trace has 3"),
        (lambda said, _: said["modules"].pop(), "modules lists 2 layers where layers says 3"),
        (lambda said, _: said.update(heads=5), "along head, where the trace has 5"),
        (lambda said, _: said.pop("detail"), "the attribute detail is missing"),
        (
            lambda said, _: said["detail"].update(mass="layer"),
            "array mass has the axes step, layer, head, group, key and should have step, layer, group, key",
        ),
        (lambda said, _: said["detail"].update(flow="head"), "sample 0: array flow is missing"),
        (lambda said, _: said["chosen"].append([9]), "the attribute chosen is [[0, 1], [9]] and must be a list of [layer, head] pairs"),
        (lambda _, at: at.pop("samples/00001/mass"), "sample 1: array mass is missing"),
        (lambda _, at: at.pop("samples/00001/canvas"), "sample 1: array canvas is missing"),
        (lambda _, at: at["samples/00001"]["attributes"].pop("prompt"), "sample 1: the attribute prompt is missing"),
        (
            lambda _, at: at["samples/00001"]["attributes"].update(vocabulary=[]),
            "sample 1: the attribute vocabulary is [] and must be an object of texts",
        ),
        (lambda _, at: at["samples/00000"]["attributes"].pop("checksums"), "sample 0: the attribute checksums is missing"),
        (
            lambda _, at: at["samples/00000/state"].update(data_type="int16", fill_value=-1),
            "sample 0: array state holds int16 and should hold int8",
        ),
        (
            lambda _, at: at["samples/00000/mass"]["shape"].__setitem__(0, 33),
            "array mass has 33 entries along step, where the trace has 34",
        ),
        (lambda _, at: at["samples/00000/mass"].update(dimension_names=None), "sample 0: array mass does not name its axes"),
        (lambda _, at: at["samples/00000/rows"]["shape"].__setitem__(0, 10**30), "entries along step"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_metadata_that_do_not_keep_what_the_format_promises_are_refused(run: Path, edit: Callable[..., object], sentence: str) -> None:
    edit_metadata(run, edit)
    with pytest.raises(fl.Refusal) as refused:
        fl.open_trace(run)
    assert str(refused.value).startswith(f"{run} is damaged: ")
    assert sentence in str(refused.value)
    assert any(sentence in fault for fault in fl.verify(run))


def test_metadata_that_is_not_json_is_refused(run: Path) -> None:
    (run / "zarr.json").write_text("{not json")
    with pytest.raises(fl.Refusal, match=r"is damaged: zarr\.json was changed since it was written"):
        fl.open_trace(run)
    write_manifest(run, "floatlens trace")
    with pytest.raises(fl.Refusal, match=r"is not a trace, or its zarr\.json is damaged: "):
        fl.open_trace(run)


def test_a_manifest_that_is_gone_does_not_make_a_trace_unprotected(run: Path) -> None:
    (run / "manifest.json").unlink()
    for mark in (True, False):
        if not mark:  # and a flipped bit in the mark does not help either
            root = (run / "zarr.json").read_text()
            assert '"manifest":' in root
            (run / "zarr.json").write_text(root.replace('"manifest":', '"manifesu":'))
        with pytest.raises(fl.Refusal, match=r"is damaged: its manifest\.json is missing, which lists the checksums of its files"):
            fl.open_trace(run)
        assert fl.verify(run) == ["its manifest.json is missing, which lists the checksums of its files."]


def test_a_disk_that_fails_while_a_trace_is_read_is_a_sentence(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = fl.open_trace(run)
    mass = trace.dataset["mass"]

    async def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(LocalStore, "get", fail)
    with pytest.raises(fl.Refusal, match=r"array mass of sample 0 cannot be read \(Input/output error\)"):
        mass.isel(layer=1).load()
    with pytest.raises(fl.Refusal, match="Input/output error"):
        fl.open_trace(run)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_a_sentence(run: Path) -> None:
    (run / "samples/00000/zarr.json").chmod(0)
    with pytest.raises(fl.Refusal, match=r"samples/00000/zarr\.json cannot be read \(Permission denied\)"):
        fl.open_trace(run)


def test_a_url_whose_protocol_is_not_installed_says_what_to_install() -> None:
    arguments = ["floatlens", "show", "http://127.0.0.1:9/run.zarr"]
    code = f"import sys; sys.modules['aiohttp'] = None; sys.argv = {arguments}; from floatlens.cli import run; run()"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    assert ran.stderr.startswith("floatlens: http://127.0.0.1:9/run.zarr cannot be opened: ")
    assert "aiohttp" in ran.stderr
    assert ran.stderr.endswith("Install what is missing into the environment of floatlens, or copy the trace to a local folder.\n")


@pytest.mark.parametrize("url", ["nonsense://bucket/run.zarr", "memory://nothing/run.zarr"])
def test_a_url_that_leads_nowhere_is_a_sentence(url: str) -> None:
    with pytest.raises(fl.Refusal, match=url):
        fl.open_trace(url)


def test_what_is_read_from_a_url_is_checked_too(run: Path) -> None:
    memory = fsspec.filesystem("memory")
    memory.put(str(run), "/checked/run.zarr", recursive=True)
    place = "memory://checked/run.zarr"
    xr.testing.assert_identical(fl.open_trace(place).dataset.load(), fl.open_trace(run).dataset.load())
    assert fl.verify(place) == []
    name = shards(run, "mass")[1].relative_to(run).as_posix()
    content = memory.cat_file(f"/checked/run.zarr/{name}")
    memory.pipe_file(f"/checked/run.zarr/{name}", content[:-30] + b"x" + content[-29:])
    with pytest.raises(fl.Refusal, match="array mass of sample 0 cannot be read"):
        fl.open_trace(place).dataset["mass"].load()
    assert fl.verify(place) == [f"{name} was changed since it was written: it has another SHA-256."]
    memory.rm_file(f"/checked/run.zarr/{name}")
    with pytest.raises(fl.Refusal, match=f"{name} is missing"):
        fl.open_trace(place).dataset["mass"].load()
    assert fl.verify(place) == [f"{name} is missing."]


def test_verify_names_everything_that_is_broken_and_says_what_is_whole(run: Path, floatlens: Callable[..., Ran]) -> None:
    code, said, _ = floatlens("verify", run)
    assert (code, said) == (0, f"{run}: intact\n")
    (run / "notes.txt").write_text("mine")  # no damage: floatlens did not write it
    assert floatlens("verify", run)[:2] == (0, f"{run}: intact\n")
    first, second = (file.relative_to(run).as_posix() for file in (shards(run, "mass")[0], shards(run, "score", 1)[0]))
    size = (run / first).stat().st_size
    (run / first).write_bytes(b"")
    (run / second).unlink()
    (run / "samples/00001/zarr.json").write_text("{}")
    code, said, _ = floatlens("verify", run)
    assert code == 1
    lines = said.splitlines()
    assert lines[0] == f"{run}: damaged"
    assert set(lines[1:]) >= {f"  {first} has 0 bytes instead of {size:,}.", f"  {second} is missing."}
    assert any(line.startswith("  samples/00001/zarr.json has 2 bytes instead of ") for line in lines)
    assert len(lines) == 4


def test_verify_looks_into_the_traces_of_a_folder(run: Path, floatlens: Callable[..., Ran]) -> None:
    folder = run.parent
    (folder / "results.csv").write_text("1,2")
    with pytest.raises(fl.Refusal, match="There is nothing to verify at"):
        fl.verify(folder / "nothing")
    write_manifest(folder, "floatlens eval")
    (folder / "notes.txt").write_text("mine")
    assert fl.verify(folder) == []
    shard = shards(run, "mass")[0]
    content = bytearray(shard.read_bytes())
    content[10] ^= 1
    shard.write_bytes(content)
    (folder / "results.csv").write_text("1,3")
    assert fl.verify(folder) == [
        "results.csv was changed since it was written: it has another SHA-256.",
        f"run.zarr/{shard.relative_to(run).as_posix()} was changed since it was written: it has another SHA-256.",
    ]
    code, said, _ = floatlens("verify", folder, run)
    assert code == 1
    assert said.count(": damaged\n") == 2
    manifest = (folder / "manifest.json").read_text()
    (folder / "manifest.json").write_text(manifest.replace("floatlens eval", "floatlens evil"))
    assert "manifest.json was changed since it was written." in fl.verify(folder)
    (folder / "manifest.json").unlink()
    assert [fault.split(" ", 1)[0] for fault in fl.verify(folder)] == [f"run.zarr/{shard.relative_to(run).as_posix()}"]


def test_verify_says_of_a_folder_of_traces_what_holds_for_all_of_them(run: Path, old: Path, floatlens: Callable[..., Ran]) -> None:
    folder = old.parent / "traces"
    shutil.copytree(run, folder / "run.zarr")
    assert floatlens("verify", folder) == (0, f"{folder}: intact\n", "")
    shutil.copytree(old, folder / "old.zarr")
    code, said, _ = floatlens("verify", folder)
    assert (code, said.startswith(f"{folder}: readable. It was written before traces had checksums")) == (0, True)
    code, _, errors = floatlens("verify", "")
    assert (code, "The name of the folder to verify is empty." in errors) == (2, True)


def test_verify_refuses_what_floatlens_did_not_write(tmp_path: Path, floatlens: Callable[..., Ran]) -> None:
    (tmp_path / "notes").mkdir()
    code, _, errors = floatlens("verify", tmp_path / "notes")
    assert code == 2
    assert "holds neither a trace nor a manifest.json, so there is nothing to compare its files with." in errors


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A trace of before there were checksums."""
    monkeypatch.setattr(trace_module, "_warned_unprotected", False)
    with tarfile.open(OLD) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "before-checksums.zarr"


def test_a_trace_of_before_there_were_checksums_opens_with_the_same_numbers(old: Path) -> None:
    with pytest.warns(UserWarning, match="was written before traces had checksums, so damage to it would not be noticed"):
        trace = fl.open_trace(old)
    assert set(trace.dataset.data_vars) == set(OLD_NUMBERS)
    for name, (dtype, shape, total, digest) in OLD_NUMBERS.items():
        values = np.ascontiguousarray(trace.dataset[name].values)
        assert (values.dtype.name, values.shape) == (dtype, shape)
        assert np.nansum(values.astype(float)) == pytest.approx(total, rel=1e-12)
        assert hashlib.sha256(values.tobytes()).hexdigest()[:16] == digest
    assert trace.completion().startswith(" Keller live ? Lisbon .")
    trace.save(old.with_name("protected.zarr"))
    assert fl.verify(old.with_name("protected.zarr")) == []
    xr.testing.assert_identical(fl.open_trace(old.with_name("protected.zarr")).dataset.load(), trace.dataset.load())


def test_that_an_old_trace_is_unprotected_is_said_once(old: Path) -> None:
    code = f"import floatlens as fl\nfor _ in range(3): fl.open_trace({str(old)!r})"
    ran = subprocess.run([sys.executable, "-W", "always", "-c", code], capture_output=True, text=True, check=True)
    assert ran.stderr.count("was written before traces had checksums") == 1


def test_verify_says_of_an_old_trace_that_it_can_only_be_read(old: Path, floatlens: Callable[..., Ran]) -> None:
    code, said, _ = floatlens("verify", old)
    assert (code, said.startswith(f"{old}: readable. It was written before traces had checksums")) == (0, True)
    shards(old, "mass")[0].write_bytes(b"")
    (old / "samples/00000/state/zarr.json").write_text("{}")
    shards(old, "state")[0].write_bytes(b"nonsense")
    code, said, _ = floatlens("verify", old)
    assert code == 1
    assert "array state of sample 0 cannot be read" in said


def test_a_stored_trace_can_be_pickled_and_saved_again(written: Path, tmp_path: Path) -> None:
    trace = fl.open_trace(written)
    expected = trace.dataset.load()
    again: fl.Trace = pickle.loads(pickle.dumps(fl.open_trace(written)))
    xr.testing.assert_identical(again.dataset.load(), expected)
    lazily = pickle.loads(pickle.dumps(fl.open_trace(written).dataset))
    np.testing.assert_array_equal(lazily["mass"].isel(layer=1).values, expected["mass"].isel(layer=1).values)
    again.save(tmp_path / "again.zarr")
    assert fl.verify(tmp_path / "again.zarr") == []
    xr.testing.assert_identical(fl.open_trace(tmp_path / "again.zarr").dataset.load(), expected)


def test_more_than_fits_into_memory_is_refused_before_it_is_asked_for() -> None:
    huge = np.broadcast_to(np.float32(0), (2**20, 2**20, 2**10))
    lazy = xr.Variable(("sample", "step", "layer", "key"), indexing.LazilyIndexedArray(RaggedArray([huge], np.nan)))
    with pytest.raises(fl.Refusal, match=r"takes 4,503,599\.6 GB of memory, and [\d.]+ GB are free\. Read a part of it"):
        lazy.load()
    assert float(lazy[0, 5, 7, 9]) == 0
