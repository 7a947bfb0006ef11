"""What runs a unit: everything that a worker needs, such that it can be sent to another process, or to another machine.

A `ModelJob` asks a model a shard of questions under a condition, or records a trace of them. `questions_job` makes one, with the id of its
unit, for studies, for `fl.evaluate` and for the demo alike; `depends_on` says what every unit of a model depends on.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from floatlens.decoding.prompts import Prompt
from floatlens.interventions.wording import to_text
from floatlens.models.language_model import LanguageModel
from floatlens.study.settings import Settings
from floatlens.study.units import QUESTIONS, TRACE, OfUnit, Unit, digest_of, version_of_results
from floatlens.tasks.conditions import Condition
from floatlens.tasks.contexts import arrange
from floatlens.tasks.samples import Sample

if TYPE_CHECKING:
    from floatlens.study.worker import Worker

SAMPLED = 64  # numbers per tensor


@dataclass(frozen=True)
class ModelChoice:
    """A model as a worker loads it; `digest` is that of its checkpoint, `host` the machine on which it was taken."""

    name: str
    label: str
    revision: str | None
    dtype: str | None
    block_length: int | None
    trust_remote_code: bool
    digest: str
    host: str


@dataclass(frozen=True)
class Tracing:
    """What a trace keeps, what is measured on it, and whether it is stored itself; `batch_size` as for `lm.trace`, its own by default."""

    detail: str
    measures: tuple[str, ...]
    keep: bool
    batch_size: int | None = None


@dataclass(frozen=True, eq=False)
class ModelJob(OfUnit):
    """A unit with everything that a worker needs to run it.

    `threads` is how many torch computes with, None to leave that as it is; `order` is the one in which the samples run, by default that of
    their longest prompt; `folder` is where a trace is left beside the unit's file, if it is not to be part of that.
    """

    unit: Unit
    model: ModelChoice
    settings: Settings
    threads: int | None
    samples: tuple[Sample, ...] = ()
    condition: Condition | None = None
    prompts: tuple[Prompt, ...] = ()
    tracing: Tracing | None = None
    names: tuple[str, ...] = field(default=())
    order: tuple[int, ...] = ()
    folder: Path | None = None

    def run(self, worker: "Worker", report: Callable[[int, str], object]) -> bytes:
        """The file of the unit."""
        return worker.run(self, report)


def depends_on(model: ModelChoice, settings: Settings, device: str, threads: int | None, first: int) -> dict[str, str]:
    """What the units of a model depend on, apart from what is asked."""
    return {
        **version_of_results(),
        **settings_digests(settings),
        "model": f"{model.label} {model.digest}",
        "dtype": str(model.dtype),
        "block_length": str(model.block_length),
        "seed": str(settings.seed + first),
        "mask sets drawn from": str(settings.seed),
        "device": device,
        "threads": str(threads),
    }


def questions_job(
    task: str,
    sampler: str,
    model: ModelChoice,
    samples: Sequence[Sample],
    condition: Condition,
    settings: Settings,
    *,
    device: str,
    threads: int | None,
    first: int = 0,
    digest: str | None = None,
    order: Sequence[int] = (),
) -> ModelJob:
    """The job of asking a model questions under a condition.

    Parameters
    ----------
    task, sampler
        Their names, for tables.
    model, samples, condition, settings
        What is asked of which model, and how.
    device, threads
        The type of device it runs on, and with how many threads; None for as many as torch has.
    first
        The number of the first sample within its task.
    digest
        That of the questions (`questions_digest`), where it is known.
    order
        The order in which the samples run; by default that of their longest prompt in this condition.
    """
    edit = "" if condition.intervention is None else to_text(condition.intervention)
    depends = {
        **depends_on(model, settings, device, threads, first),
        "condition": condition.name,
        "questions": digest or questions_digest(samples, condition),
        **({"order": digest_of(list(order))} if order else {}),
    }
    about = (task, model.label, condition.text, edit, condition.control, condition.draw if condition.control else None)
    unit = Unit(QUESTIONS, *about, settings.seed, sampler, first, len(samples), depends)
    return ModelJob(unit, model, settings, threads, tuple(samples), condition, order=tuple(order))


def trace_job(
    task: str,
    sampler: str,
    model: ModelChoice,
    settings: Settings,
    tracing: Tracing,
    names: Sequence[str],
    *,
    device: str,
    threads: int | None,
    first: int = 0,
    samples: Sequence[Sample] = (),
    condition: Condition | None = None,
    prompts: Sequence[Prompt] = (),
    digest: str | None = None,
) -> ModelJob:
    """The job of tracing a model while it writes: samples under a condition, or prompts; `names` are those of the texts."""
    texts = [(prompt.text, sorted(prompt.regions.items())) for prompt in prompts]
    asked = {"prompts": digest_of(texts, list(names))}
    if condition is not None:
        asked = {"condition": condition.text, "questions": digest or questions_digest(samples, condition)}
    kept = (tracing.detail, tracing.measures, tracing.keep, *([] if tracing.batch_size is None else [tracing.batch_size]))
    depends = {**depends_on(model, settings, device, threads, first), **asked, "tracing": digest_of(*kept)}
    context = "" if condition is None else condition.text
    unit = Unit(TRACE, task, model.label, context, "", "", None, settings.seed, sampler, first, len(names), depends)
    shown = {"samples": tuple(samples), "condition": condition, "prompts": tuple(prompts)}
    return ModelJob(unit, model, settings, threads, **shown, tracing=tracing, names=tuple(names))


def questions_digest(samples: Sequence[Sample], condition: Condition) -> str:
    """A hash of the questions as they are asked under a condition: ids, words, answers, and the passages that are shown.

    Examples
    --------
    >>> from floatlens.tasks.conditions import condition_of
    >>> asked = Sample("a", "Where?", ("Oslo",))
    >>> questions_digest([asked], condition_of("closed-book")) == questions_digest([asked, asked], condition_of("closed-book"))
    False
    """
    shown = []
    for sample in samples:
        passages = [
            (passage.title, passage.text, passage.conflicting, passage in sample.evidence) for passage in arrange(sample, condition.context)
        ]
        shown.append((sample.id, sample.question, sample.answers, passages))
    return digest_of(shown)


def settings_digests(settings: Settings) -> dict[str, str]:
    """Every setting that a result depends on, as text; those whose text is long by their hash."""
    values = {**settings.decisive, "options": sorted(settings.options.items()), "batch_size": settings.batch_size}
    values.pop("seed")
    texts = {f"settings.{name}": str(value) for name, value in values.items()}
    return {name: text if len(text) <= 80 else digest_of(text) for name, text in texts.items()}


def fingerprint(lm: LanguageModel) -> str:
    """A hash of a loaded model: how it writes, its config, the names and shapes of its tensors, numbers of each and their sum.

    Examples
    --------
    >>> from torch import nn
    >>> one, other = (LanguageModel(nn.Linear(3, 3)) for _ in range(2))
    >>> fingerprint(one) == fingerprint(one), fingerprint(one) == fingerprint(other)
    (True, False)
    """
    how = (lm.name, lm.family, lm.sampler, lm.row_offset, lm.mask_token_id, lm.end_tokens, lm.suffix, lm.sampler_defaults)
    config = lm.config.to_dict() if hasattr(lm.config, "to_dict") else {}
    digest = hashlib.sha256(repr((how, sorted(config.items()))).encode())
    for name, tensor in lm.module.state_dict().items():
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        flat = tensor.detach().flatten()
        digest.update(flat[:: max(1, len(flat) // SAMPLED)].double().cpu().numpy().tobytes())
        digest.update(repr(flat.sum(dtype=torch.float64).item()).encode())
    return digest.hexdigest()
