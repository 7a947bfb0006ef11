"""What an update sees: sequences of tokens, the positions that are predicted in them, and how much each counts.

Decided here: all of it depends on the recipe's seed and the number of the update alone, and neither the objective nor the mask is known
here: models of one recipe see the same sequences in the same order with the same targets and weights. A question is put in the wording of
`floatlens eval`, through the chat template or without it, with its gold passage at a random place among distractors; its answer is padded
with end tokens to the room it has. A text is predicted at all its positions alike. Position 0 is never a target, because row p - 1
predicts position p.

Refused: data of which no question fits into the longest sequence, and sequences that hold the mask token by themselves.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from floatlens.errors import Refusal
from floatlens.lab.adaptation.data import Data, Questions
from floatlens.lab.adaptation.recipe import Recipe
from floatlens.models.language_model import LanguageModel
from floatlens.tasks.likelihood import continuation
from floatlens.tasks.retrieval import distractors
from floatlens.tasks.samples import Passage, Sample
from floatlens.tasks.wording import QA_WORDING, format_prompt

SHORTEST_TEXT = 16  # tokens
MOST_ATTEMPTS = 200
HELD_OUT_QUESTIONS = 24
HELD_OUT_ROOM = 8
HELD_OUT_TEXT = 128  # tokens


@dataclass(frozen=True)
class TrainingSequence:
    """Tokens, the positions to predict (ascending, from 1) and the weight of each in the loss; `kind` is "question" or "text"."""

    tokens: tuple[int, ...]
    targets: tuple[int, ...]
    weights: tuple[float, ...]
    kind: str
    file: str = ""


@dataclass(frozen=True)
class _Asked:
    """A question in tokens: where the answer begins, and which positions belong to passages."""

    tokens: tuple[int, ...]
    answer_start: int
    answer_length: int
    passages: tuple[int, ...]


def draw_update(data: Data, recipe: Recipe, lm: LanguageModel, update: int) -> list[TrainingSequence]:
    """The sequences of an update, with weights that add up to 1; updates count from 1."""
    rng = Random(f"{recipe.seed}-{update}")
    drawn: list[TrainingSequence] = []
    asked = 0
    budget = (1 - recipe.text_share) * recipe.tokens_per_update
    while asked < budget and recipe.text_share < 1:
        sequence = _draw_question(data, recipe, lm, rng)
        if drawn and asked + len(sequence.tokens) / 2 > budget:
            break
        drawn.append(sequence)
        asked += len(sequence.tokens)
    wanted = asked * recipe.text_share / (1 - recipe.text_share) if asked else recipe.tokens_per_update
    while wanted > 0 and recipe.text_share > 0:
        sequence = _draw_text(data, recipe, lm, rng, max(SHORTEST_TEXT, math.ceil(wanted)))
        drawn.append(sequence)
        wanted -= len(sequence.tokens)
    _refuse_mask_token(drawn, recipe, lm)
    return _normalised(drawn, recipe.targets.text_weight)


def held_out_sequences(data: Data, recipe: Recipe, lm: LanguageModel) -> list[TrainingSequence]:
    """What the held-out loss is taken of, always the same: questions with the gold passage and everything of the answer to predict, and
    texts with half of it."""
    rng, mask_token_id = Random("held-out loss"), lm.tokenizer.get_vocab()[recipe.mask_token]
    drawn: list[TrainingSequence] = []
    for number, sample in enumerate(rng.sample(data.held_out, len(data.held_out))):
        asked = _ask(sample, sample.evidence, (HELD_OUT_ROOM,), lm, rng, chat=None if number % 2 else False)
        if asked is None or len(asked.tokens) > recipe.longest or mask_token_id in asked.tokens:
            continue
        targets = tuple(range(asked.answer_start, asked.answer_start + asked.answer_length + 1))
        drawn.append(TrainingSequence(asked.tokens, targets, (1.0,) * len(targets), "question"))
        if len(drawn) == HELD_OUT_QUESTIONS:
            break
    for document in data.held_out_documents:
        tokens = tuple(lm.tokenizer(document, verbose=False)["input_ids"])[: min(HELD_OUT_TEXT, recipe.longest)]
        targets = tuple(sorted(rng.sample(range(1, len(tokens)), len(tokens) // 2)))
        drawn.append(TrainingSequence(tokens, targets, (1.0,) * len(targets), "text"))
    return drawn


def _refuse_mask_token(drawn: Sequence[TrainingSequence], recipe: Recipe, lm: LanguageModel) -> None:
    """Refuse a mask token that the chat template writes, or that texts hold in a way that nobody has foreseen."""
    mask_token_id = lm.tokenizer.get_vocab()[recipe.mask_token]
    for sequence in drawn:
        if mask_token_id in sequence.tokens:
            raise Refusal(
                f"A {sequence.kind} of {sequence.file}, as it is trained on, holds {recipe.mask_token!r} (mask_token in the recipe). "
                "Name a token that neither a text nor the chat template contains."
            )


def _draw_question(data: Data, recipe: Recipe, lm: LanguageModel, rng: Random) -> TrainingSequence:
    settings, weights = recipe.questions, recipe.targets
    chat = bool(getattr(lm.tokenizer, "chat_template", None))
    for _ in range(MOST_ATTEMPTS):
        part: Questions = rng.choices(data.questions, [part.share for part in data.questions])[0]
        sample, count = rng.choice(part.samples), rng.choice(settings.passages)
        through_template = None if rng.random() < settings.chat and chat else False
        others = _found(part, sample, count - len(sample.evidence))
        asked = None
        for kept in range(len(others), -1, -1):  # without the last distractors, where it is too long
            passages = _shuffled(sample.evidence, others[:kept], rng)
            asked = _ask(sample, passages, settings.rooms, lm, rng, chat=through_template)
            if asked is None or len(asked.tokens) <= recipe.longest:
                break
        if asked is None or len(asked.tokens) > recipe.longest:
            continue
        if settings.targets == "everything":
            targets = _share_of(range(1, len(asked.tokens)), recipe, rng)
            return TrainingSequence(asked.tokens, targets, (1.0,) * len(targets), "question", part.source.file)
        targets = _share_of(range(asked.answer_start, len(asked.tokens)), recipe, rng)
        first_end = asked.answer_start + asked.answer_length
        weighted = {position: 1.0 if position <= first_end else weights.end_weight for position in targets}
        if rng.random() < weights.passages and asked.passages:
            hidden = math.ceil(rng.uniform(0, weights.most_of_passage) * len(asked.passages))
            weighted |= dict.fromkeys(rng.sample(asked.passages, hidden), weights.passage_weight)
        positions = tuple(sorted(weighted))
        return TrainingSequence(asked.tokens, positions, tuple(weighted[position] for position in positions), "question", part.source.file)
    raise Refusal(
        f"In {MOST_ATTEMPTS} draws no question fits into {recipe.longest} tokens (longest) with its gold passage and answer. "
        "Raise longest, or train on shorter passages."
    )


def _ask(
    sample: Sample, passages: Sequence[Passage], rooms: Sequence[int], lm: LanguageModel, rng: Random, *, chat: bool | None
) -> _Asked | None:
    """A question in tokens, in the wording of `floatlens eval`; None if its answer fits no room."""
    prompt = lm.encode(format_prompt(sample, passages, QA_WORDING), chat=chat)
    written = continuation(lm, prompt, QA_WORDING.answer.format(answer=sample.answers[0]), name=sample.id)
    fitting = [room for room in rooms if room > len(written.answer)]
    if not fitting:
        return None
    ends = rng.choice(fitting) - len(written.answer)
    tokens = (*written.prompt, *written.answer, *(lm.end_tokens[0],) * ends)
    inside = [marks for name, marks in prompt.regions.items() if name.startswith("doc_")]
    positions = tuple(position for position in range(1, len(prompt.tokens)) if any(marks[position] for marks in inside))
    return _Asked(tokens, len(written.prompt), len(written.answer), positions)


def _found(part: Questions, sample: Sample, count: int) -> tuple[Passage, ...]:
    """Up to so many distractors, best first."""
    while count > 0:
        try:
            return distractors(part.index, sample, count)
        except Refusal:  # too few share a word with the question
            count -= 1
    return ()


def _shuffled(evidence: Sequence[Passage], others: Sequence[Passage], rng: Random) -> list[Passage]:
    """Distractors best first, with each gold passage at a random place among them."""
    arranged = list(others)
    for passage in evidence:
        arranged.insert(rng.randint(0, len(arranged)), passage)
    return arranged


def _draw_text(data: Data, recipe: Recipe, lm: LanguageModel, rng: Random, most: int) -> TrainingSequence:
    part = rng.choices(data.texts, [part.share for part in data.texts])[0]
    tokens: list[Any] = []
    for _ in range(MOST_ATTEMPTS):
        tokens = list(lm.tokenizer(rng.choice(part.documents), verbose=False)["input_ids"])
        if len(tokens) >= SHORTEST_TEXT:
            break
    length = min(most, len(tokens), recipe.longest)
    start = 0 if rng.random() < 0.5 else rng.randint(0, len(tokens) - length)
    piece = tuple(tokens[start : start + length])
    targets = _share_of(range(1, length), recipe, rng)
    return TrainingSequence(piece, targets, (1.0,) * len(targets), "text", part.source.file)


def _share_of(positions: range, recipe: Recipe, rng: Random) -> tuple[int, ...]:
    """A random part of the positions, as large as the recipe's shares allow, at least one."""
    share = rng.uniform(recipe.targets.least, recipe.targets.most)
    return tuple(sorted(rng.sample(positions, max(1, math.ceil(share * len(positions))))))


def _normalised(drawn: Sequence[TrainingSequence], text_weight: float) -> list[TrainingSequence]:
    """The sequences with weights of which those of texts add up to `text_weight` and those of questions to the rest."""
    totals = {kind: sum(sum(sequence.weights) for sequence in drawn if sequence.kind == kind) for kind in ("question", "text")}
    shares = {"question": 1 - text_weight, "text": text_weight}
    present = sum(shares[kind] for kind, total in totals.items() if total)
    factors = {kind: shares[kind] / present / total for kind, total in totals.items() if total}
    return [
        TrainingSequence(
            sequence.tokens,
            sequence.targets,
            tuple(weight * factors[sequence.kind] for weight in sequence.weights),
            sequence.kind,
            sequence.file,
        )
        for sequence in drawn
    ]
