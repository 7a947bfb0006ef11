"""Run an adaptation in a folder: seeded by update, resumable bit for bit, with adapters at powers of two.

The folder holds `run.json` (recipe, objective, mask, base and data by their hashes), `state.safetensors` (what to continue from),
`log.jsonl`, `update-000016.safetensors` ... (adapters, float16) and in the end `adapter.safetensors`. A run that is killed at any time
continues from its last state and ends with the weights that it would have had (same machine, same number of threads). A run may be
continued with more updates as long as every update that it has done would have been the same.

Refused: a folder that holds a run of something else, a state that was changed, a loss that is not a number.
"""

import json
import math
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import nn

from floatlens.errors import Refusal, shown
from floatlens.folders import is_half_written, one_writer, write_whole
from floatlens.lab.adaptation.adapter import attach, mask_token_of, refuse_model
from floatlens.lab.adaptation.data import Data, prepare
from floatlens.lab.adaptation.objective import Predictor, backward, held_out_losses
from floatlens.lab.adaptation.recipe import MOST_UPDATES, Recipe, recipe_of
from floatlens.lab.adaptation.sequences import TrainingSequence, draw_update, held_out_sequences
from floatlens.lab.adaptation.team import ALONE, Team
from floatlens.lab.training_state import checkpoint_name, read_state, restore_state, write_state
from floatlens.models.adapters import ADAPTER, Adapter, AdapterInfo, MaskKind, Objective, weights_sha256, write_adapter
from floatlens.models.language_model import LanguageModel

WRITTEN_BY = "floatlens adapt"
RUN, STATE, LOG = "run.json", "state.safetensors", "log.jsonl"
_PARAMETER = "parameter"
"""What stands before the names of trained parameters in a state."""
Entry = dict[str, Any]  # update, and loss (mean since the entry before) or held-out losses


@dataclass(frozen=True)
class Standing:
    """How far a run is: updates done, tokens seen and supervised, what that took, with how many threads, and the log so far."""

    done: int = 0
    seen: int = 0
    supervised: int = 0
    seconds: float = 0.0
    threads: tuple[int, ...] = ()
    log: tuple[Entry, ...] = ()


@dataclass(frozen=True)
class Progress:
    """An update that was just done: its number, its loss, its tokens and the seconds it took."""

    update: int
    loss: float
    tokens: int
    seconds: float


