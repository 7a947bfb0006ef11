"""`fl.load`: from a name to a model that can be run, traced and asked to write.

The order is: find the checkpoint, recognise its family, draw up the blueprint from the config, compare tensor names and shapes with the class
(from the files' headers), check memory, and only then read weights, renamed and converted one by one, so that a model never exists twice. Any
missing, surplus or mismatched tensor is an error: a layer left random gives plausible, wrong numbers.
"""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import psutil
import torch
import transformers
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM, GenerationConfig
from transformers.utils import logging as transformers_logging

from floatlens.errors import Refusal
from floatlens.models.blueprint import Blueprint
from floatlens.models.checkpoint import Checkpoint, find_checkpoint
from floatlens.models.families import FAMILIES
from floatlens.models.families.stock import as_tokens
from floatlens.models.language_model import LanguageModel
from floatlens.models.tokenizing import has_tokenizer, published_tokenizer

SHOW_PROGRESS_ABOVE = 1 << 30  # bytes of weights: below, loading takes a second


def load(
    name_or_path: str | os.PathLike[str],
    *,
    revision: str | None = None,
    dtype: str | torch.dtype | None = None,
    device: str | torch.device | None = None,
    trust_remote_code: bool = False,
    allow_pickle: bool = False,
    family: str | None = None,
    mask_token_id: int | None = None,
) -> LanguageModel:
    """Load a language model by name.

    Parameters
    ----------
    name_or_path
        A bundled model ("smollm2-135m"), a checkpoint folder, a .gguf or llama2.c .bin file, or a hub name ("owner/name").
    revision
        A branch, tag or commit of a hub repository.
    dtype
        "float32", "bfloat16", "float16"; that of the checkpoint by default.
    device
        "cpu", "cuda", ...; the first GPU if there is one.
    trust_remote_code
        Run code that comes with the checkpoint. Needed for LLaDA-MoE and LLaDA2.x only.
    allow_pickle
        Open pickled weights, which can run any code, where there are no safetensors.
    family
        The adapter, where the config does not tell: see `floatlens models`.
    mask_token_id
        The mask token, where neither config nor tokenizer names it.

    Examples
    --------
    >>> import floatlens as fl
    >>> fl.load("smolm2")
    Traceback (most recent call last):
    floatlens.errors.Refusal: There is no model 'smolm2': it is neither bundled, nor a folder or file here, nor a hub name of the form \
owner/name. Did you mean 'smollm2-135m'?
    """
    checkpoint = find_checkpoint(name_or_path, revision, trust_remote_code=trust_remote_code, allow_pickle=allow_pickle)
    checkpoint.refuse_missing_weights(allow_pickle)
    blueprint = draw_up(checkpoint, family, trust_remote_code)
    tokenizer = tokenizer_for(checkpoint, blueprint, trust_remote_code)
    blueprint = with_mask_token(checkpoint, blueprint, tokenizer, mask_token_id)
    wanted = torch_dtype(dtype)
    place = torch.device(device) if device is not None else torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if blueprint.strict_names and checkpoint.weight_files:
        refuse_wrong_tensors(checkpoint, blueprint)
    _refuse_too_little_memory(checkpoint, wanted, place)
    module = _read_weights(checkpoint, blueprint, wanted, place, trust_remote_code, allow_pickle)
    if blueprint.finish is not None:
        blueprint.finish(module)
    return LanguageModel(
        module=module.eval(),
        tokenizer=tokenizer,
        family=blueprint.family,
        sampler=blueprint.sampler,
        row_offset=blueprint.row_offset,
        mask_token_id=blueprint.mask_token_id,
        end_tokens=blueprint.end_tokens,
        suffix=blueprint.suffix,
        name=checkpoint.name,
        revision=checkpoint.revision,
        sampler_defaults=dict(blueprint.sampler_defaults or {}),
        step_on=blueprint.step_on(module) if blueprint.step_on else None,
    )


def draw_up(checkpoint: Checkpoint, family: str | None, trust_remote_code: bool) -> Blueprint:
    """The blueprint of the family that recognises the config."""
    if family is not None and family not in FAMILIES:
        raise Refusal(f"There is no family {family!r}. There are: {', '.join(FAMILIES)}.")
    if "floatlens" in checkpoint.config and family is None:
        return _saved_blueprint(checkpoint)
    chosen = FAMILIES[family] if family else next(one for one in FAMILIES.values() if one.recognises(checkpoint.config))
    if chosen.name == "remote" and not trust_remote_code:
        raise Refusal(
            f"{checkpoint.name} ({', '.join(checkpoint.config.get('architectures') or ['no class named'])}) runs only with code that comes with the checkpoint. "
            "If you trust where it comes from, say trust_remote_code=True (--trust-remote-code)."
        )
    return chosen.blueprint(checkpoint)


