"""What a tap refuses before it watches anything, each with what to do instead.

Refused by what the model *is*: attention that never passes through `scaled_dot_product_attention`, or passes through it without showing
everything that makes the weights. What can only be seen while running (threads, gradients, NaN, padding) is refused where it is seen.
"""

from typing import Any

from torch import nn

from floatlens.errors import Refusal

# Under any torch function mode these leave their fused path: their output changes, and SDPA stays hidden inside.
_FUSED_CLASSES = (nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)
_SOFT_CAPS = ("attn_logit_softcapping", "attn_logit_softcap", "attention_logit_softcapping")
_SINK_PARAMETERS = ("sinks", "attention_sink_bias", "attn_sink")


def refuse_what_cannot_be_tapped(model: Any) -> None:
    """Raise a `Refusal` if this module's attention cannot be observed exactly."""
    if not isinstance(model, nn.Module):
        raise Refusal(
            f"fl.tap takes a torch module; this is a {type(model).__name__}. For a pipeline or wrapper, pass the model inside it."
        )
    if hasattr(model, "_orig_mod"):
        raise Refusal(
            "This model was compiled with torch.compile, which hides its attention calls. Tap the uncompiled module: model._orig_mod."
        )
    for name, module in model.named_modules():
        if isinstance(module, _FUSED_CLASSES):
            raise Refusal(
                f"{name or 'The model'} is a torch.nn.{type(module).__name__}, whose fused path hides its attention and changes its output when "
                "watched. Write the block with torch.nn.functional.scaled_dot_product_attention instead."
            )
    for config in _configs(model):
        _refuse_soft_caps(config)
    _refuse_two_texts(model)
    for name, module in model.named_modules():
        _refuse_sink_parameters(name, module)
    for config in _configs(model):
        _refuse_implementation(config)


def _configs(model: nn.Module) -> list[Any]:
    """The configuration and, for composite models, that of the text part."""
    config = getattr(model, "config", None)
    if config is None:
        return []
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    return [config] if text is config else [config, text]


def _refuse_implementation(config: Any) -> None:
    implementation = getattr(config, "_attn_implementation", None)
    if implementation not in (None, "sdpa"):
        raise Refusal(
            f"The model runs its attention as {implementation!r}, which a tap cannot see into. "
            'Call model.set_attn_implementation("sdpa") first, or load the model with attn_implementation="sdpa".'
        )


def _refuse_soft_caps(config: Any) -> None:
    for field in _SOFT_CAPS:
        if cap := getattr(config, field, None):
            raise Refusal(
                f"The model caps its attention scores ({field}={cap}), which scaled_dot_product_attention never shows, so the weights would be "
                "wrong. Models with soft caps (Gemma 2 and its kin) cannot be tapped; Gemma 3, Llama and Qwen have none."
            )


def _refuse_two_texts(model: nn.Module) -> None:
    has_decoder = any(name.rpartition(".")[2] == "decoder" for name, _ in model.named_modules())
    if has_decoder and getattr(getattr(model, "config", None), "is_encoder_decoder", False):
        raise Refusal(
            "This is an encoder-decoder model: its cross-attention reads one text from another, and positions, padding and nulls here are those of "
            "one text. Tap the encoder by itself: fl.tap(model.get_encoder())."
        )


def _refuse_sink_parameters(name: str, module: nn.Module) -> None:
    for parameter, _ in module.named_parameters(recurse=False):
        if parameter in _SINK_PARAMETERS:
            raise Refusal(
                f"{name}.{parameter} adds a learned sink logit to the softmax, which scaled_dot_product_attention never shows, so the rows would "
                "not sum to 1. Models with sink logits (gpt-oss and its kin) cannot be tapped; Llama, Qwen and LLaDA have none."
            )
