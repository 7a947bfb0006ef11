"""Tasks by name: where their questions come from, how they are put, and how answers are scored.

`world`, `world-closed`, `world-two-hop` and `world-description` need no file; the world has as many distractors and restatements of the gold passage as the contexts call
for. Every format of `floatlens.tasks.readers` is a task of that name, read from a file (or a `hf:` name). Lost-in-the-middle questions that come
with their gold passage alone get distractors from the gold passages of the others, as in the published sets.

Refused: a task that does not exist, with the list; a task without its file; fewer samples in a file than were asked for is no mistake, none at all is.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from floatlens.errors import Refusal
from floatlens.tasks.conditions import Condition
from floatlens.tasks.contexts import Conflict, Context, Layout, Noise, Position, Retrieved
from floatlens.tasks.evaluation import Shortcut
from floatlens.tasks.readers import KINDS, read_samples
from floatlens.tasks.retrieval import lost_in_the_middle
from floatlens.tasks.samples import Sample
from floatlens.tasks.scoring import Score, Scorer, contains, score_number, score_text
from floatlens.tasks.wording import NUMBER_WORDING, QA_WORDING, WORLD_WORDING, Wording
from floatlens.tasks.world import closed_book_samples, description_samples, open_book_samples, shortcut, two_hop_samples, values_of

WORLD_TASKS = {"world": 3, "world-closed": 3, "world-two-hop": 7, "world-description": 28}
"""Tasks of the synthetic world, and how many tokens their answers have with full stop and end."""

TASKS = (*WORLD_TASKS, *KINDS)
"""All tasks that `load_task` knows."""


@dataclass(frozen=True)
class Task:
    """Questions, how they are put to a model, how many tokens an answer may have, and how it is scored."""

    name: str
    samples: tuple[Sample, ...]
    wording: Wording = QA_WORDING
    scorer: Scorer = score_text
    gen_length: int = 32
    shortcut: Shortcut | None = None


def load_task(
    name: str, data: str | os.PathLike[str] | None = None, *, conditions: Sequence[Condition] = (), count: int = 100, seed: int = 0
) -> Task:
    """A task with its first samples.

    Parameters
    ----------
    name
        One of `TASKS`.
    data
        The file to read it from; the world needs none.
    conditions
        Under what the samples will be asked: they get the passages that these call for, where passages are made.
    count
        How many samples at most.
    seed
        Another seed gives other questions of the world.

    Examples
    --------
    >>> from floatlens.tasks.conditions import condition_of
    >>> task = load_task("world", conditions=[condition_of("noise:0.2"), condition_of("position:1/10")], count=2)
    >>> [len(task.samples[0].evidence), len(task.samples[0].distractors), task.gen_length]
    [4, 9, 3]
    """
    if name not in TASKS:
        raise Refusal(f"There is no task {name!r}. There are: {', '.join(TASKS)}.")
    if count < 1:
        raise Refusal(f"{count} samples were asked for; at least one is needed.")
    contexts = [condition.context for condition in conditions]
    if name in WORLD_TASKS:
        if data is not None:
            raise Refusal(f"The task {name} is made, not read, so it takes no file.")
        return _world(name, contexts, count, seed)
    if data is None:
        raise Refusal(f"The task {name} is read from a file, and none is given.")
    wanted = _distractors_for(contexts)
    samples = read_samples(data, name)
    if name == "lost-in-the-middle" and wanted:
        everyone = list(samples)  # the distractors of one are the gold passages of the others
        lacking = any(len(sample.distractors) < wanted for sample in everyone)
        samples = iter(lost_in_the_middle(everyone, wanted + 1) if lacking else everyone)
    chosen = tuple(islice(samples, count))
    if not chosen:
        raise Refusal(f"{data} holds no sample.")
    return Task(name, chosen, NUMBER_WORDING, score_number, 256) if name == "gsm8k" else Task(name, chosen)


def _world(name: str, contexts: Sequence[Context], count: int, seed: int) -> Task:
    passages = max(6, 1 + _distractors_for(contexts))
    if name == "world":
        restatements = max([0, *(context.passages - context.distractors - 1 for context in contexts if isinstance(context, Noise))])
        samples = open_book_samples(count, passages=passages, restatements=restatements, seed=seed)
    elif name == "world-closed":
        samples = closed_book_samples(count, seed=seed)
    elif name == "world-two-hop":
        samples = two_hop_samples(count, passages=passages + 1, seed=seed)
    else:
        samples = description_samples(count, passages=passages, seed=seed)
    scorer = score_values if name == "world-description" else score_text
    return Task(name, tuple(samples), WORLD_WORDING, scorer, WORLD_TASKS[name], shortcut)


def score_values(text: str, sample: Sample) -> Score:
    """A description's scores: accurate is one that holds all its values.

    Examples
    --------
    >>> sample = description_samples(1)[0]
    >>> score_values(sample.answers[0], sample).accuracy, score_values("Julia is a doctor.", sample).accuracy
    (1.0, 0.0)
    """
    scored = score_text(text, sample)
    accuracy = float(all(contains(scored.prediction, value) for value in values_of(sample)))
    return Score(scored.prediction, accuracy, scored.exact_match, scored.f1)


def _distractors_for(contexts: Sequence[Context]) -> int:
    """How many distractors the contexts call for at most."""
    wanted = [0]
    for context in contexts:
        match context:
            case Noise():
                wanted.append(context.distractors)
            case Position(_, passages) | Retrieved(passages):
                wanted.append(passages - 1)
            case Layout(_, passages) | Conflict(passages):
                wanted.append(passages - 2)
    return max(wanted)
