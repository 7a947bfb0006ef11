"""Adaptations on damaged ground: states, adapters and data that were changed, folders that are taken, options that are odd.

Each gets one sentence or does no harm; no number comes of it that is plausible and wrong.
"""

import gzip
import json
import random
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from adapt_data import recipe_file, small_recipe, stories_model, tiny_module, write_data
from attack_size import tries
from safetensors.torch import save

from floatlens.errors import Caution, Refusal
from floatlens.lab.adaptation.adapter import attach
from floatlens.lab.adaptation.data import HOLDS_MASK, prepare
from floatlens.lab.adaptation.objective import annealed_mask
from floatlens.lab.adaptation.training import Adaptation, begin, read_standing, run
from floatlens.models.adapters import FORMAT, Adapter, AdapterInfo, merge_adapter, read_adapter, weights_sha256, write_adapter
from floatlens.seeds import LARGEST_SEED

Ran = tuple[int, str, str]
HELD = """
import sys
from floatlens.folders import one_writer
with one_writer(sys.argv[1], "floatlens adapt"):
    print("ready", flush=True)
    sys.stdin.readline()
"""
INFO = AdapterInfo("tiny", "", "lora+norms", 4, 8.0, "diffusion", "bidirectional", 63, 0, 16)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data(tmp_path_factory.mktemp("adaptations") / "data")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, data: Path) -> tuple[Path, Adaptation]:
    """A run of two updates, and the adaptation to continue it with."""
    folder = tmp_path_factory.mktemp("adaptations") / "run"
    adaptation = begin(stories_model(), small_recipe(updates=2), "diffusion", "bidirectional", data)
    run(adaptation, folder)
    return folder, adaptation


def refused(call: Callable[[], object]) -> str:
    with pytest.raises(Refusal) as refusal:
        call()
    assert "\n" not in str(refusal.value)
    assert str(refusal.value).endswith(".")
    return str(refusal.value)


def flipped(content: bytes, at: int, bit: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 1 << bit]) + content[at + 1 :]


def places_to_flip(content: bytes) -> list[tuple[int, int]]:
    """Bytes and bits to flip, half of them in the header."""
    header = 8 + int.from_bytes(content[:8], "little")
    draw = random.Random(14)
    return [(draw.randrange(header if number % 2 else len(content)), draw.randrange(8)) for number in range(tries(20, 400))]


# -- states --------------------------------------------------------------------------------------------------------------------------------


def test_no_bit_of_a_state_is_changed_unnoticed(finished: tuple[Path, Adaptation]) -> None:
    folder, adaptation = finished
    state = folder / "state.safetensors"
    content = state.read_bytes()
    try:
        for at, bit in places_to_flip(content):
            state.write_bytes(flipped(content, at, bit))
            assert str(folder) in refused(lambda: run(adaptation, folder)), (at, bit)
    finally:
        state.write_bytes(content)
    assert run(adaptation, folder).done == 2


@pytest.mark.parametrize(
    "changes",
    [
        {"done": "2"},
        {"done": 1.5},
        {"done": -3},
        {"done": None},
        {"done": True},
        {"done": 10**30},
        {"seen": -1},
        {"seconds": "x"},
        {"seconds": float("nan")},
        {"threads": [None]},
        {"threads": "ab"},
        {"log": [1]},
        {"log": {"a": 1}},
        {"log": [{"loss": 1.0}]},
        {"more": 1},
    ],
    ids=repr,
)
def test_a_state_that_no_run_has_written_is_refused_before_anybody_counts_with_it(
    finished: tuple[Path, Adaptation], tmp_path: Path, changes: dict[str, Any]
) -> None:
    content = (finished[0] / "state.safetensors").read_bytes()
    length = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:length])
    header["__metadata__"]["standing"] = json.dumps({**json.loads(header["__metadata__"]["standing"]), **changes})
    forged = json.dumps(header).encode()
    forged += b" " * (-len(forged) % 8)
    (tmp_path / "state.safetensors").write_bytes(struct.pack("<Q", len(forged)) + forged + content[length:])
    assert "is not the state of an adaptation (" in refused(lambda: read_standing(tmp_path / "state.safetensors"))


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"\xff", b"[" * 100_000, b'{"recipe": 3}', b"null"], ids=lambda content: repr(content[:20])
)
def test_a_run_that_does_not_say_what_it_is_is_refused(finished: tuple[Path, Adaptation], content: bytes) -> None:
    folder, adaptation = finished
    before = (folder / "run.json").read_bytes()
    (folder / "run.json").write_bytes(content)
    try:
        assert "run.json does not say which run the folder holds." in refused(lambda: run(adaptation, folder))
        assert (folder / "run.json").read_bytes() == content, "nothing is overwritten"
    finally:
        (folder / "run.json").write_bytes(before)


