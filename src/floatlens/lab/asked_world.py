"""The made-up world as a task to study: what the twins are asked by default.

**Tracing.** The texts are descriptions of test people, each from three passages of which one is gold, at another slot from prompt to
prompt; the region `gold` is that passage, and the needle of retrieval heads.

**Asking.** Short answers are written in one denoising step, because a value, a full stop and an end token do not depend on each
other; a two-hop answer says whom before it says what, and gets a step per token. The log-likelihood is that of the value alone, one
token, which is exact for every twin.

**Masking.** The keys that are masked are those of the step before, so the first step of a text is never touched, and a short answer
is finished by then: under masking, short answers are judged by their likelihood, and what a twin *writes* is judged on descriptions.
Their accuracy is the share of the four values that they contain.
"""

from dataclasses import replace
from typing import Any

from floatlens.claims.design import CLOSED_BOOK, WORLD
from floatlens.decoding.prompts import Prompt
from floatlens.lab.asked_task import AskedTask, Asks, TracedPrompt
from floatlens.models.doctor import Examination
from floatlens.models.language_model import LanguageModel
from floatlens.tasks.contexts import Position, arrange
from floatlens.tasks.samples import Sample
from floatlens.tasks.scoring import Score, contains, score_text
from floatlens.tasks.wording import WORLD_WORDING, format_prompt
from floatlens.tasks.world import description_samples, open_book_samples, shortcut, two_hop_samples, values_of

DESCRIPTION_TOKENS = 32
"""Length of a description with its end token, which is what the twins were trained to fill."""
ANSWER_TOKENS = 3
"""A value, a full stop and the end token."""
TWO_HOP_TOKENS = 7
"""A sentence such as "Felix Ellis lives in Cairo." and the end token."""
MASKED_STEPS = 8
"""Denoising steps of a description under masking; all but the first are masked."""
TOP_HEADS, MOST_OF_A_LAYER = 3, 2
"""How many retrieval heads are silenced, and how many of them in one layer at most: others must be left as a control."""

WORDING = replace(WORLD_WORDING, answer="{answer}")


def described_people(count: int, seed: int) -> list[TracedPrompt]:
    """The prompts that are traced, with the gold passage at slot 1, 2, ... in turn and marked as the region `gold`.

    Examples
    --------
    >>> traced, *_ = described_people(1, seed=0)
    >>> sorted(traced.prompt.regions)[:3], traced.slot
    (['doc_1', 'doc_2', 'doc_3'], 1)
    """
    described = []
    for number, sample in enumerate(description_samples(count, passages=WORLD.slots, seed=seed)):
        slot = 1 + number % WORLD.slots
        prompt = format_prompt(sample, arrange(sample, Position(slot, WORLD.slots)), WORLD_WORDING)
        marked = Prompt(prompt.text, {**prompt.regions, "gold": prompt.regions[f"doc_{slot}"]})
        described.append(TracedPrompt(sample.id, marked, slot))
    return described


def score_description(text: str, sample: Sample) -> Score:
    """The scores of a description; its accuracy is the share of the four values that it contains.

    Examples
    --------
    >>> sample = description_samples(1)[0]
    >>> score_description("Julia Olsen is a doctor, keeps a falcon", sample).accuracy
    0.5
    """
    whole, wanted = score_text(text, sample), values_of(sample)
    return replace(whole, accuracy=sum(contains(text, value) for value in wanted) / len(wanted))


def _made(make: Any, **fixed: Any) -> Any:
    """Samples from a number and a seed, made by a function of the world."""
    return lambda count, seed: make(count, seed=seed, **fixed)


def _as_trained(_lm: LanguageModel | Examination) -> dict[str, Any]:
    return {}


def _few_heads(_heads: int, _per_layer: int) -> tuple[int, int]:
    return TOP_HEADS, MOST_OF_A_LAYER


_SHORT = {"gen_length": ANSWER_TOKENS, "steps": 1, "likelihood": True}
_DESCRIBED = {"scorer": score_description, "gen_length": DESCRIPTION_TOKENS, "steps": MASKED_STEPS}
_three_passages = _made(open_book_samples, passages=WORLD.slots)

WORLD_TASK = AskedTask(
    design=WORLD,
    asks={
        "masked descriptions": Asks(
            _made(description_samples, passages=WORLD.slots),
            "described",
            (WORLD.masked_context,),
            WORLD.masking["masked descriptions"].counts,
            _DESCRIBED,
        ),
        "masked answers": Asks(_three_passages, "masked", (WORLD.masked_context,), WORLD.masking["masked answers"].counts, _SHORT),
        # no fillers: so many passages are long enough (382 tokens; the longest sequence of the training has 331)
        "noise": Asks(_made(open_book_samples, passages=15, fillers=0), "questions", (CLOSED_BOOK, *WORLD.noise), how=_SHORT),
        "layout": Asks(_made(two_hop_samples, passages=4), "two_hop", WORLD.layouts, how={"gen_length": TWO_HOP_TOKENS}),
        "position": Asks(_made(open_book_samples, passages=10, fillers=0), "questions", WORLD.positions, how=_SHORT),
    },
    without_heads=Asks(_three_passages, "masked", (WORLD.masked_context,), how=_SHORT),
    traced=described_people,
    how={"wording": WORDING, "shortcut": shortcut, "batch_size": 32},
    tracing={"gen_length": DESCRIPTION_TOKENS, "batch_size": 8},
    writing=_as_trained,
    silenced=_few_heads,
    in_memory=True,
)
"""What the twins are asked."""
