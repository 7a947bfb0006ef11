"""Tiny checkpoints in the form in which the real ones are published: config, tensor names, shards and tokenizer files, only smaller.

What is known of the published files stands in `published/<kind>`; where a config there is partial, the fields of its closest kin fill it
up. Ids of special tokens keep their order and move inside the small vocabulary.
"""

import json
import math
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor

PUBLISHED = Path(__file__).parent / "published"
LLADA_KINDS = ["llada-8b-instruct", "llada-1.5", "mmada-8b"]
DREAM_KINDS = ["dream-7b-instruct", "dream-coder-7b", "diffucoder-7b"]
A2D_KINDS = ["a2d-qwen3-0.6b", "a2d-qwen2-0.5b", "a2d-llama"]
DENSE_KINDS = [*LLADA_KINDS, *DREAM_KINDS, "sdar-1.7b-chat", *A2D_KINDS]
STAND_IN = {"llada-1.5": "llada-8b-instruct", "dream-coder-7b": "dream-7b-instruct", "diffucoder-7b": "dream-7b-instruct"}

VOCABULARY = 160  # larger than the tokenizer's, as published
LAYERS, HEADS, HIDDEN, MLP, HEAD_DIM = 2, 4, 32, 48, 16
SMALL = {
    "d_model": HIDDEN, "hidden_size": HIDDEN, "n_layers": LAYERS, "num_hidden_layers": LAYERS, "n_heads": HEADS,
    "num_attention_heads": HEADS, "mlp_hidden_size": MLP, "intermediate_size": MLP, "head_dim": HEAD_DIM, "vocab_size": VOCABULARY,
    "embedding_size": VOCABULARY, "llm_vocab_size": VOCABULARY, "codebook_size": 16,
}  # fmt: skip
LLAMA_3_2 = {
    "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 128000, "eos_token_id": [128001, 128009], "head_dim": 64,
    "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 8192, "max_position_embeddings": 131072,
    "mlp_bias": False, "num_attention_heads": 32, "num_hidden_layers": 16, "num_key_value_heads": 8, "pretraining_tp": 1,
    "rms_norm_eps": 1e-05,
    "rope_scaling": {
        "factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 8192, "rope_type": "llama3",
    },
    "rope_theta": 500000.0, "tie_word_embeddings": False, "torch_dtype": "bfloat16", "transformers_version": "4.56.2", "use_cache": True,
    "vocab_size": 128256,
}  # fmt: skip

BYTES = [*map(chr, range(33, 127)), "Ġ", "Ċ"]  # byte-level spelling of printable ASCII, the blank and the newline
MERGES = ["t h", "th e", "Ġ the", "c a", "ca t", "Ġ cat", "s a", "sa t", "Ġ sat", "o n", "Ġ on", "Ċ Ċ", "m a", "ma t", "Ġ mat", "i s"]
LEARNED = [*BYTES, *(merge.replace(" ", "") for merge in MERGES)]

LLADA_TEMPLATE = (
    "{% for message in messages %}{% if loop.first %}{{ bos_token }}{% endif %}"
    "{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' + message['content'] | trim + '<|eot_id|>' }}{% endfor %}"
    "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}"
)
QWEN3_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
DREAM_TEMPLATE = (
    "{% if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n' }}{% endif %}"
) + QWEN3_TEMPLATE


def facts(kind: str, file: str) -> dict[str, Any]:
    return json.loads((PUBLISHED / kind / file).read_text())


def special_tokens(kind: str) -> dict[str, int]:
    """Tokens that are added to the learned vocabulary, with their published ids."""
    dream = facts("dream-7b-instruct", "tokenizer_facts.json")["added_tokens"]
    sdar = {
        name.replace("<MASK>", "<|MASK|>"): token
        for name, token in facts("sdar-1.7b-chat", "tokenizer_facts.json")["added_tokens_json"].items()
    }
    if kind in LLADA_KINDS:
        said = facts("llada-8b-instruct", "tokenizer_facts.json")
        named = {entry[0]: entry[1] for entry in said["special_tokens"].values() if entry}
        return dict(sorted({**named, said["mask"][0]: said["mask"][1], **said["added_tokens"]}.items(), key=lambda item: item[1]))
    if kind in DREAM_KINDS:
        return dream if kind == "dream-7b-instruct" else {**dream, "<|dlm_pad|>": 151667}
    if kind == "sdar-1.7b-chat":
        return sdar
    if kind == "a2d-qwen3-0.6b":
        return {("<|mask|>" if name == "<|MASK|>" else name): token for name, token in sdar.items()}
    if kind == "a2d-qwen2-0.5b":
        return {**{name: token for name, token in dream.items() if token < 151665}, "<|mask|>": 151665}
    return {"<|begin_of_text|>": 128000, "<|end_of_text|>": 128001, "<|eot_id|>": 128009, "<|mask|>": 128256}


