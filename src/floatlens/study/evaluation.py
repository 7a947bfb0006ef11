"""Ask questions under several conditions and write down what came out: one row for each sample and condition.

Every condition asks the same samples, with the same wording, extraction and scores, and whatever is drawn for a sample is drawn from its own seed, `seed` plus its number: rows are paired
by `sample`. The exact prompt is in the table, and so is what had to be cut for a model whose context is short.

Decided here: samples run in the order of their longest prompt in characters, so that a batch holds prompts of similar length, the same ones in every condition
and for every model; the rows come in the order in which samples and conditions were given. A sample that cannot be run stops the evaluation, with its id: none is dropped. All prompts and answers are
looked at before the model runs, so that what does not fit is refused at once.
Refused as well, unless `allow_unknown` is given: questions and answers that the model's tokenizer does not know (`readable`). An intervention that removed nothing in a whole condition is said.

Columns: `model`, `sample`, `context` (as text), `kind` and `level` (what is varied, and its number where it has one), `intervention` and `control` ("" without), `prompt`,
`prediction` (what was extracted), `answer` (the first of those that count, whose likelihood is taken), `accuracy`, `exact_match`, `f1`, `log_likelihood`, `log_likelihood_error`,
`removed` (share of the attention that interventions removed while the model wrote), `likelihood_removed` (and while its likelihood was taken), `shortcut`, `passages` (shown),
`passages_cut`, `gold_cut`, `gen_length`. What was not asked for, or does not exist, is null: likelihoods without `likelihood=True`, shares without an intervention, the F1 of a number.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from inspect import isfunction
from pathlib import Path
from typing import Any

import polars as pl

from floatlens.decoding.options import refuse_batch_size
from floatlens.errors import Caution, Refusal
from floatlens.interventions.run import NOTHING_REMOVED
from floatlens.interventions.specification import Intervention
from floatlens.interventions.wording import to_text
from floatlens.models.language_model import Generation, LanguageModel
from floatlens.seeds import refuse_seed
from floatlens.study.kept import fingerprint, name_of, restore, store
from floatlens.tasks.conditions import Condition, plan
from floatlens.tasks.contexts import Context, arrange
from floatlens.tasks.likelihood import (
    DRAWS,
    Continuation,
    Likelihood,
    continuation,
    log_likelihoods,
    refuse_without_likelihood,
    refuse_without_room,
)
from floatlens.tasks.samples import Passage, Sample
from floatlens.tasks.scoring import Scorer, score_text
from floatlens.tasks.wording import QA_WORDING, Fitted, Wording, fit, put, refuse_unknown_tokens
from floatlens.terminal import progress_bar

SCHEMA: dict[str, Any] = {
    "model": pl.String,
    "sample": pl.String,
    "context": pl.String,
    "kind": pl.String,
    "level": pl.Float64,
    "intervention": pl.String,
    "control": pl.String,
    "prompt": pl.String,
    "prediction": pl.String,
    "answer": pl.String,
    "accuracy": pl.Float64,
    "exact_match": pl.Float64,
    "f1": pl.Float64,
    "log_likelihood": pl.Float64,
    "log_likelihood_error": pl.Float64,
    "removed": pl.Float64,
    "likelihood_removed": pl.Float64,
    "shortcut": pl.Float64,
    "passages": pl.Int64,
    "passages_cut": pl.Int64,
    "gold_cut": pl.Int64,
    "gen_length": pl.Int64,
}
"""The columns of an evaluation and their types."""

Shortcut = Callable[[Sample, Sequence[Passage]], float]
"""What ignoring the point of a question would score, when these passages are shown."""


@dataclass(frozen=True)
class _Settings:
    """What is the same for all conditions of a run."""

    wording: Wording
    scorer: Scorer
    shortcut: Shortcut | None
    gen_length: int
    steps: int | None
    batch_size: int
    seed: int
    draws: int | None  # None: no likelihoods
    chat: bool | None
    options: dict[str, Any]

    @property
    def told(self) -> dict[str, Any]:
        """What rows depend on besides model, condition and prompts; how many run together is not part of it."""
        functions = {name: None if one is None else _named(one) for name, one in (("scorer", self.scorer), ("shortcut", self.shortcut))}
        return {name: value for name, value in vars(self).items() if name not in (*functions, "batch_size")} | functions

    def length_for(self, condition: Condition) -> int:
        """How many tokens are to be written under a condition."""
        return condition.masks or self.gen_length


def evaluate(
    lm: LanguageModel,
    samples: Sequence[Sample],
    contexts: Sequence[str | Context | Condition],
    *,
    interventions: Sequence[str | Intervention] = (),
    controls: bool = True,
    brackets: bool = True,
    wording: Wording = QA_WORDING,
    scorer: Scorer = score_text,
    shortcut: Shortcut | None = None,
    gen_length: int = 32,
    steps: int | None = None,
    batch_size: int = 8,
    seed: int = 0,
    likelihood: bool = False,
    draws: int = DRAWS,
    chat: bool | None = None,
    allow_unknown: bool = False,
    keep: Path | None = None,
    progress: bool = True,
    **options: Any,
) -> pl.DataFrame:
    """Every sample under every condition.

    Parameters
    ----------
    lm
        The model.
    samples
        Questions with different ids.
    contexts
        What stands before them: contexts, or their texts, such as "noise:0.4". Closed-book and gold-only come by themselves (`brackets`).
    interventions
        What the model may not look at, in every context that is asked for; each with its controls (`controls`).
    wording, scorer, shortcut
        How a prompt reads, how what comes out is scored, and what to print beside the scores (the world has a `shortcut`).
    gen_length, steps
        How many tokens to write, and in how many denoising steps at most; one a token by default. An autoregressive model has no steps to choose.
    batch_size
        How many prompts run together. It changes the speed, and in float32 never the tokens; in bfloat16 and float16 a near tie may fall differently (docs/reference/decoding.md).
    seed
        What random controls and mask sets are drawn from.
    likelihood, draws
        Whether the log-likelihood of the first answer is taken as well, and from how many mask sets at most.
    chat
        Whether prompts go through the chat template; by default where there is one.
    allow_unknown
        Go on where the tokenizer does not know parts of the prompts or answers, with a warning instead of a refusal.
    keep
        A folder for conditions that are done: the same call after one that was stopped goes on from them. By default nothing is kept.
    progress
        Show a progress bar.
    options
        Those of the sampler, as for `lm.generate`.

    Returns
    -------
    polars.DataFrame
        One row for each condition and sample, as the module says.

    Examples
    --------
    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> from floatlens.tasks.wording import WORLD_WORDING
    >>> from floatlens.tasks.world import make_tokenizer, open_book_samples
    >>> size = dict(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1, vocab_size=300)
    >>> how = dict(family="autoregressive", sampler="autoregressive", row_offset=1)
    >>> lm = LanguageModel(LlamaForCausalLM(LlamaConfig(**size)).eval(), make_tokenizer(), **how)
    >>> table = evaluate(lm, open_book_samples(2), ["noise:0.8"], wording=WORLD_WORDING, gen_length=2)
    >>> table.select("sample", "context", "passages").rows()[::2]
    [('world-open-0000', 'closed-book', 0), ('world-open-0000', 'gold', 1), ('world-open-0000', 'noise:0.8', 5)]
    """
    _refuse_samples(samples)
    refuse_batch_size(batch_size)
    seed = refuse_seed(seed)
    if likelihood:
        refuse_without_likelihood(lm)
    settings = _Settings(wording, scorer, shortcut, gen_length, steps, batch_size, seed, draws if likelihood else None, chat, options)
    conditions = plan(samples, contexts, interventions, controls=controls, brackets=brackets)
    shown = {condition.context: [arrange(sample, condition.context) for sample in samples] for condition in conditions}
    order = _by_longest_prompt(samples, list(shown.values()), wording)
    fitted = {}
    for context, length in dict.fromkeys((condition.context, settings.length_for(condition)) for condition in conditions):
        fitted[context, length] = _fit_all(lm, samples, shown[context], length, settings)
    encoded = [one.encoded for prompts in fitted.values() for one in prompts]
    refuse_unknown_tokens(lm.name, lm.tokenizer, samples, encoded, wording, likelihood=likelihood, allow_unknown=allow_unknown)
    tables: list[pl.DataFrame] = []
    model = "" if keep is None else fingerprint(lm)
    with _cautions_kept_back(), progress_bar(len(conditions) * len(samples), f"Asking {lm.name}", show=progress) as advance:
        for condition in conditions:
            prompts = fitted[condition.context, settings.length_for(condition)]
            asked = [(sample.id, one.encoded.text, *sample.answers) for sample, one in zip(samples, prompts, strict=True)]
            name = name_of(model, condition.name, asked, settings.told)
            rows = restore(keep, name)
            if rows is None:
                rows = store(keep, name, _ask(lm, samples, condition, prompts, order, settings, advance))
            else:
                advance(len(samples))
            tables.append(rows)
    for condition, rows in zip(conditions, tables, strict=True):
        if condition.acting is not None and _nothing_removed(rows):
            warnings.warn(f"{lm.name}, {condition.name}: {NOTHING_REMOVED}", Caution, stacklevel=2)
    return pl.concat(tables)


@contextmanager
def _cautions_kept_back() -> Iterator[None]:
    """What single batches would be warned of is said once, of the whole evaluation."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Caution)
        yield


