"""Damage every array and every metadata file of a trace in every way.

What comes of it is an error in a sentence, or exactly the same numbers; never other numbers. Each try is made twice: on a trace that is
opened after the damage, and on one that was open before. And `fl.verify` must name the damaged file.
"""

import hashlib
import random
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from attack_size import tries

import floatlens as fl
from writers import PROMPTS, autoregressive_model, diffusion_model

Ran = tuple[int, str, str]
Damage = Callable[[Path, random.Random], list[Path]]
"""Damages a file of a trace; which files are no longer what was written (none if it cannot be done to this one)."""


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A diffusion model's trace of two samples and two shards along the steps, an autoregressive one's, and one of equal shapes each."""
    folder = tmp_path_factory.mktemp("traces")
    mdm, arm = diffusion_model("llada"), autoregressive_model()
    prompts = PROMPTS[:2]
    others = [[token + 30 for token in prompt] for prompt in prompts]
    for name, lm, asked, length in (
        ("mdm", mdm, prompts, 34),
        ("mdm-other", mdm, others, 34),
        ("arm", arm, prompts, 5),
        ("arm-other", arm, others, 5),
    ):
        lm.trace(asked, gen_length=length, patterns=[(0, 1)], batch_size=2, path=folder / f"{name}.zarr", progress=False)
    return {file.stem: file for file in folder.iterdir()}


def digest(trace: fl.Trace) -> str:
    """Of every number and text of a trace."""
    found = hashlib.sha256(repr(sorted(trace.attributes.items())).encode())
    for name, values in sorted(trace.dataset.variables.items(), key=lambda item: str(item[0])):
        found.update(f"{name} {values.dims} {values.dtype}".encode() + np.ascontiguousarray(values.values).tobytes())
    for number in range(len(trace)):
        found.update((trace.prompt(number) + trace.completion(number)).encode())
    return found.hexdigest()


def outcome(work: Callable[[], str]) -> str:
    """A digest, or "refused". Any other exception is a fault of floatlens and goes on."""
    try:
        return work()
    except fl.Refusal as refusal:
        return "refused" if str(refusal).endswith(".") else f"not a sentence: {refusal}"


def missing(file: Path, _draw: random.Random) -> list[Path]:
    file.unlink()
    return [file]


def empty(file: Path, _draw: random.Random) -> list[Path]:
    file.write_bytes(b"")
    return [file]


def truncated(file: Path, draw: random.Random) -> list[Path]:
    content = file.read_bytes()
    file.write_bytes(content[: draw.randrange(len(content))])
    return [file]


def longer(file: Path, draw: random.Random) -> list[Path]:
    file.write_bytes(file.read_bytes() + draw.randbytes(8))
    return [file]


def flipped(file: Path, draw: random.Random) -> list[Path]:
    return _flip(file, draw, 0)


def flipped_in_the_index(file: Path, draw: random.Random) -> list[Path]:
    return _flip(file, draw, max(0, file.stat().st_size - 20))


def zeroed(file: Path, draw: random.Random) -> list[Path]:
    """A block that a disk gave back as zeros."""
    content = bytearray(file.read_bytes())
    start = draw.randrange(len(content))
    content[start : start + 512] = bytes(len(content[start : start + 512]))
    return _rewritten(file, bytes(content))


def swapped(file: Path, draw: random.Random) -> list[Path]:
    """With another file of equal size of the same trace."""
    content = file.read_bytes()
    root = next(parent for parent in file.parents if parent.suffix == ".zarr")
    equal = [other for other in sorted(root.rglob(_same_kind(file))) if other.is_file() and other.stat().st_size == len(content)]
    equal = [other for other in equal if other.read_bytes() != content]
    if not equal:
        return []
    other = draw.choice(equal)
    file.write_bytes(other.read_bytes())
    other.write_bytes(content)
    return [file, other]


def of_another_trace(file: Path, _draw: random.Random) -> list[Path]:
    root = next(parent for parent in file.parents if parent.suffix == ".zarr")
    return _rewritten(file, (root.with_name(f"{root.stem}-other.zarr") / file.relative_to(root)).read_bytes())


def pieces_swapped(file: Path, _draw: random.Random) -> list[Path]:
    """Two chunks of one shard that have the same size: every checksum is right, but the numbers are of another layer."""
    content = file.read_bytes()
    chunks = 3  # layers
    spans: list[tuple[int, int]] = []
    if len(content) > 16 * chunks + 4:
        spans = list(struct.iter_unpack("<QQ", content[-16 * chunks - 4 : -4]))
    for at, (first, length) in enumerate(spans):
        for second, other_length in spans[at + 1 :]:
            a, b = content[first : first + length], content[second : second + length]
            if length == other_length and a != b and first + length <= second and second + length <= len(content):
                return _rewritten(file, content[:first] + b + content[first + length : second] + a + content[second + length :])
    return []


OF_DATA: list[Damage] = [
    missing,
    empty,
    truncated,
    flipped,
    flipped_in_the_index,
    zeroed,
    swapped,
    of_another_trace,
    pieces_swapped,
    longer,
]
OF_METADATA: list[Damage] = [missing, empty, truncated, flipped, of_another_trace, longer]


def all_attacks(traces: dict[str, Path]) -> Iterator[tuple[Path, Damage]]:
    draw = random.Random(0)
    for name in ("mdm", "arm"):
        root = traces[name]
        for array in sorted({file.name for file in (root / "samples" / "00000").iterdir() if file.is_dir()}):
            shards = sorted(file for file in root.glob(f"samples/*/{array}/c/**/*") if file.is_file())
            yield from ((draw.choice(shards), kind) for kind in OF_DATA)
        metadata = sorted(root.rglob("zarr.json"))
        yield from ((file, kind) for file in metadata for kind in draw.sample(OF_METADATA, 2))
        for file in (root / "zarr.json", root / "manifest.json"):
            yield from ((file, kind) for kind in [*OF_METADATA, *[flipped] * 20])


def test_no_damage_changes_a_number_silently(traces: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    attacks = list(all_attacks(traces))
    attacks = random.Random(1).sample(attacks, min(tries(30, 10_000), len(attacks)))
    right = {name: digest(fl.open_trace(traces[name])) for name in ("mdm", "arm")}
    written = {file: file.read_bytes() for name in right for file in traces[name].rglob("*") if file.is_file()}
    tried = refused = 0
    silent, unnamed = [], []
    for number, (file, kind) in enumerate(attacks):
        root = next(parent for parent in file.parents if parent.suffix == ".zarr")
        relative = file.relative_to(root).as_posix()
        opened = fl.open_trace(root)
        damaged = kind(file, random.Random(number))
        if not damaged:
            continue
        tried += 1
        try:
            outcomes = {outcome(lambda root=root: digest(fl.open_trace(root))), outcome(lambda opened=opened: digest(opened))}
            refused += outcomes == {"refused"}
            silent += [(relative, kind.__name__)] * bool(outcomes - {"refused", right[root.stem]})
            named = "\n".join(fl.verify(root))
            other_manifest = kind is of_another_trace and relative == "manifest.json"  # whole by itself: every other file is named
            names = ["zarr.json"] if other_manifest else [path.relative_to(root).as_posix() for path in damaged]
            unnamed += [(relative, kind.__name__, named)] * (not all(name in named for name in names))
        finally:
            for path in damaged:
                path.write_bytes(written[path])
    with capsys.disabled():
        print(
            f"\n{tried} damaged traces: {refused} refused, opened before or after; "
            f"{len(silent)} silent differences; {len(unnamed)} not named by verify"
        )
    assert silent == []
    assert unnamed == []
    assert tried >= tries(20, 500)
    for name, expected in right.items():
        assert digest(fl.open_trace(traces[name])) == expected, "what was damaged was put back"
        assert fl.verify(traces[name]) == []


@pytest.mark.parametrize("kind", [missing, flipped, of_another_trace, swapped], ids=lambda kind: kind.__name__)
def test_measure_refuses_a_damaged_trace_and_prints_no_number(
    kind: Damage, traces: dict[str, Path], floatlens: Callable[..., Ran], tmp_path: Path
) -> None:
    for number, array in enumerate(("mass", "state")[: tries(1, 2)]):
        root = tmp_path / f"{number}" / "mdm.zarr"
        shutil.copytree(traces["mdm"], root)
        shutil.copytree(traces["mdm-other"], root.with_name("mdm-other.zarr"))
        shards = sorted(file for file in root.glob(f"samples/*/{array}/c/**/*") if file.is_file())
        if not any(kind(shard, random.Random(number)) for shard in shards):
            continue
        code, said, errors = floatlens("measure", root, "--json")
        assert (code, said) == (2, "")
        assert errors.startswith(f"floatlens: {root} is damaged: ")
        assert f"`floatlens verify {root}` lists everything that is broken in it." in errors
        code, said, _ = floatlens("verify", root)
        assert code == 1
        assert said.startswith(f"{root}: damaged\n")
        assert f"samples/00000/{array}/c/" in said


def _flip(file: Path, draw: random.Random, first: int) -> list[Path]:
    content = bytearray(file.read_bytes())
    content[draw.randrange(first, len(content))] ^= 1 << draw.randrange(8)
    return _rewritten(file, bytes(content))


def _rewritten(file: Path, content: bytes) -> list[Path]:
    if content == file.read_bytes():
        return []
    file.write_bytes(content)
    return [file]


def _same_kind(file: Path) -> str:
    return "zarr.json" if file.name == "zarr.json" else "c/**/*"