def _saved_blueprint(checkpoint: Checkpoint) -> Blueprint:
    """What `LanguageModel.save` wrote into the config."""
    said: Mapping[str, Any] = checkpoint.config["floatlens"]
    if said.get("family") not in FAMILIES:
        raise Refusal(f"{checkpoint.name} was saved as family {said.get('family')!r}, which this version does not know. Update floatlens.")
    config = AutoConfig.from_pretrained(checkpoint.folder)
    return Blueprint(
        family=said["family"],
        config=config,
        model_class=AutoModelForMaskedLM if said["family"] == "masked-lm" else AutoModelForCausalLM,
        sampler=said["sampler"],
        row_offset=said["row_offset"],
        mask_token_id=said["mask_token_id"],
        end_tokens=tuple(said["end_tokens"]),
        suffix=tuple(said["suffix"]),
        sampler_defaults=said["sampler_defaults"],
        finish=FAMILIES[said["family"]].finish,
        strict_names=False,
    )


def tokenizer_for(checkpoint: Checkpoint, blueprint: Blueprint, trust_remote_code: bool = False) -> Any:
    """The tokenizer, or None if the checkpoint has none."""
    if not has_tokenizer(checkpoint.folder):
        return None
    if blueprint.tokenizer is not None:
        return blueprint.tokenizer(checkpoint)
    return published_tokenizer(checkpoint.folder, blueprint.config, trust_remote_code and blueprint.family == "remote")


def with_mask_token(checkpoint: Checkpoint, blueprint: Blueprint, tokenizer: Any, given: int | None = None) -> Blueprint:
    """The blueprint with the mask token, end tokens and suffix that the tokenizer knows; refuses what does not fit together."""
    end_tokens, suffix = list(blueprint.end_tokens), blueprint.suffix
    if tokenizer is not None:
        vocabulary = tokenizer.get_vocab()
        end_tokens += [vocabulary[name] for name in blueprint.end_token_names if name in vocabulary]
        end_tokens += as_tokens(tokenizer.eos_token_id) if blueprint.family != "masked-lm" else ()
        closing = (getattr(tokenizer, name, None) for name in blueprint.suffix_names)
        suffix = suffix or as_tokens(next((token for token in closing if token is not None), None))
    if blueprint.sampler == "autoregressive" and checkpoint.has("generation_config.json"):
        end_tokens += as_tokens(GenerationConfig.from_pretrained(checkpoint.folder).eos_token_id)
    blueprint = replace(blueprint, end_tokens=tuple(dict.fromkeys(end_tokens)), suffix=suffix)
    if given is not None and blueprint.sampler == "autoregressive":
        raise Refusal(f"{checkpoint.name} is an autoregressive model and has no mask token; leave mask_token_id (--mask-token-id) out.")
    if blueprint.sampler == "autoregressive" or (blueprint.sampler is None and blueprint.mask_token_id is None):
        return blueprint
    mask = next((token for token in (given, blueprint.mask_token_id, getattr(tokenizer, "mask_token_id", None)) if token is not None), None)
    if mask is None:
        raise Refusal(
            f"Neither the config nor the tokenizer of {checkpoint.name} names a mask token, and a {blueprint.family} model cannot write without one. "
            "Pass mask_token_id=... (--mask-token-id)."
        )
    size = blueprint.config.get_text_config().vocab_size
    if not 0 <= mask < size:
        raise Refusal(
            f"The mask token of {checkpoint.name} is {mask}, but its vocabulary has {size} tokens. Pass the right one as mask_token_id=... (--mask-token-id)."
        )
    if tokenizer is not None and tokenizer.convert_ids_to_tokens(mask) is None:
        raise Refusal(
            f"The tokenizer of {checkpoint.name} has no token {mask}, which its config calls the mask. Its files do not belong together; fetch the tokenizer "
            "again, or pass mask_token_id=... (--mask-token-id)."
        )
    return replace(blueprint, mask_token_id=mask)


def torch_dtype(dtype: str | torch.dtype | None) -> torch.dtype | None:
    """A dtype by name."""
    if dtype is None or isinstance(dtype, torch.dtype):
        return dtype
    known = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
    if dtype not in known:
        raise Refusal(f"dtype={dtype!r} is not known; choose one of {', '.join(known)}.")
    return known[dtype]


def on_meta_device(blueprint: Blueprint, trust_remote_code: bool = False) -> nn.Module:
    """The module without weights: nothing is read, nothing is allocated."""
    with torch.device("meta"), _attention_must_be_visible():
        if hasattr(blueprint.model_class, "from_config"):
            extra = {"trust_remote_code": True} if trust_remote_code else {}
            return blueprint.model_class.from_config(blueprint.config, attn_implementation="sdpa", **extra)
        blueprint.config._attn_implementation = "sdpa"
        return blueprint.model_class(blueprint.config)


