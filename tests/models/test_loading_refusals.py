"""What cannot be loaded is refused: one sentence says what is wrong and one what to do, before weights are read if possible."""

import json
import os
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from published_checkpoints import (
    DENSE_KINDS,
    facts,
    published_config,
    tensor_shapes,
    tiny_checkpoint,
    tiny_config,
    tiny_id,
    tiny_tensors,
    write_hollow_weights,
    write_json,
    write_weights,
)
from safetensors.torch import load_file
from small_checkpoints import MASK, bert_folder, llama_folder

import floatlens as fl
from floatlens.models.checkpoint import Checkpoint
from floatlens.models.families import FAMILIES


def refused(message: str, name: Any, **options: Any) -> None:
    """The whole message is one line that matches, and ends a sentence."""
    with pytest.raises(fl.Refusal) as refusal:
        fl.load(name, **options)
    said = str(refusal.value)
    assert re.search(message, said), said
    assert "\n" not in said


def edit_json(file: Path, **fields: Any) -> None:
    write_json(file, json.loads(file.read_text()) | fields)


@pytest.fixture
def llada(tmp_path: Path) -> Path:
    return tiny_checkpoint("llada-8b-instruct", tmp_path / "llada")


# -- names ------------------------------------------------------------------------------------------------------------------------------


def test_a_wrong_name_is_refused_with_the_closest_right_one() -> None:
    refused(r"^There is no model 'smollm-135': it is neither bundled, .* Did you mean 'smollm2-135m'\?$", "smollm-135")
    refused(
        r"^There is no model 'zzz': .* nor a hub name of the form owner/name\. Bundled: smollm2-135m, antiberty, twin-arm, twin-mdm, "
        r"twin-causal-mdm, smollm2-arm, smollm2-causal-mdm, smollm2-mdm\.$",
        "zzz",
    )


@pytest.mark.parametrize("path", ["./absent", "../absent", "/absent/model", "a/b/c", "~/absent-model/of/mine", "absent folder/model"])
def test_a_path_that_does_not_exist_is_refused_as_one(path: str) -> None:
    refused(rf"^There is no model '{path}': it is neither bundled, nor a folder or file here", path)


def test_a_path_object_that_does_not_exist_is_refused_as_one(tmp_path: Path) -> None:
    refused(r"^There is no model '.*/absent': it is neither bundled, nor a folder or file here", tmp_path / "absent")


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").touch()
    refused(r"model\.onnx is not a kind of file that floatlens reads\. It reads checkpoint folders", tmp_path / "model.onnx")


@pytest.mark.parametrize(("option", "message"), [
    ({"family": "lada"}, r"^There is no family 'lada'\. There are: twin, adapted, remote, llada, dream, sdar, a2d, "),
    ({"dtype": "int8"}, r"^dtype='int8' is not known; choose one of float64, float32, bfloat16, float16\."),
])  # fmt: skip
def test_an_option_that_does_not_exist_is_refused_with_those_that_do(option: dict[str, str], message: str, llada: Path) -> None:
    refused(message, llada, **option)


# -- configs ----------------------------------------------------------------------------------------------------------------------------


