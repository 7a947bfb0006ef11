"""Adapters: merging equals what was trained and what peft merges, files hold them, and another base is refused."""

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from adapt_data import STORIES, stories_model, tiny_module
from safetensors.torch import save_file
from transformers import GPT2Config, GPT2LMHeadModel

import floatlens as fl
from floatlens.decoding.canvas import Pass
from floatlens.errors import Refusal
from floatlens.lab.adaptation.adapter import attach, mask_token_of, refuse_model
from floatlens.lab.adaptation.objective import Predictor
from floatlens.models.adapters import Adapter, AdapterInfo, merge_adapter, read_adapter, weights_sha256, write_adapter

MASK = 63
TOKENS = torch.tensor([5, 9, MASK, 4, 7, MASK, 33, 2])
INFO = AdapterInfo("tiny", "", "lora+norms", 4, 8.0, "diffusion", "bidirectional", MASK, 0, 16)


def trained(module: Any, trains: str = "lora+norms") -> dict[str, torch.nn.Parameter]:
    """An adapter whose every parameter was moved."""
    parameters = attach(module, trains, rank=4, alpha=8.0, seed=0)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weights in parameters.values():
            weights += 0.1 * torch.randn(weights.shape, generator=generator)
    return parameters


def logits_of(module: Any) -> torch.Tensor:
    with torch.no_grad():
        return module(input_ids=TOKENS[None]).logits[0]


@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("trains", ["lora", "lora+norms", "all"])
@pytest.mark.parametrize("tied", [True, False])
def test_a_merged_model_computes_what_was_trained(kind: str, trains: str, tied: bool) -> None:
    module = tiny_module(kind, tied=tied)
    parameters = trained(module, trains)
    predictor = Predictor(module, parameters["mask_offset"], MASK, "bidirectional")
    with torch.no_grad():
        expected = predictor.logits(TOKENS, torch.arange(len(TOKENS)))
    merged = merge_adapter(tiny_module(kind, tied=tied), Adapter(replace(INFO, trains=trains), parameters))
    torch.testing.assert_close(logits_of(merged)[:, :MASK], expected[:, :MASK], rtol=1e-4, atol=1e-4)
    assert type(merged) is type(tiny_module(kind))  # a stock class


@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3"])
def test_merging_equals_the_merge_of_peft(kind: str) -> None:
    peft = pytest.importorskip("peft", reason="peft is not installed (the extra train)")
    parameters = trained(tiny_module(kind), "lora")
    parameters["mask_offset"].data.zero_()
    maps = [name.removeprefix("lora_a.") for name in parameters if name.startswith("lora_a.")]
    config = peft.LoraConfig(r=4, lora_alpha=8.0, target_modules=maps, lora_dropout=0.0)
    theirs = peft.get_peft_model(tiny_module(kind), config)
    own = dict(theirs.named_parameters())
    with torch.no_grad():
        for name in maps:
            own[f"base_model.model.{name}.lora_A.default.weight"].copy_(parameters[f"lora_a.{name}"])
            own[f"base_model.model.{name}.lora_B.default.weight"].copy_(parameters[f"lora_b.{name}"])
    merged_by_peft = dict(theirs.merge_and_unload().named_parameters())
    merged = merge_adapter(tiny_module(kind), Adapter(replace(INFO, trains="lora"), parameters))
    untouched = dict(tiny_module(kind).named_parameters())
    for name, weights in merged.named_parameters():
        torch.testing.assert_close(weights, merged_by_peft[name], rtol=0, atol=1e-6)
        assert any(name.startswith(place) for place in maps) == (not torch.equal(weights, untouched[name])) or name.endswith("bias")


def test_before_training_an_adapter_changes_nothing() -> None:
    module = tiny_module()
    expected = logits_of(tiny_module())
    attach(module, "lora+norms", rank=4, alpha=8.0, seed=0)
    assert torch.equal(logits_of(module), expected)


