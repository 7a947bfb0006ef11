"""What a training leaves: the names of its checkpoints, and the state that it resumes from, as one file: trained weights and AdamW's
moments as tensors, how far it has come as JSON.

The JSON stands in the header of the safetensors file, with the SHA-256 of everything. The file is written whole or not at all.

Refused: a file that is no state, was changed since it was written, or holds weights of another shape.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save
from torch import Tensor

from floatlens.errors import Refusal, reason
from floatlens.folders import write_whole
from floatlens.models.adapters import tensors_sha256

_MOMENTS = {"mean": "exp_avg", "square": "exp_avg_sq"}
_STANDING, _DIGEST = "standing", "sha256"
Standing = TypeVar("Standing")


def checkpoint_name(update: int) -> str:
    """The file of the checkpoint after an update.

    Examples
    --------
    >>> checkpoint_name(512)
    'update-000512.safetensors'
    """
    return f"update-{update:06d}.safetensors"


def write_state(path: Path, weights: Mapping[str, Tensor], called: str, optimizer: torch.optim.AdamW, standing: Any) -> None:
    """Write everything that a training resumes from; `called` stands before the names of the weights, `standing` is a dataclass."""
    tensors: dict[str, Tensor] = {}
    for name, values in weights.items():
        state = optimizer.state.get(values, {})
        tensors[f"{called}.{name}"] = values.detach()
        for moment, own_name in _MOMENTS.items():
            tensors[f"{moment}.{name}"] = state[own_name] if state else torch.zeros_like(values)  # without a gradient there is no state
    content = {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}
    written = json.dumps(asdict(standing))
    write_whole(path, save(content, metadata={_STANDING: written, _DIGEST: tensors_sha256(content, written)}))


def read_state(path: Path, what: str, parse: Callable[[dict[str, Any]], Standing]) -> Standing | None:
    """How far the training of a state has come; None without the file. `what` says what kind of state is expected."""
    if not path.exists():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            return parse(json.loads(file.metadata()[_STANDING]))
    except (SafetensorError, OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise Refusal(f"{path} is not the state of {what} ({reason(error)}). Remove it to begin again, or choose another folder.") from None


def restore_state(path: Path, weights: Mapping[str, Tensor], called: str, optimizer: torch.optim.AdamW, done: int) -> None:
    """Load the state after `done` updates into weights and their optimizer, in place."""
    tensors = load_file(path)
    with safe_open(path, framework="pt") as file:
        header = file.metadata()
    if _DIGEST in header and header[_DIGEST] != tensors_sha256(tensors, header[_STANDING]):  # the first versions wrote none
        raise Refusal(f"{path} was changed since it was written, so resuming from it would give other weights. Remove it to begin again.")
    expected = {f"{part}.{name}": values.shape for name, values in weights.items() for part in (called, *_MOMENTS)}
    if {name: tensor.shape for name, tensor in tensors.items()} != expected:
        raise Refusal(f"{path} holds weights of another shape than the recipe's. Remove it to begin again, or choose another folder.")
    for name, values in weights.items():
        values.data.copy_(tensors[f"{called}.{name}"])
        moments = {own_name: tensors[f"{moment}.{name}"].to(values.device) for moment, own_name in _MOMENTS.items()}
        optimizer.state[values] = {"step": torch.tensor(float(done)), **moments}
