"""Ask a twin questions about the world: in many contexts, under masking with both controls, and without its retrieval heads. Each function gives rows of the table `answers`.

Decided here:

- Short answers are written in one denoising step: a value, a full stop and an end do not depend on each other. A two-hop answer says whom before it says what, and gets a step a token.
- The log-likelihood is that of the value alone, one token, which is exact for every twin.
- A key that is masked is one of the step before, so the first step of a text is never touched, and a short answer is over by then: under masking, short answers are judged by their likelihood, and what a twin
  *writes* is judged on descriptions. Their accuracy is the share of the four values that are in them.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from floatlens.claims.evidence import (
    ANSWER_TOKENS,
    ANSWERED_WITHOUT,
    CLOSED_BOOK,
    DESCRIBED_FROM,
    DESCRIBED_WITHOUT,
    DESCRIPTION_TOKENS,
    GOLD,
    LAYOUTS,
    MASKED_CONTEXT,
    MASKED_STEPS,
    MOST_OF_A_LAYER,
    NOISE,
    POSITIONS,
    TOP_HEADS,
    TWO_HOP_TOKENS,
)
from floatlens.interventions.specification import Intervention, MaskAnchors, MaskHeads
from floatlens.models.language_model import LanguageModel
from floatlens.study.one_model import evaluate_model
from floatlens.tasks.samples import Sample
from floatlens.tasks.scoring import Score, contains, score_text
from floatlens.tasks.wording import WORLD_WORDING
from floatlens.tasks.world import closed_book_samples, description_samples, open_book_samples, shortcut, two_hop_samples, values_of

WORDING = replace(WORLD_WORDING, answer="{answer}")


def asked_with_noise(lm: LanguageModel, count: int, seed: int) -> pl.DataFrame:
    """Without passages, and with a growing share of distractors among five; none is the bracket of gold only, told five times."""
    samples = open_book_samples(count, passages=6, restatements=4, seed=seed)
    return _short_answers(lm, samples, (CLOSED_BOOK, *NOISE), seed, brackets=False).with_columns(experiment=pl.lit("noise"))


def asked_by_position(lm: LanguageModel, count: int, seed: int) -> pl.DataFrame:
    """With the gold passage alone, and as first, third and last of six."""
    samples = open_book_samples(count, passages=6, seed=seed)
    return _short_answers(lm, samples, (GOLD, *POSITIONS), seed, brackets=False).with_columns(experiment=pl.lit("position"))


def asked_by_heart(lm: LanguageModel, count: int, seed: int) -> pl.DataFrame:
    """People known by heart, without passages."""
    return _short_answers(lm, closed_book_samples(count, seed=seed), (), seed).with_columns(experiment=pl.lit("known people"))


def asked_two_hops(lm: LanguageModel, count: int, seed: int) -> pl.DataFrame:
    """Two-hop questions, with the evidence in one passage, two adjacent ones, two far apart."""
    samples = two_hop_samples(count, passages=4, seed=seed)
    found = evaluate_model(lm, samples, LAYOUTS, brackets=False, gen_length=TWO_HOP_TOKENS, **_how(seed))
    return found.with_columns(experiment=pl.lit("layout"))


def asked_under_masking(lm: LanguageModel, count: int, seed: int) -> pl.DataFrame:
    """How likely answers are when 1, 5 and 10 of the strongest keys are masked, and under both controls."""
    samples = open_book_samples(count, passages=DESCRIBED_FROM, seed=seed)
    found = _short_answers(
        lm, samples, (MASKED_CONTEXT,), seed, brackets=False, interventions=[MaskAnchors(keys) for keys in ANSWERED_WITHOUT]
    )
    return found.with_columns(experiment=pl.lit("masked answers"))


def described_under_masking(lm: LanguageModel, count: int, seed: int) -> pl.DataFrame:
    """What is written when the strongest key of each step is masked at the next, and under both controls."""
    samples = description_samples(count, passages=DESCRIBED_FROM, seed=seed)
    found = evaluate_model(
        lm,
        samples,
        (MASKED_CONTEXT,),
        interventions=[MaskAnchors(keys) for keys in DESCRIBED_WITHOUT],
        brackets=False,
        scorer=score_description,
        gen_length=DESCRIPTION_TOKENS,
        steps=MASKED_STEPS,
        **_how(seed),
    )
    return found.with_columns(experiment=pl.lit("masked descriptions"))


def asked_without_heads(lm: LanguageModel, count: int, seed: int, heads: Sequence[tuple[int, int]]) -> pl.DataFrame:
    """How likely answers are without these heads, and without as many random others of the same layers."""
    samples = open_book_samples(count, passages=DESCRIBED_FROM, seed=seed)
    found = _short_answers(lm, samples, (MASKED_CONTEXT,), seed, brackets=False, interventions=(MaskHeads(tuple(heads)),))
    # which heads were silenced differs from twin to twin, and rows are found by what was done
    named = pl.when(pl.col("intervention") == "").then(pl.lit("")).otherwise(pl.lit("mask-heads")).alias("intervention")
    return found.with_columns(named, experiment=pl.lit("retrieval heads"))


def top_heads(scores: pl.DataFrame) -> list[tuple[int, int]]:
    """The heads with the largest mean retrieval score, at most two of a layer; none where no sample counts.

    Examples
    --------
    >>> scores = pl.DataFrame({"layer": [0, 0, 0, 1], "head": [0, 1, 2, 0], "score": [0.5, 0.4, 0.3, 0.1], "counts": [True] * 4})
    >>> top_heads(scores)
    [(0, 0), (0, 1), (1, 0)]
    """
    means = scores.filter(pl.col("counts")).group_by("layer", "head").agg(pl.col("score").mean())
    chosen: list[tuple[int, int]] = []
    for layer, head, _ in means.sort(["score", "layer", "head"], descending=[True, False, False]).rows():
        if len(chosen) < TOP_HEADS and sum(own == layer for own, _ in chosen) < MOST_OF_A_LAYER:
            chosen.append((layer, head))
    return chosen


def score_description(text: str, sample: Sample) -> Score:
    """A description's scores; its accuracy is the share of the four values that are in it.

    Examples
    --------
    >>> sample = description_samples(1)[0]
    >>> score_description("Julia Olsen is a doctor, keeps a falcon", sample).accuracy
    0.5
    """
    whole, wanted = score_text(text, sample), values_of(sample)
    return replace(whole, accuracy=sum(contains(text, value) for value in wanted) / len(wanted))


def _short_answers(
    lm: LanguageModel,
    samples: Sequence[Sample],
    contexts: Sequence[str],
    seed: int,
    *,
    brackets: bool = True,
    interventions: Sequence[Intervention] = (),
) -> pl.DataFrame:
    return evaluate_model(
        lm,
        samples,
        contexts,
        interventions=interventions,
        brackets=brackets,
        gen_length=ANSWER_TOKENS,
        steps=1,
        likelihood=True,
        **_how(seed),
    )


def _how(seed: int) -> dict[str, Any]:
    return {"wording": WORDING, "shortcut": shortcut, "batch_size": 32, "seed": seed, "progress": False}
