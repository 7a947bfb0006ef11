"""How well a twin answers, on people whose pair of names was never in training.

One forward a question: everything masked (ARM: the true words before each token), all values of the answer must be right. Quick enough to watch a training; what a
model writes when it decodes step by step is for the evaluation. `SHORTCUTS` is what ignoring the person scores.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random

import torch
from torch import nn

from floatlens.tasks.world.people import World
from floatlens.tasks.world.questions import Question, closed_book, describing, open_book, two_hop
from floatlens.tasks.world.words import EOS
from floatlens.training.objectives import guesses
from floatlens.training.sequences import TOKEN_ID, Shape, make_batch, question_batch

MAKERS: dict[str, Callable[[Random, World], Question]] = {
    "open2": lambda rng, world: open_book(rng, world.test, 2),
    "open4": lambda rng, world: open_book(rng, world.test, 4),
    "open6": lambda rng, world: open_book(rng, world.test, 6),
    "closed": closed_book,
    "describe2": lambda rng, world: describing(rng, world.test, 2),
    "describe6": lambda rng, world: describing(rng, world.test, 6),
    "hop2": lambda rng, world: two_hop(rng, world.test, 2, "one"),
    "hop4": lambda rng, world: two_hop(rng, world.test, 4, "far"),
    "hop6": lambda rng, world: two_hop(rng, world.test, 6, "far"),
    "hop6one": lambda rng, world: two_hop(rng, world.test, 6, "one"),
    "hop6adj": lambda rng, world: two_hop(rng, world.test, 6, "adjacent"),
}
RECALL = {"recall2": 2, "recall4": 4}  # one sentence a passage, all asked for as cloze


@torch.no_grad()
def share_right(model: nn.Module, kind: str, questions: Sequence[Question], size: int = 32) -> float:
    """Share of the questions, all of one length, whose values are all right."""
    right = 0
    for first in range(0, len(questions), size):
        part = questions[first : first + size]
        batch = question_batch(part)
        accepted = torch.tensor([[TOKEN_ID[word] for word in question.accepted] for question in part])
        values = batch.answers & (batch.tokens[..., None] == accepted[:, None, :]).any(-1)
        right += int(((guesses(model, kind, batch) == batch.tokens) | ~values).all(-1).sum())
    return right / len(questions)


@torch.no_grad()
def recall_share(model: nn.Module, kind: str, world: World, passages: int, count: int = 96) -> float:
    """Share of the values right in the smallest form of binding, with test people."""
    shape = Shape("open", passages, attributes=1, questions=passages, cloze=True)
    batch = make_batch(Random("recall"), replace(world, training=world.test), shape, count)
    values = batch.answers & (batch.tokens != TOKEN_ID["."]) & (batch.tokens != TOKEN_ID[EOS])
    return float((guesses(model, kind, batch) == batch.tokens)[values].float().mean())


def scores(model: nn.Module, kind: str, world: World, names: Sequence[str], count: int = 96) -> dict[str, float]:
    """The named scores; the questions are the same at every call."""
    model.eval()
    found = {}
    for name in names:
        if name in RECALL:
            found[name] = recall_share(model, kind, world, RECALL[name], count)
        else:
            rng = Random(f"scores-{name}")
            found[name] = share_right(model, kind, [MAKERS[name](rng, world) for _ in range(count)])
    model.train()
    return found


def shortcuts(world: World, names: Sequence[str]) -> dict[str, float]:
    """What each of the named scores would be if the person were ignored.

    Examples
    --------
    >>> from floatlens.tasks.world.people import make_world
    >>> shortcuts(make_world(), ["recall4", "open2", "hop4"])
    {'recall4': 0.25, 'open2': 0.5, 'hop4': 0.25}
    """
    return {name: 1 / RECALL[name] if name in RECALL else MAKERS[name](Random(0), world).shortcut for name in names}