def test_the_offset_of_the_mask_changes_what_is_read_and_not_what_is_written() -> None:
    parameters = {name: weights for name, weights in trained(tiny_module()).items() if name == "mask_offset"}
    adapter = Adapter(replace(INFO, trains="all"), parameters)
    base: Any = tiny_module()
    merged: Any = merge_adapter(tiny_module(), adapter)
    assert torch.equal(merged.lm_head.weight, base.lm_head.weight)
    changed = (merged.get_input_embeddings().weight != base.get_input_embeddings().weight).any(-1)
    assert changed.nonzero().flatten().tolist() == [MASK]


def test_a_file_holds_an_adapter_in_float16_and_what_it_belongs_to(tmp_path: Path) -> None:
    adapter = Adapter(INFO, trained(tiny_module()))
    write_adapter(tmp_path / "a.safetensors", adapter)
    read = read_adapter(tmp_path / "a.safetensors")
    assert read.info == INFO
    assert {tensor.dtype for tensor in read.tensors.values()} == {torch.float16}
    for name, tensor in read.tensors.items():
        assert torch.equal(tensor, adapter.tensors[name].half())
    merged = merge_adapter(tiny_module(), read)
    exact = merge_adapter(tiny_module(), adapter)
    assert (logits_of(merged) - logits_of(exact)).abs().max() < 0.1


def test_what_is_no_adapter_or_is_one_for_another_model_is_refused(tmp_path: Path) -> None:
    save_file({"x": torch.zeros(1)}, tmp_path / "other.safetensors")
    with pytest.raises(Refusal, match="is not an adapter"):
        read_adapter(tmp_path / "other.safetensors")
    parameters = trained(tiny_module())
    for change, words in (
        ({"lora_a.model.layers.9.mlp.up_proj": torch.zeros(4, 32)}, "has no place for"),
        ({"gain.model.norm": torch.zeros(8)}, "has the shape"),
        ({"lora_b.model.layers.0.mlp.up_proj": torch.zeros(7, 4)}, "has the shape"),
    ):
        with pytest.raises(Refusal, match=words):
            merge_adapter(tiny_module(), Adapter(INFO, {**parameters, **change}))
    whole = {name: weights for name, weights in parameters.items() if "layers.1.mlp.up_proj" not in name}
    with pytest.raises(Refusal, match="has no parameters for"):
        merge_adapter(tiny_module(), Adapter(INFO, whole))


@pytest.fixture
def adapter_file(tmp_path: Path) -> Path:
    """An adapter of stories260K whose mask token, if it could be written, would be the likeliest."""
    lm = stories_model()
    mask_token = mask_token_of(lm, "<0x01>")
    parameters = attach(stories_model().module, "lora", rank=2, alpha=4.0, seed=0)
    parameters["mask_offset"].data.fill_(0.1)
    info = replace(
        INFO, trains="lora", rank=2, alpha=4.0, mask_token_id=mask_token, base=str(STORIES), base_sha256=weights_sha256(lm.module)
    )
    write_adapter(tmp_path / "adapter.safetensors", Adapter(info, parameters))
    return tmp_path / "adapter.safetensors"


@pytest.mark.parametrize("of_folder", [True, False])
def test_an_adapter_is_loaded_as_a_diffusion_model_that_is_saved_and_loaded_again(
    adapter_file: Path, tmp_path: Path, of_folder: bool
) -> None:
    lm = fl.load(adapter_file.parent if of_folder else adapter_file)
    mask_token = read_adapter(adapter_file).info.mask_token_id
    assert (lm.family, lm.sampler, lm.row_offset, lm.mask_token_id, lm.config.is_causal) == ("adapted", "llada", 1, mask_token, False)
    assert lm.revision == hashlib.sha256(adapter_file.read_bytes()).hexdigest()[:16]
    written = lm.generate("Once upon a time", gen_length=8, progress=False)[0]
    lm.save(tmp_path / "saved")
    again = fl.load(tmp_path / "saved")
    assert (again.family, again.row_offset, again.never_written) == ("adapted", 1, (mask_token,))
    assert again.generate("Once upon a time", gen_length=8, progress=False)[0].tokens == written.tokens
    half = fl.load(adapter_file, dtype="bfloat16")  # merged in float32 first
    assert half.dtype == torch.bfloat16
    assert torch.equal(half.module.get_input_embeddings().weight, lm.module.get_input_embeddings().weight.bfloat16())  # type: ignore[operator]


