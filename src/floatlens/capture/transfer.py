"""Results leave a device in one transfer, and arrive while it computes, where it can do both.

All tensors of a step are laid one after the other on their device, as bytes, and copied at once (`send`); a model whose layers are spread
over several devices makes one transfer for each. A device of the kinds in
`MEANWHILE` copies by a stream of its own into memory that stays for the run (`Landing`), and the host goes on; whoever needs the arrays
waits for that copy alone (`Arriving.arrays`). Anywhere else the copy is over when `send` returns. Tensors of the host are not copied.

Two things would go unnoticed here: reading before the copy is done, and writing to either end of it too early. So what is sent is held
until it has arrived, and a landing hands out memory again only once what was in it has been taken away.
"""

from collections.abc import Iterator, Mapping, Sequence
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
    """Memory of the host into which devices copy, step after step, and the streams by which they do."""

    _free: list[Tensor] = field(default_factory=list)
    _streams: dict[torch.device, Any] = field(default_factory=dict)

    def stream(self, device: torch.device) -> Any:
        """The stream by which this device copies."""
        if device not in self._streams:
            self._streams[device] = torch.Stream(device=device)
        return self._streams[device]

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
        away: dict[torch.device, dict[int, Tensor]] = {}
        for place, tensor in enumerate(tensors):
            if self._arrays[place] is None:
                away.setdefault(tensor.device, {})[place] = tensor
        self._parcels = [_Parcel(device, own, landing) for device, own in away.items()]

    def arrays(self) -> list[np.ndarray]:
        """The tensors as arrays, once they are there."""
        for parcel in self._parcels:
            for place, array in parcel.unpacked():
                self._arrays[place] = array
        self._parcels = []
        return self._arrays


class _Parcel:
    """The tensors of one device, by their place among all, as one copy."""

    def __init__(self, device: torch.device, tensors: Mapping[int, Tensor], landing: Landing | None) -> None:
        kinds = {tensor.dtype for tensor in tensors.values()}
        kinds = sorted(kinds, key=lambda kind: (-kind.itemsize, str(kind)))  # so that all are aligned
        in_order = sorted(tensors, key=lambda place: kinds.index(tensors[place].dtype))
        self._places = [(place, tensors[place].dtype, tensors[place].shape) for place in in_order]
        parts = [torch.cat([tensors[place].reshape(-1) for place in in_order if tensors[place].dtype == kind]) for kind in kinds]
        self._sent = torch.cat([part.view(torch.uint8) for part in parts])  # kept until it has arrived
        self._landing = landing if device.type in MEANWHILE else None
        if self._landing is None:
            self._arrived = self._sent.cpu()
            return
        self._arrived = self._landing.take(self._sent.numel(), pinned=MEANWHILE[device.type])
        stream = self._landing.stream(device)
        stream.wait_stream(torch.accelerator.current_stream(device))
        with stream:
            self._arrived[: self._sent.numel()].copy_(self._sent, non_blocking=True)
        self._copied = stream.record_event()

    def unpacked(self) -> Iterator[tuple[int, np.ndarray]]:
        """The place and array of each."""
        packed, start = self._taken(), 0
        for place, dtype, shape in self._places:
            stop = start + shape.numel() * dtype.itemsize
            yield place, packed[start:stop].view(_of_numpy(dtype)).reshape(shape)
            start = stop

    def _taken(self) -> np.ndarray:
        """What has been copied, in memory of its own."""
        if self._landing is None:
            return self._arrived.numpy()
        self._copied.synchronize()
        packed = self._arrived[: self._sent.numel()].numpy().copy()
        self._landing.give_back(self._arrived)
        return packed


@cache
def _of_numpy(dtype: torch.dtype) -> np.dtype[Any]:
    return torch.empty(0, dtype=dtype).numpy().dtype