# -- adapters ------------------------------------------------------------------------------------------------------------------------------


def parameters() -> dict[str, torch.Tensor]:
    return {name: weights.detach() for name, weights in attach(tiny_module(), "lora+norms", rank=4, alpha=8.0, seed=0).items()}


def test_no_bit_of_an_adapter_is_changed_unnoticed(tmp_path: Path) -> None:
    file = tmp_path / "adapter.safetensors"
    write_adapter(file, Adapter(INFO, parameters()))
    content = file.read_bytes()
    for at, bit in places_to_flip(content):
        file.write_bytes(flipped(content, at, bit))
        assert str(file) in refused(lambda: read_adapter(file)), (at, bit)
    file.write_bytes(content)
    assert read_adapter(file).info == INFO


def test_an_adapter_of_before_there_were_checksums_is_read_and_that_is_said(tmp_path: Path) -> None:
    file = tmp_path / "old.safetensors"
    file.write_bytes(save(parameters(), metadata={FORMAT: json.dumps(asdict(INFO))}))
    with pytest.warns(Caution, match="was written before adapters had checksums"):
        assert read_adapter(file).info == INFO


@pytest.mark.parametrize(
    "changes",
    [
        {"rank": 0},
        {"rank": "4"},
        {"rank": True},
        {"alpha": float("nan")},
        {"alpha": 0},
        {"alpha": "8"},
        {"mask_token_id": -1},
        {"mask_token_id": 1.0},
        {"base": None},
        {"trains": "some"},
        {"objective": []},
        {"mask": "none"},
        {"more": 1},
    ],
    ids=repr,
)
def test_an_adapter_that_says_the_impossible_is_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    file = tmp_path / "forged.safetensors"
    file.write_bytes(save({"mask_offset": torch.zeros(32)}, metadata={FORMAT: json.dumps({**asdict(INFO), **changes})}))
    assert f"{file} is not an adapter (" in refused(lambda: read_adapter(file))


@pytest.mark.parametrize(
    ("name", "tensor", "words"),
    [
        ("lora_a.model.layers.1.mlp.up_proj", torch.zeros(5, 32), "says that its rank is 4"),
        ("lora_a.model.layers.1.mlp.up_proj", torch.zeros(4), "says that its rank is 4"),
        ("lora_b.model.layers.1.mlp.up_proj", torch.zeros(48, 3), "says that its rank is 4"),
        ("lora_b.model.layers.1.mlp.up_proj", torch.zeros(7, 4), "has the shape"),
        ("gain.model.norm", torch.full((32,), torch.nan), "is not finite"),
        ("mask_offset", torch.full((32,), torch.inf), "is not finite"),
        ("mask_offset", torch.zeros(8), "has the shape"),
        ("mask_token_id", 64, "has the id 64"),
    ],
)
def test_an_adapter_that_does_not_fit_leaves_the_model_as_it_was(name: str, tensor: Any, words: str) -> None:
    module = tiny_module()
    before = weights_sha256(module)
    moved = {part: weights + 1 for part, weights in parameters().items()}
    adapter = Adapter(replace(INFO, **{name: tensor}), moved) if hasattr(INFO, name) else Adapter(INFO, {**moved, name: tensor})
    assert words in refused(lambda: merge_adapter(module, adapter))
    assert weights_sha256(module) == before


# -- data ----------------------------------------------------------------------------------------------------------------------------------


def with_stories(folder: Path, content: bytes) -> Path:
    write_data(folder)
    (folder / "stories.txt").write_bytes(content)
    return folder


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "latin-1", "cp1252"])
def test_a_text_that_is_not_utf_8_is_refused_and_loses_no_words(data: Path, tmp_path: Path, encoding: str) -> None:
    text = (data / "stories.txt").read_text().replace("happy", "glücklich")
    folder = with_stories(tmp_path / "data", text.encode(encoding))
    assert "stories.txt is not UTF-8 (byte " in refused(lambda: prepare(small_recipe(), folder, stories_model().tokenizer))


def test_a_text_that_was_cut_inside_a_character_or_begins_with_a_byte_order_mark_is_read(data: Path, tmp_path: Path) -> None:
    content = (data / "stories.txt").read_bytes()
    tokenizer = stories_model().tokenizer
    whole = prepare(small_recipe(), data, tokenizer).texts[0].documents
    folder = with_stories(tmp_path / "data", b"\xef\xbb\xbf" + content + "é".encode()[:1])
    assert prepare(small_recipe(), folder, tokenizer).texts[0].documents == whole