def test_a_folder_without_a_config_is_refused(llada: Path) -> None:
    (llada / "config.json").unlink()
    refused(r"llada has no config\.json, so it is unknown what kind of model it is\. Name the folder that holds one\.$", llada)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"model_type": "llada",', r"^config\.json of .*llada is not JSON: .*\. Fetch the file again\.$"),
        ("", r"^config\.json of .*llada is not JSON: .*\. Fetch the file again\.$"),
        (b"\xff\xfe\x00{", r"^config\.json of .*llada is not JSON: .*\. Fetch the file again\.$"),
        ("[1]", r"^config\.json of .*llada holds a list, not an object\. Fetch the file again\.$"),
    ],
)
def test_a_broken_config_is_refused(content: str | bytes, message: str, llada: Path) -> None:
    (llada / "config.json").write_bytes(content if isinstance(content, bytes) else content.encode())
    refused(message, llada)


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        ("llada-8b-instruct", "alibi", True),
        ("llada-8b-instruct", "block_type", "sequential"),
        ("llada-8b-instruct", "scale_logits", True),
        ("llada-8b-instruct", "input_emb_norm", True),
        ("llada-8b-instruct", "attention_layer_norm", True),
        ("llada-8b-instruct", "include_bias", True),
        ("llada-8b-instruct", "include_qkv_bias", True),
        ("llada-8b-instruct", "multi_query_attention", True),
        ("llada-8b-instruct", "layer_norm_type", "default"),
        ("llada-8b-instruct", "activation_type", "swiglu"),
        ("llada-8b-instruct", "rope", False),
        ("llada-8b-instruct", "rope_full_precision", False),
        ("dream-7b-instruct", "use_mrope", True),
        ("dream-7b-instruct", "use_sliding_window", True),
        ("sdar-1.7b-chat", "use_sliding_window", True),
        ("a2d-qwen3-0.6b", "use_sliding_window", True),
    ],
)
def test_a_config_that_asks_for_another_computation_is_refused(kind: str, field: str, value: Any, tmp_path: Path) -> None:
    folder = tiny_checkpoint(kind, tmp_path, **{field: value})
    refused(
        rf"says {field}={value!r}; this adapter is right for {field}=.* only, and would give plausible but wrong numbers\. Ask for support",
        folder,
    )


@pytest.mark.parametrize("kind", DENSE_KINDS)
def test_a_config_field_that_is_not_known_is_refused(kind: str, tmp_path: Path) -> None:
    folder = tiny_checkpoint(kind, tmp_path, attention_temperature=0.5, yet_another=1)
    refused(
        r"has a field this adapter does not know: attention_temperature=0\.5 \(and 1 more\)\. It could change what the model computes",
        folder,
    )


def test_a_config_without_sizes_is_refused(tmp_path: Path) -> None:
    folder = tiny_checkpoint("llada-8b-instruct", tmp_path)
    write_json(folder / "config.json", facts("llada-1.5", "config.json"))
    refused(r"does not say d_model, n_heads, n_layers, vocab_size, which LLaDA's configs do\. Fetch config\.json again\.$", folder)


def test_sdar_with_experts_is_refused_by_name(tmp_path: Path) -> None:
    folder = tiny_checkpoint("sdar-1.7b-chat", tmp_path, model_type="sdar_moe", num_experts=128)
    refused(
        r"is an SDAR with a mixture of experts, which floatlens does not run .* The dense SDAR models \(1\.7B, 4B, 8B\) are supported\.$",
        folder,
    )


@pytest.mark.parametrize(("kind", "model_class"), [("llada-moe-7b", "LLaDAMoEModelLM"), ("llada2-mini", "LLaDA2MoeModelLM")])
def test_mixtures_of_experts_need_trust_although_they_call_themselves_llada(kind: str, model_class: str, tmp_path: Path) -> None:
    config = facts(kind, "config.json")
    assert next(family.name for family in FAMILIES.values() if family.recognises(config)) == "remote"
    write_json(tmp_path / "config.json", config)
    write_weights(tmp_path, {"model.norm.weight": torch.ones(2), "lm_head.weight": torch.ones(2, 2)})
    refused(
        rf"\({model_class}\) runs only with code that comes with the checkpoint\. If you trust where it comes from, pass "
        rf"trust_remote_code=True",
        tmp_path,
    )


def test_a_model_type_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    folder, _ = llama_folder(tmp_path)
    edit_json(folder / "config.json", model_type="florb")
    refused(r"^transformers knows no model_type 'florb', which the config of .* names\. Correct it, or update transformers\.$", folder)
    edit_json(folder / "config.json", auto_map={"AutoModelForCausalLM": "modeling_florb.Florb"})
    refused(
        r"\(model_type 'florb'\) runs only with code that comes with the checkpoint\. If you trust it, pass trust_remote_code=True", folder
    )


