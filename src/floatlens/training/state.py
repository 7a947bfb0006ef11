"""Weights on disk: the state a run continues from, and the checkpoints it leaves behind. Safetensors only.

Decided here: a state is one file, the weights and AdamW's moments as tensors and everything else (how far, the log) as JSON in the file's header, with the SHA-256 of both. A run killed at any
time leaves a whole one (`floatlens.folders.write_whole`). Checkpoints are float16, without the output matrix, which is the embedding.
Refused: a file that is not a whole state, or was changed since it was written, or is one of a model of another shape.
"""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save
from torch import Tensor
from transformers import LlamaForCausalLM

from floatlens.errors import Refusal
from floatlens.folders import write_whole

Entry = dict[str, Any]  # update, stage, loss (mean since the entry before), cpu_seconds, and scores by name
_MOMENTS = {"mean": "exp_avg", "square": "exp_avg_sq"}


@dataclass(frozen=True)
class Standing:
    """How far a run is: updates done, what they took, with how many threads, and the log so far."""

    done: int = 0
    cpu_seconds: float = 0.0
    threads: tuple[int, ...] = ()
    log: tuple[Entry, ...] = ()


def half_weights(model: LlamaForCausalLM) -> dict[str, Tensor]:
    """The weights in float16, each once: the output matrix is the embedding."""
    return {name: weights.detach().half().contiguous() for name, weights in model.named_parameters()}


def save_checkpoint(model: LlamaForCausalLM, path: Path) -> None:
    """Write the weights, in float16."""
    write_whole(path, save(half_weights(model)))


def save_state(path: Path, model: LlamaForCausalLM, optimizer: torch.optim.AdamW, standing: Standing) -> None:
    """Write everything that a run continues from."""
    tensors: dict[str, Tensor] = {}
    for name, weights in model.named_parameters():
        tensors[f"weights.{name}"] = weights.detach()
        for moment, called in _MOMENTS.items():
            tensors[f"{moment}.{name}"] = optimizer.state[weights][called]
    said = json.dumps(asdict(standing))
    write_whole(path, save(tensors, metadata={"standing": said, "sha256": _digest(tensors, said)}))


def read_standing(path: Path) -> Standing:
    """How far the run of a state is; a run without one has not begun.

    Examples
    --------
    >>> read_standing(Path("nowhere.safetensors")).done
    0
    """
    if not path.exists():
        return Standing()
    try:
        with safe_open(path, framework="pt") as file:
            said = json.loads(file.metadata()["standing"])
        return Standing(said["done"], said["cpu_seconds"], tuple(said["threads"]), tuple(said["log"]))
    except (SafetensorError, OSError, ValueError, TypeError, KeyError) as error:
        raise Refusal(f"{path} is not the state of a training ({error}). Remove it to begin again, or choose another folder.") from None


def restore_state(path: Path, model: LlamaForCausalLM, optimizer: torch.optim.AdamW) -> Standing:
    """Bring a model and its optimizer to where a run stands, in place; nothing is changed if it has not begun."""
    standing = read_standing(path)
    if not standing.done:
        return standing
    tensors = load_file(path)
    with safe_open(path, framework="pt") as file:
        written = file.metadata()
    if "sha256" in written and written["sha256"] != _digest(tensors, written["standing"]):  # earlier versions wrote none
        raise Refusal(f"{path} was changed since it was written, so going on from it would give other weights. Remove it to begin again.")
    names = dict(model.named_parameters())
    expected = {f"{part}.{name}": weights.shape for name, weights in names.items() for part in ("weights", *_MOMENTS)}
    if {name: tensor.shape for name, tensor in tensors.items()} != expected:
        raise Refusal(f"{path} holds weights of another shape than its recipe's. Remove it to begin again, or choose another folder.")
    for name, weights in names.items():
        weights.data.copy_(tensors[f"weights.{name}"])
        moments = {called: tensors[f"{moment}.{name}"] for moment, called in _MOMENTS.items()}
        optimizer.state[weights] = {"step": torch.tensor(float(standing.done)), **moments}
    return standing


def _digest(tensors: dict[str, Tensor], standing: str) -> str:
    digest = hashlib.sha256(standing.encode())
    for name in sorted(tensors):
        digest.update(f"{name} {tuple(tensors[name].shape)} {tensors[name].dtype}".encode())
        digest.update(tensors[name].contiguous().numpy().tobytes())
    return digest.hexdigest()