@pytest.mark.parametrize(
    "content", [b"\x1f\x8b\x08\x00" + b"junk" * 50, gzip.compress(b"a story " * 99)[:-9], b"\x1f\x8b"], ids=["junk", "cut", "short"]
)
def test_a_damaged_gzip_file_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    folder = with_stories(tmp_path / "data", content)
    assert str(folder / "stories.txt") in refused(lambda: prepare(small_recipe(), folder, stories_model().tokenizer))


def test_what_holds_the_mask_token_is_left_out_and_counted(data: Path, tmp_path: Path) -> None:
    """Its logit is left out, so that its loss would be infinite; and among other words it would be taken for something hidden."""
    stories = (data / "stories.txt").read_bytes().replace(b"Lily was happy", b"Lily was \x01 happy")
    folder = with_stories(tmp_path / "data", stories)
    questions = (data / "questions.jsonl").read_text()
    (folder / "questions.jsonl").write_text(questions.replace("was a friend", "was \\u0001 a friend", 24))
    prepared = prepare(small_recipe(), folder, stories_model().tokenizer)
    assert [source.left_out[HOLDS_MASK] > 0 for source in prepared.sources] == [True, True]
    assert not any("\x01" in document for document in (*prepared.texts[0].documents, *prepared.held_out_documents))
    assert not any("\x01" in passage.text for sample in prepared.questions[0].samples for passage in sample.evidence)


def test_a_mask_token_that_the_chat_template_writes_is_refused(data: Path) -> None:
    lm = stories_model()
    lm.tokenizer.chat_template = "\x01{{ messages[0]['content'] }}"
    recipe = small_recipe(questions={"passages": [1], "rooms": [8], "chat": 1.0})
    adaptation = begin(lm, recipe, "diffusion", "bidirectional", data)
    assert "Name a token that neither a text nor the chat template contains." in refused(lambda: adaptation.draw(1))


# -- places and options --------------------------------------------------------------------------------------------------------------------


def test_the_second_adaptation_into_a_folder_is_refused_before_it_reads_anything(
    floatlens: Callable[..., Ran], tmp_path: Path, data: Path
) -> None:
    first = subprocess.Popen([sys.executable, "-c", HELD, tmp_path / "run"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert first.stdout is not None
    assert first.stdout.readline() == "ready\n"
    given = ("adapt", "no-such-model", "--recipe", recipe_file(tmp_path), "--data", data, "--into", tmp_path / "run")
    sentence = (
        f"Process {first.pid} (`floatlens adapt`) is writing {tmp_path / 'run'} now. Wait until it has ended, or choose another folder."
    )
    assert floatlens(*given) == (2, "", f"floatlens: {sentence}\n")
    first.communicate("\n", timeout=60)


def test_a_home_folder_that_the_shell_has_not_spelled_out_is_found(
    floatlens: Callable[..., Ran], tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(data.parent))
    given = ("adapt", "--recipe", recipe_file(tmp_path, updates=2), "--data", f"~/{data.name}", "--into", "~/spelled-out")
    code, _, errors = floatlens(*given)
    assert (code, errors) == (0, "")
    assert {"README.md", "adapter.safetensors", "held-out.jsonl"} <= {file.name for file in (data.parent / "spelled-out").iterdir()}


def test_a_folder_of_somebody_else_is_left_alone(floatlens: Callable[..., Ran], tmp_path: Path, data: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "README.md").write_text("my own notes")
    code, _, errors = floatlens("adapt", "--recipe", recipe_file(tmp_path, updates=2), "--data", data, "--into", tmp_path / "mine")
    assert (code, "mine holds README.md and no run, so it is somebody else's. Choose another folder (--into)." in errors) == (2, True), (
        errors
    )
    assert {file.name: file.read_text() for file in (tmp_path / "mine").iterdir()} == {"README.md": "my own notes"}


def test_a_name_that_is_no_text_is_one_sentence(floatlens: Callable[..., Ran], tmp_path: Path, data: Path) -> None:
    code, _, errors = floatlens("adapt", "\udcff", "--recipe", recipe_file(tmp_path), "--data", data, "--into", tmp_path / "run")
    assert code == 2
    assert "holds half of a surrogate pair" in errors
    assert errors.count("\n") == 1


def test_every_seed_that_is_accepted_makes_a_mask() -> None:
    masks = [annealed_mask(12, 0.5, seed) for seed in (0, 1, LARGEST_SEED - 1, LARGEST_SEED)]
    assert all(0 < int((mask == 0).triu(1).sum()) < 66 for mask in masks)
    assert not torch.equal(masks[-1], masks[-2])
    assert "seed" in refused(lambda: small_recipe(seed=LARGEST_SEED + 1))
