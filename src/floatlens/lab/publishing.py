"""A trained twin as a checkpoint that `fl.load` and transformers' Auto classes load, with its model card.

The card says what the twin is, how it was made, what it scores and what its initial weights contained. Every score has the score of
ignoring the person and the number of questions next to it, and the card says that there was one training run. Weights are stored in
float16 and run in float32 (the config says so); the scores on the card are those of the stored weights. The folder is there whole or
not at all (`floatlens.folders`).

Refused: a folder that exists already or cannot be written, and a log that is not that of the whole recipe.
"""

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import torch
from safetensors.torch import save
from transformers import LlamaForCausalLM

from floatlens.errors import Refusal
from floatlens.folders import refuse_place, unfinished_folder
from floatlens.lab.initial_weights import Start
from floatlens.lab.recipe import Recipe, recipe_as_toml
from floatlens.lab.runs import WRITTEN_BY, Entry, as_language_model, half_weights
from floatlens.lab.scores import SCORES, scores, shortcuts, written_scores
from floatlens.lab.updates import data_hash, make_twin
from floatlens.tasks.world.people import make_world
from floatlens.tasks.world.tokenizer import make_tokenizer

_WHAT = {
    "arm": ("causal: a token sees itself and what comes before it", "to predict the next token"),
    "mdm": ("none: every token sees every other", "to predict what is behind the masks"),
    "causal-mdm": ("causal: a token sees itself and what comes before it", "to predict what is behind the masks"),
}


@dataclass(frozen=True)
class Facts:
    """What a card says."""

    kind: str
    recipe: Recipe
    data_hash: str
    log: tuple[Entry, ...]
    scores: dict[str, float]
    written: dict[str, float]
    shortcuts: dict[str, float]
    questions: int
    threads: tuple[int, ...]
    torch_version: str


def card_text(facts: Facts) -> str:
    """The card, in Markdown.

    Examples
    --------
    >>> from floatlens.lab.recipe import bundled_recipe
    >>> log = ({"update": 1700, "stage": "all", "loss": 0.4, "cpu_seconds": 2000, "open6": 0.9},)
    >>> card = card_text(Facts("mdm", bundled_recipe(), "ab12", log, {"open6": 0.9}, {"open6": 0.95}, {"open6": 1 / 6}, 200, (1,), "2.13"))
    >>> "| open6 | the value stands in one of six passages | 95.0 % | 90.0 % | 16.7 % | 200 |" in card
    True
    """
    recipe, model = facts.recipe, facts.recipe.model
    mask, objective = _WHAT[facts.kind]
    threads = f"{' and '.join(map(str, facts.threads))} thread{'' if facts.threads == (1,) else 's'}"
    minutes = facts.log[-1]["cpu_seconds"] / 60
    return f"""---
license: apache-2.0
language: en
tags: [floatlens, synthetic]
---

# twin-{facts.kind}

One of three twins: small Llamas of one shape ({model.layers} layers, {model.heads} heads, width {model.width}), with one tokenizer
(a word is a token), one stream of data and one number of updates, which differ only in the attention mask and the objective. They
know a made-up world of people and nothing else, and are made for studying where a model looks, not for use.

- **Attention mask**: {mask}.
- **Objective**: {objective}.
- **Load**: `floatlens.load("twin-{facts.kind}")` for the one that comes with floatlens, or with the path of this folder;
  `AutoModelForCausalLM` of transformers reads the folder as well. Weights are stored in float16 and run in float32.
- **One training run**, seed {recipe.seed}: a difference between this twin and another may be chance.
- **Licence**: Apache-2.0.

## Scores

Questions about people whose pair of first and last name was never in training (closed: people learned by heart); all values of the
answer must be right. *Written*: the twin writes the answer itself, one token per step. *One forward*: what was watched during
training; {_how_asked(facts.kind)} The stored float16 weights, run in float32.

| score | question | written | one forward | ignoring the person | questions |
|---|---|---|---|---|---|
{_score_rows(facts)}

## Training

{recipe.updates:,} updates, {minutes:.0f} minutes of processor time, {threads}, torch {facts.torch_version}. The same recipe on the same
machine with as many threads gives the same weights, bit for bit.

Data hash (sha256 of the world and of the first sequences of every stage): `{facts.data_hash}`

Each loss is the mean over the updates since the previous entry of the log; losses of different objectives or different stages cannot
be compared. All entries are in `training.csv`.

| update | stage | loss | scores |
|---|---|---|---|
{_loss_rows(facts)}

## What the initial weights contain

Training does not begin from noise alone. All twins begin with the same numbers, which contain, weakly:

- **heads that look back**: the heads of the first layer look {_offsets(model.heads)} back, whatever is there;
- **like attends to like**: in later layers, even heads (counted from 0) compare a token with itself elsewhere, and odd heads find
  what followed the same words;
- what is attended to is copied, and what attention and MLPs add is about as large as the embeddings.

No sink is planted: nothing in the initial weights prefers the first token. Heads that look back and heads that compare are not
findings about training.

## Recipe

`floatlens train twins --recipe recipe.toml` trains this twin and the others again.

```toml
{recipe_as_toml(recipe).rstrip()}
```
"""