def test_a_bidirectional_stock_model_must_say_how_it_writes(tmp_path: Path) -> None:
    folder, _ = llama_folder(tmp_path)
    edit_json(folder / "config.json", is_causal=False)
    refused(r"is bidirectional \(is_causal is false\), and its config does not say how it writes\. Name its family: family='llada'", folder)


def test_a_model_that_does_not_write_is_refused(tmp_path: Path) -> None:
    folder, _ = llama_folder(tmp_path)
    write_json(folder / "config.json", {"model_type": "vit", "architectures": ["ViTForImageClassification"]})
    refused(r"\(model_type 'vit'\) is not a language model that writes text from left to right\.$", folder)


def test_a_model_saved_by_a_version_with_other_families_is_refused(tmp_path: Path) -> None:
    folder, _ = llama_folder(tmp_path)
    edit_json(folder / "config.json", floatlens={"family": "mercury"})
    refused(r"was saved as family 'mercury', which this version does not know\. Update floatlens\.$", folder)


# -- the mask token ---------------------------------------------------------------------------------------------------------------------


def test_a_model_without_a_mask_token_is_refused(tmp_path: Path) -> None:
    folder = tiny_checkpoint("a2d-qwen3-0.6b", tmp_path)
    said = json.loads((folder / "tokenizer_config.json").read_text())
    del said["mask_token"]
    write_json(folder / "tokenizer_config.json", said)
    (folder / "special_tokens_map.json").unlink()
    refused(
        r"^Neither the config nor the tokenizer of .* names a mask token, and a a2d model cannot write without one\. Pass mask_token_id=",
        folder,
    )
    assert fl.load(folder, mask_token_id=tiny_id("a2d-qwen3-0.6b", "<|mask|>")).mask_token_id == tiny_id("a2d-qwen3-0.6b", "<|mask|>")
    for file in ("tokenizer.json", "vocab.json"):
        (folder / file).unlink()
    refused(r"^Neither the config nor the tokenizer of .* names a mask token", folder)


def test_a_masked_language_model_without_a_mask_is_refused(tmp_path: Path) -> None:
    folder, _ = bert_folder(tmp_path)
    (folder / "vocab.txt").unlink()
    refused(r"^Neither the config nor the tokenizer of .* names a mask token, and a masked-lm model cannot write without one", folder)
    assert fl.load(folder, mask_token_id=MASK).mask_token_id == MASK


@pytest.mark.parametrize("kind", ["llada-8b-instruct", "dream-7b-instruct", "sdar-1.7b-chat"])
def test_a_tokenizer_that_does_not_know_the_mask_token_is_refused(kind: str, tmp_path: Path) -> None:
    folder = tiny_checkpoint(kind, tmp_path, mask_token_id=150)  # in the embedding, beyond the tokenizer
    refused(
        r"^The tokenizer of .* has no token 150, which its config calls the mask\. Its files do not belong together; fetch the tokenizer "
        r"again",
        folder,
    )


@pytest.mark.parametrize("token", [160, 126336, -1])
def test_a_mask_token_outside_the_vocabulary_is_refused(token: int, tmp_path: Path) -> None:
    folder = tiny_checkpoint("llada-8b-instruct", tmp_path, mask_token_id=token)
    refused(rf"^The mask token of .* is {token}, but its vocabulary has 160 tokens\. Pass the right one as mask_token_id=", folder)


def test_a_mask_token_added_beyond_the_embedding_is_refused(tmp_path: Path) -> None:
    config = tiny_config("a2d-llama") | {"vocab_size": tiny_id("a2d-llama", "<|mask|>")}
    tiny_checkpoint("a2d-llama", tmp_path)
    write_weights(tmp_path, tiny_tensors("a2d-llama", config))
    write_json(tmp_path / "config.json", config)
    refused(r"^The mask token of .* is 115, but its vocabulary has 115 tokens\.", tmp_path)


