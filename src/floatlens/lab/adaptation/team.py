"""Several processes that train one adapter together, one per device, started by `accelerate launch`.

Decided here: every process draws the same update, works on its share of the sequences, and adds its gradients to those of the others, so
the update is that of a single process up to the order of summation. The first process alone writes and prints. A process that was started
by itself is a team of one, and needs nothing of this.
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

Item = TypeVar("Item")


@dataclass(frozen=True)
class Team:
    """Which of how many processes this is, and on which device it works (None: the first that there is).

    Examples
    --------
    >>> Team(1, 3).share_of(["a", "b", "c", "d", "e"])
    ['b', 'e']
    >>> Team().writes
    True
    """

    number: int = 0
    size: int = 1
    device: Any = None

    @property
    def writes(self) -> bool:
        """Whether this process writes files and prints."""
        return self.number == 0

    def share_of(self, sequences: Sequence[Item]) -> list[Item]:
        """The sequences of an update that this process works on."""
        return list(sequences[self.number :: self.size])

    def add_up(self, tensors: Iterable[Tensor]) -> None:
        """Sum tensors of the same shapes over all processes, in place, in one message."""
        own = list(tensors)
        if self.size == 1 or not own:
            return
        joined = torch.cat([tensor.flatten() for tensor in own])
        torch.distributed.all_reduce(joined)
        for tensor, total in zip(own, joined.split([tensor.numel() for tensor in own]), strict=True):
            tensor.copy_(total.view_as(tensor))

    def wait(self) -> None:
        """Wait until all processes have come here."""
        if self.size > 1:
            torch.distributed.barrier()


ALONE = Team()


def join_team() -> Team:
    """The team that this process was started in.

    Examples
    --------
    >>> join_team().size
    1
    """
    if int(os.environ.get("WORLD_SIZE", "1")) < 2:
        return ALONE
    from accelerate import PartialState

    state = PartialState(cpu=not torch.accelerator.is_available())
    return Team(state.process_index, state.num_processes, state.device)
