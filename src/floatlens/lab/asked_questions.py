"""Questions with passages as a task to study: any task of `floatlens eval` that names gold passages.

**Evidence.** Where one gold passage answers a question, it is asked with noise (0, .4 and .8 of five passages) and with the passage first,
in the middle and last of five; where two are needed together (HotpotQA), with noise up to .6, which leaves room for both, and in three
layouts. Which of the two a task is follows from what most of its questions have; the others are left out, and how many is said.

**Answering.** Eight tokens, one per step, at temperature 0. Diffusion models run LLaDA's loop: left to right (`block_length=1`), or in
order of confidence with end tokens last (`eos_last=True`), which otherwise come first and cut answers short. Likelihoods of answers of
four tokens or more are taken from eight sets of masks.

**Tracing.** Three passages, the gold one at slot 1, 2, 3 in turn; two gold passages are joined into one, whose slot is drawn. The region
`gold` is that passage. The needle of retrieval heads is the answer as the gold passage words it, because an answer of a few words cannot
recall half of a passage; a question whose answer the passage does not have in these words has no needle, and does not count.

Refused: files whose questions name no gold passages, or too few distractors; an order that does not exist.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from floatlens.claims.design import CLOSED_BOOK, GOLD, Design, one_piece, two_pieces
from floatlens.decoding.prompts import Prompt
from floatlens.errors import Refusal
from floatlens.lab.asked_task import AskedTask, Asks, TracedPrompt
from floatlens.lab.units import ORDERS, Choice
from floatlens.models.doctor import Examination
from floatlens.models.language_model import LanguageModel
from floatlens.tasks.conditions import complete, condition_of
from floatlens.tasks.contexts import Layout, Position, arrange, holds_evidence
from floatlens.tasks.registry import WORLD_TASKS, Task, index_of_file, load_task
from floatlens.tasks.samples import Sample
from floatlens.tasks.wording import format_prompt
from floatlens.terminal import counted

ANSWER_TOKENS = 8
MASK_SETS = 8
SLOTS = 3
NOT_QUESTIONS = (*WORLD_TASKS, "gsm8k", "humaneval")


def read_questions(choice: Choice) -> AskedTask:
    """The task of a choice, with its first questions."""
    if choice.task in NOT_QUESTIONS:
        raise Refusal(
            f"The claims are asked of questions with passages, and {choice.task} has none to choose. Leave --task out for the world, or "
            "name a data set such as nq, triviaqa, squad or hotpotqa."
        )
    if choice.order not in ORDERS:
        raise Refusal(f"There is no order {choice.order!r}; diffusion models write in one of the orders {', '.join(ORDERS)}.")
    one, two = one_piece(choice.task), two_pieces(choice.task)
    wanted = [condition_of(context) for context in (*one.noise, *one.positions)]
    corpus = None if choice.corpus is None else index_of_file(choice.corpus)
    task = load_task(
        choice.task, choice.data, conditions=wanted, count=choice.most, corpus=corpus, infer_gold=choice.infer_gold, leave_out=True
    )
    design, samples, left_out = _designed(task, one, two)
    said = [task.passages_from] if task.passages_from else []
    if left_out := {**task.left_out, **left_out}:
        said.append(f"Left out {counted(len(left_out), 'question')}, such as: {next(iter(left_out.values()))}")
    return _task(replace(task, samples=tuple(samples)), design, choice, tuple(said))


def _designed(task: Task, one: Design, two: Design) -> tuple[Design, list[Sample], dict[str, str]]:
    """The design that fits most questions, the questions that it fits, and why the others are left out."""
    fitting = []
    for design in (one, two):
        contexts = [design.masked_context, *design.noise, *design.positions, *design.layouts]
        kept, left_out = complete(task.samples, contexts)
        fitting.append((len(kept), design, [sample for sample in kept if sample.gold], left_out))
    _, design, samples, left_out = max(fitting, key=lambda fit: fit[0])
    if not samples:
        reason = next(iter(fitting[0][3].values()), "No question names a gold passage.")
        raise Refusal(f"The questions of {task.name} cannot be asked with and without noise: {reason}")
    return design, samples, left_out


def _task(task: Task, design: Design, choice: Choice, said: tuple[str, ...]) -> AskedTask:
    def first(count: int, _seed: int) -> list[Sample]:
        return list(task.samples[:count])

    masked = Asks(first, "masked", (design.masked_context,), next(iter(design.masking.values())).counts)
    asks = {
        "masked answers": masked,
        "noise": Asks(first, "questions", (CLOSED_BOOK, *design.noise)),
        "position": Asks(first, "questions", (GOLD, *design.positions)),
        "layout": Asks(first, "questions", (GOLD, *design.layouts)),
    }
    writing = {"gen_length": ANSWER_TOKENS, "temperature": 0.0, "chat": choice.chat}
    return AskedTask(
        design=design,
        asks={name: asked for name, asked in asks.items() if name not in design.not_asked},
        without_heads=replace(masked, masked=()),
        traced=partial(_traced, task, design),
        how={"wording": task.wording, "scorer": task.scorer, "likelihood": True, "mask_sets": MASK_SETS, "batch_size": 4, **writing},
        tracing={"batch_size": 1, **writing},
        writing=partial(in_order, choice.order),
        silenced=_one_in_twenty,
        said=said,
    )


def in_order(order: str, lm: LanguageModel | Examination) -> dict[str, Any]:
    """The options with which a model writes in an order; an autoregressive model has no other than its own.

    Examples
    --------
    >>> from torch import nn
    >>> in_order("left-to-right", LanguageModel(nn.Linear(2, 2), sampler="dream"))
    {'sampler': 'llada', 'block_length': 1}
    """
    if lm.sampler == "autoregressive":
        return {}
    if lm.sampler not in ("llada", "dream"):
        raise Refusal(
            f"{lm.name} writes with {'its own loop' if lm.sampler is None else f'the sampler {lm.sampler}'}, and the claims are asked "
            "of models that LLaDA's loop can run. Choose another model."
        )
    return {"sampler": "llada", **ORDERS[order]}


def _one_in_twenty(heads: int, per_layer: int) -> tuple[int, int]:
    """How many heads are silenced, and how many in one layer at most, so that others are left as a control."""
    return max(3, heads // 20), max(1, per_layer // 2)


def _traced(task: Task, design: Design, count: int, _seed: int) -> list[TracedPrompt]:
    """The first questions, with regions for passages, for the gold one and for the answer in it."""
    traced = []
    for number, sample in enumerate(task.samples[:count]):
        context = Position(1 + number % SLOTS, SLOTS) if design.positions else Layout("one", SLOTS + 1)
        passages = arrange(sample, context)
        prompt = format_prompt(sample, passages, task.wording)
        slot = next(place for place, passage in enumerate(passages, start=1) if holds_evidence(sample, passage))
        span = prompt.regions[f"doc_{slot}"]
        regions = {**prompt.regions, "gold": span, **_needle(prompt.text, span, sample.answers)}
        traced.append(TracedPrompt(sample.id, Prompt(prompt.text, regions), slot))
    return traced


def _needle(text: str, span: tuple[int, int], answers: Sequence[str]) -> dict[str, tuple[int, int]]:
    """The answer as the gold passage words it, whatever its case: the first place of the first answer that is there.

    Examples
    --------
    >>> _needle("[1] Marta lives in Oslo. Where?", (0, 24), ["Bergen", "oslo"])
    {'needle': (19, 23)}
    """
    passage = text[slice(*span)].lower()
    for answer in answers:
        if answer.strip() and (place := passage.find(answer.strip().lower())) >= 0:
            return {"needle": (span[0] + place, span[0] + place + len(answer.strip()))}
    return {}