def test_the_objective_ar_gives_an_autoregressive_model(adapter_file: Path) -> None:
    adapter = read_adapter(adapter_file)
    write_adapter(adapter_file, Adapter(replace(adapter.info, objective="ar", mask="causal"), adapter.tensors))
    lm = fl.load(adapter_file)
    assert (lm.sampler, lm.row_offset, lm.mask_token_id, lm.config.is_causal) == ("autoregressive", 1, None, True)


@pytest.mark.parametrize("objective", ["ar", "diffusion"])
def test_the_mask_token_is_never_written_and_has_no_likelihood(adapter_file: Path, objective: str) -> None:
    adapter = read_adapter(adapter_file)
    write_adapter(adapter_file, Adapter(replace(adapter.info, objective=objective, mask="causal"), adapter.tensors))
    lm, mask_token = fl.load(adapter_file), adapter.info.mask_token_id
    with torch.no_grad():  # such that it would be written
        head: Any = lm.module.get_output_embeddings()  # type: ignore[operator]
        head.weight[mask_token] = 2 * head.weight[lm.module(input_ids=torch.tensor([[1, 5, 9]])).logits[0, -1].argmax()]
        assert lm.module(input_ids=torch.tensor([[1, 5, 9]])).logits[0, -1].argmax() == mask_token
    written = lm.generate([[1, 5, 9]], gen_length=8, progress=False)[0]
    assert mask_token not in written.tokens
    tokens = torch.tensor([[1, 5, 9]])
    real = torch.ones_like(tokens, dtype=torch.bool)
    logits = lm.run_pass(Pass([0], tokens, real, ~real, None))
    assert logits[..., mask_token].isneginf().all()
    assert logits.isfinite().sum() == logits.numel() - 3


def test_an_adapter_of_another_base_or_of_an_adapter_is_refused(adapter_file: Path) -> None:
    adapter = read_adapter(adapter_file)
    write_adapter(adapter_file, Adapter(replace(adapter.info, base_sha256="another"), adapter.tensors))
    with pytest.raises(Refusal, match="other weights"):
        fl.load(adapter_file)
    write_adapter(adapter_file, adapter)
    second = adapter_file.with_name("second.safetensors")
    write_adapter(second, Adapter(replace(adapter.info, base=str(adapter_file)), adapter.tensors))
    with pytest.raises(Refusal, match="which is one itself"):
        fl.load(second)
    with pytest.raises(Refusal, match="loaded as the family 'adapted', not 'llada'"):
        fl.load(adapter_file, family="llada")


def test_doctor_examines_an_adapter(adapter_file: Path) -> None:
    from floatlens.models.doctor import examine

    examined = examine(adapter_file)
    assert (examined.family, examined.sampler, examined.row_offset, examined.obstacle) == ("adapted", "llada", 1, None)
    assert examined.runs_as.endswith("bidirectional")


def test_models_of_other_kinds_and_masks_that_cannot_be_are_refused() -> None:
    gpt2 = GPT2LMHeadModel(GPT2Config(n_embd=8, n_layer=1, n_head=1, vocab_size=16))
    how: dict[str, Any] = {"family": "autoregressive", "sampler": "autoregressive", "row_offset": 1}
    with pytest.raises(Refusal, match="is a gpt2 model"):
        refuse_model(fl.LanguageModel(gpt2, name="gpt2", **how))
    lm = stories_model()
    with pytest.raises(Refusal, match="writes with the sampler 'llada'"):
        refuse_model(replace(lm, sampler="llada", mask_token_id=4))
    with pytest.raises(Refusal, match="has no tokenizer"):
        refuse_model(replace(lm, tokenizer=None))
    with pytest.raises(Refusal, match="has no token '<nothing>'"):
        mask_token_of(lm, "<nothing>")
    end = lm.tokenizer.convert_ids_to_tokens(lm.end_tokens[0])
    with pytest.raises(Refusal, match="is an end token"):
        mask_token_of(lm, end)
