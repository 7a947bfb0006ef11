"""Results leave a device in one transfer, and arrive while it computes, where it can do both.

All tensors of a step are laid one after the other on the device, as bytes, and copied at once (`send`). A device of the kinds in
`MEANWHILE` copies by a stream of its own into memory that stays for the run (`Landing`), and the host goes on; whoever needs the arrays
waits for that copy alone (`Arriving.arrays`). Anywhere else the copy is over when `send` returns. Tensors of the host are not copied.

Two things would go unnoticed here: reading before the copy is done, and writing to either end of it too early. So what is sent is held
until it has arrived, and a landing hands out memory again only once what was in it has been taken away.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

MEANWHILE: dict[str, bool] = {"cuda": True}
"""Kinds of devices that compute while they copy, and whether the host's memory must be pinned for that."""


@dataclass(eq=False)
class Landing:
    """Memory of the host into which a device copies, step after step, and the stream by which it does."""

    _free: list[Tensor] = field(default_factory=list)
    _stream: Any = None

    def stream(self, device: torch.device) -> Any:
        """The stream by which this device copies."""
        if self._stream is None:
            self._stream = torch.Stream(device=device)
        return self._stream

    def take(self, size: int, *, pinned: bool) -> Tensor:
        """Memory for so many bytes, which nobody else has until it is given back."""
        fitting = next((place for place, buffer in enumerate(self._free) if buffer.numel() >= size), None)
        if fitting is not None:
            return self._free.pop(fitting)
        self._free.clear()  # too small: texts have become longer
        return torch.empty(size, dtype=torch.uint8, pin_memory=pinned)

    def give_back(self, buffer: Tensor) -> None:
        """What was in this memory is no longer needed."""
        self._free.append(buffer)


class Arriving:
    """Tensors on their way to the host."""

    def __init__(self, tensors: Sequence[Tensor], landing: Landing | None) -> None:
        self._arrays: list[Any] = [tensor.numpy() if tensor.device.type == "cpu" else None for tensor in tensors]
        self._sent: Tensor | None = None
        away = [place for place, array in enumerate(self._arrays) if array is None]
        if not away:
            return
        kinds = sorted({tensors[place].dtype for place in away}, key=lambda kind: (-kind.itemsize, str(kind)))  # so that all are aligned
        in_order = sorted(away, key=lambda place: kinds.index(tensors[place].dtype))
        self._places = [(place, tensors[place].dtype, tensors[place].shape) for place in in_order]
        parts = [torch.cat([tensors[place].reshape(-1) for place in in_order if tensors[place].dtype == kind]) for kind in kinds]
        self._sent = torch.cat([part.view(torch.uint8) for part in parts])
        self._landing = landing if self._sent.device.type in MEANWHILE else None
        if self._landing is None:
            self._arrived = self._sent.cpu()
            return
        self._arrived = self._landing.take(self._sent.numel(), pinned=MEANWHILE[self._sent.device.type])
        stream = self._landing.stream(self._sent.device)
        stream.wait_stream(torch.accelerator.current_stream(self._sent.device))
        with stream:
            self._arrived[: self._sent.numel()].copy_(self._sent, non_blocking=True)
        self._copied = stream.record_event()

    def arrays(self) -> list[np.ndarray]:
        """The tensors as arrays, once they are there."""
        if self._sent is not None:
            packed = self._unloaded() if self._landing is not None else self._arrived.numpy()
            self._sent, start = None, 0
            for place, dtype, shape in self._places:
                stop = start + shape.numel() * dtype.itemsize
                self._arrays[place] = packed[start:stop].view(_of_numpy(dtype)).reshape(shape)
                start = stop
        return self._arrays

    def _unloaded(self) -> np.ndarray:
        """What has been copied, in memory of its own."""
        assert self._sent is not None
        assert self._landing is not None
        self._copied.synchronize()
        packed = self._arrived[: self._sent.numel()].numpy().copy()
        self._landing.give_back(self._arrived)
        return packed


@cache
def _of_numpy(dtype: torch.dtype) -> np.dtype[Any]:
    return torch.empty(0, dtype=dtype).numpy().dtype
