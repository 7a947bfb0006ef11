"""Every dense kind of diffusion model loads in the form in which it is published, and computes what its original computes."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from published_checkpoints import (
    A2D_KINDS,
    DENSE_KINDS,
    DREAM_KINDS,
    HEADS,
    LLADA_KINDS,
    VOCABULARY,
    facts,
    special_tokens,
    tiny_checkpoint,
    tiny_config,
    tiny_id,
    tiny_tensors,
    write_json,
    write_weights,
)
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoModelForCausalLM, LlamaForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM

import floatlens as fl

FAMILY = {
    **dict.fromkeys(LLADA_KINDS, "llada"),
    **dict.fromkeys(DREAM_KINDS, "dream"),
    "sdar-1.7b-chat": "sdar",
    **dict.fromkeys(A2D_KINDS, "a2d"),
}
STOCK_CLASS = {
    **dict.fromkeys([*LLADA_KINDS, "a2d-llama"], LlamaForCausalLM),
    **dict.fromkeys([*DREAM_KINDS, "a2d-qwen2-0.5b"], Qwen2ForCausalLM),
    **dict.fromkeys(["sdar-1.7b-chat", "a2d-qwen3-0.6b"], Qwen3ForCausalLM),
}
END_TOKENS = {  # by name, the first is the config's
    **dict.fromkeys(LLADA_KINDS, ("<|endoftext|>", "<|eot_id|>")),
    "dream-7b-instruct": ("<|endoftext|>", "<|im_end|>"),
    **dict.fromkeys(DREAM_KINDS[1:], ("<|endoftext|>", "<|im_end|>", "<|dlm_pad|>")),
    "sdar-1.7b-chat": ("<|endoftext|>", "<|im_end|>"),
    **dict.fromkeys(A2D_KINDS[:2], ("<|im_end|>", "<|endoftext|>")),
    "a2d-llama": ("<|end_of_text|>", "<|eot_id|>"),
}
MASK = {**dict.fromkeys(DENSE_KINDS, "<|mask|>"), **dict.fromkeys(LLADA_KINDS, "<|mdm_mask|>"), "sdar-1.7b-chat": "<|MASK|>"}
LLADA_NAMES = {  # as in the published modelling code
    "model.transformer.wte": "model.embed_tokens",
    "model.transformer.blocks.*.attn_norm": "model.layers.*.input_layernorm",
    "model.transformer.blocks.*.q_proj": "model.layers.*.self_attn.q_proj",
    "model.transformer.blocks.*.k_proj": "model.layers.*.self_attn.k_proj",
    "model.transformer.blocks.*.v_proj": "model.layers.*.self_attn.v_proj",
    "model.transformer.blocks.*.attn_out": "model.layers.*.self_attn.o_proj",
    "model.transformer.blocks.*.ff_norm": "model.layers.*.post_attention_layernorm",
    "model.transformer.blocks.*.ff_proj": "model.layers.*.mlp.gate_proj",
    "model.transformer.blocks.*.up_proj": "model.layers.*.mlp.up_proj",
    "model.transformer.blocks.*.ff_out": "model.layers.*.mlp.down_proj",
    "model.transformer.ln_f": "model.norm",
    "model.transformer.ff_out": "lm_head",
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A tiny checkpoint of each kind. Tests do not write there."""
    return {kind: tiny_checkpoint(kind, tmp_path_factory.mktemp("published") / kind) for kind in DENSE_KINDS}


@pytest.fixture(scope="module")
def models(folders: dict[str, Path]) -> dict[str, fl.LanguageModel]:
    return {kind: fl.load(folder) for kind, folder in folders.items()}


def stock_name(published: str) -> str:
    """By looking the name up in the table, layer by layer: no patterns."""
    stem = published.removesuffix(".weight")
    layer = next((part for part in stem.split(".") if part.isdecimal()), None)
    if layer is None:
        return LLADA_NAMES.get(stem, stem) + ".weight"
    before, after = stem.split(f".{layer}.")
    found = LLADA_NAMES.get(f"{before}.*.{after}")
    return published if found is None else found.replace("*", layer) + ".weight"


def file_tensors(folder: Path) -> dict[str, Tensor]:
    return {name: tensor for file in sorted(folder.glob("*.safetensors")) for name, tensor in load_file(file).items()}


