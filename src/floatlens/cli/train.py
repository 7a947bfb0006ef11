"""`floatlens train`: train the twins by a recipe, one after the other; an interrupted run resumes where it stopped."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.table import Table

from floatlens.errors import Refusal
from floatlens.terminal import make_console, say

if TYPE_CHECKING:
    from floatlens.lab.recipe import Recipe

TRAINABLE = ("twins",)
TAKES = {
    "twins": "about 30 minutes of one core per twin, one after the other",
    "smoke": "about a minute for all three; it shows that training works, the twins learn little",
}


def train(
    what: str = typer.Argument(help="What to train: twins.", metavar="WHAT"),
    smoke: bool = typer.Option(False, help="Use a recipe that takes about a minute, to see that everything works."),
    only: list[str] = typer.Option([], help="Train only this twin: arm, mdm or causal-mdm; may be given several times. By default all."),
    into: Path = typer.Option(None, help="The folder to write; by default twins, or twins-smoke with --smoke."),
    recipe: Path = typer.Option(None, help="A recipe, as a TOML file; by default that of the bundled twins."),
) -> None:
    """Train the twins: small models that differ only in attention mask and objective.

    If it is interrupted, run the same command again to resume.

    Examples:

      floatlens train twins --smoke

      floatlens train twins --only mdm --into my-twins --recipe my-recipe.toml
    """
    if what not in TRAINABLE:
        raise Refusal(f"There is no training of {what!r}. What can be trained: {', '.join(TRAINABLE)}.")
    if smoke and recipe is not None:
        raise Refusal("--smoke has a recipe of its own. Leave out --smoke or --recipe.")
    import torch

    from floatlens.folders import refuse_folder_to_fill
    from floatlens.lab.recipe import bundled_recipe, read_recipe
    from floatlens.lab.runs import WRITTEN_BY
    from floatlens.lab.scores import QUESTIONS
    from floatlens.models.families.twin import KINDS

    if unknown := [kind for kind in only if kind not in KINDS]:
        raise Refusal(f"There is no twin {unknown[0]!r} to train. --only takes {', '.join(KINDS)}.")
    named = "smoke" if smoke else "twins"
    chosen = bundled_recipe(named) if recipe is None else read_recipe(recipe)
    folder = (into or Path("twins-smoke" if smoke else "twins")).expanduser()
    refuse_folder_to_fill(folder, WRITTEN_BY)
    kinds = [kind for kind in KINDS if not only or kind in only]
    console = make_console()
    takes = TAKES[named] if recipe is None else "how long depends on the recipe"
    say(console, f"Training {', '.join(f'twin-{kind}' for kind in kinds)} into {folder}: {chosen.updates:,} updates each, {takes}.")
    say(console, f"{_threads(torch.get_num_threads())}; only with the same number are the weights the same again.")
    summary = Table(title="Trained", title_justify="left")
    for heading in ("twin", "updates", "first loss", "last loss", f"right of {QUESTIONS} questions (ignoring the person)"):
        summary.add_column(heading, overflow="fold")
    for kind in kinds:
        summary.add_row(*_trained(console, kind, folder, chosen))
    console.print(summary)
    last = folder / f"twin-{kinds[-1]}"
    say(console, f'Next: lm = fl.load("{last}") in Python, floatlens doctor {last}, and {last / "README.md"}, its model card.')


def _trained(console: Console, kind: str, folder: Path, recipe: "Recipe") -> list[str]:
    """Train a twin and write it, unless that was done before; returns its row of the summary."""
    from floatlens.folders import clear_up_dead
    from floatlens.lab.publishing import write_twin
    from floatlens.lab.runs import train_twin, updates_done
    from floatlens.lab.scores import shortcuts
    from floatlens.tasks.world.people import make_world

    run, twin = folder / "runs" / f"twin-{kind}", folder / f"twin-{kind}"
    ignoring = shortcuts(make_world(), sorted({name for stage in recipe.stages for name in stage.checks}))
    clear_up_dead(twin)
    done = updates_done(run)
    if twin.exists() and done < recipe.updates:
        raise Refusal(f"{twin} exists already, but {run} does not hold its training. Choose another folder (--into).")
    if done:
        rest = "is trained already" if done == recipe.updates else f"resumes from update {done:,} of {recipe.updates:,}"
        say(console, f"twin-{kind} {rest}.")
    finished = train_twin(kind, run, recipe, report=lambda entry: say(console, _line(kind, entry, recipe.updates, ignoring)))
    log = finished.standing.log
    if not twin.exists():
        write_twin(twin, kind, recipe, finished.model, log, threads=finished.standing.threads)
    scores = _scores(log[-1], ignoring) or ["none"]
    return [f"twin-{kind}", f"{recipe.updates:,}", f"{log[0]['loss']:.3f}", f"{log[-1]['loss']:.3f}", "\n".join(scores)]


def _line(kind: str, entry: dict[str, Any], updates: int, ignoring: dict[str, float]) -> str:
    numbers = [f"loss {entry['loss']:.3f}", *_scores(entry, ignoring)]
    return f"twin-{kind} {entry['update']:,} of {updates:,}, stage {entry['stage']!r}: {', '.join(numbers)}"


def _scores(entry: dict[str, Any], ignoring: dict[str, float]) -> list[str]:
    """Each score of an entry of the log, with what ignoring the person would score."""
    return [f"{name} {100 * entry[name]:.0f} % ({100 * share:.0f} %)" for name, share in ignoring.items() if name in entry]


def _threads(count: int) -> str:
    return f"torch runs {count} thread{'' if count == 1 else 's'} (OMP_NUM_THREADS sets how many; the bundled twins were trained with 1)"
