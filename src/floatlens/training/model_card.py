"""The model card of a twin: what it is, how it was made, what it scores, and what its initial weights contained.

Decided here: every score stands beside what ignoring the person would score and beside the number of questions; that there was one training run is said.
"""

from dataclasses import dataclass

from floatlens.training.initial_weights import Start
from floatlens.training.recipe import Recipe
from floatlens.training.recipe_files import recipe_as_toml
from floatlens.training.scores import SCORES
from floatlens.training.state import Entry

_WHAT = {
    "arm": ("causal: a token sees itself and what stands before it", "to predict the next token"),
    "mdm": ("none: every token sees every other", "to predict what stands behind the masks"),
    "causal-mdm": ("causal: a token sees itself and what stands before it", "to predict what stands behind the masks"),
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
    >>> from floatlens.training.recipe_files import bundled_recipe
    >>> log = ({"update": 1700, "stage": "all", "loss": 0.4, "cpu_seconds": 2000, "open6": 0.9},)
    >>> card = card_text(Facts("mdm", bundled_recipe(), "ab12", log, {"open6": 0.9}, {"open6": 0.95}, {"open6": 1 / 6}, 200, (1,), "2.13"))
    >>> "| open6 | the value stands in one of six passages | 95.0 % | 90.0 % | 16.7 % | 200 |" in card
    True
    """
    recipe, model = facts.recipe, facts.recipe.model
    mask, objective = _WHAT[facts.kind]
    threads = " and ".join(map(str, facts.threads))
    return f"""---
license: apache-2.0
language: en
tags: [floatlens, synthetic]
---

# twin-{facts.kind}

One of three twins: small Llamas of one shape ({model.layers} layers, {model.heads} heads, width {model.width}), one tokenizer (a word is a token), one stream of
data and one number of updates, which differ in the attention mask and the objective only. They know a made-up world of people and
nothing else, and are for studying where a model looks, not for use.

- **Attention mask**: {mask}.
- **Objective**: {objective}.
- **Load**: `floatlens.load("twin-{facts.kind}")` for the one that comes with floatlens, or the path of this folder; `AutoModelForCausalLM` of transformers reads the
  folder as well. Weights are stored in float16 and run in float32.
- **One training run**, seed {recipe.seed}: what sets this twin apart from another may be chance.
- **Licence**: Apache-2.0.

## Scores

Questions about people whose pair of first and last name never was in training (closed: people learned by heart); all values of the answer must be right. *Written*: the twin writes the answer itself, one token a step.
*One forward*: what was watched during training; {_how_asked(facts.kind)} The stored float16 weights, run in float32.

| score | question | written | one forward | ignoring the person | questions |
|---|---|---|---|---|---|
{_score_rows(facts)}

## Training

{recipe.updates:,} updates, {facts.log[-1]["cpu_seconds"] / 60:.0f} minutes of processor time, {threads} thread{"" if facts.threads == (1,) else "s"}, torch {facts.torch_version}. The same recipe on the same machine with as many threads gives the same weights, bit for bit.

Data hash (sha256 of the world and of the first sequences of every stage): `{facts.data_hash}`

Loss, the mean of the updates since the entry before in the log; losses of twins with different objectives, or of different stages, do not compare. All entries are in `training.csv`.

| update | stage | loss | scores on the way |
|---|---|---|---|
{_loss_rows(facts)}

## What the initial weights contain

Training does not begin from noise alone. All twins begin with the same numbers, which contain, softly:

- **heads that look back**: the heads of the first layer look {_offsets(model.heads)} back, whatever stands there;
- **like attends to like**: in later layers, even heads (counted from 0) compare a token with itself elsewhere, and odd heads find what followed the same words;
- what is attended to is copied, and what attention and MLPs add is about as large as the embeddings.

No sink is planted: nothing in the initial weights prefers the first token. Heads that look back and heads that compare are not findings about training.

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
    return (
        "the true words stand before each token of the answer."
        if kind == "arm"
        else "all tokens of the answer are masked at once. (twin-arm is given the true words before each token, so that long answers do not compare.)"
    )


def _score_rows(facts: Facts) -> str:
    return "\n".join(
        f"| {name} | {SCORES[name].says} | {_percent(facts.written.get(name))} | {_percent(share)} | {_percent(facts.shortcuts[name])} | {facts.questions} |"
        for name, share in facts.scores.items()
    )


def _percent(share: float | None) -> str:
    return "none" if share is None else f"{100 * share:.1f} %"


def _loss_rows(facts: Facts) -> str:
    """The entries at 1, 2, 4, ... times the first one's update, and the last."""
    first = facts.log[0]["update"]
    chosen = [entry for entry in facts.log if (entry["update"] // first).bit_count() == 1 and entry["update"] % first == 0]
    rows = chosen if chosen[-1] is facts.log[-1] else [*chosen, facts.log[-1]]
    return "\n".join(
        f"| {entry['update']:,} | {entry['stage']} | {entry['loss']:.3f} | "
        f"{', '.join(f'{name} {100 * entry[name]:.0f} %' for name in SCORES if name in entry) or 'none'} |"
        for entry in rows
    )
