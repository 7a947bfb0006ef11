"""A run under interventions: what they did to every sample, for which model they are in force, and the loops that run with them.

`lm.intervene(...)` puts interventions in force for everything that the model writes inside the context. A model is a frozen value, so
what is in force is kept here, by model. A loop that nothing records runs under a tap that keeps nothing, with the running interventions
as its edit.

Refused: interventions from two places at a time, which is a second context for the same model, or `intervention=` inside one; and what is
no intervention.
"""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from floatlens.capture.edits import Edit, describe
from floatlens.capture.forward import Forward
from floatlens.capture.tapping import Tap, TapRequest
from floatlens.decoding.canvas import Canvas, Pass, Run
from floatlens.decoding.model import Writer
from floatlens.decoding.options import AutoregressiveOptions, Options
from floatlens.errors import Caution, Refusal
from floatlens.interventions.specification import Intervention
from floatlens.interventions.wording import KINDS, to_text

if TYPE_CHECKING:  # what runs interventions is imported when some run
    from floatlens.interventions.running import Reported, Running


@contextmanager
def intervened_loop(lm: Writer, running: "Running") -> Iterator[Run]:
    """What a loop runs its passes with, inside the context; tell `running` of every step the loop yields."""
    padding: list[Tensor] = []
    tap = _tap(lm, running, lambda _forward: padding[-1], lm.module)

    def run(asked: Pass) -> Tensor:
        running.begin(asked)
        padding[:] = [asked.real_keys if asked.unguided is None else torch.cat([asked.real_keys, asked.real_keys])]
        if not asked.is_step:
            with tap.unrecorded():
                return lm.run_pass(asked)
        logits = lm.run_pass(asked)
        tap.take_step()
        return logits

    with tap:
        yield run


@contextmanager
def intervened_own_loop(lm: Writer, running: "Running") -> Iterator[None]:
    """A model's own `generate` runs in here, for one prompt; every forward of its step module is a step."""
    from floatlens.interventions.running import EachForward

    steps = EachForward(running)
    with _tap(lm, steps, all_real, lm.module if lm.step_on is None else lm.step_on):
        yield
    steps.finish()


def all_real(forward: Forward) -> Tensor:
    """A model's own loop runs one text at a time: none of it is padding, whatever tokens stand there."""
    samples, rows = forward.input_ids.shape
    return torch.ones(samples, (forward.past or 0) + rows, dtype=torch.bool)  # in host memory: known without asking the device


def _tap(lm: Writer, edit: Edit, padding: Any, step_on: torch.nn.Module) -> Tap:
    return Tap(
        lm.module,
        TapRequest(keep=(), padding=padding, edits=(edit,), step_on=step_on, record=False),
    )


AnyIntervention = Intervention | Edit | Sequence[Intervention | Edit]
"""What `intervention=` takes: an intervention, an edit that is a plain function, or several of them, which act one after the other."""


NOTHING_REMOVED = (
    "the intervention removed no attention in any step, so this is the unedited model. "
    "Its steps may come after the last one, its threshold may be above every key, or the text may have ended after its first step."
)
"""The warning about a run in which interventions did nothing."""


