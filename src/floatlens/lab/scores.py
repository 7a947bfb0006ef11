"""How well a twin answers, on people whose pair of names was never in training.

`scores` takes one forward per question and asks for all values of the answer at once, which is fast enough to watch a training. The
twins that fill masks see every token of the answer masked; twin-arm sees the true words before each token, which makes long answers
easier for it: scores of descriptions compare checkpoints of one twin, not twins. `written_scores`, which the model card reports, lets
the twin write the answer itself: greedily, one token per step, as long as the answer and its end; it is right if it contains all
values. Both ask the same questions. `shortcuts` says what ignoring the person would score.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from floatlens.errors import Refusal
from floatlens.lab.sequences import TOKEN_ID, Batch, Predictor, Shape, make_batch, question_batch
from floatlens.models.language_model import LanguageModel
from floatlens.tasks.world.people import World
from floatlens.tasks.world.questions import Question, closed_book, describing, open_book, prompt_of, two_hop
from floatlens.tasks.world.words import EOS, MASK

QUESTIONS = 96  # per score, while training


@dataclass(frozen=True)
class Score:
    """A score in words, and how its questions are drawn; for recall, the number of sentences in the prompt."""

    says: str
    make: Callable[[Random, World], Question] | None = None
    sentences: int = 0


SCORES = {
    "recall2": Score("two sentences, both asked for as sentences without their last word", sentences=2),
    "recall4": Score("four sentences, all asked for as sentences without their last word", sentences=4),
    "open2": Score("the value stands in one of two passages", lambda rng, world: open_book(rng, world.test, 2)),
    "open4": Score("the value stands in one of four passages", lambda rng, world: open_book(rng, world.test, 4)),
    "open6": Score("the value stands in one of six passages", lambda rng, world: open_book(rng, world.test, 6)),
    "closed": Score("people known by heart, no passages", closed_book),
    "describe2": Score("a description from one of two passages, all four values", lambda rng, world: describing(rng, world.test, 2)),
    "describe6": Score("a description from one of six passages, all four values", lambda rng, world: describing(rng, world.test, 6)),
    "hop2": Score("two hops, evidence in one of two passages", lambda rng, world: two_hop(rng, world.test, 2, "one")),
    "hop4": Score("two hops, evidence in two of four passages, far apart", lambda rng, world: two_hop(rng, world.test, 4, "far")),
    "hop6": Score("two hops, evidence in two of six passages, far apart", lambda rng, world: two_hop(rng, world.test, 6, "far")),
    "hop6one": Score("two hops, evidence in one of six passages", lambda rng, world: two_hop(rng, world.test, 6, "one")),
    "hop6adj": Score("two hops, evidence in two neighbours of six passages", lambda rng, world: two_hop(rng, world.test, 6, "adjacent")),
}


def guesses(model: Predictor, kind: str, batch: Batch) -> Tensor:
    """The token that the model predicts at each position: twin-arm given the true words before it, the others with all answers masked.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> def says_one(input_ids):
    ...     return SimpleNamespace(logits=torch.eye(4)[torch.ones_like(input_ids)])
    >>> batch = Batch(torch.tensor([[2, 3, 1]]), torch.tensor([[False, False, True]]))
    >>> guesses(says_one, "arm", batch).tolist(), guesses(says_one, "mdm", batch).tolist()
    ([[0, 1, 1]], [[1, 1, 1]])
    """
    if kind == "arm":
        return F.pad(model(input_ids=batch.tokens).logits.argmax(-1)[:, :-1], (1, 0))
    return model(input_ids=batch.tokens.masked_fill(batch.answers, TOKEN_ID[MASK])).logits.argmax(-1)


def scores(model: nn.Module, kind: str, world: World, names: Sequence[str], count: int = QUESTIONS) -> dict[str, float]:
    """The named scores, as shares. The questions are the same at every call; a larger `count` adds to those of a smaller one.

    Examples
    --------
    >>> from floatlens.tasks.world.people import make_world
    >>> from floatlens.lab.recipe import bundled_recipe
    >>> from floatlens.lab.updates import make_twin
    >>> list(scores(make_twin("mdm", bundled_recipe("smoke")), "mdm", make_world(), ["closed"], count=4))
    ['closed']
    """
    if unknown := [name for name in names if name not in SCORES]:
        raise Refusal(f"There is no score {unknown[0]!r}; the scores are {', '.join(SCORES)}.")
    was_training = model.training
    model.eval()
    shares = {}
    for name in names:
        make, rng = SCORES[name].make, Random(f"scores-{name}")
        if make is None:
            shares[name] = recall_share(model, kind, world, SCORES[name].sentences, count)
        else:
            shares[name] = share_right(model, kind, [make(rng, world) for _ in range(count)])
    model.train(was_training)
    return shares


@torch.no_grad()
def share_right(model: nn.Module, kind: str, questions: Sequence[Question], size: int = 32) -> float:
    """The share of questions whose values are all right; the questions have one length, and `size` of them run together."""
    right = 0
    for first in range(0, len(questions), size):
        part = questions[first : first + size]
        batch = question_batch(part)
        accepted = torch.tensor([[TOKEN_ID[word] for word in question.accepted] for question in part])
        values = batch.answers & (batch.tokens[..., None] == accepted[:, None, :]).any(-1)
        right += int(((guesses(model, kind, batch) == batch.tokens) | ~values).all(-1).sum())
    return right / len(questions)


@torch.no_grad()
def recall_share(model: nn.Module, kind: str, world: World, sentences: int, count: int = QUESTIONS) -> float:
    """The share of right values in the smallest form of binding, with test people."""
    shape = Shape("open", sentences, attributes=1, questions=sentences, cloze=True)
    batch = make_batch(Random("recall"), replace(world, training=world.test), shape, count)
    values = batch.answers & (batch.tokens != TOKEN_ID["."]) & (batch.tokens != TOKEN_ID[EOS])
    return float((guesses(model, kind, batch) == batch.tokens)[values].float().mean())


def shortcuts(world: World, names: Sequence[str]) -> dict[str, float]:
    """What each of the named scores would be if the person were ignored; closed book, the mean share of the most frequent value.

    Examples
    --------
    >>> from floatlens.tasks.world.people import make_world
    >>> shortcuts(make_world(), ["recall4", "open2", "hop4"])
    {'recall4': 0.25, 'open2': 0.5, 'hop4': 0.25}
    """
    shares = {}
    for name in names:
        make, rng = SCORES[name].make, Random(f"scores-{name}")
        shortcuts_of = [make(rng, world).shortcut for _ in range(QUESTIONS)] if make else [1 / SCORES[name].sentences]
        shares[name] = sum(shortcuts_of) / len(shortcuts_of)
    return shares


def written_scores(lm: LanguageModel, world: World, names: Sequence[str], count: int) -> dict[str, float]:
    """The named scores as shares of `count` questions that the twin answers in writing. Refused: scores of recall, which have no questions.

    Examples
    --------
    >>> from floatlens.models.loading import load
    >>> from floatlens.tasks.world.people import make_world
    >>> written_scores(load("twin-arm"), make_world(), ["closed"], count=4)
    {'closed': 1.0}
    """
    shares = {}
    for name in names:
        make, rng = SCORES[name].make, Random(f"scores-{name}")
        if make is None:
            raise Refusal(f"The score {name!r} asks for no answer that could be written. Choose one with questions, such as open2.")
        questions = [make(rng, world) for _ in range(count)]
        length = len(questions[0].answer) + 1
        written = lm.generate([prompt_of(question) for question in questions], gen_length=length, batch_size=25, progress=False)
        right = (set(question.accepted) <= set(answer.text.split()) for question, answer in zip(questions, written, strict=True))
        shares[name] = sum(right) / count
    return shares