def moved(kind: str) -> dict[int, int]:
    """Published ids of special tokens -> ids in the small vocabulary."""
    return {token: len(LEARNED) + rank for rank, token in enumerate(special_tokens(kind).values())}


def tiny_id(kind: str, name: str) -> int:
    return moved(kind)[special_tokens(kind)[name]]


def published_config(kind: str) -> dict[str, Any]:
    """The published config, filled up where only a part of it is known."""
    base = LLAMA_3_2 if kind == "a2d-llama" else facts(STAND_IN[kind], "config.json") if kind in STAND_IN else {}
    return {**base, **facts(kind, "config.json")}


def tiny_config(kind: str) -> dict[str, Any]:
    """The published config with small sizes."""
    config = published_config(kind)
    heads = {"n_kv_heads": "n_heads", "num_key_value_heads": "num_attention_heads"}
    for few, many in heads.items():
        if few in config:
            config[few] = HEADS if config[few] == config[many] else 2
    config |= {field: value for field, value in SMALL.items() if field in config}
    if "new_vocab_size" in config:  # MMaDA: image codes after the text
        config |= dict.fromkeys(("new_vocab_size", "vocab_size", "embedding_size"), VOCABULARY + config["codebook_size"])
    ids = moved(kind)
    for field in [field for field in config if field.endswith("_token_id")]:
        token = config[field]
        config[field] = [ids[one] for one in token] if isinstance(token, list) else ids[token]
    if kind == "sdar-1.7b-chat":
        config["mask_token_id"] = tiny_id(
            kind, "<|MASK|>"
        )  # published configs leave it to the code, whose 151669 is outside the small vocabulary
    if kind in A2D_KINDS:
        config["block_length"] = 0  # published configs do not say it, and are refused until the caller does
    return config