@dataclass(eq=False)
class InterventionRun:
    """What interventions did to the samples that ran under them, in the order in which they ran; `lm.intervene` makes one."""

    interventions: tuple[Intervention | Edit, ...]
    _samples: "list[list[Reported]]" = field(default_factory=list)
    _layers: list[int] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        """The interventions in words."""
        return [
            to_text(intervention) if isinstance(intervention, Intervention) else describe(intervention)
            for intervention in self.interventions
        ]

    @property
    def removed(self) -> xr.DataArray:
        """The share of the attention that was removed at each step, before the edit, over real rows: (sample, step, layer, head)."""
        return self._joined("removed")

    @property
    def shortfall(self) -> xr.DataArray:
        """What equal-mass controls could not remove, because all other keys together did not hold as much: (sample, step, layer, head)."""
        if all("shortfall" not in step for sample in self._samples for step in sample):
            raise Refusal("Only a control of equal mass can fall short: RandomKeys(..., equal='mass').")
        return self._joined("shortfall")

    def say_if_nothing_was_removed(self) -> None:
        """Warn if interventions ran and removed nothing; plain functions are exempt, because they may move attention and remove none."""
        steps = [report["removed"][1] for sample in self._samples for report in sample]
        if (
            steps
            and all(isinstance(intervention, Intervention) for intervention in self.interventions)
            and not any(np.nansum(step) for step in steps)
        ):
            warnings.warn(f"{' and '.join(self.names)}: {NOTHING_REMOVED}", Caution, stacklevel=4)

    def start_batch(self, canvas: Canvas, options: Options) -> "Running":
        """The interventions on another batch that a loop of floatlens writes."""
        seeds = [generator.initial_seed() for generator in canvas.generators]
        return self.start(seeds, last_row_only=isinstance(options, AutoregressiveOptions))

    def start(self, seeds: Sequence[int], *, last_row_only: bool = False) -> "Running":
        """The interventions on other samples, which have these seeds; keys are chosen by the last row of a forward, or by all."""
        from floatlens.interventions.running import Running

        running = Running(self.interventions, seeds, last_row_only=last_row_only)
        self._samples += running.reports  # these grow as it runs
        self._layers = running.layers
        return running

    def _joined(self, name: str) -> xr.DataArray:
        steps = [report[name][1] for sample in self._samples for report in sample]
        if not steps:
            raise Refusal("Nothing has run under these interventions yet.")
        longest, layers, heads = max(map(len, self._samples)), len(self._layers), max(values.shape[1] for values in steps)
        joined = np.full((len(self._samples), longest, layers, heads), np.nan, np.float32)
        for number, sample in enumerate(self._samples):
            for step, report in enumerate(sample):
                joined[number, step] = report[name][1]
        dims = ("sample", "step", "layer", "head")
        return xr.DataArray(joined, dims=dims, coords={"layer": self._layers}, name=name, attrs={"interventions": self.names})


_in_force: ContextVar[tuple[tuple[Writer, InterventionRun], ...]] = ContextVar("_in_force", default=())


@contextmanager
def intervening(lm: Writer, given: AnyIntervention) -> Iterator[InterventionRun]:
    """Interventions are in force for this model inside the context."""
    if _of(lm) is not None:
        raise Refusal(f"Interventions are in force for {lm.name} already; give all of them to one lm.intervene([...]).")
    run = InterventionRun(as_interventions(given))
    token = _in_force.set((*_in_force.get(), (lm, run)))
    try:
        yield run
    finally:
        _in_force.reset(token)


def run_of(lm: Writer, given: AnyIntervention | None) -> InterventionRun | None:
    """The run that something the model writes belongs to: a new one for what is given, that of the context it stands in, or none."""
    around = _of(lm)
    if given is None:
        return around
    if around is not None:
        raise Refusal(f"intervention= is given where {', '.join(around.names)} is in force; give all of them to one lm.intervene([...]).")
    return InterventionRun(as_interventions(given))


def as_interventions(given: Any) -> tuple[Intervention | Edit, ...]:
    """One intervention or several, as a tuple.

    Examples
    --------
    >>> from floatlens.interventions import MaskAnchors
    >>> as_interventions(MaskAnchors())
    (MaskAnchors(layers=None, steps=None, k=1),)
    """
    several = given if isinstance(given, Sequence) and not isinstance(given, str) else [given]
    for intervention in several:
        known = (
            type(intervention) in KINDS.values()
            if isinstance(intervention, Intervention)
            else callable(intervention) and not isinstance(intervention, type)
        )
        if not known:
            hint = f" Write floatlens.interventions.from_text({intervention!r})." if isinstance(intervention, str) else ""
            raise Refusal(
                f"{intervention!r} is not an intervention: pass one of floatlens.interventions, or a function of an attention call and of "
                f"what came before it.{hint}"
            )
    if not several:
        raise Refusal("intervention= is an empty list; leave it out to run the model as it is.")
    return tuple(several)


def _of(lm: Writer) -> InterventionRun | None:
    return next((run for other, run in _in_force.get() if other is lm), None)
