"""Checkpoints that try something: each builder writes a folder whose code, if it ever ran, would leave a marker file."""

import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from published_checkpoints import tiny_checkpoint, write_json
from small_checkpoints import bert_folder, llama_folder

CODE = """from pathlib import Path
Path({marker!r}).write_text("ran")
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
class Config(LlamaConfig):
    model_type = "florb"
class Model(LlamaForCausalLM):
    config_class = Config
class Tokenizer(PreTrainedTokenizerFast):
    pass
def generate(model, *others, **options):
    Path({marker!r}).write_text("ran")
"""


def edit(file: Path, **fields: Any) -> None:
    write_json(file, (json.loads(file.read_text()) if file.is_file() else {}) | fields)


def with_code(folder: Path, marker: Path) -> Path:
    """Code under every name that a config may give it."""
    for name in ("evil", "configuration_florb", "modeling_florb", "tokenization_florb", "custom_generate/generate"):
        file = folder / f"{name}.py"
        file.parent.mkdir(exist_ok=True)
        file.write_text(CODE.format(marker=str(marker)))
    return folder


def unknown_type(folder: Path, marker: Path) -> None:
    edit(with_code(llama_folder(folder)[0], marker) / "config.json", model_type="florb", auto_map=MAP)


def unknown_type_without_a_config_class(folder: Path, marker: Path) -> None:
    edit(
        with_code(llama_folder(folder)[0], marker) / "config.json",
        model_type="florb",
        auto_map={"AutoModelForCausalLM": "modeling_florb.Model"},
    )


def no_type(folder: Path, marker: Path) -> None:
    unknown_type(folder, marker)
    config = json.loads((folder / "config.json").read_text())
    del config["model_type"]
    write_json(folder / "config.json", config)


def known_type(folder: Path, marker: Path) -> None:
    """May load, as the stock class."""
    edit(with_code(llama_folder(folder)[0], marker) / "config.json", auto_map=MAP)


def masked_model(folder: Path, marker: Path) -> None:
    edit(with_code(bert_folder(folder)[0], marker) / "config.json", model_type="florb", auto_map=MAP, architectures=["FlorbForMaskedLM"])


def tokenizer_of_its_own(folder: Path, marker: Path) -> None:
    edit(
        with_code(llama_folder(folder)[0], marker) / "tokenizer_config.json",
        tokenizer_class="FlorbTokenizer",
        auto_map={"AutoTokenizer": ["tokenization_florb.Tokenizer", "tokenization_florb.Tokenizer"]},
    )


def tokenizer_named_in_the_config(folder: Path, marker: Path) -> None:
    (with_code(llama_folder(folder)[0], marker) / "tokenizer_config.json").unlink()
    edit(folder / "config.json", tokenizer_class="FlorbTokenizer", auto_map={"AutoTokenizer": "tokenization_florb.Tokenizer"})


def saved_by_floatlens(folder: Path, marker: Path) -> None:
    unknown_type(folder, marker)
    said = {"family": "autoregressive", "sampler": "autoregressive", "row_offset": 1, "mask_token_id": None, "end_tokens": [], "suffix": []}
    edit(folder / "config.json", floatlens=said | {"sampler_defaults": {}})


def twin(folder: Path, marker: Path) -> None:
    edit(with_code(llama_folder(folder)[0], marker) / "config.json", twin="arm", auto_map=MAP)


def published_kind(folder: Path, marker: Path) -> None:
    """LLaDA's own remote code stands in its config, and is never needed."""
    edit(with_code(tiny_checkpoint("llada-8b-instruct", folder), marker) / "config.json", auto_map=MAP)


def mixture_of_experts(folder: Path, marker: Path) -> None:
    unknown_type(folder, marker)
    edit(folder / "config.json", model_type="llada", num_experts=4)


def other_configs(folder: Path, marker: Path) -> None:
    """Code named in files that floatlens has no business with."""
    with_code(llama_folder(folder)[0], marker)
    for name in ("generation_config.json", "processor_config.json", "preprocessor_config.json", "video_preprocessor_config.json"):
        edit(folder / name, auto_map=MAP, custom_generate="evil.generate", processor_class="Florb")


MAP = {
    "AutoConfig": "configuration_florb.Config",
    "AutoModel": "modeling_florb.Model",
    "AutoModelForCausalLM": "modeling_florb.Model",
    "AutoModelForMaskedLM": "modeling_florb.Model",
    "AutoTokenizer": ["tokenization_florb.Tokenizer", None],
    "AutoProcessor": "evil.Tokenizer",
}
REMOTE_CODE: list[Callable[[Path, Path], None]] = [
    unknown_type, unknown_type_without_a_config_class, no_type, known_type, masked_model, tokenizer_of_its_own,
    tokenizer_named_in_the_config, saved_by_floatlens, twin, published_kind, mixture_of_experts, other_configs,
]  # fmt: skip


class Evil:
    """What runs when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.marker}",)


def only_pickles(folder: Path, marker: Path, name: str) -> Path:
    """A Llama whose weights are a pickle under this name."""
    llama_folder(folder)
    (folder / "model.safetensors").unlink()
    if name.endswith(".index.json"):
        write_json(folder / name, {"metadata": {}, "weight_map": {"lm_head.weight": "pytorch_model-00001-of-00001.bin"}})
        name = "pytorch_model-00001-of-00001.bin"
    if name.startswith("torch:"):
        torch.save({"lm_head.weight": Evil(marker)}, folder / name.removeprefix("torch:"))
    else:
        (folder / name).write_bytes(pickle.dumps({"lm_head.weight": Evil(marker)}))
    return folder