def tensor_shapes(kind: str, config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Every tensor of the checkpoint under its published name."""
    keys = facts(kind, "keys.json")
    keys = facts(keys["same_as"], "keys.json") if "same_as" in keys else keys
    heads = config.get("n_heads") or config["num_attention_heads"]
    hidden = config.get("d_model") or config["hidden_size"]
    sizes = {
        "vocab": config.get("embedding_size") or config["vocab_size"],
        "d_model": hidden,
        "heads": heads,
        "kv_heads": config.get("n_kv_heads") or config.get("num_key_value_heads") or heads,
        "head_dim": config.get("head_dim") or hidden // heads,
        "mlp": config.get("mlp_hidden_size") or config["intermediate_size"],
    }
    shapes = {}
    for name, dims in keys["tensors"].items():
        shape = tuple(math.prod(sizes[part] for part in dim.split("*")) for dim in dims)
        layers = range(config.get("n_layers") or config["num_hidden_layers"]) if "*" in name else [0]
        shapes |= {name.replace("*", str(layer)): shape for layer in layers}
    return shapes


def tiny_tensors(kind: str, config: dict[str, Any], dtype: torch.dtype = torch.bfloat16, seed: int = 0) -> dict[str, Tensor]:
    """Random weights, drawn wide enough for attention to be far from even."""
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for name, shape in tensor_shapes(kind, config).items():
        drawn = torch.randn(shape, generator=generator)
        tensors[name] = (drawn * 0.3 if len(shape) == 2 else 1 + drawn * 0.1 if "norm" in name or "ln_f" in name else drawn * 0.1).to(dtype)
    if config.get("tie_word_embeddings"):
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()  # stored all the same, as published
    return tensors


def write_weights(folder: Path, tensors: dict[str, Tensor]) -> None:
    """Two shards and their index."""
    names = list(tensors)
    shards = {"model-00001-of-00002.safetensors": names[: len(names) // 2], "model-00002-of-00002.safetensors": names[len(names) // 2 :]}
    for file, held in shards.items():
        save_file({name: tensors[name] for name in held}, folder / file, metadata={"format": "pt"})
    index = {
        "metadata": {"total_size": sum(tensor.nbytes for tensor in tensors.values())},
        "weight_map": {name: file for file, held in shards.items() for name in held},
    }
    write_json(folder / "model.safetensors.index.json", index)


def write_hollow_weights(folder: Path, shapes: dict[str, tuple[int, ...]]) -> None:
    """One file of full size that takes no room: a header, and a hole in the file where the weights would be."""
    header, at = {}, 0
    for name, shape in shapes.items():
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + 2 * math.prod(shape)]}
        at += 2 * math.prod(shape)
    text = json.dumps(header).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + at)


def write_json(file: Path, content: Any) -> None:
    file.write_text(json.dumps(content, indent=2))


def write_tokenizer(kind: str, folder: Path) -> None:
    """The tokenizer files that the kind is published with."""
    tokens = {name: tiny_id(kind, name) for name in special_tokens(kind)}
    said: dict[str, Any] = {"clean_up_tokenization_spaces": False, "model_max_length": 131072}
    if kind in LLADA_KINDS:
        named = {"bos_token": "<|startoftext|>", "eos_token": "<|endoftext|>", "pad_token": "<|endoftext|>", "cls_token": "[CLS]"}
        said |= {
            "add_bos_token": False,
            "tokenizer_class": "PreTrainedTokenizerFast",
            "trust_remote_code": True,
            "chat_template": LLADA_TEMPLATE,
        }
    elif kind == "a2d-llama":
        named = {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>", "pad_token": "<|eot_id|>", "mask_token": "<|mask|>"}
        said |= {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": LLADA_TEMPLATE}
    else:
        mask = "<|MASK|>" if kind == "sdar-1.7b-chat" else "<|mask|>"
        named = {"eos_token": "<|endoftext|>", "pad_token": "<|endoftext|>", "mask_token": mask}
        said |= {
            "tokenizer_class": "Qwen2Tokenizer",
            "add_bos_token": False,
            "add_prefix_space": False,
            "errors": "replace",
            "unk_token": None,
        }
        said |= {"split_special_tokens": False, "chat_template": QWEN3_TEMPLATE}
        plain = facts("dream-7b-instruct", "tokenizer_facts.json")["not_special"]
        said["added_tokens_decoder"] = {
            str(token): {
                "content": name,
                "lstrip": False,
                "normalized": False,
                "rstrip": False,
                "single_word": False,
                "special": name not in plain,
            }
            for name, token in tokens.items()
        }
        write_json(folder / "vocab.json", {token: number for number, token in enumerate(LEARNED)})
        (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(MERGES) + "\n")
        write_json(folder / "added_tokens.json", {name.replace("<|MASK|>", "<MASK>"): token for name, token in tokens.items()})
    if kind in DREAM_KINDS:
        named["bos_token"] = "<|beginoftext|>"
        said |= {"tokenizer_class": "DreamTokenizer", "auto_map": {"AutoTokenizer": ["tokenization_dream.DreamTokenizer", None]}}
        said["chat_template"] = DREAM_TEMPLATE
    else:
        byte_level(tokens).save(str(folder / "tokenizer.json"))
    if kind == "sdar-1.7b-chat":
        said["auto_map"] = {"AutoTokenizer": ["tokenization_qwen2.Qwen2Tokenizer", None]}
        (folder / "chat_template.jinja").write_text(QWEN3_TEMPLATE)
    write_json(folder / "tokenizer_config.json", said | named)
    write_json(folder / "special_tokens_map.json", {role: name.replace("<|MASK|>", "<MASK>") for role, name in named.items()})


def byte_level(added: dict[str, int]) -> Tokenizer:
    """A byte-level BPE with these tokens after the learned ones."""
    merges: Any = [tuple(merge.split()) for merge in MERGES]
    tokenizer = Tokenizer(models.BPE(vocab={token: number for number, token in enumerate(LEARNED)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # type: ignore[assignment]  # the stub has no setter
    tokenizer.decoder = decoders.ByteLevel()  # type: ignore[assignment]  # likewise
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in added])
    assert all(tokenizer.token_to_id(name) == token for name, token in added.items())
    return tokenizer


def tiny_checkpoint(kind: str, folder: Path, *, dtype: torch.dtype = torch.bfloat16, tokenizer: bool = True, **fields: Any) -> Path:
    """A whole checkpoint; `fields` change the config after the weights were drawn."""
    folder.mkdir(parents=True, exist_ok=True)
    config = tiny_config(kind)
    write_weights(folder, tiny_tensors(kind, config, dtype))
    write_json(folder / "config.json", config | fields)
    if tokenizer:
        write_tokenizer(kind, folder)
    return folder
