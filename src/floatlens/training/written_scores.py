"""How well a twin answers when it writes its answer itself, step by step: what its model card says.

Decided here: greedy, one token a step, as long as the answer and its end; right if all values of the answer stand among the words. The questions are those of `scores`,
which ask for everything in one forward and are for watching a training.
"""

from collections.abc import Sequence
from random import Random

from floatlens.errors import Refusal
from floatlens.models.language_model import LanguageModel
from floatlens.tasks.world.people import World
from floatlens.tasks.world.questions import prompt_of
from floatlens.training.scores import SCORES


def written_scores(lm: LanguageModel, world: World, names: Sequence[str], count: int) -> dict[str, float]:
    """The named scores as shares of that many questions; those of recall are none of questions and are refused.

    Examples
    --------
    >>> from floatlens.models.loading import load
    >>> from floatlens.tasks.world.people import make_world
    >>> written_scores(load("twin-arm"), make_world(), ["closed"], count=4)
    {'closed': 1.0}
    """
    found = {}
    for name in names:
        make, rng = SCORES[name].make, Random(f"scores-{name}")
        if make is None:
            raise Refusal(f"The score {name!r} asks for no answer that could be written; choose one of the questions.")
        questions = [make(rng, world) for _ in range(count)]
        length = len(questions[0].answer) + 1
        written = lm.generate([prompt_of(question) for question in questions], gen_length=length, batch_size=25, progress=False)
        right = (set(question.accepted) <= set(one.text.split()) for question, one in zip(questions, written, strict=True))
        found[name] = sum(right) / count
    return found
