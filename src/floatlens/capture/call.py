"""One attention call: read from the arguments of torch's function, and changed by edits. `kernels.py` runs it.

Shapes throughout: query `(sample, head, query, depth)`, key and value `(sample, kv_head, key, depth)`, mask broadcastable to `(sample,
head, query, key)`. Query head `h` reads KV head `h // (heads / kv_heads)`. Nothing here looks at attention weights; `walk.py` does.

Refused: calls with dropout or gradients, calls that do not have four axes, and edits whose shapes do not fit.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from floatlens.errors import Refusal


@dataclass(frozen=True, eq=False)
class AttentionCall:
    """One call of `scaled_dot_product_attention` before it runs.

    `mask` is boolean (True: may look) or additive, or None; `causal` lets query `i` see keys `0..i` (torch's flag, aligned top left).
    `head_scale` multiplies the output of each query head and is None unless an edit asks for it. `layer`, `module` and `repeat` say where
    the call comes from; `step` is the decoding step it belongs to. `query_start` and `key_start` are the positions of the first query and
    the first key in the text; the last `appended` keys are not part of the text, but an edit's.

    Examples
    --------
    >>> import torch
    >>> q = k = v = torch.zeros(1, 2, 3, 4)
    >>> call = AttentionCall(q, k, v, mask=None, causal=True, scale=0.5)
    >>> call.hide(torch.tensor([True, False, False])).mask[0, 0].int().tolist()  # key 0 is hidden from everyone
    [[0, 0, 0], [0, 1, 0], [0, 1, 1]]
    """

    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None
    causal: bool
    scale: float
    grouped: bool = False  # torch's enable_gqa, as the model said it
    head_scale: Tensor | None = None
    query_start: int = 0
    key_start: int = 0
    appended: int = 0
    layer: int = 0
    module: str = ""
    repeat: int = 0
    step: int = 0

    @property
    def samples(self) -> int:
        return self.query.shape[0]

    @property
    def heads(self) -> int:
        return self.query.shape[1]

    @property
    def kv_heads(self) -> int:
        return self.key.shape[1]

    @property
    def queries(self) -> int:
        return self.query.shape[2]

    @property
    def keys(self) -> int:
        return self.key.shape[2]

    @property
    def where(self) -> str:
        """The call's name in messages: layer, module and, for a module run more than once, which run."""
        again = f", run {self.repeat + 1}" if self.repeat else ""
        return f"layer {self.layer} ({self.module or 'the model itself'}{again})"

    def hide(self, keys: Tensor) -> "AttentionCall":
        """Hide keys: `keys` is True where a key may no longer be seen, broadcastable to (sample, head, query, key)."""
        if keys.dtype != torch.bool:
            raise Refusal(f"call.hide takes a boolean tensor, True where a key is hidden; this one is {keys.dtype}.")
        everywhere = self._over_queries_and_keys(keys, "call.hide")
        mask = self._explicit_mask()
        if mask is None:
            hidden = (~as_four_axes(keys)).expand_as(everywhere)  # what is hidden from all queries is written down once
        elif mask.dtype == torch.bool:
            hidden = mask & ~everywhere
        else:
            hidden = mask.masked_fill(everywhere, float("-inf"))
        return replace(self, mask=hidden, causal=False)

    def add_bias(self, bias: Tensor) -> "AttentionCall":
        """Add `bias`, broadcastable to (sample, head, query, key), to the scaled scores."""
        bias = self._over_queries_and_keys(bias, "call.add_bias").to(self.query.dtype)
        mask = self._explicit_mask()
        if mask is None:
            biased = bias
        elif mask.dtype == torch.bool:
            biased = torch.where(mask, bias, torch.full_like(bias, float("-inf")))
        else:
            biased = mask + bias
        return replace(self, mask=biased, causal=False)

    def expand_heads(self) -> "AttentionCall":
        """Give every query head its own copy of its keys and values, so that they can be changed per query head."""
        repeats = self.heads // self.kv_heads
        if repeats == 1:
            return self
        key, value = self.key.repeat_interleave(repeats, dim=1), self.value.repeat_interleave(repeats, dim=1)
        return replace(self, key=key, value=value, grouped=False)

    def with_keys(self, key: Tensor, value: Tensor) -> "AttentionCall":
        """Replace keys and values, one for one. To hide keys use `hide`; to add some, `append_keys`."""
        if key.shape != self.key.shape or value.shape[:3] != key.shape[:3]:
            raise Refusal(
                f"call.with_keys got keys of shape {tuple(key.shape)} and values of shape {tuple(value.shape)} in place of "
                f"{tuple(self.key.shape)} and "
                f"{tuple(self.value.shape)}: sample, head and key must stay as they are. Use call.hide to remove keys, call.append_keys "
                "to add some."
            )
        return replace(self, key=key, value=value)

    def append_keys(self, key: Tensor, value: Tensor) -> "AttentionCall":
        """Add keys after the last one, seen by every query: (sample, kv_head, new key, depth)."""
        if key.shape[:2] != self.key.shape[:2] or key.shape[3] != self.key.shape[3] or key.shape[:3] != value.shape[:3]:
            raise Refusal(
                f"call.append_keys got keys of shape {tuple(key.shape)} and values of shape {tuple(value.shape)} for a call with keys "
                "of shape "
                f"{tuple(self.key.shape)}: sample, head and depth must agree."
            )
        mask = self._explicit_mask()
        if mask is not None:
            seen = torch.ones if mask.dtype == torch.bool else torch.zeros
            shape = (*mask.shape[:2], self.queries, key.shape[2])
            mask = mask.expand(-1, -1, self.queries, self.keys)
            mask = torch.cat([mask, seen(shape, dtype=mask.dtype, device=mask.device)], dim=-1)
        longer, appended = torch.cat([self.key, key], dim=2), self.appended + key.shape[2]
        return replace(self, key=longer, value=torch.cat([self.value, value], dim=2), mask=mask, causal=False, appended=appended)

    def scale_heads(self, factors: Tensor) -> "AttentionCall":
        """Multiply the output of each query head by its factor: shape (head,) or (sample, head)."""
        if factors.shape not in ((self.heads,), (self.samples, self.heads)):
            raise Refusal(
                f"call.scale_heads takes one factor per query head, shape ({self.heads},) or ({self.samples}, {self.heads}); "
                f"this tensor has shape {tuple(factors.shape)}."
            )
        factors = factors.expand(self.samples, self.heads).to(self.query)
        return replace(self, head_scale=factors if self.head_scale is None else self.head_scale * factors)

    def of_samples(self, samples: slice) -> "AttentionCall":
        """The same call for some samples of the batch."""
        mask = None if self.mask is None else as_four_axes(self.mask)
        if mask is not None and mask.shape[0] > 1:
            mask = mask[samples]
        scale = None if self.head_scale is None else self.head_scale[samples]
        query, key, value = self.query[samples], self.key[samples], self.value[samples]
        return replace(self, query=query, key=key, value=value, mask=mask, head_scale=scale)

    def _explicit_mask(self) -> Tensor | None:
        if not self.causal:
            return None if self.mask is None else as_four_axes(self.mask)
        ones = torch.ones(self.queries, self.keys, dtype=torch.bool, device=self.query.device)
        return ones.tril()[None, None]

    def _over_queries_and_keys(self, tensor: Tensor, what: str) -> Tensor:
        full = (self.samples, self.heads, self.queries, self.keys)
        if tensor.dim() > 4 or any(size not in (1, whole) for size, whole in zip(reversed(tensor.shape), reversed(full), strict=False)):
            raise Refusal(
                f"{what} takes a tensor broadcastable to (sample, head, query, key) = {full}; this one has shape {tuple(tensor.shape)}."
            )
        four = as_four_axes(tensor)
        return four.expand(four.shape[0], four.shape[1], self.queries, self.keys)


def read_call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> AttentionCall:
    """The arguments of `scaled_dot_product_attention` as an `AttentionCall`, or a `Refusal`."""
    call = _named(*args, **kwargs)
    tensors = [call["query"], call["key"], call["value"]]
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        raise Refusal("Gradients are required here, and a tap only observes inference. Remove torch.enable_grad() from inside the tap.")
    if call["dropout_p"]:
        raise Refusal(
            f"The model drops attention weights at random (dropout_p={call['dropout_p']}), so what it used cannot be observed. "
            "Call model.eval() first."
        )
    if any(tensor.dim() != 4 for tensor in tensors):
        raise Refusal(
            f"The query has the shape {tuple(tensors[0].shape)}; a tap reads (sample, head, query, depth). Add the missing axes in the "
            "model: "
            "query.unsqueeze(1) for a single head."
        )
    if torch.is_autocast_enabled(tensors[0].device.type):  # the kernel will see what autocast makes of them
        tensors = [tensor.to(torch.get_autocast_dtype(tensor.device.type)) for tensor in tensors]
    if not tensors[0].shape[0] == tensors[1].shape[0] == tensors[2].shape[0] or tensors[0].shape[1] % tensors[1].shape[1]:
        raise Refusal(
            f"Queries of shape {tuple(tensors[0].shape)} meet keys of shape {tuple(tensors[1].shape)}; a tap reads keys of the same "
            "samples, with heads "
            "that divide the query heads. Expand the keys in the model."
        )
    scale = call["scale"] if call["scale"] is not None else 1.0 / math.sqrt(tensors[0].shape[-1])
    return AttentionCall(*tensors, mask=call["attn_mask"], causal=call["is_causal"], scale=scale, grouped=call["enable_gqa"])


def _named(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> dict[str, Any]:
    """The parameters of `scaled_dot_product_attention`, by name."""
    return locals()


def as_four_axes(mask: Tensor) -> Tensor:
    """The mask as `(sample or 1, head or 1, query or 1, key or 1)`."""
    return mask.reshape((1,) * (4 - mask.dim()) + tuple(mask.shape))


def unpack_heads(call: AttentionCall, heads_per_kv_head: int) -> AttentionCall:
    """A call of one row whose query heads were packed as rows of their KV head, with its heads apart again; any other call as it is.

    From version 5.23 on, transformers computes a single row of a masked, grouped-query layer that way: (sample, KV head, heads per KV
    head, depth). Read as it comes, the heads would be taken for so many queries.

    Examples
    --------
    >>> call = AttentionCall(torch.zeros(1, 2, 3, 4), torch.zeros(1, 2, 5, 4), torch.zeros(1, 2, 5, 4), mask=None, causal=False, scale=0.5)
    >>> unpack_heads(call, 3).query.shape, unpack_heads(call, 1) is call
    (torch.Size([1, 6, 1, 4]), True)
    """
    if heads_per_kv_head == 1 or (call.queries, call.heads) != (heads_per_kv_head, call.kv_heads):
        return call
    mask = call.mask
    if mask is not None and as_four_axes(mask).shape[2] != 1:
        mask = as_four_axes(mask).flatten(1, 2)[:, :, None]
    return replace(call, query=call.query.flatten(1, 2)[:, :, None], mask=mask, grouped=True)


@contextmanager
def full_precision(device: torch.device) -> Iterator[None]:
    """No autocast and no shortened float32 products while weights are computed, whatever the model runs in."""
    precision = torch.get_float32_matmul_precision()
    if precision != "highest":
        torch.set_float32_matmul_precision("highest")
    try:
        with torch.autocast(device.type, enabled=False) if torch.is_autocast_enabled(device.type) else nullcontext():
            yield
    finally:
        if precision != "highest":
            torch.set_float32_matmul_precision(precision)