def logits(lm: Any, tokens: list[int]) -> Tensor:
    module = lm.module if isinstance(lm, fl.LanguageModel) else lm
    with torch.no_grad():
        return module(torch.tensor([tokens])).logits[0]


@pytest.mark.parametrize("kind", DENSE_KINDS)
def test_a_published_checkpoint_is_recognised_and_knows_how_it_writes(kind: str, models: dict[str, fl.LanguageModel]) -> None:
    lm = models[kind]
    assert (lm.family, type(lm.module)) == (FAMILY[kind], STOCK_CLASS[kind])
    assert lm.dtype == torch.bfloat16
    assert not lm.module.training
    assert lm.mask_token_id == tiny_id(kind, MASK[kind])
    assert list(lm.end_tokens) == [tiny_id(kind, name) for name in END_TOKENS[kind]]
    assert lm.sampler == {"dream": "dream", "sdar": "sdar"}.get(lm.family, "llada")
    assert [lm.predicting_row(position) for position in (0, 1, 7)] == ([0, 0, 6] if lm.family == "dream" else [0, 1, 7])


@pytest.mark.parametrize("kind", DENSE_KINDS)
def test_every_tensor_of_the_files_arrives_bit_for_bit(kind: str, folders: dict[str, Path], models: dict[str, fl.LanguageModel]) -> None:
    loaded = models[kind].module.state_dict()
    published = {stock_name(name): tensor for name, tensor in file_tensors(folders[kind]).items()}
    assert published.keys() == loaded.keys()
    for name, tensor in published.items():
        assert tensor.dtype == loaded[name].dtype
        assert torch.equal(tensor, loaded[name]), name


@pytest.mark.parametrize("kind", DENSE_KINDS)
def test_a_text_is_decoded_until_no_mask_is_left(kind: str, models: dict[str, fl.LanguageModel]) -> None:
    lm = models[kind]
    (written,) = lm.generate("the cat sat on", gen_length=8, progress=False)
    # SDAR fills up the last block
    assert len(written.tokens) == 8 + (-(len(written.prompt_tokens) + 8) % 4 if lm.family == "sdar" else 0)
    assert lm.mask_token_id not in written.tokens
    assert "the cat sat on" in written.prompt
    assert set(written.tokens) != {written.tokens[0]}


@pytest.mark.parametrize("kind", [kind for kind in DENSE_KINDS if FAMILY[kind] != "sdar"])  # SDAR is told who sees whom with every pass
def test_the_first_row_sees_the_last_token(kind: str, models: dict[str, fl.LanguageModel]) -> None:
    one, other = (logits(models[kind], [5, 6, 7, 8, 9, last]) for last in (10, 11))
    assert (one[0] - other[0]).abs().max() > 0.01


def test_sdar_sees_blocks_as_it_is_told(models: dict[str, fl.LanguageModel]) -> None:
    module: Any = models["sdar-1.7b-chat"].module
    block = torch.arange(8) // 4
    visible = (block[:, None] >= block)[None, None]
    with torch.no_grad():
        first, changed = (
            module(torch.tensor([[5, 6, 7, third, 9, 10, 11, last]]), attention_mask=visible).logits[0]
            for third, last in [(8, 12), (8, 13)]
        )
        inside = module(torch.tensor([[5, 6, 7, 20, 9, 10, 11, 12]]), attention_mask=visible).logits[0]
    assert torch.equal(first[:4], changed[:4])  # an earlier block does not see a later one
    assert (first[4] - changed[4]).abs().max() > 0.01  # but a row sees the end of its block
    assert (first[0] - inside[0]).abs().max() > 0.01


@pytest.mark.parametrize(
    ("kind", "published", "token"),
    [("llada-8b-instruct", 126464, 126336), ("dream-7b-instruct", 152064, 151666), ("sdar-1.7b-chat", 151936, 151669)],
)
def test_a_config_that_leaves_the_mask_out_gets_the_published_one(kind: str, published: int, token: int, tmp_path: Path) -> None:
    config = tiny_config(kind)
    del config["mask_token_id"]
    config |= {field: published for field in ("vocab_size", "embedding_size") if field in config}
    config |= {"d_model": 8, "n_layers": 1} if "d_model" in config else {"hidden_size": 8, "num_hidden_layers": 1}
    write_weights(tmp_path, tiny_tensors(kind, config))
    write_json(tmp_path / "config.json", config)
    lm = fl.load(tmp_path)
    assert lm.mask_token_id == token
    assert lm.sampler_defaults == ({"block_length": 4} if kind == "sdar-1.7b-chat" else {})


