"""Adapters: small sets of weights that turn a base into another model, their files, and merging them into the base.

A file is safetensors: `lora_a.MAP` (rank, inputs) and `lora_b.MAP` (outputs, rank) for every linear map of the layers, `gain.NORM` for
the gains of the norms, `mask_offset`, which is added to the embedding of the mask token, or `weight.NAME` where all weights were trained;
its header says, as JSON, what it belongs to. Published files are float16. `floatlens adapt` trains them.

Merging needs no other package: a map becomes W + alpha / rank * B A. Where the mask token has an offset, the output matrix is a copy of
its own afterwards, so that the offset changes what is read and not what is written.
Refused: files that are not adapters, a base with other weights than the adapter was trained on, parameters that do not fit.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from floatlens.errors import Refusal
from floatlens.folders import write_whole

FORMAT = "floatlens-adapter"
MASK_OFFSET = "mask_offset"
ADAPTER = "adapter.safetensors"


@dataclass(frozen=True)
class AdapterInfo:
    """What an adapter belongs to: its base (name, and SHA-256 of its weights), what was trained, how, and after how many updates."""

    base: str
    base_sha256: str
    trains: str
    rank: int
    alpha: float
    objective: str
    mask: str
    mask_token_id: int
    seed: int
    update: int


@dataclass(frozen=True, eq=False)
class Adapter:
    """The trained parameters by name, and what they belong to."""

    info: AdapterInfo
    tensors: Mapping[str, Tensor]


def bundled_adapters() -> dict[str, Path]:
    """The adapters that come with floatlens, by the names under which `fl.load` loads them.

    Examples
    --------
    >>> bundled_adapters()["smollm2-mdm"].name
    'adapter.safetensors'
    """
    folder = Path(str(files("floatlens.models"))) / "triplet"
    return {file.parent.name: file for file in sorted(folder.glob(f"*/{ADAPTER}"))}


def merge_adapter(module: nn.Module, adapter: Adapter) -> nn.Module:
    """Merge an adapter into the model it was made for, in place, and set the model's mask; the model.

    Refused: parameters that the model does not have, or has in another shape.
    """
    info, used = adapter.info, set[str]()
    maps, parameters = linear_maps(module), dict(module.named_parameters())
    with torch.no_grad():
        for name, tensor in adapter.tensors.items():
            kind, _, place = name.partition(".")
            if kind == "lora_a" and place in maps:
                change = info.alpha / info.rank * (_fit(adapter, f"lora_b.{place}") @ _fit(adapter, name))
                _refuse_shape(name, change, maps[place].weight)
                maps[place].weight.copy_(maps[place].weight.float() + change.to(maps[place].weight.device))
            elif kind in ("gain", "weight") and (target := parameters.get(f"{place}.weight" if kind == "gain" else place)) is not None:
                _refuse_shape(name, tensor, target)
                target.copy_(tensor)
            elif name != MASK_OFFSET and not (kind == "lora_b" and f"lora_a.{place}" in adapter.tensors):
                raise Refusal(
                    f"The adapter has a parameter {name!r}, which this model has no place for. Merge it into its base, {info.base}."
                )
            used.add(name)
        _merge_mask_offset(module, adapter.tensors.get(MASK_OFFSET), info.mask_token_id)
    missing = [name for name in maps if info.trains != "all" and f"lora_a.{name}" not in used]
    if missing:
        raise Refusal(f"The adapter has no parameters for {missing[0]}, which this model has. Merge it into its base, {info.base}.")
    module.config.is_causal = info.mask == "causal"  # type: ignore[union-attr]  # a model of transformers
    return module


def write_adapter(path: Path, adapter: Adapter, dtype: torch.dtype = torch.float16) -> None:
    """Write an adapter whole or not at all."""
    tensors = {name: tensor.detach().to("cpu", dtype).contiguous() for name, tensor in adapter.tensors.items()}
    write_whole(path, save(tensors, metadata={FORMAT: json.dumps(asdict(adapter.info))}))


def read_adapter(path: str | PathLike[str]) -> Adapter:
    """The adapter in a file.

    Examples
    --------
    >>> read_adapter("nowhere.safetensors")
    Traceback (most recent call last):
    floatlens.errors.Refusal: nowhere.safetensors is not an adapter (No such file or directory: \
nowhere.safetensors). Give a file that floatlens adapt wrote.
    """
    try:
        with safe_open(path, framework="pt") as file:
            info = AdapterInfo(**json.loads((file.metadata() or {})[FORMAT]))
            return Adapter(info, {name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118  # it is not iterable
    except (SafetensorError, OSError, ValueError, TypeError, KeyError) as error:
        raise Refusal(
            f"{path} is not an adapter ({str(error).strip() or type(error).__name__}). Give a file that floatlens adapt wrote."
        ) from None


def refuse_other_base(module: nn.Module, adapter: Adapter, name: str) -> None:
    """Refuse a base whose weights are not those that the adapter was trained on."""
    if weights_sha256(module) != adapter.info.base_sha256:
        raise Refusal(
            f"The adapter {name} was made for {adapter.info.base} with other weights than those found here. Load the base it was made for."
        )


def weights_sha256(module: nn.Module) -> str:
    """The SHA-256 of a model's weights, names and shapes included."""
    digest = hashlib.sha256()
    for name, weights in sorted(module.named_parameters()):
        digest.update(f"{name} {tuple(weights.shape)} {weights.dtype}".encode())
        digest.update(weights.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _merge_mask_offset(module: Any, offset: Tensor | None, mask_token_id: int) -> None:
    if offset is None or not offset.any():
        return
    embedding = module.get_input_embeddings().weight
    _refuse_shape(MASK_OFFSET, offset, embedding[0])
    if module.lm_head.weight is embedding:
        module.lm_head.weight = nn.Parameter(embedding.detach().clone(), requires_grad=embedding.requires_grad)
        module.config.tie_word_embeddings = False
    embedding[mask_token_id] += offset.to(embedding)


def _fit(adapter: Adapter, name: str) -> Tensor:
    if name not in adapter.tensors:
        raise Refusal(f"The adapter lacks the parameter {name!r}, so it is not whole. Fetch it again.")
    return adapter.tensors[name].float()


def _refuse_shape(name: str, tensor: Tensor, target: Tensor) -> None:
    if tensor.shape != target.shape:
        raise Refusal(
            f"The parameter {name!r} of the adapter has the shape {tuple(tensor.shape)}, and the model's "
            f"{tuple(target.shape)}. It is another base."
        )


def linear_maps(module: nn.Module) -> dict[str, nn.Linear]:
    """The linear maps of the layers by name, without the output matrix."""
    return {name: part for name, part in module.named_modules() if isinstance(part, nn.Linear) and name.startswith("model.layers.")}


def norm_gains(module: nn.Module) -> dict[str, nn.Parameter]:
    """The gains of all norms, those of Qwen3's queries and keys and the last one among them."""
    return {name: part.weight for name, part in module.named_modules() if type(part).__name__.endswith("RMSNorm")}  # type: ignore[misc]  # they have one
