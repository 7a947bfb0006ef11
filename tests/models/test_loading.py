"""Loading and saving: what is saved is what is loaded, other families, the model hub's cache, and memory."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from published_checkpoints import DENSE_KINDS, LLADA_KINDS, tensor_shapes, tiny_checkpoint, tiny_config, write_json, write_weights
from safetensors.torch import load_file, save_file
from small_checkpoints import CLS, MASK, SEP, WORDS, bert_folder, gpt2_folder, llama_folder, modernbert_folder
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM

import floatlens as fl
from floatlens.decoding.options import Decoding
from floatlens.decoding.plan import plan_writing

TOKENS = [5, 6, 7, 90, 91, 100, 8, 9]
TEXTS = ["the cat sat", "  two blanks, 42 and\n\nlines", "the<|endoftext|>cat"]


def logits(module: Any, tokens: list[int]) -> torch.Tensor:
    with torch.no_grad():
        return module(torch.tensor([tokens])).logits[0]


@pytest.mark.parametrize("kind", DENSE_KINDS)
def test_a_saved_model_is_the_same_model_for_transformers_and_for_floatlens(kind: str, tmp_path: Path) -> None:
    lm = fl.load(tiny_checkpoint(kind, tmp_path / "published"), dtype="float32")
    lm.save(tmp_path / "saved")
    names = [name for file in (tmp_path / "saved").glob("*.safetensors") for name in load_file(file)]
    assert names
    assert not [name for name in names if "transformer" in name or "blocks" in name]
    expected = logits(lm.module, TOKENS)

    loaded: Any = AutoModelForCausalLM.from_pretrained(tmp_path / "saved", output_loading_info=True)
    stock, read = loaded
    assert not read["missing_keys"]
    assert not read["unexpected_keys"]
    assert torch.equal(logits(stock.eval(), TOKENS), expected)

    again = fl.load(tmp_path / "saved")
    assert torch.equal(logits(again.module, TOKENS), expected)
    for said in ("family", "sampler", "row_offset", "mask_token_id", "end_tokens", "suffix", "sampler_defaults", "dtype"):
        assert getattr(again, said) == getattr(lm, said), said
    for text in TEXTS:
        assert again.encode(text) == lm.encode(text)
        assert again.encode(text, chat=False) == lm.encode(text, chat=False)
    assert again.generate(TEXTS, gen_length=8, progress=False) == lm.generate(TEXTS, gen_length=8, progress=False)


@pytest.mark.parametrize("kind", LLADA_KINDS)
def test_a_saved_llada_still_rotates_in_float32(kind: str, tmp_path: Path) -> None:
    lm = fl.load(tiny_checkpoint(kind, tmp_path / "published"))
    lm.save(tmp_path / "saved")
    text = TOKENS * 12
    expected = logits(lm.module, text)
    assert torch.equal(logits(fl.load(tmp_path / "saved").module, text), expected)
    stock = AutoModelForCausalLM.from_pretrained(tmp_path / "saved").eval()
    assert stock.dtype == torch.bfloat16
    assert not torch.equal(logits(stock, text), expected)  # so the comparison above can tell


def test_saving_twice_changes_nothing(tmp_path: Path) -> None:
    lm = fl.load(tiny_checkpoint("llada-8b-instruct", tmp_path / "published"))
    lm.save(tmp_path / "one")
    fl.load(tmp_path / "one").save(tmp_path / "two")
    first, second = (load_file(tmp_path / name / "model.safetensors") for name in ("one", "two"))
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert json.loads((tmp_path / "one" / "config.json").read_text()) == json.loads((tmp_path / "two" / "config.json").read_text())


def test_saving_does_not_replace_weights_that_are_there(tmp_path: Path) -> None:
    folder = tiny_checkpoint("llada-8b-instruct", tmp_path)
    lm = fl.load(folder)
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    with pytest.raises(fl.Refusal, match=r"^.* exists already, and nothing is overwritten\. Choose another name, or remove it\.$"):
        lm.save(folder)
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", torch.float64])
def test_weights_are_converted_to_the_dtype_that_is_asked_for(dtype: Any, tmp_path: Path) -> None:
    lm = fl.load(tiny_checkpoint("dream-7b-instruct", tmp_path), dtype=dtype, device="cpu")
    wanted = dtype if isinstance(dtype, torch.dtype) else getattr(torch, dtype)
    assert {tensor.dtype for tensor in lm.module.state_dict().values()} == {wanted}


def test_a_mask_token_that_is_given_wins(tmp_path: Path) -> None:
    folder = tiny_checkpoint("dream-7b-instruct", tmp_path)
    assert fl.load(folder, mask_token_id=7).mask_token_id == 7


# -- autoregressive ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("write", [llama_folder, gpt2_folder])
def test_an_autoregressive_model_writes_what_transformers_writes(write: Any, tmp_path: Path) -> None:
    folder, module = write(tmp_path)
    lm = fl.load(folder)
    assert (lm.family, lm.sampler, lm.mask_token_id, lm.predicting_row(3)) == ("autoregressive", "autoregressive", None, 2)
    prompt = [5, 9, 22]
    expected = module.generate(torch.tensor([prompt]), max_new_tokens=6, do_sample=False, pad_token_id=0)[0, 3:].tolist()
    (written,) = lm.generate([prompt], gen_length=6, progress=False)
    assert written.tokens == expected
    one, other = (logits(lm.module, [5, 9, last]) for last in (22, 23))
    assert torch.equal(one[:2], other[:2])


def test_an_autoregressive_model_is_saved_and_reloaded(tmp_path: Path) -> None:
    lm = fl.load(llama_folder(tmp_path)[0])
    lm.save(tmp_path / "saved")
    again = fl.load(tmp_path / "saved")
    assert (again.family, again.sampler, again.row_offset, again.end_tokens) == ("autoregressive", "autoregressive", 1, (113,))
    assert again.generate("the cat", gen_length=5, progress=False) == lm.generate("the cat", gen_length=5, progress=False)


# -- masked language models -------------------------------------------------------------------------------------------------------------

MASKED = [bert_folder, modernbert_folder]


@pytest.mark.parametrize("write", MASKED)
def test_a_masked_language_model_keeps_its_closing_token_after_the_masks(write: Any, tmp_path: Path) -> None:
    folder, _ = write(tmp_path)
    lm = fl.load(folder)
    assert (lm.family, lm.mask_token_id, lm.suffix, lm.end_tokens) == ("masked-lm", MASK, (SEP,), ())
    encoded = lm.encode("the cat")
    assert encoded.tokens == [CLS, WORDS.index("the"), WORDS.index("cat")]
    plan = plan_writing(lm, "the cat", Decoding(gen_length=3))
    (batch,) = plan.batches()
    canvas = plan.canvas(batch)
    assert canvas.tokens.tolist() == [[*encoded.tokens, MASK, MASK, MASK, SEP]]
    steps = list(plan.loop(lm.run_pass, canvas))
    assert len(steps) == 3
    assert all(step.asked.tokens[0, -1] == SEP for step in steps)
    assert canvas.tokens[0, -1] == SEP
    (written,) = lm.generate("the cat", gen_length=3, progress=False)
    assert written.tokens == canvas.tokens[0, 3:6].tolist()
    assert MASK not in written.tokens


@pytest.mark.parametrize("write", MASKED)
def test_a_mask_inside_a_text_is_filled_with_the_most_probable_token(write: Any, tmp_path: Path) -> None:
    folder, module = write(tmp_path)
    (written,) = fl.load(folder).generate("the [MASK] sat", gen_length=0, progress=False)
    text = [CLS, WORDS.index("the"), MASK, WORDS.index("sat"), SEP]
    assert written.tokens == [int(logits(module, text)[2].argmax())]


@pytest.mark.parametrize("write", MASKED)
def test_a_masked_language_model_computes_what_transformers_computes(write: Any, tmp_path: Path) -> None:
    folder, module = write(tmp_path)
    lm = fl.load(folder)
    assert torch.equal(logits(lm.module, [2, 5, 4, 7, 3]), logits(module, [2, 5, 4, 7, 3]))
    lm.save(tmp_path / "saved")
    again = fl.load(tmp_path / "saved")
    assert (again.family, again.mask_token_id, again.suffix) == ("masked-lm", MASK, (SEP,))
    assert again.generate("the cat", gen_length=3, progress=False) == lm.generate("the cat", gen_length=3, progress=False)
    stock = AutoModelForMaskedLM.from_pretrained(tmp_path / "saved").eval()
    assert torch.equal(logits(stock, [2, 5, 4, 7, 3]), logits(module, [2, 5, 4, 7, 3]))


@pytest.mark.parametrize("write", MASKED)
def test_other_surplus_tensors_of_a_masked_language_model_are_refused(write: Any, tmp_path: Path) -> None:
    folder, _ = write(tmp_path)
    tensors = load_file(folder / "model.safetensors")
    save_file(tensors | {"adapter.down.weight": torch.ones(2, 2)}, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(
        fl.Refusal, match=r"do not fit its config: 1 that the model has no place for \(adapter\.down\.weight\)\. Nothing was loaded"
    ):
        fl.load(folder)


@pytest.mark.parametrize("write", [llama_folder, gpt2_folder, *MASKED])
def test_a_tensor_missing_from_a_stock_model_is_refused(write: Any, tmp_path: Path) -> None:
    folder, _ = write(tmp_path)
    tensors = load_file(folder / "model.safetensors")
    dropped = next(name for name in tensors if "1." in name and tensors[name].dim() == 2)
    save_file(
        {name: tensor for name, tensor in tensors.items() if name != dropped}, folder / "model.safetensors", metadata={"format": "pt"}
    )
    with pytest.raises(fl.Refusal, match=r"do not fit its config: 1 missing \(\S+\)\. Nothing was loaded"):
        fl.load(folder)


# -- the hub's cache --------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty hub cache, and no network."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


def test_a_hub_model_on_this_machine_loads_without_the_network_and_says_its_revision(hub: Path) -> None:
    commit = "0123456789abcdef0123456789abcdef01234567"
    stored = hub / "models--some-lab--tiny-dream"
    tiny_checkpoint("dream-7b-instruct", stored / "snapshots" / commit)
    (stored / "refs").mkdir()
    (stored / "refs" / "main").write_text(commit)
    for revision in (None, "main", commit):
        lm = fl.load("some-lab/tiny-dream", revision=revision)
        assert (lm.name, lm.revision, lm.family) == ("some-lab/tiny-dream", commit, "dream")
    with pytest.raises(fl.Refusal, match=r"some-lab/tiny-dream .*cannot be reached"):
        fl.load("some-lab/tiny-dream", revision="v2")


@pytest.mark.usefixtures("hub")
def test_a_hub_model_that_is_neither_here_nor_reachable_is_refused() -> None:
    message = (
        r"^some-lab/absent is not on this machine, and the model hub cannot be reached\. Connect, or copy the model here and give the path"
    )
    with pytest.raises(fl.Refusal, match=message):
        fl.load("some-lab/absent")


# -- memory -----------------------------------------------------------------------------------------------------------------------------

MEASURE = """
import pathlib, re, sys
import floatlens as fl
from floatlens.decoding.options import Decoding
from floatlens.decoding.plan import plan_writing

