"""`fl.load`: from a name to a model that can be run, traced and asked to write.

The order is: find the checkpoint, recognise its family, draw up the blueprint from the config, compare tensor names and shapes with the
class (from the files' headers), check memory, and only then read weights, renamed and converted one by one, so that a model never exists
twice.

Refused: any missing, surplus or mismatched tensor, because a layer left random gives plausible but wrong numbers; a config whose values no
model can have. transformers takes a config nearly at its word: a million layers are built one by one, a negative epsilon or a rotary base
of 0 gives logits that are not numbers, and 7 heads in 32 dimensions give a model of another shape. Sizes are bounded far above anything
published, so that a damaged config ends in a sentence and not in a machine without memory.
"""

import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM

from floatlens.decoding.options import SAMPLERS
from floatlens.decoding.tokens import has_tokenizer, published_tokenizer, quiet
from floatlens.errors import Refusal, in_a_sentence, shown
from floatlens.models.checkpoint import Checkpoint, find_checkpoint, read_json
from floatlens.models.families import FAMILIES
from floatlens.models.families.adapter import Blueprint, as_tokens, native_config
from floatlens.models.language_model import LanguageModel
from floatlens.models.weights import on_meta_device, placement, read_weights, refuse_too_little_memory, refuse_wrong_tensors

_SIZES = {  # the largest that is believed
    "num_hidden_layers": 1 << 11,
    "num_attention_heads": 1 << 14,
    "num_key_value_heads": 1 << 14,
    "head_dim": 1 << 16,
    "hidden_size": 1 << 20,
    "intermediate_size": 1 << 24,
    "vocab_size": 1 << 26,
    "max_position_embeddings": 1 << 32,
}
_OPTIONAL = ("num_key_value_heads", "head_dim", "intermediate_size", "max_position_embeddings")
_LARGEST_COUNT = 1 << 20  # of experts, window layers, ...: any other whole number whose name says that it counts parts
_LAYERS = ("num_hidden_layers", "num_layers", "n_layers", "n_layer")
_EPSILONS = ("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_eps")
_BASES = ("rope_theta", "global_rope_theta", "local_rope_theta", "rope_local_base_freq", "factor", "attention_factor")


def refuse_too_many_layers(name: str, published: Mapping[str, Any]) -> None:
    """Refuse more layers than any model has before transformers reads a config: some classes make a list with an entry for each."""
    most = _SIZES["num_hidden_layers"]
    for table in (published, *(value for value in published.values() if isinstance(value, Mapping))):
        for field in _LAYERS:
            if isinstance(value := table.get(field), int) and value > most:
                raise Refusal(f"{_says(name, field, value)}; that must be a whole number from 1 to {most:,}. {_THEN}")


def refuse_impossible_values(name: str, config: Any) -> None:
    """Refuse the first value of a transformers config that no model can have."""
    text = config.get_text_config()
    for field, largest in _SIZES.items():
        value = _value(text, field)
        if value is None and field in _OPTIONAL:
            continue
        for size in value if isinstance(value, list | tuple) and field in _OPTIONAL else [value]:  # some classes have one for each layer
            if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= largest:
                raise Refusal(f"{_says(name, field, value)}; that must be a whole number from 1 to {largest:,}. {_THEN}")
    heads, kv_heads, size = text.num_attention_heads, _value(text, "num_key_value_heads"), text.hidden_size
    if isinstance(kv_heads, int) and heads % kv_heads:
        raise Refusal(f"{_says(name, 'num_attention_heads', heads)} and num_key_value_heads={kv_heads}, which does not divide it. {_THEN}")
    if not _varies(text, "head_dim") and _value(text, "head_dim") is None and size % heads:
        raise Refusal(f"{_says(name, 'hidden_size', size)} and num_attention_heads={heads}, which does not divide it. {_THEN}")
    for field, value in _fields(text.to_dict()):
        number = value if isinstance(value, int | float) and not isinstance(value, bool) else None
        if field in _EPSILONS and (number is None or not 0 <= number < 1):
            raise Refusal(f"{_says(name, field, value)}; that must be a small number, such as 1e-6. {_THEN}")
        if field in _BASES and value is not None and (number is None or not 0 < number < math.inf):
            raise Refusal(f"{_says(name, field, value)}; that must be a number above 0. {_THEN}")
        counts = field.startswith(("num_", "n_")) or field.endswith("_layers")
        if counts and number is not None and not -_LARGEST_COUNT <= number <= _LARGEST_COUNT:
            raise Refusal(f"{_says(name, field, value)}, which is more than any model has. {_THEN}")