# -- weights ----------------------------------------------------------------------------------------------------------------------------


def test_a_folder_without_weights_is_refused(llada: Path) -> None:
    for file in llada.glob("*safetensors*"):
        file.unlink()
    refused(r"has no weights: there is no \.safetensors file in ", llada)


def test_pickled_weights_are_opened_only_if_the_caller_allows_it(tmp_path: Path) -> None:
    expected = fl.load(tiny_checkpoint("llada-8b-instruct", tmp_path / "safe")).module.state_dict()
    folder = tiny_checkpoint("llada-8b-instruct", tmp_path / "pickled")
    tensors = {name: tensor for file in sorted(folder.glob("*.safetensors")) for name, tensor in load_file(file).items()}
    for file in folder.glob("*safetensors*"):
        file.unlink()
    torch.save(tensors, folder / "pytorch_model.bin")
    refused(
        r"has only pickled weights \(pytorch_model\.bin\), which can run any code when they are opened\. Convert them .* allow_pickle=True",
        folder,
    )
    loaded = fl.load(folder, allow_pickle=True).module.state_dict()
    assert loaded.keys() == expected.keys()
    assert all(torch.equal(loaded[name], expected[name]) for name in expected)


@pytest.mark.parametrize("kind", DENSE_KINDS)
def test_a_missing_tensor_is_refused(kind: str, tmp_path: Path) -> None:
    config = tiny_config(kind)
    tensors = tiny_tensors(kind, config)
    lost = next(name for name in tensors if "1." in name and "up_proj" in name)
    folder = tiny_checkpoint(kind, tmp_path)
    write_weights(folder, {name: tensor for name, tensor in tensors.items() if name != lost})
    refused(
        r"do not fit its config: 1 missing \(model\.layers\.1\.mlp\.up_proj\.weight\)\. Nothing was loaded; check that config and weights",
        folder,
    )


@pytest.mark.parametrize("kind", DENSE_KINDS)
def test_a_surplus_tensor_is_refused(kind: str, tmp_path: Path) -> None:
    folder = tiny_checkpoint(kind, tmp_path)
    tensors = tiny_tensors(kind, tiny_config(kind))
    gate = next(name for name in tensors if "1." in name and "up_proj" in name)
    write_weights(folder, tensors | {gate.replace("up_proj", "up_gate"): torch.ones(2)})
    refused(
        rf"do not fit its config: 1 that the model has no place for \({re.escape(gate.replace('up_proj', 'up_gate'))}\)\. Nothing was "
        rf"loaded",
        folder,
    )


@pytest.mark.parametrize("kind", DENSE_KINDS)
def test_a_layer_more_than_the_config_says_is_refused(kind: str, tmp_path: Path) -> None:
    config = tiny_config(kind)
    layers = "n_layers" if "n_layers" in config else "num_hidden_layers"
    changed: dict[str, Any] = {layers: 1}
    folder = tiny_checkpoint(kind, tmp_path, **changed)
    refused(r"do not fit its config: \d+ that the model has no place for \(model\.\S+\.1\.\S+, ", folder)
    edit_json(folder / "config.json", **{layers: 3})
    refused(r"do not fit its config: \d+ missing \(model\.layers\.2\.\S+, .*, \.\.\.\)", folder)


@pytest.mark.parametrize("kind", DENSE_KINDS)
def test_a_tensor_of_another_shape_is_refused(kind: str, tmp_path: Path) -> None:
    config = tiny_config(kind)
    changed: dict[str, Any] = {"mlp_hidden_size" if "mlp_hidden_size" in config else "intermediate_size": 64}
    folder = tiny_checkpoint(kind, tmp_path, **changed)
    refused(
        r"tensor model\.\S+ has shape \((48, 32|32, 48)\), but the config asks for \((64, 32|32, 64)\)\. Config and weights do not "
        r"belong together\.$",
        folder,
    )


