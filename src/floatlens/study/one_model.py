"""Ask one model every question under every condition, and return a table with one row per sample and condition.

All conditions ask the same samples with the same wording, extraction and scores. Whatever is drawn at random for a sample is drawn
from its own seed (`seed` plus the sample's number), so rows are paired by `sample`.

Decided here: samples run in the order of their longest prompt, counted in characters, so that a batch holds prompts of similar
length, and the same ones in every condition and for every model. The rows come in the order in which conditions and samples were
given. All prompts and answers are checked before the model runs, so that what does not fit is refused at once.

Refused, with the id of the sample: a sample that cannot be run (none is dropped), two samples with the same id, a question that is
too long for the model. Refused unless `allow_unknown` is set: questions and answers that the model's tokenizer does not know
(`floatlens.tasks.wording`). An intervention that removed nothing in a whole condition gives a warning.

| column | what it holds |
|---|---|
| `model`, `sample` | their names |
| `context`, `kind`, `level` | the context as text, what is varied, and its number where it has one |
| `intervention`, `control` | as text; "" without |
| `draw` | which draw of a random control this is, from 0; null where nothing is drawn |
| `prompt` | the exact text, chat template included |
| `prediction`, `answer` | what was extracted; the first right answer, whose likelihood is taken |
| `accuracy`, `exact_match`, `f1` | scores from 0 to 1; `f1` is null for numbers |
| `log_likelihood`, `log_likelihood_error` | of the answer, in nats; null without `likelihood=True` |
| `removed`, `likelihood_removed` | the share of attention an intervention removed while the model wrote / while the likelihood was taken |
| `shortcut` | what ignoring the point of the question would score; null where the task does not say |
| `passages`, `passages_cut`, `gold_cut` | passages shown, and how many were cut for lack of room |
| `gen_length` | how many tokens were to be written |
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import polars as pl

from floatlens.errors import Caution, Refusal
from floatlens.interventions.run import NOTHING_REMOVED
from floatlens.interventions.specification import Intervention
from floatlens.interventions.wording import to_text
from floatlens.models.language_model import Generation, LanguageModel
from floatlens.study.outcomes import SCHEMA
from floatlens.study.settings import Settings, settings_of
from floatlens.tasks.conditions import DRAWS, Condition, plan
from floatlens.tasks.contexts import Context, arrange
from floatlens.tasks.likelihood import (
    Continuation,
    Likelihood,
    continuation,
    log_likelihoods,
    refuse_without_likelihood,
    refuse_without_room,
)
from floatlens.tasks.samples import Passage, Sample
from floatlens.tasks.wording import Fitted, Wording, fit, format_prompt, refuse_unknown_tokens
from floatlens.terminal import progress_bar

Report = Callable[[int, str], object]
"""Called with the number of questions that were answered, and under which condition."""


def evaluate_model(
    lm: LanguageModel,
    samples: Sequence[Sample],
    contexts: Sequence[str | Context | Condition],
    *,
    interventions: Sequence[str | Intervention] = (),
    controls: bool = True,
    brackets: bool = True,
    draws: int = DRAWS,
    progress: bool | Report = True,
    **settings: Any,
) -> pl.DataFrame:
    """Ask one model samples that are at hand. (`floatlens.evaluate` loads models and tasks by name and asks several models.)

    Parameters
    ----------
    lm, samples
        The model, and questions with different ids.
    contexts
        What stands before the questions: contexts, or their texts, such as "noise:0.4".
    interventions, controls
        What the model may not look at, in every context given; each with its random controls.
    brackets
        Whether closed-book and gold-only run as well.
    draws
        How often each random control is drawn. All draws are in the table; `floatlens.study.outcomes` averages them per sample.
    progress
        Show a progress bar, or a function to call instead with the number of questions answered and the condition.
    settings
        Fields of `Settings` (wording, gen_length, likelihood, ...); any other name is an option of the sampler, as for `lm.generate`.

    Returns
    -------
    polars.DataFrame
        One row per sample, condition and draw; the columns are listed in the module's docstring.

    Examples
    --------
    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> from floatlens.tasks.wording import WORLD_WORDING
    >>> from floatlens.tasks.world import make_tokenizer, open_book_samples
    >>> size = dict(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1, vocab_size=300)
    >>> how = dict(family="autoregressive", sampler="autoregressive", row_offset=1)
    >>> lm = LanguageModel(LlamaForCausalLM(LlamaConfig(**size)).eval(), make_tokenizer(), **how)
    >>> table = evaluate_model(lm, open_book_samples(2), ["noise:0.8"], wording=WORLD_WORDING, gen_length=2)
    >>> table.select("sample", "context", "passages").rows()[::2]
    [('world-open-0000', 'closed-book', 0), ('world-open-0000', 'gold', 1), ('world-open-0000', 'noise:0.8', 5)]
    """
    how = settings_of(settings)
    refuse_samples(samples)
    conditions = plan(samples, contexts, interventions, controls=controls, brackets=brackets, draws=draws)
    return ask_model(lm, samples, conditions, how, progress=progress)


def ask_model(
    lm: LanguageModel,
    samples: Sequence[Sample],
    conditions: Sequence[Condition],
    settings: Settings,
    *,
    first: int = 0,
    order: Sequence[int] | None = None,
    progress: bool | Report = True,
) -> pl.DataFrame:
    """The rows of one model: every sample under every condition of a plan.

    `first` is the number of the first sample within its task: samples of a shard draw from the seeds that they have in the whole. `order`
    is the one in which samples run (`by_longest_prompt`), where these conditions are not all of a plan.
    """
    refuse_samples(samples)
    if settings.likelihood:
        refuse_without_likelihood(lm)
    shown = {condition.context: [arrange(sample, condition.context) for sample in samples] for condition in conditions}
    order = by_longest_prompt(samples, list(shown.values()), settings.wording) if order is None else order
    fitted = {}
    for context, length in dict.fromkeys((condition.context, settings.length_for(condition)) for condition in conditions):
        fitted[context, length] = _fit_all(lm, samples, shown[context], length, settings)
    encoded = [prompt.encoded for prompts in fitted.values() for prompt in prompts]
    refuse_unknown_tokens(
        lm.name,
        lm.tokenizer,
        samples,
        encoded,
        settings.wording,
        likelihood=settings.likelihood,
        allow_unknown=settings.allow_unknown,
    )
    tables: list[pl.DataFrame] = []
    with _cautions_kept_back(), _reporting(len(conditions) * len(samples), lm.name, progress) as report:
        for condition in conditions:
            prompts = fitted[condition.context, settings.length_for(condition)]
            tables.append(_ask(lm, samples, condition, prompts, order, settings, partial(report, what=condition.name), first))
    for condition, rows in zip(conditions, tables, strict=True):
        if condition.acting is not None and _nothing_removed(rows):
            warnings.warn(f"{lm.name}, {condition.name}: {NOTHING_REMOVED}", Caution, stacklevel=3)
    return pl.concat(tables)


@contextmanager
def _reporting(total: int, model: str, progress: bool | Report) -> Iterator[Callable[..., object]]:
    """How progress is reported: to a bar, or to the function that is given instead."""
    if not isinstance(progress, bool):
        yield lambda count, what: progress(count, what)
        return
    with progress_bar(total, f"Asking {model}", show=progress) as advance:
        yield lambda count, what: advance(count)


@contextmanager
def _cautions_kept_back() -> Iterator[None]:
    """Silence the warnings of single batches: each is given once, for the whole evaluation."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Caution)
        yield