def peak():  # not getrusage: what it says begins with the peak of the process that started this one
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", pathlib.Path("/proc/self/status").read_text())[1]) * 1024

fl.load(sys.argv[1]).generate([[1, 2]], gen_length=1, progress=False)  # imports, kernels
before = peak()
weights = fl.load(sys.argv[2], dtype=sys.argv[3]).module.state_dict().values()
assert all(float(tensor.sum()) == 0 for tensor in weights)  # read all: a mapped file is in memory once it is read
print((peak() - before) / sum(tensor.nbytes for tensor in weights))
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from Linux")
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_a_model_never_exists_twice_in_memory(dtype: str, tmp_path: Path) -> None:
    config = tiny_config("llada-8b-instruct") | {"d_model": 1024, "mlp_hidden_size": 3072, "n_layers": 10}
    shapes = tensor_shapes("llada-8b-instruct", config)
    (tmp_path / "large").mkdir()
    write_weights(tmp_path / "large", {name: torch.zeros(shape, dtype=torch.bfloat16) for name, shape in shapes.items()})
    write_json(tmp_path / "large" / "config.json", config)
    assert sum(file.stat().st_size for file in (tmp_path / "large").glob("*.safetensors")) > 250e6
    tiny_checkpoint("llada-8b-instruct", tmp_path / "tiny", tokenizer=False)
    command = [sys.executable, "-c", MEASURE, tmp_path / "tiny", tmp_path / "large", dtype]
    measured = subprocess.run(command, capture_output=True, text=True, check=True)
    assert 0.8 < float(measured.stdout) < 1.6  # the file's pages may count beside what they are converted to