def _nothing_removed(rows: pl.DataFrame) -> bool:
    """Whether an intervention left all answers of a condition, and their likelihoods, as they were."""
    return not (rows["removed"].fill_null(0).sum() or rows["likelihood_removed"].fill_null(0).sum())


def _fit_all(
    lm: LanguageModel, samples: Sequence[Sample], shown: Sequence[Sequence[Passage]], length: int, settings: _Settings
) -> list[Fitted]:
    """The prompts of all samples in one context, with room for what is to be written, and for the answers whose likelihood is taken."""
    given = zip(samples, shown, strict=True)
    fitted = [fit(lm, sample, passages, settings.wording, length, settings.chat) for sample, passages in given]
    for sample, one in zip(samples, fitted, strict=True) if settings.draws is not None else ():
        refuse_without_room(lm, _continuation(lm, sample, one, settings))
    return fitted


def _ask(
    lm: LanguageModel,
    samples: Sequence[Sample],
    condition: Condition,
    fitted: Sequence[Fitted],
    order: Sequence[int],
    settings: _Settings,
    advance: Callable[[int], None],
) -> pl.DataFrame:
    """All samples under one condition, batch by batch; rows in the order of the samples."""
    rows: dict[int, dict[str, Any]] = {}
    for first in range(0, len(order), settings.batch_size):
        batch = order[first : first + settings.batch_size]
        seeds = [settings.seed + at for at in batch]
        try:
            written, likely = _run(lm, [(samples[at], fitted[at]) for at in batch], condition, seeds, settings)
        except Refusal as refusal:
            for at, seed in zip(batch, seeds, strict=True):  # which of them is it?
                try:
                    _run(lm, [(samples[at], fitted[at])], condition, [seed], settings)
                except Refusal as of_one:
                    raise Refusal(f"Sample {samples[at].id}, {condition.name}: {of_one}") from None
            raise Refusal(f"Samples {', '.join(samples[at].id for at in batch)}, {condition.name}: {refusal}") from None
        for place, at in enumerate(batch):
            rows[at] = _row(lm, samples[at], condition, fitted[at], written[place], likely[place], settings)
        advance(len(batch))
    return pl.DataFrame([rows[at] for at in range(len(samples))], schema=SCHEMA)