def _nothing_removed(rows: pl.DataFrame) -> bool:
    """Whether an intervention left all answers of a condition, and their likelihoods, as they were."""
    return not (rows["removed"].fill_null(0).sum() or rows["likelihood_removed"].fill_null(0).sum())


def _fit_all(
    lm: LanguageModel, samples: Sequence[Sample], shown: Sequence[Sequence[Passage]], length: int, settings: Settings
) -> list[Fitted]:
    """The prompts of all samples in one context, with room for what is to be written, and for the answers whose likelihood is taken."""
    given = zip(samples, shown, strict=True)
    fitted = [fit(lm, sample, passages, settings.wording, length, settings.chat) for sample, passages in given]
    for sample, prompt in zip(samples, fitted, strict=True) if settings.likelihood else ():
        refuse_without_room(lm, _continuation(lm, sample, prompt, settings))
    return fitted


def _ask(
    lm: LanguageModel,
    samples: Sequence[Sample],
    condition: Condition,
    fitted: Sequence[Fitted],
    order: Sequence[int],
    settings: Settings,
    advance: Callable[[int], object],
    first_number: int = 0,
) -> pl.DataFrame:
    """All samples under one condition, batch by batch; rows in the order of the samples."""
    rows: dict[int, dict[str, Any]] = {}
    for first in range(0, len(order), settings.batch_size):
        batch = order[first : first + settings.batch_size]
        seeds = [settings.seed + first_number + number for number in batch]
        try:
            written, likelihoods = _run(lm, [(samples[number], fitted[number]) for number in batch], condition, seeds, settings)
        except Refusal as refusal:
            for number, seed in zip(batch, seeds, strict=True):  # find the sample that is refused
                try:
                    _run(lm, [(samples[number], fitted[number])], condition, [seed], settings)
                except Refusal as of_sample:
                    raise Refusal(f"Sample {samples[number].id}, {condition.name}: {of_sample}") from None
            raise Refusal(f"Samples {', '.join(samples[number].id for number in batch)}, {condition.name}: {refusal}") from None
        for place, number in enumerate(batch):
            rows[number] = _row(lm, samples[number], condition, fitted[number], written[place], likelihoods[place], settings)
        advance(len(batch))
    return pl.DataFrame([rows[number] for number in range(len(samples))], schema=SCHEMA)


