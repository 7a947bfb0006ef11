"""What must hold, asked on the device and answered when results leave it.

Asking a device whether something is true stops the host until it has caught up. So every check is a truth value that stays where it was
computed, beside a function that explains what is wrong. Results are fetched together with the answers (`fetch`), one transfer for all, and
nothing is handed out if one of them says that something is wrong.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from floatlens.errors import BrokenPromise


class Check(NamedTuple):
    """`failed` is a truth value on the device; `explain` raises what is wrong, if it is true."""

    failed: Tensor  # bool ()
    explain: Callable[[], None]


def fetch(tensors: Sequence[Tensor], checks: Sequence[Check] = ()) -> list[np.ndarray]:
    """The tensors as arrays in host memory, once all checks have passed: one transfer for everything that is on a device.

    Examples
    --------
    >>> fetch([torch.tensor([1.5, 2.5])], [Check(torch.tensor(False), lambda: None)])
    [array([1.5, 2.5], dtype=float32)]
    """
    arrived = in_host_memory([*tensors, *(check.failed for check in checks)])
    for check, failed in zip(checks, arrived[len(tensors) :], strict=True):
        if failed:
            check.explain()
            raise BrokenPromise("A check of what was observed failed on the device and cannot be explained; nothing was recorded.")
    return arrived[: len(tensors)]


def in_host_memory(tensors: Sequence[Tensor]) -> list[np.ndarray]:
    """The tensors as arrays in host memory. Those on a device are laid one after the other there, as bytes, and fetched at once.

    The widest numbers come first, so that each is found where numbers of its width may lie. Tensors of the host are not copied.
    """
    arrived: list[Any] = [tensor.numpy() if tensor.device.type == "cpu" else None for tensor in tensors]
    away = [place for place, array in enumerate(arrived) if array is None]
    if not away:
        return arrived
    kinds = sorted({tensors[place].dtype for place in away}, key=lambda kind: (-kind.itemsize, str(kind)))
    of_kinds = [[place for place in away if tensors[place].dtype == kind] for kind in kinds]
    parts = [torch.cat([tensors[place].reshape(-1) for place in of_kind]).view(torch.uint8) for of_kind in of_kinds]
    packed, start = torch.cat(parts).cpu().numpy(), 0
    for kind, of_kind in zip(kinds, of_kinds, strict=True):
        numpy_kind = torch.empty(0, dtype=kind).numpy().dtype
        for place in of_kind:
            stop = start + tensors[place].nbytes
            arrived[place] = packed[start:stop].view(numpy_kind).reshape(tensors[place].shape)
            start = stop
    return arrived
