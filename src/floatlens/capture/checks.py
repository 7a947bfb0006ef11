"""What must hold, asked on the device and answered when results leave it.

Asking a device whether something is true stops the host until it has caught up. So every check is a truth value that stays where it was
computed, beside a function that explains what is wrong. Results are fetched together with the answers (`fetch`), one transfer for all, and
nothing is handed out if one of them says that something is wrong.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from floatlens.errors import BrokenPromise


class Check(NamedTuple):
    """`failed` is a truth value on the device; `explain` raises what is wrong, if it is true."""

    failed: Tensor  # bool ()
    explain: Callable[[], None]


def fetch(tensors: Sequence[Tensor], checks: Sequence[Check] = ()) -> list[Tensor]:
    """The tensors in host memory, once all checks have passed: one transfer for everything that is on a device.

    Examples
    --------
    >>> fetch([torch.tensor([1.5, 2.5])], [Check(torch.tensor(False), lambda: None)])
    [tensor([1.5000, 2.5000])]
    """
    arrived = in_host_memory([*tensors, *(check.failed for check in checks)])
    for check, failed in zip(checks, arrived[len(tensors) :], strict=True):
        if failed:
            check.explain()
            raise BrokenPromise("A check of what was observed failed on the device and cannot be explained; nothing was recorded.")
    return arrived[: len(tensors)]


def in_host_memory(tensors: Sequence[Tensor]) -> list[Tensor]:
    """The tensors in host memory. Those on a device are laid one after the other there, as bytes, and fetched at once.

    The widest numbers come first, so that each is found where numbers of its width may lie. Tensors of the host stay what they are.
    """
    away = sorted((place for place, tensor in enumerate(tensors) if tensor.device.type != "cpu"), key=lambda at: -tensors[at].itemsize)
    arrived = list(tensors)
    if not away:
        return arrived
    device = tensors[away[0]].device
    packed = torch.cat([tensors[place].to(device).contiguous().view(-1).view(torch.uint8) for place in away]).cpu()
    for place, part in zip(away, packed.split([tensors[place].nbytes for place in away]), strict=True):
        arrived[place] = part.view(tensors[place].dtype).view(tensors[place].shape)
    return arrived
