"""Adapters: the parameters that an adaptation trains, their files, and merging them into the model they were made for.

A file is safetensors: `lora_a.MAP` (rank, inputs) and `lora_b.MAP` (outputs, rank) for every linear map of the layers, `gain.NORM` for
the gains of the norms, `mask_offset`, which is added to the embedding of the mask token, or `weight.NAME` where all weights were trained;
its header says, as JSON, what it belongs to, and holds a SHA-256 of all of it. Published files are float16.

Merging needs no other package: a map becomes W + alpha / rank * B A. Where the mask token has an offset, the output matrix is a copy of
its own afterwards, so that the offset changes what is read and not what is written.
Refused: models that are not Llama, Qwen2 or Qwen3, files that are not adapters, were changed or were made for another base. A model is
changed only when all of the adapter fits it.
"""

import hashlib
import json
import math
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from floatlens.errors import Caution, Refusal, reason
from floatlens.folders import write_whole
from floatlens.lab.adaptation.recipe import MASKS, OBJECTIVES, TRAINS
from floatlens.models.language_model import LanguageModel

FORMAT, DIGEST = "floatlens-adapter", "sha256"
FAMILIES = ("llama", "qwen2", "qwen3")
MASK_OFFSET = "mask_offset"


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


class LoraMap(nn.Module):
    """A linear map whose weights are frozen, and a change of low rank to it that is trained."""

    def __init__(self, frozen: nn.Linear, lora_a: Tensor, lora_b: Tensor, scale: float) -> None:
        super().__init__()
        self.frozen, self.scale = frozen, scale
        self.lora_a, self.lora_b = nn.Parameter(lora_a), nn.Parameter(lora_b)

    def forward(self, inputs: Tensor) -> Tensor:
        return _LowRank.apply(inputs, self.frozen.weight, self.frozen.bias, self.lora_a, self.lora_b, self.scale)  # type: ignore[no-any-return]  # torch does not say


class _LowRank(torch.autograd.Function):
    """x W' + scale (x A') B', adding in place; it saves a tenth of the time over the same in autograd's own operations."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor | None, lora_a: Tensor, lora_b: Tensor, scale: float) -> Tensor:  # type: ignore[override]
        flat = inputs.reshape(-1, inputs.shape[-1])
        low = flat @ lora_a.t()
        outputs = nn.functional.linear(flat, weight, bias)
        outputs.addmm_(low, lora_b.t(), alpha=scale)
        ctx.save_for_backward(flat, weight, lora_a, lora_b, low)
        ctx.scale, ctx.shape = scale, inputs.shape
        return outputs.view(*inputs.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        flat, weight, lora_a, lora_b, low = ctx.saved_tensors
        outer = gradient.reshape(-1, gradient.shape[-1])
        inner = (outer @ lora_b) * ctx.scale
        of_inputs = outer @ weight
        of_inputs.addmm_(inner, lora_a)
        return of_inputs.view(ctx.shape), None, None, inner.t() @ flat, (outer.t() @ low) * ctx.scale, None


def refuse_model(lm: LanguageModel) -> None:
    """Refuse a model that cannot be adapted.

    Examples
    --------
    >>> from transformers import GPT2Config, GPT2LMHeadModel
    >>> module = GPT2LMHeadModel(GPT2Config(n_embd=8, n_layer=1, n_head=1, vocab_size=16))
    >>> refuse_model(LanguageModel(module, family="autoregressive", sampler="autoregressive", row_offset=1, name="gpt2"))
    Traceback (most recent call last):
    floatlens.errors.Refusal: gpt2 is a gpt2 model, and what can be adapted are autoregressive models of the kinds \
