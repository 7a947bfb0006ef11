"""What an adaptation trains: the parameters of an adapter, attached to the model that they change.

Decided here: LoRA on every linear map of the layers, drawn as peft draws it; the gains of all norms; the offset of the mask token's
embedding. Before training they change nothing. `floatlens.models.adapters` has the files, and merges them.
Refused: models that are not Llama, Qwen2 or Qwen3, and mask tokens that cannot be one.
"""

import hashlib
from typing import Any

import torch
from torch import Tensor, nn

from floatlens.errors import Refusal
from floatlens.models.adapters import MASK_OFFSET, linear_maps, norm_gains
from floatlens.models.language_model import LanguageModel

FAMILIES = ("llama", "qwen2", "qwen3")


class FrozenMap(nn.Module):
    """A linear map that is not trained, multiplied in the type of its weights; what goes in and comes out is float32."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight, requires_grad=False)

    def forward(self, inputs: Tensor) -> Tensor:
        return nn.functional.linear(inputs.to(self.weight.dtype), self.weight).float()


class LoraMap(nn.Module):
    """A linear map whose weights are frozen, and a change of low rank to it that is trained."""

    def __init__(self, frozen: nn.Linear, lora_a: Tensor, lora_b: Tensor, scale: float) -> None:
        super().__init__()
        self.frozen, self.scale = frozen, scale
        self.lora_a, self.lora_b = nn.Parameter(lora_a), nn.Parameter(lora_b)

    def forward(self, inputs: Tensor) -> Tensor:
        return _LowRank.apply(inputs, self.frozen.weight, self.frozen.bias, self.lora_a, self.lora_b, self.scale)  # type: ignore[no-any-return]  # torch does not say


class _LowRank(torch.autograd.Function):
    """x W' + scale (x A') B', adding in place; it saves a tenth of the time over the same in autograd's own operations.

    The product with W is computed in the type of W, everything else in that of x."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor | None, lora_a: Tensor, lora_b: Tensor, scale: float) -> Tensor:  # type: ignore[override]
        flat = inputs.reshape(-1, inputs.shape[-1])
        low = flat @ lora_a.t()
        outputs = nn.functional.linear(flat.to(weight.dtype), weight, bias).to(flat.dtype)
        outputs.addmm_(low, lora_b.t(), alpha=scale)
        ctx.save_for_backward(flat, weight, lora_a, lora_b, low)
        ctx.scale, ctx.shape = scale, inputs.shape
        return outputs.view(*inputs.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        flat, weight, lora_a, lora_b, low = ctx.saved_tensors
        outer = gradient.reshape(-1, gradient.shape[-1])
        inner = (outer @ lora_b) * ctx.scale
        of_inputs = (outer.to(weight.dtype) @ weight).to(outer.dtype)
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


def attach(
    module: nn.Module, trains: str, rank: int, alpha: float, seed: int, frozen_in: torch.dtype = torch.float32
) -> dict[str, nn.Parameter]:
    """Freeze a model and give it the parameters of an adapter, in place; the parameters by name. Before training they change nothing,
    apart from the rounding of frozen weights where these are multiplied in another type (`frozen_in`).

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
        for name, linear in linear_maps(module).items():
            generator = torch.Generator().manual_seed(int.from_bytes(hashlib.sha256(f"{seed} {name}".encode()).digest()[:7], "big"))
            lora_a = (torch.rand(rank, linear.in_features, generator=generator) * 2 - 1) * linear.in_features**-0.5  # as peft draws it
            lora = LoraMap(linear, lora_a.to(linear.weight), torch.zeros(linear.out_features, rank).to(linear.weight), alpha / rank)
            linear.to(frozen_in)
            _replace(module, name, lora)
            trained |= {f"lora_a.{name}": lora.lora_a, f"lora_b.{name}": lora.lora_b}
        if frozen_in != torch.float32:
            module.lm_head = FrozenMap(module.lm_head.weight.detach().to(frozen_in))  # type: ignore[union-attr,operator]  # a causal model
    if trains == "lora+norms":
        for name, gain in norm_gains(module).items():
            gain.requires_grad_(True)
            trained[f"gain.{name}"] = gain
    embedding: Any = module.get_input_embeddings()  # type: ignore[operator]  # a model of transformers
    trained[MASK_OFFSET] = nn.Parameter(torch.zeros_like(embedding.weight[0]))
    return trained


def _replace(module: nn.Module, name: str, part: nn.Module) -> None:
    parent, _, own = name.rpartition(".")
    setattr(module.get_submodule(parent), own, part)
