"""Train one twin in a folder: seeded, resumable bit for bit, with checkpoints at powers of two. Weights are safetensors only.

The folder holds `recipe.json` (recipe and kind), `state.safetensors` (what to resume from), `log.jsonl` (losses and scores, rewritten
from the state) and `update-000016.safetensors`, `update-000032.safetensors`, ... A run that is killed at any time resumes from its
last state and gives the weights that it would have given (same machine, same number of threads).

Decided here: checkpoints are float16, without the output matrix, which is the embedding.

Refused: a folder that holds a run of another recipe or kind, a state that `floatlens.lab.training_state` refuses, and an update of which
there is no checkpoint.
"""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save
from torch import Tensor
from transformers import LlamaForCausalLM

from floatlens.errors import Refusal
from floatlens.folders import one_writer, write_whole
from floatlens.lab.recipe import Recipe, recipe_as_table, recipe_of
from floatlens.lab.scores import scores
from floatlens.lab.sequences import TOKEN_ID
from floatlens.lab.training_state import checkpoint_name, read_state, restore_state, write_state
from floatlens.lab.updates import make_optimizer, make_twin, run_update
from floatlens.models.families.twin import KINDS
from floatlens.models.language_model import LanguageModel
from floatlens.tasks.world.people import make_world
from floatlens.tasks.world.tokenizer import make_tokenizer
from floatlens.tasks.world.words import EOS, MASK
from floatlens.terminal import progress_bar

Entry = dict[str, Any]  # update, stage, loss (mean since the entry before), cpu_seconds, and scores by name
_WEIGHTS = "weights"
"""What stands before the names of weights in a state."""


@dataclass(frozen=True)
class Standing:
    """How far a run has come: updates done, processor time, numbers of threads, and the log so far."""

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
    """Write everything that a run resumes from."""
    write_state(path, dict(model.named_parameters()), _WEIGHTS, optimizer, standing)


def read_standing(path: Path) -> Standing:
    """How far the run of a state file has come; without the file it has not begun.

    Examples
    --------
    >>> read_standing(Path("nowhere.safetensors")).done
    0
    """

    def parse(written: dict[str, Any]) -> Standing:
        return Standing(written["done"], written["cpu_seconds"], tuple(written["threads"]), tuple(written["log"]))

    return read_state(path, "a training", parse) or Standing()


def load_state(path: Path, model: LlamaForCausalLM, optimizer: torch.optim.AdamW) -> Standing:
    """Load the state of a run into a model and its optimizer, in place; nothing changes if the run has not begun."""
    standing = read_standing(path)
    if standing.done:
        restore_state(path, dict(model.named_parameters()), _WEIGHTS, optimizer, standing.done)
    return standing


WRITTEN_BY = "floatlens train"
FIRST_CHECKPOINT = 16
STATE, RECIPE, LOG = "state.safetensors", "recipe.json", "log.jsonl"


@dataclass(frozen=True, eq=False)
class FinishedRun:
    """A trained twin, and how it got there."""

    model: LlamaForCausalLM
    standing: Standing


def train_twin(
    kind: str,
    folder: str | PathLike[str],
    recipe: Recipe,
    *,
    report: Callable[[Entry], None] = lambda entry: None,
    progress: bool = True,
) -> FinishedRun:
    """Train a twin in a folder, from where its run stopped to the end of the recipe.

    Parameters
    ----------
    kind
        "arm", "mdm" or "causal-mdm".
    folder
        Where the run is kept; it is created if needed.
    recipe
        What to do; every `recipe.check_every` updates the state is saved and scores are measured.
    report
        Called with every new entry of the log.
    progress
        Show a progress bar.

    Examples
    --------
    >>> import tempfile
    >>> from dataclasses import replace
    >>> from floatlens.lab.recipe import bundled_recipe
    >>> recipe = bundled_recipe("smoke")
    >>> short = replace(recipe, stages=(replace(recipe.stages[0], updates=2, checks=()),))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = train_twin("arm", folder, short)
    ...     run.standing.done, updates_done(folder)
    (2, 2)
    """
    model = make_twin(kind, recipe)
    with one_writer(folder, WRITTEN_BY) as place:
        return _train(model, kind, place, recipe, report, progress)


