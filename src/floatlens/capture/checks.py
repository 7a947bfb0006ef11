"""What must hold, asked on the device and answered when results leave it.

Asking a device whether something is true stops the host until it has caught up. So every check is a truth value that stays where it was
computed, beside a function that explains what is wrong. Results are sent together with the answers (`send`), one transfer for all, and
nothing is handed out if one of them says that something is wrong. `fetch` sends and waits.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from torch import Tensor

from floatlens.capture.transfer import Arriving, Landing
from floatlens.errors import BrokenPromise


class Check(NamedTuple):
    """`failed` is a truth value on the device; `explain` raises what is wrong, if it is true."""

    failed: Tensor  # bool ()
    explain: Callable[[], None]


class Sent:
    """Tensors on their way to the host, with what must hold of them."""

    def __init__(self, arriving: Arriving, checks: Sequence[Check]) -> None:
        self._arriving, self._checks = arriving, checks

    def arrays(self) -> list[np.ndarray]:
        """The tensors as arrays, once they are there and all checks have passed."""
        arrived = self._arriving.arrays()
        results = len(arrived) - len(self._checks)
        for check, failed in zip(self._checks, arrived[results:], strict=True):
            if failed:
                check.explain()
                raise BrokenPromise("A check of what was observed failed on the device and cannot be explained; nothing was recorded.")
        return arrived[:results]


def send(tensors: Sequence[Tensor], checks: Sequence[Check] = (), landing: Landing | None = None) -> Sent:
    """Send tensors to the host: one transfer for everything that is on a device, which goes on meanwhile if there is a landing."""
    return Sent(Arriving([*tensors, *(check.failed for check in checks)], landing), list(checks))


def fetch(tensors: Sequence[Tensor], checks: Sequence[Check] = ()) -> list[np.ndarray]:
    """The tensors as arrays in host memory, once all checks have passed: one transfer for everything that is on a device.

    Examples
    --------
    >>> import torch
    >>> fetch([torch.tensor([1.5, 2.5])], [Check(torch.tensor(False), lambda: None)])
    [array([1.5, 2.5], dtype=float32)]
    """
    return send(tensors, checks).arrays()