def test_both_published_forms_of_sdars_config_load(folders: dict[str, Path], models: dict[str, fl.LanguageModel], tmp_path: Path) -> None:
    training = {"debug": False, "ep_size": 1, "micro_forward": False, "skip_checkpoint": False, "use_deepep": False}
    tiny_checkpoint("sdar-1.7b-chat", tmp_path, attn_implementation="flex_attention", block_size=8, use_cache=False, **training)
    lm = fl.load(tmp_path)
    assert lm.sampler_defaults == {"block_length": 8}
    assert torch.equal(logits(lm, [5, 6, 7]), logits(models["sdar-1.7b-chat"], [5, 6, 7]))


def test_mmadas_vocabulary_is_as_large_as_its_embedding(tmp_path: Path) -> None:
    folder = tiny_checkpoint("mmada-8b", tmp_path, vocab_size=VOCABULARY, embedding_size=None, model_type="llada")
    assert fl.load(folder).config.vocab_size == VOCABULARY + 16


@pytest.mark.parametrize("kind", A2D_KINDS[:2])
def test_a_tied_head_may_be_left_out_of_the_files(kind: str, models: dict[str, fl.LanguageModel], tmp_path: Path) -> None:
    folder = tiny_checkpoint(kind, tmp_path)
    write_weights(folder, {name: tensor for name, tensor in file_tensors(folder).items() if name != "lm_head.weight"})
    assert torch.equal(logits(fl.load(folder), [5, 6, 7]), logits(models[kind], [5, 6, 7]))


def test_rotary_scaling_of_the_config_is_honoured(folders: dict[str, Path], models: dict[str, fl.LanguageModel], tmp_path: Path) -> None:
    scaling = json.loads((folders["a2d-llama"] / "config.json").read_text())["rope_scaling"]
    module: Any = models["a2d-llama"].module
    assert {name: module.config.rope_parameters[name] for name in scaling} == scaling
    plain = fl.load(tiny_checkpoint("a2d-llama", tmp_path, rope_scaling=None))
    assert not torch.equal(logits(plain, list(range(40))), logits(models["a2d-llama"], list(range(40))))


# -- LLaDA, straight from its tensors ---------------------------------------------------------------------------------------------------


def llada_forward(
    tensors: dict[str, Tensor], tokens: list[int], *, theta: float = 500000.0, eps: float = 1e-5, heads: int = HEADS
) -> Tensor:
    """LLaDA's forward, line by line, from the published tensors; rotation in float32, everything else in the weights' dtype."""

    def norm(x: Tensor, name: str) -> Tensor:
        wide = x.float()
        return tensors[f"model.transformer.{name}.weight"] * (wide * (wide.square().mean(-1, keepdim=True) + eps).rsqrt()).to(x.dtype)

    def rotate(x: Tensor) -> Tensor:  # (head, position, dim): pairs are half a head apart
        half = x.shape[-1] // 2
        angle = torch.arange(x.shape[1])[:, None] * (1 / theta ** (torch.arange(half) / half))
        left, right = x[..., :half].float(), x[..., half:].float()
        return torch.cat([left * angle.cos() - right * angle.sin(), right * angle.cos() + left * angle.sin()], -1).to(x.dtype)

    x = tensors["model.transformer.wte.weight"][tokens]
    layers = {int(name.split(".")[3]) for name in tensors if ".blocks." in name}
    for layer in sorted(layers):
        block = f"blocks.{layer}."

        def project(x: Tensor, name: str, block: str = block) -> Tensor:
            return x @ tensors[f"model.transformer.{block}{name}.weight"].T

        normed = norm(x, block + "attn_norm")
        query, key, value = (project(normed, name).unflatten(-1, (heads, -1)).transpose(0, 1) for name in ("q_proj", "k_proj", "v_proj"))
        mixed = F.scaled_dot_product_attention(rotate(query)[None], rotate(key)[None], value[None])[0]  # no mask
        x = x + project(mixed.transpose(0, 1).flatten(1), "attn_out")
        normed = norm(x, block + "ff_norm")
        x = x + project(F.silu(project(normed, "ff_proj")) * project(normed, "up_proj"), "ff_out")
    return norm(x, "ln_f") @ tensors["model.transformer.ff_out.weight"].T


