"""Run an attention call on torch's own kernel, and take the logsumexp of each row where that kernel hands it out.

The flash kernels compute it anyway. Calling the kernel by its own name, exactly when torch would have chosen it, returns the same output
bit for bit and saves the observer two passes over every row. Which kernel torch would choose is asked of torch; what is known of each is
in `KERNELS`, by kind of device and backend, and a kernel is called by its name only if it is in `TESTED`.

On CUDA torch's kernels hand out their logsumexp as well. Whether asking for it leaves their output as it is, bit for bit, has not been
tested on such a device, so they are not in `TESTED`; `tests/capture/test_kernels.py` tests them wherever there is one. Anywhere else
(another device, the math kernel, autocast) the plain function runs, the logsumexp is None, and the walk normalises rows itself. The same
holds in half precision on the CPU, where the kernel sums rounded exponentials and its logsumexp can be off by 0.4 %.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from floatlens.capture.call import AttentionCall
from floatlens.capture.watching import ATTENTION

# torch.nn.attention.SDPBackend, as aten._fused_sdp_choice returns them
FLASH, EFFICIENT, CUDNN = 1, 2, 3
EXACT = (torch.float32, torch.float64)
HALF = (torch.bfloat16, torch.float16)


class Ran(NamedTuple):
    """The result of running a call."""

    output: Tensor
    logsumexp: Tensor | None  # (sample, head, query), natural log, of the scaled and masked scores


@dataclass(frozen=True)
class Kernel:
    """A kernel of torch by its own name."""

    run: Callable[[AttentionCall], Ran]
    dtypes: tuple[torch.dtype, ...]  # in which its logsumexp is exact
    masked: bool  # whether it takes the mask as the model gives it; torch reshapes masks for the other ones
    grouped: bool  # whether it takes fewer key heads than query heads; for the other ones torch repeats them
    multiple_of: int = 1  # to which torch fills up the depth of vectors before it calls the kernel

    def takes(self, call: AttentionCall) -> bool:
        """Whether torch hands a call to this kernel unchanged."""
        return (
            call.query.dtype in self.dtypes
            and (self.masked or call.mask is None)
            and (self.grouped or call.heads == call.kv_heads)
            and call.query.shape[-1] % self.multiple_of == 0
        )


def _flash_of_cpu(call: AttentionCall) -> Ran:
    mask = _additive(call.mask, call.query.dtype)
    named = {"attn_mask": mask, "scale": call.scale}
    return Ran(*torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(call.query, call.key, call.value, 0.0, call.causal, **named))


def _flash(call: AttentionCall) -> Ran:
    ran: Any = torch.ops.aten._scaled_dot_product_flash_attention(
        call.query, call.key, call.value, 0.0, call.causal, False, scale=call.scale
    )
    return Ran(ran[0], ran[1][..., : call.queries])


def _efficient(call: AttentionCall) -> Ran:
    ran: Any = torch.ops.aten._scaled_dot_product_efficient_attention(
        call.query, call.key, call.value, None, True, 0.0, call.causal, scale=call.scale
    )
    return Ran(ran[0], ran[1][..., : call.queries])  # of more rows: their number is rounded up to the size of a block


def _cudnn(call: AttentionCall) -> Ran:
    ran: Any = torch.ops.aten._scaled_dot_product_cudnn_attention(
        call.query, call.key, call.value, None, True, 0.0, call.causal, False, scale=call.scale
    )
    return Ran(ran[0], ran[1].reshape(call.query.shape[:3]))


KERNELS: dict[tuple[str, int], Kernel] = {
    ("cpu", FLASH): Kernel(_flash_of_cpu, EXACT, masked=True, grouped=True),
    ("cuda", FLASH): Kernel(_flash, HALF, masked=False, grouped=False, multiple_of=8),
    ("cuda", EFFICIENT): Kernel(_efficient, (torch.float32, *HALF), masked=False, grouped=False),
    ("cuda", CUDNN): Kernel(_cudnn, HALF, masked=False, grouped=False, multiple_of=8),
}
TESTED = frozenset({("cpu", FLASH)})


def run(call: AttentionCall, original: Callable[[], Tensor] | None = None) -> Ran:
    """Run the call; `original` is the model's own unedited invocation, if no edit has changed it."""
    kernel = chosen_kernel(call)
    output, logsumexp = (original() if original is not None else plain(call), None) if kernel is None else kernel.run(call)
    if call.head_scale is not None:
        output = output * call.head_scale[:, :, None, None]
    return Ran(output, logsumexp)


def chosen_kernel(call: AttentionCall, among: frozenset[tuple[str, int]] = TESTED) -> Kernel | None:
    """The kernel that torch would choose, if it is among those that may be called by name and takes the call as it is."""
    device = call.query.device.type
    if all(kind != device for kind, _ in among) or torch.is_autocast_enabled(device):
        return None
    choice = torch.ops.aten._fused_sdp_choice(
        call.query, call.key, call.value, call.mask, 0.0, call.causal, scale=call.scale, enable_gqa=call.grouped
    )
    kernel = KERNELS[device, choice] if (device, choice) in among else None
    return kernel if kernel is not None and kernel.takes(call) else None


def plain(call: AttentionCall) -> Tensor:
    """The call through the public function, as a model would make it."""
    return ATTENTION(call.query, call.key, call.value, call.mask, 0.0, call.causal, scale=call.scale, enable_gqa=call.grouped)


def _additive(mask: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    if mask is None or mask.dtype != torch.bool:
        return mask
    if mask.dim() == 4 and mask.shape[2] > 1 and mask.stride(2) == 0:  # the same for all queries
        one_row = _additive(mask[:, :, :1], dtype)
        assert one_row is not None
        return one_row.expand_as(mask)
    return torch.zeros_like(mask, dtype=dtype).masked_fill_(mask.logical_not(), float("-inf"))
