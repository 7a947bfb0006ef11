"""`floatlens adapt`: turn a causal language model into a diffusion model, or its control, by training an adapter."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console

from floatlens.errors import Refusal
from floatlens.seeds import LARGEST_SEED
from floatlens.terminal import make_console, say

if TYPE_CHECKING:
    from floatlens.lab.adaptation.training import Progress


def adapt(
    model: str = typer.Argument(None, help="Model to adapt: a Llama, Qwen2 or Qwen3; the base of the recipe by default."),
    into: Path = typer.Option(..., help="Folder for the run, its checkpoints and the adapter."),
    data: Path = typer.Option(..., help="Folder that holds the files of the recipe."),
    recipe: str = typer.Option("smollm2", help="Recipe: a bundled name (smollm2) or a TOML file."),
    objective: str = typer.Option("diffusion", help="Training objective: diffusion or ar."),
    mask: str = typer.Option(
        None, help="Attention mask: causal, bidirectional or annealed; by default bidirectional for diffusion and causal for ar."
    ),
    seed: int = typer.Option(None, min=0, max=LARGEST_SEED, help="Seed, instead of the recipe's."),
    updates: int = typer.Option(None, min=1, help="Number of updates, instead of the recipe's."),
    stop_after: int = typer.Option(
        None, min=1, help="Stop after this many updates; the same command without it continues to the end of the recipe."
    ),
    dry_run: bool = typer.Option(False, "--dry-run", help="Print tokens, memory and time, without training."),
) -> None:
    """Train an adapter that turns a causal language model into a diffusion model.

    If it is interrupted, run the same command again to resume.

    Examples:

      floatlens adapt --data data --into runs/smollm2-mdm --dry-run

      floatlens adapt --data data --into runs/smollm2-mdm

      floatlens adapt --data data --into runs/smollm2-arm --objective ar

      floatlens adapt --data data --into runs/smollm2-causal-mdm --mask causal

      accelerate launch --num_processes 4 -m floatlens adapt --data data --into runs/smollm2-mdm
    """
    from floatlens.folders import one_writer, refuse_folder_to_fill
    from floatlens.lab.adaptation.adapter import refuse_model
    from floatlens.lab.adaptation.cards import make_plan, write_card
    from floatlens.lab.adaptation.recipe import bundled_names, bundled_recipe, read_recipe, recipe_of
    from floatlens.lab.adaptation.team import join_team
    from floatlens.lab.adaptation.training import STATE, WRITTEN_BY, begin, read_standing, refuse_other_run, run
    from floatlens.models.adapters import MASKS, OBJECTIVES
    from floatlens.models.loading import load

    chosen_objective: Any = _one_of(objective, OBJECTIVES, "--objective")
    chosen_mask: Any = _one_of(mask or ("causal" if objective == "ar" else "bidirectional"), MASKS, "--mask")
    chosen = bundled_recipe(recipe) if recipe in bundled_names() else read_recipe(recipe)
    changes = {"base": model, "seed": seed, "updates": updates}
    chosen = recipe_of(
        {**chosen.model_dump(exclude_none=True), **{name: value for name, value in changes.items() if value is not None}}, recipe
    )
    into, data = into.expanduser(), data.expanduser()
    if not data.is_dir():
        raise Refusal(f"There is no folder {data} (--data). Give the folder below which the files of the recipe lie.")
    refuse_folder_to_fill(into, WRITTEN_BY)
    team = join_team()
    console = make_console(quiet=not team.writes)
    done = read_standing(into / STATE).done
    say(console, f"Adapting {chosen.base}: objective {chosen_objective}, mask {chosen_mask}, seed {chosen.seed}, into {into}.")
    lm = load(chosen.base, dtype="float32", device=team.device)
    refuse_model(lm)
    adaptation = begin(lm, chosen, chosen_objective, chosen_mask, data, team)
    for source in adaptation.data.sources:
        left_out = "".join(f", {count:,} left out ({reason})" for reason, count in source.left_out.items() if count)
        say(console, f"{source.file}: {source.used:,} used{left_out}.")
    refuse_other_run(into, adaptation)
    if done:
        say(console, f"{into} continues from update {done:,} of {chosen.updates:,}.")
    if team.writes and (done < chosen.updates or dry_run):
        for sentence in make_plan(adaptation, done).sentences():
            say(console, sentence)
    if dry_run:
        return
    with _update_bar(min(chosen.updates, stop_after or chosen.updates), done, into.name, show=team.writes) as watch:
        standing = run(
            adaptation, into, stop_after=stop_after, report=lambda entry: say(console, _line(entry, chosen.updates)), watch=watch
        )
    if not team.writes:
        return
    with one_writer(into, WRITTEN_BY):
        write_card(into, adaptation, standing, into.name)
    say(console, f"Wrote {into / 'adapter.safetensors'} and {into / 'README.md'}, its model card.")


def _one_of(value: str, choices: tuple[str, ...], option: str) -> str:
    if value not in choices:
        raise Refusal(f"There is no {option.removeprefix('--')} {value!r}. {option} takes {', '.join(choices)}.")
    return value


def _line(entry: dict[str, Any], updates: int) -> str:
    losses = [
        f"{name} loss {value:.3f}".replace("loss loss", "loss")
        for name, value in entry.items()
        if name == "loss" or name.startswith("held-out")
    ]
    tokens = f", {entry['seen']:,} tokens" if "seen" in entry else ""
    return f"update {entry['update']:,} of {updates:,}{tokens}: {', '.join(losses) or 'nothing is held out'}"


@contextmanager
def _update_bar(total: int, done: int, title: str, *, show: bool) -> Iterator[Callable[["Progress"], None]]:
    """A bar with loss, tokens per second and time left, if standard error is a terminal."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    if not show or not sys.stderr.isatty():
        yield lambda _progress: None
        return
    console: Console = make_console(stderr=True)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(title, total=total, completed=done)
        loss, speed, shown = 0.0, 0.0, time.monotonic()

        def watch(progress: "Progress") -> None:
            nonlocal loss, speed, shown
            fresh = progress.tokens / max(progress.seconds, 1e-9)
            loss = progress.loss if not speed else 0.9 * loss + 0.1 * progress.loss
            speed = fresh if not speed else 0.9 * speed + 0.1 * fresh
            bar.update(task, advance=1)
            if time.monotonic() - shown > 0.5 or progress.update == done + 1:
                shown = time.monotonic()
                bar.update(task, description=f"{title}: loss {loss:.3f}, {speed:.0f} tokens/s")

        yield watch