TEXT = [5, 9, 112, 7, 116, 3, 100, 116, 90, 41, 116, 116] * 8


@pytest.mark.parametrize("kind", LLADA_KINDS)
def test_llada_computes_what_its_published_tensors_say(kind: str, folders: dict[str, Path]) -> None:
    lm = fl.load(folders[kind], dtype="float32")
    tensors = {name: tensor.float() for name, tensor in file_tensors(folders[kind]).items()}
    torch.testing.assert_close(logits(lm, TEXT), llada_forward(tensors, TEXT), atol=1e-5, rtol=1e-5)


def silent(folder: Path, *fields: str) -> Path:
    """The config without some of its fields."""
    config = json.loads((folder / "config.json").read_text())
    write_json(folder / "config.json", {field: value for field, value in config.items() if field not in fields})
    return folder


def test_a_llada_config_silent_on_the_rotary_base_and_tying_gets_the_original_defaults(tmp_path: Path) -> None:
    """The original class: rope_theta 10000, weight_tying true (no tensor for the head), max_sequence_length 1024."""
    folder = silent(
        tiny_checkpoint("llada-8b-instruct", tmp_path, dtype=torch.float32), "rope_theta", "weight_tying", "max_sequence_length"
    )
    tensors = file_tensors(folder)
    write_weights(folder, {name: tensor for name, tensor in tensors.items() if name != "model.transformer.ff_out.weight"})
    tied = tensors | {"model.transformer.ff_out.weight": tensors["model.transformer.wte.weight"]}
    lm = fl.load(folder)
    torch.testing.assert_close(logits(lm, TEXT), llada_forward(tied, TEXT, theta=10000.0), atol=1e-5, rtol=1e-5)
    assert lm.config.max_position_embeddings == 1024


@pytest.mark.parametrize(
    ("field", "original"), [("activation_type", "swiglu"), ("block_type", "sequential"), ("layer_norm_type", "default"), ("rope", False)]
)
def test_a_llada_config_silent_on_what_a_llama_cannot_do_by_default_is_refused(field: str, original: Any, tmp_path: Path) -> None:
    folder = silent(tiny_checkpoint("llada-8b-instruct", tmp_path), field)
    with pytest.raises(fl.Refusal) as refusal:
        fl.load(folder)
    assert f"does not say {field}, for which the original class takes {original!r}; this adapter is right for " in str(refusal.value)


def test_mmadas_path_to_its_language_model_says_nothing_about_the_model(tmp_path: Path) -> None:
    folder = tiny_checkpoint("mmada-8b", tmp_path, dtype=torch.float32, llm_model_path="GSAI-ML/LLaDA-8B-Instruct")
    torch.testing.assert_close(logits(fl.load(folder), TEXT), llada_forward(file_tensors(folder), TEXT), atol=1e-5, rtol=1e-5)


def test_llada_rotates_in_float32_whatever_its_dtype(folders: dict[str, Path], models: dict[str, fl.LanguageModel], tmp_path: Path) -> None:
    folder = folders["llada-8b-instruct"]
    expected = llada_forward(file_tensors(folder), TEXT).float()
    models["llada-8b-instruct"].save(tmp_path)
    stock = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.bfloat16).eval()  # the same weights, rotated in bfloat16
    ours = (logits(models["llada-8b-instruct"], TEXT).float() - expected).abs()
    theirs = (logits(stock, TEXT).float() - expected).abs()
    assert ours.max() <= 2**-7 * expected.abs().max()  # a unit in the last place of the largest logit
    assert ours.mean() < theirs.mean() / 10


def test_the_published_facts_name_every_token_that_matters_here() -> None:
    assert special_tokens("llada-8b-instruct")["<|mdm_mask|>"] == facts("llada-8b-instruct", "config.json")["mask_token_id"]
    assert special_tokens("dream-7b-instruct")["<|mask|>"] == facts("dream-7b-instruct", "config.json")["mask_token_id"]
    assert all(re.fullmatch(r"model\.transformer\..*\.weight", name) for name in facts("llada-8b-instruct", "keys.json")["tensors"])
    assert {name.removesuffix(".weight") for name in facts("llada-8b-instruct", "keys.json")["tensors"]} == set(LLADA_NAMES)