llama, qwen2, qwen3. Choose another base.
    """
    kind = getattr(lm.config, "model_type", "custom")
    if kind not in FAMILIES or lm.sampler != "autoregressive":
        what = f"a {kind} model" if kind not in FAMILIES else f"a {kind} model that writes with the sampler {lm.sampler!r}"
        raise Refusal(
            f"{lm.name} is {what}, and what can be adapted are autoregressive models of the kinds {', '.join(FAMILIES)}. "
            "Choose another base."
        )
    if lm.tokenizer is None or not lm.end_tokens:
        missing = "tokenizer" if lm.tokenizer is None else "end token"
        raise Refusal(f"{lm.name} has no {missing}, so it cannot learn from text where an answer ends. Load it with its tokenizer files.")


def mask_token_of(lm: LanguageModel, token: str) -> int:
    """The id of the token that becomes the mask."""
    known = lm.tokenizer.get_vocab().get(token)
    if known is None or known >= lm.config.vocab_size:
        raise Refusal(
            f"The tokenizer of {lm.name} has no token {token!r} (mask_token in the recipe). Name one of its tokens that no text contains."
        )
    if known in lm.end_tokens:
        raise Refusal(
            f"{token!r} (mask_token in the recipe) is an end token of {lm.name}, which must be written. Name a token that no text contains."
        )
    return known


def attach(module: nn.Module, trains: str, rank: int, alpha: float, seed: int) -> dict[str, nn.Parameter]:
    """Freeze a model and give it the parameters of an adapter, in place; the parameters by name. Before training they change nothing.

    Examples
    --------
    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> config = LlamaConfig(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1, vocab_size=16)
    >>> module = LlamaForCausalLM(config)
    >>> sorted(name.partition(".")[0] for name in attach(module, "lora+norms", 2, 4.0, seed=0)).count("lora_a")
    7
    """
    trained: dict[str, nn.Parameter] = {}
    for weights in module.parameters():
        weights.requires_grad_(trains == "all")
    if trains == "all":
        trained |= {f"weight.{name}": weights for name, weights in module.named_parameters()}
    else:
        for name, linear in _linear_maps(module).items():
            generator = torch.Generator().manual_seed(int.from_bytes(hashlib.sha256(f"{seed} {name}".encode()).digest()[:7], "big"))
            lora_a = (torch.rand(rank, linear.in_features, generator=generator) * 2 - 1) * linear.in_features**-0.5  # as peft draws it
            lora = LoraMap(linear, lora_a.to(linear.weight), torch.zeros(linear.out_features, rank).to(linear.weight), alpha / rank)
            _replace(module, name, lora)
            trained |= {f"lora_a.{name}": lora.lora_a, f"lora_b.{name}": lora.lora_b}
    if trains == "lora+norms":
        for name, gain in _norm_gains(module).items():
            gain.requires_grad_(True)
            trained[f"gain.{name}"] = gain
    embedding: Any = module.get_input_embeddings()  # type: ignore[operator]  # a model of transformers
    trained[MASK_OFFSET] = nn.Parameter(torch.zeros_like(embedding.weight[0]))
    return trained


def merge_adapter(module: nn.Module, adapter: Adapter) -> nn.Module:
    """Merge an adapter into the model it was made for, in place, and set the model's mask; the model.

    Refused: parameters that the model does not have, or has in another shape.
    """
    info = adapter.info
    maps, parameters = _linear_maps(module), dict(module.named_parameters())
    changes: list[tuple[Tensor, Tensor]] = []  # weights, and what is copied into them once everything fits
    for name, tensor in adapter.tensors.items():
        kind, _, place = name.partition(".")
        if kind == "lora_a" and place in maps:
            weight = maps[place].weight.detach()
            change = info.alpha / info.rank * _product(adapter, place)
            _refuse_shape(name, change, weight)
            changes.append((weight, weight.float() + change.to(weight.device)))
        elif kind in ("gain", "weight") and (target := parameters.get(f"{place}.weight" if kind == "gain" else place)) is not None:
            _refuse_shape(name, tensor, target)
            changes.append((target.detach(), tensor.detach()))
        elif name != MASK_OFFSET and not (kind == "lora_b" and f"lora_a.{place}" in adapter.tensors):
            raise Refusal(f"The adapter has a parameter {name!r}, which this model has no place for. Merge it into its base, {info.base}.")
    missing = [name for name in maps if info.trains != "all" and f"lora_a.{name}" not in adapter.tensors]
    if missing:
        raise Refusal(f"The adapter has no parameters for {missing[0]}, which this model has. Merge it into its base, {info.base}.")
    embedding: Any = module.get_input_embeddings().weight  # type: ignore[operator]  # a model of transformers
    _refuse_shape(MASK_OFFSET, adapter.tensors.get(MASK_OFFSET, embedding[0]), embedding[0])
    if not 0 <= info.mask_token_id < len(embedding):
        raise Refusal(
            f"The adapter's mask token has the id {info.mask_token_id}, and this model has {len(embedding)} tokens. "
            f"Merge it into its base, {info.base}."
        )
    for name, tensor in adapter.tensors.items():
        if not tensor.isfinite().all():
            raise Refusal(f"The parameter {name!r} of the adapter holds a number that is not finite. Train it again.")
    for target, changed in changes:
        target.copy_(changed)
    with torch.no_grad():
        _merge_mask_offset(module, adapter.tensors.get(MASK_OFFSET), info.mask_token_id)
    module.config.is_causal = info.mask == "causal"  # type: ignore[union-attr]  # a model of transformers
    return module


def adapted_model(lm: LanguageModel, adapter: Adapter, name: str | None = None) -> LanguageModel:
    """A base with an adapter merged into it, in place, ready to write and to be traced.

    Refused: a base whose weights are not those that the adapter was trained on.
    """
    info = adapter.info
    if weights_sha256(lm.module) != info.base_sha256:
        raise Refusal(f"The adapter was made for {info.base} with other weights than those of {lm.name}. Load the base it was made for.")
    merge_adapter(lm.module, adapter)
    changed = replace(lm, name=name or f"{lm.name}-{info.objective}-{info.mask}")
    if info.objective == "ar":
        return changed
    return replace(changed, family="a2d", sampler="llada", row_offset=1, mask_token_id=info.mask_token_id)


def write_adapter(path: Path, adapter: Adapter, dtype: torch.dtype = torch.float16) -> None:
    """Write an adapter whole or not at all."""
    tensors = {name: tensor.detach().to("cpu", dtype).contiguous() for name, tensor in adapter.tensors.items()}
    info = json.dumps(asdict(adapter.info))
    write_whole(path, save(tensors, metadata={FORMAT: info, DIGEST: tensors_sha256(tensors, info)}))


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
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # it is not iterable
        if surplus := header.keys() - {FORMAT, DIGEST}:  # such as a damaged name of the checksum
            raise ValueError(f"its header has a field {min(surplus)!r}")
        info = AdapterInfo(**json.loads(header[FORMAT]))
        _refuse_impossible(info)
    except (SafetensorError, OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise Refusal(f"{path} is not an adapter ({reason(error)}). Give a file that floatlens adapt wrote.") from None
    if DIGEST not in header:
        warnings.warn(f"{path} was written before adapters had checksums: a changed number would not be noticed.", Caution, stacklevel=2)
    elif header[DIGEST] != tensors_sha256(tensors, header[FORMAT]):
        raise Refusal(f"{path} was changed since it was written, so a model with it would write something else. Fetch it again.")
    return Adapter(info, tensors)


def _refuse_impossible(info: AdapterInfo) -> None:
    """Refuse what no adaptation has written."""
    texts = (info.base, info.base_sha256, info.trains, info.objective, info.mask)
    counts = (info.rank, info.mask_token_id, info.seed, info.update)
    if not all(isinstance(text, str) for text in texts) or any(type(count) is not int or count < 0 for count in counts):
        raise ValueError("it does not say what it belongs to")
    if info.rank < 1 or not isinstance(info.alpha, int | float) or not 0 < info.alpha < math.inf:
        raise ValueError(f"rank {info.rank} and alpha {info.alpha} are impossible")
    if info.trains not in TRAINS or info.objective not in OBJECTIVES or info.mask not in MASKS:
        raise ValueError(f"it trains {info.trains!r} with the objective {info.objective!r} and the mask {info.mask!r}")


def tensors_sha256(tensors: Mapping[str, Tensor], said: str) -> str:
    """The SHA-256 of tensors, names, types and shapes included, and of what is said about them."""
    digest = hashlib.sha256(said.encode())
    for name in sorted(tensors):
        digest.update(f"{name} {tuple(tensors[name].shape)} {tensors[name].dtype}".encode())
        digest.update(tensors[name].contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


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
    if module.lm_head.weight is embedding:
        module.lm_head.weight = nn.Parameter(embedding.detach().clone(), requires_grad=embedding.requires_grad)
        module.config.tie_word_embeddings = False
    embedding[mask_token_id] += offset.to(embedding)


def _product(adapter: Adapter, place: str) -> Tensor:
    """B A of a linear map."""
    lora_a, lora_b = adapter.tensors[f"lora_a.{place}"].detach().float(), adapter.tensors.get(f"lora_b.{place}")
    if lora_b is None:
        raise Refusal(f"The adapter lacks the parameter 'lora_b.{place}', so it is not whole. Fetch it again.")
    if lora_a.ndim != 2 or lora_b.ndim != 2 or not lora_a.shape[0] == lora_b.shape[1] == adapter.info.rank:
        raise Refusal(
            f"For {place} the adapter has lora_a of shape {tuple(lora_a.shape)} and lora_b of shape {tuple(lora_b.shape)}, "
            f"but says that its rank is {adapter.info.rank}. Fetch it again."
        )
    return lora_b.detach().float() @ lora_a


def _refuse_shape(name: str, tensor: Tensor, target: Tensor) -> None:
    if tensor.shape != target.shape:
        raise Refusal(
            f"The parameter {name!r} of the adapter has the shape {tuple(tensor.shape)}, and the model's "
            f"{tuple(target.shape)}. It is another base."
        )


def _linear_maps(module: nn.Module) -> dict[str, nn.Linear]:
    """The linear maps of the layers by name, without the output matrix."""
    return {name: part for name, part in module.named_modules() if isinstance(part, nn.Linear) and name.startswith("model.layers.")}


def _norm_gains(module: nn.Module) -> dict[str, nn.Parameter]:
    """The gains of all norms, those of Qwen3's queries and keys and the last one among them."""
    return {name: part.weight for name, part in module.named_modules() if type(part).__name__.endswith("RMSNorm")}  # type: ignore[misc]  # they have one


def _replace(module: nn.Module, name: str, part: nn.Module) -> None:
    parent, _, own = name.rpartition(".")
    setattr(module.get_submodule(parent), own, part)