def _offsets(heads: int) -> str:
    every = Start().offsets[:heads]
    return f"{', '.join(map(str, every))} token{'' if every == (1,) else 's'}"


def _how_asked(kind: str) -> str:
    if kind == "arm":
        return "the true words precede each token of the answer."
    return (
        "all tokens of the answer are masked at once. (twin-arm is given the true words before each token, so scores of long answers "
        "cannot be compared with it.)"
    )


def _score_rows(facts: Facts) -> str:
    return "\n".join(
        f"| {name} | {SCORES[name].says} | {_percent(facts.written.get(name))} | {_percent(share)} | "
        f"{_percent(facts.shortcuts[name])} | {facts.questions} |"
        for name, share in facts.scores.items()
    )


def _percent(share: float | None) -> str:
    return "none" if share is None else f"{100 * share:.1f} %"


def _loss_rows(facts: Facts) -> str:
    """The entries at 1, 2, 4, ... times the update of the first one, and the last."""
    first = facts.log[0]["update"]
    chosen = [entry for entry in facts.log if (entry["update"] // first).bit_count() == 1 and entry["update"] % first == 0]
    rows = chosen if chosen[-1] is facts.log[-1] else [*chosen, facts.log[-1]]
    return "\n".join(
        f"| {entry['update']:,} | {entry['stage']} | {entry['loss']:.3f} | "
        f"{', '.join(f'{name} {100 * entry[name]:.0f} %' for name in SCORES if name in entry) or 'none'} |"
        for entry in rows
    )


CARD_QUESTIONS = 200


def write_twin(
    folder: str | PathLike[str],
    kind: str,
    recipe: Recipe,
    model: LlamaForCausalLM,
    log: Sequence[Entry],
    *,
    threads: Sequence[int],
    questions: int = CARD_QUESTIONS,
) -> dict[str, float]:
    """Write a trained twin: config, weights in float16, tokenizer, recipe.toml, training.csv and the model card, README.md.

    Parameters
    ----------
    folder
        What to write; it must not exist yet.
    kind, recipe
        What was trained.
    model
        The weights at the end of the recipe.
    log
        The entries of the whole training.
    threads
        The numbers of threads that torch trained with, each once.
    questions
        How many questions each score of the card is measured on.

    Returns
    -------
    dict
        The scores of the stored weights that the recipe's last stage checks.

    Examples
    --------
    >>> import tempfile
    >>> from dataclasses import replace
    >>> from floatlens.lab.recipe import bundled_recipe
    >>> recipe = bundled_recipe("smoke")
    >>> recipe = replace(recipe, stages=(replace(recipe.stages[0], updates=1),))
    >>> log = [{"update": 1, "stage": "all", "loss": 5.4, "cpu_seconds": 1}]
    >>> with tempfile.TemporaryDirectory() as place:
    ...     found = write_twin(Path(place, "twin-arm"), "arm", recipe, make_twin("arm", recipe), log, threads=[1], questions=4)
    ...     sorted(file.name for file in Path(place, "twin-arm").iterdir())[:4], list(found)
    (['README.md', 'config.json', 'manifest.json', 'model.safetensors'], ['recall2', 'closed'])
    """
    place = Path(folder)
    refuse_place(place)
    if not log or log[-1]["update"] != recipe.updates:
        reached = log[-1]["update"] if log else 0
        raise Refusal(f"The log ends at update {reached}, but the recipe has {recipe.updates}. Train the twin to the end first.")
    stored, world, checks = as_stored(kind, recipe, model), make_world(), recipe.stages[-1].checks
    one_forward = scores(stored, kind, world, checks, questions)
    answered = [name for name in checks if SCORES[name].make is not None]
    written = written_scores(as_language_model(kind, stored), world, answered, questions)
    ignoring = shortcuts(world, checks)
    facts = Facts(
        kind,
        recipe,
        data_hash(recipe),
        tuple(log),
        one_forward,
        written,
        ignoring,
        questions,
        tuple(threads),
        torch.__version__,
    )
    with unfinished_folder(place, WRITTEN_BY) as unfinished:
        files = unfinished.folder
        stored.config.architectures = [type(stored).__name__]
        config = {**stored.config.to_dict(), "dtype": "float32"}
        (files / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
        (files / "model.safetensors").write_bytes(save(half_weights(stored), metadata={"format": "pt"}))
        make_tokenizer().save_pretrained(files)
        (files / "recipe.toml").write_text(recipe_as_toml(recipe))
        (files / "training.csv").write_text(_as_csv(log))
        (files / "README.md").write_text(card_text(facts))
    return one_forward


def as_stored(kind: str, recipe: Recipe, model: LlamaForCausalLM) -> LlamaForCausalLM:
    """A copy of a twin with its weights rounded to float16, as they are stored, and held in float32, as they are run."""
    copy = make_twin(kind, recipe)
    rounded = half_weights(model)
    for name, weights in copy.named_parameters():
        weights.data.copy_(rounded[name])
    return copy.eval()


def _as_csv(log: Sequence[Entry]) -> str:
    """All entries of a log, one per row; what was not measured is empty."""
    columns = list(dict.fromkeys(name for entry in log for name in entry))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(log)
    return text.getvalue()