def _run(
    lm: LanguageModel, batch: Sequence[tuple[Sample, Fitted]], condition: Condition, seeds: Sequence[int], settings: Settings
) -> tuple[list[Generation], list[Likelihood | None]]:
    """What a model writes after the prompts of a batch, and how likely it finds their answers."""
    written = lm.generate(
        [fitted.prompt for _, fitted in batch],
        gen_length=settings.length_for(condition),
        steps=settings.steps_for(lm, condition),
        seed=seeds,
        batch_size=len(batch),
        chat=settings.chat,
        intervention=condition.acting,
        progress=False,
        **settings.options,
    )
    if not settings.likelihood:
        return written, [None] * len(batch)
    answers = [_continuation(lm, sample, fitted, settings, seed) for (sample, fitted), seed in zip(batch, seeds, strict=True)]
    likelihoods = log_likelihoods(
        lm,
        answers,
        intervention=condition.acting,
        draws=settings.mask_sets,
        seed=settings.seed,
        batch_size=settings.batch_size,
    )
    return written, [*likelihoods]


def _row(
    lm: LanguageModel,
    sample: Sample,
    condition: Condition,
    fitted: Fitted,
    written: Generation,
    likelihood: Likelihood | None,
    settings: Settings,
) -> dict[str, Any]:
    score = settings.scorer(written.text, sample)
    return {
        "model": lm.name,
        "sample": sample.id,
        "context": condition.text,
        "kind": condition.kind,
        "level": condition.level,
        "intervention": "" if condition.intervention is None else to_text(condition.intervention),
        "control": condition.control,
        "draw": condition.draw if condition.control else None,
        "prompt": written.prompt,
        "prediction": score.prediction,
        "answer": sample.answers[0],
        "accuracy": score.accuracy,
        "exact_match": score.exact_match,
        "f1": score.f1,
        "log_likelihood": None if likelihood is None else likelihood.value,
        "log_likelihood_error": None if likelihood is None else likelihood.error,
        "removed": written.removed,
        "likelihood_removed": None if likelihood is None else likelihood.removed,
        "shortcut": None if settings.shortcut is None else settings.shortcut(sample, fitted.passages),
        "passages": len(fitted.passages),
        "passages_cut": fitted.passages_cut,
        "gold_cut": fitted.gold_cut,
        "gen_length": settings.length_for(condition),
    }


def _continuation(lm: LanguageModel, sample: Sample, fitted: Fitted, settings: Settings, seed: int = 0) -> Continuation:
    """The answer whose likelihood is taken, behind its prompt."""
    return continuation(lm, fitted.encoded, settings.wording.answer.format(answer=sample.answers[0]), name=sample.id, seed=seed)


def by_longest_prompt(samples: Sequence[Sample], shown: Sequence[Sequence[Sequence[Passage]]], wording: Wording) -> list[int]:
    """The numbers of the samples, sorted by the characters of their longest prompt: the same for every tokenizer."""
    longest = [
        max(len(format_prompt(sample, shown_in[number], wording).text) for shown_in in shown) for number, sample in enumerate(samples)
    ]
    return sorted(range(len(samples)), key=lambda number: longest[number])


def refuse_samples(samples: Sequence[Sample]) -> None:
    """Refuse an empty list of samples, and ids that occur twice."""
    if not samples:
        raise Refusal("There are no samples to ask. Give at least one.")
    seen: set[str] = set()
    for sample in samples:
        if sample.id in seen:
            raise Refusal(f"Two samples have the id {sample.id}, and rows are paired by it. Give each sample an id of its own.")
        seen.add(sample.id)