@dataclass(frozen=True, eq=False)
class Adaptation:
    """A base with the parameters that are trained, its data, and how it is trained: everything an update needs."""

    lm: LanguageModel
    recipe: Recipe
    objective: Objective
    mask: MaskKind
    data: Data
    base_sha256: str
    mask_token_id: int
    trained: dict[str, nn.Parameter]
    predictor: Predictor
    optimizer: torch.optim.AdamW
    held_out: list[TrainingSequence] = field(default_factory=list)
    team: Team = ALONE

    def draw(self, update: int) -> list[TrainingSequence]:
        """The sequences of an update."""
        return draw_update(self.data, self.recipe, self.lm, update)

    def step(self, update: int, sequences: list[TrainingSequence]) -> float:
        """One update, in place; its loss."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.recipe.rate_at(update)
        own = self.team.share_of(sequences)
        loss = backward(self.predictor, own, self.objective, self.recipe.visible_share(self.mask, update))
        if self.team.size > 1:
            loss = self._joined(loss)
        if not math.isfinite(loss):
            raise Refusal(
                f"The loss of update {update} is {loss}, so the weights are lost. Lower optimizer.rate in the recipe, and begin "
                "again in another folder."
            )
        torch.nn.utils.clip_grad_norm_(self.trained.values(), self.recipe.optimizer.clip)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss

    def _joined(self, loss: float) -> float:
        """Add the gradients and the losses of all processes; a process without a sequence adds zeros."""
        for weights in self.trained.values():
            weights.grad = torch.zeros_like(weights) if weights.grad is None else weights.grad
        total = torch.tensor([loss], device=self.predictor.mask_offset.device)
        self.team.add_up([total, *(weights.grad for weights in self.trained.values() if weights.grad is not None)])
        return float(total)

    def adapter(self, update: int) -> Adapter:
        """The trained parameters as they are now."""
        settings = self.recipe.adapter
        info = AdapterInfo(
            base=self.recipe.base,
            base_sha256=self.base_sha256,
            trains=settings.trains,
            rank=settings.rank,
            alpha=settings.alpha,
            objective=self.objective,
            mask=self.mask,
            mask_token_id=self.mask_token_id,
            seed=self.recipe.seed,
            update=update,
        )
        return Adapter(info, {name: weights.detach() for name, weights in self.trained.items()})


def begin(
    lm: LanguageModel,
    recipe: Recipe,
    objective: Objective,
    mask: MaskKind,
    data_folder: str | PathLike[str],
    team: Team = ALONE,
) -> Adaptation:
    """Prepare an adaptation: read its data, freeze the base and give it the parameters to train, in place.

    Refused: what `refuse_model`, `mask_token_of` and `prepare` refuse, `ar` under a mask that shows what is to be predicted, and
    all-weights training of a base that is not float32.
    """
    refuse_model(lm)
    if objective == "ar" and mask != "causal":
        raise Refusal(
            f"The objective ar under the mask {mask} would show each row the token it predicts. Use the mask causal, or the "
            "objective diffusion."
        )
    if lm.dtype != torch.float32:
        raise Refusal(
            f"{lm.name} is loaded in {str(lm.dtype).removeprefix('torch.')}, and training needs float32. Load it with dtype='float32'."
        )
    room = getattr(lm.config, "max_position_embeddings", recipe.longest)
    if recipe.longest > room:
        raise Refusal(
            f"Sequences of up to {recipe.longest} tokens (longest in the recipe) are more than the {room} that {lm.name} was "
            "made for. Lower longest."
        )
    mask_token_id = mask_token_of(lm, recipe.mask_token)
    data = prepare(recipe, Path(data_folder).expanduser(), lm.tokenizer)
    settings, base_sha256 = recipe.adapter, weights_sha256(lm.module)
    trained = attach(lm.module, settings.trains, settings.rank, settings.alpha, recipe.seed, getattr(torch, settings.frozen_in))
    predictor = Predictor(lm.module, trained["mask_offset"], mask_token_id, mask, recipe.seed)
    decays = [weights for weights in trained.values() if weights.ndim == 2]
    stays = [weights for weights in trained.values() if weights.ndim != 2]
    groups = [{"params": decays, "weight_decay": recipe.optimizer.weight_decay}, {"params": stays, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=recipe.optimizer.rate, betas=(0.9, 0.98))
    held_out = held_out_sequences(data, recipe, lm)
    return Adaptation(lm, recipe, objective, mask, data, base_sha256, mask_token_id, trained, predictor, optimizer, held_out, team)


def run(
    adaptation: Adaptation,
    folder: str | PathLike[str],
    *,
    stop_after: int | None = None,
    report: Callable[[Entry], None] = lambda entry: None,
    watch: Callable[[Progress], None] = lambda progress: None,
) -> Standing:
    """Train in a folder, from where the run there stands to the end of the recipe.

    Parameters
    ----------
    adaptation
        From `begin`.
    folder
        Where the run is kept; it is made if it is not there.
    stop_after
        Stop after so many updates in all. Up to there the run is that of the whole recipe, which it can be continued to.
    report
        Given every new entry of the log.
    watch
        Given every update.
    """
    recipe = adaptation.recipe
    final = min(recipe.updates, stop_after or recipe.updates)
    writes = adaptation.team.writes
    with one_writer(folder, WRITTEN_BY) if writes else nullcontext(Path(folder)) as place:
        if writes:
            write_whole(place / RUN, json.dumps(refuse_other_run(place, adaptation)).encode())
        adaptation.team.wait()
        standing = load_state(place / STATE, adaptation)
        adaptation.team.wait()  # before the first state is written anew
        if writes and not standing.done:
            standing = _with_entry(standing, _held_out_entry(adaptation, 0), report)
        log, losses = list(standing.log), []
        seen, supervised, began = standing.seen, standing.supervised, time.monotonic() - standing.seconds
        for update in range(standing.done + 1, final + 1):
            started, sequences = time.monotonic(), adaptation.draw(update)
            losses.append(adaptation.step(update, sequences))
            tokens = sum(len(sequence.tokens) for sequence in sequences)
            seen, supervised = seen + tokens, supervised + sum(len(sequence.targets) for sequence in sequences)
            watch(Progress(update, losses[-1], tokens, time.monotonic() - started))
            last = update == final
            if writes and (last or update & (update - 1) == 0):
                write_adapter(place / checkpoint_name(update), adaptation.adapter(update))
                log.append(_held_out_entry(adaptation, update))
                report(log[-1])
            if writes and (last or update % recipe.save_every == 0):
                log.append({"update": update, "loss": sum(losses) / len(losses), "seen": seen, "supervised": supervised})
                report(log[-1])
                threads = tuple(sorted({*standing.threads, torch.get_num_threads()}))
                standing = Standing(update, seen, supervised, time.monotonic() - began, threads, tuple(log))
                write_state(place / STATE, adaptation.trained, _PARAMETER, adaptation.optimizer, standing)
                write_whole(place / LOG, "".join(json.dumps(entry) + "\n" for entry in log).encode())
                losses = []
        if writes:
            write_adapter(place / ADAPTER, adaptation.adapter(standing.done))
    return standing


def load_state(path: Path, adaptation: Adaptation) -> Standing:
    """Bring an adaptation to where its run stands, in place; nothing is changed if it has not begun."""
    standing = read_standing(path)
    if standing.done:
        restore_state(path, adaptation.trained, _PARAMETER, adaptation.optimizer, standing.done)
    return standing


def read_standing(path: Path) -> Standing:
    """How far the run of a state is; a run without one has not begun.

    Examples
    --------
    >>> read_standing(Path("nowhere.safetensors")).done
    0
    """

    def parse(written: dict[str, Any]) -> Standing:
        standing = Standing(**{**written, "threads": tuple(written["threads"]), "log": tuple(written["log"])})
        _refuse_impossible(standing)
        return standing

    return read_state(path, "an adaptation", parse) or Standing()


def _refuse_impossible(standing: Standing) -> None:
    """Refuse what no run has written, before anybody counts up to it."""
    counts = (standing.done, standing.seen, standing.supervised, *standing.threads)
    if any(type(count) is not int or not 0 <= count < 1 << 62 for count in counts) or standing.done > MOST_UPDATES:
        raise ValueError("its counts are not numbers that a run can have")
    if not isinstance(standing.seconds, int | float) or not 0 <= standing.seconds < math.inf:
        raise ValueError("its seconds are not a time")
    if not all(isinstance(entry, dict) and type(entry.get("update")) is int for entry in standing.log):
        raise ValueError("its log has entries without an update")


def _held_out_entry(adaptation: Adaptation, update: int) -> Entry:
    share = adaptation.recipe.visible_share(adaptation.mask, update)
    losses = held_out_losses(adaptation.predictor, adaptation.held_out, adaptation.objective, share)
    return {"update": update, **{f"held-out {kind}": value for kind, value in losses.items()}}


def _with_entry(standing: Standing, entry: Entry, report: Callable[[Entry], None]) -> Standing:
    report(entry)
    return Standing(**{**asdict(standing), "threads": standing.threads, "log": (*standing.log, entry)})


def refuse_other_run(folder: Path, adaptation: Adaptation) -> dict[str, Any]:
    """Refuse a folder that holds another run; what its `run.json` is to say."""
    file, recipe = folder / RUN, adaptation.recipe
    own: dict[str, Any] = {
        "recipe": json.loads(recipe.model_dump_json()),
        "objective": adaptation.objective,
        "mask": adaptation.mask,
        "base_sha256": adaptation.base_sha256,
        "data": adaptation.data.hashes(),
    }
    done = read_standing(folder / STATE).done
    if not file.exists():
        if done:
            raise Refusal(f"{folder} holds a state but does not say of which run ({RUN} is missing). Choose another folder (--into).")
        if folder.is_dir() and (strange := sorted(entry.name for entry in folder.iterdir() if not is_half_written(entry))):
            raise Refusal(f"{folder} holds {shown(strange[0])} and no run, so it is somebody else's. Choose another folder (--into).")
        return own
    try:
        before = json.loads(file.read_text())
        earlier = recipe_of(before["recipe"], str(file))
    except (ValueError, KeyError, TypeError, RecursionError):  # a Refusal is a ValueError
        raise Refusal(f"{file} does not say which run the folder holds. Choose another folder (--into), or remove it.") from None
    changed = [name for name in own if name != "recipe" and own[name] != before.get(name)]
    changed += [
        name for name, value in own["recipe"].items() if name not in ("updates", "save_every") and value != before["recipe"].get(name)
    ]
    if changed:
        raise Refusal(f"{folder} holds a run with another {changed[0]}. Choose another folder (--into), or remove it.")
    for update in range(1, done + 1):
        other = earlier.rate_at(update) != recipe.rate_at(update)
        if other or earlier.visible_share(adaptation.mask, update) != recipe.visible_share(adaptation.mask, update):
            raise Refusal(
                f"{folder} holds a run of {earlier.updates:,} updates, of which {done:,} are done; with {recipe.updates:,}, "
                f"update {update:,} would have been another. "
                "Choose another folder (--into)."
            )
    if done > recipe.updates:
        raise Refusal(f"{folder} holds a run with {done:,} updates done, more than the {recipe.updates:,} asked for. Use its checkpoints.")
    return own
