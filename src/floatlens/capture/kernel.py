"""Run an attention call on torch's own kernel, and take the logsumexp of each row where the kernel hands it out.

The CPU flash kernel computes a row's logsumexp anyway. Calling it by its own name, exactly when torch would have chosen it, returns the
same output bit for bit and saves the observer two passes over every row. Anywhere else (another device, a shape that falls back to the
math kernel, autocast) the plain function runs and the logsumexp is None; the walk then normalises rows itself. So it does in half
precision, where the kernel sums rounded exponentials and its logsumexp can be off by 0.4 %.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from floatlens.capture.call import AttentionCall

_FLASH = 1  # torch.nn.attention.SDPBackend.FLASH_ATTENTION, as aten._fused_sdp_choice returns it


class Ran(NamedTuple):
    """What came of running a call."""

    output: Tensor
    logsumexp: Tensor | None  # (sample, head, query), natural log, of the scaled and masked scores


def run(call: AttentionCall, original: Callable[[], Tensor] | None = None) -> Ran:
    """Run the call; `original` is the model's own untouched invocation, if no edit has changed it."""
    exact = call.query.dtype in (torch.float32, torch.float64)
    if exact and call.query.device.type == "cpu" and not torch.is_autocast_enabled("cpu") and _torch_would_choose_flash(call):
        output, logsumexp = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            call.query, call.key, call.value, 0.0, call.causal, attn_mask=_additive(call.mask, call.query.dtype), scale=call.scale
        )
    else:
        output, logsumexp = original() if original is not None else plain(call), None
    if call.head_scale is not None:
        output = output * call.head_scale[:, :, None, None]
    return Ran(output, logsumexp)


def plain(call: AttentionCall) -> Tensor:
    """The call through the public function, as a model would make it."""
    return F.scaled_dot_product_attention(
        call.query, call.key, call.value, call.mask, 0.0, call.causal, scale=call.scale, enable_gqa=call.grouped
    )


def _torch_would_choose_flash(call: AttentionCall) -> bool:
    choice = torch.ops.aten._fused_sdp_choice(
        call.query, call.key, call.value, call.mask, 0.0, call.causal, scale=call.scale, enable_gqa=call.grouped
    )
    return choice == _FLASH


def _additive(mask: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    if mask is None or mask.dtype != torch.bool:
        return mask
    return torch.zeros_like(mask, dtype=dtype).masked_fill_(mask.logical_not(), float("-inf"))