def updates_done(folder: str | PathLike[str]) -> int:
    """How many updates the run in a folder has done; 0 if there is none.

    Examples
    --------
    >>> updates_done("nowhere")
    0
    """
    return read_standing(Path(folder) / STATE).done


def twin_at(folder: str | PathLike[str], update: int) -> LanguageModel:
    """The twin of a run as it was after an update (a power of two), in float32, ready to write and to be traced.

    Examples
    --------
    >>> twin_at("nowhere", 512)
    Traceback (most recent call last):
    floatlens.errors.Refusal: nowhere holds no run of a twin. Give a folder such as twins/runs/twin-mdm, which floatlens train twins fills.
    """
    place = Path(folder)
    if not (place / RECIPE).is_file():
        raise Refusal(f"{place} holds no run of a twin. Give a folder such as twins/runs/twin-mdm, which floatlens train twins fills.")
    file = place / checkpoint_name(update)
    if not file.is_file():
        there = ", ".join(str(int(checkpoint.stem.removeprefix("update-"))) for checkpoint in sorted(place.glob("update-*.safetensors")))
        raise Refusal(f"{place} holds no checkpoint of update {update}. It holds: {there or 'none yet'}.")
    stored = json.loads((place / RECIPE).read_text())
    kind = stored.pop("kind")
    model = make_twin(kind, recipe_of(stored, str(place / RECIPE)))
    weights = load_file(file)
    for name, parameter in model.named_parameters():
        parameter.data.copy_(weights[name])
    return as_language_model(kind, model)


def as_language_model(kind: str, model: LlamaForCausalLM) -> LanguageModel:
    """A twin with its tokenizer and its sampler."""
    how = KINDS[kind]
    return LanguageModel(
        model.eval(),
        make_tokenizer(),
        family="twin",
        sampler=how.sampler,
        row_offset=how.row_offset,
        mask_token_id=None if how.sampler == "autoregressive" else TOKEN_ID[MASK],
        end_tokens=(TOKEN_ID[EOS],),
        name=f"twin-{kind}",
    )


def _train(model: LlamaForCausalLM, kind: str, place: Path, recipe: Recipe, report: Callable[[Entry], None], progress: bool) -> FinishedRun:
    _mark_as_own(place, kind, recipe)
    world, optimizer = make_world(), make_optimizer(model, recipe)
    standing = load_state(place / STATE, model, optimizer)
    losses: list[float] = []
    began = time.process_time() - standing.cpu_seconds
    with progress_bar(recipe.updates, f"Training twin-{kind}", show=progress) as advance:
        advance(standing.done)
        for update in range(standing.done + 1, recipe.updates + 1):
            losses.append(run_update(model, optimizer, kind, recipe, world, update))
            if update >= FIRST_CHECKPOINT and update & (update - 1) == 0:
                save_checkpoint(model, place / checkpoint_name(update))
            if update % recipe.check_every == 0 or update == recipe.updates:
                stage, seconds = recipe.stage_of(update), time.process_time() - began
                entry: Entry = {"update": update, "stage": stage.name, "loss": round(sum(losses) / len(losses), 4)}
                entry |= {"cpu_seconds": round(seconds)}
                entry |= {name: round(share, 3) for name, share in scores(model, kind, world, stage.checks).items()}
                threads = tuple(sorted({*standing.threads, torch.get_num_threads()}))
                standing = Standing(update, seconds, threads, (*standing.log, entry))
                save_state(place / STATE, model, optimizer, standing)
                losses = []
                write_whole(place / LOG, "".join(json.dumps(line) + "\n" for line in standing.log).encode())
                report(entry)
            advance(1)
    return FinishedRun(model, standing)


def _mark_as_own(folder: Path, kind: str, recipe: Recipe) -> None:
    """Write down which run the folder holds, or refuse it if it holds another."""
    written, own = folder / RECIPE, {"kind": kind, **recipe_as_table(recipe)}
    if not written.exists():
        if (folder / STATE).exists():
            raise Refusal(f"{folder} holds a state but does not say of which recipe ({RECIPE} is missing). Choose another folder.")
        write_whole(written, json.dumps(own).encode())
    try:
        same = json.loads(written.read_text()) == own
    except ValueError:
        raise Refusal(f"{written} is not JSON, so it cannot be told which run the folder holds. Choose another folder.") from None
    if not same:
        raise Refusal(f"{folder} holds a run of another recipe or kind. Choose another folder (--into), or delete it.")
