"""What people get wrong when they name, load and ask a model: a sentence each time, that says what to do."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from published_checkpoints import tiny_checkpoint, write_json
from safetensors.torch import load_file, save_file
from small_checkpoints import bert_folder, llama_folder

import floatlens as fl
from floatlens.models.doctor import examine

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> fl.LanguageModel:
    return fl.load(llama_folder(tmp_path_factory.mktemp("llama"))[0])


@pytest.fixture(scope="module")
def llada(tmp_path_factory: pytest.TempPathFactory) -> fl.LanguageModel:
    return fl.load(tiny_checkpoint("llada-8b-instruct", tmp_path_factory.mktemp("llada")))


def refusal(call: Callable[..., Any], *given: Any, **options: Any) -> str:
    with pytest.raises(fl.Refusal) as refused:
        call(*given, **options)
    said = str(refused.value)
    assert "\n" not in said
    return said


# -- prompts and seeds ---------------------------------------------------------------------------------------------------------------------

NO_PROMPT = r"^A prompt is a text, an fl\.Prompt, a conversation or a list of token ids; this is .*\. Decode bytes to a text first\.$"
NO_MESSAGE = (
    r"^A conversation is a list of messages with 'role' and 'content', both texts; a prompt may also be .* whole numbers\. This is .*\.$"
)


@pytest.mark.parametrize(
    ("prompts", "message"),
    [
        (None, NO_PROMPT),
        (b"hello", NO_PROMPT),
        (bytearray(b"hello"), NO_PROMPT),
        (memoryview(b"hello"), NO_PROMPT),
        ([b"hello", b"you"], NO_PROMPT),
        (3, NO_PROMPT),
        ({"role": "user", "content": "x"}, NO_PROMPT),
        ({"a", "b"}, NO_PROMPT),
        (iter(["a"]), NO_PROMPT),
        (object(), NO_PROMPT),
        (["a", None], NO_PROMPT),
        ([[1, 2], 3], NO_PROMPT),
        ([], r"^There are no prompts; give at least one\.$"),
        (np.zeros((0, 3), dtype=int), r"^There are no prompts; give at least one\.$"),
        ([[1.0, 2.0]], NO_MESSAGE),
        ([1.5, 2.5], NO_MESSAGE),
        ([[True, False]], NO_MESSAGE),
        ([True, False], NO_MESSAGE),
        (torch.tensor([1.0, 2.0]), NO_MESSAGE),
        ([[[1, 2], [3]]], NO_MESSAGE),
        ([["a", "b"]], NO_MESSAGE),
        ([[{"role": "user"}]], NO_MESSAGE),
        ([[{"role": "user", "content": None}]], NO_MESSAGE),
        ([[{"role": "user", "content": [{"type": "text", "text": "x"}]}]], NO_MESSAGE),
        ([[{"role": 3, "content": "x"}]], NO_MESSAGE),
        (
            [torch.ones(2, 3, dtype=torch.long)],
            r"^A prompt of token ids has one axis; this one has the shape \(2, 3\)\. Give each row as a prompt\.$",
        ),
        (torch.ones(2, 3, 4, dtype=torch.long), r"^A prompt of token ids has one axis; this one has the shape \(2, 3, 4\)\."),
        ([[1, 2**70]], r"^Prompt 0 holds a token id outside the vocabulary of .* \(0 to \d+\)\.$"),
        ([[1, -1]], r"^Prompt 0 holds a token id outside the vocabulary of "),
        (
            "half \ud83d of it",
            r"^Character \d+ of the prompt is half of a surrogate pair, which no tokenizer can read\. Write the text as UTF-8\.$",
        ),
    ],
    ids=lambda value: type(value).__name__,  # what repr gives differs from process to process
)
@pytest.mark.parametrize("model", ["llama", "llada"])
def test_what_is_no_prompt_is_refused(prompts: Any, message: str, model: str, request: pytest.FixtureRequest) -> None:
    lm = request.getfixturevalue(model)
    for call in (lm.generate, lm.trace):
        said = refusal(call, prompts, gen_length=2, progress=False)
        assert re.search(message, said), said


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ({"text": None}, r"^The text of a prompt is a str, not None \(NoneType\)\.$"),
        ({"text": b"x"}, r"^The text of a prompt is a str, not b'x' \(bytes\)\.$"),
        ({"text": "x", "regions": [("a", (0, 1))]}, r"^regions maps names to \(start, stop\) in characters of the prompt; this is \["),
        (
            {"text": "x", "regions": {"a": 1}},
            r"^regions maps names to \(start, stop\) in characters of the prompt; this is 'a': 1 \(int\)\.$",
        ),
        ({"text": "x", "regions": {"a": (0, 1, 2)}}, r"this is 'a': \(0, 1, 2\) \(tuple\)\.$"),
        ({"text": "x", "regions": {"a": (0.0, 1.0)}}, r"this is 'a': "),
        ({"text": "x", "regions": {3: (0, 1)}}, r"this is 3: "),
    ],
)
def test_what_is_no_text_with_regions_is_refused(prompt: dict[str, Any], message: str) -> None:
    assert re.search(message, refusal(fl.Prompt, **prompt))


@pytest.mark.parametrize(
    "seed", [None, True, 1.0, "0", -1, 2**62 + 1, 2**63, 10**40, float("nan"), [None], ["0"], [-1], b"0", {}], ids=repr
)
def test_what_is_no_seed_is_refused(seed: Any, llama: fl.LanguageModel, llada: fl.LanguageModel) -> None:
    told = (
        r"^(seed=.* is not a seed: it must be a whole number from 0 to 2\^62, so that the run can be repeated"
        r"|0 seeds were given for 1 prompts\. .*)\.$"
    )
    for lm in (llama, llada):
        assert re.search(told, refusal(lm.generate, [[5, 6]], gen_length=2, seed=seed, progress=False))
        assert re.search(r"^seed=.* is not a seed: ", refusal(lm.trace, [[5, 6]], gen_length=2, seed=seed, progress=False))


def test_the_largest_seeds_are_taken(llada: fl.LanguageModel) -> None:
    prompts = [[5, 6], [7, 8]]
    seeds: list[Any] = [2**62, np.int64(3), [2**62, 2**62 + 1], np.array([1, 2])]
    for seed in seeds:
        assert len(llada.generate(prompts, gen_length=2, seed=seed, progress=False)) == 2


@pytest.mark.parametrize("command", ["trace -m twin-mdm -p x -o OUT", "eval -m twin-mdm --into OUT", "demo --into OUT"])
@pytest.mark.parametrize("seed", ["-1", str(2**62 + 1), str(10**40), "none", "1.5"])
def test_no_command_takes_what_is_no_seed(command: str, seed: str, tmp_path: Path, floatlens: Command) -> None:
    code, _, errors = floatlens(*command.replace("OUT", str(tmp_path / "out")).split(), "--seed", seed)
    assert code == 2
    assert "Invalid value for '--seed'" in errors
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("batch_size", [0, -1, None, "4", 2.0, True])
def test_what_is_no_batch_size_is_refused(batch_size: Any, llama: fl.LanguageModel) -> None:
    for call in (llama.generate, llama.trace):
        assert (
            refusal(call, [[5]], gen_length=1, batch_size=batch_size)
            == f"batch_size={batch_size!r}: at least one prompt must run at a time."
        )


# -- names and devices ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "nonexistent",
            r"^There is no model 'nonexistent': it is neither bundled, nor a folder or file here, nor a hub name of the form "
            r"owner/name\. Bundled: ",
        ),
        ("", r"^The name of the model is empty\. Bundled: "),
        ("  ", r"^The name of the model is empty\."),
        ("a\0b", r"^The name 'a\\x00b' holds characters that cannot be seen\. Check what was pasted, or rename the folder\.$"),
        ("a\nb", r"^The name 'a\\nb' holds characters that cannot be seen\."),
        ("\x1b[31mred", r"^The name '\\x1b\[31mred' holds characters that cannot be seen\."),
        ("a\u202eb", r"^The name 'a\\u202eb' holds characters"),
        ("half \ud83d", r"^The name 'half \\ud83d' holds characters"),
        ("x" * 300, r"^There is no model 'x+': "),
        ("x" * 5000, r"^The name 'x+\.\.\.' has 5000 characters, more than any path\. Check what was pasted\.$"),
        ("./" + "x" * 3000, r"^There is no model '\./x+\.\.\.': "),
        (None, r"^A model is named by a text or a path, not by None, a NoneType\.$"),
        (3, r"^A model is named by a text or a path, not by 3, a int\.$"),
        (b"twin-mdm", r"^A model is named by a text or a path, not by b'twin-mdm', a bytes\.$"),
        ("~nobody-of-that-name/model", r"^There is no model "),
    ],
    ids=lambda value: type(value).__name__,  # what repr gives differs from process to process
)
def test_a_name_that_is_no_model_is_refused(name: Any, message: str) -> None:
    for call in (fl.load, examine):
        said = refusal(call, name)
        assert re.search(message, said), said
        assert "\x1b" not in said


@pytest.mark.parametrize("device", ["cuda:7", "cuda:-1", "nonsense", "", "meta", "cpu:x", 99, "xpu"])
def test_a_device_that_is_not_here_is_refused_before_anything_is_read(device: Any) -> None:
    said = refusal(fl.load, "no such model", device=device)
    assert re.match(rf"^device={re.escape(repr(device))} \(--device\) cannot be used here \(.+\)\. This machine has: cpu", said), said


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is one")
@pytest.mark.parametrize("command", ["trace -m twin-mdm -p x -o OUT --device cuda", "eval -m twin-mdm -n 1 --into OUT --device cuda"])
def test_cuda_without_a_gpu_is_a_sentence(command: str, tmp_path: Path, floatlens: Command) -> None:
    code, _, errors = floatlens(*command.replace("OUT", str(tmp_path / "out")).split())
    assert code == 2
    assert " ".join(errors.split()).startswith("floatlens: device='cuda' (--device) cannot be used here (")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("dtype", ["int8", "float8", 16, "", ["float32"]])
def test_a_dtype_that_is_none_is_refused(dtype: Any) -> None:
    assert "is not known; " in refusal(fl.load, "no such model", dtype=dtype)


# -- folders -------------------------------------------------------------------------------------------------------------------------------


def test_a_folder_that_is_no_checkpoint_is_a_sentence(tmp_path: Path, floatlens: Command) -> None:
    empty, tokenizer_only, text = tmp_path / "empty", tmp_path / "tokenizer", tmp_path / "notes.md"
    empty.mkdir()
    tokenizer_only.mkdir()
    llama_folder(tokenizer_only)
    for file in ("config.json", "model.safetensors", "generation_config.json"):
        (tokenizer_only / file).unlink()
    text.write_text("hello")
    expected = {
        empty: "has no config.json, so it is unknown what kind of model it is. Name the folder that holds one.",
        tokenizer_only: "has no config.json",
        text: "is not a kind of file that floatlens reads.",
        tmp_path / "absent": "There is no model",
    }
    for place, message in expected.items():
        for words in (["doctor", place], ["trace", "-m", place, "-p", "x", "-o", tmp_path / "out"]):
            code, _, errors = floatlens(*words)
            assert (code, message in " ".join(errors.split())) == (2, True), errors


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b"{}", b'{"model": {"type": "BPE", "vocab": {"a": -1}, "merges": []}}'])
def test_a_damaged_tokenizer_is_refused(content: bytes, tmp_path: Path) -> None:
    folder, _ = llama_folder(tmp_path)
    (folder / "tokenizer.json").write_bytes(content)
    said = refusal(fl.load, folder)
    assert re.match(r"^The tokenizer in .* cannot be loaded: .+\. Fetch its files again\.$", said), said


def test_a_model_without_its_tokenizer_takes_token_ids_only(tmp_path: Path) -> None:
    folder, _ = llama_folder(tmp_path)
    (folder / "tokenizer.json").unlink()
    lm = fl.load(folder)
    assert lm.generate([[5, 6]], gen_length=1, progress=False)
    assert "This model has no tokenizer, so it cannot read text." in refusal(lm.generate, "hello")


# -- weights -------------------------------------------------------------------------------------------------------------------------------


def changed(folder: Path, **tensors: torch.Tensor | None) -> Path:
    """The weights with some of them replaced, or left out; in names, __ is a dot."""
    weights = load_file(folder / "model.safetensors")
    named = {name.replace("__", "."): tensor for name, tensor in tensors.items()}
    kept = {name: tensor for name, tensor in (weights | named).items() if tensor is not None}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_weights_that_are_not_finite_are_refused(value: float, dtype: torch.dtype, tmp_path: Path) -> None:
    folder, _ = llama_folder(tmp_path)
    norm = torch.ones(32, dtype=dtype)
    norm[17] = value
    said = refusal(fl.load, changed(folder, model__norm__weight=norm))
    assert f"Tensor model.norm.weight of {folder} holds weights that are not finite (NaN or infinity)" in said


def test_weights_that_overflow_in_the_dtype_asked_for_are_refused(tmp_path: Path) -> None:
    folder, _ = llama_folder(tmp_path)
    changed(folder, model__norm__weight=torch.full((32,), 1e6))
    assert fl.load(folder).dtype == torch.float32
    assert "as torch.float16 at least" in refusal(fl.load, folder, dtype="float16")


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int64, torch.bool, torch.float8_e4m3fn])
@pytest.mark.parametrize("make", [llama_folder, bert_folder])
def test_weights_that_are_no_floating_point_numbers_are_refused(dtype: torch.dtype, make: Callable[[Path], Any], tmp_path: Path) -> None:
    folder, _ = make(tmp_path)
    name, tensor = next((name, tensor) for name, tensor in load_file(folder / "model.safetensors").items() if name.endswith(".weight"))
    said = refusal(fl.load, changed(folder, **{name.replace(".", "__"): tensor.to(dtype)}))
    assert re.search(
        r"^Tensor .*\.weight of .* is stored as [A-Z0-9_]+, and the config does not say how to turn that into numbers "
        r"\(quantization_config\)\. Use a checkpoint in one of "
        r"F64, F32, BF16, F16\.$",
        said,
    )
    assert "is stored as" in str(examine(folder).obstacle)


@pytest.mark.parametrize("shape", [(32, 31), (32,), (1, 32, 32), (0, 32), ()])
def test_a_tensor_of_another_shape_is_refused_in_stock_models_too(shape: tuple[int, ...], tmp_path: Path) -> None:
    folder, _ = llama_folder(tmp_path)
    said = refusal(fl.load, changed(folder, model__layers__1__self_attn__q_proj__weight=torch.ones(shape)))
    assert said == (
        f"{folder}: tensor model.layers.1.self_attn.q_proj.weight has shape {shape}, but the config asks for (32, 32). Config and "
        "weights do not belong together."
    )


def test_a_tensor_that_two_files_hold_is_refused(tmp_path: Path) -> None:
    folder = tiny_checkpoint("llada-8b-instruct", tmp_path)
    first, second = sorted(folder.glob("*.safetensors"))
    again = load_file(first)
    save_file(load_file(second) | {next(iter(again)): next(iter(again.values())) * 2}, second, metadata={"format": "pt"})
    assert "twice, the second time in model-00002-of-00002.safetensors; it is unclear which of the two is meant." in refusal(
        fl.load, folder
    )


def test_a_tensor_under_its_published_and_its_stock_name_is_refused(tmp_path: Path) -> None:
    folder = tiny_checkpoint("llada-8b-instruct", tmp_path)
    second = sorted(folder.glob("*.safetensors"))[1]
    save_file(load_file(second) | {"model.norm.weight": torch.ones(32)}, second, metadata={"format": "pt"})
    assert "holds the tensor model.norm.weight under two names, " in refusal(fl.load, folder)


def test_weights_under_another_name_than_an_index_gives_are_refused(tmp_path: Path) -> None:
    folder, _ = llama_folder(tmp_path)
    (folder / "model.safetensors").rename(folder / "weights.safetensors")
    assert "has weights.safetensors, but neither model.safetensors nor model.safetensors.index.json" in refusal(fl.load, folder)


@pytest.mark.parametrize("file", [3, None, ["model.safetensors"], "", {}])
def test_an_index_that_names_no_file_is_refused(file: Any, tmp_path: Path) -> None:
    folder, _ = llama_folder(tmp_path)
    write_json(folder / "model.safetensors.index.json", {"weight_map": {"lm_head.weight": file}})
    assert "does not say which file holds which tensor. Download it again." in refusal(fl.load, folder)
