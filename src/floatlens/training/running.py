"""Train one twin by a recipe: seeded, resumable bit for bit, with checkpoints at powers of two.

What an update sees depends on the recipe's seed and its own number alone, so the state to resume from is the weights, the optimizer and a counter. It is written
under a temporary name and renamed; a run killed at any time continues from the last whole one. A folder that holds a run of another recipe or kind
is refused.

    python train.py mdm runs/mdm twins.toml [until which update]
"""

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from floatlens.errors import Refusal
from floatlens.tasks.world.people import World, make_world
from floatlens.tasks.world.words import BOS, EOS, PAD
from floatlens.training.initial_weights import set_initial_weights
from floatlens.training.objectives import KINDS, batch_loss
from floatlens.training.recipe import Recipe, read_recipe
from floatlens.training.scores import scores
from floatlens.training.sequences import TOKEN_ID, make_batch

FIRST_CHECKPOINT = 16


def make_twin(kind: str, recipe: Recipe) -> LlamaForCausalLM:
    """A twin before its training.

    Examples
    --------
    >>> model = make_twin("mdm", read_recipe("twins.toml"))
    >>> sum(weights.numel() for weights in model.parameters()) < 1_100_000, model.config.is_causal
    (True, False)
    """
    shape = recipe.model
    config = LlamaConfig(
        vocab_size=len(TOKEN_ID),
        hidden_size=shape.width,
        intermediate_size=2 * shape.width,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        bos_token_id=TOKEN_ID[BOS],
        eos_token_id=TOKEN_ID[EOS],
        pad_token_id=TOKEN_ID[PAD],
        rope_parameters={"rope_type": "default", "rope_theta": shape.rotary_base},
    )
    config.is_causal = KINDS[kind]
    model = LlamaForCausalLM(config)
    set_initial_weights(model, recipe.seed)
    return model


def make_optimizer(model: LlamaForCausalLM, recipe: Recipe) -> torch.optim.AdamW:
    """AdamW; the norms' weights do not decay."""
    groups = [
        {"params": [weights for weights in model.parameters() if weights.ndim == 2], "weight_decay": recipe.optimizer.weight_decay},
        {"params": [weights for weights in model.parameters() if weights.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=recipe.optimizer.rate, betas=(0.9, 0.98))


def run_update(model: LlamaForCausalLM, optimizer: torch.optim.AdamW, kind: str, recipe: Recipe, world: World, update: int) -> float:
    """One update; its loss."""
    for group in optimizer.param_groups:
        group["lr"] = recipe.rate_at(update)
    rng, generator = Random(f"{recipe.seed}-{update}"), torch.Generator().manual_seed(recipe.seed * 1_000_003 + update)
    mixture = recipe.stage_of(update).mixture
    whole, total = sum(count for _, count in mixture), 0.0
    for shape, count in mixture:
        loss = batch_loss(model, kind, make_batch(rng, world, shape, count), generator) * (count / whole)
        loss.backward()
        total += loss.item()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    return total


def train(
    kind: str,
    folder: Path,
    recipe: Recipe,
    until: int | None = None,
    check_every: int = 50,
    report: Callable[[dict[str, Any]], None] = lambda entry: None,
) -> LlamaForCausalLM:
    """Train a twin in a folder, from where it stands there, to the end of the recipe or until an update."""
    last = recipe.updates if until is None else min(until, recipe.updates)
    folder.mkdir(parents=True, exist_ok=True)
    identity = {"kind": kind, **json.loads(json.dumps(asdict(recipe)))}
    written = folder / "recipe.json"
    if written.exists() and json.loads(written.read_text()) != identity:
        raise Refusal(f"{folder} holds a run of another recipe or kind; choose another folder.")
    written.write_text(json.dumps(identity))
    world, model = make_world(), make_twin(kind, recipe)
    optimizer = make_optimizer(model, recipe)
    done, spent = _resume(folder, model, optimizer)
    begun, losses = time.process_time(), []
    for update in range(done + 1, last + 1):
        losses.append(run_update(model, optimizer, kind, recipe, world, update))
        if update >= FIRST_CHECKPOINT and update & (update - 1) == 0:
            _save_weights(model, folder / f"update-{update:06d}.pt")
        if update % check_every == 0 or update == last:
            stage, seconds = recipe.stage_of(update), spent + time.process_time() - begun
            entry = {"update": update, "stage": stage.name, "loss": round(sum(losses) / len(losses), 4), "cpu_seconds": round(seconds)}
            entry |= {name: round(share, 3) for name, share in scores(model, kind, world, stage.checks).items()}
            losses = []
            _save_state(folder, model, optimizer, update, seconds)
            with (folder / "log.jsonl").open("a") as log:
                log.write(json.dumps(entry) + "\n")
            report(entry)
    if max(done, last) == recipe.updates:
        _save_weights(model, folder / "final.pt")
    return model


def _resume(folder: Path, model: LlamaForCausalLM, optimizer: torch.optim.AdamW) -> tuple[int, float]:
    path = folder / "state.pt"
    if not path.exists():
        return 0, 0.0
    state = torch.load(path)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return state["done"], state["spent"]


def _save_state(folder: Path, model: LlamaForCausalLM, optimizer: torch.optim.AdamW, done: int, spent: float) -> None:
    temporary = folder / "state.tmp"
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "done": done, "spent": spent}, temporary)
    os.replace(temporary, folder / "state.pt")


def _save_weights(model: LlamaForCausalLM, path: Path) -> None:
    """Without the output matrix, which is the embeddings."""
    torch.save({name: weights.half() for name, weights in model.state_dict().items() if name != "lm_head.weight"}, path)


if __name__ == "__main__":
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    until = int(sys.argv[4]) if len(sys.argv) > 4 else None
    train(sys.argv[1], Path(sys.argv[2]), read_recipe(sys.argv[3]), until, report=lambda entry: print(json.dumps(entry), flush=True))
