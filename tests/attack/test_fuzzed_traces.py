"""The trace reader is given mutated metadata and bytes.

It opens and reads what is there, or refuses it in a sentence; nothing else ever comes out.
Mutated metadata are vouched for in the manifest, or come without one, so that they get past the checksums and reach what parses them.
"""

import copy
import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from attack_size import tries
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import floatlens as fl
from floatlens.folders import write_manifest
from writers import PROMPTS, diffusion_model

STRANGE: list[Any] = [
    None, True, False, 0, 1, -1, 2, 33, 2**31, 2**63, 10**30, -(10**30), 0.5, 1e308, "", "1", "x", "NaN", "\ud800", "\x00", "\u202e",
    "…" * 300, [], [[]], [0], [-1], [1, 2, 3], ["a"], [10**12], {}, {"": {}}, {"name": "x"}, {"name": "zstd", "configuration": {}},
    "int32", "float64", "r8", "../..",
]  # fmt: skip
MUTATIONS = ("replace", "remove", "repeat", "rename")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("fuzzed") / "run.zarr"
    diffusion_model("llada").trace(PROMPTS[:1], gen_length=2, detail="light", path=path, progress=False)
    return path


@pytest.fixture(scope="module")
def pristine(run: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in run.rglob("*") if file.is_file()}


def use(run: Path) -> None:
    """Open a trace and read all of it, or be refused in a sentence."""
    try:
        trace = fl.open_trace(run)
        repr(trace)
        trace.dataset.load()
        for number in range(len(trace)):
            assert isinstance(trace.prompt(number) + trace.completion(number) + "".join(trace.tokens(number)), str)
    except fl.Refusal as refusal:
        if not str(refusal).endswith(".") or "\n" in str(refusal):
            raise AssertionError(f"not a sentence: {refusal}") from None


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of everything inside a JSON value."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, part in inside for place in [(*path, key), *places(part, (*path, key))]]


def mutate(root: Any, path: tuple[Any, ...], how: str, strange: Any) -> None:
    parent = root
    for key in path[:-1]:
        parent = parent[key]
    if how == "remove":
        del parent[path[-1]]
    elif how == "repeat" and isinstance(parent, list):
        parent.append(copy.deepcopy(parent[path[-1]]))
    elif how == "rename" and isinstance(parent, dict):
        parent[f"{path[-1]}{strange if isinstance(strange, str) else 'x'}"] = parent.pop(path[-1])
    else:
        parent[path[-1]] = copy.deepcopy(strange)


mutations = st.tuples(st.integers(0, 10**6), st.sampled_from(MUTATIONS), st.sampled_from(range(len(STRANGE))))


@example(mutated=[(3, "replace", 5)], protected=False)
@given(mutated=st.lists(mutations, min_size=1, max_size=3), protected=st.booleans())
@settings(max_examples=tries(60, 7000), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_mutated_metadata_are_read_or_refused(
    run: Path, pristine: dict[Path, bytes], mutated: list[tuple[int, str, int]], protected: bool
) -> None:
    root = json.loads(pristine[run / "zarr.json"])
    if not protected:  # a trace of before there were checksums
        del root["attributes"]["manifest"]
        del root["consolidated_metadata"]["metadata"]["samples/00000"]["attributes"]["checksums"]
    for where, how, which in mutated:
        if everywhere := places(root):
            mutate(root, everywhere[where % len(everywhere)], how, STRANGE[which])
    try:
        (run / "zarr.json").write_text(json.dumps(root))
        if protected:
            _vouch(run)
        else:
            (run / "manifest.json").unlink()
        use(run)
    finally:
        _put_back(run, pristine)


@given(seed=st.integers(0, 2**32), vouched=st.booleans())
@settings(max_examples=tries(40, 3000), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_mutated_bytes_are_read_or_refused(run: Path, pristine: dict[Path, bytes], seed: int, vouched: bool) -> None:
    draw = random.Random(seed)
    file = draw.choice(sorted(pristine))
    content = bytearray(pristine[file])
    for _ in range(draw.randrange(1, 5)):
        at = draw.randrange(len(content) + 1)
        match draw.randrange(4):
            case 0:
                content[at:at] = draw.randbytes(draw.randrange(1, 9))
            case 1:
                del content[at : at + draw.randrange(1, 30)]
            case 2:
                content[at : at + 1] = draw.randbytes(1)
            case _:
                content[at : at + 8] = content[max(0, at - 8) : at]
    try:
        file.write_bytes(content)
        if vouched and file.name == "zarr.json":
            _vouch(run)
        use(run)
    finally:
        _put_back(run, pristine)


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"null", b"1", b'"x"', b"[" * 5000, b"{" * 5000, b"\xff\xfe", b'{"zarr_format": 3}', b"NaN"],
    ids=lambda content: repr(content[:20]),
)
def test_metadata_of_another_kind_are_refused(run: Path, pristine: dict[Path, bytes], content: bytes, tmp_path: Path) -> None:
    copied = Path(shutil.copytree(run, tmp_path / "run.zarr"))
    for name in ("zarr.json", "manifest.json"):
        for with_manifest in (True, False):
            (copied / name).write_bytes(content)
            if not with_manifest:
                (copied / "manifest.json").unlink(missing_ok=True)
            use(copied)
            for file in ("zarr.json", "manifest.json"):
                (copied / file).write_bytes(pristine[run / file])


def _vouch(run: Path) -> None:
    (run / "manifest.json").unlink()
    write_manifest(run, "floatlens trace")


def _put_back(run: Path, pristine: dict[Path, bytes]) -> None:
    for file, content in pristine.items():
        if not file.is_file() or file.read_bytes() != content:
            file.write_bytes(content)