def _varies(config: Any, field: str) -> bool:
    """Whether layers have values of their own; transformers then raises over a question for all of them."""
    try:
        getattr(config, field, None)
    except Exception:  # it has a class of its own for this, in no public place
        return True
    return False


def _value(config: Any, field: str) -> Any:
    return None if _varies(config, field) else getattr(config, field, None)


_THEN = "Fetch config.json again, or correct it."


def _says(name: str, field: str, value: Any) -> str:
    return f"The config of {name} says {field}={shown(repr(value))}"


def _fields(config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Every field, those of the rotary parameters (one set, or one for each kind of layer) among them."""
    for field, value in config.items():
        yield field, value
        if isinstance(value, Mapping) and (field.startswith("rope") or field.endswith("_attention")):
            yield from _fields(value)


_LONGEST_BLOCK = 1 << 16


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
    block_length: int | None = None,
) -> LanguageModel:
    """Load a language model by name.

    Parameters
    ----------
    name_or_path
        A bundled model ("smollm2-mdm"), a checkpoint folder, an adapter, a .gguf or llama2.c .bin file, or a hub name ("owner/name").
    revision
        A branch, tag or commit of a hub repository.
    dtype
        "float32", "bfloat16", "float16"; that of the checkpoint by default.
    device
        "cpu", "cuda", ...; the first GPU if there is one. Several ("cuda:0,cuda:1") for a model that is too large for one: each gets some
        of the layers.
    trust_remote_code
        Run code that comes with the checkpoint. Needed for LLaDA-MoE and LLaDA2.x only.
    allow_pickle
        Open pickled weights, which can run any code, where there are no safetensors.
    family
        The adapter, where the config does not tell: see `floatlens models`.
    mask_token_id
        The mask token, where neither config nor tokenizer names it.
    block_length
        The blocks that an A2D or SDAR model was trained with, if its config does not say: a row sees its own block and those before it.
        BD3LM models are published with 32, OPDLM with 4; 0 is an A2D model whose rows see the whole text (MDLM).

    Examples
    --------
    >>> import floatlens as fl
    >>> fl.load("smolm2")
    Traceback (most recent call last):
    floatlens.errors.Refusal: There is no model 'smolm2': it is neither bundled, nor a folder or file here, nor a hub name of the form \
owner/name. Did you mean 'smollm2-mdm'?
    """
    wanted, devices = torch_dtype(dtype), torch_devices(device)  # before anything is fetched
    checkpoint = find_checkpoint(name_or_path, revision, trust_remote_code=trust_remote_code, allow_pickle=allow_pickle)
    checkpoint.refuse_missing_weights(allow_pickle)
    blueprint = draw_up(checkpoint, family, trust_remote_code, block_length)
    tokenizer = tokenizer_for(checkpoint, blueprint, trust_remote_code)
    blueprint = with_mask_token(checkpoint, blueprint, tokenizer, mask_token_id)
    checkpoint.refuse_wrong_types()
    empty = None if blueprint.family == "remote" else on_meta_device(checkpoint, blueprint)
    if empty is not None and checkpoint.weight_files:
        refuse_wrong_tensors(checkpoint, blueprint, empty)
    refuse_too_little_memory(checkpoint, wanted, devices, empty)
    if empty is None and len(devices) > 1:
        raise Refusal(f"{checkpoint.name} runs with code of its own, so its layers are not known before it is loaded. Name one device.")
    exact = torch.float32 if checkpoint.adapter is not None else wanted  # an adapter is merged into the very weights it was made for
    places = {"": devices[0]} if empty is None else placement(empty, devices)
    module = read_weights(checkpoint, blueprint, exact, places, trust_remote_code, allow_pickle)
    if blueprint.finish is not None:
        blueprint.finish(module)
    if wanted is not None and exact != wanted:
        module = module.to(wanted)
    return LanguageModel(
        module=module.eval(),
        tokenizer=tokenizer,
        family=blueprint.family,
        sampler=blueprint.sampler,
        row_offset=blueprint.row_offset,
        mask_token_id=blueprint.mask_token_id,
        never_written=blueprint.never_written,
        end_tokens=blueprint.end_tokens,
        suffix=blueprint.suffix,
        name=checkpoint.name,
        revision=checkpoint.revision,
        sampler_defaults=dict(blueprint.sampler_defaults or {}),
        step_on=blueprint.step_on(module) if blueprint.step_on else None,
    )


def draw_up(checkpoint: Checkpoint, family: str | None, trust_remote_code: bool, block_length: int | None = None) -> Blueprint:
    """The blueprint of the family that recognises the config, with values that a model can have."""
    if family is not None and family not in FAMILIES:
        raise Refusal(f"There is no family {family!r}. There are: {', '.join(FAMILIES)}.")
    what = f"The config of {checkpoint.name} is not one that a model can be built from"
    refuse_too_many_layers(checkpoint.name, checkpoint.config)
    with in_a_sentence(what, "Fetch config.json again, or correct it."), quiet():
        if checkpoint.adapter is not None:
            if family not in (None, "adapted"):
                raise Refusal(f"{checkpoint.name} is an adapter, which is loaded as the family 'adapted', not {family!r}. Leave it out.")
            blueprint = FAMILIES["adapted"].blueprint(checkpoint)
        elif "floatlens" in checkpoint.config and family is None:
            blueprint = _saved_blueprint(checkpoint)
        else:
            chosen = FAMILIES[family] if family else next(each for each in FAMILIES.values() if each.recognises(checkpoint.config))
            if chosen.name == "remote" and not trust_remote_code:
                raise Refusal(
                    f"{checkpoint.name} ({shown(', '.join(map(str, checkpoint.config.get('architectures') or ['no class named'])))}) "
                    "runs only with code that comes with the checkpoint. If you trust where it comes from, pass trust_remote_code=True "
                    "(--trust-remote-code)."
                )
            blueprint = chosen.blueprint(checkpoint)
        if blueprint.family != "remote":
            refuse_impossible_values(checkpoint.name, blueprint.config)
    return with_blocks(checkpoint, blueprint, block_length)


def _saved_blueprint(checkpoint: Checkpoint) -> Blueprint:
    """What `LanguageModel.save` wrote into the config."""
    saved: Mapping[str, Any] = checkpoint.config["floatlens"]
    if saved.get("family") not in FAMILIES:
        raise Refusal(f"{checkpoint.name} was saved as family {saved.get('family')!r}, which this version does not know. Update floatlens.")
    if saved["sampler"] not in SAMPLERS or saved["row_offset"] not in (0, 1) or not isinstance(saved["sampler_defaults"], dict):
        raise Refusal(
            f"The config of {checkpoint.name} says sampler={saved['sampler']!r}, row_offset={saved['row_offset']!r} under 'floatlens', "
            "which no version writes. Save the model again, or fetch config.json again."
        )
    return Blueprint(
        family=saved["family"],
        config=native_config(checkpoint),
        model_class=AutoModelForMaskedLM if saved["family"] == "masked-lm" else AutoModelForCausalLM,
        sampler=saved["sampler"],
        row_offset=saved["row_offset"],
        mask_token_id=saved["mask_token_id"],
        never_written=as_tokens(saved.get("never_written")),
        end_tokens=as_tokens(saved["end_tokens"]),
        suffix=as_tokens(saved["suffix"]),
        sampler_defaults=saved["sampler_defaults"],
        finish=FAMILIES[saved["family"]].finish,
        strict_names=False,
    )


def with_blocks(checkpoint: Checkpoint, blueprint: Blueprint, given: int | None = None) -> Blueprint:
    """The blueprint with the blocks that the model was trained with: the user's, the config's or the family's; refused if none is known."""
    blocks = blueprint.blocks
    if blocks is None:
        if given is not None:
            raise Refusal(
                f"{checkpoint.name} is a {blueprint.family} model, which needs no block length to be loaded; leave block_length "
                "(--block-length) out. To write in blocks, pass block_length to generate or trace (--set block_length=...)."
            )
        return blueprint
    if given is not None and blocks.named is not None and given != blocks.named:
        raise Refusal(
            f"The config of {checkpoint.name} says that it was trained with a block length of {blocks.named!r}, not {given}. Leave "
            "block_length (--block-length) out, or correct the config."
        )
    length = next((length for length in (given, blocks.named, blocks.default) if length is not None), None)
    if length is None:
        raise Refusal(
            f"The config of {checkpoint.name} (model_type {checkpoint.config.get('model_type')!r}) does not say whether it was trained "
            "to see the whole text or block by block, and with the wrong mask it gives plausible but wrong numbers. Pass block_length=... "
            "(--block-length): 0 for the whole text (MDLM), 32 for the published BD3LM, 4 for OPDLM."
        )
    least = 0 if blocks.may_be_none else 1
    if isinstance(length, bool) or not isinstance(length, int) or not least <= length <= _LONGEST_BLOCK:
        raise Refusal(
            f"The block length of {checkpoint.name} is {shown(repr(length))}; it must be a whole number from {least} to {_LONGEST_BLOCK}. "
            "Pass the right one as block_length=... (--block-length), or correct the config."
        )
    if length == 0:
        return blueprint
    planned = {"order": "low_confidence_static"} if blueprint.family == "a2d" else {}  # as BD3LM is published
    return replace(blueprint, sampler="sdar", sampler_defaults={**planned, "block_length": length})


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
        end_tokens += as_tokens(read_json(checkpoint.folder / "generation_config.json", checkpoint.name).get("eos_token_id"))
    blueprint = replace(blueprint, end_tokens=tuple(dict.fromkeys(end_tokens)), suffix=suffix)
    if given is not None and blueprint.sampler == "autoregressive":
        raise Refusal(f"{checkpoint.name} is an autoregressive model and has no mask token; leave mask_token_id (--mask-token-id) out.")
    if blueprint.sampler == "autoregressive" or (blueprint.sampler is None and blueprint.mask_token_id is None):
        return blueprint
    mask = next((token for token in (given, blueprint.mask_token_id, getattr(tokenizer, "mask_token_id", None)) if token is not None), None)
    if mask is None:
        raise Refusal(
            f"Neither the config nor the tokenizer of {checkpoint.name} names a mask token, and a {blueprint.family} model cannot write "
            "without one. Pass mask_token_id=... (--mask-token-id)."
        )
    size = blueprint.config.get_text_config().vocab_size
    if isinstance(mask, bool) or not isinstance(mask, int):
        raise Refusal(
            f"The mask token of {checkpoint.name} is {shown(repr(mask))}, which is not a token id. Pass the right one as mask_token_id=... "
            "(--mask-token-id)."
        )
    if not 0 <= mask < size:
        raise Refusal(
            f"The mask token of {checkpoint.name} is {mask}, but its vocabulary has {size} tokens. Pass the right one as "
            "mask_token_id=... (--mask-token-id)."
        )
    if tokenizer is not None and tokenizer.convert_ids_to_tokens(mask) is None:
        raise Refusal(
            f"The tokenizer of {checkpoint.name} has no token {mask}, which its config calls the mask. Its files do not belong together; "
            "fetch the tokenizer again, or pass mask_token_id=... (--mask-token-id)."
        )
    return replace(blueprint, mask_token_id=mask)


def torch_dtype(dtype: str | torch.dtype | None) -> torch.dtype | None:
    """A dtype by name."""
    if dtype is None or isinstance(dtype, torch.dtype):
        return dtype
    if not isinstance(dtype, str):
        raise Refusal(f"dtype={dtype!r} is not known; give its name or a torch.dtype.")
    known = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
    if dtype not in known:
        raise Refusal(f"dtype={dtype!r} is not known; choose one of {', '.join(known)}.")
    return known[dtype]


def torch_devices(device: str | torch.device | None) -> list[torch.device]:
    """Devices by name, separated by commas, each tried out; the first GPU if there is one, or else the CPU.

    Examples
    --------
    >>> torch_devices("cpu,cpu")
    Traceback (most recent call last):
    floatlens.errors.Refusal: device='cpu,cpu' (--device) names a device twice. Name each once.
    """
    if device is None:
        return [torch.device("cuda" if torch.cuda.is_available() else "cpu")]
    names = device.split(",") if isinstance(device, str) else [device]
    with in_a_sentence(f"device={shown(repr(device))} (--device) cannot be used here", "This machine has: " + ", ".join(_devices()) + "."):
        places = [torch.device(name.strip() if isinstance(name, str) else name) for name in names]
        for place in places:
            if place.type == "meta":
                raise ValueError("nothing can be computed on it")
            if place.type != "cpu" and (place.index or 0) >= torch.get_device_module(place).device_count():
                raise ValueError("there is no such device")
            torch.zeros(1, device=place)
    if len(set(places)) < len(places):
        raise Refusal(f"device={shown(repr(device))} (--device) names a device twice. Name each once.")
    if len(places) > 1 and any(place.type == "cpu" for place in places):
        raise Refusal(f"device={shown(repr(device))} (--device) divides a model between the CPU and others. Name GPUs, or the CPU.")
    return places


def _devices() -> list[str]:
    gpus = [f"cuda:{number}" for number in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
    return ["cpu", *gpus, *(["mps"] if torch.backends.mps.is_available() else [])]
