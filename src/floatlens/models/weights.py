"""From a blueprint to a module with weights: compare the files with the class, check memory, read, and look at what was read.

Refused: tensors that are missing, surplus or of another shape than the config asks for; more weights than there is memory, whether the
files or the config ask for it; a head that differs from the embedding it is said to be; weights that are not finite. A model that is too
large for one device is spread over several, whole layers each.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import psutil
import torch
import transformers
from torch import nn
from transformers.utils import logging as transformers_logging

from floatlens.decoding.tokens import quiet
from floatlens.errors import Refusal, in_a_sentence, shown
from floatlens.models.checkpoint import Checkpoint
from floatlens.models.families.adapter import Blueprint

SHOW_PROGRESS_ABOVE = 1 << 30  # bytes of weights: below, loading takes a second


def on_meta_device(checkpoint: Checkpoint, blueprint: Blueprint, trust_remote_code: bool = False) -> nn.Module:
    """The module without weights: nothing is read, nothing is allocated."""
    what = f"transformers cannot build a {blueprint.family} model from the config of {checkpoint.name}"
    with (
        in_a_sentence(what, "Fetch config.json again, or correct it."),
        quiet(),
        torch.device("meta"),
        _attention_must_be_visible(),
    ):
        if hasattr(blueprint.model_class, "from_config"):
            trusted = trust_remote_code and blueprint.family == "remote"
            return blueprint.model_class.from_config(blueprint.config, attn_implementation="sdpa", trust_remote_code=trusted)
        blueprint.config._attn_implementation = "sdpa"
        return blueprint.model_class(blueprint.config)


def refuse_wrong_tensors(checkpoint: Checkpoint, blueprint: Blueprint, module: nn.Module) -> None:
    """Compare the files with the class, before anything is read: shapes, and names where the class has those of the files."""
    expected = {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
    stored_tensors: dict[str, tuple[str, tuple[int, ...]]] = {}
    for published, (shape, _) in checkpoint.tensors.items():
        name = _renamed(published, blueprint.renames or {})
        if name in stored_tensors:
            raise Refusal(
                f"{checkpoint.name} holds the tensor {shown(name)} under two names, {shown(stored_tensors[name][0])} and "
                f"{shown(published)}; it is unclear which of the two is meant. Remove one."
            )
        stored_tensors[name] = (published, shape)
    tied = {"lm_head.weight"} if blueprint.config.tie_word_embeddings else set()
    missing = [name for name in expected if name not in stored_tensors and name not in tied]
    surplus = [name for name in stored_tensors if name not in expected and name not in tied]
    if blueprint.strict_names and (missing or surplus):
        raise Refusal(_tensor_sentence(checkpoint.name, missing, [stored_tensors[name][0] for name in surplus]))
    if checkpoint.config.get("quantization_config") is not None and not blueprint.strict_names:
        return  # packed: other shapes under the same names
    for name, (published, shape) in stored_tensors.items():
        if name in expected and shape != expected[name]:
            raise Refusal(
                f"{checkpoint.name}: tensor {shown(published)} has shape {shape}, but the config asks for {expected[name]}. Config and "
                "weights do not belong together."
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
        parts.append(f"{len(missing)} missing ({shown(', '.join(sorted(missing)[:3]))}{', ...' if len(missing) > 3 else ''})")
    if surplus:
        parts.append(
            f"{len(surplus)} that the model has no place for ({shown(', '.join(sorted(surplus)[:3]))}{', ...' if len(surplus) > 3 else ''})"
        )
    fault = f"The weights of {name} do not fit its config: {' and '.join(parts)}."
    return f"{fault} Nothing was loaded; check that config and weights belong together."


def refuse_too_little_memory(
    checkpoint: Checkpoint, dtype: torch.dtype | None, devices: Sequence[torch.device], module: nn.Module | None = None
) -> None:
    """Refuse weights for which there is no memory: those in the files, or those that the config asks for, whichever are more."""
    asked = 0 if module is None else sum(parameter.numel() for parameter in module.parameters())
    parameters = max(checkpoint.parameters, asked)
    stored = checkpoint.bytes / checkpoint.parameters if checkpoint.parameters else 4
    size = max(checkpoint.bytes, asked * stored) if dtype is None else parameters * dtype.itemsize
    free = sum(torch.cuda.mem_get_info(device)[0] for device in devices if device.type == "cuda") or psutil.virtual_memory().available
    if size > free:
        raise Refusal(
            f"{checkpoint.name} needs {size / 1e9:.1f} GB for its {parameters / 1e9:.1f} billion parameters, and {free / 1e9:.1f} GB are "
            f"free on {', '.join(map(str, devices))}. Choose a smaller dtype (--dtype bfloat16), free memory, spread it over several "
            "devices (--device cuda:0,cuda:1), or use a larger machine."
        )


def placement(module: nn.Module, devices: Sequence[torch.device]) -> dict[str, torch.device]:
    """Which part of a module goes where: whole layers, one after the other, so that each device gets about as much.

    Parts that share a weight stay together, and parts without weights go with the first device.

    Examples
    --------
    >>> devices = [torch.device("cuda:0"), torch.device("cuda:1")]
    >>> {name: str(device) for name, device in placement(nn.Sequential(*(nn.Linear(2, 2) for _ in range(3))), devices).items()}
    {'0': 'cuda:0', '1': 'cuda:0', '2': 'cuda:1'}
    """
    if len(devices) == 1:
        return {"": devices[0]}
    parts = list(_parts(module, "", set(getattr(module, "_no_split_modules", None) or ())))
    total = sum(parameter.nbytes for parameter in module.parameters())
    places: dict[str, torch.device] = {}
    place_of_weight: dict[int, torch.device] = {}
    placed = 0
    for name, part in parts:
        weights = list(part.parameters())
        shared = next((place_of_weight[id(weight)] for weight in weights if id(weight) in place_of_weight), None)
        places[name] = shared or devices[min(placed * len(devices) // max(total, 1), len(devices) - 1) if weights else 0]
        placed += sum(weight.nbytes for weight in weights if id(weight) not in place_of_weight)
        place_of_weight |= {id(weight): places[name] for weight in weights}
    return places


def _parts(module: nn.Module, name: str, whole: set[str]) -> Iterator[tuple[str, nn.Module]]:
    """The parts of a module that are not divided any further: its layers, and what has weights of its own or no parts."""
    children = list(module.named_children())
    if type(module).__name__ in whole or not children or any(True for _ in module.parameters(recurse=False)):
        yield name, module
        return
    for child_name, child in children:
        yield from _parts(child, f"{name}.{child_name}" if name else child_name, whole)


def read_weights(
    checkpoint: Checkpoint,
    blueprint: Blueprint,
    dtype: torch.dtype | None,
    places: Mapping[str, torch.device],
    trust_remote_code: bool,
    allow_pickle: bool,
) -> Any:
    """The module with the weights of the checkpoint, all of them and nothing else, each part in its place."""
    options: dict[str, Any] = {"use_safetensors": bool(checkpoint.weight_files) or not allow_pickle}
    options["trust_remote_code"] = trust_remote_code and blueprint.family == "remote"  # always explicit: transformers would ask otherwise
    if blueprint.renames:
        options["key_mapping"] = dict(blueprint.renames)
    with (
        in_a_sentence(
            f"The weights of {checkpoint.name} cannot be read", "Check that config and weights belong together, or download it again."
        ),
        quiet(),
        _progress_bar(show=checkpoint.bytes >= SHOW_PROGRESS_ABOVE),
        _attention_must_be_visible(),
    ):
        module, read = blueprint.model_class.from_pretrained(
            checkpoint.folder,
            config=blueprint.config,
            dtype=dtype if dtype is not None else "auto",
            device_map=dict(places),
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
    _refuse_infinite_weights(checkpoint, module)
    return module


def _refuse_infinite_weights(checkpoint: Checkpoint, module: nn.Module) -> None:
    for name, parameter in module.named_parameters():
        if parameter.numel() and parameter.is_floating_point() and parameter.itemsize > 1:
            least, most = torch.aminmax(parameter.detach())  # one pass, nothing allocated; NaN if there is one
            if not bool(torch.isfinite(least) & torch.isfinite(most)):
                raise Refusal(
                    f"Tensor {shown(name)} of {checkpoint.name} holds weights that are not finite (NaN or infinity), as "
                    f"{parameter.dtype} at least, so nothing that the model "
                    "computes would be a number. Download it again, or choose another dtype (--dtype float32)."
                )


def _refuse_two_embeddings(checkpoint: Checkpoint, module: Any) -> None:
    """A stored head is tied while it is read if it equals the embedding, and kept if it does not."""
    if module.get_output_embeddings().weight is not module.get_input_embeddings().weight:
        raise Refusal(
            f"The config of {checkpoint.name} says that head and embedding are one (tie_word_embeddings), but lm_head.weight differs from "
            "model.embed_tokens.weight. It is unclear which of the two is meant; correct the config or the weights."
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
            f"{str(error).split()[0]} has no attention through scaled_dot_product_attention in transformers (it caps its scores, or has "
            "a kernel of its own), so where it looks cannot be seen. Llama, Qwen, Gemma 3 and their kin can be traced."
        ) from None


@contextmanager
def _progress_bar(*, show: bool) -> Iterator[None]:
    """transformers' own progress bar where loading takes a while, silence where it does not."""
    was_shown = transformers.utils.logging.is_progress_bar_enabled()
    if not show:
        transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        if was_shown:
            transformers_logging.enable_progress_bar()