def refuse_wrong_tensors(checkpoint: Checkpoint, blueprint: Blueprint) -> None:
    """Compare the names and shapes in the files with those of the class, before anything is read."""
    expected = {name: tuple(tensor.shape) for name, tensor in on_meta_device(blueprint).state_dict().items()}
    found = {_renamed(name, blueprint.renames or {}): (name, shape) for name, (shape, _) in checkpoint.tensors.items()}
    tied = {"lm_head.weight"} if blueprint.config.tie_word_embeddings else set()
    missing = [name for name in expected if name not in found and name not in tied]
    surplus = [name for name in found if name not in expected and name not in tied]
    if missing or surplus:
        raise Refusal(_tensor_sentence(checkpoint.name, missing, [found[name][0] for name in surplus]))
    for name, (published, shape) in found.items():
        if name in expected and shape != expected[name]:
            raise Refusal(
                f"{checkpoint.name}: tensor {published} has shape {shape}, but the config asks for {expected[name]}. Config and weights do not belong together."
            )


def _renamed(name: str, renames: Mapping[str, str]) -> str:
    for pattern, replacement in renames.items():
        renamed, changed = re.subn(pattern, replacement, name)
        if changed:
            return renamed
    return name


def _tensor_sentence(name: str, missing: list[str], surplus: list[str]) -> str:
    parts = []
    if missing:
        parts.append(f"{len(missing)} missing ({', '.join(sorted(missing)[:3])}{', ...' if len(missing) > 3 else ''})")
    if surplus:
        parts.append(
            f"{len(surplus)} that the model has no place for ({', '.join(sorted(surplus)[:3])}{', ...' if len(surplus) > 3 else ''})"
        )
    return f"The weights of {name} do not fit its config: {' and '.join(parts)}. Nothing was loaded; check that config and weights belong together."


def _refuse_too_little_memory(checkpoint: Checkpoint, dtype: torch.dtype | None, device: torch.device) -> None:
    size = checkpoint.bytes if dtype is None else checkpoint.parameters * dtype.itemsize
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else psutil.virtual_memory().available
    if size > free:
        raise Refusal(
            f"{checkpoint.name} needs {size / 1e9:.1f} GB for its {checkpoint.parameters / 1e9:.1f} billion parameters, and {free / 1e9:.1f} GB are free on {device}. "
            "Choose a smaller dtype (--dtype bfloat16), free memory, or use a larger machine."
        )


def _read_weights(
    checkpoint: Checkpoint,
    blueprint: Blueprint,
    dtype: torch.dtype | None,
    device: torch.device,
    trust_remote_code: bool,
    allow_pickle: bool,
) -> Any:
    options: dict[str, Any] = {"use_safetensors": bool(checkpoint.weight_files) or not allow_pickle}
    if trust_remote_code and blueprint.family == "remote":
        options["trust_remote_code"] = True
    if blueprint.renames:
        options["key_mapping"] = dict(blueprint.renames)
    with _progress_only_above(checkpoint.bytes), _attention_must_be_visible():
        module, read = blueprint.model_class.from_pretrained(
            checkpoint.folder,
            config=blueprint.config,
            dtype=dtype if dtype is not None else "auto",
            device_map={"": device},
            attn_implementation="sdpa",
            output_loading_info=True,
            **options,
        )
    ignored = re.compile(blueprint.ignored_tensors) if blueprint.ignored_tensors else None
    surplus = [name for name in read["unexpected_keys"] if ignored is None or not ignored.search(name)]
    missing = [*read["missing_keys"], *(str(key[0] if isinstance(key, tuple) else key) for key in read["mismatched_keys"])]
    if missing or surplus:
        raise Refusal(_tensor_sentence(checkpoint.name, missing, surplus))
    if blueprint.strict_names and blueprint.config.tie_word_embeddings:
        _refuse_two_embeddings(checkpoint, module)
    return module


def _refuse_two_embeddings(checkpoint: Checkpoint, module: Any) -> None:
    """A stored head is tied while it is read if it equals the embedding, and kept if it does not."""
    if module.get_output_embeddings().weight is not module.get_input_embeddings().weight:
        raise Refusal(
            f"The config of {checkpoint.name} says that head and embedding are one (tie_word_embeddings), but lm_head.weight differs from "
            "model.embed_tokens.weight. Which of the two is meant cannot be told; correct the config or the weights."
        )


@contextmanager
def _attention_must_be_visible() -> Iterator[None]:
    """Some classes of transformers have no attention through SDPA (soft caps, kernels of their own), and say so in many words."""
    try:
        yield
    except ValueError as error:
        if "scaled_dot_product_attention" not in str(error):
            raise
        raise Refusal(
            f"{str(error).split()[0]} has no attention through scaled_dot_product_attention in transformers (it caps its scores, or has a kernel of its own), so where "
            "it looks cannot be seen. Llama, Qwen, Gemma 3 and their kin can be traced."
        ) from None


@contextmanager
def _progress_only_above(size: int) -> Iterator[None]:
    """transformers' own progress bar where loading takes a while, silence where it does not."""
    level = transformers_logging.get_verbosity()
    was_shown = transformers.utils.logging.is_progress_bar_enabled()
    if size < SHOW_PROGRESS_ABOVE:
        transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity_error()  # what matters is checked here, and said in one sentence
    try:
        yield
    finally:
        transformers_logging.set_verbosity(level)
        if was_shown:
            transformers_logging.enable_progress_bar()