def _run(
    lm: LanguageModel, batch: Sequence[tuple[Sample, Fitted]], condition: Condition, seeds: Sequence[int], settings: _Settings
) -> tuple[list[Generation], list[Likelihood | None]]:
    """What a model writes after the prompts of a batch, and how likely it finds their answers."""
    length = settings.length_for(condition)
    steps = None if settings.steps is None or lm.sampler == "autoregressive" else min(settings.steps, length)
    written = lm.generate(
        [fitted.prompt for _, fitted in batch],
        gen_length=length,
        steps=steps,
        seed=seeds,
        batch_size=len(batch),
        chat=settings.chat,
        intervention=condition.acting,
        progress=False,
        **settings.options,
    )
    if settings.draws is None:
        return written, [None] * len(batch)
    answers = [_continuation(lm, sample, fitted, settings, seed) for (sample, fitted), seed in zip(batch, seeds, strict=True)]
    found = log_likelihoods(
        lm, answers, intervention=condition.acting, draws=settings.draws, seed=settings.seed, batch_size=settings.batch_size
    )
    return written, [*found]


def _row(
    lm: LanguageModel,
    sample: Sample,
    condition: Condition,
    fitted: Fitted,
    written: Generation,
    likely: Likelihood | None,
    settings: _Settings,
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
        "prompt": written.prompt,
        "prediction": score.prediction,
        "answer": sample.answers[0],
        "accuracy": score.accuracy,
        "exact_match": score.exact_match,
        "f1": score.f1,
        "log_likelihood": None if likely is None else likely.value,
        "log_likelihood_error": None if likely is None else likely.error,
        "removed": written.removed,
        "likelihood_removed": None if likely is None else likely.removed,
        "shortcut": None if settings.shortcut is None else settings.shortcut(sample, fitted.passages),
        "passages": len(fitted.passages),
        "passages_cut": fitted.passages_cut,
        "gold_cut": fitted.gold_cut,
        "gen_length": settings.length_for(condition),
    }


def _continuation(lm: LanguageModel, sample: Sample, fitted: Fitted, settings: _Settings, seed: int = 0) -> Continuation:
    """The answer whose likelihood is taken, behind its prompt."""
    return continuation(lm, fitted.encoded, settings.wording.answer.format(answer=sample.answers[0]), name=sample.id, seed=seed)


def _named(function: Any) -> str:
    """A function by its module and name, with the arguments that are given already; what has no name of its own (a lambda, an object) as it shows itself."""
    if isinstance(function, partial):
        return f"{_named(function.func)} {function.args} {function.keywords}"
    return f"{function.__module__}.{function.__name__}" if isfunction(function) and "<" not in function.__qualname__ else repr(function)


def _by_longest_prompt(samples: Sequence[Sample], shown: Sequence[Sequence[Sequence[Passage]]], wording: Wording) -> list[int]:
    """The samples' numbers by the characters of their longest prompt; no tokenizer has a say in it."""
    longest = [max(len(put(sample, of_context[at], wording).text) for of_context in shown) for at, sample in enumerate(samples)]
    return sorted(range(len(samples)), key=lambda at: longest[at])


def _refuse_samples(samples: Sequence[Sample]) -> None:
    if not samples:
        raise Refusal("There are no samples to ask. Give at least one.")
    seen: set[str] = set()
    for sample in samples:
        if sample.id in seen:
            raise Refusal(f"Two samples have the id {sample.id}, and rows are paired by it. Give each its own.")
        seen.add(sample.id)