def test_a_tied_head_that_differs_from_the_embedding_is_not_quietly_dropped(tmp_path: Path) -> None:
    config = tiny_config("a2d-qwen2-0.5b")
    tensors = tiny_tensors("a2d-qwen2-0.5b", config)
    folder = tiny_checkpoint("a2d-qwen2-0.5b", tmp_path)
    write_weights(folder, tensors | {"lm_head.weight": tensors["lm_head.weight"] + 1})
    refused(
        r"says that head and embedding are one \(tie_word_embeddings\), but lm_head\.weight differs from model\.embed_tokens\.weight",
        folder,
    )


@pytest.mark.parametrize("kept", [0, 4, 100, 0.5, 0.99])
def test_a_cut_off_safetensors_file_is_refused(kept: float, llada: Path) -> None:
    file = llada / "model-00002-of-00002.safetensors"
    os.truncate(file, int(file.stat().st_size * kept) if isinstance(kept, float) else kept)
    refused(r"^model-00002-of-00002\.safetensors of .*llada is not a complete safetensors file \(.*\)\. Download it again\.$", llada)


def test_a_missing_shard_is_refused(llada: Path) -> None:
    (llada / "model-00001-of-00002.safetensors").unlink()
    refused(r"is incomplete: model-00001-of-00002\.safetensors is missing \(1 of 2 files\)\. Download it again\.$", llada)


@pytest.mark.parametrize("content", ["", "{}", '{"weight_map": 3}', "[]"])
def test_a_broken_index_is_refused(content: str, llada: Path) -> None:
    (llada / "model.safetensors.index.json").write_text(content)
    refused(r"^model\.safetensors\.index\.json of .*llada .*\. (Download it|Fetch the file) again\.$", llada)


def test_a_model_that_does_not_fit_into_memory_is_refused_before_it_is_read(llada: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = sum(tensor.numel() for tensor in tiny_tensors("llada-8b-instruct", tiny_config("llada-8b-instruct")).values())
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=3 * size))
    refused(
        r"needs 0\.0 GB for its 0\.0 billion parameters, and 0\.0 GB are free on cpu\. Choose a smaller dtype \(--dtype bfloat16\)",
        llada,
        dtype="float32",
    )
    assert fl.load(llada).dtype == torch.bfloat16  # two bytes a parameter fit
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=2 * size - 1))
    refused(r"are free on cpu", llada)


@pytest.mark.parametrize(
    ("kind", "needs"),
    [
        ("llada-8b-instruct", r"16\.0 GB for its 8\.0 billion"),
        ("llada-1.5", r"16\.0 GB for its 8\.0 billion"),
        ("mmada-8b", r"16\.2 GB for its 8\.1 billion"),
        ("dream-7b-instruct", r"15\.2 GB for its 7\.6 billion"),
        ("sdar-1.7b-chat", r"4\.1 GB for its 2\.0 billion"),
        ("a2d-qwen3-0.6b", r"1\.5 GB for its 0\.8 billion"),
        ("a2d-qwen2-0.5b", r"1\.3 GB for its 0\.6 billion"),
    ],
)
def test_a_full_size_checkpoint_fits_its_config_and_says_what_it_needs(
    kind: str, needs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = published_config(kind)
    write_hollow_weights(tmp_path, tensor_shapes(kind, config))
    write_json(tmp_path / "config.json", config)
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=1_000_000_000))
    options = {"mask_token_id": 151665, "block_length": 0} if kind.startswith("a2d") else {}
    refused(rf"needs {needs} parameters, and 1\.0 GB are free on cpu\. Choose a smaller dtype", tmp_path, device="cpu", **options)
    total = facts(kind, "keys.json").get("total_size_bytes")
    assert total in (None, Checkpoint(kind, tmp_path, None).bytes)
